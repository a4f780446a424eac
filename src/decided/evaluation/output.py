"""Files that a command writes when all its work is done: whether they can be is found out before it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from decided.errors import InputError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Where the disk refuses, say so by the name of the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def check(path: Path) -> None:
    """Try a file, or one in a folder that need not be there yet. What is there stays as it is, and nothing is left."""
    with writing(path):
        if path.is_file():
            path.open("ab").close()
        elif path.is_dir() or not path.exists():  # to open a pipe and close it again would be the end of it
            there = next(one for one in (path, *path.parents) if one.exists())
            with TemporaryFile(dir=there, buffering=0) as file:
                file.write(b"\0")  # a full disk has room for a name
