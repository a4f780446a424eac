"""A real browser: the Chromium of the machine, driven by Playwright, which brings none of its own."""

import base64
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect, sync_playwright

REQUIRED = "DECIDED_TEST_BROWSER"
PATIENCE_S = 120.0
"""As long as the servers of these tests may take: no test hangs on the speed of the machine."""

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is the same browser without its own windows: a page costs it a third of the work."""
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A second name for this machine, which a browser does not trust as it trusts the first.
    "--host-resolver-rules=MAP decided.test 127.0.0.1",
)
_REPORT_VIOLATIONS = """addEventListener("securitypolicyviolation",
    (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`))"""


def chromium() -> str:
    """Where the browser is. Without one a test is skipped, or fails where one is required."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        assert not os.environ.get(REQUIRED), f"{REQUIRED} is set and there is no Chromium"
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    return found


@contextmanager
def launched() -> Iterator[Browser]:
    expect.set_options(timeout=1000 * PATIENCE_S)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def pick(radio: Locator) -> None:
    """Choose a radio button by key: its label covers it, and a click may miss while the page above it still grows."""
    radio.press("Space")
    expect(radio).to_be_checked()


def link_to(draft: dict[str, Any]) -> str:
    """The fragment of a link that brings a draft."""
    return "#draft=" + base64.urlsafe_b64encode(json.dumps(draft).encode()).decode().rstrip("=")


class Playground:
    """The page as a person uses it, in a window of its own with nothing kept from others."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.troubles: list[str] = []
        """All that went wrong behind the page: errors of scripts, the policy, requests to anywhere else."""
        page.add_init_script(_REPORT_VIOLATIONS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("request", self._on_request)

    def _on_console(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.troubles.append(said.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith(f"{self.url}/"):
            self.troubles.append(f"a request to {request.url}")

    def open(self, fragment: str = "") -> None:
        """Go there. An example comes with its answers; what a link brings waits to be asked."""
        self.page.goto(f"{self.url}/{fragment}")
        if not fragment.startswith(("#draft=", "#new")):
            self.page.locator("article, .note, table").first.wait_for()
        self.settled()

    @property
    def ask_button(self) -> Locator:
        return self.page.get_by_role("button", name="Ask", exact=True)

    @property
    def text(self) -> Locator:
        return self.page.get_by_role("textbox", name="Text", exact=True)

    @property
    def key(self) -> Locator:
        return self.page.get_by_label("API key")

    @property
    def answers(self) -> Locator:
        return self.page.get_by_role("article")

    @property
    def note(self) -> Locator:
        return self.page.locator(".note")

    def ask(self) -> None:
        """Press the button, and wait until the reply is shown."""
        with self.page.expect_response("**/v1/systemone**"):
            self.ask_button.click()
        self.settled()

    def settled(self) -> None:
        self.ask_button.and_(self.page.locator(":not([aria-busy])")).wait_for()

    def question(self, name: str) -> Locator:
        """The card of a question, open."""
        card = self.page.locator(".card").filter(has=self.page.locator(".card-name", has_text=re.compile(f"^{name}$")))
        if card.locator("[aria-expanded]").get_attribute("aria-expanded") == "false":
            card.locator("[aria-expanded]").click()
        return card

    def request(self, form: str = "JSON") -> str:
        """What the copy button gives."""
        pick(self.page.get_by_role("group", name="Form of the code").get_by_role("radio", name=form))
        self.page.evaluate("navigator.clipboard.writeText('')")
        self.page.locator(".actions").get_by_role("button").first.click()
        self.page.wait_for_function("async () => await navigator.clipboard.readText() !== ''")
        return self.clipboard()

    def body(self) -> Any:
        return json.loads(self.request())

    def clipboard(self) -> str:
        return str(self.page.evaluate("navigator.clipboard.readText()"))


@contextmanager
def open_backend(browser: Browser, url: str, fragment: str = "", **context: Any) -> Iterator[Playground]:
    """Nothing moves there unless a test wants it to: a click waits until its target stands still."""
    still = {"reduced_motion": "reduce"} | context
    window = browser.new_context(permissions=["clipboard-read", "clipboard-write"], **still)
    window.set_default_timeout(1000 * PATIENCE_S)
    try:
        playground = Playground(window.new_page(), url)
        playground.open(fragment)
        yield playground
    finally:
        window.close()
