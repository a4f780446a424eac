"""`decided doctor` and `decided completion`, and flags that are nearly right."""

import shutil
import subprocess
from pathlib import Path

import pytest

from decided.commands import doctor
from decided.commands.parser import COMMANDS
from tests.commands.conftest import Run


def test_the_embedded_model_is_well(decided: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_MODEL", "embedded:small")
    done = decided("doctor")
    assert (done.code, done.err) == (0, "")
    assert {line.split()[0] for line in done.out.splitlines()} == {
        "decided", "processor", "precision", "memory", "open", "extras", "model",
    }  # fmt: skip
    assert "decided-small-" in done.out


def test_a_problem_comes_with_advice(decided: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_available_bytes", lambda: 2**20)
    done = decided("doctor")
    assert done.code == 1
    assert "! memory       0.0 GiB free" in done.out
    assert "embedded:small" in done.out
    assert "problem" in done.err


def test_a_model_that_cannot_be_loaded(decided: Run) -> None:
    done = decided("doctor", "--model", "nothing")
    assert (done.code, "unknown kind" in done.err) == (3, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(decided: Run, shell: str) -> None:
    done = decided("completion", shell)
    assert done.code == 0
    assert all(name in done.out for name in COMMANDS)


def test_bash_completes_commands_and_flags(decided: Run, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = tmp_path / "completion.bash"
    script.write_text(decided("completion", "bash").out)
    for words, expected in ((["decided", "ser"], "serve"), (["decided", "run", "--quest"], "--questions")):
        code = f'''source {script}; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _decided
                   echo "${{COMPREPLY[@]}}"'''
        done = subprocess.run([bash, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [expected]


@pytest.mark.parametrize(("flag", "meant"), [("--prot", "--port"), ("--max-inflight", "--max-in-flight")])
def test_a_flag_that_is_nearly_right(decided: Run, flag: str, meant: str) -> None:
    done = decided("serve", flag, "1")
    assert (done.code, f"did you mean {meant}?" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("serve", "--html", "x"), "(--html is a flag of eval)"),
        (("audit", "verify", "x", "--questions", "y"), "(--questions is a flag of ask, run, eval, teach)"),
        (("calibrate", "x", "--server", "y"), "(a server is a model here: --model systemone:NAME --remote-url URL)"),
    ],
)
def test_a_flag_of_another_command(decided: Run, command: tuple[str, ...], said: str) -> None:
    """What is right elsewhere is no slip of the pen."""
    done = decided(*command)
    assert (done.code, said in done.err, "did you mean" in done.err) == (2, True, False), done.err
