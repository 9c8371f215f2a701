"""DEEPINFER_* variables: one per setting, and a few that concern the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from deepinfer_cli.config.settings import all_settings

PREFIX: Final = "DEEPINFER_"
PROFILE_VARIABLE: Final = "DEEPINFER_PROFILE"


class Variable(NamedTuple):
    name: str
    meaning: str
    setting: str | None = None  # key it sets when the setting's own variable is absent


# Read by other parts of the program, or kept because DeepInfer's users have them set.
PROCESS_VARIABLES: Final[tuple[Variable, ...]] = (
    Variable("DEEPINFER_HF_MODEL_DIR", "Model folder to use when no model is named", "model"),
    Variable(
        "DEEPINFER_BATCH_INVARIANT",
        "Accepted for compatibility: answers never depend on the batch, so 0 changes nothing",
    ),
    Variable(PROFILE_VARIABLE, "Profile of the config file to use when --profile is not given"),
    Variable(
        "DEEPINFER_CACHE", "Folder for downloaded models and measured step costs; default ~/.cache/deepinfer"
    ),
    Variable("DEEPINFER_LLAMA_CPP", "libllama.so for `bench --against llama.cpp`"),
    Variable("DEEPINFER_JUDGE_API_KEY", "Key for the endpoint of `eval --judge URL`"),
    Variable("DEEPINFER_DEBUG", "Not empty: show a traceback with an error"),
)


def known_variables() -> dict[str, Variable]:
    """Every variable by name; those of settings first."""
    table = [Variable(s.env, s.help, s.key) for s in all_settings().values()]
    return {v.name: v for v in (*table, *PROCESS_VARIABLES)}


def settings_in(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """key -> (text, variable) of each setting that the environment sets. Presence decides, also if empty."""
    found: dict[str, tuple[str, str]] = {}
    for name, variable in known_variables().items():
        if variable.setting is not None and variable.setting not in found and name in environ:
            found[variable.setting] = (environ[name], name)
    return found


def warnings_about(environ: Mapping[str, str]) -> list[tuple[str, str, str | None]]:
    """(key, message, hint) of what deserves a word: unknown names, switches without effect."""
    import difflib

    known = known_variables()
    said: list[tuple[str, str, str | None]] = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
            hint = (
                f"did you mean {close[0]}?" if close else "docs/reference/environment.md lists the variables"
            )
            said.append((f"env:{name}", f"the variable {name} is unknown and has no effect", hint))
    if environ.get("DEEPINFER_BATCH_INVARIANT", "1").strip().lower() in ("0", "false", "no", "off"):
        message = "DEEPINFER_BATCH_INVARIANT=0 changes nothing: there is only the batch-invariant path"
        said.append(("env:DEEPINFER_BATCH_INVARIANT", message, None))
    return said
