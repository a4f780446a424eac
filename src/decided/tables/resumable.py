"""An output file that survives its writer: rows are added in order, and a later run goes on where this one ended.

While it grows, `OUT.part` holds the rows, and `OUT.journal` says whose they are (a first line, the identity of the run)
and how far they are safe on disk: every second a line with the rows, the bytes and a digest of the input so far. Rows
go to the file as soon as they are finished, so what a kill or a full disk can take is at most a torn last row; what a
crash of the machine can take is the last second. When all rows are there, the file gets its name and the journal goes.
"""

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import msgspec

from decided.errors import InputError
from decided.tables.tables import Row, RowText

_COMMIT_S = 1.0
_MARK = re.compile(rb"(\d{1,18}) (\d{1,18}) ([0-9a-f]{64})\n")


class Mark(NamedTuple):
    """How far the file is known to be right."""

    rows: int
    size: int
    digest: str


def check_that_it_is_free(out: Path) -> None:
    with suppress(OSError):  # what cannot be looked at is told of when it is opened
        if out.exists():
            raise InputError(f"{out} already exists: remove it or choose another name")


class Spool:
    """The rows of one run. `rows` are there already, from a run before."""

    def __init__(self, out: Path, identity: dict[str, str], words: RowText) -> None:
        self.rows = self._size = 0
        self._out = out
        self.part = out.with_name(out.name + ".part")
        self._journal_path = out.with_name(out.name + ".journal")
        self._words = words
        self._digest = hashlib.sha256()
        self._committed_at = time.monotonic()
        self._may_seal = False
        with self.writing(), ExitStack() as opened:
            check_that_it_is_free(out)
            going_on = self.part.exists() and self.part.stat().st_size > 0
            if going_on and not self._journal_path.exists():
                raise InputError(f"{self.part} belongs to no resumable run: remove it")
            self._journal: BinaryIO = opened.enter_context(self._journal_path.open("a+b", buffering=0))
            self._lock()
            header = msgspec.json.encode(identity) + b"\n"
            self._mark = self._last_mark(identity, header) if going_on else self._first_mark(header)
            self._file: BinaryIO = opened.enter_context(self.part.open("r+b" if going_on else "wb", buffering=0))
            self._cut_off_what_is_torn()
            self._may_seal = not going_on  # until `skip` has seen that the input is the same, nothing changes
            self._opened = opened.pop_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Where the disk refuses, say so, and seal nothing more: the next run finds what is there."""
        try:
            yield
        except OSError as error:
            self._may_seal = False
            why = os.strerror(error.errno) if error.errno else error
            saved = f"; {self.rows:,} rows saved: run the same command to resume" if self.rows else ""
            raise InputError(f"{self._out} cannot be written: {why}{saved}") from None

    def skip(self, rows: Iterator[Row]) -> None:
        """Pass over the rows of the input that are answered already, and see that they are the same."""
        for number in range(1, self.rows + 1):
            row = next(rows, None)
            if row is None:
                raise InputError(f"the input is another one: it has fewer rows than the {self.rows} answered")
            self._digest.update(msgspec.json.encode(row.values))
            if number == self._mark.rows and self._digest.hexdigest() != self._mark.digest:
                raise InputError(f"the first {number} rows of the input are not those that were answered")
        self._may_seal = True

    def add(self, rows: list[tuple[Row, dict[str, Any]]]) -> None:
        """Rows of the input that come next, each with the values that were added to it."""
        with self.writing():
            for row, added in rows:
                words = self._words.row({**row.values, **added})
                write_whole(self._file, words)
                self.rows += 1
                self._size += len(words)
                self._digest.update(msgspec.json.encode(row.values))
        if time.monotonic() - self._committed_at >= _COMMIT_S:
            self.commit()

    def commit(self) -> None:
        """What is written is safe."""
        with self.writing():
            os.fsync(self._file.fileno())
            write_whole(self._journal, f"{self.rows} {self._size} {self._digest.hexdigest()}\n".encode())
            os.fsync(self._journal.fileno())
        self._committed_at = time.monotonic()

    def close(self) -> None:
        with self.writing(), self._opened:
            if self._may_seal:
                self.commit()
                self._may_seal = False

    def finish(self, finished: Path | None = None) -> None:
        """All rows are there: the file, or what was made of it, gets its name."""
        self.close()
        with self.writing():
            (finished or self.part).rename(self._out)
            self.part.unlink(missing_ok=True)
            self._journal_path.unlink()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another run is writing {self._out}") from None

    def _first_mark(self, header: bytes) -> Mark:
        self._journal.truncate(0)
        write_whole(self._journal, header)
        os.fsync(self._journal.fileno())
        return Mark(0, 0, "")

    def _last_mark(self, identity: dict[str, str], header: bytes) -> Mark:
        self._journal.seek(0)
        first, *lines = self._journal.read().splitlines(keepends=True) or [b""]
        if first != header:
            try:
                before = msgspec.json.decode(first, type=dict[str, str]) if first.endswith(b"\n") else self._damaged()
            except (msgspec.DecodeError, UnicodeDecodeError):
                self._damaged()
            other = [name for name in identity if before.get(name) != identity[name]]
            raise InputError(
                f"{self.part} was begun with other {' and '.join(other) or 'settings'}: "
                f"give the same, or remove it and {self._journal_path.name}"
            )
        whole = [line for line in lines if line.endswith(b"\n")]
        mark = (_MARK.fullmatch(whole[-1]) or self._damaged()) if whole else None
        self._journal.truncate(len(first) + sum(map(len, whole)))
        return Mark(int(mark[1]), int(mark[2]), mark[3].decode()) if mark else Mark(0, 0, "")

    def _damaged(self) -> NoReturn:
        raise InputError(f"{self._journal_path} is damaged: to begin anew, remove it and {self.part.name}")

    def _cut_off_what_is_torn(self) -> None:
        """Count the rows after the last mark, up to the first that is not whole."""
        self.rows, self._size = self._mark.rows, self._mark.size
        head = self._words.head()
        with self.part.open("rb") as written:
            written.seek(max(0, self._size - 1))
            if self._size and written.read(1) != b"\n":
                raise InputError(f"{self.part} is not as it was written: remove it and {self._journal_path.name}")
            for record in _records(written, self._words.quoted) if self._size or not head else ():
                self.rows += 1
                self._size += len(record)
        self._file.seek(self._size)
        self._file.truncate()
        if not self._size:  # ended before the first mark
            write_whole(self._file, head)
            self._size = len(head)
            self.commit()


def write_whole(file: BinaryIO, data: bytes) -> None:
    """All of it, or OSError. A file without a buffer takes a part, and says so, where the disk has no room for all."""
    left = memoryview(data)
    while left:
        left = left[os.write(file.fileno(), left) :]


def _records(file: BinaryIO, quoted: bool) -> Iterator[bytes]:
    """The whole rows that follow. In CSV a row ends with a line in which no quotation is left open."""
    record = b""
    for line in file:
        record += line
        if b"\0" in line or not line.endswith(b"\n"):
            return
        if quoted and record.count(b'"') % 2:
            continue
        if not quoted:
            try:
                msgspec.json.decode(record)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return
        yield record
        record = b""
