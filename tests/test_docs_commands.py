"""The commands in the docs are run as they stand, and print what the docs show.

A page whose `sh` blocks call `decided` is run in a folder of its own, with the server of the README beside it. A block
whose info string has a file name (`yaml questions.yaml`) is that file; a `text answer` block is what the command before
it printed, in float32. `make numbers` writes those blocks anew.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.precision import AGREEMENT, DOCUMENTED, documented_server
from tests.support.server import ROOT, Server
from tests.test_docs import ADDRESS, Block, blocks, environment

PAGES = [ROOT / "docs" / name for name in ("ask.md", "eval.md", "run.md", "tutorials/labels.md")]
ANSWER = "text answer"
TIMES = re.compile(r"\d{4}-\d\d-\d\d|\d+ ms|[\d.,]+/s|\d+:\d\d(?=[ ,)])")
VERSIONS = re.compile(r"(?<=@)[0-9a-f]{6}\b")  # of a profile: its last bits are the processor's
FIGURES = re.compile(r"\d+\.\d+%?")
BARS = re.compile(r" *[\u2588-\u258f]+")


def ran(page: Path, folder: Path, server: Server) -> Iterator[tuple[Block | None, str]]:
    """What each command of the page printed, with the block in which the page shows it."""
    command: Block | None = None
    printed = ""
    for block in [*blocks(page), None]:
        if block is not None and block.language == ANSWER:
            yield block, printed
            command = None
            continue
        if command is not None:
            yield None, printed
            command = None
        if block is None:
            return
        if name := re.fullmatch(r"\w+ (\S+\.\S+)", block.language):
            (folder / name[1]).write_text(block.text)
        elif block.language == "sh" and "decided " in block.text:
            command, printed = block, output(block, folder, server)


def output(block: Block, folder: Path, server: Server) -> str:
    program = f"{sys.executable} -m decided"
    command = re.sub(r"(?m)(^|\| )decided ", rf"\1{program} ", block.text).replace(ADDRESS, server.url)
    done = subprocess.run(
        ["sh", "-ec", command], cwd=folder, capture_output=True, text=True, timeout=300, env=plain_environment()
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{block.page.name}:{block.line}\n{done.stderr}"
    return done.stdout


def plain_environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return environment() | DOCUMENTED | {"PYTHONPATH": path, "PYTHONUTF8": "1"}


@pytest.fixture(scope="module")
def default_server() -> Iterator[Server]:
    with documented_server() as running:
        yield running


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_commands_print_what_is_shown(page: Path, tmp_path: Path, default_server: Server) -> None:
    found = list(ran(page, tmp_path, default_server))
    assert any(block is not None for block, _ in found)
    for block, printed in found:
        if block is not None:
            here, there = (VERSIONS.sub("#", TIMES.sub("#", text)) for text in (printed, block.text))
            assert_alike(here, there, f"{page.name}:{block.line}")


def assert_alike(printed: str, shown: str, where: str) -> None:
    """The same text, but a figure that lies between two may be rounded to either, and its bar with it."""
    assert FIGURES.sub("#", BARS.sub("", printed)) == FIGURES.sub("#", BARS.sub("", shown)), where
    for real, said in zip(FIGURES.findall(printed), FIGURES.findall(shown), strict=True):
        digits, unit = said.rstrip("%").partition(".")[2], 100 if said.endswith("%") else 1
        near = 10 ** -len(digits) + AGREEMENT * unit
        assert float(real.rstrip("%")) == pytest.approx(float(said.rstrip("%")), rel=0, abs=near), where


def rewrite() -> None:
    import tempfile

    with documented_server() as server:
        for page in PAGES:
            with tempfile.TemporaryDirectory() as folder:
                found = [entry for entry in ran(page, Path(folder), server) if entry[0] is not None]
            lines = page.read_text().splitlines(keepends=True)
            for block, printed in reversed(found):
                assert block is not None
                if TIMES.sub("#", printed) != TIMES.sub("#", block.text):  # another time alone says nothing new
                    lines[block.line : block.line + block.text.count("\n")] = [printed]
            page.write_text("".join(lines))
