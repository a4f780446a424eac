"""The answers of the examples in the docs are right, and sure enough to act on: in float32, which the docs show, and in
8 bits, which is what is served. What is right was decided by people, not by the model."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.server import Server, running_server
from tests.test_docs import ALL_BLOCKS, ANSWERS, Block, parsed, place, run_curl, run_python

SURE = 0.5
RIGHT: dict[str, list[dict[str, Any]]] = {
    "README.md": [{"topic": "delivery", "urgency": 2, "late": True}],
    "api.md": [{"refund": right} for right in (True, True, False, True, False, True)],
    "moderation.md": [{"kind": "advertising", "harm": 2, "spam": True}],
    "reviews.md": [
        {"complaint": "noise", "happy": False},
        {"complaint": "none", "happy": True},
        {"complaint": "cleanliness", "happy": False},
        {"complaint": "food", "happy": False},
        {"complaint": "none", "happy": True},
        {"complaint": "staff", "happy": False},
    ],
    "routing.md": [{"tool": "calendar", "changes_something": True, "clarity": 2}],
    "triage.md": [{"team": "billing", "urgency": 1, "refund": True}],
}
"""By page, for each state that its examples ask about."""
ACTS = {
    "moderation.md": ["publish - Quiet", "remove - Message me"],
    "reviews.md": ["Counter({'noise': 2, 'food': 1})"],
    "routing.md": ["call weather", "confirm, then call calendar", "call none - Thanks!"],
    "triage.md": ["billing", "delivery", "a person"],
}
"""By tutorial, how the lines begin that its program prints."""


def answers_in(values: list[Any]) -> list[dict[str, Any]]:
    """The answers about each state of a reply, whether to one state, to a batch or as a stream."""
    states = [state for value in values for state in value.get("results", [value])]
    return [state["answers"] for state in states if "answers" in state]


def said(answer: dict[str, Any]) -> object:
    if answer["type"] == "choice":
        return answer["choice"]
    return answer["level"] if answer["type"] == "score" else answer["noul"] > 0.5


EXAMPLES = {curl: answers_in(parsed(shown.text)) for curl, shown in ANSWERS.items()}
EXAMPLES = {curl: shown for curl, shown in EXAMPLES.items() if shown}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The server that `make serve` starts."""
    with running_server("--model", "embedded", module="decided") as running:
        yield running


def test_every_example_is_judged() -> None:
    shown: dict[str, list[Any]] = {}
    for curl, answers in EXAMPLES.items():
        shown.setdefault(curl.page.name, []).extend(answers)
    assert {page: [set(each) for each in answers] for page, answers in shown.items()} == {
        page: [set(each) for each in right] for page, right in RIGHT.items()
    }
    for page, answers in shown.items():
        assert [{name: said(one) for name, one in each.items()} for each in answers] == RIGHT[page]
        assert min(one["confidence"] for each in answers for one in each.values()) >= SURE, page


@pytest.mark.parametrize("curl", EXAMPLES, ids=place)
def test_what_is_served_says_the_same(server: Server, curl: Block) -> None:
    served = answers_in(parsed(run_curl(server, curl)))
    assert len(served) == len(EXAMPLES[curl])
    for here, shown in zip(served, EXAMPLES[curl], strict=True):
        assert {name: said(one) for name, one in here.items()} == {name: said(one) for name, one in shown.items()}
        assert min(one["confidence"] for one in here.values()) >= SURE


@pytest.mark.parametrize("page", ACTS)
def test_programs_of_tutorials_act_rightly(server: Server, page: str) -> None:
    [program] = [block for block in ALL_BLOCKS if block.page.name == page and block.language == "python"]
    lines = run_python(server, program).splitlines()
    assert len(lines) == len(ACTS[page])
    for line, begins in zip(lines, ACTS[page], strict=True):
        assert line.startswith(begins)
