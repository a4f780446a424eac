"""A second model that sees a share of the traffic, so that the two can be compared before one takes the other's place.

It works on what was answered already, and only while nobody waits for the first model: a request that comes in ends
what it is at. Nothing that it says is ever sent; where it would have chosen another option, that is counted and, if
there is a file for it, written down.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from decided.contract.answers import normalise
from decided.contract.types import Choice, Noul, Question, encode
from decided.engines.api import Engine, Verdict

log = logging.getLogger("decided.shadow")

_MOST_WAITING = 256
_MOST_TRIES = 5
"""How often a decision is begun again that requests have ended."""
_QUIET_S = 0.05
"""Without a request, before the second model begins: between two requests of one client there is no leftover."""
_chance = random.Random()  # noqa: S311 - which requests are compared is no secret


class Sample(NamedTuple):
    """A state that was answered: for each question, which option was chosen and by which profile."""

    state: str
    questions: dict[str, Question]
    chosen: Sequence[int]
    profiles: Sequence[str]


class Shadow:
    """Takes samples, asks the second model when it may, and tells what came of it."""

    def __init__(
        self,
        engine: Engine,
        share: float,
        timeout_s: float,
        count: Callable[[str, str], None],
        is_idle: Callable[[], bool],
        path: Path | None = None,
    ) -> None:
        """`count` takes a profile and a result: agree, disagree, failed or dropped."""
        self.engine = engine
        self._share = share
        self._timeout_s = timeout_s
        self._count = count
        self._is_idle = is_idle
        self._path = path
        self._waiting: deque[Sample] = deque()
        self._came = asyncio.Event()
        self._quiet_since = 0.0
        self._asking: asyncio.Task[list[Verdict]] | None = None

    def draws(self) -> bool:
        """Whether the next answer belongs to the share."""
        return _chance.random() < self._share

    def take(self, sample: Sample) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            self._tell(sample, ["dropped"] * len(sample.questions))
            return
        self._waiting.append(sample)
        self._came.set()

    def give_way(self) -> None:
        """A request has come in."""
        self._quiet_since = asyncio.get_running_loop().time() + _QUIET_S
        if self._asking is not None:
            self._asking.cancel()

    async def run(self) -> None:
        """For ever: one sample after the other."""
        while True:
            await self._came.wait()
            sample = self._waiting.popleft()
            if not self._waiting:
                self._came.clear()
            sample = self._within_its_limits(sample)
            if sample.questions:
                await self._compare(sample)

    async def _compare(self, sample: Sample) -> None:
        for _ in range(_MOST_TRIES):
            while not self._is_idle() or asyncio.get_running_loop().time() < self._quiet_since:
                await asyncio.sleep(_QUIET_S / 5)
            self._asking = asyncio.create_task(self._ask(sample))
            try:
                await asyncio.wait([self._asking])
                if self._asking.cancelled():
                    continue
                self._tell(sample, self._results(sample, self._asking.result()[0]))
            except Exception as error:
                log.warning("the second model failed: %s", error or type(error).__name__)
                self._tell(sample, ["failed"] * len(sample.questions))
            finally:
                self._asking.cancel()
                self._asking = None
            return
        self._tell(sample, ["dropped"] * len(sample.questions))

    async def _ask(self, sample: Sample) -> list[Verdict]:
        async with asyncio.timeout(self._timeout_s):
            return await self.engine.decide([sample.state], list(sample.questions.values()))

    def _within_its_limits(self, sample: Sample) -> Sample:
        """Without the questions that have too many options for this model."""
        most = self.engine.card.max_options
        kept = [number for number, one in enumerate(sample.questions.values()) if len(one.keys()) <= most]
        names = list(sample.questions)
        return Sample(
            sample.state,
            {names[number]: sample.questions[names[number]] for number in kept},
            [sample.chosen[number] for number in kept],
            [sample.profiles[number] for number in kept],
        )

    def _results(self, sample: Sample, verdict: Verdict) -> list[str]:
        second = [
            chosen_option(question, weights)
            for question, weights in zip(sample.questions.values(), verdict.weights, strict=True)
        ]
        if list(sample.chosen) != second:
            self._write_down(sample, second)
        return ["agree" if one == other else "disagree" for one, other in zip(sample.chosen, second, strict=True)]

    def _tell(self, sample: Sample, results: Sequence[str]) -> None:
        for profile, result in zip(sample.profiles, results, strict=True):
            self._count(profile, result)

    def _write_down(self, sample: Sample, second: Sequence[int]) -> None:
        """As labelled questions: what was answered stands as the label until somebody corrects it."""
        if self._path is None:
            return
        line = {
            "state": sample.state,
            "questions": sample.questions,
            "answers": _named(sample.questions, sample.chosen),
            "shadow_answers": _named(sample.questions, second),
            "shadow": self.engine.card.name,
        }
        try:
            self._path.touch(0o600)  # it holds texts
            with self._path.open("ab") as file:
                file.write(encode(line) + b"\n")
        except OSError as error:
            log.error("--shadow-log %s cannot be written: %s", self._path, error.strerror or error)

    async def close(self, running: "asyncio.Task[None]") -> None:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await self.engine.close()


def chosen_option(question: Question, weights: Sequence[float]) -> int:
    shares = normalise(weights, len(question.keys()))
    return shares.index(max(shares))


def _named(questions: dict[str, Question], options: Sequence[int]) -> dict[str, str | int | bool]:
    """Options as a label names them: by name, level, or true and false."""
    named: dict[str, str | int | bool] = {}
    for (name, question), option in zip(questions.items(), options, strict=True):
        if isinstance(question, Noul):
            named[name] = option == 0
        else:
            named[name] = question.keys()[option] if isinstance(question, Choice) else option
    return named
