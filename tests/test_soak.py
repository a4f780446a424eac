"""A stretch of benchmarks/soak.py: nothing unanswered, no error that was not provoked, nothing left open."""

import subprocess
import sys

import pytest

from tests.support.server import ROOT


@pytest.mark.parametrize(
    "flags",
    [
        [
            "--module",
            "tests.support.fake_server",
            "--model",
            "fake",
            "--faults",
            "--minutes",
            "0.4",
            "--pause",
            "0.05",
        ],
        pytest.param(["--minutes", "1"], marks=pytest.mark.slow),
    ],
    ids=["failing model", "embedded"],
)
def test_mixed_traffic_does_no_harm(flags: list[str]) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "soak.py"), *flags]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "every target reached" in found.stdout
