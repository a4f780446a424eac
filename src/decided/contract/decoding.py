"""From bytes to a request, in two steps that give two kinds of refusal.

Step one, `read_object`: can the bytes be read as one JSON object? If not, 400.
Step two, `read_request` and `read_batch`: is that object a request we serve? If not, 422 that names the question.
"""

import json
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import msgspec

from decided.contract.types import (
    MAX_OPTIONS,
    MAX_QUESTIONS,
    MAX_STATE_CHARACTERS,
    MAX_STATES,
    Choice,
    Noul,
    Outcomes,
    OutcomesRequest,
    Question,
    Request,
    Score,
    Told,
    compact,
    encode,
)
from decided.errors import Invalid, Unreadable

UNSERVED_PARTS = frozenset({"assets", "images", "audio", "videos"})

_TYPES: dict[str, type[Question]] = {"choice": Choice, "score": Score, "noul": Noul}
_CRITERIA: dict[str, tuple[Any, str]] = {
    "choice": (dict, 'an object of at least one option, each described or null: {"bill": "an invoice", "other": null}'),
    "score": (list, 'an array of at least one level, the lowest first: ["low", "medium", "high"]'),
    "noul": (dict | None, "left out, or an object that describes 'true' and 'false'"),
}
"""What criteria may be, and how to say so: a list of options is what many try first."""
_UTF_16 = "looks like UTF-16: send UTF-8"
_BEGINNINGS = {
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
    b"\xef\xbb\xbf": "begins with a byte order mark: send UTF-8 without one",
    b"\x1f\x8b": "looks like gzip: send Content-Encoding: gzip",
    b"\x28\xb5\x2f\xfd": "looks like zstd: send Content-Encoding: zstd",
}
"""What is sent in place of JSON in UTF-8, and what to say then."""
_decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
_decode_questions: Callable[[bytes], dict[str, Question]] = msgspec.json.Decoder(dict[str, Question]).decode

_QUOTED = 80
"""How many characters of a client's name there are in a message."""
_KEPT, _KEPT_BYTES = 256, 4096
"""Of questions that were read before: how many sets are kept, and how large one may be."""

P = ParamSpec("P")
T = TypeVar("T")


def _refuse_depth(read: Callable[P, T]) -> Callable[P, T]:
    """400 for what is nested too deeply. Around the whole reading, since one step may go deeper than the one before."""

    @wraps(read)
    def bounded(*args: P.args, **named: P.kwargs) -> T:
        try:
            return read(*args, **named)
        except RecursionError:
            raise Unreadable("the body is nested too deeply") from None

    return bounded


def read_object(body: bytes, what: str = "the body") -> dict[str, Any]:
    """The body, or what else there is, as a JSON object, or 400."""
    value = read_value(body, what)
    if not isinstance(value, dict):
        raise Unreadable(f"{what} must be a JSON object")
    return value


def read_value(content: bytes, what: str) -> Any:
    """Any JSON, or 400."""
    try:
        value = _decode(content)
        # Bytes that come out as they went in, but for white space, cannot have held a key twice. Others (escapes, odd
        # numbers) need the look that is ten times slower.
        again = encode(value)
        if again != content and again != msgspec.json.format(content, indent=-1):
            json.loads(content, object_pairs_hook=_refuse_repeated_keys, parse_int=len, parse_float=len)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"{what} {_wrong_with(content, error)}") from None
    except RecursionError:
        raise Unreadable(f"{what} is nested too deeply") from None
    return value


def _wrong_with(body: bytes, error: Exception) -> str:
    """Why bytes are no JSON that can be read. The decoder takes what is not UTF-8 for strange characters."""
    if not body:
        return "is empty"
    for beginning, words in _BEGINNINGS.items():
        if body.startswith(beginning):
            return words
    if b"\0" in body[:2]:
        return _UTF_16
    try:
        body.decode()
    except UnicodeDecodeError as found:
        return f"is not UTF-8: byte 0x{body[found.start]:02x} at byte {found.start}"
    if "out of range" in str(error):
        return "holds a number too large to be read (beyond 1.8e308, or more than 4300 digits)"
    return f"is not valid JSON: {error}"


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise Unreadable(f"duplicate key {quote(key)} in one object")
        seen.add(key)


@_refuse_depth
def read_request(body: bytes, max_options: int, explain: bool = False) -> Request:
    """A single-state request, or 400, or 422."""
    fields = read_object(body)
    if "state" not in fields:
        instead = ": 'states' are for /v1/systemone/batch" if "states" in fields else ""
        raise Invalid(f"the field 'state' is missing{instead}")
    state = read_state(fields["state"], "state")
    sent = [fields["state"]] if explain or fields.get("explain") is True else None
    return Request([state], _read_questions(fields, max_options), sent)


@_refuse_depth
def read_batch(body: bytes, max_options: int, explain: bool = False) -> Request:
    """A batch request, or 400, or 422."""
    fields = read_object(body)
    states = fields.get("states")
    if not isinstance(states, list):
        if "states" in fields:
            raise Invalid("the field 'states' must be an array")
        raise Invalid(f"the field 'states' is missing{': one state is for /v1/systemone' if 'state' in fields else ''}")
    if len(states) > MAX_STATES:
        raise Invalid(f"too many states: {len(states)}, at most {MAX_STATES}")
    rendered = [read_state(state, f"states[{index}]") for index, state in enumerate(states)]
    sent = states if explain or fields.get("explain") is True else None
    return Request(rendered, _read_questions(fields, max_options), sent)


@_refuse_depth
def read_outcomes(body: bytes, _max_options: int = 0) -> OutcomesRequest:
    """What turned out to be right, or 400, or 422."""
    fields = read_object(body)
    try:
        return msgspec.convert(fields, OutcomesRequest)
    except msgspec.ValidationError as error:
        for field in ("request_id", "outcomes"):
            if field not in fields:
                raise Invalid(f"the field '{field}' is missing") from None
        told = fields.get("outcomes")
        if isinstance(told, dict) and len(told) <= MAX_QUESTIONS:  # look at each alone, to name the wrong one
            for place, (name, answer) in enumerate(told.items(), 1):
                _check_told(called(name, place), answer)
        raise Invalid(str(error)) from None


def _check_told(question: str, answer: object) -> None:
    try:
        msgspec.convert(answer, Told)
    except msgspec.ValidationError as error:
        raise Invalid(f"{question}: {error}") from None


def read_state(state: object, where: str = "state") -> str:
    """A state as the model reads it, or 422."""
    text = compact(state)
    if len(text) > MAX_STATE_CHARACTERS:
        raise Invalid(f"{where} is too long: {len(text)} characters, at most {MAX_STATE_CHARACTERS}")
    return text


def _read_questions(fields: dict[str, Any], max_options: int) -> dict[str, Question]:
    _refuse_unserved_parts(fields)
    questions = fields.get("questions")
    if not isinstance(questions, dict):
        found = (
            "must be an object, from each question's name to the question" if "questions" in fields else "is missing"
        )
        raise Invalid(f"the field 'questions' {found}")
    if not questions:
        raise Invalid("the field 'questions' must hold at least one question")
    if len(questions) > MAX_QUESTIONS:
        raise Invalid(f"too many questions: {len(questions)}, at most {MAX_QUESTIONS}")
    written = encode(questions)
    read = _read_known if len(written) <= _KEPT_BYTES else _read_new
    return read(written, max_options)


def _read_new(written: bytes, max_options: int) -> dict[str, Question]:
    values = _decode(written)
    name = ""
    try:
        try:
            questions = _decode_questions(written)
        except msgspec.ValidationError:  # one of them is wrong: look at each alone, to name it
            questions = {}
            for name, value in values.items():
                questions[name] = _read_alone(value, max_options)
        for name, question in questions.items():
            _check(question, values[name], max_options)
    except Invalid as error:
        raise Invalid(f"{called(name, [*values].index(name) + 1)}: {error}") from None
    return questions


_read_known = lru_cache(_KEPT)(_read_new)
"""Most clients ask the same questions of every state. What this gives is shared, and nobody changes it."""


def _read_alone(value: object, max_options: int) -> Question:
    if not isinstance(value, dict):
        raise Invalid("must be an object")
    kind = value.get("type")
    if not isinstance(kind, str):
        found = "must be text" if "type" in value else "is missing"
        raise Invalid(f"the field 'type' {found}: 'choice', 'score' or 'noul'")
    if kind not in _TYPES:
        served = "'choice', 'score' and 'noul'"
        raise Invalid(f"this service answers questions of type {served}, not {quote(kind)}")
    criteria, (form, told) = value.get("criteria"), _CRITERIA[kind]
    if not isinstance(criteria, form) or (kind != "noul" and not criteria):
        raise Invalid(f"the 'criteria' of a {kind} must be {told}")
    if kind != "noul":
        _check_number(len(criteria), max_options)
    try:
        question: Question = msgspec.convert(value, _TYPES[kind])
    except msgspec.ValidationError as error:
        raise Invalid(_wrong_part(value, kind) or str(error)) from None
    return question


def _wrong_part(value: dict[str, Any], kind: str) -> str:
    """Which part of a question is not what it may be. msgspec has names of its own for them, and none for an option."""
    instructions, criteria = value.get("instructions"), value.get("criteria") or {}
    if not isinstance(instructions, str | dict | list | None):
        return f"instructions must be text, an object, an array or null, not {_kind_of(instructions)}"
    if kind == "score":
        for place, level in enumerate(criteria):
            if not isinstance(level, str | dict | list):
                return f"level {place} must be text, an object or an array, not {_kind_of(level)}"
        return ""
    for key, words in criteria.items():
        if kind == "noul" and key not in ("true", "false"):
            return f'the criteria of a noul have the keys "true" and "false" only, not {quote(key)}'
        if not isinstance(words, str | dict | list | None):
            return f"option {quote(key)} must be described by text, an object, an array or null, not {_kind_of(words)}"
    return ""


def _kind_of(value: object) -> str:
    return "null" if value is None else "a boolean" if isinstance(value, bool) else "a number"


def _check(question: Question, value: dict[str, Any], max_options: int) -> None:
    """What the types cannot say."""
    if not UNSERVED_PARTS.isdisjoint(value):
        _refuse_unserved_parts(value)
    if isinstance(question, Noul):
        if not question.instructions and not _described(question.criteria):
            raise Invalid("a noul needs instructions, or criteria that describe 'true' or 'false'")
    else:
        _check_number(len(question.criteria), max_options)


def _check_number(options: int, most: int) -> None:
    if options > most:
        of_model = " with this model" if most < MAX_OPTIONS else ""
        raise Invalid(f"too many options: {options}, at most {most}{of_model}")


def _refuse_unserved_parts(fields: dict[str, Any]) -> None:
    for part in UNSERVED_PARTS.intersection(fields):
        if fields[part]:
            raise Invalid(f"this service reads text and JSON only: it cannot honour '{part}'")


def _described(outcomes: Outcomes | None) -> bool:
    return outcomes is not None and bool(outcomes.yes or outcomes.no)


def option_number(name: str, question: Question, answer: object) -> int:
    """Which option an answer names."""
    if isinstance(question, Noul):
        if not isinstance(answer, bool):
            raise Invalid(f"question {quote(name)}: the answer to a noul is true or false")
        return 0 if answer else 1
    if isinstance(question, Choice):
        if not isinstance(answer, str) or answer not in question.criteria:
            raise Invalid(f"question {quote(name)}: the answer must be one of the options, not {quote(str(answer))}")
        return question.keys().index(answer)
    if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer < len(question.criteria):
        highest = len(question.criteria) - 1
        raise Invalid(f"question {quote(name)}: the answer must be a level, a whole number from 0 to {highest}")
    return answer


def called(name: str, place: int) -> str:
    """A question in a message: by its name; where that is too long to be told from others, by its place as well."""
    return f"question {quote(name)}" if len(name) <= _QUOTED else f"question {place} ({quote(name)})"


def quote(name: str) -> str:
    """A client's name in a message: quoted, escaped, and short however long it is."""
    return json.dumps(name if len(name) <= _QUOTED else name[: _QUOTED - 1] + "…", ensure_ascii=False)
