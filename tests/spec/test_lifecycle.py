"""From the start to the end of the process: load, bind, keep, drain, stop."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from decided.web.listener import KEEP_ALIVE_S
from tests.spec.checks import BATCH, KEY, bytes_for, eventually, in_flight, refused, served
from tests.spec.wire import Wire, head, message
from tests.support.gate import Gate
from tests.support.server import Server, running_server, start

LOOPBACK = ("--host", "127.0.0.1", "--port", "0")


def ended(*flags: str, env: dict[str, str] | None = None, module: str = "tests.support.fake_server") -> tuple[int, str]:
    """Start, wait for the end, return the exit code and all that was said."""
    server = start(*flags, env=env, module=module)
    try:
        return server.process.wait(60), server.log()
    finally:
        server.process.kill()
        server.process.wait()
        server.log_path.unlink()


@contextmanager
def taken(host: str, port: int = 0) -> Iterator[int]:
    """A port that something else listens on."""
    with closing(socket.socket()) as listener:
        try:
            listener.bind((host, port))
            listener.listen()
        except OSError:
            assert port, "no free port"  # the port asked for is taken already, which is as good
        yield port or listener.getsockname()[1]


# --- what ends a start ---


@pytest.mark.parametrize(
    ("model", "module"),
    [
        ("fake:broken", "tests.support.fake_server"),
        ("nonsense:name", "decided"),
        ("fake", "decided"),
    ],
    ids=["broken", "unknown", "the test model in the product"],
)
def test_a_model_that_cannot_load_ends_the_start_with_3(model: str, module: str) -> None:
    code, log = ended(*LOOPBACK, "--model", model, module=module)
    assert code == 3
    assert model in log
    assert "Traceback" not in log


def test_a_port_that_is_taken_ends_the_start_with_4() -> None:
    with taken("127.0.0.1") as port:
        code, log = ended("--host", "127.0.0.1", "--port", str(port), "--model", "fake")
    assert code == 4
    assert str(port) in log
    assert "Traceback" not in log


def test_a_taken_port_is_told_before_the_model_is_loaded() -> None:
    """With both a broken model and a taken port, nobody waits for the model to hear of the port."""
    with taken("127.0.0.1") as port:
        code, _ = ended("--host", "127.0.0.1", "--port", str(port), "--model", "fake:broken")
    assert code == 4


def test_a_model_that_fails_its_warm_up_ends_the_start_with_3() -> None:
    """It runs before the port is bound: what cannot answer never listens."""
    code, log = ended(*LOOPBACK, "--model", "cold", module="tests.spec.engines")
    assert code == 3
    assert "warm-up" in log
    assert " on http://" not in log


def test_nothing_listens_while_the_model_is_loaded() -> None:
    with taken("127.0.0.1") as port:
        pass
    server = start("--host", "127.0.0.1", "--port", str(port), "--model", "fake:slow")
    server.port = port
    try:
        assert eventually(lambda: "loading" in server.log())
        assert not accepts(server)
        assert server.process.poll() is None
    finally:
        server.process.kill()
        server.process.wait()
        server.log_path.unlink()


def test_the_default_address_is_all_interfaces_port_8000() -> None:
    """With that port taken, a start without an address says where it wanted to listen."""
    with taken("0.0.0.0", 8000):
        code, log = ended("--model", "fake")
    assert code == 4
    assert "0.0.0.0 port 8000" in log


# --- the warning ---


@pytest.mark.parametrize("env", [{}, {"SERVICE_API_KEY": KEY}], ids=["without", "with"])
def test_a_start_in_the_open_logs_one_warning_without_a_key(env: dict[str, str]) -> None:
    with running_server("--host", "0.0.0.0", env=env) as server:
        served(server.get("/ready"))
        assert server.stop() == 0
        warnings = [line for line in server.log().splitlines() if "WARNING" in line]
        assert len(warnings) == (0 if env else 1)
        assert all("SERVICE_API_KEY" in line for line in warnings)


def test_a_start_on_loopback_needs_no_warning(server: Server) -> None:
    assert "SERVICE_API_KEY" not in server.log()


# --- SIGTERM ---


@contextmanager
def stopping(server: Server) -> Iterator[None]:
    """SIGTERM, and within the block the server refuses new connections."""
    server.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: not accepts(server))
    yield


def accepts(server: Server) -> bool:
    try:
        server.connect().close()
        return True
    except ConnectionRefusedError:
        return False


def test_sigterm_when_idle_ends_at_once_with_0() -> None:
    """An idle connection that is kept alive for longer than a stop is waited for here does not hold it up."""
    with running_server() as server, Wire(server) as idle:
        served(idle.exchange(message(bytes_for())))
        assert server.stop(timeout=KEEP_ALIVE_S - 10) == 0
        assert idle.ended()


def test_sigterm_finishes_what_is_in_flight() -> None:
    """One that runs, one that waits, one whose body is still on its way: all are answered, then it exits 0."""
    with (
        Gate() as gate,
        running_server() as server,
        Wire(server) as running,
        Wire(server) as waiting,
        Wire(server) as sending,
    ):
        running.send(message(bytes_for(state=gate.state)))
        assert eventually(gate.reached)
        waiting.send(message(bytes_for(BATCH), path=BATCH))
        sending.send(message(bytes_for())[:-1])
        assert eventually(lambda: in_flight(server) == 3)
        with stopping(server):
            sending.send(bytes_for()[-1:])
            gate.open()
            for wire in (running, waiting, sending):
                served(wire.reply())
        assert server.process.wait(60) == 0


def test_sigterm_waits_no_longer_than_the_time_limit() -> None:
    """A request that never gets done and a body that never comes end with 504, and the exit code is still 0."""
    with (
        Gate() as never,
        running_server("--request-timeout-s", "1") as server,
        Wire(server) as running,
        Wire(server) as sending,
    ):
        running.send(message(bytes_for(state=never.state)))
        sending.send(head("Content-Length: 5"))
        with stopping(server):
            refused(running.reply(), 504)
            refused(sending.reply(), 504)
        assert server.process.wait(60) == 0


# --- keep-alive ---


def test_a_connection_is_kept_longer_than_the_official_client_pools_it() -> None:
    assert KEEP_ALIVE_S > 30


@pytest.mark.slow
@pytest.mark.parametrize("used", [False, True], ids=["before the first request", "between requests"])
def test_an_idle_connection_is_kept_for_more_than_30_seconds(server: Server, used: bool) -> None:
    with Wire(server) as wire:
        if used:
            served(wire.exchange(message(bytes_for())))
        time.sleep(32)
        served(wire.exchange(message(bytes_for())))
