"""What all tests share: one plain server, started once."""

import signal
from collections.abc import Iterator

import pytest

from tests.support.server import Server, running_server

pytest.register_assert_rewrite("tests.conformance", "tests.spec.checks", "tests.spec.wire")  # so that they say why

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # tests run in the background: processes they start would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server with the fake model, default settings and no key."""
    with running_server() as running:
        yield running
