"""How the tests of the PyTorch kinds run: on one thread, and traced in their own process alone."""

import importlib.util
import os
from collections.abc import Iterator

import pytest

from tests.support.server import TRACED


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny networks on several threads spend their time on waking each other."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("torch") is not None:
            patch.setattr("decided.engines.torch.placement.physical_cores", lambda: 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def untraced_processes() -> Iterator[None]:
    """What the processes that these tests start run of the PyTorch kinds, the tests run too, and tracing makes the
    import of PyTorch slow."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(TRACED)]:
            patch.delenv(name)
        yield
