"""The embedded model itself, loaded once: what it answers is tested here, how it is served in tests/spec."""

from pathlib import Path

import pytest

import decided
from decided.engines.embedded.model import Embedded
from decided.hardware import multiplies_bytes_exactly

WEIGHTS = Path(decided.__file__).parent / "weights"


@pytest.fixture(scope="session")
def rounded_model() -> Embedded:
    """With 8 bits, on the processors that serve it so."""
    if not multiplies_bytes_exactly():
        pytest.skip("needs a processor that multiplies bytes exactly: VNNI on x86, any ARM")
    return Embedded(WEIGHTS, exact=False, threads=1)


@pytest.fixture(scope="session")
def exact_model() -> Embedded:
    """In float32, on every processor."""
    return Embedded(WEIGHTS, exact=True, threads=1)


@pytest.fixture(scope="session")
def model(request: pytest.FixtureRequest) -> Embedded:
    """As this processor serves it when nothing else is asked for."""
    chosen = "rounded_model" if multiplies_bytes_exactly() else "exact_model"
    loaded: Embedded = request.getfixturevalue(chosen)
    return loaded
