"""A real server process for tests, on a free loopback port."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 120.0
TRACED = "COVERAGE_PROCESS"
"""How the variables begin that have a process write down which lines it ran."""
OWN = "own"
PATIENCE_S = 120.0
"""How long a reply is waited for: longer than any machine takes, so that no test hangs on its speed."""


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        """The error's words; checks that the body is the error body of the contract and nothing else."""
        body = self.json
        assert list(body) == ["detail"]
        assert isinstance(body["detail"], str)
        return body["detail"]


@dataclass
class Server:
    process: "subprocess.Popen[bytes]"
    log_path: Path
    is_traced: bool = False
    port: int = 0
    host: str = "127.0.0.1"
    _position: int = field(default=0, repr=False)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def log(self) -> str:
        return self.log_path.read_text()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float = PATIENCE_S,
    ) -> Reply:
        """One request on a connection of its own. A body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, headers: dict[str, str] | None = None) -> Reply:
        return self.request("GET", path, headers=headers)

    def ask(self, state: Any, questions: Any = None, headers: dict[str, str] | None = None, **more: Any) -> Reply:
        chosen = {"q": {"type": "noul", "instructions": "Is it so?"}} if questions is None else questions
        return self.request("POST", "/v1/systemone", {"state": state, "questions": chosen, **more}, headers)

    def batch(self, states: Any, questions: Any = None, **more: Any) -> Reply:
        chosen = {"q": {"type": "noul", "instructions": "Is it so?"}} if questions is None else questions
        return self.request("POST", "/v1/systemone/batch", {"states": states, "questions": chosen, **more})

    def metric(self, name: str) -> float:
        """The value of one series, written as in the exposition."""
        for line in self.get("/metrics").body.decode().splitlines():
            if line.rpartition(" ")[0] == name:
                return float(line.rpartition(" ")[2])
        return 0.0

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=PATIENCE_S)

    def raw(self, data: bytes, timeout: float = 40) -> bytes:
        """Send bytes as they are; return all that comes until the server closes or nothing more comes."""
        with self.connect() as connection:
            connection.settimeout(timeout)
            connection.sendall(data)
            return read_all(connection)

    def end(self) -> None:
        """End the process, whatever it does; if it is traced, let it write down what it ran before."""
        if self.is_traced and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM, timeout: float = 20) -> int:
        """Send a signal, wait for the end, return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout)


def untraced(environment: dict[str, str]) -> dict[str, str]:
    """Without what has a process write down which lines it ran."""
    return {name: value for name, value in environment.items() if not name.startswith(TRACED)}


def read_all(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except (TimeoutError, ConnectionResetError):
        pass
    return b"".join(parts)


def start(
    *flags: str,
    env: dict[str, str] | None = None,
    module: str = "tests.support.fake_server",
    front: str = OWN,
) -> Server:
    """Start a server process without waiting for it to listen. What speaks HTTP there is our own listener, or the
    application of `decided.asgi` under the server that `front` names.

    Coverage leaves out those with another listener or the embedded model: tracing takes a second of every start, and
    they run hardly a line that the tests of `tests/asgi` and `tests/embedded` do not.
    """
    import tempfile

    handle, name = tempfile.mkstemp(prefix="decided-", suffix=".log")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SERVICE_")} | (env or {})
    is_traced = any(name.startswith(TRACED) for name in environment)
    if front != OWN or any(flag.startswith("embedded") for flag in flags):
        is_traced, environment = False, untraced(environment)
    program = [module] if front == OWN else ["tests.support.asgi_server", front]
    with os.fdopen(handle, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *program, "serve", *flags], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
    return Server(process, Path(name), is_traced)


@contextmanager
def running_server(
    *flags: str,
    env: dict[str, str] | None = None,
    module: str = "tests.support.fake_server",
    front: str = OWN,
) -> Iterator[Server]:
    """A server that listens, with the fake model unless flags or environment name another."""
    defaults = ["--host", "127.0.0.1", "--port", "0"]
    if "--model" not in flags and "SERVICE_MODEL" not in (env or {}):
        defaults += ["--model", "fake"]
    server = start(*defaults, *flags, env=env, module=module, front=front)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (found := re.search(r"on http://\S*:(\d+)", server.log())):
            assert server.process.poll() is None, server.log()
            assert time.monotonic() < deadline, server.log()
            time.sleep(0.02)
        server.port = int(found[1])
        yield server
    finally:
        server.end()
        server.log_path.unlink(missing_ok=True)
