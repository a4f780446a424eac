"""Questions and states that the tests of all kinds share, as clients send them."""

from typing import Any

import msgspec

from decided.contract.types import Question

LONG = "The parcel was late. " * 200

STATES = [
    "I was charged twice for order 1182. Please give the money back today, or I will leave.",
    "ok",
    "Der Käufer schrieb: naïve café, 日本語 🙂. " * 5,
    "",
]

QUESTIONS: dict[str, dict[str, Any]] = {
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": {"billing": "charges, refunds", "technical": "bugs", "other": None},
    },
    "mood": {"type": "score", "instructions": "How upset is the writer?", "criteria": ["calm", "annoyed", "angry"]},
    "urgent": {"type": "noul", "instructions": "Does this need a reply today?"},
    "spam": {
        "type": "noul",
        "instructions": "Is this spam?",
        "criteria": {"true": "unwanted mail", "false": "wanted mail"},
    },
    "many": {
        "type": "choice",
        "instructions": "Which order is it?",
        "criteria": {f"order {number}": None for number in range(12)},
    },
}


def typed(questions: dict[str, dict[str, Any]] | None = None) -> list[Question]:
    return [msgspec.convert(question, Question) for question in (questions or QUESTIONS).values()]
