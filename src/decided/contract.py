"""The contract on the wire: types, limits, and the two steps from bytes to a request.

Step one, `read_object`: can the bytes be read as one JSON object? If not, 400.
Step two, `read_request` and `read_batch`: is that object a request we serve? If not, 422 that names the question.
"""

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct, field

from decided.errors import Invalid, Unreadable

MAX_QUESTIONS = 64
MAX_OPTIONS = 256
MAX_REMOTE_OPTIONS = 26
MAX_STATE_CHARACTERS = 200_000
MAX_STATES = 256
MAX_REQUEST_ID_CHARACTERS = 128

UNSERVED_PARTS = frozenset({"assets", "images", "audio", "videos"})

Text = str | dict[str, Any] | list[Any]
"""Words for the model: plain, or structured and then read as compact JSON."""


def compact(value: object) -> str:
    """A JSON value as the model reads it: no white space, non-ASCII kept; a string as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class Option(NamedTuple):
    """One possible answer: the key it has in `probabilities`, and what the client said about it."""

    key: str
    description: str | None


def _option(key: str, description: Text | None) -> Option:
    return Option(key, compact(description) if description else None)


class Choice(Struct, frozen=True, tag_field="type", tag="choice"):
    """Which of these options? `criteria` maps each option's name to a description, or to null."""

    criteria: Annotated[dict[str, Text | None], Meta(min_length=1, max_length=MAX_OPTIONS)]
    instructions: Text | None = None

    def options(self) -> list[Option]:
        return [_option(name, description) for name, description in self.criteria.items()]


class Score(Struct, frozen=True, tag_field="type", tag="score"):
    """Which level? `criteria` lists the levels' labels, level 0 first."""

    criteria: Annotated[list[Text], Meta(min_length=1, max_length=MAX_OPTIONS)]
    instructions: Text | None = None

    def options(self) -> list[Option]:
        return [Option(str(level), compact(label)) for level, label in enumerate(self.criteria)]


class Outcomes(Struct, frozen=True, forbid_unknown_fields=True):
    """What a yes and a no mean."""

    yes: Text | None = field(name="true", default=None)
    no: Text | None = field(name="false", default=None)


class Noul(Struct, frozen=True, tag_field="type", tag="noul"):
    """Yes or no? With instructions, or with described outcomes, or both."""

    instructions: Text | None = None
    criteria: Outcomes | None = None

    def options(self) -> list[Option]:
        outcomes = self.criteria or Outcomes()
        return [_option("true", outcomes.yes), _option("false", outcomes.no)]


Question = Choice | Score | Noul

_TYPES: dict[str, type[Question]] = {"choice": Choice, "score": Score, "noul": Noul}
_LEVELS = tuple(str(level) for level in range(MAX_OPTIONS))


class SingleRequest(Struct, frozen=True):
    """One state and its questions. Unknown fields are ignored."""

    state: Any
    questions: Annotated[dict[str, Question], Meta(min_length=1, max_length=MAX_QUESTIONS)]
    model: Any = None


class BatchRequest(Struct, frozen=True):
    """Many states and one set of questions, asked of each."""

    states: Annotated[list[Any], Meta(max_length=MAX_STATES)]
    questions: Annotated[dict[str, Question], Meta(min_length=1, max_length=MAX_QUESTIONS)]
    model: Any = None


class Request(NamedTuple):
    """A request that passed every check, states rendered for the model."""

    states: list[str]
    questions: dict[str, Question]


Probability = Annotated[float, Meta(ge=0, le=1)]


class ChoiceAnswer(Struct, frozen=True, tag_field="type", tag="choice", omit_defaults=True):
    choice: str
    probabilities: dict[str, Probability]
    confidence: Probability
    truncated: bool = False


class ScoreAnswer(Struct, frozen=True, tag_field="type", tag="score", omit_defaults=True):
    score: float
    level: int
    legend: dict[str, Text]
    probabilities: dict[str, Probability]
    confidence: Probability
    truncated: bool = False


class NoulAnswer(Struct, frozen=True, tag_field="type", tag="noul", omit_defaults=True):
    noul: Probability
    probabilities: dict[str, Probability]
    confidence: Probability
    truncated: bool = False


Answer = ChoiceAnswer | ScoreAnswer | NoulAnswer


class Usage(Struct, frozen=True):
    input_tokens: int
    output_tokens: int


class SingleResponse(Struct, frozen=True, omit_defaults=True):
    model: str
    answers: dict[str, Answer]
    usage: Usage
    warnings: list[str] = []


class BatchResponse(Struct, frozen=True):
    model: str
    results: list[SingleResponse]
    total_usage: Usage


class ModelEntry(Struct, frozen=True):
    name: str
    description: str
    release_date: str
    kind: str


class ModelList(Struct, frozen=True):
    models: list[ModelEntry]


class Health(Struct, frozen=True):
    status: str
    model: str
    kind: str
    device: str
    version: str
    in_flight: int
    queue_depth: int


class Ready(Struct, frozen=True, omit_defaults=True):
    ready: bool
    upstream: bool = False


class Problem(Struct, frozen=True):
    """The body of every error."""

    detail: str


encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
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


def option_keys(question: Question) -> Sequence[str]:
    """The keys of `probabilities`, in the order in which an engine gives them."""
    match question:
        case Choice():
            return list(question.criteria)
        case Score():
            return _LEVELS[: len(question.criteria)]
        case Noul():
            return ("true", "false")
