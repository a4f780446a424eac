"""Threads that wait for work, woken one at a time."""

from queue import SimpleQueue


class Sleepers:
    """What a `Condition` does without making a lock for each wait. All but `sleep` is called under the owner's lock."""

    def __init__(self) -> None:
        self._number = 0
        self._calls: SimpleQueue[None] = SimpleQueue()

    def enter(self) -> None:
        self._number += 1

    def sleep(self) -> None:
        self._calls.get()

    def wake(self) -> None:
        """One of them, if there is one."""
        if self._number:
            self._number -= 1
            self._calls.put(None)

    def wake_all(self) -> None:
        while self._number:
            self.wake()
