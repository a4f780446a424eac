"""`decided teach`, the real command in a process of its own, and the server with what it wrote."""

import csv
import json
import os
import random
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from decided.contract.types import Choice, Noul, Question, Score
from decided.evaluation.labels import read_labels
from tests.profiles.shelf import TOPIC, written
from tests.support.server import ROOT, running_server

URGENT = {"type": "noul", "instructions": "Is it urgent?"}
LEVEL = {"type": "score", "instructions": "How bad?", "criteria": ["fine", "bad"]}


def teach(*arguments: object, stdin: str = "", model: str | None = "fake") -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
    command = [sys.executable, "-m", "tests.support.fake_server", "teach", *map(str, arguments)]
    more = ["--model", model] if model is not None else []
    return subprocess.run(
        [*command, *more], cwd=ROOT, env=kept, input=stdin, capture_output=True, text=True, timeout=900
    )


def labels(number: int = 40) -> list[dict[str, str]]:
    """The topic is in the features of the fake model. What is urgent it knows as well as can be: a yes is as frequent
    as it says."""
    chance = random.Random(7)
    made = []
    for row in range(number):
        text = f"{'money' if row % 2 else 'box'} {row}"
        yes, no = (1 + zlib.crc32(f"{text}{URGENT['instructions']}{key}".encode()) % 1000 for key in ("true", "false"))
        urgent = "yes" if chance.random() < yes / (yes + no) else "no"
        made.append({"text": text, "topic": "bill" if row % 2 else "parcel", "urgent": urgent})
    return made


def as_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"topic": TOPIC, "urgent": URGENT}))
    return path


def test_from_labels_to_better_answers(tmp_path: Path, questions: Path) -> None:
    out = tmp_path / "profiles"
    done = teach(as_csv(tmp_path / "labels.csv", labels()), "--questions", questions, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "kept: a head on its features" in done.stdout
    assert "kept: nothing; no recipe is better than the model as it is" in done.stdout
    assert f"to use:  decided serve --profiles {out}" in done.stdout
    (path,) = out.iterdir()
    assert path.name.startswith("topic-")
    with running_server("--profiles", str(out)) as server:
        asked = {"q": TOPIC, "r": URGENT}
        for state, right in (("money 88", "bill"), ("box 88", "parcel"), ("money 99", "bill")):
            answers = server.ask(state, asked).json["answers"]
            assert answers["q"]["choice"] == right
            assert answers["q"]["profile"].startswith("topic@")
            assert answers["q"]["decided"] is True
            assert "profile" not in answers["r"]


def test_lines_of_labelled_questions_and_standard_input(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"state": row["text"], "question": TOPIC, "answer": row["topic"]}) + "\n" for row in labels()
    )
    done = teach("-", "--out", tmp_path / "p", stdin=lines + '{"state": "x"}\n')
    assert done.returncode == 0, done.stderr
    assert "skipped line 41:" in done.stderr
    assert "question (choice), fake: 40 labels" in done.stdout
    assert len(list((tmp_path / "p").iterdir())) == 1


def test_parquet(tmp_path: Path, questions: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(labels()), tmp_path / "labels.parquet")
    done = teach(tmp_path / "labels.parquet", "--questions", questions)
    assert done.returncode == 0, done.stderr
    assert "kept: a head on its features" in done.stdout
    assert "nothing is written: name a folder with --out" in done.stdout


def test_behind_a_server_only_bias_and_temperature(tmp_path: Path, questions: Path) -> None:
    path = as_csv(tmp_path / "labels.csv", labels())
    with running_server() as server:
        done = teach(path, "--questions", questions, "--server", server.url, model=None)
    assert done.returncode == 0, done.stderr
    assert "bias and temperature" in done.stdout
    assert "a head" not in done.stdout
    assert "behind --server no head can be learnt" in done.stdout
    with running_server("--profiles", str(written(tmp_path / "p").parent)) as server:
        done = teach(path, "--questions", questions, "--server", server.url, model=None)
    assert done.returncode == 2
    assert "Ask a server without --profiles" in done.stderr


def test_a_server_with_a_temperature_is_no_source(tmp_path: Path, questions: Path) -> None:
    path = as_csv(tmp_path / "labels.csv", labels())
    with running_server("--temperature", "2") as server:
        done = teach(path, "--questions", questions, "--server", server.url, model=None)
    assert done.returncode == 2
    assert "--temperature" in done.stderr


def test_what_is_odd_in_the_labels_is_told(tmp_path: Path, questions: Path) -> None:
    rows = labels()
    rows += [dict(rows[0]), {**rows[1], "topic": "parcel"}, {"text": " ", "topic": "bill", "urgent": ""}]
    rows += [{"text": "y", "topic": "fish", "urgent": ""}, {"text": "FAIL money", "topic": "bill", "urgent": ""}]
    done = teach(as_csv(tmp_path / "labels.csv", rows), "--questions", questions)
    assert done.returncode == 0, done.stderr
    assert "the same text with the same answer again, counted once: 1" in done.stdout
    assert "texts with several answers, of which one at most can be right: 1" in done.stdout
    assert "labels of empty texts, left out: 1" in done.stdout
    assert 'skipped row 44: question "topic": "fish" is not one of the options' in done.stderr
    assert "skipped row 45: inference failed: the model failed while running" in done.stderr


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (labels(4), "too few labels to learn from: 4"),
        ([{"text": f"t{row}", "topic": "bill", "urgent": ""} for row in range(9)], "all 9 labels are the same answer"),
    ],
)
def test_nothing_to_learn_from(tmp_path: Path, questions: Path, rows: list[dict[str, str]], said: str) -> None:
    done = teach(as_csv(tmp_path / "labels.csv", rows), "--questions", questions, "--out", tmp_path / "p")
    assert done.returncode == 0
    assert said in done.stdout
    assert "nothing to serve" in done.stdout
    assert not (tmp_path / "p").exists()


def test_a_threshold_that_was_asked_for_is_kept_for_the_bare_model(tmp_path: Path) -> None:
    asked = tmp_path / "q.json"
    asked.write_text(json.dumps({"urgent": URGENT}))
    path = as_csv(tmp_path / "labels.csv", labels(60))
    flags = (path, "--questions", asked, "--state-column", "text", "--out", tmp_path / "p", "--coverage", "0.9")
    done = teach(*flags)
    assert done.returncode == 0, done.stderr
    assert "kept: nothing" in done.stdout
    (profile,) = (json.loads(one.read_text()) for one in (tmp_path / "p").iterdir())
    assert profile["recipe"] == "as it is"
    with running_server("--profiles", str(tmp_path / "p")) as server, running_server() as plain:
        said, bare = (one.ask("some text", {"q": URGENT}).json["answers"]["q"] for one in (server, plain))
        assert said["probabilities"] == bare["probabilities"]
        assert said["set"]


@pytest.mark.parametrize(
    ("content", "flags", "said"),
    [
        ("", (), "is empty"),
        ("text,topic\nx,bill\n", (), "no column 'urgent'"),
        ("a,b,topic,urgent\nx,y,bill,yes\n", (), "Name it with --state-column: a, b"),
        ("text,topic,urgent\nx,fish,\n", (), "there is no label that can be used"),
        ("text,topic,urgent\nx,bill,\n", ("--out", "/dev/null"), "must be a folder"),
    ],
)
def test_input_that_cannot_be_used(tmp_path: Path, questions: Path, content: str, flags: Any, said: str) -> None:
    (tmp_path / "labels.csv").write_text(content)
    done = teach(tmp_path / "labels.csv", "--questions", questions, *flags)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_folder_that_cannot_be_written_is_found_out_before_the_model_is_asked(
    tmp_path: Path, questions: Path
) -> None:
    path = as_csv(tmp_path / "labels.csv", labels())
    for out, why in (("/proc/p/q", "No such file or directory"), (path / "p", "Not a directory")):
        done = teach(path, "--questions", questions, "--out", out, model="fake:broken")
        assert (done.returncode, done.stderr) == (2, f"decided: {out} cannot be written: {why}\n")
    done = teach(path, "--questions", questions, "--out", tmp_path / "p" / "q", model="fake:broken")
    assert (done.returncode, (tmp_path / "p").exists()) == (3, False)


def test_levels_and_outcomes_as_tables_write_them(tmp_path: Path) -> None:
    asked = tmp_path / "q.json"
    asked.write_text(json.dumps({"level": LEVEL, "urgent": URGENT}))
    cells = [("0", "TRUE"), ("1.0", "0.0"), ("bad", "1.0"), ("fine", "n")] * 3
    rows = [{"text": f"t{row}", "level": level, "urgent": urgent} for row, (level, urgent) in enumerate(cells)]
    done = teach(as_csv(tmp_path / "labels.csv", rows), "--questions", asked)
    assert (done.returncode, done.stderr) == (0, "")
    assert "level 0 6, level 1 6" in done.stdout
    assert "yes 6, no 6" in done.stdout


def test_a_row_with_a_label_that_is_none_is_left_out_whole(tmp_path: Path) -> None:
    """As a line of labelled questions is: what is said to be skipped must not be half used."""
    path = tmp_path / "labels.csv"
    path.write_text("text,late,bad\none,yes,maybe\ntwo,maybe,yes\nthree,no,\n")
    found = read_labels(str(path), None, {"late": Noul("Late?"), "bad": Noul("Bad?")}, (), None)
    assert found.problems == [
        'row 1: question "bad": "maybe" is neither yes nor no',
        'row 2: question "late": "maybe" is neither yes nor no',
    ]
    assert [one.rows for one in found.questions] == [[3], []]


@pytest.mark.parametrize(
    ("question", "cell", "near"),
    [
        (Choice({"delivery": None, "nobody": None}), "Delivery", '; did you mean "delivery"?'),
        (Choice({"delivery": None, "nobody": None}), "NOBODY", '; did you mean "nobody"?'),
        (Choice({"delivery": None, "nobody": None}), "nobdy", '; did you mean "nobody"?'),
        (Choice({"delivery": None, "nobody": None}), "fish", ""),
        (Score(["calm", "annoyed"]), "anoyed", '; did you mean "annoyed"?'),
        (Score(["calm", "annoyed"]), "7", ""),
    ],
)
def test_an_option_that_is_nearly_right(tmp_path: Path, question: Question, cell: str, near: str) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(f"text,q\none,{cell}\n")
    found = read_labels(str(path), None, {"q": question}, (), None)
    assert found.problems == [f'row 1: question "q": "{cell}" is not one of the options{near}']


def test_taught_again_under_another_name_it_takes_its_place(tmp_path: Path, questions: Path) -> None:
    out = tmp_path / "p"
    flags = ("--questions", questions, "--out", out)
    assert teach(as_csv(tmp_path / "labels.csv", labels()), *flags).returncode == 0
    (first,) = out.iterdir()
    questions.write_text(json.dumps({"subject": TOPIC}))
    renamed = [{"text": row["text"], "subject": row["topic"]} for row in labels()]
    done = teach(as_csv(tmp_path / "labels.csv", renamed), *flags)
    assert f"written: {first} (subject@" in done.stdout
    assert list(out.iterdir()) == [first]
    done = teach(as_csv(tmp_path / "few.csv", renamed[:4]), *flags)
    assert f"{first} is of an earlier run and stays: remove it" in done.stdout


def test_a_better_profile_is_not_replaced_without_a_word(tmp_path: Path) -> None:
    """It stays beside what as many labels taught, and gives way, by name, to what more of them did."""
    asked, out = tmp_path / "q.json", tmp_path / "p"
    asked.write_text(json.dumps({"topic": TOPIC}))
    rows = [{"text": row["text"], "topic": row["topic"]} for row in labels()]
    turned = [{**row, "topic": rows[number // 3]["topic"]} for number, row in enumerate(rows)]

    def taught(name: str, rows: list[dict[str, str]], *flags: object, model: str | None = "fake") -> str:
        flags = ("--questions", asked, "--out", out, "--coverage", "0.9", *flags)
        done = teach(as_csv(tmp_path / name, rows), *flags, model=model)
        assert done.returncode == 0, done.stderr
        return done.stdout

    taught("labels.csv", rows)
    (path,) = out.iterdir()
    first = path.read_bytes()
    with running_server() as server:
        said = taught("labels.csv", rows, "--server", server.url, model=None)
    assert f"not written: {path} is better and stays: right on 100.0% of 40 labels held back, the new one on " in said
    assert "remove it to have the new one" in said
    assert path.read_bytes() == first
    assert "not written" in taught("fewer.csv", turned[:30])
    assert path.read_bytes() == first
    more = [*turned, *({**row, "text": f"{row['text']} again"} for row in turned)]
    said = taught("more.csv", more)
    assert "a better one, learnt from fewer labels: right on 100.0% of 40 labels held back, the new one on " in said
    assert path.read_bytes() != first
    assert "a better one" not in taught("labels.csv", rows)
    assert path.read_bytes() == first


def test_labels_and_outcomes_cannot_be_combined() -> None:
    done = teach("labels.csv", "--outcomes", "outcomes.jsonl")
    assert (done.returncode, "LABELS and --outcomes cannot be combined" in done.stderr) == (2, True)
