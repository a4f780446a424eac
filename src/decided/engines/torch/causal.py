"""Any causal language model, asked for a letter: options have letters, and the next token's logits are the answer.

All questions about a state begin with the same tokens, so the state is read once for all of them, and kept for later
ones. What stands around the text is in `prompts.py`, as for language models behind a remote engine.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from decided.contract import MAX_OPTIONS, Choice, Question
from decided.engine import Cut, Item, ModelCard, Reading
from decided.engines import labels
from decided.engines.checkpoint import RELEASE_UNKNOWN, Checkpoint, locate
from decided.engines.rounds import Order, Rounds, decided
from decided.engines.torch import lora
from decided.engines.torch.base import TorchModel, Weights, softmax
from decided.engines.torch.decoder import Decoder
from decided.engines.torch.packing import Prompt
from decided.engines.torch.placement import Placement, place
from decided.engines.torch.transfer import Floats, Ints
from decided.engines.vocabulary import Vocabulary
from decided.prompts import LETTERED, OPENDECIDER, Lettered, joined, tokens
from decided.settings import Settings

log = logging.getLogger("decided.engines")

_LEAST_MASS = 0.05
_SLOT = "<the text goes here>"


class Frame(NamedTuple):
    """What the chat template puts around the user's words, in tokens, and the words around the text."""

    before: list[int]
    after: list[int]
    words: Lettered


class Asked:
    """A question in tokens, for any order of its options. Lines are whole, so their tokens can be put together."""

    def __init__(self, question: Question, vocabulary: Vocabulary, frame: Frame, limit: int) -> None:
        self.options = frame.words.texts(question)
        self._vocabulary = vocabulary
        self._frame = frame
        about = self._line(frame.words.question_lines(question), "instructions", limit // 4)
        shown = min(len(self.options), len(labels.LABELS))
        self._option_limit = max(4, (limit - limit // 4) // shown)
        self._about, self.cuts = about
        self._lines: dict[tuple[str, int], list[int]] = {}
        self._end = [*vocabulary.encode(frame.words.end), *frame.after]
        natural = [self._option(labels.LABELS[0], number) for number in range(len(self.options))]
        self.cuts += joined([cuts for _, cuts in natural])
        longest = sorted((len(ids) for ids, _ in natural), reverse=True)[:shown]
        self.longest = len(self._about) + sum(longest) + shown + len(self._end)

    def ids(self, order: Order) -> Ints:
        found = list(self._about)
        for letter, number in zip(labels.LABELS, order, strict=False):
            if (letter, number) not in self._lines:
                self._lines[letter, number] = self._option(letter, number)[0]
            found += self._lines[letter, number]
        return np.array([*found, *self._end], np.int32)

    def _option(self, letter: str, number: int) -> tuple[list[int], tuple[Cut, ...]]:
        line = self._frame.words.option.format(letter, self.options[number])
        return self._line(line, "options", self._option_limit)

    def _line(self, text: str, part: str, limit: int) -> tuple[list[int], tuple[Cut, ...]]:
        return ended(self._vocabulary, text, part, limit)


def ended(vocabulary: Vocabulary, text: str, part: str, limit: int) -> tuple[list[int], tuple[Cut, ...]]:
    """The tokens of whole lines; if they are cut, the end of the line is put behind what is left."""
    ids, cuts = tokens(vocabulary, text, part, limit)
    if cuts:
        ids = [*ids, *vocabulary.encode(text[len(text.rstrip("\n")) :])]
    return ids, cuts


class About(NamedTuple):
    """Some questions about one state: what an item carries."""

    key: bytes
    state: Ints
    asked: Sequence[Asked]


class Causal(TorchModel):
    def __init__(
        self, card: ModelCard, placement: Placement, decoder: Decoder, vocabulary: Vocabulary, frame: Frame,
        settings: Settings,
    ) -> None:  # fmt: skip
        super().__init__(card, placement)
        self.decoder = decoder
        self.vocabulary = vocabulary
        self._frame = frame
        self._rotations = settings.rotations
        self._at_once = settings.small_batch

    def prepare(self, questions: Sequence[Question]) -> list[Asked]:
        limit = self.decoder.context // 2
        return [Asked(question, self.vocabulary, self._frame, limit) for question in questions]

    def read(self, prepared: list[Asked], state: str) -> Reading:
        room = self.decoder.context - len(self._frame.before) - max(asked.longest for asked in prepared) - 4
        ids, cuts = ended(self.vocabulary, self._frame.words.state.format(state), "state", max(0, room))
        whole = np.array([*self._frame.before, *ids], np.int32)
        costs = [sum(len(asked.ids(order)) for order in _first_round(asked)) for asked in prepared]
        items: list[Item] = []
        chunk: list[int] = []
        cost = len(whole)
        for number, of_question in enumerate(costs):
            if chunk and cost + of_question > self.token_budget:
                items.append(self._item(chunk, cost, whole, prepared))
                chunk, cost = [], 0
            chunk.append(number)
            cost += of_question
        items.append(self._item(chunk, cost, whole, prepared))
        return Reading(items, len(whole) + sum(costs), [(*cuts, *asked.cuts) for asked in prepared])

    def _item(self, numbers: list[int], cost: int, state: Ints, prepared: list[Asked]) -> Item:
        return Item(numbers, cost, About(state.tobytes(), state, [prepared[number] for number in numbers]))

    def forward(self, items: Sequence[Item]) -> Callable[[], Weights]:
        abouts: list[About] = [item.payload for item in items]
        tables = [
            (about, asked, decided(len(asked.options), self._rotations)) for about in abouts for asked in about.asked
        ]
        waiting = [_Waiting(about, asked, rounds) for about, asked, rounds in tables]
        begun = self._round(waiting)

        def collect() -> Weights:
            found = begun
            while found:
                for table, shares in found():
                    table.answer(shares)
                found = self._round(waiting)
            answers = iter(waiting)
            return [[next(answers).result for _ in about.asked] for about in abouts]

        return collect

    def _round(self, waiting: Sequence["_Waiting"]) -> Callable[[], list[tuple["_Waiting", list[list[float]]]]] | None:
        """Start all that is to be asked now."""
        open_now = [table for table in waiting if table.orders]
        asks = [(table, order) for table in open_now for order in table.orders]
        if not asks:
            return None
        prompts = [Prompt(table.about.key, table.about.state, table.asked.ids(order)) for table, order in asks]
        size = self._at_once or len(prompts)
        parts = [self.decoder.letters(prompts[start : start + size]) for start in range(0, len(prompts), size)]

        def collect() -> list[tuple[_Waiting, list[list[float]]]]:
            logits: Floats = np.concatenate([part() for part in parts])
            counts = [len(order) for _, order in asks]
            rows = np.concatenate([row[:count] for row, count in zip(logits, counts, strict=True)])
            shares = iter(softmax(rows, counts))
            return [(table, [next(shares) for _ in table.orders]) for table in open_now]

        return collect

    def halves(self, items: Sequence[Item]) -> list[Sequence[Item]]:
        if len(items) > 1 or len(items[0].questions) < 2:
            return super().halves(items)
        numbers, middle = list(items[0].questions), len(items[0].questions) // 2
        about: About = items[0].payload
        parts = ((numbers[:middle], about.asked[:middle]), (numbers[middle:], about.asked[middle:]))
        return [[Item(part, items[0].cost // 2, about._replace(asked=asked))] for part, asked in parts]

    def joined(self, items: Sequence[Item], parts: list[Weights]) -> Weights:
        if len(items) == 1:
            return [[weights for part in parts for weights in part[0]]]
        return super().joined(items, parts)

    def forget(self) -> None:
        self.decoder.states.clear()

    def free(self) -> None:
        self.decoder.forget()
        super().free()


class _Waiting:
    """A question on its way through its rounds."""

    def __init__(self, about: About, asked: Asked, rounds: Rounds) -> None:
        self.about = about
        self.asked = asked
        self._rounds = rounds
        self.orders: list[Order] = []
        self.result: list[float] = []
        self._advance(lambda: next(rounds))

    def answer(self, shares: list[list[float]]) -> None:
        self._advance(lambda: self._rounds.send(shares))

    def _advance(self, step: Callable[[], list[Order]]) -> None:
        try:
            self.orders = step()
        except StopIteration as end:
            self.orders, self.result = [], end.value


def _first_round(asked: Asked) -> list[Order]:
    rounds = decided(len(asked.options), 1)
    try:
        return next(rounds)
    except StopIteration:
        return []


def load(name: str, settings: Settings) -> Causal:
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    given = locate(name, settings)
    adapter = given if given.has("adapter_config.json") else None
    base = locate(_base_of(given), settings) if adapter else given
    placement = place(settings)
    files: dict[str, Any] = {"local_files_only": True, "trust_remote_code": base.trusted}
    if base.gguf:
        files["gguf_file"] = base.gguf
    words = AutoTokenizer.from_pretrained(base.folder, **files)
    safe = {} if base.gguf or base.trusted else {"use_safetensors": True}
    base.weight_files()  # says so if there are none that are safe to read
    network = AutoModelForCausalLM.from_pretrained(base.folder, dtype=placement.dtype, **files, **safe)
    if adapter:
        lora.merge(network, adapter)
    weights = "+".join(each.fingerprint() for each in (base, adapter) if each)
    in_their_words = OPENDECIDER if given.has("opendecider.json") else LETTERED
    return assembled(given.name, weights, network, words, placement, settings, in_their_words)


def assembled(
    name: str, weights: str, network: Any, tokenizer: Any, placement: Placement, settings: Settings, words: Lettered
) -> Causal:
    """A model of a network and its tokenizer, with its token budget found."""
    vocabulary = Vocabulary(Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()), {})
    decoder = Decoder(network, placement, _spellings(tokenizer, words))
    card = ModelCard(
        name=name,
        description=f"A causal language model that reads {decoder.context:,} tokens and up to {MAX_OPTIONS} options.",
        release_date=RELEASE_UNKNOWN,
        kind="causal",
        device=placement.device.type,
        provenance=f"Weights {weights}, {placement.precision}, not calibrated.",
    )
    model = Causal(card, placement, decoder, vocabulary, read_frame(tokenizer, words), settings)
    _look_at_letters(model)
    model.find_budget()
    return model


def _spellings(tokenizer: Any, words: Lettered) -> list[list[int]]:
    """The tokens that count as each letter. A model that was trained on bare letters is asked for those."""
    if words is OPENDECIDER:
        return [[number] for number in tokenizer.convert_tokens_to_ids(list(labels.LABELS))]
    return labels.spellings(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))


def _base_of(adapter: Checkpoint) -> str:
    meta = adapter.json("opendecider.json") if adapter.has("opendecider.json") else {}
    base = str(meta.get("base_model") or adapter.json("adapter_config.json")["base_model_name_or_path"])
    beside = adapter.folder / base
    return str(beside) if beside.is_dir() else base


def read_frame(tokenizer: Any, words: Lettered) -> Frame:
    """The chat template around the user's words. A model without one gets the words as plain text."""
    if not tokenizer.chat_template:
        start = [number for number in tokenizer("").input_ids if number != tokenizer.eos_token_id]
        task = tokenizer.encode(f"{words.task}\n\n", add_special_tokens=False)
        return Frame([*start, *task], tokenizer.encode("\nAnswer:", add_special_tokens=False), words)
    task, user = {"role": "system", "content": words.task}, {"role": "user", "content": _SLOT}
    try:
        text = _templated(tokenizer, [task, user])
    except Exception:  # a template that knows no system role says so by an error of its own
        text = _templated(tokenizer, [user | {"content": f"{words.task}\n\n{_SLOT}"}])
    before, _, after = text.partition(_SLOT)
    return Frame(
        tokenizer.encode(before, add_special_tokens=False), tokenizer.encode(after, add_special_tokens=False), words
    )


def _templated(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    text: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    if text.count(_SLOT) != 1:
        raise ValueError("the chat template leaves the user's words out")
    return text


def _look_at_letters(model: Causal) -> None:
    """A model that does not answer with a letter decides by accident: say so, once."""
    question = Choice({"apple": "a fruit", "hammer": "a tool"}, "Which of the two is a fruit?")
    about: About = model.read(model.prepare([question]), "An apple and a hammer.").items[0].payload
    found = model.decoder.mass(Prompt(about.key, about.state, about.asked[0].ids(range(2))), 2)
    if found < _LEAST_MASS:
        log.warning("%s puts %.1f%% of its probability on the letters it is asked for", model.card.name, 100 * found)
