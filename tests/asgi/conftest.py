"""The application sets up logging where nobody has: here nobody has, whatever ran in this process before."""

import logging
from collections.abc import Iterator

import pytest


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
