"""Sessions that share their weights: the same bits, in memory once, and where nothing can be written, all the same."""

import logging
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from decided.contract.types import Noul
from decided.engines.embedded.model import Embedded
from decided.engines.embedded.sessions import sessions
from decided.engines.embedded.weights import locate

FOLDER = locate("small")
GRAPHS = ("model.onnx", "exact.onnx")
QUESTION = Noul("Is the parcel late?")


def at_home(folder: Path) -> dict[str, str]:
    """An environment in which all that a program leaves behind is left in one folder."""
    return dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(folder))


def answer(model: Embedded) -> list[list[list[float]]]:
    """By the session of one thread, then by that of all."""
    found: list[list[list[float]]] = []
    for wide in (False, True):
        [item] = model.encode(model.prepare([QUESTION]), "The parcel came on Friday, two days after the party.").items
        weights = model._go_on(item, wide)
        assert isinstance(weights, list)
        found += [weights]
    return found


@pytest.mark.parametrize("exact", [False, True])
def test_alone_and_together_they_give_the_same_bits(exact: bool) -> None:
    [alone, again], together = answer(Embedded(FOLDER, exact, 1)), answer(Embedded(FOLDER, exact, 3))
    assert alone == again
    assert together == [alone, alone]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads what Linux tells of memory")
@pytest.mark.parametrize("graph", GRAPHS)
def test_two_keep_the_weights_in_memory_once_and_leave_no_file(graph: str, tmp_path: Path) -> None:
    """What two of them take of their own is less than the weights; those are in a file that has lost its name."""
    program = f"""
import re
from pathlib import Path
from decided.engines.embedded.sessions import sessions

def own():
    return int(re.search(r"Anonymous: +(\\d+)", Path("/proc/self/smaps_rollup").read_text())[1]) * 1024

before = own()
kept = sessions(Path({str(FOLDER / graph)!r}), 2)
mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "/weights (deleted)" in line]
print(own() - before, len(mapped))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=at_home(tmp_path), capture_output=True, text=True, check=True
    )
    grown, mapped = map(int, done.stdout.split())
    packed = 21 * 10**6 * (1 if graph == "model.onnx" else 4)  # of 33 million parameters 21 are multiplied with
    assert grown < packed * 1.5, "a copy that is not shared, or more"
    assert mapped >= 2
    assert list(tmp_path.iterdir()) == []


def test_nobody_is_told_and_nothing_is_written_down(tmp_path: Path) -> None:
    """ONNX Runtime would keep an id of this machine and a list of events, to be sent."""
    program = f"""
import time
from decided.engines.embedded.sessions import sessions, Path
kept = sessions(Path({str(FOLDER / "model.onnx")!r}), 2)
time.sleep(1)
"""
    subprocess.run([sys.executable, "-c", program], env=at_home(tmp_path), check=True)
    assert list(tmp_path.rglob("*")) == []


def test_where_nothing_can_be_written_each_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with caplog.at_level(logging.INFO, "decided.embedded"):
        found = answer(Embedded(FOLDER, False, 2))
    assert found[0] == found[1]
    assert "keeps the weights in memory for itself" in caplog.text


def test_a_disk_that_is_full_is_no_reason_to_fail() -> None:
    """A bound on the size of a file, reached half way."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limits[1]))
    try:
        narrow, wide = sessions(FOLDER / "model.onnx", 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [each.name for each in narrow.get_inputs()] == [each.name for each in wide.get_inputs()]
    assert np.prod(narrow.get_outputs()[1].shape[1:3]) == 384


def test_packed_weights_off_a_cache_line_are_not_shared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As they lay behind a table of 30,522 floats: processors with AVX-512 read them aligned, and the process ended."""
    graph = (FOLDER / "model.onnx").read_bytes()
    rows, length = b"\x08\xc0\xee\x01", b"122112"  # 30,528 as ONNX writes it, and in bytes
    assert graph.count(rows) == graph.count(length) == 1
    crooked = tmp_path / "model.onnx"
    crooked.write_bytes(graph.replace(rows, b"\x08\xba\xee\x01").replace(length, b"122088"))
    shutil.copy(FOLDER / "weights.bin", tmp_path)
    with caplog.at_level(logging.INFO, "decided.embedded"):
        sessions(FOLDER / "model.onnx", 2)
        assert caplog.text == ""
        sessions(crooked, 2)
    assert "packed weights that do not begin at cache lines" in caplog.text
