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

LONGEST = """
    test_worded test_causal test_features
    test_docs_commands test_invariance test_teach test_batch_stream test_llamacpp test_bounds test_faults test_fuzz
    test_conformance test_limits test_sharing test_many test_run_resumed test_product_owner test_capacity test_docs
    test_editing test_outcomes test_backend_developer test_servers test_asking test_evidence test_lifecycle
    test_strangers test_soak test_differential
""".split()  # noqa: SIM905
"""Files are begun in this order: one that takes long and comes last would keep one core busy while others are idle."""

ELSEWHERE = {"page", "personas", "spec", "test_bounds", "test_faults", "test_fuzz"}
"""Folders and files of tests that reach our code in other processes alone. To trace their own would find nothing, and
would have the libraries of their clients run at a third of their speed."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))
    for item in items:
        if ELSEWHERE & {item.path.parent.name, item.path.stem}:
            item.add_marker("no_cover")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server with the fake model, default settings and no key."""
    with running_server() as running:
        yield running
