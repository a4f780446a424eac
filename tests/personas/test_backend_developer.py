"""The backend developer reads the help, mistypes, and wants a first answer in the first minute."""

import json
import subprocess
from pathlib import Path

import pytest

from decided.commands.parser import COMMANDS
from tests.personas.conftest import Program
from tests.support.server import Server


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_two_examples(command: str) -> None:
    """As the parser shows it; an example begins with the program, or sends something to it."""
    examples = COMMANDS[command].EPILOG.partition("try it:\n")[2].partition("\n\n")[0]
    begins = ("decided ", "curl ", "cat ", "zcat ", "source <(decided ")
    assert sum(line.strip().startswith(begins) for line in examples.splitlines()) >= 2
    assert "exit codes: 0" in COMMANDS[command].EPILOG


def test_a_first_answer(decided: Program, small: Server) -> None:
    done = decided("ask", "My parcel is two days late!", "--noul", "Is the parcel late?", "--server", small.url)
    assert done.returncode == 0
    assert done.stdout.startswith("Is the parcel late?  yes  (confidence ")
    as_json = decided("ask", "x", "--noul", "So?", "--server", small.url, "--json")
    assert list(json.loads(as_json.stdout)["answers"]) == ["So?"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["serve", "--prot", "1"], 2, "did you mean --port?"),
        (["serv"], 2, "did you mean serve?"),
        (["ask", "x"], 2, "nothing to ask: use --choice, --score or --noul, or --questions FILE"),
        (["ask", "x", "--choice", "Which?"], 2, "name the options after the question"),
        (["ask", "x", "--noul", "So?", "--server", "http://127.0.0.1:9"], 3, "the server at http://127.0.0.1:9: "),
    ],
)
def test_a_slip_is_told_with_what_to_do(decided: Program, arguments: list[str], code: int, said: str) -> None:
    done = decided(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_the_shell_completes(decided: Program, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(decided("completion", "bash").stdout)
    for words, completed in (
        ("decided ev", "eval"),
        ("decided run --no-p", "--no-probabilities"),
        ("decided eval --against-q", "--against-questions"),
        ("decided completion z", "zsh"),
    ):
        last = len(words.split()) - 1
        done = subprocess.run(
            ["bash", "-c", f'. {script}; COMP_WORDS=({words}); COMP_CWORD={last}; _decided; echo "${{COMPREPLY[*]}}"'],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == completed
    assert "bashcompinit" in decided("completion", "zsh").stdout
    assert "complete -c decided -n '__fish_seen_subcommand_from run' -l ray" in decided("completion", "fish").stdout
