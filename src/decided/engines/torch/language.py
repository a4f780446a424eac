"""What the kinds made of a causal language model share: its files, the words around a question, states read once."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from decided.contract.types import MAX_OPTIONS
from decided.engines.api import Cut, Encoded, Item, ModelCard, More
from decided.engines.checkpoint import Checkpoint, locate
from decided.engines.prompts import PromptWords, tokens
from decided.engines.tokenizer import Vocabulary, vocabulary_of
from decided.engines.torch import lora
from decided.engines.torch.base import Finished, TorchModel, Weights, card_of
from decided.engines.torch.decoder import Decoder
from decided.engines.torch.packing import Prompt
from decided.engines.torch.placement import Placement, place
from decided.engines.torch.transfer import Ints
from decided.settings import Settings

_SLOT = "<the text goes here>"


class Frame(NamedTuple):
    """What the chat template puts around the user's words, in tokens, and the words around the text."""

    before: list[int]
    after: list[int]
    words: PromptWords
    gap: str
    """What stands between the end of a prompt and the first word of an answer."""


class EncodedQuestion(Protocol):
    """A question in tokens, ready for any state."""

    cuts: tuple[Cut, ...]
    longest: int
    """The most tokens that one prompt has behind the state."""
    cost: int
    """The tokens that it adds to a batch."""


class Progress(Protocol):
    """Some questions about one state, on their way."""

    def pending(self) -> Sequence[Prompt]:
        """What is to be asked now; nothing at the end."""

    def take(self, found: Sequence[Any]) -> None:
        """What the first of the pending prompts gave."""

    def answers(self) -> list[list[float]]: ...


@dataclass(slots=True)
class About:
    """Some questions about one state: what an item carries."""

    key: bytes
    state: Ints
    asked: Sequence[Any]
    progress: Progress | None = None


class LanguageModel(TorchModel):
    """Items are questions about one state, as many as fit into a batch: they share what is computed for it."""

    def __init__(
        self, card: ModelCard, placement: Placement, decoder: Decoder, vocabulary: Vocabulary, frame: Frame
    ) -> None:
        super().__init__(card, placement)
        self.decoder = decoder
        self.gives_features = decoder.packed
        """What is kept of a state is what describes it; layers that cannot share one keep nothing."""
        self.vocabulary = vocabulary
        self.frame = frame

    @abstractmethod
    def begin(self, about: About) -> Progress: ...

    @abstractmethod
    def ask(self, prompts: Sequence[Prompt]) -> Callable[[], Iterable[Any]]:
        """Start one batch; what is returned waits for it and gives something for each prompt."""

    def forward(self, items: Sequence[Item]) -> Callable[[], Weights]:
        """Every item goes on by as many prompts as fit into the token budget."""
        abouts: list[About] = [item.payload for item in items]
        ways = [about.progress or self.begin(about) for about in abouts]
        parts = [self._first(way.pending()) for way in ways]
        prompts = [prompt for part in parts for prompt in part]
        wait = self.ask(prompts) if prompts else list
        described = [item for item in items if item.wants_features and item.features is None]
        states = [(item.payload.key, item.payload.state) for item in described]
        pooled = self.decoder.describe(states, len(self.frame.before)) if described else list

        def collect() -> Weights:
            for item, vector in zip(described, pooled(), strict=True):
                item.features = vector
            found = iter(wait())
            return [
                self._go_on(about, way, [next(found) for _ in part])
                for about, way, part in zip(abouts, ways, parts, strict=True)
            ]

        return collect

    def _go_on(self, about: About, way: Progress, found: list[Any]) -> list[list[float]] | More:
        way.take(found)
        following = self._first(way.pending())
        about.progress = way if following else None
        return More(sum(len(prompt.behind) for prompt in following)) if following else way.answers()

    def _first(self, prompts: Sequence[Prompt]) -> Sequence[Prompt]:
        """As many as fit into the token budget, and one at least."""
        size = 0
        for count, prompt in enumerate(prompts):
            size += len(prompt.behind)
            if count and size > self.token_budget:
                return prompts[:count]
        return prompts

    def encode(self, prepared: Sequence[EncodedQuestion], state: str) -> Encoded:
        room = self.decoder.context - len(self.frame.before) - max(asked.longest for asked in prepared) - 4
        ids, cuts = ended(self.vocabulary, self.frame.words.state.format(state), "state", max(0, room))
        whole = np.array([*self.frame.before, *ids], np.int32)
        items: list[Item] = []
        chunk: list[int] = []
        cost = len(whole)
        for number, asked in enumerate(prepared):
            if chunk and cost + asked.cost > self.token_budget:
                items.append(_item(chunk, cost, whole, prepared))
                chunk, cost = [], 0
            chunk.append(number)
            cost += min(asked.cost, max(self.token_budget, asked.longest))  # more goes into another run
        items.append(_item(chunk, cost, whole, prepared))
        total = len(whole) + sum(asked.cost for asked in prepared)
        return Encoded(items, total, [(*cuts, *asked.cuts) for asked in prepared])

    def halves(self, items: Sequence[Item]) -> list[Sequence[Item]]:
        if len(items) > 1 or len(items[0].questions) < 2:
            return super().halves(items)
        numbers, middle = list(items[0].questions), len(items[0].questions) // 2
        about: About = items[0].payload
        parts = ((numbers[:middle], about.asked[:middle]), (numbers[middle:], about.asked[middle:]))
        abouts = [(part, replace(about, asked=asked, progress=None)) for part, asked in parts]
        return [[replace(items[0], questions=part, cost=items[0].cost // 2, payload=half)] for part, half in abouts]

    def join(self, items: Sequence[Item], parts: Sequence[Finished]) -> Weights:
        if len(items) == 1:
            return [[weights for part in parts for weights in part[0]]]
        return super().join(items, parts)

    def forget(self) -> None:
        self.decoder.states.clear()

    def free(self) -> None:
        self.decoder.forget()
        super().free()


def _item(numbers: list[int], cost: int, state: Ints, prepared: Sequence[EncodedQuestion]) -> Item:
    return Item(numbers, cost, About(state.tobytes(), state, [prepared[number] for number in numbers]))


def ended(vocabulary: Vocabulary, text: str, part: str, limit: int) -> tuple[list[int], tuple[Cut, ...]]:
    """The tokens of whole lines; if they are cut, the end of the line is put behind what is left."""
    ids, cuts = tokens(vocabulary, text, part, limit)
    if cuts:
        ids = [*ids, *vocabulary.encode(text[len(text.rstrip("\n")) :])]
    return ids, cuts


class Files(NamedTuple):
    """A language model as it was loaded: the network with its adapter, and its tokenizer."""

    given: Checkpoint
    weights: str
    """The fingerprint of the weights."""
    network: Any
    tokenizer: Any
    placement: Placement

    @property
    def vocabulary(self) -> Vocabulary:
        return vocabulary_of(self.tokenizer)


def read_files(name: str, settings: Settings) -> Files:
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
    tokenizer = AutoTokenizer.from_pretrained(base.folder, **files)
    safe = {} if base.gguf or base.trusted else {"use_safetensors": True}
    base.weight_files()  # says so if there are none that are safe to read
    network = AutoModelForCausalLM.from_pretrained(base.folder, dtype=placement.dtype, **files, **safe)
    if adapter:
        lora.merge(network, adapter)
    weights = "+".join(each.fingerprint() for each in (base, adapter) if each)
    return Files(given, weights, network, tokenizer, placement)


def _base_of(adapter: Checkpoint) -> str:
    meta = adapter.json("opendecider.json") if adapter.has("opendecider.json") else {}
    base = str(meta.get("base_model") or adapter.json("adapter_config.json")["base_model_name_or_path"])
    beside = adapter.folder / base
    return str(beside) if beside.is_dir() else base


def card_for(files: Files, kind: str, asked: str, context: int) -> ModelCard:
    description = f"A causal language model, {asked}, that reads {context:,} tokens and up to {MAX_OPTIONS} options."
    return card_of(kind, files.given.name, description, files.weights, files.placement, files.given.date())


def read_frame(tokenizer: Any, words: PromptWords) -> Frame:
    """The chat template around the user's words. A model without one gets the words as plain text."""
    if not tokenizer.chat_template:
        start = [number for number in tokenizer("").input_ids if number != tokenizer.eos_token_id]
        task = tokenizer.encode(f"{words.task}\n\n" if words.task else "", add_special_tokens=False)
        return Frame([*start, *task], tokenizer.encode("\nAnswer:", add_special_tokens=False), words, " ")
    task, user = {"role": "system", "content": words.task}, {"role": "user", "content": _SLOT}
    try:
        text = _apply_template(tokenizer, [task, user] if words.task else [user])
    except Exception:  # a template that knows no system role says so by an error of its own
        text = _apply_template(tokenizer, [user | {"content": f"{words.task}\n\n{_SLOT}"}])
    before, _, after = text.partition(_SLOT)
    opening, closing = (tokenizer.encode(part, add_special_tokens=False) for part in (before, after))
    return Frame(opening, closing, words, "")


def _apply_template(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    text: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    if text.count(_SLOT) != 1:
        raise ValueError("the chat template leaves the user's words out")
    return text
