"""`decided audit verify` against whoever changes the log: what it finds, and that it says where."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from decided.audit.files import all_files
from decided.audit.line import ChainHead, DecisionLine, Scribe, seal
from decided.cli import main
from tests.audit.logs import KEY, write_log

DECISIONS = 10
LINES = 1 + 2 * DECISIONS


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in one file."""
    path: Path = tmp_path_factory.mktemp("one") / "audit.jsonl"
    write_log(path, DECISIONS)
    return path


@pytest.fixture
def log(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path))


@pytest.fixture
def rotated(tmp_path: Path) -> Path:
    """The same log in several files."""
    path = tmp_path / "rotated.jsonl"
    write_log(path, DECISIONS, max_bytes=4096)
    assert len(all_files(path)) > 3
    return path


def verify(capsys: pytest.CaptureFixture[str], *arguments: Path | str) -> tuple[int, str]:
    status = main(["audit", "verify", *map(str, arguments)])
    return status, capsys.readouterr().out


def head(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    assert main(["audit", "head", str(path)]) == 0
    return capsys.readouterr().out


Lines = list[bytes]


def forge(line: bytes, **changes: object) -> bytes:
    """A line with other content, and a hash that fits it."""
    fields = {**msgspec.json.decode(line), **changes}
    fields.pop("hash")
    return seal(msgspec.convert(fields, DecisionLine))[1]


def swap(lines: Lines, one: int, other: int) -> Lines:
    lines[one], lines[other] = lines[other], lines[one]
    return lines


def other_log(folder: Path) -> Lines:
    path = folder / "other.jsonl"
    write_log(path, 3, scribe=Scribe("other", "", KEY))
    return path.read_bytes().splitlines(keepends=True)


class Tampering(NamedTuple):
    change: Callable[[Lines], Lines]
    said: str
    """In the report, as a regular expression."""


# Line 5 of the file is line 5 of the log: place 4 of the list.
KINDS = {
    "a probability": Tampering(
        lambda lines: [*lines[:4], lines[4].replace(b"0.666", b"0.999"), *lines[5:]],
        r":5: line 5 was changed",
    ),
    "a client": Tampering(
        lambda lines: [*lines[:4], lines[4].replace(b'"client":"ci"', b'"client":"no"'), *lines[5:]],
        r":5: line 5 was changed",
    ),
    "white space": Tampering(
        lambda lines: [*lines[:4], lines[4].replace(b"{", b"{ ", 1), *lines[5:]], r":5: line 5 was ch"
    ),
    "a field behind the hash": Tampering(
        lambda lines: [*lines[:4], lines[4].replace(b'"}\n', b'","note":""}\n'), *lines[5:]], r":5: line 5 was changed"
    ),
    "the last line": Tampering(
        lambda lines: [*lines[:-1], lines[-1].replace(b'"answer":"billing"', b'"answer":"delivery"')],
        rf":{LINES}: line {LINES} was changed",
    ),
    "a line with its hash made anew": Tampering(
        lambda lines: [*lines[:4], forge(lines[4], client="no"), *lines[5:]],
        r":6: line 5 was replaced: line 6 does not continue it",
    ),
    "a line removed": Tampering(lambda lines: [*lines[:4], *lines[5:]], r":5: line 5 is missing"),
    "several lines removed": Tampering(lambda lines: [*lines[:4], *lines[9:]], r":5: lines 5 to 9 are missing"),
    "the first line removed": Tampering(lambda lines: lines[1:], r":1: line 1 is missing: the log begins with line 2"),
    "the first lines removed": Tampering(lambda lines: lines[7:], r":1: lines 1 to 7 are missing"),
    "two lines swapped": Tampering(
        lambda lines: swap(lines, 4, 5), r":5: line 5 is missing[^$]*:6: line 5 is repeated or"
    ),
    "a line moved to the end": Tampering(
        lambda lines: [*lines[:4], *lines[5:], lines[4]], rf":{LINES}: line 5 is repeated or out of order"
    ),
    "a line repeated": Tampering(lambda lines: [*lines[:5], *lines[4:]], r":6: line 5 is repeated"),
    "a line put between": Tampering(
        lambda lines: [*lines[:5], forge(lines[4], seq=6, previous=msgspec.json.decode(lines[4])["hash"]), *lines[5:]],
        r":7: line 6 is repeated",
    ),
    "something else put between": Tampering(
        lambda lines: [*lines[:5], b'{"seq":6}\n', *lines[5:]], r":6: this is not a line of an audit log"
    ),
    "a line replaced by nothing": Tampering(
        lambda lines: [*lines[:4], b"\n", *lines[5:]], r":5: this is not[^$]*:6: line 5 is missing"
    ),
    "the end cut off in the middle of a line": Tampering(
        lambda lines: [*lines[:-1], lines[-1][:-20]], rf":{LINES}: the line is unfinished"
    ),
    "bytes that are not text": Tampering(
        lambda lines: [*lines[:4], b"\xff\xfe\n", *lines[4:]], r":5: this is not a line"
    ),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_change_is_found_and_named(kind: Tampering, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    changed = kind.change(list(lines))
    assert changed != lines
    log.write_bytes(b"".join(changed))
    status, report = verify(capsys, log)
    assert status == 1
    assert re.search(kind.said, report), report


def test_a_change_of_one_line_is_one_finding(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_bytes(log.read_bytes().replace(b"request-3", b"request-0"))
    assert verify(capsys, log)[1].count("\n") == 2  # of that decision's two lines


def test_every_single_byte_counts(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = log.read_bytes()
    begin = whole.index(b'{"seq":5')
    for place in range(begin, whole.index(b"\n", begin) + 1, 7):
        log.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert verify(capsys, log)[0] == 1, place


def test_a_log_that_was_left_alone_is_as_it_was_written(
    original: Path, rotated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (original, rotated):
        status, report = verify(capsys, path)
        assert status == 0
        assert report.splitlines()[0] == f"{LINES} lines, 1 to {LINES}, as they were written"
        assert report.splitlines()[1] == "head: " + head(capsys, path).strip()


# --- several files ---


def test_a_file_that_was_put_aside_is_missed(rotated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    all_files(rotated)[1].unlink()
    status, report = verify(capsys, rotated)
    assert status == 1
    assert re.search(r"lines \d+ to \d+ are missing", report)


def test_files_in_another_order(rotated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = all_files(rotated)[:2]
    first.rename(rotated.with_name("x"))
    second.rename(first)
    rotated.with_name("x").rename(second)
    assert verify(capsys, rotated)[0] == 1


def test_a_log_that_was_moved_by_hand_is_read_in_the_order_given(
    rotated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = [file.rename(tmp_path / f"moved-{number}") for number, file in enumerate(all_files(rotated))]
    assert verify(capsys, *moved)[0] == 0
    assert verify(capsys, *reversed(moved))[0] == 1
    assert verify(capsys, *moved[1:])[0] == 1


def test_the_lines_of_another_log(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = other_log(tmp_path)
    whole = log.read_bytes()
    log.write_bytes(whole + b"".join(other))
    status, report = verify(capsys, log)
    assert (status, f":{LINES + 1}: a new log begins here, after line {LINES}" in report) == (1, True)
    log.write_bytes(b"".join(whole.splitlines(keepends=True)[:3] + other[3:]))
    assert "line 3 was replaced" in verify(capsys, log)[1]


# --- what only an anchor shows ---


@pytest.fixture
def anchors(log: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = log.with_name("anchors")
    path.write_text(head(capsys, log))
    return path


def test_an_end_that_was_cut_off_is_found_by_an_anchor(
    log: Path, anchors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(capsys, log, "--anchors", anchors)[0] == 0
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-3]))
    assert verify(capsys, log)[0] == 0, "the chain alone cannot know"
    status, report = verify(capsys, log, "--anchors", anchors)
    assert status == 1
    assert f"lines {LINES - 2} to {LINES} are missing: the log ends with line {LINES - 3}" in report


def test_a_log_that_was_made_anew_is_found_by_an_anchor(
    log: Path, anchors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.unlink()
    write_log(log, DECISIONS, scribe=Scribe("another model", "", KEY))
    assert verify(capsys, log)[0] == 0, "the chain alone cannot know"
    status, report = verify(capsys, log, "--anchors", anchors)
    assert status == 1
    assert f"line {LINES} is not the one that was anchored" in report


def test_a_log_that_was_rewritten_is_found_even_if_its_new_head_was_anchored_too(
    log: Path, anchors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a timer does that notes the head every hour, whatever happened to the log since."""
    log.unlink()
    write_log(log, DECISIONS, scribe=Scribe("another model", "", KEY))
    anchors.write_text(anchors.read_text() + head(capsys, log))
    status, report = verify(capsys, log, "--anchors", anchors)
    assert status == 1
    assert f"line {LINES} was anchored with 2 different hashes: the log was rewritten" in report


def test_an_anchor_that_was_noted_twice_is_one_anchor(
    log: Path, anchors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    anchors.write_text(2 * anchors.read_text())
    assert verify(capsys, log, "--anchors", anchors)[0] == 0


def test_an_anchor_lets_older_files_be_removed(rotated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    oldest = all_files(rotated)[0]
    anchors = rotated.with_name("anchors")
    anchors.write_text("\n" + head(capsys, oldest))
    oldest.unlink()
    assert verify(capsys, rotated)[0] == 1
    assert verify(capsys, rotated, "--anchors", anchors)[0] == 0
    noted, forged = anchors.read_text(), f"{anchors.read_text().split()[0]} {ChainHead().hash}\n"
    for content in (forged, noted + forged, forged + noted):
        anchors.write_text(content)
        assert verify(capsys, rotated, "--anchors", anchors)[0] == 1


# --- what cannot be read ---


@pytest.mark.parametrize("content", ["one two\n", f"-1 {ChainHead().hash}\n", "3 abc\n", "²  " + "0" * 64])
def test_anchors_that_are_none(log: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = log.with_name("anchors")
    path.write_text(content)
    assert main(["audit", "verify", str(log), "--anchors", str(path)]) == 2
    assert "line 1" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["verify", "head"])
def test_a_file_that_is_not_there(action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", action, str(tmp_path / "nowhere.jsonl")]) == 2
    said = capsys.readouterr().err
    assert "nowhere.jsonl" in said
    assert said.count("\n") == 1


def test_the_head_is_that_of_one_file(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "head", str(log), "--anchors", str(log)]) == 2
    assert "--anchors is for verify" in capsys.readouterr().err
    assert main(["audit", "head", str(log), str(log)]) == 2
    assert "head takes one file: the log, or the newest of its files" in capsys.readouterr().err
