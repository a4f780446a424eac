"""What all tests share: one plain server, started once."""

from collections.abc import Iterator

import pytest

from tests.support.server import Server, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server with the fake model, default settings and no key."""
    with running_server() as running:
        yield running
