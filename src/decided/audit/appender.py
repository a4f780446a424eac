"""Lines onto the disk: whole groups or nothing, a new file when one is full, and another one when told so."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from decided.audit.files import head_of, lock, next_aside, sync, sync_folder
from decided.audit.line import ChainHead
from decided.errors import InputError

_MODE = 0o600
_TRIAL_BYTES = 4096
"""No fewer than some lines: where the disk is full, there may be room for a few bytes in its last block."""


class Appender:
    """The file that is written. One process at a time, and in it one thread."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._file = _open(path)
        try:
            self.head, self.cut_bytes = head_of(path)
            self._size = os.fstat(self._file.fileno()).st_size - self.cut_bytes
            os.ftruncate(self._file.fileno(), self._size)
            sync_folder(path)
        except (InputError, OSError) as error:
            self._file.close()
            raise _refusal(path, error) if isinstance(error, OSError) else error from None

    def append(self, lines: bytes, head: ChainHead) -> None:
        """Write the lines that make this head, and wait for the disk. Raises OSError, and then none was written."""
        self._put(lines)
        self._size += len(lines)
        self.head = head

    def try_out(self) -> None:
        """Raise OSError if nothing could be written. What was is taken back; a reader sees a line that has begun."""
        self._put(b" " * _TRIAL_BYTES)
        self._take_back(self._file.fileno())

    def _put(self, lines: bytes) -> None:
        if self._size and self._size + len(lines) > self._max_bytes:
            self._put_aside()
        number = self._file.fileno()
        try:
            if os.fstat(number).st_size != self._size:  # what an earlier failure left, and could not take back
                os.ftruncate(number, self._size)
            left = memoryview(lines)
            while left:
                left = left[os.write(number, left) :]
            sync(number)
        except OSError:
            self._take_back(number)
            raise

    def reopen(self) -> bool:
        """If the file was moved, go on in a new one with its name. Whether it was. Raises InputError if that cannot be
        done, and stays with the file that it has."""
        if not self._was_moved():
            return False
        file = _open(self._path)
        try:
            if os.fstat(file.fileno()).st_size:
                raise InputError(f"--audit-log {self._path} was replaced by a file that is not empty: move it away")
            sync_folder(self._path)
        except (InputError, OSError) as error:
            file.close()
            raise _refusal(self._path, error) if isinstance(error, OSError) else error from None
        self._file.close()
        self._file, self._size = file, 0
        return True

    def _was_moved(self) -> bool:
        try:
            return not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except OSError:
            return True

    def close(self) -> None:
        self._file.close()

    def _put_aside(self) -> None:
        """The file is full. If the new one cannot be made, the old one gets its name back."""
        aside = next_aside(self._path)
        self._path.rename(aside)
        try:
            file = _open(self._path)
        except InputError as error:
            aside.rename(self._path)
            raise OSError(str(error)) from None
        self._file.close()
        self._file, self._size = file, 0
        sync_folder(self._path)

    def _take_back(self, number: int) -> None:
        try:
            os.ftruncate(number, self._size)
        except OSError:
            return  # tried again before the next line


def _open(path: Path) -> BinaryIO:
    try:
        number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, _MODE)
        file: BinaryIO = os.fdopen(number, "ab", buffering=0)
    except OSError as error:
        raise _refusal(path, error) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        file.close()
        raise InputError(f"--audit-log {path} is not a file that lines can be added to")
    if not lock(file):
        file.close()
        raise InputError(f"--audit-log {path} is written by another process: each needs a file of its own")
    return file


def _refusal(path: Path, error: OSError) -> InputError:
    return InputError(f"--audit-log {path} cannot be written: {error.strerror or error}")
