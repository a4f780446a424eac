"""The fake model, and logging as in a process where nobody has set it up: the application does so then."""

import logging
from collections.abc import Iterator

import pytest

from decided.engines.api import KINDS
from tests.support.fake_model import FakeModel


@pytest.fixture(autouse=True)
def unconfigured_logging() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger("decided")]
    before = [(list(logger.handlers), logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers.clear()
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers[:] = handlers
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def fake_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake model, which takes one question at a time."""
    monkeypatch.setitem(KINDS, "fake", "tests.support.fake_model")
    monkeypatch.setattr(FakeModel, "token_budget", 10)
