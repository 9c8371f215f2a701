"""From what the user wrote after --model to files on this machine. Never touches the network itself, but
for the small model that stands in when none is named."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deepinfer_cli.errors import ModelError
from deepinfer_cli.models.registry import KNOWN_MODELS, SMALL_MODEL, KnownModel

_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".npy", ".joblib")
_PICKLE_HINT = "take the safetensors or GGUF files of this model, or convert it where its code is trusted"


@dataclass(frozen=True, slots=True)
class ModelPath:
    path: Path  # a .gguf file, or a folder with config.json and safetensors
    name: str  # as the user named it
    source: str  # "local", "wheel" or "hub"
    revision: str | None = None  # commit, of hub models


def resolve_model(name: str | None, revision: str | None, say: Callable[[str], None]) -> ModelPath:
    """Raises ModelError, with the command that brings the model, when it is not here."""
    if name is None:
        return _small_model(say)
    known = KNOWN_MODELS.get(name.lower())
    path = Path(name).expanduser()
    if path.exists() or (known is None and _is_path(name)):
        if revision is not None:
            raise ModelError(f"{name} is a local path, which has no revision", "leave --revision out")
        return ModelPath(_local(path), name, "local")
    if known is not None:
        found = cached_known(known, revision)
        if found is None:
            raise ModelError(f"{known.name} is not on this machine", f"deepinfer download {known.name}")
        return found
    return _hub_model(name, revision)


def cached_known(model: KnownModel, revision: str | None = None) -> ModelPath | None:
    """A known model in the cache, from whichever source it came; the wheel's file first."""
    if model.wheel is not None and revision is None:
        from deepinfer_cli.models.wheel import cached_wheel_model

        path = cached_wheel_model(model.wheel)
        if path is not None:
            return ModelPath(path, model.name, "wheel")
    if model.hub is not None:
        from deepinfer_cli.models.hub import HubName, cached_commit, cached_model

        hub = HubName(model.hub.repo, None, revision or model.hub.revision)
        path = cached_model(hub)
        if path is not None:
            return ModelPath(path, model.name, "hub", cached_commit(hub))
    return None


def _small_model(say: Callable[[str], None]) -> ModelPath:
    """The default of `run`; fetched on first use, since it is small and needs no account anywhere."""
    model = KNOWN_MODELS[SMALL_MODEL]
    say(f"no model named: using {model.name} ({model.summary.partition(',')[0]}); --model names another")
    found = cached_known(model)
    if found is not None:
        return found
    from deepinfer_cli.models.hub_http import is_offline
    from deepinfer_cli.models.wheel import fetch_wheel_model

    if is_offline():
        raise ModelError(
            f"{model.name} is not on this machine and HF_HUB_OFFLINE forbids fetching it",
            f"deepinfer download {model.name}, where there is a network",
        )
    return ModelPath(fetch_wheel_model(model, say), model.name, "wheel")


def is_pickle(path: Path) -> bool:
    """By name, or by the first bytes: PyTorch's archives are zip files with a pickle in them. Loading one
    runs whatever code it names."""
    if path.suffix.lower() in _PICKLE_SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError:
        return False  # whoever reads it says why
    return head == b"PK\x03\x04" or (head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"))


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or (name.endswith((".gguf", ".safetensors")) and ":" not in name)


def _local(path: Path) -> Path:
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        if is_pickle(path):
            raise ModelError(f"{path}: pickle files are never loaded", _PICKLE_HINT)
        if path.suffix == ".safetensors" and (path.parent / "config.json").is_file():
            return path.parent  # what the weights mean stands in the files beside them
        return path
    raise ModelError(f"{path}: there is no such file or folder", _near(path))


def _folder(path: Path) -> Path:
    """A folder with config.json and safetensors, or with one GGUF file."""
    if (path / "config.json").is_file():
        pickles = sorted(file.name for file in path.iterdir() if file.suffix.lower() in _PICKLE_SUFFIXES)
        if pickles and not any(path.glob("*.safetensors")):
            what = f"{path} has its weights in {pickles[0]}, and pickle files are never loaded"
            raise ModelError(what, _PICKLE_HINT)
        return path
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1:
        return ggufs[0]
    if ggufs:
        names = ", ".join(file.name for file in ggufs[:8])
        raise ModelError(f"{path} has {len(ggufs)} GGUF files", f"name one of them: {names}")
    raise ModelError(
        f"{path} is no model folder: it has neither config.json nor a .gguf file",
        "a model is a .gguf file, or a folder with config.json, tokenizer.json and *.safetensors",
    )


def _near(path: Path) -> str | None:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return None
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / close[0]}?" if close else None


def _hub_model(name: str, revision: str | None) -> ModelPath:
    from deepinfer_cli.models.hub import cached_commit, cached_model, parse_hub_name

    hub = parse_hub_name(name, revision)
    if hub is None:
        close = difflib.get_close_matches(name.lower(), KNOWN_MODELS, n=1)
        known = ", ".join(KNOWN_MODELS)
        hint = f"did you mean {close[0]}?" if close else f"a path, a hub id org/name, or one of {known}"
        raise ModelError(f"unknown model {name}", hint)
    path = cached_model(hub)
    if path is None:
        at = "" if revision is None else f" --revision {revision}"
        raise ModelError(f"{name} is not on this machine", f"deepinfer download {name}{at}")
    return ModelPath(path, name, "hub", cached_commit(hub))
