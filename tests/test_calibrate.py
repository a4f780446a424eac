"""`decided calibrate`, the real command in a process of its own, and the server with what it wrote."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from decided.cli import main
from decided.contract.temperature import fingerprint
from decided.contract.types import Question
from decided.engines.api import Verdict
from decided.errors import ModelError, Unavailable
from decided.evaluation import labelled
from decided.evaluation.calibrate import FittingSurvey
from decided.evaluation.labelled import BadLine, Line, read_row
from decided.progress import Progress, bar, clock_time
from tests.support.fake_model import FakeModel
from tests.support.server import ROOT, running_server

CHOICE: dict[str, Any] = {"type": "choice", "instructions": "Which?", "criteria": {"a": "one", "b": None, "c": "three"}}
SCORE: dict[str, Any] = {"type": "score", "instructions": "How much?", "criteria": ["none", "some", "all"]}
NOUL: dict[str, Any] = {"type": "noul", "instructions": "Is it so?"}


def fake_weights(state: str, question: dict[str, Any], keys: list[str]) -> list[float]:
    """What tests/support/fake_model.py gives."""
    return [1 + zlib.crc32(f"{state}{question['instructions']}{key}".encode()) % 1000 for key in keys]


def labels(number: int = 60) -> list[dict[str, Any]]:
    """Nouls that the fake model gets right four times in five, and choices that it gets wrong as often as not."""
    made: list[dict[str, Any]] = []
    for index in range(number):
        state = f"state {index}"
        yes, no = fake_weights(state, NOUL, ["true", "false"])
        made.append({"state": state, "question": NOUL, "answer": (yes > no) == (index % 5 != 0), "note": "ignored"})
        weights = fake_weights(state, CHOICE, ["a", "b", "c"])
        best, worst = weights.index(max(weights)), weights.index(min(weights))
        answers = {"which": "abc"[best if index % 2 else worst], "much": index % 3}
        made.append({"state": {"text": state}, "questions": {"which": CHOICE, "much": SCORE}, "answers": answers})
    return made


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def calibrate(*arguments: object, stdin: bytes = b"", **environment: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
    command = [sys.executable, "-m", "tests.support.fake_server", "calibrate", *map(str, arguments)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=kept | {"SERVICE_MODEL": "fake"} | environment,
        input=stdin,
        capture_output=True,
        timeout=60,
    )
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


# --- the whole way ---


def test_from_labels_to_served_probabilities(tmp_path: Path) -> None:
    out, plot = tmp_path / "calibration.json", tmp_path / "reliability.svg"
    done = calibrate(written(tmp_path / "labels.jsonl", labels()), "--out", out, "--plot", plot)
    assert (done.returncode, done.stderr) == (0, "")
    assert "fake (fake): 120 lines\n" in done.stdout
    assert f"decided serve --temperature {out}" in done.stdout
    stored = json.loads(out.read_text())
    degrees = stored["temperatures"]
    assert stored["model"] == "fake"
    assert list(degrees) == ["choice", "score", "noul"]
    assert degrees["choice"] != 1
    for kind, fit in stored["fits"].items():
        assert fit["rows"] == 60
        assert fit["after"]["log_loss"] <= fit["before"]["log_loss"]
        assert f"\n{kind:6}     60 {degrees[kind]:5.2f} " in done.stdout
    assert stored["fits"]["noul"]["before"]["accuracy"] == pytest.approx(0.8)
    drawn = ElementTree.fromstring(plot.read_text())
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert "T = " in plot.read_text()

    with running_server("--temperature", str(out)) as server:
        (model,) = server.get("/v1/models").json["models"]
        name = fingerprint(out.read_bytes())
        named = ", ".join(f"{kind} T={degrees[kind]:.2f}" for kind in degrees if degrees[kind] != 1)
        assert model["description"] == f"For tests only. Calibrated: {named} (calibration {name})."
        asked = {"which": CHOICE, "much": SCORE, "so": NOUL}
        single = server.ask("a state", asked).json["answers"]
        assert server.batch(["a state"], asked).json["results"][0]["answers"] == single
        for label, kind, keys in (
            ("which", "choice", "abc"),
            ("much", "score", "012"),
            ("so", "noul", ("true", "false")),
        ):
            powers = [weight ** (1 / degrees[kind]) for weight in fake_weights("a state", asked[label], list(keys))]
            expected = dict(zip(keys, (power / sum(powers) for power in powers), strict=True))
            assert single[label]["probabilities"] == pytest.approx(expected)
        assert single["so"]["noul"] == single["so"]["probabilities"]["true"]
        cut = server.ask("word " * 2000, asked).json
        assert cut["warnings"]
        assert cut["answers"]["so"]["truncated"]
        assert "was fitted for" not in server.log()


def test_without_temperatures_nothing_is_said_or_changed() -> None:
    with running_server("--temperature", "1") as server:
        (model,) = server.get("/v1/models").json["models"]
        assert model["description"] == "For tests only."
        yes, no = fake_weights("x", NOUL, ["true", "false"])
        assert server.ask("x", {"q": NOUL}).json["answers"]["q"]["noul"] == yes / (yes + no)


def test_a_file_for_another_model_is_used_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text('{"model": "other", "temperatures": {"noul": 2}}')
    with running_server(env={"SERVICE_TEMPERATURE": str(path)}) as server:
        assert "WARNING --temperature was fitted for the model other, not for fake" in server.log()
        assert "noul T=2.00" in server.get("/v1/models").json["models"][0]["description"]


def test_a_file_that_is_none_ends_the_start_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "calibration.json"
    path.write_text("{}")
    assert main(["serve", "--temperature", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("decided: --temperature must be a number from 0.05 to 20, pairs such as choice=1.2")
    assert str(path) in said


# --- what comes in ---


def test_standard_input_and_a_limit() -> None:
    content = "\n\n".join(json.dumps(row) for row in labels()).encode()
    done = calibrate("-", "--limit", 50, stdin=content)
    assert (done.returncode, done.stderr) == (0, "")
    assert "fake (fake): 50 lines\n" in done.stdout
    assert "kept at 1" in done.stdout  # so few rows cannot show that another temperature is better


def test_what_is_served_does_not_matter_to_the_fit(tmp_path: Path) -> None:
    """Not even that the file that is to be served is not there yet."""
    path = written(tmp_path / "labels.jsonl", labels())
    plain = calibrate(path)
    assert plain.returncode == 0
    assert calibrate(path, SERVICE_TEMPERATURE="3").stdout == plain.stdout
    assert calibrate(path, SERVICE_TEMPERATURE="not-yet.json").stdout == plain.stdout


def test_bad_lines_are_named_and_skipped(tmp_path: Path) -> None:
    path = written(tmp_path / "labels.jsonl", labels())
    good = path.read_text()
    failing = json.dumps({"state": "FAIL", "question": NOUL, "answer": True})
    nan = json.dumps({"state": "NAN", "question": NOUL, "answer": True})
    path.write_text(f"oops\n{good}{failing}\n{nan}\n")
    done = calibrate(path)
    assert done.returncode == 0
    assert "fake (fake): 120 lines, 3 skipped" in done.stdout
    said = done.stderr.splitlines()
    assert any(line.startswith("skipped line 1: the line is not valid JSON") for line in said)
    assert any(line.startswith("skipped line 122: inference failed: the model failed while running") for line in said)
    assert any(line.startswith("skipped line 123: inference failed: the model gave no dist") for line in said)
    assert "Traceback" not in done.stderr


def test_few_rows_of_a_type_are_said(tmp_path: Path) -> None:
    done = calibrate(written(tmp_path / "labels.jsonl", labels(10)))
    assert done.returncode == 0
    assert "noul: kept at 1: fewer than 20 rows" in done.stdout


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"", 2, "standard input is empty"),
        (b"\n \n", 2, "standard input is empty"),
        (b"nothing\n" * 30, 2, "standard input: none of the lines can be used"),
        (json.dumps({"state": "FAIL", "question": NOUL, "answer": True}).encode(), 3, "failed on 1 of 1 lines"),
    ],
)
def test_input_that_cannot_be_used(content: bytes, code: int, said: str) -> None:
    done = calibrate("-", stdin=content)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-1].startswith("decided: ")
    assert said in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) <= 22
    assert "Traceback" not in done.stderr


def test_a_model_that_is_not_there() -> None:
    content = json.dumps({"state": "s", "question": NOUL, "answer": True}).encode()
    done = calibrate("-", "--model", "openai:x", "--remote-url", "http://127.0.0.1:9", stdin=content)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "decided: the remote engine cannot be reached"


def test_a_model_that_goes_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For a moment, which costs nothing; or for good, which ends it."""
    monkeypatch.setattr("decided.evaluation.asking._FIRST_PAUSE_S", 0.0)
    lines = labelled.lines(written(tmp_path / "labels.jsonl", labels(5)).read_bytes())
    for absences, answered in ((2, 10), (100, 0)):
        engine = Flighty(absences)
        survey = FittingSurvey(cast(Any, engine), Progress(10, "lines", io.StringIO(), float))
        if answered:
            asyncio.run(survey.take(lines, 1))
        else:
            with pytest.raises(ModelError, match="gave up at line 1: away"):
                asyncio.run(survey.take(lines, 1))
        assert (survey.answered, survey.failed) == (answered, 0)


class Flighty:
    """An engine that is away for its first calls."""

    card = FakeModel.card

    def __init__(self, absences: int) -> None:
        self._absences = absences

    async def decide(self, states: Sequence[str], questions: Sequence[Question]) -> list[Verdict]:
        self._absences -= 1
        if self._absences >= 0:
            raise Unavailable("away")
        return [Verdict([[1.0] * len(question.keys()) for question in questions], 1)]


def test_an_interruption_is_no_crash(tmp_path: Path) -> None:
    rows = [{"state": f"SLEEP=0.2 {number}", "question": NOUL, "answer": True} for number in range(100)]
    path = written(tmp_path / "labels.jsonl", [{}, *rows])
    command = [sys.executable, "-m", "tests.support.fake_server", "calibrate", str(path), "--model", "fake"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"skipped line 1")
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=20)
    assert (process.returncode, out, error) == (130, b"", b"")


def test_mistakes_are_found_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(written(tmp_path / "labels.jsonl", labels(1)))
    missing = str(tmp_path / "missing" / "file")
    for arguments, said in (
        ([missing], "cannot be read: No such file"),
        ([str(tmp_path)], "cannot be read: Is a directory"),
        ([path, "--out", missing], f"--out {missing}: must be a file"),
        ([path, "--plot", str(tmp_path)], f"--plot {tmp_path}: must be a file"),
        ([path, "--out", "/proc/file"], "/proc/file cannot be written: No such file"),
        ([path, "--plot", "/proc/file"], "/proc/file cannot be written: No such file"),
    ):
        assert main(["calibrate", *arguments, "--model", "fake:broken"]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["calibrate", path, "--limit", "0"])
    assert stopped.value.code == 2


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "the field 'state' is missing"),
        ({"state": 1}, "the field 'questions' is missing"),
        ({"state": 1, "question": NOUL}, "the field 'answer' is missing"),
        ({"state": 1, "question": NOUL, "answer": "true"}, "true or false"),
        ({"state": 1, "question": NOUL, "answer": 1}, "true or false"),
        ({"state": 1, "question": CHOICE, "answer": "d"}, 'one of the options, not "d"'),
        ({"state": 1, "question": CHOICE, "answer": 0}, "one of the options"),
        ({"state": 1, "question": SCORE, "answer": 3}, "a whole number from 0 to 2"),
        ({"state": 1, "question": SCORE, "answer": -1}, "a whole number from 0 to 2"),
        ({"state": 1, "question": SCORE, "answer": True}, "a whole number from 0 to 2"),
        ({"state": 1, "question": SCORE, "answer": 1.0}, "a whole number from 0 to 2"),
        ({"state": 1, "question": {"type": "guess"}, "answer": 1}, "questions of type"),
        ({"state": 1, "question": NOUL, "answer": True, "questions": {}}, "not both"),
        ({"state": 1, "questions": {"q": NOUL}}, "the field 'answers'"),
        ({"state": 1, "questions": {"q": NOUL}, "answers": {}}, 'question "q": no answer'),
        ({"state": 1, "questions": {"q": NOUL}, "answers": {"q": True, "r": 1}}, 'answer for an unknown question: "r"'),
        ({"state": 1, "question": {**CHOICE, "criteria": dict.fromkeys("abcde")}, "answer": "a"}, "at most 4"),
    ],
)
def test_rows_that_are_refused(row: dict[str, Any], said: str) -> None:
    with pytest.raises(BadLine, match=r"^line 7: ") as refused:
        read_row(Line(7, json.dumps(row).encode()), 4)
    assert said in str(refused.value)


def test_the_right_option_of_each_type() -> None:
    row = {"state": "s", "questions": {"c": CHOICE, "s": SCORE, "y": NOUL, "n": NOUL}}
    row["answers"] = {"n": False, "y": True, "s": 2, "c": "b"}
    (line,) = labelled.lines(b"\r\n" + json.dumps(row).encode() + b"\r\n")
    found = read_row(line, 256)
    assert (found.line, found.state, list(found.right)) == (2, "s", [1, 2, 0, 1])


# --- progress ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_on_a_terminal_only() -> None:
    now = iter(range(0, 100, 2))
    for stream, drawn in ((Terminal(), True), (io.StringIO(), False)):
        progress = Progress(2, "lines", stream, lambda: float(next(now)))
        progress.advance()
        progress.say("a message")
        progress.advance()
        progress.close()
        assert ("[############............] 1/2 lines  0.5/s  0:02 left" in stream.getvalue()) is drawn
        assert ("\x1b" in stream.getvalue()) is drawn
        assert "a message\n" in stream.getvalue()


def test_progress_in_words() -> None:
    assert bar(0, 10, 0.0, "rows") == f"[{'.' * 24}] 0/10 rows  0.0/s  ? left"
    assert bar(10, 10, 5.0, "rows") == f"[{'#' * 24}] 10/10 rows  2.0/s  0:00 left"
    assert [clock_time(seconds) for seconds in (0, 61, 3723)] == ["0:00", "1:01", "1:02:03"]
