"""The contract on the wire: its types and its limits. `decoding.py` makes requests of bytes."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct, field

MAX_QUESTIONS = 64
MAX_OPTIONS = 256
MAX_REMOTE_OPTIONS = 26
MAX_STATE_CHARACTERS = 200_000
MAX_STATES = 256
MAX_REQUEST_ID_CHARACTERS = 128

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

    def keys(self) -> Sequence[str]:
        """The keys of `probabilities`, in the order in which an engine gives them."""
        return list(self.criteria)

    def options(self) -> list[Option]:
        return [_option(name, description) for name, description in self.criteria.items()]


class Score(Struct, frozen=True, tag_field="type", tag="score"):
    """Which level? `criteria` lists the levels' labels, level 0 first."""

    criteria: Annotated[list[Text], Meta(min_length=1, max_length=MAX_OPTIONS)]
    instructions: Text | None = None

    def keys(self) -> Sequence[str]:
        return _LEVELS[: len(self.criteria)]

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

    def keys(self) -> Sequence[str]:
        return _OUTCOMES

    def options(self) -> list[Option]:
        outcomes = self.criteria or Outcomes()
        return [_option("true", outcomes.yes), _option("false", outcomes.no)]


Question = Choice | Score | Noul


def type_of(question: Question) -> str:
    if isinstance(question, Noul):
        return "noul"
    return "choice" if isinstance(question, Choice) else "score"


_LEVELS = tuple(str(level) for level in range(MAX_OPTIONS))
_OUTCOMES = ("true", "false")


EXPLAIN = "`true` adds `evidence` to each answer, at up to 16 times the cost; anything else is ignored."


class SingleRequest(Struct, frozen=True):
    """One state and its questions. Unknown fields are ignored."""

    state: Any
    questions: Annotated[dict[str, Question], Meta(min_length=1, max_length=MAX_QUESTIONS)]
    model: Any = None
    explain: Annotated[Any, Meta(description=EXPLAIN)] = None


class BatchRequest(Struct, frozen=True):
    """Many states and one set of questions, asked of each."""

    states: Annotated[list[Any], Meta(max_length=MAX_STATES)]
    questions: Annotated[dict[str, Question], Meta(min_length=1, max_length=MAX_QUESTIONS)]
    model: Any = None
    explain: Annotated[Any, Meta(description=EXPLAIN)] = None


class Request(NamedTuple):
    """A request that passed every check, states rendered for the model."""

    states: Sequence[str]
    questions: dict[str, Question]
    sent: Sequence[Any] | None = None
    """The states as they came, if the answers are to be explained."""


Probability = Annotated[float, Meta(ge=0, le=1)]


class Evidence(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A part of the state, and how much less likely the chosen option is without it: the characters from `start` up to
    `end` of a text, or the field of a record that a JSON pointer names."""

    start: int | None = None
    end: int | None = None
    pointer: str | None = None
    effect: float


class ChoiceAnswer(Struct, frozen=True, tag_field="type", tag="choice", omit_defaults=True):
    choice: str
    probabilities: dict[str, Probability]
    confidence: Probability
    truncated: bool = False
    profile: str = ""
    decided: bool | None = None
    not_excluded: list[str] | None = field(name="set", default=None)
    evidence: list[Evidence] | None = None


class ScoreAnswer(Struct, frozen=True, tag_field="type", tag="score", omit_defaults=True):
    score: float
    level: int
    legend: dict[str, Text]
    probabilities: dict[str, Probability]
    confidence: Probability
    truncated: bool = False
    profile: str = ""
    decided: bool | None = None
    not_excluded: list[str] | None = field(name="set", default=None)
    evidence: list[Evidence] | None = None


class NoulAnswer(Struct, frozen=True, tag_field="type", tag="noul", omit_defaults=True):
    noul: Probability
    probabilities: dict[str, Probability]
    confidence: Probability
    truncated: bool = False
    profile: str = ""
    decided: bool | None = None
    not_excluded: list[str] | None = field(name="set", default=None)
    evidence: list[Evidence] | None = None


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


class BatchLine(SingleResponse, frozen=True, omit_defaults=True, kw_only=True):
    """One line of a streamed batch: the number of a state, and the single-state response to it."""

    index: int


class BatchLineProblem(Struct, frozen=True):
    """The line of a state that could not be decided: the status and the body that it would have got alone."""

    index: int
    status: int
    detail: str


class ModelEntry(Struct, frozen=True, omit_defaults=True):
    name: str
    description: str
    release_date: str
    kind: str
    profiles: list[str] = []
    outcomes: bool = False


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


Told = str | int | bool


class OutcomesRequest(Struct, frozen=True):
    """What turned out to be right about a request that was answered: by question, an option's name, a level's number,
    or true or false. `index` is the place of the state in a batch."""

    request_id: Annotated[str, Meta(min_length=1, max_length=MAX_REQUEST_ID_CHARACTERS)]
    outcomes: Annotated[dict[str, Told], Meta(min_length=1, max_length=MAX_QUESTIONS)]
    index: Annotated[int, Meta(ge=0, lt=MAX_STATES)] = 0


class OutcomesReceipt(Struct, frozen=True):
    """How many outcomes are new, and how many were known already."""

    recorded: int
    known: int


class Problem(Struct, frozen=True):
    """The body of every error."""

    detail: str


encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
