"""A causal language model that is asked in words: how much likelier does the text make each answer?

Small models cannot tell which letter stands for which option, but they know which words follow from a text. So the
options are not shown; each one's words are put behind the question, and the option weighs what the text adds to their
probability: that behind this state, against that behind no state at all. Options may have any number of tokens.
"""

from collections.abc import Callable, Sequence

import numpy as np

from decided.contract import Question
from decided.engine import Item
from decided.engines.torch.base import Weights, softmax
from decided.engines.torch.decoder import Decoder
from decided.engines.torch.language import About, Frame, LanguageModel, card_for, ended, read_files, read_frame
from decided.engines.torch.packing import Prompt
from decided.engines.torch.transfer import Floats, Ints
from decided.engines.vocabulary import Vocabulary
from decided.prompts import WORDED, joined, tokens
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
        self.cuts = (*cuts, *joined([option.cuts for option in read]))
        self.longest = len(self.ids) + max(map(len, self.options))
        self.cost = sum(len(self.ids) + len(option) - 1 for option in self.options)
        self.unseen: Floats | None = None
        """How likely each option is behind no state at all, as soon as it was asked once."""


class Worded(LanguageModel):
    def prepare(self, questions: Sequence[Question]) -> list[Spoken]:
        limit = self.decoder.context // 4
        return [Spoken(question, self.vocabulary, self.frame, limit) for question in questions]

    def forward(self, items: Sequence[Item]) -> Callable[[], Weights]:
        abouts: list[About] = [item.payload for item in items]
        asked = [(about, spoken) for about in abouts for spoken in about.asked]
        new = list({id(spoken): spoken for _, spoken in asked if spoken.unseen is None}.values())
        nothing = self._nothing()
        pairs = [*((about.key, about.state, spoken) for about, spoken in asked),
                 *((nothing.tobytes(), nothing, spoken) for spoken in new)]  # fmt: skip
        prompts = [Prompt(key, state, spoken.ids, option) for key, state, spoken in pairs for option in spoken.options]
        parts = [self.decoder.said(prompts[start : start + _AT_ONCE]) for start in range(0, len(prompts), _AT_ONCE)]

        def collect() -> Weights:
            likely = np.concatenate([part() for part in parts])
            edges = np.cumsum([len(spoken.options) for _, _, spoken in pairs])[:-1]
            of_pairs = np.split(likely, edges)
            for spoken, found in zip(new, of_pairs[len(asked) :], strict=True):
                spoken.unseen = found
            gains = [found - spoken.unseen for (_, spoken), found in zip(asked, of_pairs[: len(asked)], strict=True)]
            shares = iter(softmax(np.concatenate(gains), [len(gain) for gain in gains]))
            return [[next(shares) for _ in about.asked] for about in abouts]

        return collect

    def _nothing(self) -> Ints:
        return np.array([*self.frame.before, *self.vocabulary.encode(WORDED.state.format(_NO_STATE))], np.int32)


def load(name: str, settings: Settings) -> Worded:
    files = read_files(name, settings)
    decoder = Decoder(files.network, files.placement, [[0]])
    card = card_for(files, "worded", "asked in words", decoder.context)
    model = Worded(card, files.placement, decoder, files.vocabulary, read_frame(files.tokenizer, WORDED))
    model.find_budget()
    return model
