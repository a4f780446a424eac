"""Servers that the tests of the contract share."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.spec.checks import KEY
from tests.spec.engines import HOME
from tests.spec.fronts import fronts_for, is_left_out
from tests.support.server import OWN, Server, running_server

SMALL_BODY = 2000
Shared = Callable[..., Server]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that uses a server runs with each of the fronts that it makes sense with."""
    if "front" in metafunc.fixturenames:
        chosen = fronts_for(metafunc.function)
        ids = [pytest.HIDDEN_PARAM if front == OWN else front for front in chosen]
        metafunc.parametrize("front", chosen, ids=ids, indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not is_left_out(item.path.stem, item.name)]


@pytest.fixture(scope="session")
def front(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="session")
def shared() -> Iterator[Shared]:
    """The server that was started with the same arguments before, or a new one. Every file goes through all fronts, and
    with each change of it pytest makes the fixtures below anew: their servers are kept for the next file."""
    started: dict[str, Server] = {}
    with ExitStack() as running:

        def get(*flags: str, **more: Any) -> Server:
            key = repr((flags, sorted(more.items())))
            if key not in started:
                started[key] = running.enter_context(running_server(*flags, **more))
            return started[key]

        yield get


@pytest.fixture(scope="session")
def server(front: str, shared: Shared) -> Server:
    """A server with the fake model, default settings and no key. The one of all other tests has our own front alone."""
    return shared(front=front)


@pytest.fixture(scope="session")
def keyed(front: str, shared: Shared) -> Server:
    """A server that requires KEY."""
    return shared(env={"SERVICE_API_KEY": KEY}, front=front)


@pytest.fixture(scope="session")
def strict(front: str, shared: Shared) -> Server:
    """A server that refuses for every reason: it has a key, one place and a low body limit."""
    env = {"SERVICE_API_KEY": KEY, "SERVICE_MAX_BODY_BYTES": str(SMALL_BODY)}
    return shared("--max-in-flight", "1", env=env, front=front)


@pytest.fixture(scope="session")
def narrow(front: str, shared: Shared) -> Server:
    """A server with one place and little time, whose model takes one question at a time."""
    flags = ("--max-in-flight", "1", "--request-timeout-s", "1")
    return shared(*flags, env={"FAKE_TOKEN_BUDGET": "10"}, front=front)


@pytest.fixture(scope="session")
def single(front: str, shared: Shared) -> Server:
    """A server with one place and all the time, whose model takes one question at a time."""
    return shared("--max-in-flight", "1", env={"FAKE_TOKEN_BUDGET": "10"}, front=front)


@pytest.fixture(scope="session")
def one_by_one(front: str, shared: Shared) -> Server:
    """A server with many places, whose model takes one question at a time."""
    return shared(env={"FAKE_TOKEN_BUDGET": "10"}, front=front)


@pytest.fixture(scope="session")
def lifeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file without which the engine of the remote server cannot be reached."""
    path: Path = tmp_path_factory.mktemp("engine") / "alive"
    path.touch()
    return path


@pytest.fixture(scope="session")
def remote(lifeline: Path, front: str, shared: Shared) -> Server:
    """A server with a remote engine."""
    return shared("--model", f"fake-remote:{lifeline}", module=HOME, front=front)
