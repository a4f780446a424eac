"""Servers and a clean environment for the tests of real clients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from decided import Client
from tests.clients.common import KEY
from tests.clients.own import Make, Waiting
from tests.support.server import Server, running_server


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No client reads a setting, a proxy or a `.env` file that the test did not give it."""
    for name in list(os.environ):
        if name.startswith(("TYPESAFE_", "SYSTEM_ONE_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def keyed() -> Iterator[Server]:
    """A server that requires KEY."""
    with running_server(env={"SERVICE_API_KEY": KEY}) as server:
        yield server


@pytest.fixture(scope="session")
def tight() -> Iterator[Server]:
    """A server with a single place."""
    with running_server("--max-in-flight", "1") as server:
        yield server


@pytest.fixture(scope="module")
def small() -> Iterator[Server]:
    """A server that requires KEY, with one place and a low body limit."""
    env = {"SERVICE_API_KEY": KEY, "SERVICE_MAX_BODY_BYTES": "2000"}
    with running_server("--max-in-flight", "1", env=env) as running:
        yield running


@pytest.fixture(params=[Client, Waiting], ids=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Make:
    """Our own client, of either kind."""
    kind: Make = request.param
    return kind
