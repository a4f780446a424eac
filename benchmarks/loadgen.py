"""A load generator that costs far less than any server it drives.

Requests are bytes built beforehand. Of a reply only the status and Content-Length are read, or the last chunk waited
for. Everything runs on one event loop in one thread, over keep-alive connections on the loopback interface.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import cast

HOST = "127.0.0.1"
PATIENCE_S = 60.0
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_LENGTH = re.compile(rb"\r\n[cC]ontent-[lL]ength: *(\d+)")


class Client(asyncio.Protocol):
    """One connection with at most one request on its way. `replied` is called with the status of each reply."""

    def __init__(self, replied: Callable[["Client", int], None], failed: Callable[[str], None]) -> None:
        self.due = 0.0
        self.idle = True
        self._replied = replied
        self._failed = failed
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._missing = 0
        self._chunked = False
        self._tail = b""
        self._status = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes, due: float) -> None:
        """Write the request. Its latency counts from `due`, the moment at which it should have left."""
        assert self._transport is not None
        self.due = due
        self.idle = False
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        elif self._chunked:
            self._tail = (self._tail + data[-7:])[-7:]
        else:
            data = self._head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._head = data
                return
            self._head = b""
            length = _LENGTH.search(data, 0, end)
            self._status = int(data[9:12])
            if length is None:
                self._chunked = True
                self._tail = data[end + 4 :][-7:]
            else:
                self._missing = int(length[1]) - (len(data) - end - 4)
        if self._chunked and self._tail != _LAST_CHUNK:
            return
        if self._missing <= 0:
            self._missing = 0
            self._chunked = False
            self.idle = True
            self._replied(self, self._status)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.idle:
            self._failed(f"the server closed a connection in use ({exc or 'end of file'})")

    def close(self) -> None:
        self.idle = True
        if self._transport is not None:
            self._transport.close()


@dataclass(slots=True)
class Sample:
    """What one stretch of load gave: seconds of each reply with status 200, and how many had another status."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    refused: dict[int, int] = field(default_factory=dict)

    def note(self, status: int, latency: float) -> None:
        if status == 200:
            self.latencies.append(latency)
        else:
            self.refused[status] = self.refused.get(status, 0) + 1

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds if self.seconds else 0.0


async def _connect(
    port: int, count: int, replied: Callable[[Client, int], None], over: "asyncio.Future[None]"
) -> list[Client]:
    def failed(why: str) -> None:
        if not over.done():
            over.set_exception(ConnectionError(why))

    loop = asyncio.get_running_loop()
    pairs = [await loop.create_connection(lambda: Client(replied, failed), HOST, port) for _ in range(count)]
    return [client for _, client in pairs]


async def closed_loop(
    port: int, request: bytes, connections: int, seconds: float, after_refusal_s: float = 0.0
) -> Sample:
    """Each connection sends its next request the moment the last one is answered, or so long after it was refused."""
    sample = Sample()
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    busy = connections

    def replied(client: Client, status: int) -> None:
        sample.note(status, perf_counter() - client.due)
        if status != 200 and after_refusal_s:
            loop.call_later(after_refusal_s, go_on, client)
        else:
            go_on(client)

    def go_on(client: Client) -> None:
        nonlocal busy
        now = perf_counter()
        if now < until:
            client.send(request, perf_counter())
            return
        busy -= 1
        if not busy and not over.done():
            sample.seconds = now - begun
            over.set_result(None)

    clients = await _connect(port, connections, replied, over)
    begun = perf_counter()
    until = begun + seconds
    try:
        for client in clients:
            client.send(request, perf_counter())
        await asyncio.wait_for(over, seconds + PATIENCE_S)
    finally:
        for client in clients:
            client.close()
    return sample


async def steady(
    port: int, request: bytes, connections: int, rate: float, seconds: float, stop: asyncio.Event | None = None
) -> Sample:
    """`rate` requests a second, spread evenly over the connections, for `seconds` or until `stop` is set.

    A connection still waiting when its next request is due sends it late, and the wait counts: latency is measured
    from the moment at which the request was due, so a stalled server cannot hide behind requests never sent.
    """
    sample = Sample()
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    behind: list[list[float]] = [[] for _ in range(connections)]
    place: dict[Client, int] = {}

    def replied(client: Client, status: int) -> None:
        sample.note(status, perf_counter() - client.due)
        waiting = behind[place[client]]
        if waiting:
            client.send(request, waiting.pop(0))
        elif ended and not over.done() and all(client.idle for client in clients):
            over.set_result(None)

    clients = await _connect(port, connections, replied, over)
    place.update({client: number for number, client in enumerate(clients)})
    begun = perf_counter()
    ended = False
    sent = 0
    try:
        while (now := perf_counter()) < begun + seconds and not (stop and stop.is_set()) and not over.done():
            while (due := begun + sent / rate) <= now:
                client, sent = clients[sent % connections], sent + 1
                if client.idle:
                    client.send(request, due)
                else:
                    behind[place[client]].append(due)
            await asyncio.sleep(max(0.0, due - perf_counter()))
        sample.seconds = perf_counter() - begun
        ended = True
        if not over.done() and not all(client.idle for client in clients):
            await asyncio.wait_for(over, PATIENCE_S)
    finally:
        for client in clients:
            client.close()
    return sample


async def once(port: int, request: bytes, patience_s: float = PATIENCE_S) -> tuple[int, float]:
    """One request on a connection of its own: status and seconds."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    result = (0, 0.0)

    def replied(client: Client, status: int) -> None:
        nonlocal result
        result = (status, perf_counter() - client.due)
        if not over.done():
            over.set_result(None)

    (client,) = await _connect(port, 1, replied, over)
    try:
        client.send(request, perf_counter())
        await asyncio.wait_for(over, patience_s)
    finally:
        client.close()
    return result
