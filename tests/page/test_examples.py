"""The examples of the page are answered rightly by the model that is shipped, and it is sure enough to act on it."""

import json
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.page.browser import open_backend
from tests.support.server import ROOT, Server
from tests.test_docs import ANSWER, blocks

SURE_ENOUGH = 0.5
RIGHT: dict[str, list[dict[str, str]]] = {
    "triage": [{"team": "billing", "urgency": "in the next few days", "refund": "yes"}],  # rent is due on Friday
    "moderation": [{"kind": "advertising", "harm": "it misleads people", "spam": "yes"}],
    "routing": [{"tool": "calendar", "changes_something": "yes", "clarity": "clear"}],
    "reviews": [
        {"complaint": "noise", "happy": "no"},
        {"complaint": "none", "happy": "yes"},
        {"complaint": "cleanliness", "happy": "no"},
        {"complaint": "food", "happy": "no"},
        {"complaint": "none", "happy": "yes"},
        {"complaint": "staff", "happy": "no"},
    ],
}
"""What a person answers, for each text."""


def word(answer: dict[str, Any]) -> str:
    if answer["type"] == "score":
        return str(answer["legend"][str(answer["level"])])
    return str(answer["choice"]) if answer["type"] == "choice" else "yes" if answer["noul"] >= 0.5 else "no"


def check(example: str, reply: dict[str, Any]) -> None:
    replies = reply.get("results", [reply])
    assert [{name: word(answer) for name, answer in each["answers"].items()} for each in replies] == RIGHT[example]
    assert min(answer["confidence"] for each in replies for answer in each["answers"].values()) >= SURE_ENOUGH


@pytest.mark.parametrize("example", RIGHT)
def test_the_page_shows_the_right_answers(browser: Browser, served: Server, example: str) -> None:
    """With the weights as this machine runs them, in 8 bits where it can."""
    with open_backend(browser, served.url, f"#{example}") as playground:
        if example == "reviews":
            rows = [row.locator(".cell-name").all_inner_texts() for row in playground.page.locator("tbody tr").all()]
            shown = [dict(zip(RIGHT[example][0], row, strict=True)) for row in rows]
        else:
            verdicts = [card.locator(".verdict").inner_text() for card in playground.answers.all()]
            shown = [dict(zip(RIGHT[example][0], (text.split(" expected")[0] for text in verdicts), strict=True))]
        assert shown == RIGHT[example]
        assert playground.page.get_by_text("unsure").count() == 0
        path = "/v1/systemone/batch" if example == "reviews" else "/v1/systemone"
        check(example, served.request("POST", path, playground.body()).json)


@pytest.mark.parametrize("example", RIGHT)
def test_the_tutorial_shows_the_right_answers(example: str) -> None:
    """In float32: what stands there is held to the model by the tests of the docs."""
    (answer,) = [block for block in blocks(ROOT / "docs" / "tutorials" / f"{example}.md") if block.language == ANSWER]
    check(example, json.loads(answer.text))
