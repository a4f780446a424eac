"""One line of the audit log: what it says, and how it holds on to the line before it.

A line is a JSON object whose last two fields are `previous`, the hash of the line before, and `hash`, the SHA-256 of
the line's own bytes without that last field. So a changed line does not fit its own hash, and a missing, added or moved
one does not fit its neighbours.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from decided.contract.types import Answer, Question, encode
from decided.profiles.fingerprint import fingerprint
from decided.version import VERSION

NO_HASH = "0" * 64
"""In place of the hash of the line before the first."""
_KNOWN_QUESTIONS = 1024


class ChainHead(NamedTuple):
    """How far a log has come: the number and the hash of a line. Whoever knows it knows all lines up to there."""

    seq: int = 0
    hash: str = NO_HASH


class Decision(NamedTuple):
    """One state that was decided: all that its lines are made of."""

    time: float
    request_id: str
    client: str
    place: int
    """Of the state, in a batch."""
    state: str
    questions: Mapping[str, Question]
    answers: Mapping[str, Answer]
    """As they are sent."""
    thresholds: Sequence[float | None]


class DecisionLine(msgspec.Struct, frozen=True):
    """The answer to one question about one state."""

    seq: int
    time: str
    request_id: str
    client: str
    index: int
    question: str
    fingerprint: str
    state_hmac: str
    answer: str
    """The key of the most probable option."""
    probabilities: dict[str, float]
    confidence: float
    truncated: bool
    threshold: float | None
    decided: bool | None
    profile: str
    model: str
    weights: str
    version: str
    previous: str


class EventLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened to the log itself: it was `opened`, or lines were `lost`."""

    seq: int
    time: str
    event: str
    model: str
    weights: str
    version: str
    key: str
    """Names the key of the HMACs without telling it."""
    previous: str
    lost: int = 0
    """Decisions that were answered and could not be written."""
    cut_bytes: int = 0
    """Of a line that a crash left unfinished, and that was removed."""


class Scribe:
    """Makes lines of what was decided, for one model and one key."""

    def __init__(self, model: str, weights: str, key: bytes) -> None:
        self._model = model
        self._weights = weights
        self._key = key
        self._key_name = hmac.digest(key, b"decided audit key", "sha256").hex()[:16]
        self._fingerprints: dict[bytes, str] = {}

    def write(self, head: ChainHead, decision: Decision) -> tuple[ChainHead, list[bytes]]:
        """The lines of a decision behind `head`, and the head that they make."""
        lines = []
        time = _stamp(decision.time)
        state = hmac.digest(self._key, decision.state.encode(), "sha256").hex()
        for name, question, threshold in zip(
            decision.questions, decision.questions.values(), decision.thresholds, strict=True
        ):
            answer = decision.answers[name]
            line = DecisionLine(
                head.seq + 1,
                time,
                decision.request_id,
                decision.client,
                decision.place,
                name,
                self._fingerprint(question),
                state,
                max(answer.probabilities, key=answer.probabilities.__getitem__),
                answer.probabilities,
                answer.confidence,
                answer.truncated,
                threshold,
                answer.decided,
                answer.profile,
                self._model,
                self._weights,
                VERSION,
                head.hash,
            )
            head, sealed = seal(line)
            lines.append(sealed)
        return head, lines

    def tell(
        self, head: ChainHead, time: float, event: str, lost: int = 0, cut_bytes: int = 0
    ) -> tuple[ChainHead, bytes]:
        """The line of an event."""
        about = self._model, self._weights, VERSION, self._key_name, head.hash
        return seal(EventLine(head.seq + 1, _stamp(time), event, *about, lost, cut_bytes))

    def _fingerprint(self, question: Question) -> str:
        key = encode(question)
        known = self._fingerprints.get(key)
        if known is None:
            if len(self._fingerprints) >= _KNOWN_QUESTIONS:
                del self._fingerprints[next(iter(self._fingerprints))]
            known = self._fingerprints[key] = fingerprint(question)
        return known


def seal(line: DecisionLine | EventLine) -> tuple[ChainHead, bytes]:
    body = encode(line)
    digest = hashlib.sha256(body).hexdigest()
    return ChainHead(line.seq, digest), body[:-1] + _end(digest)


class Link(NamedTuple):
    """Of a line that was read: where it says that it belongs, and whether it is as it was written."""

    seq: int
    previous: str
    hash: str
    is_intact: bool

    @property
    def head(self) -> ChainHead:
        return ChainHead(self.seq, self.hash)


class _Chained(msgspec.Struct, frozen=True):
    seq: int
    previous: str
    hash: str


def read_link(line: bytes) -> Link | None:
    """The link of a line with its line end; None if it is not a line of an audit log."""
    try:
        found = msgspec.json.decode(line, type=_Chained)
    except (ValueError, RecursionError):  # what msgspec raises is a ValueError
        return None
    body, end = line[:-_END_BYTES] + b"}", line[-_END_BYTES:]
    digest = hashlib.sha256(body).hexdigest()
    return Link(found.seq, found.previous, found.hash, end == _end(digest))


def _end(digest: str) -> bytes:
    return b',"hash":"' + digest.encode() + b'"}\n'


_END_BYTES = len(_end(NO_HASH))


def _stamp(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds")[:26] + "Z"
