"""Accuracy, calibration error and log-loss of answers, per task and per kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decided.engines.embedded.layout import KINDS

Floats = npt.NDArray[np.float64]


class Answer(NamedTuple):
    """The logits of one row's options, with what is needed to judge them."""

    task: str
    kind: int
    logits: Floats
    gold: int


class Report(NamedTuple):
    macro: float
    micro: float
    log_loss: float
    calibration_error: float
    decided: float
    """The largest share of rows, the surest first, of which 95 % are right."""
    sure: float
    """The share of right answers with a probability of 0.9 or more."""
    kinds: dict[str, float]
    tasks: dict[str, float]

    def line(self) -> str:
        kinds = " ".join(f"{k} {v:.4f}" for k, v in self.kinds.items())
        loss = f"nll {self.log_loss:.4f} ece {self.calibration_error:.4f}"
        loss += f" decided {self.decided:.3f} sure {self.sure:.3f}"
        return f"macro {self.macro:.4f} micro {self.micro:.4f} {loss} {kinds}"


def probabilities(logits: Floats) -> Floats:
    shifted = np.exp(logits - logits.max())
    return np.asarray(shifted / shifted.sum())


def expected_error(confidence: Floats, right: Floats, bins: int = 10) -> float:
    """Expected calibration error over equal-width bins of the top probability."""
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(which, weights=right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(right))


def decided_share(confidence: Floats, right: Floats, accuracy: float = 0.95) -> float:
    """How many of the rows can be decided, the surest first, before fewer than `accuracy` of them are right."""
    order = np.argsort(-confidence, kind="stable")
    so_far = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(so_far >= accuracy)
    return float(enough[-1] + 1) / len(order) if len(enough) else 0.0


def report(answers: Sequence[Answer]) -> Report:
    tasks: dict[str, list[bool]] = defaultdict(list)
    kinds: dict[str, list[bool]] = defaultdict(list)
    confidence, right, loss = [], [], []
    for a in answers:
        p = probabilities(a.logits)
        hit = int(p.argmax()) == a.gold
        tasks[a.task].append(hit)
        kinds[KINDS[a.kind]].append(hit)
        confidence.append(p.max())
        right.append(float(hit))
        loss.append(-np.log(max(p[a.gold], 1e-9)))
    chance, hits = np.array(confidence), np.array(right)
    per_task = {t: float(np.mean(v)) for t, v in sorted(tasks.items())}
    return Report(
        macro=float(np.mean(list(per_task.values()))),
        micro=float(np.mean(right)),
        log_loss=float(np.mean(loss)),
        calibration_error=expected_error(chance, hits),
        decided=decided_share(chance, hits),
        sure=float((hits * (chance >= 0.9)).sum() / max(1.0, hits.sum())),
        kinds={k: float(np.mean(v)) for k, v in sorted(kinds.items())},
        tasks=per_task,
    )
