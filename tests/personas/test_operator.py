"""The operator starts it, signals it, and asks it what is wrong."""

import signal
import socket
import time

from tests.personas.conftest import PATIENCE_S, Program
from tests.support.server import running_server


def test_the_doctor_says_what_matters(decided: Program) -> None:
    done = decided("doctor")
    assert done.returncode in (0, 1)  # 1: this machine has a problem, which it names
    for name in ("decided", "processor", "precision", "memory", "open files", "extras", "model"):
        assert any(line[2:].startswith(name) for line in done.stdout.splitlines()), name
    assert ("problem" in done.stderr) == (done.returncode == 1)


def test_a_port_that_is_taken_is_told_before_a_model_is_loaded(decided: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = decided("serve", "--host", "127.0.0.1", "--port", port, "--model", "opendecider:./no-such-folder")
    assert done.returncode == 4
    assert f"cannot listen on 127.0.0.1 port {port}: it is taken; choose another with --port" in done.stderr


def test_sighup_leaves_a_line() -> None:
    with running_server() as server:
        server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_S
        while "SIGHUP: there is neither a key file nor a folder of profiles" not in server.log():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert server.get("/health").status == 200
