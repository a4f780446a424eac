"""The decisions on a batch, one by one: what the engine has told and one reader has not yet taken.

They wait here as numbers, for as long as the reader takes. Words are made of one at a time, so a reader who is slow
costs no more memory than a batch that is answered whole, and does not hold up the model.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence

from decided.contract.types import Question
from decided.engines.api import Verdict
from decided.errors import DecidedError, InferenceFailed


class VerdictStream:
    """Filled by a task of its own, which ends with the reader if that ends first."""

    def __init__(
        self, questions: dict[str, Question], states: Sequence[str], on_verdict: Callable[[int, Verdict], None]
    ) -> None:
        self.questions = questions
        self.states = states
        self.answered = 0  # questions
        self.tokens = 0  # read and written
        self.output_tokens = 0
        self._unemitted = set(range(len(states)))
        self._on_verdict = on_verdict
        self._ready: deque[tuple[int, Verdict | DecidedError]] = deque()
        self._task: asyncio.Task[DecidedError | None]
        self._waiting: asyncio.Future[None] | None = None

    def fill_from(self, task: "asyncio.Task[DecidedError | None]") -> None:
        """From the task that tells. What it returns is the error of every state that it did not tell."""
        self._task = task
        task.add_done_callback(lambda _: self._wake())

    def emit(self, state: int, found: Verdict | DecidedError) -> None:
        self._unemitted.discard(state)
        self._ready.append((state, found))
        if isinstance(found, Verdict):
            self.answered += len(self.questions)
            self.tokens += found.input_tokens + found.output_tokens
            self.output_tokens += found.output_tokens
            self._on_verdict(len(self.questions), found)
        self._wake()

    async def begun(self) -> DecidedError | None:
        """Wait for the first decision. If there will be none, why."""
        while not self._ready and not self._task.done():
            await self._news()
        return None if self._ready else self._task.result()

    async def each(self) -> AsyncGenerator[tuple[int, Verdict | DecidedError], None]:
        """Every state once, as they are decided. Who stops early abandons the rest."""
        try:
            while True:
                while self._ready:
                    yield self._ready.popleft()
                if self._task.done():
                    break
                await self._news()
            error = self._task.result() or InferenceFailed("the engine returned nothing for this state")
            for state in sorted(self._unemitted):
                yield state, error
        finally:
            self.abandon()

    def abandon(self) -> None:
        self._task.cancel()

    async def _news(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
