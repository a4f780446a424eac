"""Zero-shot cross-encoders: any classifier of pairs that has a label for 'it follows from the text'.

Each option becomes a statement; how much it follows from the state is the option's logit. A yes/no question is one
statement, weighed against the label for 'it contradicts the text', or against all other labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from decided.contract.types import MAX_OPTIONS, Question
from decided.engines.api import Cut, Encoded, Item, ModelCard, More
from decided.engines.checkpoint import entailment_label, locate
from decided.engines.prompts import Tokens, hypotheses, join_cuts, tokens
from decided.engines.tokenizer import Vocabulary, vocabulary_of
from decided.engines.torch.attention import takes
from decided.engines.torch.base import LEAST_BUDGET, TorchModel, Weights, card_of, parts_by_length, softmax
from decided.engines.torch.placement import Placement, place
from decided.engines.torch.transfer import Floats, Ints, to_device, to_host
from decided.errors import ModelError
from decided.settings import Settings

_UNBOUNDED = 1_000_000
"""Tokenizers that know no longest input say something above this."""


class Frame(NamedTuple):
    """The special tokens before, between and behind the two texts, and the segment number of each of the five parts."""

    parts: tuple[list[int], list[int], list[int]]
    segments: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.parts))


class EncodedQuestion(NamedTuple):
    """A question as statements in tokens."""

    statements: list[Ints]
    options: int
    cuts: tuple[Cut, ...]

    @property
    def longest(self) -> int:
        return max(map(len, self.statements))


@dataclass(slots=True)
class Pairs:
    """The pairs of one question: token ids and segment numbers; how many options it has; and what is known of them.
    A run takes as many as fit into the token budget."""

    rows: list[tuple[Ints, Ints]]
    options: int
    state: Ints
    """As far as it would fit beside no statement."""
    found: list[Floats] = field(default_factory=list)

    def following(self, budget: int) -> list[tuple[Ints, Ints]]:
        """Those of the next run."""
        rows = self.rows[len(self.found) :]
        sizes = accumulate(len(row[0]) for row in rows)
        return rows[: max(1, sum(size <= budget for size in sizes))]

    def cost(self, budget: int) -> int:
        return sum(len(row[0]) for row in self.following(budget))


class CrossEncoder(TorchModel):
    gives_features = True

    def __init__(
        self, card: ModelCard, placement: Placement, network: Any, vocabulary: Vocabulary, frame: Frame, longest: int,
        labels: tuple[int, int], segmented: bool,
    ) -> None:  # fmt: skip
        super().__init__(card, placement)
        self._network = network.to(placement.device).eval().requires_grad_(False)
        self.vocabulary = vocabulary
        self._frame = frame
        self._longest = longest
        self._entails, self._contradicts = labels
        self._segmented = segmented

    def prepare(self, questions: Sequence[Question]) -> list[EncodedQuestion]:
        limit = self._longest // 2
        asked = []
        for question in questions:
            read: list[Tokens] = [tokens(self.vocabulary, text, "options", limit) for text in hypotheses(question)]
            statements = [np.array(statement.ids, np.int32) for statement in read]
            asked.append(
                EncodedQuestion(statements, len(question.keys()), join_cuts([statement.cuts for statement in read]))
            )
        return asked

    def encode(self, prepared: list[EncodedQuestion], state: str) -> Encoded:
        # One room for all statements of a question: each must be weighed against the same text.
        rooms = [self._longest - self._frame.size - asked.longest for asked in prepared]
        read = tokens(self.vocabulary, state, "state", self._longest - self._frame.size)
        ids = np.array(read.ids, np.int32)
        given, estimated = (read.cuts[0].given, read.cuts[0].estimated) if read.cuts else (len(ids), False)
        items, cuts = [], []
        for number, (asked, room) in enumerate(zip(prepared, rooms, strict=True)):
            pairs = Pairs([self._pair(ids[:room], statement) for statement in asked.statements], asked.options, ids)
            items.append(Item([number], pairs.cost(self.token_budget), pairs))
            short = (Cut("state", room, given, estimated),) if given > room else ()
            cuts.append((*short, *asked.cuts))
        asks = sum(len(text) for asked in prepared for text in asked.statements)
        return Encoded(items, min(len(ids), max(rooms)) + asks, cuts)

    def _pair(self, state: Ints, statement: Ints) -> tuple[Ints, Ints]:
        before, between, behind = self._frame.parts
        parts = (before, state, between, statement, behind)
        segments = np.repeat(np.array(self._frame.segments, np.int32), [len(part) for part in parts])
        return np.concatenate(parts, dtype=np.int32), segments

    def forward(self, items: Sequence[Item]) -> Callable[[], Weights]:
        pairs: list[Pairs] = [item.payload for item in items]
        of_items = [each.following(self.token_budget) for each in pairs]
        rows = [row for following in of_items for row in following]
        parts = self._parts(rows)
        found = torch.cat([self._labels([rows[number] for number in part]) for part in parts])
        wait = to_host(self.placement, found)
        described = [item for item in items if item.wants_features and item.features is None]
        pooled = to_host(self.placement, self._pool([item.payload.state for item in described])) if described else list

        def collect() -> Weights:
            for item, vector in zip(described, pooled(), strict=True):
                item.features = vector
            logits = np.empty((len(rows), 2), np.float32)
            logits[np.concatenate(parts)] = wait()
            edges = np.cumsum([len(following) for following in of_items])[:-1]
            return [self._note(each, found) for each, found in zip(pairs, np.split(logits, edges), strict=True)]

        return collect

    def _note(self, pairs: Pairs, logits: Floats) -> list[list[float]] | More:
        pairs.found += list(logits)
        if len(pairs.found) < len(pairs.rows):
            return More(pairs.cost(self.token_budget))
        found, pairs.found = np.array(pairs.found), []
        return [_shares(found, pairs.options)]

    def halves(self, items: Sequence[Item]) -> list[Sequence[Item]]:
        """A question alone is tried again as it is: with a smaller token budget, its pairs run in more parts."""
        return super().halves(items) or ([items] if self.token_budget > LEAST_BUDGET else [])

    def _parts(self, rows: Sequence[tuple[Ints, Ints]]) -> list[list[int]]:
        return parts_by_length([len(ids) for ids, _ in rows], self.token_budget)

    def _labels(self, rows: Sequence[tuple[Ints, Ints]]) -> Tensor:
        """For each pair, how much it follows and how much it does not: [pairs, 2]."""
        logits = self._network(**self._padded(rows)).logits.float()
        follows = logits[:, self._entails].clone()
        if self._contradicts >= 0:
            return torch.stack((follows, logits[:, self._contradicts]), dim=1)
        logits[:, self._entails] = float("-inf")
        return torch.stack((follows, logits.logsumexp(dim=1)), dim=1)

    def _pool(self, states: Sequence[Ints]) -> Tensor:
        """For each state, the mean of its tokens' last vectors. It is read once more, beside no statement: beside one,
        its vectors would be of the statement too."""
        nothing = np.array([], np.int32)
        rows = [self._pair(state, nothing) for state in states]
        found: dict[int, Tensor] = {}
        for part in self._parts(rows):
            inputs = self._padded([rows[number] for number in part])
            vectors = self._network.base_model(**inputs).last_hidden_state.float()
            mask = inputs["attention_mask"][:, :, None]
            found |= zip(part, (vectors * mask).sum(1) / mask.sum(1), strict=True)
        return torch.stack([found[number] for number in range(len(rows))])

    def _padded(self, rows: Sequence[tuple[Ints, Ints]]) -> dict[str, Tensor]:
        """Rows of which the last is the longest, as the network takes them."""
        longest = len(rows[-1][0])
        ids, mask, segments = (np.zeros((len(rows), longest), np.int32) for _ in range(3))
        for number, (row, of_parts) in enumerate(rows):
            ids[number, : len(row)], mask[number, : len(row)], segments[number, : len(row)] = row, 1, of_parts
        names = ["input_ids", "attention_mask", *(["token_type_ids"] if self._segmented else [])]
        arrays = (ids, mask, segments)[: len(names)]
        moved = to_device(self.placement, *(array.ravel() for array in arrays))
        return {name: tensor.view(ids.shape) for name, tensor in zip(names, moved, strict=True)}


def _shares(logits: Floats, options: int) -> list[float]:
    """One statement for two options: yes against no. Else each against the others."""
    rows = logits[0] if len(logits) < options else logits[:, 0]
    return softmax(rows, [len(rows)])[0]


def read_frame(tokenizer: Tokenizer) -> Frame:
    """What the tokenizer puts around a pair of texts, found by giving it one."""
    pair = tokenizer.encode("a", "b")
    places = [pair.token_to_sequence(place) for place in range(len(pair.ids))]
    first, second = ([place for place, of in enumerate(places) if of == which] for which in (0, 1))
    ids, kinds = list(pair.ids), list(pair.type_ids)
    parts = (ids[: first[0]], ids[first[-1] + 1 : second[0]], ids[second[-1] + 1 :])
    ends = (0, first[0], first[-1] + 1, second[0], len(ids) - 1)
    return Frame(parts, tuple(kinds[end] for end in ends))


def load(name: str, settings: Settings) -> CrossEncoder:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    checkpoint = locate(name, settings)
    config = checkpoint.json("config.json")
    entails = entailment_label(config)
    if entails < 0:
        raise ModelError(f"{checkpoint.name!r} has no label for entailment: {config.get('id2label')}")
    named = {int(number): str(label).lower() for number, label in config["id2label"].items()}
    contradicts = next((number for number, label in named.items() if label.startswith("contradict")), -1)
    placement = place(settings)
    checkpoint.weight_files()  # says so if there are none that are safe to read
    files: dict[str, Any] = {"local_files_only": True, "trust_remote_code": checkpoint.trusted}
    words = AutoTokenizer.from_pretrained(checkpoint.folder, **files)
    if not checkpoint.trusted:
        files["use_safetensors"] = True
    network = AutoModelForSequenceClassification.from_pretrained(checkpoint.folder, dtype=placement.dtype, **files)
    frame = read_frame(words.backend_tokenizer)
    vocabulary = vocabulary_of(words)
    longest = _longest(network.config, words)
    description = f"A cross-encoder that reads {longest:,} tokens for each of up to {MAX_OPTIONS} options."
    card = card_of("nli", checkpoint.name, description, checkpoint.fingerprint(), placement, checkpoint.date())
    segmented = "token_type_ids" in words.model_input_names and takes(network.forward, "token_type_ids")
    model = CrossEncoder(card, placement, network, vocabulary, frame, longest, (entails, contradicts), segmented)
    model.find_budget()
    return model


def _longest(config: Any, words: Any) -> int:
    """The longest input. RoBERTa and its kin count positions from behind the padding token's number."""
    positions = int(getattr(config, "max_position_embeddings", 0) or 512)
    if config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        positions -= int(config.pad_token_id or 0) + 1
    told = int(words.model_max_length)
    return min(positions, told) if told < _UNBOUNDED else positions
