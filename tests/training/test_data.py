"""Rows on their way into the archive."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.support.server import ROOT
from training.archive import HELD_OUT, KEPT, TRAIN, Archive, joined
from training.data import VARIANTS, asked, build, place, read_rows, split_of, training_rows
from training.weights import load, mix, put_together, save, take_apart

NOUL = {"type": "noul", "instructions": "is it so"}


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    words = "yes or no choose rate is it so a b c of 1 2 3 the text says this that".split()  # noqa: SIM905
    model = models.WordLevel({word: i for i, word in enumerate(["[UNK]", *words])}, "[UNK]")
    made = Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def row(task: str, state: str, answer: bool = True) -> dict[str, Any]:
    return {"task": task, "state": state, "question": NOUL, "answer": answer}


def texts(archive: Archive, number: int) -> list[list[int]]:
    links = archive.links[archive.first[number] :][: 2 + archive.options[number]]
    return [archive.tokens[archive.starts[i] : archive.starts[i] + archive.lengths[i]].tolist() for i in links]


def test_questions_of_one_state_on_one_line_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "desk.jsonl"
    line = {"state": "the text", "questions": [{**NOUL, "answer": True}, {**NOUL, "answer": False}]}
    path.write_text(json.dumps(line) + "\n\n")
    assert list(read_rows(path)) == [row("everyday_desk/noul", "the text", answer) for answer in (True, False)]


def test_versions_of_a_state_have_answers_of_their_own_and_are_kept_together(tmp_path: Path) -> None:
    path = tmp_path / "desk.jsonl"
    lines = [
        {"states": [f"{i} is open", f"{i} is shut"], "questions": [{**NOUL, "answers": [True, False]}]}
        for i in range(200)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    rows = list(read_rows(path))
    assert [(r["state"], r["answer"]) for r in rows[:2]] == [("0 is open", True), ("0 is shut", False)]
    splits = [split_of(r) for r in rows]
    assert splits[::2] == splits[1::2]
    assert set(splits) == {TRAIN, KEPT}


def test_an_answer_for_each_version_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "desk.jsonl"
    path.write_text(json.dumps({"states": ["one", "two"], "questions": [{**NOUL, "answers": [True]}]}))
    with pytest.raises(ValueError, match="shorter"):
        list(read_rows(path))


def test_every_hand_written_answer_is_an_option() -> None:
    for path in (ROOT / "training" / "everyday").glob("*.jsonl"):
        for found in read_rows(path):
            assert place(found) is not None, (path.name, found)
            asked(found["question"])  # raises where it is no question


def test_some_states_of_hand_written_tasks_and_some_whole_tasks_are_kept() -> None:
    splits = [split_of(row("everyday_desk/noul", f"state {i}")) for i in range(2000)]
    assert set(splits) == {TRAIN, KEPT}
    assert 60 < splits.count(KEPT) < 140
    splits = [split_of(row(f"task {i}", "one")) for i in range(2000)]
    assert set(splits) == {TRAIN, HELD_OUT}


def test_only_trained_hand_written_rows_have_variants(tmp_path: Path) -> None:
    path = tmp_path / "desk.jsonl"
    lines = [{"state": f"state {i}", "questions": [{**NOUL, "answer": True}]} for i in range(200)]
    path.write_text("\n".join(map(json.dumps, lines)))
    found = list(training_rows(path))
    kept = [made["state"] for made, split in found if split == KEPT]
    assert len(kept) == len(set(kept)) > 0
    assert len(found) == len(kept) + VARIANTS * (200 - len(kept))


def test_a_text_is_kept_once(tokenizer: Path) -> None:
    found = build(tokenizer, [(row("t", "this text"), TRAIN), (row("t", "this text", False), TRAIN)])
    assert len(found.lengths) == 4  # the state, the instructions, no, yes
    assert found.gold.tolist() == [1, 0]


def test_an_archive_comes_back_as_it_was(tokenizer: Path, tmp_path: Path) -> None:
    first = build(tokenizer, [(row("t", "this text"), TRAIN), (row("u", "that"), HELD_OUT)])
    first.save(tmp_path / "a.npz")
    again = Archive.load(tmp_path / "a.npz")
    for name in ("tokens", "lengths", "links", "first", "options", "gold", "kind", "task", "split"):
        assert np.array_equal(getattr(first, name), getattr(again, name)), name
    assert again.tasks == ["t", "u"]


def test_tasks_that_come_again_are_replaced(tokenizer: Path) -> None:
    old = build(tokenizer, [(row("t", "this text"), TRAIN), (row("u", "that text says"), TRAIN)])
    new = build(tokenizer, [(row("t", "a b c"), TRAIN), (row("t", "c b a"), TRAIN)])
    both = joined(old, new)
    assert [both.tasks[t] for t in both.task] == ["u", "t", "t"]
    assert [texts(both, i) for i in range(3)] == [texts(old, 1), texts(new, 0), texts(new, 1)]
    assert len(both.lengths) == 9


def test_weights_in_parts_come_back_nearly_as_they_were(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    start = {"word": rng.normal(size=(300, 64)), "up": rng.normal(size=(300, 64)), "bias": rng.normal(size=7)}
    start = {name: array.astype(np.float32) for name, array in start.items()}
    change = rng.normal(size=(300, 64)).astype(np.float32) / 10
    change[3] = 0
    arrays = start | {"up": start["up"] + change, "bias": start["bias"] + 1}
    take_apart("gte-small", arrays, start, tmp_path / "parts", most=5000)
    name, found = put_together(tmp_path / "parts", start)
    assert name == "gte-small"
    assert list(found) == list(arrays)
    assert np.array_equal(found["bias"], arrays["bias"])
    assert np.array_equal(found["word"], start["word"])
    assert np.array_equal(found["up"][3], start["up"][3])
    assert np.abs(found["up"] - arrays["up"]).max() < 0.02
    assert len(list((tmp_path / "parts").glob("part.*"))) == 3  # 13 KB: five bits of each changed value
    next((tmp_path / "parts").glob("part.*")).unlink()
    with pytest.raises(SystemExit, match="missing"):
        put_together(tmp_path / "parts", start)


def test_saved_weights_know_their_architecture(tmp_path: Path) -> None:
    save(tmp_path / "w.npz", "mpnet-base", {"bias": np.ones(3)})
    architecture, arrays = load(tmp_path / "w.npz")
    assert architecture.relative
    assert arrays["bias"].tolist() == [1, 1, 1]


def test_the_mean_of_two_runs_is_of_the_same_arrays() -> None:
    first, second = ({"bias": np.full(2, value, np.float32)} for value in (1, 3))
    assert mix(first, second, 0.25)["bias"].tolist() == [1.5, 1.5]
    assert mix(first, second, 1, ["layers.0."])["bias"].tolist() == [1, 1]
    assert mix(first, second, 1, ["layers.0.", "bi"])["bias"].tolist() == [3, 3]
    with pytest.raises(SystemExit, match="extra"):
        mix(first, second | {"extra": np.ones(1, np.float32)}, 0.5)


def test_another_seed_makes_other_variants_of_the_same_rows() -> None:
    path = next((ROOT / "training" / "everyday").glob("*.jsonl"))
    first, again, other = ([row for row, _ in training_rows(path, 5, seed)] for seed in (1, 1, 2))
    assert first == again != other
    assert [row for row in first if row in other], "the rows as they were written"
