"""How far a distribution over the next token is from the reference, position by position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """In float64. logits: [..., vocab]"""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def kl_divergence(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """KL(reference || other) in nats for each row of logits [positions, vocab]."""
    p, q = log_softmax(reference), log_softmax(other)
    return (np.exp(p) * (p - q)).sum(axis=-1)


@dataclass
class Quality:
    """Grows text by text; means are over positions."""

    kl: np.ndarray  # [positions] nats
    agrees: np.ndarray  # [positions] whether the most likely token is the reference's

    @classmethod
    def empty(cls) -> Quality:
        return cls(np.empty(0), np.empty(0, bool))

    def add(self, reference: np.ndarray, other: np.ndarray) -> None:
        assert np.isfinite(other).all()
        self.kl = np.append(self.kl, kl_divergence(reference, other))
        self.agrees = np.append(self.agrees, reference.argmax(axis=-1) == other.argmax(axis=-1))

    @property
    def mean_kl(self) -> float:
        return float(self.kl.mean())

    @property
    def top1(self) -> float:
        return float(self.agrees.mean())

    def figures(self) -> dict[str, float]:
        return {
            "mean_kl": float(f"{self.mean_kl:.4g}"),
            "max_kl": float(f"{self.kl.max():.4g}"),
            "top1": round(self.top1, 5),
            "num_positions": int(self.kl.size),
        }

    def line(self, name: str) -> str:
        return (
            f"{name:<22} mean KL {self.mean_kl:.3e}  max {self.kl.max():.3e}  top-1 {100 * self.top1:6.2f} %"
            f"  ({self.kl.size} positions)"
        )
