"""The application in real servers: the commands of the docs, mounted, stopped, and with a model that does not load."""

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.spec.checks import BATCH, body_for, bytes_for, eventually, in_flight, served
from tests.spec.fronts import HYPERCORN, OTHERS
from tests.spec.wire import Wire, message
from tests.support.server import ROOT, Server, running_server, start
from tests.test_docs import blocks, environment

PAGE = ROOT / "docs" / "deployment.md"
COMMANDS = {block.text.split()[0]: block.text for block in blocks(PAGE) if block.text.startswith(OTHERS)}
MOUNTED = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        async with lifespan(app):
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["path"].startswith("/decisions/"):
        await decisions(scope | {"root_path": scope["root_path"] + "/decisions"}, receive, send)
    else:
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b""})
"""


@contextmanager
def started(command: str, folder: Path) -> Iterator[str]:
    """The log of a shell command, from when it says that it listens until it is stopped."""
    log = folder / "log"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=folder,
            env=environment() | {"PATH": path},
            stdout=output,
            stderr=output,
        )
    try:
        running = eventually(lambda: " running on http" in log.read_text().lower() or process.poll() is not None, 60)
        assert running, log.read_text()
        assert process.poll() is None, log.read_text()
        yield log.read_text()
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key and a certificate for this machine."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder: Path = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    command += " -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=folder, capture_output=True, check=True)
    return folder


@pytest.mark.parametrize("name", OTHERS)
def test_the_commands_of_the_docs(name: str, certificate: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = ssl.create_default_context(cafile=certificate / "cert.pem")
    with (
        started(COMMANDS[name].replace("8443", str(port)), certificate),
        httpx2.Client(base_url=f"https://127.0.0.1:{port}", verify=context, http2=True, timeout=40) as client,
    ):
        single = client.post("/v1/systemone", json=body_for("/v1/systemone"), headers={"x-request-id": "over-tls"})
        assert single.http_version == ("HTTP/2" if name == HYPERCORN else "HTTP/1.1")
        assert (single.status_code, single.headers["x-request-id"]) == (200, "over-tls")
        accept = {"accept": "application/x-ndjson"}
        lines = client.post(BATCH, json=body_for(BATCH, "A parcel is late."), headers=accept).json()
        assert lines["answers"] == single.json()["answers"]
        large = client.post("/v1/systemone", content=bytes(2**22))
        assert (large.status_code, list(large.json())) == (413, ["detail"])
        assert client.get("/nowhere").status_code == 404


def test_mounted_as_the_docs_say(tmp_path: Path) -> None:
    (code,) = [block.text for block in blocks(PAGE) if block.language == "python mounted"]
    (tmp_path / "mounted.py").write_text(code + MOUNTED)
    with started("uvicorn mounted:app --port 0", tmp_path) as log:
        address = re.findall(r"http://127\.0\.0\.1:\d+", log)[0]
        with httpx2.Client(base_url=address, timeout=40) as client:
            reply = client.post("/decisions/v1/systemone", json=body_for("/v1/systemone"))
            assert reply.json()["model"] == client.get("/decisions/health").json()["model"]
            assert client.get("/decisions/nowhere").json()["detail"].startswith("not found")
            assert client.get("/health").status_code == 418


@pytest.mark.parametrize("front", OTHERS)
def test_sigterm_finishes_what_is_in_flight(front: str) -> None:
    with running_server(front=front) as server, Wire(server) as wire:
        wire.send(message(bytes_for(state="SLEEP=0.5")))
        assert eventually(lambda: in_flight(server) == 1)
        server.process.send_signal(signal.SIGTERM)
        served(wire.reply())
        assert server.process.wait(30) in (0, -signal.SIGTERM)
        assert "Traceback" not in server.log()


@pytest.mark.parametrize("front", OTHERS)
def test_a_model_that_cannot_load_ends_the_start(front: str) -> None:
    server: Server = start("--model", "fake:broken", "--host", "127.0.0.1", "--port", "0", front=front)
    try:
        assert server.process.wait(60) != 0
        assert "no such weights" in server.log()
        assert " on http://" not in server.log()
    finally:
        server.process.kill()
        server.process.wait()
        server.log_path.unlink()
