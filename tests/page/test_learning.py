"""A server that learns: answers made with a profile show it, and people say on the page what was right."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from decided.contract.types import Choice
from decided.profiles.fingerprint import fingerprint
from decided.profiles.profile import Threshold
from tests.page.browser import Playground, link_to, open_backend
from tests.profiles.shelf import TOPIC, made, written
from tests.support.server import Server, running_server

STRICT = {**TOPIC, "instructions": "What is it about, strictly?"}
OPTIONS = [{"name": "parcel"}, {"name": "bill", "description": "payments"}]
DRAFT = {
    "state": "my box",
    "questions": [
        {"name": "topic", "type": "choice", "instructions": TOPIC["instructions"], "options": OPTIONS},
        {"name": "strict", "type": "choice", "instructions": STRICT["instructions"], "options": OPTIONS},
        {"name": "late", "type": "noul", "instructions": "Is it late?"},
        {"name": "mood", "type": "score", "levels": [{"label": "calm"}, {"label": "cross"}, {"label": "angry"}]},
    ],
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outcomes") / "outcomes.jsonl"


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory, outcomes: Path) -> Iterator[Server]:
    """With a profile that decides with 70 %, and a strict one that does not with 98 %."""
    lenient = made(bias=[-0.42, 0.42], threshold=Threshold(0.6, 0.7, (0.7, 0.6, 0.8), 0.9))
    question = msgspec.convert({**STRICT}, Choice)
    threshold = Threshold(0.999, 0.999, (1.0, 0.99, 1.0), 0.1)
    strict = made(name="strict", question=question, fingerprint=fingerprint(question), threshold=threshold)
    folder = tmp_path_factory.mktemp("profiles")
    written(folder, lenient)
    written(folder, strict, "strict.json")
    with running_server("--profiles", str(folder), "--outcomes", str(outcomes)) as server:
        yield server


@pytest.fixture
def learning(browser: Browser, taught: Server) -> Iterator[Playground]:
    with open_backend(browser, taught.url, link_to(DRAFT)) as playground:
        yield playground
        assert playground.troubles == []


def ask(playground: Playground) -> tuple[str, dict[str, Any]]:
    """The id of the request, and its answers."""
    with playground.page.expect_response("**/v1/systemone") as reply:
        playground.ask_button.click()
    playground.settled()
    return str(reply.value.headers["x-request-id"]), reply.value.json()["answers"]


def test_what_a_profile_says_outweighs_the_confidence(learning: Playground) -> None:
    _, answers = ask(learning)
    assert answers["topic"]["confidence"] < 0.5 < 0.8 < answers["strict"]["confidence"]
    topic, strict, late, _ = learning.answers.all()
    for card, name in ((topic, "topic"), (strict, "strict")):
        expect(card.locator(".badge")).to_have_text(answers[name]["profile"])
        expect(card.locator(".badge")).to_have_attribute("title", "made with this profile")
    expect(topic.locator(".surety")).to_have_text("fairly sure")
    expect(topic.locator(".verdict")).to_have_text("parcel")
    expect(strict.locator(".surety")).to_have_text("unsure")
    expect(strict.locator(".verdict")).to_have_text("Unsure: parcel or bill")
    expect(late.locator(".badge")).to_have_count(0)


def test_what_people_say_is_written_down(learning: Playground, outcomes: Path) -> None:
    request, answers = ask(learning)
    topic, strict, late, mood = learning.answers.all()
    topic.get_by_role("button", name="Right").click()
    strict.get_by_role("button", name="Wrong").click()
    late.get_by_role("button", name="Wrong").click()
    level = int(answers["mood"]["level"])
    choice = mood.get_by_role("combobox", name="Right answer to mood")
    labels = ["calm", "cross", "angry"]
    wrong = [label for number, label in enumerate(labels) if number != level]
    expect(choice.get_by_role("option")).to_have_text(["Wrong: it is…", *wrong])
    choice.select_option(wrong[-1])
    for card in learning.answers.all():
        expect(card.get_by_role("status")).to_have_text("Noted.")
        expect(card.get_by_role("button")).to_have_count(0)
    lines = [json.loads(line) for line in outcomes.read_text().splitlines()]
    told = {line["name"]: line["right"] for line in lines if line["request_id"] == request}
    yes_and_no = [True, False]
    assert told == {
        "topic": 0,
        "strict": 1,
        "late": yes_and_no.index(answers["late"]["noul"] < 0.5),
        "mood": labels.index(wrong[-1]),
    }


def test_another_answer_can_be_judged_anew_and_a_plain_server_asks_for_no_judgement(
    learning: Playground, browser: Browser, server: Server
) -> None:
    ask(learning)
    right = learning.answers.first.get_by_role("button", name="Right")
    right.click()
    expect(right).to_have_count(0)
    ask(learning)
    expect(right).to_be_visible()
    with open_backend(browser, server.url, link_to(DRAFT)) as plain:
        ask(plain)
        expect(plain.answers).to_have_count(4)
        expect(plain.page.get_by_text("Is it right?")).to_have_count(0)


def test_a_judgement_that_comes_too_late_is_said_to_be(browser: Browser, tmp_path: Path) -> None:
    """A server that was started anew remembers no answers."""
    flags = ("--outcomes", str(tmp_path / "outcomes.jsonl"))
    with running_server(*flags) as server, open_backend(browser, server.url, link_to(DRAFT)) as playground:
        ask(playground)
        server.stop()
        with running_server(*flags, "--port", str(server.port)):
            playground.answers.first.get_by_role("button", name="Right").click()
            expect(playground.answers.first.get_by_role("status")).to_contain_text("no answer with the request id")
