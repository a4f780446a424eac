"""Any causal language model, asked for a letter: options have letters, and the next token's logits are the answer.

All questions about a state begin with the same tokens, so the state is read once for all of them, and kept for later
ones. What stands around the text is in `prompts.py`, as for language models behind a remote engine.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from decided.contract.types import Choice, Question
from decided.engines import letters
from decided.engines.api import Cut, ModelCard
from decided.engines.prompts import LETTERED, OPENDECIDER, PromptWords, join_cuts
from decided.engines.tokenizer import Vocabulary
from decided.engines.torch.base import softmax
from decided.engines.torch.decoder import Decoder
from decided.engines.torch.language import About, Files, Frame, LanguageModel, card_for, ended, read_files, read_frame
from decided.engines.torch.packing import Prompt
from decided.engines.torch.placement import Placement
from decided.engines.torch.transfer import Ints
from decided.engines.tournament import Order, Rounds, tournament
from decided.settings import Settings

log = logging.getLogger("decided.engines")

_LEAST_MASS = 0.05


class EncodedQuestion:
    """A question in tokens, for any order of its options. Lines are whole, so their tokens can be put together."""

    def __init__(self, question: Question, vocabulary: Vocabulary, frame: Frame, limit: int) -> None:
        self.options = frame.words.texts(question)
        self._vocabulary = vocabulary
        self._frame = frame
        about = self._line(frame.words.question_lines(question), "instructions", limit // 4)
        shown = min(len(self.options), len(letters.LETTERS))
        self._option_limit = max(4, (limit - limit // 4) // shown)
        self._about, self.cuts = about
        self._lines: dict[tuple[str, int], list[int]] = {}
        self._end = [*vocabulary.encode(frame.words.end), *frame.after]
        natural = [self._option(letters.LETTERS[0], number) for number in range(len(self.options))]
        self.cuts += join_cuts([cuts for _, cuts in natural])
        longest = sorted((len(ids) for ids, _ in natural), reverse=True)[:shown]
        self.longest = len(self._about) + sum(longest) + shown + len(self._end)
        self.cost = sum(len(self.ids(order)) for order in _first_round(len(self.options)))

    def ids(self, order: Order) -> Ints:
        found = list(self._about)
        for letter, number in zip(letters.LETTERS, order, strict=False):
            if (letter, number) not in self._lines:
                self._lines[letter, number] = self._option(letter, number)[0]
            found += self._lines[letter, number]
        return np.array([*found, *self._end], np.int32)

    def _option(self, letter: str, number: int) -> tuple[list[int], tuple[Cut, ...]]:
        line = self._frame.words.option.format(letter, self.options[number])
        return self._line(line, "options", self._option_limit)

    def _line(self, text: str, part: str, limit: int) -> tuple[list[int], tuple[Cut, ...]]:
        return ended(self._vocabulary, text, part, limit)


class Causal(LanguageModel):
    def __init__(
        self, card: ModelCard, placement: Placement, decoder: Decoder, vocabulary: Vocabulary, frame: Frame,
        settings: Settings,
    ) -> None:  # fmt: skip
        super().__init__(card, placement, decoder, vocabulary, frame)
        self._rotations = settings.rotations
        self._at_once = settings.small_batch

    def prepare(self, questions: Sequence[Question]) -> list[EncodedQuestion]:
        limit = self.decoder.context // 2
        return [EncodedQuestion(question, self.vocabulary, self.frame, limit) for question in questions]

    def begin(self, about: About) -> "Tables":
        return Tables(about, self._rotations)

    def ask(self, prompts: Sequence[Prompt]) -> Callable[[], Iterable[Any]]:
        size = self._at_once or len(prompts)
        parts = [self.decoder.letters(prompts[start : start + size]) for start in range(0, len(prompts), size)]
        return lambda: np.concatenate([part() for part in parts])


class Tables:
    """The questions of an item on their way through their rounds."""

    def __init__(self, about: About, rotations: int) -> None:
        self._about = about
        self._tables = [_Waiting(asked, tournament(len(asked.options), rotations)) for asked in about.asked]

    def pending(self) -> list[Prompt]:
        key, state = self._about.key, self._about.state
        return [Prompt(key, state, table.asked.ids(order)) for table, order in self._open()]

    def take(self, found: Sequence[Any]) -> None:
        asks = list(zip(self._open(), found, strict=False))
        counts = [len(order) for (_, order), _ in asks]
        if asks:
            shares = softmax(
                np.concatenate([row[:count] for (_, row), count in zip(asks, counts, strict=True)]), counts
            )
            for ((table, _), _), of_order in zip(asks, shares, strict=True):
                table.take(of_order)

    def answers(self) -> list[list[float]]:
        return [table.result for table in self._tables]

    def _open(self) -> list[tuple["_Waiting", Order]]:
        """What is to be asked, in an order that does not change while it is."""
        return [(table, order) for table in self._tables for order in table.orders[len(table.found) :]]


class _Waiting:
    """A question on its way through its rounds."""

    def __init__(self, asked: EncodedQuestion, rounds: Rounds) -> None:
        self.asked = asked
        self._rounds = rounds
        self.orders: list[Order] = []
        self.found: list[list[float]] = []
        self.result: list[float] = []
        self._advance(lambda: next(rounds))

    def take(self, shares: list[float]) -> None:
        self.found.append(shares)
        if len(self.found) == len(self.orders):
            of_round, self.found = self.found, []
            self._advance(lambda: self._rounds.send(of_round))

    def _advance(self, step: Callable[[], list[Order]]) -> None:
        try:
            self.orders = step()
        except StopIteration as end:
            self.orders, self.result = [], end.value


def _first_round(count: int) -> list[Order]:
    rounds = tournament(count, 1)
    try:
        return next(rounds)
    except StopIteration:
        return []


def load(name: str, settings: Settings) -> Causal:
    files = read_files(name, settings)
    return assemble(files, settings, OPENDECIDER if files.given.has("opendecider.json") else LETTERED)


def assemble(files: Files, settings: Settings, words: PromptWords) -> Causal:
    """A model of a network and its tokenizer, with its token budget found."""
    decoder = Decoder(files.network, files.placement, _spellings(files.tokenizer, words))
    card = card_for(files, "causal", "asked for letters", decoder.context)
    frame = read_frame(files.tokenizer, words)
    model = Causal(card, files.placement, decoder, files.vocabulary, frame, settings)
    _look_at_letters(model)
    model.find_budget()
    return model


def _spellings(tokenizer: Any, words: PromptWords) -> list[list[int]]:
    """The tokens that count as each letter. A model that was trained on bare letters is asked for those."""
    if words is OPENDECIDER:
        return [[number] for number in tokenizer.convert_tokens_to_ids(list(letters.LETTERS))]
    return letters.spellings(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))


def _look_at_letters(model: Causal) -> None:
    """A model that does not answer with a letter, or with the same one in any order, decides by accident: say so."""
    question = Choice({"apple": "a fruit", "hammer": "a tool"}, "Which of the two is a fruit?")
    about: About = model.encode(model.prepare([question]), "An apple and a hammer.").items[0].payload
    prompts = [Prompt(about.key, about.state, about.asked[0].ids(order)) for order in ((0, 1), (1, 0))]
    found = model.decoder.mass(prompts[0], 2)
    if found < _LEAST_MASS:
        log.warning("%s puts %.1f%% of its probability on the letters it is asked for", model.card.name, 100 * found)
    chosen = model.decoder.letters(prompts)()[:, :2].argmax(axis=1).tolist()
    if chosen != [0, 1]:
        log.warning("%s answers letters poorly; try worded:NAME, see docs/models.md", model.card.name)
