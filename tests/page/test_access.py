"""Usable by everybody: what axe finds, what a screen reader is told, small and dark screens."""

import re
from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.page.browser import Playground, open_backend, pick
from tests.page.test_asking import LONG_TEXT
from tests.support.gate import Gate
from tests.support.server import Server

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def test_axe_finds_nothing(browser: Browser, server: Server) -> None:
    """With answers, an open card, a warning, mistakes, a table, and in the guide."""
    with open_backend(browser, server.url, color_scheme="light") as playground:
        playground.question("team")
        playground.text.fill(LONG_TEXT)
        playground.ask()
        expect(playground.note).to_be_visible()
        assert_accessible(playground)
        playground.text.fill("")
        playground.question("team").get_by_label("Option 2", exact=True).fill("billing")
        playground.ask_button.click()
        assert_accessible(playground)
        playground.page.get_by_role("link", name="Many reviews").click()
        expect(playground.page.get_by_role("button", name="Download CSV")).to_be_visible()
        playground.settled()
        assert_accessible(playground)
        playground.page.get_by_role("link", name="Guide").click()
        expect(playground.page.get_by_role("heading", level=1)).to_have_text("Guide")
        assert_accessible(playground)
        assert playground.troubles == []


def assert_accessible(playground: Playground) -> None:
    """By all rules, and in the dark by the one that the colours can break."""
    found = Axe().run(playground.page)
    playground.page.emulate_media(color_scheme="dark")
    dark = Axe().run(playground.page, options={"runOnly": ["color-contrast"]})
    playground.page.emulate_media(color_scheme="light")
    assert (found.violations_count, dark.violations_count) == (0, 0), found.generate_report() + dark.generate_report()


def test_a_screen_reader_is_told_what_happened(playground: Playground) -> None:
    said = playground.page.get_by_role("status")
    expect(said).to_contain_text("3 answers in")
    expect(said).to_contain_text("team: ")
    expect(said).to_contain_text("confidence 0.")
    playground.question("team")
    playground.page.get_by_role("button", name="Move down: option billing").click()
    expect(said).to_have_text("Moved option billing to place 2 of 4.")
    playground.page.get_by_role("button", name="Remove: option billing").click()
    expect(said).to_have_text("Removed option billing.")
    with Gate() as gate:
        playground.text.fill(gate.state)
        playground.ask_button.click()
        expect(playground.page.get_by_role("progressbar", name="Waiting for the answers")).to_be_visible()
        playground.page.get_by_role("button", name="Stop").click()
        expect(said).to_have_text("Stopped.")


def test_landmarks_and_headings_tell_the_parts(playground: Playground) -> None:
    page = playground.page
    parts = ["Text", "Questions", "Answers", "Use it in your code"]
    assert page.get_by_role("heading", level=1).all_inner_texts() == ["decided"]
    assert page.get_by_role("heading", level=2).all_inner_texts() == parts
    for name in parts:
        expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()
    expect(page.get_by_role("navigation", name="Examples").get_by_role("link")).to_have_count(5)
    playground.question("team")
    expect(page.get_by_role("list", name="Options of team").get_by_role("listitem")).to_have_count(4)


def test_the_guide_and_the_api_document_are_there(playground: Playground, server: Server) -> None:
    links = playground.page.get_by_role("navigation", name="Documents").get_by_role("link")
    expect(links).to_have_text(["Guide", "API document"])
    for address in links.evaluate_all("all => all.map(link => link.href)"):
        assert server.get(address.removeprefix(server.url)).status == 200
    playground.page.get_by_role("link", name="Guide").click()
    playground.page.get_by_role("link", name="Back to the page").click()
    expect(playground.answers).to_have_count(3)


def test_nothing_sticks_out_at_any_width(playground: Playground) -> None:
    unbroken = "a_name_without_any_break_" * 5
    playground.question("team").get_by_label("Option 1", exact=True).fill(unbroken)
    playground.ask()
    no_scrolling(playground)
    pick(playground.page.get_by_role("radio", name="Many texts"))
    playground.text.fill(f"{unbroken}\nAnother.")
    playground.ask()
    expect(playground.page.get_by_role("button", name="Download CSV")).to_be_visible()
    no_scrolling(playground)
    playground.page.get_by_role("link", name="Guide").click()
    no_scrolling(playground)


def no_scrolling(playground: Playground) -> None:
    for width in (320, 390, 768, 1024, 1920):
        playground.page.set_viewport_size({"width": width, "height": 800})
        assert playground.page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_telephone_the_answer_is_on_the_first_screen(browser: Browser, server: Server) -> None:
    with open_backend(browser, server.url, viewport={"width": 390, "height": 844}, has_touch=True) as playground:
        verdicts = playground.page.locator(".verdict")
        expect(verdicts.first).to_be_in_viewport(ratio=1)
        playground.question("team")
        expect(verdicts.first).not_to_be_in_viewport()
        playground.ask()
        expect(playground.page.get_by_role("heading", name="Answers")).to_be_in_viewport(ratio=1)
        expect(verdicts.nth(1)).to_be_in_viewport(ratio=1)


def test_light_and_dark_follow_the_system(playground: Playground) -> None:
    brightness = []
    for scheme in SCHEMES:
        playground.page.emulate_media(color_scheme=scheme)
        colour = playground.page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness.append(sum(map(int, re.findall(r"\d+", colour))))
    light, dark = brightness
    assert light > 600 > 150 > dark
