"""The trace that a request belongs to, for whoever works on it: what to tell a remote engine, and what took how long.

Without a trace, which is the usual case, nothing is measured and nothing is sent.
"""

import re
import time
from collections.abc import Mapping
from contextvars import ContextVar

_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(rb"[ -~]{1,512}")


class Trace:
    """One request's place in a trace, and its times in seconds. Runner threads append to the lists."""

    __slots__ = ("encoding", "headers", "queued", "running")

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = "".join(f"\r\n{name}: {value}" for name, value in headers.items())
        self.queued: float | None = None
        self.encoding: list[float] = []
        self.running: list[float] = []

    def begin(self, waited: float) -> None:
        """The model has begun with it, for the first time or again."""
        if self.queued is None:
            self.queued = waited


current: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""Of the request that this task works on."""


def headers() -> str:
    """What belongs behind the last header of a call that is made for the request at hand."""
    trace = current.get()
    return "" if trace is None else trace.headers


def ran(traces: set[Trace | None], since: float) -> None:
    """A batch has ended that was for requests of these traces."""
    for trace in traces:
        if trace is not None:
            trace.running.append(time.perf_counter() - since)


def received(given: Mapping[bytes, bytes]) -> Trace | None:
    """The trace of a client, to be passed on as it came; none if the header is not one of W3C Trace Context."""
    parent, state = given.get(b"traceparent", b""), given.get(b"tracestate", b"")
    if not _PARENT.fullmatch(parent):
        return None
    more = {"tracestate": state.decode()} if _STATE.fullmatch(state) else {}
    return Trace({"traceparent": parent.decode(), **more})
