"""A lock, and threads that wait for what others do while they hold it."""

import os
import threading


class CallingLock:
    """Whoever is woken under it is called when it has been let go, and does not begin by waiting for it."""

    __slots__ = ("_lock", "calls")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: list[int] = []

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        calls = self.calls
        if calls:
            self.calls = []
        self._lock.release()
        for pipe in calls:
            os.write(pipe, b"!")


class Sleepers:
    """What a `Condition` does, through a pipe. Writing to one lets go of the interpreter, so on a busy core the thread
    that is woken runs at once, where it would else wake up, find the interpreter taken, and have to be woken again.

    All but `sleep` and `close` is called under the lock.
    """

    def __init__(self, lock: CallingLock) -> None:
        self._lock = lock
        self._number = 0
        self._read_end, self._write_end = os.pipe()

    def enter(self) -> None:
        self._number += 1

    def sleep(self) -> None:
        os.read(self._read_end, 1)

    def wake(self) -> bool:
        """One of them; whether there was one."""
        if not self._number:
            return False
        self._number -= 1
        self._lock.calls.append(self._write_end)
        return True

    def wake_all(self) -> None:
        while self.wake():
            pass

    def close(self) -> None:
        """Once nobody sleeps here any more."""
        os.close(self._read_end)
        os.close(self._write_end)
