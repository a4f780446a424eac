"""A connection on which nothing is hidden: bytes out as they are, replies in as they come."""

import socket
from types import TracebackType
from typing import Self

from tests.support.server import Reply, Server


def message(
    body: bytes = b"",
    *lines: str,
    method: str = "POST",
    path: str = "/v1/systemone",
    length: int | None = None,
) -> bytes:
    """A request with a Content-Length, which may lie."""
    size = len(body) if length is None else length
    return head(f"Content-Length: {size}", *lines, method=method, path=path) + body


def head(*lines: str, method: str = "POST", path: str = "/v1/systemone") -> bytes:
    """A request line and the headers given, with a Host before them."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode("latin-1")


def chunked(*parts: bytes) -> bytes:
    """A chunked body of these parts."""
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


class Wire:
    """One connection to a server."""

    def __init__(self, server: Server, timeout: float = 60) -> None:
        self.socket = server.connect()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(timeout)
        self._timeout = timeout
        self._left = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def exchange(self, data: bytes) -> Reply:
        self.send(data)
        return self.reply()

    def reply(self, bodiless: bool = False) -> Reply:
        """The next reply, an interim one too. A header that stands twice is a fault."""
        first, *lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        fields = [(name.lower(), value) for name, value in (line.split(": ", 1) for line in lines)]
        headers = dict(fields)
        assert len(headers) == len(fields), fields
        if bodiless or int(status) < 200:
            return Reply(int(status), headers, b"")
        return Reply(int(status), headers, self._body(headers))

    def ended(self) -> bool:
        """Whether the server closes without another byte."""
        try:
            return not self._left and not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def quiet(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes, neither a byte nor the end."""
        self.socket.settimeout(seconds)
        try:
            self._left += self.socket.recv(1)
            return False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(self._timeout)

    def _body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            return self._exactly(int(headers["content-length"]))
        assert headers.get("transfer-encoding") == "chunked"
        parts = []
        while size := int(self._until(b"\r\n"), 16):
            parts.append(self._exactly(size))
            assert self._exactly(2) == b"\r\n"
        assert self._exactly(2) == b"\r\n"
        return b"".join(parts)

    def _until(self, end: bytes) -> bytes:
        while end not in self._left:
            self._more()
        found, _, self._left = self._left.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._left) < size:
            self._more()
        found, self._left = self._left[:size], self._left[size:]
        return found

    def _more(self) -> None:
        data = self.socket.recv(65536)
        assert data, f"the connection ended after {self._left!r}"
        self._left += data
