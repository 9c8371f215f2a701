"""What this engine can run: one entry per model family. The native loader is the judge in the end; this
table lets headers be judged before a file is here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_FLOATS = ("F32", "F16", "BF16")
_BLOCKS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    gguf_architectures: tuple[str, ...]  # general.architecture
    hf_architectures: tuple[str, ...]  # config.json: architectures
    gguf_types: tuple[str, ...]
    safetensors_types: tuple[str, ...]


FAMILIES: Final = (
    Family(
        name="llama",
        gguf_architectures=("llama",),
        hf_architectures=("LlamaForCausalLM",),
        gguf_types=_FLOATS + _BLOCKS,
        safetensors_types=_FLOATS,
    ),
)


def family_of_gguf(architecture: str) -> Family | None:
    return next((family for family in FAMILIES if architecture in family.gguf_architectures), None)


def family_of_config(architectures: list[str]) -> Family | None:
    return next((f for f in FAMILIES if any(a in f.hf_architectures for a in architectures)), None)


def supported_text() -> str:
    """For messages: what there is instead."""
    return "; ".join(
        f"{f.name} (GGUF architecture {', '.join(f.gguf_architectures)}; {', '.join(f.hf_architectures)})"
        for f in FAMILIES
    )
