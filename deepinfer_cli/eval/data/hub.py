"""Data sets from the hub: the revision is resolved to a commit first, and only that commit is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from deepinfer_cli.errors import DeepInferError, InputError
from deepinfer_cli.eval.data.files import FORMATS
from deepinfer_cli.eval.types import HubSource

COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_FILE_HINT: Final = "or fetch the file yourself and use --data FILE"


class HubDataError(InputError):
    """The data set cannot be had from the hub."""


def fetch(source: HubSource, revision: str | None) -> tuple[list[Path], dict[str, Any]]:
    """(files of the split at one commit, where they came from). Raises HubDataError."""
    from huggingface_hub import HfApi, hf_hub_download

    endpoint = os.environ.get("HF_ENDPOINT") or None
    wanted = revision or "main"
    with _errors(source, wanted):
        info = HfApi(endpoint=endpoint).dataset_info(source.repo, revision=wanted)
    commit = info.sha or ""
    if not COMMIT.fullmatch(commit):
        raise HubDataError(f"the hub gave no commit for the data set {source.repo} at {wanted}")
    names = choose_files(source, [s.rfilename for s in info.siblings or []])
    with _errors(source, commit):
        paths = [
            Path(hf_hub_download(source.repo, name, repo_type="dataset", revision=commit, endpoint=endpoint))
            for name in names
        ]
    return paths, {"name": source.repo, "repo": source.repo, "commit": commit, "files": names}


def choose_files(source: HubSource, names: Sequence[str]) -> list[str]:
    """The data files of the split, in one format. HubDataError lists what there is instead."""
    usable = [n for n in names if Path(n).suffix.lower() in FORMATS and not Path(n).name.startswith(".")]
    usable = [n for n in usable if Path(n).name not in ("dataset_infos.json", "dataset_info.json")]
    wanted = source.config or source.split
    matching = [n for n in usable if wanted in n] or [n for n in usable if source.split in n]
    if not matching and len(usable) == 1:
        matching = usable
    for suffix in (".jsonl", ".ndjson", ".csv", ".json", ".parquet"):  # those that need no extra first
        chosen = sorted(n for n in matching if n.lower().endswith(suffix))
        if chosen:
            return chosen
    shown = ", ".join(usable[:10]) or "no data files"
    raise HubDataError(f"{source.repo}: no data file of split {source.split}; it has {shown}", _FILE_HINT)


def _access_hint(source: HubSource) -> str:
    return (
        f"open the page of {source.repo} on the hub, accept its conditions, then run `hf auth login` "
        f"or set HF_TOKEN; {_FILE_HINT}"
    )


@contextmanager
def _errors(source: HubSource, revision: str) -> Iterator[None]:
    """What the hub's library raises, as one sentence and a hint."""
    from huggingface_hub import errors

    repo = source.repo
    try:
        yield
    except errors.GatedRepoError:
        raise HubDataError(
            f"the data set {repo} is gated, and this account has no access to it", _access_hint(source)
        ) from None
    except errors.RevisionNotFoundError:
        raise HubDataError(f"the data set {repo} has no revision {revision}") from None
    except errors.RepositoryNotFoundError:
        hint = _access_hint(source) if source.is_gated else f"if it is private, set HF_TOKEN; {_FILE_HINT}"
        raise HubDataError(f"the hub shows no data set {repo} to this account (401 or 404)", hint) from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        reason = (
            "HF_HUB_OFFLINE is set" if isinstance(error, errors.OfflineModeIsEnabled) else "no connection"
        )
        raise HubDataError(f"the data set {repo} cannot be fetched: {reason}", _FILE_HINT) from None
    except errors.EntryNotFoundError:
        raise HubDataError(f"{repo} at {revision}: a listed file is not there (404)") from None
    except errors.HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        hint = _access_hint(source) if status in (401, 403) else _FILE_HINT
        raise HubDataError(f"the hub answered {status} for the data set {repo}", hint) from None
    except DeepInferError:
        raise
    except Exception as error:
        if not isinstance(error, OSError) and not type(error).__module__.startswith(("http", "requests")):
            raise
        detail = str(error).splitlines()[0] if str(error) else "no details"
        raise HubDataError(
            f"the hub cannot be reached for {repo} ({type(error).__name__}: {detail})", _FILE_HINT
        ) from None
