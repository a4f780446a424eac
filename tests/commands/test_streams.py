"""What the shell hands a command: a terminal with somebody at it, streams that are closed, a disk that is full."""

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.commands.conftest import started
from tests.support.server import ROOT

ASK = ("ask", "x", "--noul", "Is it?")
FULL = Path("/dev/full")
QUESTION = "q: {type: noul, instructions: 'Is it?'}\n"
LABEL = '{"state": "x", "question": {"type": "noul", "instructions": "Is it?"}, "answer": true}\n'


class Terminal:
    """A command at a terminal of its own, whose keys are ours."""

    def __init__(self, *arguments: object) -> None:
        self._keys, theirs = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fake_server", *map(str, arguments), "--model", "fake"],
            cwd=ROOT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.shown = b""

    def press(self, keys: bytes) -> None:
        os.write(self._keys, keys)

    def wait_for(self, words: bytes) -> None:
        while words not in self.shown:
            self.shown += os.read(self._keys, 2**16)

    def wait_until_idle(self) -> None:
        """It has worked for a while, and has not for some time: it waits for us."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        before, still = 0, 0
        while before < 10 or still < 5:
            time.sleep(0.1)
            used = sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))
            still = still + 1 if used == before else 0
            before = used

    def ended(self) -> int:
        """Its exit code."""
        try:
            return self.process.wait(timeout=10)
        finally:
            self.process.kill()
            os.set_blocking(self._keys, False)
            with suppress(OSError):  # nothing more, and nobody at the other end
                self.shown += os.read(self._keys, 2**16)
            os.close(self._keys)


@pytest.mark.parametrize(("typed", "prompt"), [(b"", b"text> "), (b"A text.\n\n", b"question> ")])
def test_one_ctrl_c_ends_a_conversation(typed: bytes, prompt: bytes) -> None:
    terminal = Terminal("ask")
    terminal.press(typed)
    terminal.wait_for(prompt)
    time.sleep(0.1)
    terminal.press(b"\x03")
    assert terminal.ended() == 130
    assert b"Traceback" not in terminal.shown


@pytest.mark.parametrize("command", [("ask", "--noul", "Is it?"), ("run", "-", "--questions"), ("eval", "-")])
def test_one_ctrl_c_ends_what_reads_from_a_terminal(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "q.yaml").write_text(QUESTION)
    terminal = Terminal(*command, *([tmp_path / "q.yaml"] if command[-1] == "--questions" else []))
    terminal.wait_until_idle()
    terminal.press(b"\x03")
    assert terminal.ended() == 130
    assert b"Traceback" not in terminal.shown


def test_ctrl_c_while_modules_are_imported() -> None:
    """The last of them that are not Python's own, so that all of the others stand behind the same guard."""
    code = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "uvloop":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from decided.cli import main
assert "asyncio" not in sys.modules, "too much is imported before the guard"
sys.exit(main(["ask", "x", "--noul", "Is it?"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# --- streams that are closed ---


def in_shell(command: str) -> "subprocess.CompletedProcess[str]":
    others = ("SERVICE_", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    program = f"{sys.executable} -m tests.support.fake_server"
    return subprocess.run(
        ["sh", "-c", f"exec {program} {command}"],
        cwd=ROOT,
        env=kept | {"SERVICE_MODEL": "fake"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        "ask x --noul 'Is it?' >&-",
        "ask x --noul 'Is it?' --json >&-",
        "ask x --noul 'Is it?' 2>&-",
        "ask --noul 'Is it?' <&-",
        "ask --noul 'Is it?' <&- >&- 2>&-",
    ],
)
def test_a_closed_stream_is_an_empty_one(command: str) -> None:
    done = in_shell(command)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("fake, " in done.stdout) == (">&-" not in command.replace("2>&-", ""))


def test_a_server_without_a_standard_input_stops_when_told() -> None:
    code = "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    arguments = ["-m", "tests.support.fake_server", "serve", "--model", "fake", "--port", "0"]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT, stderr=subprocess.PIPE)
    assert process.stderr is not None
    while b" serving " not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, b"stopped" in said) == (0, True), said


# --- a disk that is full ---


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "command",
    ["ask x --noul 'Is it?'", "ask x --noul 'Is it?' --json", "eval {labels} --json", "completion bash", "--help"],
)
def test_output_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path, command: str) -> None:
    (tmp_path / "labels.jsonl").write_text(LABEL * 9)
    done = in_shell(command.format(labels=tmp_path / "labels.jsonl") + " > /dev/full")
    assert done.returncode == 2
    assert done.stderr == "decided: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("command", [ASK, ("completion", "bash")])
def test_a_reader_that_has_had_enough_is_no_mistake(command: tuple[str, ...]) -> None:
    with started(*command) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")
