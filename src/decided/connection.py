"""One HTTP/1.1 connection: uvicorn's, with the bounds and the error body that the contract asks for.

Added: a head that is too large, too slow or no HTTP gets the ordinary error body with its id; a connection on which
nothing happens is closed; a client that leaves cancels the work for it; the rest of a refused body is read, so that the
client sees the refusal, but not for ever.
"""

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from decided.edge import CLIENT_LEFT

MAX_HEAD_BYTES = 64 * 1024
MAX_DRAINED_BYTES = 64 * 2**20
KEEP_ALIVE_S = 75
_UPGRADE = re.compile(rb"\r\nUpgrade:", re.IGNORECASE)


class Connection(HttpToolsProtocol):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head = True
        self._head_bytes = 0
        self._drained_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_data()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self._task = task

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._task is not None:
            self._task.cancel(CLIENT_LEFT)  # no effect on one that is done

    def data_received(self, data: bytes) -> None:
        began_in_head = self._in_head
        if began_in_head and b"pgrade" in data:
            data = _without_upgrade(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and began_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(f"the request line and headers are larger than {MAX_HEAD_BYTES} bytes")
                return
        if self._in_head or self.cycle.response_complete:
            self._expect_data()

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = self._drained_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle.response_complete:
            self._drained_bytes += len(body)
            if self._drained_bytes > MAX_DRAINED_BYTES:
                self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self.transport.write(self.app.refuse_unparsed(msg))
        self.transport.close()

    def _expect_data(self) -> None:
        """Close the connection unless something comes within the keep-alive time."""
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )


def _without_upgrade(data: bytes) -> bytes:
    """The offer to switch protocols hidden from the parser, which would stop there and lose the body.

    Java's client offers HTTP/2 in this way with its first request; a server may ignore the offer.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nX-Upgrade-Ignored:", head) + end + rest
