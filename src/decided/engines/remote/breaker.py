"""A circuit breaker: when the engine cannot be reached, say so at once instead of waiting for it again and again.

    closed --failures in a row--> open --after a pause--> half-open --the trial succeeds--> closed
                                    ^------- the trial fails -----------'

Pure policy: it is told what happened, and given the clock.
"""

from collections.abc import Callable
from enum import Enum


class Admission(Enum):
    """What becomes of a request: it goes, it goes as the one trial, or it does not go."""

    FREE = "free"
    TRIAL = "trial"
    REFUSED = "refused"


class Breaker:
    """Opens after `threshold` failures with no success between them: one slow call among good ones never opens it."""

    def __init__(self, threshold: int, pause_s: float, clock: Callable[[], float]) -> None:
        self._threshold = threshold
        self._pause_s = pause_s
        self._clock = clock
        self._failures = 0
        self._succeeded = float("-inf")
        self._opened: float | None = None
        self._on_trial = False

    @property
    def is_open(self) -> bool:
        """Open or half-open: the engine has not been heard of since."""
        return self._opened is not None

    def admit(self) -> Admission:
        if self._opened is None:
            return Admission.FREE
        if self._on_trial or self._clock() - self._opened < self._pause_s:
            return Admission.REFUSED
        self._on_trial = True
        return Admission.TRIAL

    def leave(self, admission: Admission) -> None:
        """A request is over. A trial that ended without a result makes room for the next."""
        if admission is Admission.TRIAL:
            self._on_trial = False

    def succeeded(self) -> bool:
        """The engine answered something; return whether that is news."""
        news = self.is_open
        self._failures, self._opened, self._succeeded = 0, None, self._clock()
        return news

    def failed(self, began: float) -> bool:
        """The engine could not be reached, or did not answer in time; return whether this opened the breaker.

        A call that others overtook tells of itself, not of the engine: eight that hang for the same reason end in the
        same moment, and between their ends there is no success.
        """
        if began < self._succeeded:
            return False
        self._failures += 1
        news = not self.is_open and self._failures >= self._threshold
        if news or self._on_trial:
            self._opened = self._clock()
        return news

    def try_now(self) -> None:
        """The engine is said to be back: the next request is a trial, without waiting for the end of the pause."""
        if self._opened is not None:
            self._opened = self._clock() - self._pause_s
