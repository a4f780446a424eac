"""Six kinds of people meet the program for the first time. The real one: the command line, with the small model."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.page.conftest import browser as browser
from tests.support.server import ROOT, Server, running_server

PATIENCE_S = 300
Program = Callable[..., "subprocess.CompletedProcess[str]"]

QUESTIONS = """\
topic:
  type: choice
  instructions: What is the message about?
  criteria: {delivery: late or lost parcels, billing: invoices and payments, praise: the customer is happy}
anger: {type: score, instructions: How angry is it, criteria: [calm, annoyed, furious]}
"""


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
    return kept | {"SERVICE_MODEL": "embedded:small", "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}


@pytest.fixture
def decided(tmp_path: Path) -> Program:
    """The command, run in a folder of its own until it ends."""
    (tmp_path / "questions.yaml").write_text(QUESTIONS)

    def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "decided", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture(scope="package")
def small() -> Iterator[Server]:
    """A server with the small model."""
    with running_server("--model", "embedded:small", module="decided") as server:
        yield server
