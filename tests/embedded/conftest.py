"""The embedded model itself, loaded once: what it answers is tested here, how it is served in tests/spec."""

from pathlib import Path

import pytest

import decided
from decided.engines.embedded import Embedded

WEIGHTS = Path(decided.__file__).parent / "weights"


@pytest.fixture(scope="session")
def model() -> Embedded:
    return Embedded(WEIGHTS, exact=False, threads=1)


@pytest.fixture(scope="session")
def exact_model() -> Embedded:
    return Embedded(WEIGHTS, exact=True, threads=1)
