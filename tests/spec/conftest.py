"""Servers that the tests of the contract share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spec.checks import KEY
from tests.support.server import Server, running_server

SMALL_BODY = 2000


@pytest.fixture(scope="session")
def keyed() -> Iterator[Server]:
    """A server that requires KEY."""
    with running_server(env={"SERVICE_API_KEY": KEY}) as running:
        yield running


@pytest.fixture(scope="session")
def strict() -> Iterator[Server]:
    """A server that refuses for every reason: it has a key, one place and a low body limit."""
    env = {"SERVICE_API_KEY": KEY, "SERVICE_MAX_BODY_BYTES": str(SMALL_BODY)}
    with running_server("--max-in-flight", "1", env=env) as running:
        yield running


@pytest.fixture(scope="session")
def narrow() -> Iterator[Server]:
    """A server with one place and little time, whose model takes one question at a time."""
    flags = ("--max-in-flight", "1", "--request-timeout-s", "1")
    with running_server(*flags, env={"FAKE_TOKEN_BUDGET": "10"}) as running:
        yield running


@pytest.fixture(scope="session")
def one_by_one() -> Iterator[Server]:
    """A server with many places, whose model takes one question at a time."""
    with running_server(env={"FAKE_TOKEN_BUDGET": "10"}) as running:
        yield running


@pytest.fixture(scope="session")
def lifeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file without which the engine of the remote server cannot be reached."""
    path: Path = tmp_path_factory.mktemp("engine") / "alive"
    path.touch()
    return path


@pytest.fixture(scope="session")
def remote(lifeline: Path) -> Iterator[Server]:
    """A server with a remote engine."""
    with running_server("--model", f"fake-remote:{lifeline}", module="tests.spec.engines") as running:
        yield running
