"""The visitor was sent a link to the page, has never heard of an API, and stays a minute."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.page.browser import Playground, open_backend, pick
from tests.support.server import Server

MESSAGE = "Good morning. The kettle leaks. I want my money back. Kind regards, Tom"
WISH = "I want my money back."


@pytest.fixture
def page(browser: Browser, small: Server) -> Iterator[Playground]:
    with open_backend(browser, small.url, reduced_motion="no-preference") as playground:
        yield playground
        assert playground.troubles == []


def test_an_answer_is_there_before_anything_was_done(page: Playground) -> None:
    expect(page.answers.first.locator(".verdict")).to_have_text("billing")
    expect(page.page.get_by_text("Ask about any text.")).to_be_visible()


def test_a_text_of_their_own_and_why_it_was_answered_so(page: Playground) -> None:
    page.text.fill(MESSAGE)
    page.ask()
    refund = page.answers.last
    expect(refund.locator(".verdict")).to_have_text(re.compile("yes$"))
    with page.page.expect_response("**/v1/systemone"):
        page.page.get_by_label("Show what each answer rests on").check()
    expect(refund.locator("mark").first).to_have_text(WISH)
    refund.hover()
    expect(page.page.locator(".marks mark", has_text=WISH)).to_be_visible()
    expect(page.page.get_by_text("Marked: what refund rests on")).to_be_visible()


def test_a_question_of_their_own_and_what_is_missing_is_said(page: Playground) -> None:
    page.page.get_by_role("link", name="Start empty").click()
    page.ask_button.click()
    expect(page.text).to_have_accessible_description(re.compile("Write or paste a text first."))
    page.text.fill(MESSAGE)
    pick(page.page.get_by_role("radio", name="Yes/No"))
    page.page.get_by_label("Question", exact=True).fill("Is the kettle broken?")
    page.ask()
    expect(page.answers.locator(".verdict")).to_have_text(re.compile("yes|no"))
    expect(page.answers.locator(".confidence")).to_contain_text(re.compile(r"Confidence [01]\.\d\d: "))


def test_what_is_passed_on_opens_the_same_on_a_telephone(page: Playground, browser: Browser, small: Server) -> None:
    page.text.fill(MESSAGE)
    page.page.get_by_role("button", name="Copy link").click()
    expect(page.page.get_by_role("button", name="Link copied")).to_be_visible()
    link = page.clipboard().removeprefix(f"{small.url}/")
    with open_backend(browser, small.url, link, viewport={"width": 390, "height": 844}, has_touch=True) as telephone:
        expect(telephone.text).to_have_value(MESSAGE)
        telephone.ask_button.tap()
        expect(telephone.answers.first.locator(".verdict")).to_be_in_viewport()


def test_the_words_are_explained(page: Playground) -> None:
    page.page.get_by_role("link", name="Guide").click()
    for word in ("Probability and confidence", "What an answer rests on", "Many texts"):
        expect(page.page.get_by_role("heading", name=word)).to_be_visible()
    assert not re.search(r"logit|softmax|inference|tensor", page.page.locator("main").inner_text(), re.IGNORECASE)
