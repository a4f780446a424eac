"""An output file that survives its writer: rows are added in order, and a later run goes on where this one ended.

While it grows, `OUT.part` holds the rows, and `OUT.journal` says whose they are (a first line, the identity of the run)
and how far they are safe on disk: every second a line with the rows, the bytes and a digest of the input so far. Rows
go to the file as soon as they are finished, so what a kill can take is at most a torn last row; what a crash of the
machine can take is the last second. When all rows are there, the file gets its name and the journal goes.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from decided.errors import InputError
from decided.tables.tables import Row, RowText

_COMMIT_S = 1.0


class Mark(NamedTuple):
    """How far the file is known to be right."""

    rows: int
    size: int
    digest: str


class Spool:
    """The rows of one run. `rows` are there already, from a run before."""

    def __init__(self, out: Path, identity: dict[str, str], words: RowText) -> None:
        self.rows = 0
        self._out = out
        self.part = out.with_name(out.name + ".part")
        self._journal_path = out.with_name(out.name + ".journal")
        self._words = words
        self._digest = hashlib.sha256()
        self._committed_at = time.monotonic()
        if out.exists():
            raise InputError(f"{out} already exists: remove it or choose another name")
        if self.part.exists() and not self._journal_path.exists():
            raise InputError(f"{self.part} belongs to no resumable run: remove it")
        going_on = self._unseen = (
            self.part.exists()
        )  # until `skip` has seen that the input is the same, nothing changes
        with ExitStack() as opened:
            self._journal: BinaryIO = opened.enter_context(
                self._journal_path.open("r+b" if going_on else "wb", buffering=0)
            )
            self._lock()
            header = msgspec.json.encode(identity) + b"\n"
            self._mark = self._last_mark(identity, header) if going_on else self._first_mark(header)
            self._file: BinaryIO = opened.enter_context(self.part.open("r+b" if going_on else "wb", buffering=0))
            self._cut_off_what_is_torn()
            self._opened = opened.pop_all()

    def skip(self, rows: Iterator[Row]) -> None:
        """Pass over the rows of the input that are answered already, and see that they are the same."""
        for number in range(1, self.rows + 1):
            row = next(rows, None)
            if row is None:
                raise InputError(f"the input is another one: it has fewer rows than the {self.rows} answered")
            self._digest.update(msgspec.json.encode(row.values))
            if number == self._mark.rows and self._digest.hexdigest() != self._mark.digest:
                raise InputError(f"the first {number} rows of the input are not those that were answered")
        self._unseen = False

    def add(self, rows: list[tuple[Row, dict[str, Any]]]) -> None:
        """Rows of the input that come next, each with the values that were added to it."""
        self._file.write(b"".join(self._words.row({**row.values, **added}) for row, added in rows))
        self.rows += len(rows)
        for row, _ in rows:
            self._digest.update(msgspec.json.encode(row.values))
        if time.monotonic() - self._committed_at >= _COMMIT_S:
            self.commit()

    def commit(self) -> None:
        """What is written is safe."""
        os.fsync(self._file.fileno())
        self._journal.write(f"{self.rows} {self._file.tell()} {self._digest.hexdigest()}\n".encode())
        os.fsync(self._journal.fileno())
        self._committed_at = time.monotonic()

    def close(self) -> None:
        with self._opened:
            if not self._unseen:
                self.commit()

    def finish(self, finished: Path | None = None) -> None:
        """All rows are there: the file, or what was made of it, gets its name."""
        self.close()
        (finished or self.part).rename(self._out)
        self.part.unlink(missing_ok=True)
        self._journal_path.unlink()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another run is writing {self._out}") from None

    def _first_mark(self, header: bytes) -> Mark:
        self._journal.write(header)
        return Mark(0, 0, "")

    def _last_mark(self, identity: dict[str, str], header: bytes) -> Mark:
        first, *lines = self._journal.read().splitlines(keepends=True)
        if first != header:
            before = msgspec.json.decode(first)
            other = [name for name in identity if before.get(name) != identity[name]]
            raise InputError(
                f"{self.part} was begun with other {' and '.join(other) or 'settings'}: "
                f"give the same, or remove it and {self._journal_path.name}"
            )
        whole = [line for line in lines if line.endswith(b"\n")]
        self._journal.seek(len(first) + sum(map(len, whole)))
        self._journal.truncate()
        rows, size, digest = whole[-1].split() if whole else (b"0", b"0", b"")
        return Mark(int(rows), int(size), digest.decode())

    def _cut_off_what_is_torn(self) -> None:
        """Count the rows after the last mark, up to the first that is not whole."""
        self.rows, size = self._mark.rows, self._mark.size
        if size > self.part.stat().st_size:
            raise InputError(f"{self.part} is shorter than it was: remove it and {self._journal_path.name}")
        with self.part.open("rb") as written:
            written.seek(size)
            for record in _records(written, self._words.quoted):
                self.rows += 1
                size += len(record)
        self._file.seek(size)
        self._file.truncate()
        if not size:  # ended before the first mark
            self._file.write(self._words.head())
            self.commit()


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
