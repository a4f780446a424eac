"""The product without HTTP: admission, the time limit, and decisions made into responses."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from decided.answers import answer
from decided.calibration import Temperatures
from decided.contract import Answer, Question, Request, SingleResponse, Usage
from decided.decisions import Decisions
from decided.engine import Cut, Engine, Verdict
from decided.errors import AtCapacity, DecidedError, TimedOut
from decided.metrics import Metrics
from decided.reading import quoted

_TOO_LATE = "the request time limit has passed"


class Outcome(NamedTuple):
    """A request that was decided: its questions, and a verdict per state."""

    questions: dict[str, Question]
    verdicts: list[Verdict]
    usage: Usage


class Service:
    """Admits requests up to a limit, decides them within a time limit, and words the answers."""

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        max_in_flight: int,
        request_timeout_s: float,
        temperatures: Temperatures | None = None,
    ) -> None:
        self.engine = engine
        self.description = f"{engine.card.description} {engine.card.provenance}".rstrip()
        self._temperatures = None  # the usual case, which must not cost anything
        if temperatures is not None and not temperatures.change_nothing:
            self._temperatures = temperatures
            self.description += f" {temperatures.in_words()}"
        self.metrics = metrics
        self.in_flight = 0
        self._max_in_flight = max_in_flight
        self._request_timeout_s = request_timeout_s

    async def decide(self, read: Callable[[], Awaitable[Request]]) -> Outcome:
        """Admit, read and decide one request. The clock runs from admission, so a slow sender cannot hold a place."""
        if self.in_flight >= self._max_in_flight:
            raise AtCapacity
        self.in_flight += 1
        clock = _cancel_after(self._request_timeout_s)
        try:
            request = await read()
            verdicts = await self.engine.decide(request.states, list(request.questions.values()))
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (_TOO_LATE,):
                raise TimedOut(self._request_timeout_s) from None
            raise
        finally:
            clock.cancel()
            self.in_flight -= 1
        return self._outcome(request, verdicts)

    async def decide_each(self, read: Callable[[], Awaitable[Request]]) -> Decisions:
        """The same, but every state is told as it is decided. Place and clock are those of the whole request; a state
        that is not decided in time fails alone."""
        if self.in_flight >= self._max_in_flight:
            raise AtCapacity
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request_timeout_s
        self.in_flight += 1
        try:
            async with asyncio.timeout_at(deadline):
                request = await read()
            decisions = Decisions(request.questions, len(request.states), self._count)
            task = loop.create_task(self._tell_each(request, deadline, decisions))
        except TimeoutError:
            self.in_flight -= 1
            raise TimedOut(self._request_timeout_s) from None
        except BaseException:
            self.in_flight -= 1
            raise
        task.add_done_callback(self._give_place_back)
        decisions.fill_from(task)
        return decisions

    async def _tell_each(self, request: Request, deadline: float, decisions: Decisions) -> DecidedError | None:
        """Returns the error of the states that were not told."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.engine.decide_each(request.states, list(request.questions.values()), decisions.tell)
        except TimeoutError:
            self.metrics.refused(TimedOut.refusal)
            return TimedOut(self._request_timeout_s)
        except DecidedError as error:
            return error
        return None

    def _give_place_back(self, task: object) -> None:
        self.in_flight -= 1

    def _count(self, questions: int, verdict: Verdict) -> None:
        self.metrics.decided(questions, verdict.input_tokens, verdict.output_tokens)

    def _outcome(self, request: Request, verdicts: list[Verdict]) -> Outcome:
        read = written = 0
        for verdict in verdicts:
            read += verdict.input_tokens
            written += verdict.output_tokens
        self.metrics.decided(len(request.questions) * len(verdicts), read, written)
        return Outcome(request.questions, verdicts, Usage(read, written))

    def responses(self, outcome: Outcome) -> Iterator[SingleResponse]:
        """One response per state, worded one at a time: a large batch is never held whole."""
        for verdict in outcome.verdicts:
            yield self.response(outcome.questions, verdict)

    def response(self, questions: dict[str, Question], verdict: Verdict) -> SingleResponse:
        usage = Usage(verdict.input_tokens, verdict.output_tokens)
        model = self.engine.card.name
        given: Sequence[Sequence[float]] = verdict.weights
        if self._temperatures is not None:
            given = self._temperatures.apply(questions.values(), given)
        if not any(verdict.cuts):
            answers: dict[str, Answer] = {
                name: answer(question, weights)
                for (name, question), weights in zip(questions.items(), given, strict=True)
            }
            return SingleResponse(model, answers, usage)
        answers, warnings = {}, []
        for (name, question), weights, cuts in zip(questions.items(), given, verdict.cuts, strict=True):
            answers[name] = answer(question, weights, truncated=bool(cuts))
            if cuts:
                warnings.append(_warning(name, cuts))
                self.metrics.truncated()
        return SingleResponse(model, answers, usage, warnings)


def _cancel_after(seconds: float) -> asyncio.TimerHandle:
    """What `asyncio.timeout` does, at a quarter of its cost."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a request is served by a task")
    return asyncio.get_running_loop().call_later(seconds, task.cancel, _TOO_LATE)


def _warning(name: str, cuts: Sequence[Cut]) -> str:
    parts = [
        f"the model read {cut.kept} of {'about ' if cut.estimated else ''}{cut.given} tokens of the {cut.part}"
        for cut in cuts
    ]
    return f"question {quoted(name)}: {'; '.join(parts)}"
