"""From bytes to a request, in two steps that give two kinds of refusal.

Step one, `read_object`: can the bytes be read as one JSON object? If not, 400.
Step two, `read_request` and `read_batch`: is that object a request we serve? If not, 422 that names the question.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from decided.contract import (
    MAX_QUESTIONS,
    MAX_STATE_CHARACTERS,
    MAX_STATES,
    Choice,
    Noul,
    Outcomes,
    Question,
    Request,
    Score,
    compact,
    encode,
)
from decided.errors import Invalid, Unreadable

UNSERVED_PARTS = frozenset({"assets", "images", "audio", "videos"})

_TYPES: dict[str, type[Question]] = {"choice": Choice, "score": Score, "noul": Noul}
_decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode


def read_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object, or 400."""
    try:
        value = _decode(body)
        # Bytes that come out as they went in, but for white space, cannot have held a key twice. Others (escapes, odd
        # numbers) need the look that is ten times slower.
        again = encode(value)
        if again != body and again != msgspec.json.format(body, indent=-1):
            json.loads(body, object_pairs_hook=_refuse_repeated_keys, parse_int=len, parse_float=len)
    except RecursionError:
        raise Unreadable("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"the body is not valid JSON: {error}" if body else "the body is empty") from None
    if not isinstance(value, dict):
        raise Unreadable("the body must be a JSON object")
    return value


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise Unreadable(f"the key {quoted(key)} stands twice in one object")
        seen.add(key)


def read_request(body: dict[str, Any], max_options: int) -> Request:
    """A single-state request, or 422."""
    if "state" not in body:
        raise Invalid("the field 'state' is missing")
    state = _read_state(body["state"], "state")
    return Request([state], _read_questions(body, max_options))


def read_batch(body: dict[str, Any], max_options: int) -> Request:
    """A batch request, or 422."""
    states = body.get("states")
    if not isinstance(states, list):
        raise Invalid("the field 'states' must be an array" if "states" in body else "the field 'states' is missing")
    if len(states) > MAX_STATES:
        raise Invalid(f"too many states: {len(states)}, at most {MAX_STATES}")
    rendered = [_read_state(state, f"states[{index}]") for index, state in enumerate(states)]
    return Request(rendered, _read_questions(body, max_options))


def _read_state(state: object, where: str) -> str:
    text = compact(state)
    if len(text) > MAX_STATE_CHARACTERS:
        raise Invalid(f"{where} is too long: {len(text)} characters, at most {MAX_STATE_CHARACTERS}")
    return text


def _read_questions(body: dict[str, Any], max_options: int) -> dict[str, Question]:
    _refuse_unserved_parts(body)
    questions = body.get("questions")
    if not isinstance(questions, dict):
        found = "must be an object" if "questions" in body else "is missing"
        raise Invalid(f"the field 'questions' {found}")
    if not questions:
        raise Invalid("the field 'questions' must hold at least one question")
    if len(questions) > MAX_QUESTIONS:
        raise Invalid(f"too many questions: {len(questions)}, at most {MAX_QUESTIONS}")
    return {name: _read_question(name, question, max_options) for name, question in questions.items()}


def _read_question(name: str, value: object, max_options: int) -> Question:
    try:
        return _typed_question(value, max_options)
    except (msgspec.ValidationError, Invalid) as error:
        raise Invalid(f"question {quoted(name)}: {error}") from None


def _typed_question(value: object, max_options: int) -> Question:
    if not isinstance(value, dict):
        raise Invalid("must be an object")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        served = "'choice', 'score' and 'noul'"
        raise Invalid(f"this service answers questions of type {served}, not {quoted(str(kind))}")
    _refuse_unserved_parts(value)
    criteria = value.get("criteria")
    if isinstance(criteria, dict | list) and len(criteria) > max_options:
        raise Invalid(f"too many options: {len(criteria)}, at most {max_options}")
    question: Question = msgspec.convert(value, _TYPES[kind])
    if isinstance(question, Noul) and not question.instructions and not _described(question.criteria):
        raise Invalid("a noul needs instructions, or criteria that describe 'true' or 'false'")
    return question


def _refuse_unserved_parts(fields: dict[str, Any]) -> None:
    if not UNSERVED_PARTS.isdisjoint(fields):
        for part in UNSERVED_PARTS:
            if fields.get(part):
                raise Invalid(f"this service reads text and JSON only: it cannot honour '{part}'")


def _described(outcomes: Outcomes | None) -> bool:
    return outcomes is not None and bool(outcomes.yes or outcomes.no)


def quoted(name: str) -> str:
    """A client's name in a message: quoted, escaped, and short however long it is."""
    return json.dumps(name if len(name) <= 80 else name[:79] + "…", ensure_ascii=False)
