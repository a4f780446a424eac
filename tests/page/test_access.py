"""Usable by everybody: what axe finds, what a screen reader is told, small and dark screens."""

import re
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.page.browser import Playground, open_backend, pick
from tests.page.test_asking import LONG_STATE
from tests.support.server import Server

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing(browser: Browser, server: Server, scheme: str) -> None:
    """On the first look, with answers, with a warning, and with a refusal."""
    with open_backend(browser, server.url, color_scheme=scheme, reduced_motion="reduce") as playground:
        assert_accessible(playground)
        playground.ask()
        assert_accessible(playground)
        playground.state.fill(LONG_STATE)
        playground.ask()
        expect(playground.note).to_be_visible()
        assert_accessible(playground)
        pick(playground.page.get_by_role("radio", name="JSON").first)
        playground.ask_button.click()
        expect(playground.note).to_contain_text("not valid JSON")
        assert_accessible(playground)


def assert_accessible(playground: Playground) -> None:
    found = Axe().run(playground.page)
    assert found.violations_count == 0, found.generate_report()


def test_a_screen_reader_is_told_what_happened(playground: Playground) -> None:
    said = playground.page.get_by_role("status")
    playground.ask()
    expect(said).to_contain_text("3 answers in")
    expect(said).to_contain_text("team: ")
    expect(said).to_contain_text("confidence 0.")
    playground.page.get_by_role("button", name="Move down: option billing").click()
    expect(said).to_have_text("Moved option billing to place 2 of 4.")
    playground.page.get_by_role("button", name="Remove: option billing").click()
    expect(said).to_have_text("Removed option billing.")
    playground.page.get_by_role("link", name="Grading").click()
    expect(said).to_have_text("Example Grading.")


def test_landmarks_and_headings_tell_the_parts(playground: Playground) -> None:
    page = playground.page
    assert page.get_by_role("heading", level=1).all_inner_texts() == ["decided"]
    assert page.get_by_role("heading", level=2).all_inner_texts() == ["State", "Questions", "Answers", "Request"]
    for name in ("State", "Questions", "Answers", "Request"):
        expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()
    expect(page.get_by_role("navigation", name="Examples").get_by_role("link")).to_have_count(4)
    expect(page.get_by_role("list", name="Options of team").get_by_role("listitem")).to_have_count(4)


def test_nothing_sticks_out_at_any_width(playground: Playground) -> None:
    playground.question("team").get_by_label("Option 1", exact=True).fill("a_name_without_any_break_" * 5)
    playground.ask()
    for width in (320, 390, 768, 1024, 1920):
        playground.page.set_viewport_size({"width": width, "height": 800})
        assert playground.page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_narrow_screen_the_answers_come_into_view(browser: Browser, server: Server) -> None:
    with open_backend(browser, server.url, viewport={"width": 390, "height": 800}) as playground:
        expect(playground.page.get_by_role("heading", name="Answers")).not_to_be_in_viewport()
        playground.ask()
        expect(playground.page.get_by_role("heading", name="Answers")).to_be_in_viewport()


def test_light_and_dark_follow_the_system(playground: Playground) -> None:
    brightness = []
    for scheme in SCHEMES:
        playground.page.emulate_media(color_scheme=scheme)
        colour = playground.page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness.append(sum(map(int, re.findall(r"\d+", colour))))
    light, dark = brightness
    assert light > 600 > 150 > dark
