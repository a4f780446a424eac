"""The files of an audit log: what a crash leaves, when one is full, when one was moved."""

import os
import threading
from pathlib import Path

import pytest

from decided.audit.appender import Appender
from decided.audit.files import all_files, head_of
from decided.audit.line import ChainHead
from decided.audit.verify import verify
from decided.errors import InputError
from tests.audit.logs import SCRIBE, decision, entries, write_log


def append(appender: Appender, number: int) -> None:
    head, lines = SCRIBE.write(appender.head, decision(number))
    appender.append(b"".join(lines), head)


def is_sound(*paths: Path) -> bool:
    return not verify(paths).findings


def test_a_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(3):
        write_log(path, 2)
    assert is_sound(path)
    assert [entry["seq"] for entry in entries(path)] == list(range(1, 16))
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("left", [1, 30, 500])
def test_what_a_crash_left_of_a_line_is_removed(tmp_path: Path, left: int) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines(keepends=True)[-1][:left])
    appender = Appender(path, 2**30)
    assert appender.cut_bytes == left
    append(appender, 7)
    appender.close()
    assert is_sound(path)
    assert path.read_bytes().startswith(whole)


def test_a_log_that_ends_in_nothing_but_an_unfinished_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"seq":1,"ti')
    write_log(path, 1)
    assert is_sound(path)


def test_a_line_longer_than_what_is_read_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    appender = Appender(path, 2**30)
    for name in ("x" * 200_000, "y" * 100_000):
        long = decision(1)._replace(request_id=name)
        head, lines = SCRIBE.write(appender.head, long)
        appender.append(b"".join(lines), head)
    appender.close()
    assert head_of(path) == (appender.head, 0)
    write_log(path, 1)
    assert is_sound(path)


def test_a_full_file_is_put_aside_and_the_chain_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 20, max_bytes=4096)
    files = all_files(path)
    assert [file.name for file in files[:2]] == ["audit.jsonl.000001", "audit.jsonl.000002"]
    assert all(file.stat().st_size <= 4096 for file in files)
    assert sum(len(entries(file)) for file in files) == 41
    write_log(path, 20, max_bytes=4096)
    assert all_files(path)[: len(files) - 1] == files[:-1]
    assert is_sound(path)


def test_a_crash_between_two_files_does_not_begin_a_new_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 2)
    path.rename(tmp_path / "audit.jsonl.000001")
    write_log(path, 1)
    assert entries(path)[0]["seq"] == 6
    assert is_sound(path)


def test_a_file_that_was_moved_is_followed_by_a_new_one(tmp_path: Path) -> None:
    path, moved = tmp_path / "audit.jsonl", tmp_path / "moved.jsonl"
    appender = Appender(path, 2**30)
    append(appender, 1)
    assert not appender.reopen(), "it was not moved"
    path.rename(moved)
    append(appender, 2)
    assert appender.reopen()
    append(appender, 3)
    appender.close()
    assert (len(entries(moved)), len(entries(path))) == (4, 2)
    assert is_sound(moved, path)


def test_a_file_that_is_not_empty_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    path, moved = tmp_path / "audit.jsonl", tmp_path / "moved.jsonl"
    appender = Appender(path, 2**30)
    append(appender, 1)
    path.rename(moved)
    path.write_text("something else\n")
    with pytest.raises(InputError, match="not empty"):
        appender.reopen()
    append(appender, 2)
    appender.close()
    assert is_sound(moved)
    assert path.read_text() == "something else\n"


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    appender = Appender(path, 2**30)
    with pytest.raises(InputError, match="another process"):
        Appender(path, 2**30)
    appender.close()
    Appender(path, 2**30).close()


def test_a_line_that_is_being_written_is_not_taken_for_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    appender = Appender(path, 2**30)
    append(appender, 1)
    with path.open("ab") as file:
        file.write(b'{"seq":')
    assert is_sound(path)
    appender.close()
    assert not is_sound(path)


def test_what_follows_a_failed_write_follows_the_last_good_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes half a group and then fails, and that cannot even be told to forget it."""
    path = tmp_path / "audit.jsonl"
    appender = Appender(path, 2**30)
    append(appender, 1)
    before = appender.head

    def fail(*_: object) -> None:
        raise OSError(5, "told to fail")

    monkeypatch.setattr("decided.audit.appender.sync", fail)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(OSError, match="told to fail"):
        append(appender, 2)
    monkeypatch.undo()
    assert appender.head == before
    append(appender, 3)
    appender.close()
    assert is_sound(path)
    assert [entry["request_id"] for entry in entries(path)] == ["request-1"] * 2 + ["request-3"] * 2


@pytest.mark.parametrize("content", [b"no audit log\n", b'{"seq":1}\n', b"\n"])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not, or no longer, a line of an audit log"):
        Appender(path, 2**30)
    assert path.read_bytes() == content


def test_a_log_whose_last_line_was_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 2)
    path.write_bytes(path.read_bytes().replace(b"request-1", b"request-2"))
    with pytest.raises(InputError, match="decided audit verify"):
        Appender(path, 2**30)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: pipe.read_bytes(), daemon=True)
    reader.start()
    for path in (Path("/dev/null"), tmp_path, tmp_path / "nowhere" / "audit.jsonl", pipe):
        with pytest.raises(InputError, match="--audit-log"):
            Appender(path, 2**30)
    assert head_of(tmp_path / "nowhere" / "audit.jsonl") == (ChainHead(), 0)
