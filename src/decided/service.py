"""The product without HTTP: admission, the time limit, and decisions made into responses."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from decided.answers import answer
from decided.contract import Answer, Question, Request, SingleResponse, Usage, quoted
from decided.engine import Cut, Decision, Engine
from decided.errors import AtCapacity, TimedOut
from decided.metrics import Metrics

_TOO_LATE = "the request time limit has passed"


class Outcome(NamedTuple):
    """A request that was decided: its questions, and a decision per state."""

    questions: dict[str, Question]
    decisions: list[Decision]
    usage: Usage

    @property
    def question_count(self) -> int:
        return len(self.questions) * len(self.decisions)


class Service:
    """Admits requests up to a limit, decides them within a time limit, and words the answers."""

    def __init__(self, engine: Engine, metrics: Metrics, max_in_flight: int, request_timeout_s: float) -> None:
        self.engine = engine
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
            decisions = await self.engine.decide(request.states, list(request.questions.values()))
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (_TOO_LATE,):
                raise TimedOut(self._request_timeout_s) from None
            raise
        finally:
            clock.cancel()
            self.in_flight -= 1
        usage = Usage(sum(one.input_tokens for one in decisions), sum(one.output_tokens for one in decisions))
        outcome = Outcome(request.questions, decisions, usage)
        self.metrics.decided(outcome.question_count, usage)
        return outcome

    def responses(self, outcome: Outcome) -> Iterator[SingleResponse]:
        """One response per state, worded one at a time: a large batch is never held whole."""
        for decision in outcome.decisions:
            yield self._response(outcome.questions, decision)

    def _response(self, questions: dict[str, Question], decision: Decision) -> SingleResponse:
        answers: dict[str, Answer] = {}
        warnings: list[str] = []
        for (name, question), verdict in zip(questions.items(), decision.verdicts, strict=True):
            answers[name] = answer(question, verdict.weights, bool(verdict.cuts))
            if verdict.cuts:
                warnings.append(_warning(name, verdict.cuts))
                self.metrics.truncated()
        usage = Usage(decision.input_tokens, decision.output_tokens)
        return SingleResponse(self.engine.card.name, answers, usage, warnings)


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
