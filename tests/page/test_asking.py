"""Asking from the page: the examples, what is shown of the answers, keys, warnings and refusals."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.page.browser import Playground, open_backend, pick
from tests.page.conftest import FOREIGN_KEY, KEY
from tests.support.gate import Gate
from tests.support.server import Server, running_server

EXAMPLES = {"Triage": "triage", "Moderation": "moderation", "Tool routing": "routing", "Grading": "grading"}
LONG_STATE = "word " * 30_000


@pytest.mark.parametrize("title", EXAMPLES)
def test_example_is_asked_and_its_answers_are_shown(playground: Playground, server: Server, title: str) -> None:
    playground.page.get_by_role("link", name=title).click()
    assert playground.page.url.endswith(f"#{EXAMPLES[title]}")
    playground.ask()
    body = playground.body()
    answers = server.request("POST", "/v1/systemone", body).json["answers"]
    assert len(answers) == playground.answers.count() >= 3
    for card, (name, answer) in zip(playground.answers.all(), answers.items(), strict=True):
        expect(card.get_by_role("heading")).to_have_text(name)
        expect(card.locator(".confidence")).to_contain_text(f"{answer['confidence']:.2f}")
        expect(card.locator(".verdict")).to_contain_text(verdict(answer))
        shown = dict(zip(card.locator(".bar-name").all_inner_texts(), bars(card.locator(".bar-share")), strict=True))
        labels = LETTERS[answer["type"]](answer)
        assert shown == pytest.approx({labels[key]: 100 * p for key, p in answer["probabilities"].items()}, abs=0.06)
        if answer["type"] == "choice":
            assert list(shown.values()) == sorted(shown.values(), reverse=True)
        widths = card.locator(".track").evaluate_all(
            "all => all.map(track => 100 * track.firstChild.getBoundingClientRect().width / track.clientWidth)"
        )
        assert widths == pytest.approx(list(shown.values()), abs=3)
        best = max(answer["probabilities"], key=answer["probabilities"].__getitem__)
        expect(card.locator(".top .bar-name")).to_have_text(labels[best])


LETTERS: dict[str, Callable[[dict[str, Any]], dict[str, str]]] = {
    "choice": lambda answer: {name: name for name in answer["probabilities"]},
    "score": lambda answer: {level: f"{level} · {label}" for level, label in answer["legend"].items()},
    "noul": lambda answer: {"true": "yes", "false": "no"},
}


def verdict(answer: dict[str, Any]) -> str:
    if answer["type"] == "score":
        return f"{answer['legend'][str(answer['level'])]} score {answer['score']:.2f} of {len(answer['legend']) - 1}"
    return str(answer["choice"]) if answer["type"] == "choice" else "yes" if answer["noul"] >= 0.5 else "no"


def bars(shares: Any) -> list[float]:
    return [float(text.removesuffix("%")) for text in shares.all_inner_texts()]


def test_latency_tokens_and_model_are_shown(playground: Playground, server: Server) -> None:
    playground.ask()
    names = playground.page.locator(".figures dt").all_inner_texts()
    figures = dict(zip(names, playground.page.locator(".figures dd").all_inner_texts(), strict=True))
    reply = server.request("POST", "/v1/systemone", playground.body()).json
    assert re.fullmatch(r"[\d.,]+ ms", figures["Latency"])
    assert figures["Tokens read"] == str(reply["usage"]["input_tokens"])
    assert figures["Tokens written"] == str(reply["usage"]["output_tokens"])
    assert figures["Model"] == reply["model"]
    expect(playground.page.locator("header.head")).to_contain_text(reply["model"])


def test_a_state_that_was_cut_gives_a_warning(playground: Playground) -> None:
    playground.ask()
    expect(playground.note).to_have_count(0)
    playground.state.fill(LONG_STATE)
    playground.ask()
    expect(playground.note).to_contain_text("The model could not read everything")
    expect(playground.note).to_contain_text(re.compile(r"the model read \d+ of (about )?\d+ tokens of the state"))
    expect(playground.note.get_by_role("listitem")).to_have_count(3)
    expect(playground.page.locator(".badge")).to_have_count(3)


def test_answers_to_an_earlier_draft_say_so(playground: Playground) -> None:
    playground.ask()
    expect(playground.page.get_by_text("Changed since this was asked")).to_have_count(0)
    playground.state.fill("Something else.")
    expect(playground.page.get_by_text("Changed since this was asked")).to_be_visible()
    playground.ask()
    expect(playground.page.get_by_text("Changed since this was asked")).to_have_count(0)


# --- keys ---


def test_a_wrong_key_and_then_the_right_one(browser: Browser, keyed: Server) -> None:
    with open_backend(browser, keyed.url) as playground:
        for key in ("", "wrong"):
            playground.key.fill(key)
            playground.ask()
            expect(playground.note).to_contain_text("Refused with 401")
            expect(playground.note).to_contain_text("missing or wrong API key")
            expect(playground.key).to_be_focused()
            assert playground.key.get_attribute("aria-invalid") == "true"
            expect(playground.key).to_have_accessible_description("The server asks for a valid key.")
        for key in (KEY, FOREIGN_KEY):
            playground.key.fill(key)
            playground.ask()
            expect(playground.answers).to_have_count(3)
        assert [line for line in playground.troubles if "status of 401" not in line] == []


def test_the_key_is_kept_nowhere(browser: Browser, keyed: Server) -> None:
    with open_backend(browser, keyed.url) as playground:
        playground.key.fill(KEY)
        playground.ask()
        playground.page.get_by_role("link", name="Grading").click()
        expect(playground.key).to_have_value(KEY)
        kept = playground.page.evaluate(
            "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, history.state, location.href])"
        )
        assert KEY not in kept
        playground.page.reload()
        expect(playground.key).to_have_value("")
        assert playground.troubles == []


# --- refusals ---


def test_what_the_server_refuses_is_shown_in_its_words(playground: Playground) -> None:
    playground.state.fill("x" * 200_001)
    playground.ask()
    expect(playground.note).to_contain_text("Refused with 422")
    expect(playground.note).to_contain_text("state is too long: 200001 characters, at most 200000")
    expect(playground.note).to_contain_text(re.compile("Request [0-9a-f]{32}"))
    assert [line for line in playground.troubles if "422" not in line] == []
    playground.troubles.clear()


def test_a_state_that_is_no_json_is_not_sent(playground: Playground) -> None:
    pick(playground.page.get_by_role("radio", name="JSON").first)
    expect(playground.page.locator("#state-notes")).to_contain_text("Not valid JSON")
    assert playground.state.get_attribute("aria-invalid") == "true"
    playground.ask_button.click()
    expect(playground.note).to_contain_text("The state is not valid JSON")
    playground.state.fill('{"a": [1, null]}')
    expect(playground.page.locator("#state-notes")).not_to_contain_text("Not valid")
    playground.ask()
    expect(playground.answers).to_have_count(3)


def test_a_server_that_is_gone(browser: Browser) -> None:
    with running_server() as server, open_backend(browser, server.url) as playground:
        server.stop()
        playground.ask_button.click()
        expect(playground.note).to_contain_text("The server cannot be reached")


def test_only_the_last_of_two_askings_is_shown(browser: Browser) -> None:
    with running_server() as server, open_backend(browser, server.url) as playground, Gate() as gate:
        playground.state.fill(gate.state)
        playground.ask_button.click()
        expect(playground.page.get_by_role("button", name="Asking…")).to_be_visible()
        playground.state.fill("quick")
        with playground.page.expect_event("requestfailed"):  # the first is given up
            playground.page.keyboard.press("Control+Enter")
        gate.open()
        expect(playground.answers).to_have_count(3)
        expect(playground.page.get_by_text("Changed since this was asked")).to_have_count(0)
        expect(playground.ask_button).to_be_visible()
        assert playground.troubles == []
