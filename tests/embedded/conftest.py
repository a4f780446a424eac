"""The embedded model itself, loaded once: what it answers is tested here, how it is served in tests/spec."""

from pathlib import Path

import pytest

import decided
from decided.engines.embedded import Embedded
from decided.hardware import multiplies_bytes_exactly

WEIGHTS = Path(decided.__file__).parent / "weights"


@pytest.fixture(scope="session")
def model() -> Embedded:
    if not multiplies_bytes_exactly():
        pytest.skip("this processor clips sums of bytes: the model runs in float32 here")
    return Embedded(WEIGHTS, exact=False, threads=1)


@pytest.fixture(scope="session")
def exact_model() -> Embedded:
    return Embedded(WEIGHTS, exact=True, threads=1)
