"""An HTTP server for tests of clients, in a thread of this process, that answers what a function says."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Scripted:
    """A reply: a JSON body, or lines of JSON of which the stream may break off before its end."""

    status: int = 200
    body: Any = None
    lines: list[Any] | None = None
    broken: bool = False
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class ReceivedRequest:
    path: str
    headers: dict[str, str]
    body: Any


Script = Callable[[ReceivedRequest], Scripted | None]
"""What to answer; None closes the connection without a word."""


@contextmanager
def scripted_server(script: Script) -> Iterator[tuple[str, list[ReceivedRequest]]]:
    """The server's address, and what it was asked so far."""
    log: list[ReceivedRequest] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
            asked = ReceivedRequest(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            log.append(asked)
            reply = script(asked)
            if reply is None:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.lines is None:
                content = json.dumps(reply.body).encode()
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                return
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in reply.lines:
                part = json.dumps(line, ensure_ascii=False).encode() + b"\n"
                for half in (part[:7], part[7:]):  # a line may come in parts
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(half), half))
            if reply.broken:
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", log
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
