"""How long to wait before asking again: what a server asks for, and pauses that grow."""

import email.utils
import math
import random
import time


def retry_after_seconds(header: str) -> float:
    """What a Retry-After header asks for, in seconds or as a date; nothing if it makes no sense."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


class Backoff:
    """Pauses that double, each a little random, so that many who were refused together do not come back together."""

    def __init__(self, first_s: float, longest_s: float = 30.0) -> None:
        self._first_s = self._next_s = first_s
        self._longest_s = longest_s

    def next(self, asked_s: float = 0.0) -> float:
        """The next pause, and no shorter than what was asked for."""
        pause = min(self._next_s * random.uniform(0.5, 1.5), self._longest_s)  # noqa: S311 - no secret
        self._next_s *= 2
        return max(asked_s, pause)

    def reset(self) -> None:
        self._next_s = self._first_s
