"""The requests that the benchmarks send: one of everyday size, and the largest that the contract allows."""

import json
from typing import Any

SINGLE = "/v1/systemone"
BATCH = "/v1/systemone/batch"

STATE = {
    "subject": "Charged twice for order 1182",
    "body": "Hello, my card was charged twice for the same order last night and the second charge is still pending. "
    "I need the money back before Friday because my rent is due. This is the third time I write about it.",
    "customer": {"plan": "family", "since": "2021-03-09", "open_tickets": 2},
}

QUESTIONS: dict[str, dict[str, Any]] = {
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this ticket?",
        "criteria": {
            "billing": "charges, refunds and invoices",
            "technical": "faults and outages",
            "delivery": "parcels and addresses",
            "account": "sign-in, profile and plan",
        },
    },
    "anger": {
        "type": "score",
        "instructions": "How upset is the customer?",
        "criteria": ["calm", "annoyed", "angry", "furious"],
    },
    "today": {"type": "noul", "instructions": "Does this need a reply today?"},
}


BODIES = ("json", "text", "spaced")


def small_body(kind: str = "json") -> bytes:
    """One state with three questions, about 800 bytes: the state as JSON, as text, or JSON with blanks."""
    request = {"state": STATE["body"] if kind == "text" else STATE, "questions": QUESTIONS}
    return json.dumps(request).encode() if kind == "spaced" else _compact(request)


def big_body(states: int, questions: int) -> bytes:
    """A batch of short states, each with its own words, and questions of the three types in turn."""
    kinds = list(QUESTIONS.values())
    asked = {f"q{number}": kinds[number % len(kinds)] for number in range(questions)}
    about = [f"Ticket {number}: charged twice for order {1182 + number}, please refund." for number in range(states)]
    return _compact({"states": about, "questions": asked})


def huge_body() -> bytes:
    """One request of 690 KB, within every limit: the longest state, and questions with 256 options of many words."""
    words = "the customer wants a thing that nobody has asked for before, with a number: "
    options = {f"option {number}": f"{words}{number}" for number in range(256)}
    asked = {f"q{number}": {"type": "choice", "criteria": options} for number in range(19)}
    return _compact({"state": "late parcel " * 16_666, "questions": asked})


def long_body(number: int) -> bytes:
    """Three questions about a state of some 8,000 tokens."""
    return _compact({"state": f"Ticket {number}: " + "late parcel " * 4_000, "questions": QUESTIONS})


def http_request(path: str, body: bytes, key: str = "") -> bytes:
    """The bytes of a whole keep-alive POST, built once."""
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Accept: application/json\r\n{authorization}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def check_answer(body: bytes) -> None:
    """Raise ValueError unless the body answers QUESTIONS: a fast wrong answer is no result."""
    answers = json.loads(body)["answers"]
    if list(answers) != list(QUESTIONS):
        raise ValueError(f"answers to {list(answers)} instead of {list(QUESTIONS)}")
    for name, answer in answers.items():
        total = sum(answer["probabilities"].values())
        if answer["type"] != QUESTIONS[name]["type"] or abs(total - 1) > 1e-6 or "confidence" not in answer:
            raise ValueError(f"the answer to {name!r} is not one of the protocol: {answer}")


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
