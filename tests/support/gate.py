"""A gate that holds the fake model for as long as a test likes: nothing has to be guessed from how long things take."""

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self


class Gate:
    """The model that runs `state` waits until the gate is opened, or the block ends."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="decided-gate-"))
        self.state = f"GATE={self._folder}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open()

    def reached(self) -> bool:
        """Whether the model stands before it."""
        return (self._folder / "reached").exists()

    def open(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def wait_at(folder: Path) -> None:
    """The model's side."""
    with contextlib.suppress(FileNotFoundError):
        (folder / "reached").touch()
    while folder.exists():
        time.sleep(0.002)
