"""`decided ask`: where states and questions come from, what is printed, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from decided.commands import terminal
from decided.contract.types import ChoiceAnswer, SingleResponse, Usage
from tests.commands.conftest import Run
from tests.support.scripted_server import Scripted, scripted_server
from tests.support.server import Server, running_server

TEAM = ("--choice", "Which team?", "billing=invoices and payments", "delivery")
URGENT = ("--score", "How urgent?", "it can wait", "this week", "today")
ANGRY = ("--noul", "Is the customer angry?")
SERVER = ("--server", "http://127.0.0.1:9")
ADDRESS = "--server must be an address such as http://127.0.0.1:8000, not "
AS_REQUESTED: dict[str, Any] = {
    "Which team?": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": "invoices and payments", "delivery": None},
    },
    "How urgent?": {"type": "score", "instructions": "How urgent?", "criteria": ["it can wait", "this week", "today"]},
    "Is the customer angry?": {"type": "noul", "instructions": "Is the customer angry?"},
}
YAML = """\
Which team?:
  type: choice
  instructions: Which team?
  criteria: {billing: invoices and payments, delivery: null}
How urgent?: {type: score, instructions: "How urgent?", criteria: [it can wait, this week, today]}
Is the customer angry?: {type: noul, instructions: "Is the customer angry?"}
"""


@pytest.fixture
def expected(server: Server) -> Any:
    """What the server says to the same questions."""
    return server.ask("Where is it?", AS_REQUESTED).json


def test_questions_from_flags_in_the_order_in_which_they_were_asked(decided: Run, expected: Any) -> None:
    done = decided("ask", "Where is it?", *TEAM, *URGENT, *ANGRY, "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == expected
    assert list(json.loads(done.out)["answers"]) == list(AS_REQUESTED)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.yaml", YAML),
        ("q.yml", "questions:\n" + "".join(f"  {line}\n" for line in YAML.splitlines())),
        ("q.json", json.dumps(AS_REQUESTED)),
        ("q.json", json.dumps({"questions": AS_REQUESTED})),
    ],
)
def test_questions_from_a_file(decided: Run, expected: Any, tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    done = decided("ask", "Where is it?", "--questions", path, "--json")
    assert json.loads(done.out) == expected


def test_options_without_descriptions_may_be_a_list(decided: Run, tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text("team: {type: choice, criteria: [billing, delivery]}")
    answer = json.loads(decided("ask", "x", "--questions", path, "--json").out)["answers"]["team"]
    assert list(answer["probabilities"]) == ["billing", "delivery"]


def test_a_question_called_questions_is_a_question(decided: Run, tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text("questions: {type: noul, instructions: 'Any questions?'}")
    assert list(json.loads(decided("ask", "x", "--questions", path, "--json").out)["answers"]) == ["questions"]


def test_names_in_yaml_stay_as_they_are_written(decided: Run, tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text(
        "on: {type: choice, criteria: {no: , 1: ~, 2026-01-01: null, yes: why}}\n"
        "t: {type: noul, criteria: {true: it is, false: it is not}}\n"
        "s: {type: score, criteria: [1, 2.50, off]}\n"
    )
    answers = json.loads(decided("ask", "x", "--questions", path, "--json").out)["answers"]
    assert list(answers["on"]["probabilities"]) == ["no", "1", "2026-01-01", "yes"]
    assert answers["s"]["legend"] == {"0": "1", "1": "2.50", "2": "off"}


def test_a_state_from_everywhere(decided: Run, tmp_path: Path, server: Server) -> None:
    text, data = tmp_path / "state.txt", tmp_path / "state.json"
    text.write_text("Where is it? é")
    data.write_text('{"text": "Where is it?", "n": [1, 2]}')
    question = {ANGRY[1]: AS_REQUESTED[ANGRY[1]]}
    for arguments, stdin, state in (
        (["Where is it?"], "", "Where is it?"),
        ([f"@{text}"], "", "Where is it? é"),
        ([f"@{data}"], "", {"text": "Where is it?", "n": [1, 2]}),
        ([], "From a pipe.\n", "From a pipe.\n"),
    ):
        done = decided("ask", *arguments, *ANGRY, "--json", stdin=stdin.encode())
        assert json.loads(done.out) == server.ask(state, question).json


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"a": 1}, "b": {"c": 2}', "the file is not valid JSON: JSON is malformed: trailing characters (byte 9)"),
        ('{"a": 1', "the file is not valid JSON: Input data was truncated"),
        ('{"a": x}', "(byte 6)"),
        ("", "the file is empty"),
        ("[" * 100_000, "the file is nested too deeply"),
        ('{"a": 1, "a": 2}', 'duplicate key "a" in one object'),
    ],
)
def test_a_state_that_is_no_json(decided: Run, tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(content)
    done = decided("ask", f"@{path}", *ANGRY)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"decided: {path}: ")
    assert done.err.endswith(f"{said}\n")


def test_a_state_is_any_json(decided: Run, tmp_path: Path, server: Server) -> None:
    path = tmp_path / "state.json"
    for state in ("text", 3, None, [1, {"a": None}]):
        path.write_text(f" {json.dumps(state)} \n")
        done = decided("ask", f"@{path}", *ANGRY, "--json")
        assert json.loads(done.out) == server.ask(state, {ANGRY[1]: AS_REQUESTED[ANGRY[1]]}).json


def test_the_state_may_come_last_after_a_noul(decided: Run) -> None:
    assert decided("ask", *ANGRY, "Where is it?", "--json").code == 0


def test_a_table_for_people(decided: Run, expected: Any) -> None:
    done = decided("ask", "Where is it?", *TEAM, *URGENT, *ANGRY)
    blocks = done.out.split("\n\n")
    team, urgency, angry = expected["answers"].values()
    assert blocks[0].startswith(f"Which team?  {team['choice']}  (confidence {team['confidence']:.2f})\n")
    assert blocks[0].splitlines()[1].split()[0] == team["choice"]  # the likeliest stands first
    assert f"(expected level {urgency['score']:.2f})" in blocks[1]
    assert [line.split()[0] for line in blocks[1].splitlines()[1:]] == ["0", "1", "2"]  # levels keep their order
    assert blocks[2].startswith(f"Is the customer angry?  {'yes' if angry['noul'] >= 0.5 else 'no'}")
    assert f"{angry['noul']:.1%}" in blocks[2]
    assert blocks[3].startswith(f"fake, {expected['usage']['input_tokens']} tokens, ")
    assert "█" in done.out


def test_what_was_cut_is_said(decided: Run) -> None:
    done = decided("ask", "word " * 1500, *ANGRY)
    assert "cut)" in done.out
    assert "warning: question" in done.out


def test_bars_are_as_long_as_their_share() -> None:
    assert [terminal.bar(share, plain=True) for share in (0, 0.5, 1)] == ["", "#" * 12, "#" * 24]
    assert [terminal.bar(share) for share in (0, 1 / 192, 0.5, 1)] == ["", "▏", "█" * 12, "█" * 24]
    long = ChoiceAnswer("x" * 99, {"x" * 99: 0.75, "y": 0.25}, 0.5)
    lines = list(terminal.lines(SingleResponse("m", {"q": long}, Usage(1, 0)), plain=True))
    assert all(len(line) < 100 and line.isascii() for line in lines)


def test_data_cannot_command_the_terminal(decided: Run) -> None:
    done = decided("ask", "x", "--choice", "Which\x1b[2J?", "\x1b[31mred", "blue\x9b1m")
    assert [sign for sign in done.out if not sign.isprintable() and sign != "\n"] == []
    assert all(shown in done.out for shown in ("Which\\x1b[2J?", "\\x1b[31mred", "blue\\x9b1m"))


def test_a_running_server_is_asked_in_place_of_the_model(
    decided: Run, server: Server, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_MODEL", "none")
    done = decided("ask", "Where is it?", *TEAM, *URGENT, *ANGRY, "--json", "--server", server.url)
    got = json.loads(done.out)
    assert got.pop("request_id")
    assert got == expected


def test_the_key_of_a_server(decided: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(env={"SERVICE_API_KEY": "one-key"}) as keyed:
        ask = ("ask", "x", *ANGRY, "--server", keyed.url)
        for key in ((), ("--api-key", "another-key")):
            refused = decided(*ask, *key)
            assert refused.code == 3
            assert refused.err.endswith(": put the key in SERVICE_API_KEY, or give --api-key\n")
        assert decided(*ask, "--api-key", "one-key").code == 0
        monkeypatch.setenv("SERVICE_API_KEY", "one-key")
        assert decided(*ask).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["x"], 2, "nothing to ask"),
        (["x", *ANGRY, "--questions", "q.yaml"], 2, "--questions and --choice, --score or --noul cannot be combined"),
        (["x", "--questions", "no-such-file.yaml"], 2, "no-such-file.yaml cannot be read"),
        (["@no-such-file", *ANGRY], 2, "no-such-file cannot be read"),
        (["x", "--choice", "Which?"], 2, "name the options after the question"),
        (["x", "--choice", "Which?", "a", "a=b"], 2, "duplicate option"),
        (["x", *ANGRY, *ANGRY], 2, "duplicate question"),
        (["x", "--noul", ""], 2, "a noul needs instructions"),
        (["x", *ANGRY, "--model", "nothing"], 3, "unknown kind"),
        (["x", *ANGRY, "--server", "http://127.0.0.1:9", "--log-level", "loud"], 2, "--log-level"),
        (["x", *ANGRY, "--server", "no address"], 2, f"{ADDRESS}'no address'\n"),
        (["x", *ANGRY, "--server", "127.0.0.1:8000"], 2, f"{ADDRESS}'127.0.0.1:8000'\n"),
        (["x", *ANGRY, "--server", "http://x..y"], 2, f"{ADDRESS}'http://x..y'\n"),
        (["x", *ANGRY, *SERVER, "--model", "embedded:small"], 2, "--server and --model cannot be combined"),
        (["x", *ANGRY, *SERVER, "--temperature", "2", "--dtype", "int8"], 2, "--server and --dtype, --temperature "),
        (["x", *ANGRY, *SERVER, "--log-level", "error"], 3, "unreachable"),
        (["FAIL", *ANGRY], 1, "inference failed: the model failed while running"),
        (["x" * 200_001, *ANGRY], 1, "state is too long"),
        (["\udcff", *ANGRY], 2, "the state is not UTF-8 text"),
        (["\udcff", *ANGRY, "--server", "http://127.0.0.1:9"], 2, "the state is not UTF-8 text"),
        (["x", "--noul", "A\udcff?"], 2, "questions: 'A\\udcff?' is not UTF-8 text"),
        (["x", "--choice", "Which?", "a", "b=\udcff"], 2, "questions: '\\udcff' is not UTF-8 text"),
    ],
)
def test_mistakes_have_a_message_and_a_code(decided: Run, arguments: list[str], code: int, said: str) -> None:
    done = decided("ask", *arguments)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("decided: ")
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("- a list", "must map names to questions"),
        ("a: [", "not valid YAML"),
        ("a:\n\ttype: noul", "cannot start any token; indent with spaces, not tabs"),
        ("a: {type: noul, instructions: x}\na: {type: noul, instructions: y}", "line 1: duplicate key"),
        ("a: {type: box}", 'question "a"'),
        ("a:\n  type: noul\n  instruction: x", 'line 1: question "a": unknown field "instruction": did you mean'),
        ("b: {type: noul, instructions: x}\na: {type: choice}", 'line 2: question "a": a choice needs options: '),
        ("a: {type: choice, criteria: [x, x]}", "duplicate option"),
        ("a: {type: score, criteria: {x: y}}", "a score needs levels"),
        ("a: yes or no?", "needs a type, instructions and criteria"),
        ("", "must map names to questions"),
        ("\x00", "not valid YAML"),
        ('a: {type: noul, instructions: "\\ud800"}', "'\\ud800' is not UTF-8 text"),
        ("a: !!python/object:os.system {}", "not valid YAML"),
    ],
)
def test_a_file_of_questions_that_is_none(decided: Run, tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "q.yaml"
    path.write_text(content)
    done = decided("ask", "x", "--questions", path)
    assert done.code == 2
    assert said in done.err


def test_a_model_that_cannot_take_so_many_options_says_so(decided: Run, tmp_path: Path) -> None:
    (tmp_path / "alive").touch()
    done = decided(
        "ask", "x", "--choice", "Which?", *map(str, range(27)), "--model", f"fake-remote:{tmp_path / 'alive'}"
    )
    assert (done.code, "at most 26" in done.err) == (2, True)


def test_a_server_that_cannot_take_so_many_options_says_so(decided: Run) -> None:
    models = Scripted(body={"models": [{"name": "m", "description": "", "release_date": "", "kind": ""}]})
    refusal = Scripted(422, {"detail": 'question "Which?": too many options: 27, at most 26'})
    with scripted_server(lambda asked: models if asked.path == "/v1/models" else refusal) as (url, _):
        done = decided("ask", "x", "--choice", "Which?", *map(str, range(27)), "--server", url)
    assert (done.code, "at most 26" in done.err) == (2, True)


def test_help_teaches_by_example(decided: Run) -> None:
    done = decided("ask", "--help")
    assert done.code == 0
    assert "try it:" in done.out


def test_help_offers_nothing_that_only_a_server_does(decided: Run) -> None:
    offered = decided("ask", "--help").out
    assert "--threads" in offered
    for only_to_serve in ("--port", "--max-connections", "--worker-grace-s", "--audit-log", "--outcomes", "--shadow"):
        assert only_to_serve in decided("serve", "--help").out
        assert only_to_serve not in offered
