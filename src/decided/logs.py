"""Logs: the ordinary logger for events, and a lean one for the line that every request gets.

No line ever holds a state, an answer or a key.
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import TextIO

import msgspec

_FLUSH_AFTER_S = 0.05
_FLUSH_AT_LINES = 256


class _JsonRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    time: str
    level: str
    logger: str
    message: str
    traceback: str | None = None


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        traceback = self.formatException(record.exc_info) if record.exc_info else None
        entry = _JsonRecord(
            _stamp(record.created), record.levelname.lower(), record.name, record.getMessage(), traceback
        )
        return msgspec.json.encode(entry).decode()


class _TextFormatter(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return _stamp(record.created)


def configure(level: str, style: str, stream: TextIO | None = None, name: str = "") -> None:
    """Send the events of this process, or of the loggers below a name, to standard error, in the style chosen."""
    handler = logging.StreamHandler(stream or sys.stderr)
    plain = _TextFormatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_JsonFormatter() if style == "json" else plain)
    logger = logging.getLogger(name)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())


class RequestLog:
    """One line per request. Lines are gathered for some milliseconds and written together."""

    def __init__(
        self,
        style: str,
        enabled: bool,
        later: Callable[[float, Callable[[], None]], object],
        stream: TextIO | None = None,
    ) -> None:
        self._json = style == "json"
        self._enabled = enabled
        self._later = later
        self._stream = stream or sys.stderr
        self._lines: list[str] = []

    def write(
        self,
        request_id: str,
        endpoint: str,
        status: int,
        seconds: float,
        questions: int,
        tokens: int,
        client: str = "",
    ) -> None:
        """All strings here are ours or checked, so that the JSON can be written as text."""
        if not self._enabled:
            return
        if not self._lines:
            self._later(_FLUSH_AFTER_S, self.flush)
        stamp = _stamp(time.time())
        milliseconds = round(seconds * 1000, 2)
        if self._json:
            who = f',"client":"{client}"' if client else ""
            line = (
                f'{{"time":"{stamp}","level":"info","logger":"decided.request","id":"{request_id}",'
                f'"endpoint":"{endpoint}","status":{status},"ms":{milliseconds},"questions":{questions},"tokens":{tokens}{who}}}'
            )
        else:
            who = f" client={client}" if client else ""
            line = (
                f"{stamp} REQUEST id={request_id} endpoint={endpoint} status={status} ms={milliseconds}"
                f" questions={questions} tokens={tokens}{who}"
            )
        self._lines.append(line)
        if len(self._lines) >= _FLUSH_AT_LINES:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            text = "\n".join(self._lines) + "\n"
            self._lines.clear()
            self._stream.write(text)
            self._stream.flush()


_second = (0, "")


def _stamp(now: float) -> str:
    """The time in UTC to the millisecond. The part up to the second is made once a second."""
    global _second
    whole = int(now)
    if _second[0] != whole:
        _second = (whole, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)))
    return f"{_second[1]}.{int((now - whole) * 1000):03d}Z"
