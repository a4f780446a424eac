"""The files of an audit log: the one that is written, and those that were full and are put aside beside it.

`audit.jsonl` is written; `audit.jsonl.000001`, `audit.jsonl.000002` and so on came before it. None is ever removed.
"""

import fcntl
import os
import re
from pathlib import Path
from typing import BinaryIO

from decided.audit.line import ChainHead, read_link
from decided.errors import InputError

_BLOCK = 64 * 1024
_DIGITS = 6

sync = getattr(os, "fdatasync", os.fsync)


def put_aside(path: Path) -> list[Path]:
    """The files that were full, the oldest first."""
    name = re.compile(re.escape(path.name) + rf"\.(\d{{{_DIGITS}}})")
    try:
        found = [(match[1], other) for other in path.parent.iterdir() if (match := name.fullmatch(other.name))]
    except OSError:
        return []
    return [other for _, other in sorted(found)]


def all_files(path: Path) -> list[Path]:
    """All that there is of a log, the oldest first."""
    return [*put_aside(path), *([path] if path.exists() else [])]


def next_aside(path: Path) -> Path:
    before = put_aside(path)
    number = int(before[-1].name[-_DIGITS:]) if before else 0
    return path.with_name(f"{path.name}.{number + 1:0{_DIGITS}}")


def read_end(path: Path) -> tuple[bytes, int]:
    """The last whole line of a file, and how many bytes of an unfinished one come behind it."""
    with path.open("rb") as file:
        end = begin = file.seek(0, os.SEEK_END)
        tail = b""
        while begin and tail.count(b"\n") < 2:
            begin = max(0, begin - max(_BLOCK, len(tail)))
            file.seek(begin)
            tail = file.read(end - begin)
    whole = tail.rfind(b"\n") + 1
    return tail[tail.rfind(b"\n", 0, max(0, whole - 1)) + 1 : whole], len(tail) - whole


def head_of(path: Path) -> tuple[ChainHead, int]:
    """How far the log in this file, or in those put aside before it, has come; and the bytes of an unfinished line."""
    unfinished = 0
    for file in reversed(all_files(path)):
        try:
            line, cut = read_end(file)
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror or error}") from None
        unfinished = cut if file == path else unfinished
        if line:
            link = read_link(line)
            if link is None or not link.is_intact:
                raise InputError(
                    f"the last line of {file} is not, or no longer, a line of an audit log: look at it with "
                    "`decided audit verify`, and move the file away to begin a new log"
                )
            return link.head, unfinished
    return ChainHead(), unfinished


def lock(file: BinaryIO) -> bool:
    """Whether no other process writes to it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_being_written(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def sync_folder(path: Path) -> None:
    """So that a file's name, too, is still there after the power failed."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
