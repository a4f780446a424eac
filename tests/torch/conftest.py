"""Tiny networks on several threads spend their time on waking each other: here they have one."""

import importlib.util
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("torch") is not None:
            patch.setattr("decided.engines.torch.placement.physical_cores", lambda: 1)
        yield
