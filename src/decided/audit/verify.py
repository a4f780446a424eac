"""Whether an audit log is as it was written: each line against its own hash, its neighbours, and what was anchored.

The chain shows what was changed inside it. What it cannot show by itself is that the end was cut off, or that all of it
was rewritten: for that a head must have been noted somewhere else, an anchor. Two anchors of one line that differ show
it too, whichever of the two logs is there now.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from decided.audit.files import all_files, is_being_written
from decided.audit.line import ChainHead, Link, read_link
from decided.errors import InputError

_MOST_FINDINGS = 100


class Finding(NamedTuple):
    """Something that is not as it was written, and where."""

    path: Path
    place: int
    """The line of the file, from 1."""
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.place}: {self.problem}"


class Verifier:
    """Goes through the lines of a log, the oldest first."""

    def __init__(self, anchors: Sequence[ChainHead] = ()) -> None:
        self.lines = 0
        self.first = 0
        self.head: ChainHead | None = None
        self.problems = 0
        self.findings: list[Finding] = []
        self._anchors: dict[int, set[str]] = {}
        for seq, digest in anchors:
            self._anchors.setdefault(seq, set()).add(digest)
        self._path, self._place = Path(), 0

    def read(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._path = path
            for place, line in enumerate(_lines(path), 1):
                self._place = place
                self._look_at(line)
        self._look_at_the_end()

    def _look_at(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            if not is_being_written(self._path):
                self._find("the line is unfinished: a crash cut it off, or somebody did")
            return
        link = read_link(line)
        if link is None:
            self._find("this is not a line of an audit log")
            return
        self.lines += 1
        if not link.is_intact:
            self._find(f"line {link.seq} was changed: it does not fit its own hash")
        elif len(anchored := self._anchors.get(link.seq, {link.hash})) > 1:
            self._find(f"line {link.seq} was anchored with {len(anchored)} different hashes: the log was rewritten")
        elif anchored != {link.hash}:
            self._find(f"line {link.seq} is not the one that was anchored: the log was rewritten")
        self._follow(link)

    def _follow(self, link: Link) -> None:
        """Whether a line comes after the one before it."""
        head = self.head
        if head is None:
            self.first = link.seq
            self._look_at_the_beginning(link)
        elif link.seq == 1 and link.previous == ChainHead().hash:
            self._find(f"a new log begins here, after line {head.seq}")
        elif link.seq <= head.seq:
            self._find(f"line {link.seq} is repeated or out of order: it comes after line {head.seq}")
            return
        elif link.seq > head.seq + 1:
            self._find(f"{_range(head.seq + 1, link.seq - 1)} missing: line {link.seq} comes after line {head.seq}")
        elif link.previous != head.hash:
            self._find(f"line {head.seq} was replaced: line {link.seq} does not continue it")
        self.head = link.head

    def _look_at_the_beginning(self, link: Link) -> None:
        before = ChainHead(link.seq - 1, link.previous)
        if before == ChainHead() or self._anchors.get(before.seq) == {before.hash}:
            return
        if before.seq:
            self._find(f"{_range(1, before.seq)} missing: the log begins with line {link.seq}")
        else:
            self._find("line 1 continues a log that is not there")

    def _look_at_the_end(self) -> None:
        last = self.head.seq if self.head is not None else 0
        beyond = max(self._anchors, default=0)
        if beyond > last:
            missing = _range(last + 1, beyond)
            self._find(f"{missing} missing: the log ends with line {last}, and line {beyond} was anchored")

    def _find(self, problem: str) -> None:
        self.problems += 1
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(Finding(self._path, self._place, problem))


def verify(paths: Sequence[Path], anchors: Sequence[ChainHead] = ()) -> Verifier:
    """Look at a log that is in these files, each with those that were put aside before it."""
    files = [file for path in paths for file in all_files(path)]
    if not files:
        raise InputError(f"there is no file {paths[0]}")
    verifier = Verifier(anchors)
    verifier.read(files)
    return verifier


def read_anchors(path: Path) -> list[ChainHead]:
    """The heads of a file, one per line, as `decided audit head` prints them."""
    anchors = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--anchors {path} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        seq, _, digest = line.strip().partition(" ")
        if not line.strip():
            continue
        if not (seq.isascii() and seq.isdigit() and len(digest) == len(ChainHead().hash)):
            raise InputError(f"--anchors {path}, line {number}: expected what `decided audit head` prints")
        anchors.append(ChainHead(int(seq), digest))
    return anchors


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def _range(first: int, last: int) -> str:
    return f"line {first} is" if first == last else f"lines {first} to {last} are"
