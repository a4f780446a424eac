"""An engine, asked by those who learn from it: what the model itself says, without temperature or profile."""

import asyncio
from collections.abc import Sequence

from decided.contract.answers import is_distribution
from decided.contract.types import Question
from decided.engines.api import Engine, Verdict, gives_features
from decided.errors import InferenceFailed, Unavailable
from decided.retries import Backoff
from decided.settings import Settings

AT_A_TIME = 64
"""Enough for the engine to form full batches of them, few enough to be let go of at once."""
_RETRIES, _FIRST_PAUSE_S = 4, 1.0


def texts_at_a_time(settings: Settings, engine: Engine) -> int:
    """A remote engine's time limit runs while a text waits for its turn there: no more texts than turns."""
    return min(AT_A_TIME, settings.remote_concurrency) if engine.remote else AT_A_TIME


async def ask_engine(engine: Engine, state: str, questions: Sequence[Question], features: bool = False) -> Verdict:
    """What the engine says, with features if they are wanted and it gives any. While it is away it is waited for: a
    restart must not cost the texts that fall into it."""
    backoff = Backoff(_FIRST_PAUSE_S)
    for _ in range(_RETRIES):
        try:
            return await _decide(engine, state, questions, features)
        except Unavailable:
            await asyncio.sleep(backoff.next())
    return await _decide(engine, state, questions, features)


async def _decide(engine: Engine, state: str, questions: Sequence[Question], features: bool) -> Verdict:
    if features and gives_features(engine):
        return (await engine.decide([state], questions, features=True))[0]
    return (await engine.decide([state], questions))[0]


def check_weights(question: Question, weights: Sequence[float]) -> None:
    if len(weights) != len(question.keys()) or not is_distribution(weights):
        raise InferenceFailed("the model gave no distribution over the options")
