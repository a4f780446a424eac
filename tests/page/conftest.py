"""One browser and one server for all tests of the page; a fresh window for each."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from decided.settings import Settings
from tests.page.browser import Playground, launched, open_backend
from tests.support.server import Server, running_server

KEY = "page-key-0123456789"
FOREIGN_KEY = "ключ-ç-鍵"  # as bytes, a key may be anything


@pytest.fixture(scope="package")  # not longer: while Playwright runs, no other event loop can
def browser() -> Iterator[Browser]:
    with launched() as running:
        yield running


@pytest.fixture(scope="package")
def served() -> Iterator[Server]:
    """A server as a newcomer starts it, with all the time that a slow machine may need."""
    with running_server("--model", Settings().model, "--request-timeout-s", "300", module="decided") as running:
        yield running


@pytest.fixture(scope="package")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks for one of two keys."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{KEY}\n{FOREIGN_KEY}\n")
    with running_server(env={"SERVICE_API_KEY_FILE": str(keys)}) as running:
        yield running


@pytest.fixture
def playground(browser: Browser, server: Server) -> Iterator[Playground]:
    """The page on its first example. Nothing may go wrong behind it. The model is the simulated one: it answers at
    once, and cuts a long text as the others do."""
    with open_backend(browser, server.url) as page:
        yield page
        assert page.troubles == []
