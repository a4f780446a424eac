"""The product without HTTP: admission, the time limit, and decisions made into responses."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from decided.audit.line import Decision
from decided.audit.log import AuditLog
from decided.contract.answers import Mark, answer, normalise
from decided.contract.decoding import called
from decided.contract.temperature import Temperatures
from decided.contract.types import Answer, OutcomesReceipt, OutcomesRequest, Question, Request, SingleResponse, Usage
from decided.engines.api import NOBODY, Caller, Cut, Emit, Engine, Verdict, gives_features
from decided.errors import DecidedError, TimedOut
from decided.profiles.shelf import Profiles
from decided.serving.admission import Places
from decided.serving.deadlines import Deadlines
from decided.serving.evidence import ExplainedVerdict, Removals, Weights, explain
from decided.serving.ledger import Ledger
from decided.serving.metrics import Metrics
from decided.serving.shadow import Sample, Shadow, chosen_option
from decided.serving.verdict_stream import VerdictStream


class Decided(NamedTuple):
    """A request that was decided: its states and questions, and a verdict per state."""

    states: Sequence[str]
    questions: dict[str, Question]
    verdicts: list[Verdict]
    usage: Usage


class Limits:
    """A place, and the time limit. The clock runs from admission, so a slow sender cannot hold a place."""

    __slots__ = ("_caller", "_service", "_task")

    def __init__(self, service: "Service", caller: Caller) -> None:
        self._service = service
        self._caller = caller

    def __enter__(self) -> None:
        self._service.enter(self._caller)
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is served by a task")
        self._task = task
        self._service.deadlines.begin(task)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._service.places.leave(self._caller.client)
        self._service.deadlines.end(self._task, error)


class Service:
    """Admits requests up to a limit, decides them within a time limit, and words the answers."""

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        max_in_flight: int,
        request_timeout_s: float,
        temperatures: Temperatures | None = None,
        profiles: Profiles | None = None,
        ledger: Ledger | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self.engine = engine
        self.audit = audit
        self.ledger = ledger
        self.shadow: Shadow | None = None
        self.profiles = profiles or None  # none in the usual case, which must not cost anything
        self.description = f"{engine.card.description} {engine.card.provenance}".rstrip()
        self._temperatures = None  # the usual case, which must not cost anything
        if temperatures is not None and not temperatures.change_nothing:
            self._temperatures = temperatures
            self.description += f" {temperatures.in_words()}"
        self.metrics = metrics
        self.places = Places(max_in_flight)
        self.request_timeout_s = request_timeout_s
        self.deadlines = Deadlines(request_timeout_s)

    @property
    def in_flight(self) -> int:
        return self.places.taken

    async def check(self) -> None:
        """Raise Unavailable unless a request would be answered now."""
        await self.engine.check()
        if self.audit is not None:
            await self.audit.check()

    async def decide(self, read: Callable[[], Awaitable[Request]], caller: Caller = NOBODY) -> Decided:
        """Admit, read and decide one request."""
        with Limits(self, caller):
            request = await read()
            return self._conclude(request, await self._ask(request, caller))

    async def take_outcomes(
        self, ledger: Ledger, read: Callable[[], Awaitable[OutcomesRequest]], caller: Caller = NOBODY
    ) -> OutcomesReceipt:
        """Admit, read and write down what turned out to be right."""
        with Limits(self, caller):
            receipt, settled = await ledger.record(caller.client, await read())
        for one in settled:
            found = self.profiles.of(one.question) if self.profiles is not None else None
            if found is not None and not (found.wants_features and one.features is None):
                shares = normalise(found.apply(one.weights, one.features), len(one.weights))
                self.metrics.profiled(found.label).settle(shares, one.right)
        return receipt

    def enter(self, caller: Caller) -> None:
        """Take a place, or raise AtCapacity."""
        self.places.enter(caller.client)
        if self.shadow is not None:
            self.shadow.give_way()

    async def decide_each(self, read: Callable[[], Awaitable[Request]], caller: Caller = NOBODY) -> VerdictStream:
        """The same, but every state is told as it is decided. Place and clock are those of the whole request; a state
        that is not decided in time fails alone."""
        self.enter(caller)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.request_timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                request = await read()
            decisions = VerdictStream(request.questions, request.states, self._count)
            task = loop.create_task(self._emit_each(request, deadline, decisions, caller))
        except TimeoutError:
            self.places.leave(caller.client)
            raise TimedOut(self.request_timeout_s) from None
        except BaseException:
            self.places.leave(caller.client)
            raise
        task.add_done_callback(lambda _: self.places.leave(caller.client))
        decisions.fill_from(task)
        return decisions

    async def _emit_each(
        self, request: Request, deadline: float, decisions: VerdictStream, caller: Caller
    ) -> DecidedError | None:
        """Returns the error of the states that were not told."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.ask_each(request, self._watched(request, decisions.emit), caller)
        except TimeoutError:
            self.metrics.refused(TimedOut.refusal)
            return TimedOut(self.request_timeout_s)
        except DecidedError as error:
            return error
        return None

    async def _ask(self, request: Request, caller: Caller) -> list[Verdict]:
        if request.sent is not None:
            removals = await asyncio.to_thread(Removals, request.states, request.sent)  # a mebibyte takes a while
            return removals.fold(await self._ask(request._replace(states=removals, sent=None), caller))
        questions = list(request.questions.values())
        if self._wants_features(questions) and gives_features(self.engine):
            return await self.engine.decide(request.states, questions, features=True, caller=caller)
        return await self.engine.decide(request.states, questions, caller=caller)

    async def ask_each(self, request: Request, emit: Emit, caller: Caller = NOBODY) -> None:
        """Ask the engine for all that wording the answers will need."""
        if request.sent is not None:
            removals = await asyncio.to_thread(Removals, request.states, request.sent)  # a mebibyte takes a while
            await self.ask_each(request._replace(states=removals, sent=None), removals.folding(emit), caller)
            return
        questions = list(request.questions.values())
        if self._wants_features(questions) and gives_features(self.engine):
            await self.engine.decide_each(request.states, questions, emit, features=True, caller=caller)
        else:
            await self.engine.decide_each(request.states, questions, emit, caller=caller)

    def _wants_features(self, questions: Sequence[Question]) -> bool:
        if self.ledger is not None:
            return True
        if self.profiles is None:
            return False
        found = (self.profiles.of(question) for question in questions)
        return any(one is not None and one.wants_features for one in found)

    def _count(self, questions: int, verdict: Verdict) -> None:
        self.metrics.decided(questions, verdict.input_tokens, verdict.output_tokens)

    def _conclude(self, request: Request, verdicts: list[Verdict]) -> Decided:
        read = written = 0
        for verdict in verdicts:
            read += verdict.input_tokens
            written += verdict.output_tokens
        self.metrics.decided(len(request.questions) * len(verdicts), read, written)
        if self.shadow is not None:
            for state, verdict in zip(request.states, verdicts, strict=True):
                self._offer(self.shadow, request.questions, state, verdict)
        return Decided(request.states, request.questions, verdicts, Usage(read, written))

    def responses(self, found: Decided) -> Iterator[SingleResponse]:
        """One response per state, worded one at a time: a large batch is never held whole."""
        for verdict in found.verdicts:
            yield self.response(found.questions, verdict)

    def response(self, questions: dict[str, Question], verdict: Verdict) -> SingleResponse:
        given, marks = self._given(questions, verdict)
        if marks is None and not any(verdict.cuts):
            warnings: list[str] = []
            answers: dict[str, Answer] = {
                name: answer(question, weights)
                for (name, question), weights in zip(questions.items(), given, strict=True)
            }
        else:
            answers, warnings = self._marked(questions, verdict.cuts, given, marks)
        if isinstance(verdict, ExplainedVerdict):
            removals = [(part, self._given(questions, without)[0]) for part, without in verdict.removals]
            answers = explain(answers, removals)
        usage = Usage(verdict.input_tokens, verdict.output_tokens)
        return SingleResponse(self.engine.card.name, answers, usage, warnings)

    def _marked(
        self,
        questions: dict[str, Question],
        cuts: Sequence[Sequence[Cut]],
        given: Weights,
        marks: Sequence[Mark | None] | None,
    ) -> tuple[dict[str, Answer], list[str]]:
        """Answers that say more, what their profile adds or that something was cut off; and warnings of the latter."""
        answers: dict[str, Answer] = {}
        warnings = []
        nothing = [None] * len(questions)
        parts = zip(questions.items(), given, cuts or nothing, marks or nothing, strict=True)
        for (name, question), weights, cut, mark in parts:
            answers[name] = found = answer(question, weights, bool(cut), mark)
            if mark is not None:
                self._count_profiled(question, found)
            if cut:
                warnings.append(f"{called(name, len(answers))}: {_in_words(cut)}")
                self.metrics.truncated()
        return answers, warnings

    def _given(self, questions: dict[str, Question], verdict: Verdict) -> tuple[Weights, Sequence[Mark | None] | None]:
        """The weights that answers are made of, and what profiles say in addition."""
        given: Weights = verdict.weights
        if self._temperatures is not None:
            given = self._temperatures.apply(questions.values(), given)
        if self.profiles is None:
            return given, None
        return self._apply_profiles(self.profiles, questions, verdict, given)

    def thresholds(self, questions: dict[str, Question], said: SingleResponse) -> Sequence[float | None]:
        """For each question, from which probability on its profile takes an answer for decided."""
        profiles = self.profiles
        if profiles is None:
            return [None] * len(questions)
        found = [profiles.of(question) if said.answers[name].profile else None for name, question in questions.items()]
        return [one.mark.threshold if one is not None else None for one in found]

    async def record(self, decisions: Sequence[Decision], caller: Caller) -> None:
        """Put what was decided into the audit log. A request that waits for the disk keeps its place."""
        if self.audit is None:
            return
        self.places.keep(caller.client)
        try:
            await self.audit.record(decisions)
        finally:
            self.places.leave(caller.client)

    def _watched(self, request: Request, emit: Emit) -> Emit:
        shadow = self.shadow
        if shadow is None:
            return emit

        def offer_too(index: int, found: Verdict | DecidedError) -> None:
            if isinstance(found, Verdict):
                self._offer(shadow, request.questions, request.states[index], found)
            emit(index, found)

        return offer_too

    def _offer(self, shadow: Shadow, questions: dict[str, Question], state: str, verdict: Verdict) -> None:
        if shadow.draws():
            given, _ = self._given(questions, verdict)
            chosen = [chosen_option(*pair) for pair in zip(questions.values(), given, strict=True)]
            found = [self.profiles.of(one) if self.profiles is not None else None for one in questions.values()]
            shadow.take(Sample(state, questions, chosen, [one.label if one is not None else "" for one in found]))

    def _count_profiled(self, question: Question, found: Answer) -> None:
        applied = self.profiles.of(question) if self.profiles is not None else None
        if applied is not None:
            shares = list(found.probabilities.values())
            top = max(shares)
            counts = self.metrics.profiled(applied.label)
            counts.answer(applied.places[shares.index(top)], top, found.confidence, found.decided)

    def _apply_profiles(
        self, profiles: Profiles, questions: dict[str, Question], verdict: Verdict, served: Sequence[Sequence[float]]
    ) -> tuple[Sequence[Sequence[float]], Sequence[Mark | None]]:
        """A question with a profile gets what was learnt on the model's own weights, in place of a temperature."""
        given = list(served)
        marks: list[Mark | None] = [None] * len(served)
        for place, question in enumerate(questions.values()):
            found = profiles.of(question)
            if found is None or (found.wants_features and verdict.features is None):
                continue  # the second: the profile was loaded after the model was asked
            given[place] = found.apply(verdict.weights[place], verdict.features)
            marks[place] = found.mark
        return given, marks


def _in_words(cuts: Sequence[Cut]) -> str:
    parts = [
        f"the model read {cut.kept} of {'about ' if cut.estimated else ''}{cut.given} tokens of the {cut.part}"
        for cut in cuts
    ]
    return "; ".join(parts)
