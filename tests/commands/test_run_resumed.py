"""`decided run` killed at any moment: the same command resumes, nothing is lost and nothing finished is asked again."""

import fcntl
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from decided.errors import InputError
from decided.tables.resumable import Spool
from decided.tables.tables import Row, RowText
from tests.commands.conftest import Run, started
from tests.support.server import Server, running_server

QUESTIONS = {
    "q": {"type": "choice", "criteria": {"a": None, 'b "x",\n': None}},
    "n": {"type": "noul", "instructions": "So?"},
}
CONCURRENCY = 50


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(QUESTIONS))
    return path


@pytest.fixture(scope="module")
def counting() -> Iterator[Server]:
    with running_server() as running:
        yield running


def write_table(path: Path, rows: int) -> Path:
    table = ({"id": n, "state": f'row {n}, with "quotes"\nand lines'} for n in range(rows))
    path.write_text("".join(json.dumps(row) + "\n" for row in table))
    return path


def killed_again_and_again(
    tmp_path: Path, questions: Path, server: Server, rows: int, kills: int, suffix: str, seed: int
) -> None:
    """Kill the run as soon as its output has grown by a random amount; then let it end."""
    print("seed", seed)  # shown when the test fails
    chance = random.Random(seed)
    source = write_table(tmp_path / "in.jsonl", rows)
    out, undisturbed = tmp_path / f"out.{suffix}", tmp_path / f"undisturbed.{suffix}"
    command = ("run", source, "--questions", questions, "--server", server.url, "--concurrency", CONCURRENCY)

    process = started(*command, "--out", undisturbed)
    assert process.communicate(timeout=300)[1] == b""
    asked_before = server.metric("service_questions_total")

    size = undisturbed.stat().st_size if suffix != "parquet" else rows * 250
    part = out.with_name(out.name + ".part")
    for _ in range(kills):
        process = started(*command, "--out", out)
        begun = part.stat().st_size if part.exists() else 0
        enough = begun + chance.uniform(0, 1.6) * size / kills
        while process.poll() is None and not (part.exists() and part.stat().st_size >= enough):
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    process = started(*command, "--out", out)
    process.communicate(timeout=300)
    assert process.returncode in (0, 2)  # 2: the last of the runs that were to be killed was through before
    if suffix == "parquet":
        assert pyarrow.parquet.read_table(out).equals(pyarrow.parquet.read_table(undisturbed))
    else:
        assert out.read_bytes() == undisturbed.read_bytes()
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob("*.journal"))
    asked = (server.metric("service_questions_total") - asked_before) / len(QUESTIONS)
    assert rows <= asked <= rows + kills * CONCURRENCY


def test_killed_five_times_over_a_thousand_rows(tmp_path: Path, questions: Path, counting: Server) -> None:
    killed_again_and_again(tmp_path, questions, counting, 1000, 5, "csv", random.SystemRandom().randrange(2**32))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_killed_twenty_times_at_random_over_ten_thousand_rows(
    tmp_path: Path, questions: Path, counting: Server, suffix: str
) -> None:
    killed_again_and_again(tmp_path, questions, counting, 10_000, 20, suffix, random.SystemRandom().randrange(2**32))


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, questions: Path, decided: Run) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"state": "SLEEP=0.002 {n}"}}\n' for n in range(600)))
    out, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part"
    process = started("run", source, "--questions", questions, "--out", out)
    while not part.exists() or part.stat().st_size < 3000:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"rows saved: run the same command to resume" in said
    assert b"Traceback" not in said
    done = decided("run", source, "--questions", questions, "--out", out)
    assert done.code == 0
    assert "resuming after" in done.err
    assert len(out.read_text().splitlines()) == 600


# --- whose rows they are ---


def interrupted(tmp_path: Path, decided: Run, questions: Path) -> tuple[Path, Path, list[Any]]:
    """A run that ended in the middle, by an input that breaks off; and the command."""
    source = tmp_path / "in.csv"
    lines = ["id,state", *(f"{n},row {n}" for n in range(300))]
    source.write_text("\n".join([*lines[:150], '150,"open']) + "\n")
    out = tmp_path / "out.csv"
    command = ["run", source, "--questions", questions, "--out", out, "--concurrency", 10]
    done = decided(*command)
    assert done == (
        2,
        "",
        f"decided: {source} cannot be read: the quote that opens a cell in line 151 is never closed\n",
    )
    source.write_text("\n".join(lines) + "\n")
    return source, out, command


def test_a_run_goes_on_with_a_table_that_was_mended_further_down(tmp_path: Path, decided: Run, questions: Path) -> None:
    source, out, command = interrupted(tmp_path, decided, questions)
    done = decided(*command)
    assert (done.code, "resuming after 14" in done.err) == (0, True)
    assert decided("run", source, "--questions", questions, "--out", tmp_path / "whole.csv").code == 0
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_it_does_not_go_on_with_other_rows_questions_or_models(tmp_path: Path, decided: Run, questions: Path) -> None:
    source, out, command = interrupted(tmp_path, decided, questions)
    part = tmp_path / "out.csv.part"
    before = part.read_bytes()
    text = source.read_text()

    source.write_text(text.replace("row 5\n", "row five\n"))
    assert "are not those that were answered" in decided(*command).err
    source.write_text("id,state\n1,x\n")
    assert "fewer rows than" in decided(*command).err
    source.write_text(text.replace("id,state", "no,state"))
    assert "other columns" in decided(*command).err
    source.write_text(text)
    questions.write_text(json.dumps({**QUESTIONS, "n": {"type": "noul", "instructions": "Otherwise?"}}))
    assert "other questions" in decided(*command).err
    questions.write_text(json.dumps(QUESTIONS))
    assert "other state columns" in decided(*command, "--state-column", "id").err
    assert "other temperature" in decided(*command, "--temperature", "2").err
    assert "other model" in decided(*command, "--model", f"fake-remote:{source}").err
    assert part.read_bytes() == before
    assert decided(*command).code == 0
    assert not part.exists()
    assert out.exists()


def test_two_runs_do_not_write_one_file(tmp_path: Path, decided: Run, questions: Path) -> None:
    _, _, command = interrupted(tmp_path, decided, questions)
    with (tmp_path / "out.csv.journal").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "another run is writing" in decided(*command).err
    assert decided(*command).code == 0


# --- the file itself ---

ROWS = [(Row({"id": n, "text": f'a "b",\nc {n}'}), {"x": n / 3}) for n in range(20)]


def spooled(out: Path, kind: str, identity: str = "same") -> Spool:
    return Spool(out, {"it": identity}, RowText(kind, ["id", "text", "x"]))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_whatever_is_torn_off_the_end_the_rest_is_found_again(tmp_path: Path, kind: str) -> None:
    """Every length that a killed writer can leave behind, from the first byte to the last."""
    out, part = tmp_path / "out", tmp_path / "out.part"
    spool = spooled(out, kind)
    spool.add(ROWS[:2])
    spool.commit()
    safe = part.stat().st_size
    spool.add(ROWS[2:5])
    whole = part.read_bytes()
    journal = (tmp_path / "out.journal").read_bytes()
    spool.close()
    for size in range(safe, len(whole) + 1):
        part.write_bytes(whole[:size])
        (tmp_path / "out.journal").write_bytes(journal)
        again = spooled(out, kind)
        again.skip(iter(row for row, _ in ROWS))
        again.add(ROWS[again.rows : 5])
        again.close()
        assert part.read_bytes() == whole, size


def test_a_torn_journal_is_as_good_as_its_last_whole_line(tmp_path: Path) -> None:
    out, part, journal = tmp_path / "out", tmp_path / "out.part", tmp_path / "out.journal"
    spool = spooled(out, "csv")
    header = journal.stat().st_size
    spool.add(ROWS[:3])
    spool.commit()
    spool.close()
    whole, data = journal.read_bytes(), part.read_bytes()
    first = whole.index(b"\n") + 1
    assert header > first
    for size in range(first, len(whole) + 1):
        journal.write_bytes(whole[:size])
        part.write_bytes(data)
        again = spooled(out, "csv")
        again.skip(iter(row for row, _ in ROWS))
        again.add(ROWS[again.rows : 3])
        again.close()
        assert part.read_bytes() == data, size


def test_blocks_that_a_crash_left_empty_are_cut_off(tmp_path: Path) -> None:
    for kind in ("csv", "jsonl"):
        out = tmp_path / kind
        spool = spooled(out, kind)
        spool.add(ROWS[:3])
        spool.close()
        part = tmp_path / f"{kind}.part"
        safe = part.read_bytes()
        part.write_bytes(safe + bytes(100) + b"\n" + bytes(7))
        again = spooled(out, kind)
        again.skip(iter(row for row, _ in ROWS))
        again.close()
        assert again.rows == 3
        assert part.read_bytes() == safe


def test_files_that_do_not_belong_together_are_left_alone(tmp_path: Path) -> None:
    out, part, journal = tmp_path / "out", tmp_path / "out.part", tmp_path / "out.journal"
    part.write_text("somebody's")
    with pytest.raises(InputError, match="belongs to no resumable run"):
        spooled(out, "csv")
    assert part.read_text() == "somebody's"
    part.unlink()
    journal.write_text("left over")
    spool = spooled(out, "csv")  # nothing was begun: begin
    spool.add(ROWS[:3])
    spool.close()
    os.truncate(part, 10)
    with pytest.raises(InputError, match="is not as it was written"):
        spooled(out, "csv")
