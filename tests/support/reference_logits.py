"""transformers' fp32 logits at the scored positions of the fixed texts, computed once per model and texts."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

import numpy as np

from tests.support import hf_llama
from tests.support.fixed_texts import TEXTS, FixedText

FOLDER = Path(__file__).parent.parent.parent / "build" / "oracle"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reference_logits(model: Path, texts: list[FixedText]) -> np.ndarray:
    """[texts, positions, vocab] fp32, memory-mapped from build/oracle/."""
    import torch

    identity = [_digest(model), _digest(TEXTS), version("torch"), version("transformers")]
    key = hashlib.sha256(" ".join(identity).encode()).hexdigest()[:16]
    path = FOLDER / f"reference-{key}.npy"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        network = hf_llama.load(model)
        shape = (len(texts), len(texts[0].positions), network.config.vocab_size)
        out = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float32, shape=shape)
        with torch.inference_mode():
            for index, text in enumerate(texts):
                before = (
                    torch.tensor(text.positions) - 1
                )  # the token at p is predicted by the output at p - 1
                tokens = torch.tensor([text.tokens[: text.positions[-1]]])
                out[index] = network(tokens).logits[0, before].numpy()
        out.flush()
        partial.rename(path)
    return np.load(path, mmap_mode="r")
