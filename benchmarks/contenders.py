"""Servers under test: started as children on a core of their own, watched, and ended by process id."""

import http.client
import os
import socket
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic, sleep
from typing import IO

from loadgen import HOST
from workload import SINGLE, check_answer, small_body

HERE = Path(__file__).resolve().parent
PEER = "opendecider==0.9.0"
PEER_NEEDS = ("fastapi", "uvicorn", "httptools", "uvloop")
START_S = 60.0


class StartError(Exception):
    """A server that did not come up, or did not answer the question put to it."""


@dataclass(frozen=True, slots=True)
class Cores:
    """One core for the server, another for the load; empty where the system cannot pin processes."""

    server: frozenset[int]
    load: frozenset[int]

    @classmethod
    def pick(cls) -> "Cores":
        if not hasattr(os, "sched_getaffinity"):
            return cls(frozenset(), frozenset())
        available = sorted(os.sched_getaffinity(0))
        if len(available) < 2:
            return cls(frozenset(available), frozenset(available))
        return cls(frozenset(available[:1]), frozenset(available[1:2]))

    @property
    def note(self) -> str:
        if not self.server:
            return "not pinned: this system cannot pin processes, so servers may use several cores"
        if self.server == self.load:
            return "server and load share ONE core: the rates are too low, the ratios too kind to slow servers"
        return f"servers on core {min(self.server)}, load on core {min(self.load)}"


@dataclass(slots=True)
class Server:
    name: str
    port: int
    process: "subprocess.Popen[bytes]"
    log: IO[bytes]

    def cpu_times(self) -> tuple[float, float]:
        """Seconds so far, over all threads: on the CPU, and ready but waiting for it. NaN where not known."""
        ran = waited = 0
        try:
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                times = (task / "schedstat").read_text().split()
                ran, waited = ran + int(times[0]), waited + int(times[1])
        except (OSError, ValueError, IndexError):
            return nan, nan
        return ran / 1e9, waited / 1e9

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def start(name: str, command: Sequence[str], cores: Cores, model_s: float = 0.0, key: str = "") -> Server:
    """Start `command --port N` on the server's core and return when it has answered a request well."""
    port = _free_port()
    log = TemporaryFile()  # noqa: SIM115 -- closed by Server.stop
    # A child inherits the affinity, so that not even its start-up runs elsewhere.
    if cores.server:
        os.sched_setaffinity(0, cores.server)
    try:
        process = subprocess.Popen([*command, "--port", str(port)], stdout=log, stderr=log, cwd=HERE.parent)
    finally:
        if cores.load:
            os.sched_setaffinity(0, cores.load)
    server = Server(name, port, process, log)
    try:
        _wait_for_answer(server, monotonic() + START_S + model_s, key)
    except BaseException:
        server.stop()
        raise
    return server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_answer(server: Server, until: float, key: str) -> None:
    body = small_body()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    while monotonic() < until:
        if server.process.poll() is not None:
            server.log.seek(0)
            tail = server.log.read()[-1500:].decode(errors="replace").strip()
            raise StartError(f"{server.name} ended with status {server.process.returncode}:\n{tail}")
        connection = http.client.HTTPConnection(HOST, server.port, timeout=30)
        try:
            connection.request("POST", SINGLE, body, headers)
            reply = connection.getresponse()
            content = reply.read()
        except OSError:
            sleep(0.1)
            continue
        finally:
            connection.close()
        if reply.status != 200:
            raise StartError(f"{server.name} answered {reply.status}: {content[:300]!r}")
        try:
            check_answer(content)
        except (ValueError, KeyError) as error:
            raise StartError(f"{server.name}: {error}") from error
        return
    raise StartError(f"{server.name} did not answer within {START_S:.0f} s")


def decided_command(kind: str, *flags: str, checkout: Path | None = None) -> list[str]:
    """The real command line of this project, with the benchmark's models added to its table of kinds. Or the same of
    another checkout, in its environment."""
    program = [str(checkout / ".venv/bin/python"), str(checkout / "benchmarks/noop.py")] if checkout else None
    return [*(program or [sys.executable, str(HERE / "noop.py")]), "serve", "--host", HOST, "--model", kind, *flags]


def bare_command() -> list[str]:
    return [sys.executable, str(HERE / "bare.py")]


def peer_command(python: Path, log_level: str) -> list[str]:
    return [str(python), str(HERE / "peer.py"), "--log-level", log_level]


def peer_python(folder: Path) -> Path:
    """The Python of an environment with the peer, made under `folder` on first use. Raises StartError if it cannot."""
    home = folder / PEER.replace("==", "-")
    python = home / "bin" / "python"
    done = home / "complete"
    if done.exists():
        return python
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        venv.create(home, with_pip=True, clear=True)
        # Without its dependencies: those are for real models (gigabytes), and a fake one needs none of them.
        subprocess.run([*install, "--no-deps", PEER], check=True, capture_output=True, timeout=300)
        subprocess.run([*install, *PEER_NEEDS], check=True, capture_output=True, timeout=300)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or b"").decode(errors="replace").strip().rsplit("\n", 1)[-1]
        raise StartError(f"could not install {PEER}: {last or error}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartError(f"could not install {PEER}: {error}") from error
    done.touch()
    return python
