"""All connections of one listening socket: accept, keep, sweep, and let go in good order."""

import asyncio
import logging
import socket
from email.utils import formatdate

from decided.web.connection import Connection
from decided.web.edge import Edge
from decided.web.parser import KnownHeads

log = logging.getLogger("decided")

KEEP_ALIVE_S = 75.0
_BACKLOG = 2048
_SWEEP_S = 1.0
_LOOK_S = 0.02
_GRACE_S = 1.0  # the last request to be admitted runs out of time first, and is told so


class Listener:
    """Serves until `stop`, then lets what is in flight end. A second `stop` ends the waiting."""

    def __init__(self, edge: Edge, request_timeout_s: float, max_connections: int) -> None:
        self.connections: set[Connection] = set()
        self.turned_away: set[Connection] = set()
        self.max_connections = max_connections
        self.heads = KnownHeads()
        self.loop = asyncio.get_running_loop()
        self.date = b""
        self.write_timeout_s = request_timeout_s
        self._edge = edge
        self._drain_s = request_timeout_s + _GRACE_S
        self._stopping = asyncio.Event()
        self._in_a_hurry = False

    def stop(self) -> None:
        self._in_a_hurry = self._stopping.is_set()
        self._stopping.set()

    async def serve(self, sock: socket.socket) -> None:
        self._sweep()
        server = await self.loop.create_server(lambda: Connection(self._edge, self), sock=sock, backlog=_BACKLOG)
        while not self._stopping.is_set():
            try:
                await asyncio.wait_for(self._stopping.wait(), _SWEEP_S)
            except TimeoutError:
                self._sweep()
        log.info("stopping: %d connections open", len(self.connections))
        server.close()
        await self._drain()

    def _sweep(self) -> None:
        """Once a second: the date of the replies, and an end to connections on which nothing happens."""
        self.date = formatdate(usegmt=True).encode()
        too_long_ago = self.loop.time() - KEEP_ALIVE_S
        for connection in list(self.connections):
            connection.close_if_idle_since(too_long_ago)

    async def _drain(self) -> None:
        for connection in list(self.connections):
            connection.finish()
        end = self.loop.time() + self._drain_s
        while self.connections and not self._in_a_hurry and self.loop.time() < end:
            await asyncio.sleep(_LOOK_S)
        for connection in list(self.connections):
            connection.give_up()
        await asyncio.sleep(_LOOK_S)  # the requests given up have their say
