"""Which question a profile belongs to: the question in a canonical form, and its SHA-256."""

import hashlib
from collections.abc import Sequence

from decided.contract.types import Choice, Question, compact, encode, type_of


def canonical(question: Question) -> bytes:
    """The same bytes for what a model reads as the same question. The options of a choice have no order."""
    about = compact(question.instructions) if question.instructions else None
    options = [tuple(option) for option in question.options()]
    return encode([type_of(question), about, sorted(options) if isinstance(question, Choice) else options])


def fingerprint(question: Question) -> str:
    return hashlib.sha256(canonical(question)).hexdigest()


def canonical_keys(question: Question) -> Sequence[str]:
    """The keys of the options, in the order in which profiles keep what they learnt."""
    return sorted(question.keys()) if isinstance(question, Choice) else question.keys()
