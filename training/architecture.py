"""The sizes of a network. All bases here read BERT's word pieces under BERT's numbers and 512 positions."""

from __future__ import annotations

from dataclasses import dataclass

VOCABULARY = 30522
POSITIONS = 512
DISTANCES = 2 * POSITIONS - 1  # of a query's position from a key's


@dataclass(frozen=True)
class Architecture:
    name: str
    hidden: int
    inner: int
    heads: int
    layers: int
    epsilon: float
    relative: bool
    """Whether attention scores have a bias that depends on the distance of the two positions."""
    vocabulary: int = VOCABULARY

    @property
    def width(self) -> int:
        return self.hidden // self.heads


GTE_SMALL = Architecture("gte-small", 384, 1536, 12, 12, 1e-12, relative=False)
MPNET_BASE = Architecture("mpnet-base", 768, 3072, 12, 12, 1e-5, relative=True)
ARCHITECTURES = {a.name: a for a in (GTE_SMALL, MPNET_BASE)}
