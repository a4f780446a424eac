"""What the kinds made of a causal language model share: its files, the words around a question, states read once."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from tokenizers import Tokenizer

from decided.contract import MAX_OPTIONS
from decided.engine import Cut, Item, ModelCard, Reading
from decided.engines.checkpoint import Checkpoint, locate
from decided.engines.torch import lora
from decided.engines.torch.base import TorchModel, Weights, card_of
from decided.engines.torch.decoder import Decoder
from decided.engines.torch.placement import Placement, place
from decided.engines.torch.transfer import Ints
from decided.engines.vocabulary import Vocabulary
from decided.prompts import Words, tokens
from decided.settings import Settings

_SLOT = "<the text goes here>"


class Frame(NamedTuple):
    """What the chat template puts around the user's words, in tokens, and the words around the text."""

    before: list[int]
    after: list[int]
    words: Words
    gap: str
    """What stands between the end of a prompt and the first word of an answer."""


class Asked(Protocol):
    """A question in tokens, ready for any state."""

    cuts: tuple[Cut, ...]
    longest: int
    """The most tokens that one prompt has behind the state."""
    cost: int
    """The tokens that it adds to a batch."""


class About(NamedTuple):
    """Some questions about one state: what an item carries."""

    key: bytes
    state: Ints
    asked: Sequence[Any]


class LanguageModel(TorchModel):
    """Items are questions about one state, as many as fit into a batch: they share what is computed for it."""

    def __init__(
        self, card: ModelCard, placement: Placement, decoder: Decoder, vocabulary: Vocabulary, frame: Frame
    ) -> None:
        super().__init__(card, placement)
        self.decoder = decoder
        self.vocabulary = vocabulary
        self.frame = frame

    def read(self, prepared: Sequence[Asked], state: str) -> Reading:
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
            cost += asked.cost
        items.append(_item(chunk, cost, whole, prepared))
        total = len(whole) + sum(asked.cost for asked in prepared)
        return Reading(items, total, [(*cuts, *asked.cuts) for asked in prepared])

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


def _item(numbers: list[int], cost: int, state: Ints, prepared: Sequence[Asked]) -> Item:
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
        return Vocabulary(Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str()), {})


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
    return card_of(kind, files.given.name, description, files.weights, files.placement)


def read_frame(tokenizer: Any, words: Words) -> Frame:
    """The chat template around the user's words. A model without one gets the words as plain text."""
    if not tokenizer.chat_template:
        start = [number for number in tokenizer("").input_ids if number != tokenizer.eos_token_id]
        task = tokenizer.encode(f"{words.task}\n\n" if words.task else "", add_special_tokens=False)
        return Frame([*start, *task], tokenizer.encode("\nAnswer:", add_special_tokens=False), words, " ")
    task, user = {"role": "system", "content": words.task}, {"role": "user", "content": _SLOT}
    try:
        text = _templated(tokenizer, [task, user] if words.task else [user])
    except Exception:  # a template that knows no system role says so by an error of its own
        text = _templated(tokenizer, [user | {"content": f"{words.task}\n\n{_SLOT}"}])
    before, _, after = text.partition(_SLOT)
    opening, closing = (tokenizer.encode(part, add_special_tokens=False) for part in (before, after))
    return Frame(opening, closing, words, "")


def _templated(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    text: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    if text.count(_SLOT) != 1:
        raise ValueError("the chat template leaves the user's words out")
    return text
