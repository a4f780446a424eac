"""What all remote engines share: an Engine whose model is behind HTTP.

One request becomes calls, which go out side by side, as many as there are places; places are dealt in turn. Calls end
with the request, whether it was answered, cancelled or too late. What may be tried again is, within the request's
time. Whether the engine can be reached is known from the calls themselves (the breaker) and, for `/ready`, asked.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from decided import tracing
from decided.contract.types import MAX_REMOTE_OPTIONS, Noul, Question
from decided.engines.api import NOBODY, Caller, Cut, Emit, ModelCard, Verdict
from decided.engines.letters import NoLetters
from decided.engines.remote.breaker import Admission, Breaker
from decided.engines.remote.pool import Garbled, Unreachable
from decided.engines.remote.turns import Turn, Turns
from decided.engines.remote.upstream import Busy, Refused, Upstream
from decided.errors import DecidedError, EngineBusy, InferenceFailed, ModelError, TimedOut, Unavailable
from decided.fair_queue import Lane
from decided.retries import Backoff
from decided.settings import Settings

log = logging.getLogger("decided.remote")

T = TypeVar("T")

TRIVIAL = "The sky over the village was blue all day.", Noul("Does the text mention the sky?")
"""What every engine is asked before it is called fit to serve."""

_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.05
_OPEN_AFTER = 8  # more than the attempts of one call: a single poisoned one cannot shut out the others
_OPEN_FOR_S = 1.0
_CHECK_KEPT_S = 1.0
_CHECK_TIMEOUT_S = 5.0
_DOWN = "the remote engine cannot be reached"
_NONE = Verdict([], 0)


class PartialVerdict(NamedTuple):
    """What one call told of one state: for each of the questions asked with it, the weights of its options."""

    weights: Sequence[Sequence[float]]
    input_tokens: int
    output_tokens: int
    cuts: Sequence[Sequence[Cut]] = ()


@dataclass(slots=True)
class RequestInFlight:
    """One request on its way: when it came, until when it has time (on the loop's clock), its lane for places, and how
    much of it has not begun."""

    created: float
    deadline: float
    lane: Lane[Turn] = field(default_factory=Lane)
    unbegun: int = 0


class Unsuitable(Exception):
    """The model behind the engine cannot be used. The message is for the operator."""


class Remote(ABC):
    """The Engine of a model that another server runs."""

    remote = True

    def __init__(self, kind: str, name: str, url: str, settings: Settings) -> None:
        if not name:
            raise ModelError(f"--model {kind} needs the name that the engine has for the model: {kind}:NAME")
        self.card = ModelCard(
            name=name,
            description=f"A model served by a remote engine ({kind}).",
            release_date="1970-01-01",
            kind=kind,
            device="remote",
            max_options=MAX_REMOTE_OPTIONS,
        )
        self._upstream = Upstream(url, settings.remote_api_key)
        self._timeout_s = settings.request_timeout_s
        self._places = settings.remote_concurrency
        self._turns = Turns(settings.remote_concurrency)
        self._unbegun = 0
        self._proven = False
        self._proving: Shared[None] = Shared(self._prove)
        self._checking: Shared[None] = Shared(self._check)
        self._checked_until = 0.0
        self._last_check: DecidedError | None = None

    # --- what an engine of this sort brings ---

    @abstractmethod
    async def _look(self, timeout_s: float) -> None:
        """Ask the engine whether it is well."""

    @abstractmethod
    async def _try_out(self, asking: RequestInFlight) -> None:
        """Ask something trivial; raise Unsuitable when the answer shows that this model cannot decide."""

    @abstractmethod
    def _groups(self, questions: int) -> Sequence[Sequence[int]]:
        """Which questions of a state go together into one call."""

    @abstractmethod
    async def _ask(self, asking: RequestInFlight, state: str, questions: Sequence[Question]) -> PartialVerdict:
        """One state and the questions of one group."""

    # --- the Engine ---

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._breaker = Breaker(_OPEN_AFTER, _OPEN_FOR_S, self._loop.time)
        try:
            await self._look(_CHECK_TIMEOUT_S)
            await self._proving()
        except (DecidedError, Unreachable, Busy, Garbled, Refused, TimeoutError) as error:
            if isinstance(error, Refused) and error.status < 500:  # a wrong key, an unknown model: waiting is no help
                await self._give_up(f"{error}: {error.said}")
            log.warning("%s (%s); starting anyway", _DOWN, _reason(error))
        except (Unsuitable, NoLetters) as error:
            await self._give_up(str(error))

    async def decide(
        self, states: Sequence[str], questions: Sequence[Question], *, caller: Caller = NOBODY
    ) -> list[Verdict]:
        verdicts: list[Verdict] = [_NONE] * len(states)

        def emit(state: int, found: Verdict | DecidedError) -> None:
            if isinstance(found, DecidedError):
                raise found
            verdicts[state] = found

        await self.decide_each(states, questions, emit, caller=caller)
        return verdicts

    async def decide_each(
        self, states: Sequence[str], questions: Sequence[Question], emit: Emit, *, caller: Caller = NOBODY
    ) -> None:
        if not states:
            return
        admission = self._breaker.admit()
        if admission is Admission.REFUSED:
            raise Unavailable(_DOWN)
        asking = self._asking(caller.client)
        try:
            if not self._proven:
                await self._proving()
            await self._decide(asking, states, questions, emit)
        except (Unsuitable, NoLetters, Garbled, Refused) as error:
            raise InferenceFailed(_reason(error)) from None
        finally:
            self._breaker.leave(admission)
            asking.lane.abandoned = True
            self._unbegun -= asking.unbegun

    async def check(self) -> None:
        if self._loop.time() >= self._checked_until:
            try:
                await asyncio.wait_for(self._checking(), _CHECK_TIMEOUT_S)
            except TimeoutError:  # it goes on: a later look finds what it found
                raise Unavailable(_DOWN) from None
        if self._last_check is not None:
            raise self._last_check.with_traceback(None)

    def queue_depth(self) -> int:
        return self._unbegun + self._turns.waiting

    async def close(self) -> None:
        self._upstream.close()

    async def _give_up(self, reason: str) -> NoReturn:
        await self.close()
        raise ModelError(f"--model {self.card.kind}:{self.card.name}: {reason}") from None

    # --- one request ---

    def _asking(self, client: str = "") -> RequestInFlight:
        return RequestInFlight(time.perf_counter(), self._loop.time() + self._timeout_s, Lane(client))

    async def _decide(
        self, asking: RequestInFlight, states: Sequence[str], questions: Sequence[Question], emit: Emit
    ) -> None:
        groups = self._groups(len(questions))
        parts: list[dict[int, PartialVerdict]] = [{} for _ in states]
        failed: set[int] = set()
        asking.unbegun = len(states) * len(questions)
        self._unbegun += asking.unbegun
        work = iter([(state, group) for state in range(len(states)) for group in range(len(groups))])

        async def runner() -> None:
            for state, group in work:
                asking.unbegun -= len(groups[group])
                self._unbegun -= len(groups[group])
                if state in failed:
                    continue
                try:
                    part = await self._ask(asking, states[state], [questions[number] for number in groups[group]])
                except (DecidedError, Unsuitable, NoLetters, Garbled, Refused) as error:
                    if state not in failed:  # of several that fail at once, the first is told
                        failed.add(state)
                        emit(state, error if isinstance(error, DecidedError) else InferenceFailed(_reason(error)))
                    continue
                parts[state][group] = part
                if len(parts[state]) == len(groups):
                    of_state, parts[state] = parts[state], {}
                    emit(state, _verdict(groups, [of_state[number] for number in range(len(groups))]))

        await together([runner() for _ in range(min(self._places, len(states) * len(groups)))])

    async def _post(self, asking: RequestInFlight, url: str, body: object) -> Any:
        """One call, at its turn, tried again where that can help and time allows."""
        backoff = Backoff(_FIRST_PAUSE_S)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self._turns.turn(asking.lane):
                    return await self._attempt(asking, url, body)
            except Unreachable as error:
                wait, failure = 0.0, Unavailable(_DOWN)
                if self._breaker.is_open or attempt == _ATTEMPTS:
                    raise failure from error
            except Busy as error:
                wait, failure = error.retry_after_s, EngineBusy()
                if attempt == _ATTEMPTS:
                    raise failure from error
            wait = backoff.next(wait)
            if self._loop.time() + wait >= asking.deadline:
                raise failure
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(self, asking: RequestInFlight, url: str, body: object) -> Any:
        began = self._loop.time()
        started = time.perf_counter()  # the loop's own clock may count whole milliseconds
        trace = tracing.current.get()
        if trace is not None:
            trace.begin(started - asking.created)
        timeout_s = asking.deadline - began
        if timeout_s <= 0:
            raise TimedOut(self._timeout_s)
        try:
            reply = await self._upstream.post(url, body, timeout_s)
        except Unreachable as error:
            self._note_failure(error, began)
            raise
        except TimeoutError as error:
            self._note_failure(error, began)
            raise TimedOut(self._timeout_s) from None
        except asyncio.CancelledError:
            # The service cancels at the time limit, a client by leaving. Only a long wait tells of the engine.
            if self._loop.time() - began > self._timeout_s / 2:
                self._note_failure(TimeoutError("no answer"), began)
            raise
        except (Busy, Refused, Garbled):
            self._note_success()
            raise
        self._note_success()
        if trace is not None:
            trace.running.append(time.perf_counter() - started)
        return reply

    # --- whether the engine is there ---

    async def _check(self) -> None:
        """Ask the engine, and keep what it said for a moment. Many probes at once make one call."""
        try:
            await self._look(_CHECK_TIMEOUT_S)
            self._breaker.try_now()
            if not self._proven:
                await self._proving()
            self._last_check = None
        except DecidedError as error:
            self._last_check = error if isinstance(error, Unavailable) else Unavailable(_DOWN)
        except (Unsuitable, NoLetters, Refused, Garbled) as error:
            log.warning("the remote engine is not ready: %s", _reason(error))
            self._last_check = Unavailable("the remote engine is not ready")
        except (Unreachable, Busy, TimeoutError):
            self._last_check = Unavailable(_DOWN)
        self._checked_until = self._loop.time() + _CHECK_KEPT_S

    async def _prove(self) -> None:
        """Before the first answer, and after each time that the engine was away: it may have come back another."""
        await self._try_out(self._asking())
        self._proven = True

    def _note_success(self) -> None:
        if self._breaker.succeeded():
            log.info("the remote engine answers again")

    def _note_failure(self, error: Exception, began: float) -> None:
        if self._breaker.failed(began):
            self._proven = False
            log.warning("%s (%s): requests get 503 until it answers", _DOWN, _reason(error))


class Shared(Generic[T]):
    """One call for all who ask while it is under way. Who is cancelled leaves; the call goes on for the others."""

    def __init__(self, call: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._call = call
        self._running: asyncio.Task[T] | None = None

    def __call__(self) -> Awaitable[T]:
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._call())
            self._running.add_done_callback(_look_at)
        return asyncio.shield(self._running)


def _look_at(task: "asyncio.Task[Any]") -> None:
    """Those who waited for it may all have left: then nobody else reads its error."""
    if not task.cancelled():
        task.exception()


async def together(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All at once. The first that fails ends the others, and is what is raised."""
    if len(calls) == 1:
        return [await calls[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _verdict(groups: Sequence[Sequence[int]], parts: Sequence[PartialVerdict]) -> Verdict:
    count = sum(len(group) for group in groups)
    verdict = Verdict([()] * count, 0)
    cuts: list[Sequence[Cut]] = [()] * count
    for group, part in zip(groups, parts, strict=True):
        verdict.input_tokens += part.input_tokens
        verdict.output_tokens += part.output_tokens
        for place, number in enumerate(group):
            verdict.weights[number] = part.weights[place]
            if part.cuts:
                cuts[number] = part.cuts[place]
    verdict.cuts = cuts if any(cuts) else ()
    return verdict


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
