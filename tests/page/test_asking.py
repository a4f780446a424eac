"""Asking from the page: what is shown of the answers, of doubt, of waiting, of keys and of refusals."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.page.browser import Playground, link_to, open_backend, pick
from tests.page.conftest import FOREIGN_KEY, KEY
from tests.support.gate import Gate
from tests.support.server import Server, running_server

EXAMPLES = {"Triage": "triage", "Moderation": "moderation", "Tool routing": "routing"}
LONG_TEXT = "word " * 5_000  # the simulated model reads a thousand
UNSURE = 0.5

Answer = dict[str, Any]
LABELS: dict[str, Callable[[Answer], dict[str, str]]] = {
    "choice": lambda answer: {name: name for name in answer["probabilities"]},
    "score": lambda answer: {level: f"{level} · {label}" for level, label in answer["legend"].items()},
    "noul": lambda answer: {"true": "yes", "false": "no"},
}


def test_the_first_sight_is_an_answered_example(playground: Playground) -> None:
    expect(playground.answers).to_have_count(3)
    expect(playground.page.get_by_text("Example", exact=True)).to_be_visible()
    expect(playground.page.get_by_role("link", name="Triage")).to_have_attribute("aria-current", "true")
    expect(playground.key).to_have_count(0)
    playground.text.fill("Something of my own.")
    expect(playground.page.get_by_text("Example", exact=True)).to_have_count(0)


@pytest.mark.parametrize("title", EXAMPLES)
def test_the_answers_are_those_of_the_server(playground: Playground, server: Server, title: str) -> None:
    playground.page.get_by_role("link", name=title).click()
    assert playground.page.url.endswith(f"#{EXAMPLES[title]}")
    body = playground.body()
    answers = server.request("POST", "/v1/systemone", body).json["answers"]
    assert len(answers) == 3
    expect(playground.answers.get_by_role("heading")).to_have_text(list(answers))
    for card, answer in zip(playground.answers.all(), answers.values(), strict=True):
        expect(card.locator(".confidence")).to_contain_text(f"Confidence {answer['confidence']:.2f}")
        shown = dict(zip(card.locator(".bar-name").all_inner_texts(), bars(card.locator(".bar-share")), strict=True))
        labels = LABELS[answer["type"]](answer)
        assert shown == pytest.approx({labels[key]: 100 * p for key, p in answer["probabilities"].items()}, abs=0.06)
        if answer["type"] == "choice":
            assert list(shown.values()) == sorted(shown.values(), reverse=True)
        widths = card.locator(".track").evaluate_all(
            "all => all.map(track => 100 * track.firstChild.getBoundingClientRect().width / track.clientWidth)"
        )
        assert widths == pytest.approx(list(shown.values()), abs=3)
        best = max(answer["probabilities"], key=answer["probabilities"].__getitem__)
        expect(card.locator(".top .bar-name")).to_have_text(labels[best])
        if answer["type"] == "score":
            expect(card.locator(".verdict")).to_contain_text(f"expected level {answer['score']:.2f} of")


def bars(shares: Any) -> list[float]:
    return [float(text.removesuffix("%")) for text in shares.all_inner_texts()]


def test_time_model_and_tokens_are_shown(playground: Playground, server: Server) -> None:
    reply = server.request("POST", "/v1/systemone", playground.body()).json
    tokens = reply["usage"]["input_tokens"]
    expect(playground.page.locator(".figures")).to_have_text(
        re.compile(rf"[\d.,]+ ms · {reply['model']} · {tokens} tokens read")
    )
    expect(playground.page.get_by_role("contentinfo")).to_contain_text(reply["model"])


# --- doubt ---


def text_with(server: Server, question: dict[str, Any], wanted: Callable[[Answer], bool]) -> str:
    """A text to which the simulated model gives an answer of that kind."""
    for number in range(500):
        answer = server.ask(f"text {number}", {"q": question}).json["answers"]["q"]
        if wanted(answer):
            return f"text {number}"
    raise AssertionError("no such text")


def test_an_unsure_answer_looks_unsure(playground: Playground, server: Server) -> None:
    question = playground.body()["questions"]["urgency"]

    def torn(answer: Answer) -> bool:
        first, second, third = answer["probabilities"].values()
        return bool(answer["confidence"] < UNSURE and max(first, third) < second / 2.5)

    def between(answer: Answer) -> bool:
        first, second, third = answer["probabilities"].values()
        return bool(answer["confidence"] < UNSURE and third > second > 0.6 * third and first < 0.4 * third)

    card = playground.answers.nth(1)
    playground.text.fill(text_with(server, question, between))
    playground.ask()
    expect(card.locator(".verdict")).to_contain_text("Unsure: in the next few days or today")
    expect(card.locator(".surety")).to_have_text("unsure")
    playground.text.fill(text_with(server, question, torn))
    playground.ask()
    expect(card.locator(".verdict")).to_contain_text("Unsure: perhaps in the next few days")
    soft, strong = (
        card.locator(".verdict").evaluate("each => [getComputedStyle(each).color, getComputedStyle(each).fontWeight]"),
        playground.page.locator("h2").first.evaluate(
            "each => [getComputedStyle(each).color, getComputedStyle(each).fontWeight]"
        ),
    )
    assert soft[0] != strong[0]
    assert int(soft[1]) < int(strong[1])


def test_a_sure_answer_stands_alone_and_its_confidence_is_explained(playground: Playground, server: Server) -> None:
    question = playground.body()["questions"]["refund"]
    text = text_with(server, question, lambda answer: bool(answer["confidence"] > 0.8))
    answer = server.ask(text, {"q": question}).json["answers"]["q"]
    share = max(answer["probabilities"].values())
    playground.text.fill(text)
    playground.ask()
    card = playground.answers.nth(2)
    expect(card.locator(".verdict")).to_have_text("yes" if answer["noul"] >= 0.5 else "no")
    expect(card.locator(".surety")).to_have_text("sure")
    expect(card.locator(".confidence")).to_have_text(
        f"Confidence {answer['confidence']:.2f}: {100 * share:.1f}%, where a guess would have 50%."
    )


# --- texts that are long, and texts that have changed ---


def test_a_text_that_was_cut_gives_a_warning(playground: Playground) -> None:
    expect(playground.note).to_have_count(0)
    playground.text.fill(LONG_TEXT)
    playground.ask()
    expect(playground.note).to_contain_text("The model could not read everything")
    expect(playground.note).to_contain_text(re.compile(r"the model read \d+ of (about )?\d+ tokens of the state"))
    expect(playground.note.get_by_role("listitem")).to_have_count(3)
    expect(playground.page.get_by_text("text cut")).to_have_count(3)


def test_answers_to_an_earlier_draft_say_so(playground: Playground) -> None:
    expect(playground.page.get_by_text("Changed since this was asked")).to_have_count(0)
    playground.text.fill("Something else.")
    expect(playground.page.get_by_text("Changed since this was asked")).to_be_visible()
    playground.ask()
    expect(playground.page.get_by_text("Changed since this was asked")).to_have_count(0)


def test_a_long_text_shows_that_it_is_read_and_can_be_stopped(playground: Playground) -> None:
    under_way = playground.page.get_by_role("progressbar", name=re.compile(r"Reading 10,\d+ characters"))
    with Gate() as gate:
        playground.text.fill(gate.state + " word" * 2000)
        playground.ask_button.click()
        expect(under_way).to_be_visible()
        expect(playground.answers).to_have_count(0)
        expect(playground.page.get_by_text(re.compile(r"\d+ seconds?$"))).to_be_visible()
        with playground.page.expect_event("requestfailed"):
            playground.page.get_by_role("button", name="Stop").click()
        expect(under_way).to_have_count(0)
        expect(playground.ask_button).to_be_visible()
        playground.ask_button.click()
        expect(under_way).to_be_visible()
        gate.open()
        expect(playground.answers).to_have_count(3)
        expect(under_way).to_have_count(0)


def test_only_the_last_of_two_askings_is_shown(playground: Playground) -> None:
    with Gate() as gate:
        playground.text.fill(gate.state)
        playground.ask_button.click()
        expect(playground.page.get_by_role("button", name="Asking…")).to_be_visible()
        playground.text.fill("quick")
        with playground.page.expect_event("requestfailed"):  # the first is given up
            playground.page.keyboard.press("Control+Enter")
        gate.open()
        expect(playground.answers).to_have_count(3)
        expect(playground.page.get_by_text("Changed since this was asked")).to_have_count(0)
        expect(playground.ask_button).to_be_visible()


# --- keys ---


def test_the_key_is_asked_for_when_the_server_does(browser: Browser, keyed: Server) -> None:
    with open_backend(browser, keyed.url) as playground:
        expect(playground.note).to_contain_text("This server asks for a key")
        expect(playground.key).to_be_visible()
        expect(playground.key).not_to_be_focused()  # nobody pressed anything yet
        playground.ask()
        expect(playground.key).to_be_focused()
        playground.key.fill("wrong")
        expect(playground.key).not_to_have_attribute("aria-invalid", "true")  # nobody asked with it yet
        expect(playground.note).to_contain_text("This server asks for a key")
        playground.ask()
        expect(playground.note).to_contain_text("This key is not accepted")
        expect(playground.note).to_contain_text("Check it, and ask again.")
        expect(playground.key).to_be_focused()
        assert playground.key.get_attribute("aria-invalid") == "true"
        expect(playground.key).to_have_accessible_description(re.compile("The server does not know this key."))
        for key in (KEY, FOREIGN_KEY):
            playground.key.fill(key)
            playground.ask()
            expect(playground.answers).to_have_count(3)
        with playground.page.expect_download() as saved:
            playground.page.get_by_role("link", name="API document").click()
        assert json.loads(saved.value.path().read_text())["openapi"].startswith("3.")
        assert [line for line in playground.troubles if "status of 401" not in line] == []


def test_a_wrong_key_is_told_from_none_with_many_texts_too(browser: Browser, keyed: Server) -> None:
    with open_backend(browser, keyed.url, "#reviews") as playground:
        expect(playground.note).to_contain_text("This server asks for a key")
        playground.key.fill("wrong")
        playground.ask()
        expect(playground.note).to_contain_text("This key is not accepted")
        playground.key.fill("")
        playground.ask()
        expect(playground.note).to_contain_text("This server asks for a key")


def test_the_key_is_kept_nowhere(browser: Browser, keyed: Server) -> None:
    with open_backend(browser, keyed.url) as playground:
        playground.key.fill(KEY)
        with playground.page.expect_response("**/v1/systemone"):
            playground.key.press("Enter")
        expect(playground.answers).to_have_count(3)
        playground.page.get_by_role("link", name="Moderation").click()
        expect(playground.answers.first.get_by_role("heading")).to_have_text("kind")
        expect(playground.key).to_have_value(KEY)
        kept = playground.page.evaluate(
            "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, history.state, location.href])"
        )
        assert KEY not in kept
        playground.page.reload()
        expect(playground.key).to_have_value("")


# --- refusals ---


def test_what_the_server_refuses_is_shown_in_its_words(browser: Browser, server: Server) -> None:
    options = [{"name": f"option {number}"} for number in range(257)]
    draft = {"state": "A text.", "questions": [{"name": "team", "type": "choice", "options": options}]}
    with open_backend(browser, server.url, link_to(draft)) as playground:
        playground.ask()
        expect(playground.note).to_contain_text("The server refused this")
        expect(playground.note).to_contain_text('question "team"')
        expect(playground.note).to_contain_text(re.compile("Status 422, request [0-9a-f]{32}"))
        expect(playground.note.get_by_role("button")).to_have_count(0)


def test_a_text_that_is_no_json_is_not_sent(playground: Playground) -> None:
    pick(playground.page.get_by_role("radio", name="JSON").first)
    expect(playground.text).to_have_accessible_description(re.compile("This is not valid JSON"))
    assert playground.text.get_attribute("aria-invalid") == "true"
    playground.question("team")  # the focus leaves the text
    playground.ask_button.click()
    expect(playground.text).to_be_focused()
    playground.text.fill('{"a": [1, null]}')
    expect(playground.page.locator(".wrong", has_text="not valid JSON")).to_have_count(0)
    playground.ask()
    expect(playground.answers).to_have_count(3)


def test_a_server_that_is_down_can_be_asked_again(browser: Browser) -> None:
    with running_server() as server, open_backend(browser, server.url) as playground:
        server.stop()
        playground.ask_button.click()
        expect(playground.note).to_contain_text("The server cannot be reached")
        again = playground.note.get_by_role("button", name="Try again")
        with running_server("--port", str(server.port)):
            again.click()
            expect(playground.answers).to_have_count(3)
            expect(playground.note).to_have_count(0)
