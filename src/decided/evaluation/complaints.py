"""What is skipped, and why: a line for each of the first, and for the others how many they are."""

import sys
from collections.abc import Callable, Iterable

_SHOWN = 20


class Complaints:
    """Counts what is skipped, and tells of it as long as that can be read."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._count = 0

    def add(self, problem: str) -> None:
        self._count += 1
        if self._count <= _SHOWN:
            self._say(f"skipped {problem}")

    def close(self) -> None:
        if self._count > _SHOWN:
            self._say(f"... and {self._count - _SHOWN} more like these")


def complain(problems: Iterable[str]) -> None:
    """Of all that is skipped, at once."""
    complaints = Complaints(lambda message: print(message, file=sys.stderr))
    for problem in problems:
        complaints.add(problem)
    complaints.close()
