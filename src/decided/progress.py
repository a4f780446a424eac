"""A line on the terminal that says how far a long piece of work has come. Where nobody watches, it says nothing."""

from collections.abc import Callable
from typing import TextIO

_WIDTH = 24
_EVERY_S = 0.1
_FORETELLS_S = 2.0  # what the first moments say about the rest is seldom true


class Progress:
    """How many of how many, how fast, and how long it will still take. A total that is not known is None."""

    def __init__(self, total: int | None, unit: str, stream: TextIO, clock: Callable[[], float], done: int = 0) -> None:
        self._total = total
        self._unit = unit
        self._stream = stream
        self._clock = clock
        self._watched = stream.isatty()
        self._began = clock()
        self._shown = -_EVERY_S
        self._done = self._before = done

    def advance(self, number: int = 1) -> None:
        self._done += number
        elapsed = self._clock() - self._began
        if self._watched and (elapsed - self._shown >= _EVERY_S or self._done == self._total):
            self._shown = elapsed
            self._write(f"\r{bar(self._done, self._total, elapsed, self._unit, self._before)}\x1b[K")

    def say(self, message: str) -> None:
        """A message on a line of its own, above the bar."""
        self._write(f"\r\x1b[K{message}\n" if self._watched else f"{message}\n")
        self._shown = -_EVERY_S

    def close(self) -> None:
        if self._watched:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def bar(done: int, total: int | None, elapsed_s: float, unit: str, before: int = 0) -> str:
    """`before` were done when the clock began."""
    rate = (done - before) / elapsed_s if elapsed_s > 0 else 0.0
    if total is None:
        return f"{done} {unit}  {rate:.1f}/s"
    filled = _WIDTH * done // max(total, 1)
    drawn = "#" * filled + "." * (_WIDTH - filled)
    foretold = rate and (elapsed_s >= _FORETELLS_S or done == total)
    left = clock_time((total - done) / rate) if foretold else "?"
    return f"[{drawn}] {done}/{total} {unit}  {rate:.1f}/s  {left} left"


def clock_time(seconds: float) -> str:
    """1:02:03, or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
