"""A causal language model that is asked in words: how much likelier does the text make each answer?

Small models cannot tell which letter stands for which option, but they know which words follow from a text. So the
options are not shown; each one's words are put behind the question, and the option weighs what the text adds to their
probability: that behind this state, against that behind no state at all. Options may have any number of tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from decided.contract.types import Question
from decided.engines.prompts import WORDED, join_cuts, tokens
from decided.engines.tokenizer import Vocabulary
from decided.engines.torch.base import softmax
from decided.engines.torch.decoder import Decoder
from decided.engines.torch.language import About, Frame, LanguageModel, card_for, ended, read_files, read_frame
from decided.engines.torch.packing import Prompt
from decided.engines.torch.transfer import Ints
from decided.settings import Settings

_OPTION_TOKENS = 48
_AT_ONCE = 128
"""Prompts in one pass: each brings back the logits of the whole vocabulary, for every token of its option."""
_NO_STATE = "N/A"


class Spoken:
    """A question in tokens, and what could be said to it."""

    def __init__(self, question: Question, vocabulary: Vocabulary, frame: Frame, limit: int) -> None:
        words = frame.words
        about, cuts = ended(vocabulary, words.question_lines(question), "instructions", limit)
        read = [
            tokens(vocabulary, frame.gap + text, "options", min(limit, _OPTION_TOKENS))
            for text in words.texts(question)
        ]
        self.ids = np.array([*about, *vocabulary.encode(words.end), *frame.after], np.int32)
        self.options = [np.array(option.ids or [0], np.int32) for option in read]
        self.cuts = (*cuts, *join_cuts([option.cuts for option in read]))
        self.longest = len(self.ids) + max(map(len, self.options))
        self.cost = sum(len(self.ids) + len(option) - 1 for option in self.options)
        self.unseen: Any = None
        """How likely each option is behind no state at all, as soon as it was asked once."""


class Worded(LanguageModel):
    def prepare(self, questions: Sequence[Question]) -> list[Spoken]:
        limit = self.decoder.context // 4
        return [Spoken(question, self.vocabulary, self.frame, limit) for question in questions]

    def begin(self, about: About) -> "Sayings":
        return Sayings(about, self._nothing())

    def ask(self, prompts: Sequence[Prompt]) -> Callable[[], Iterable[Any]]:
        parts = [self.decoder.said(prompts[start : start + _AT_ONCE]) for start in range(0, len(prompts), _AT_ONCE)]
        return lambda: np.concatenate([part() for part in parts])

    def _nothing(self) -> Ints:
        return np.array([*self.frame.before, *self.vocabulary.encode(WORDED.state.format(_NO_STATE))], np.int32)


class Sayings:
    """The questions of an item: every option behind the state and, where that is not known yet, behind no state."""

    def __init__(self, about: About, nothing: Ints) -> None:
        self._asked: Sequence[Spoken] = about.asked
        self._new = [spoken for spoken in about.asked if spoken.unseen is None]
        pairs = [(about.key, about.state, spoken) for spoken in about.asked]
        pairs += [(nothing.tobytes(), nothing, spoken) for spoken in self._new]
        self._pending = [
            Prompt(key, state, spoken.ids, option) for key, state, spoken in pairs for option in spoken.options
        ]
        self._found: list[float] = []

    def pending(self) -> list[Prompt]:
        return self._pending[len(self._found) :]

    def take(self, found: Sequence[Any]) -> None:
        self._found += found

    def answers(self) -> list[list[float]]:
        edges = np.cumsum([len(spoken.options) for spoken in (*self._asked, *self._new)])[:-1]
        likely = np.split(np.array(self._found, np.float32), edges)
        for spoken, found in zip(self._new, likely[len(self._asked) :], strict=True):
            spoken.unseen = found
        gains = [found - spoken.unseen for spoken, found in zip(self._asked, likely, strict=False)]
        return softmax(np.concatenate(gains), [len(gain) for gain in gains])


def load(name: str, settings: Settings) -> Worded:
    files = read_files(name, settings)
    decoder = Decoder(files.network, files.placement, [[0]])
    card = card_for(files, "worded", "asked in words", decoder.context)
    model = Worded(card, files.placement, decoder, files.vocabulary, read_frame(files.tokenizer, WORDED))
    model.find_budget()
    return model
