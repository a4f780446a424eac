"""What the decision encoders share: one sequence per question, one marker per option, one logit per marker."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from decided.contract.types import Question
from decided.engines.api import Cut, Encoded, Item, ModelCard
from decided.engines.prompts import Tokens, join_cuts, tokens
from decided.engines.tokenizer import Vocabulary
from decided.engines.torch.attention import Attention, Segments, has_flash
from decided.engines.torch.base import TorchModel, Weights, softmax
from decided.engines.torch.cuda_graphs import MOST_ROWS, CudaGraphCache, fill_up, round_up, round_up_by_doubling
from decided.engines.torch.fusion import fuse_steps
from decided.engines.torch.modernbert import Encoder, Shape
from decided.engines.torch.placement import Placement
from decided.engines.torch.transfer import Floats, Ints, to_device, to_host


class QuestionHead(NamedTuple):
    """A question in tokens, up to where the state comes; `room` is what is left for the state."""

    ids: Ints
    markers: Ints
    room: int
    question: Question
    cuts: tuple[Cut, ...]


class Row(NamedTuple):
    """One question about one state: what a network reads."""

    ids: Ints
    markers: Ints
    question: Question
    state: Ints
    """As far as it would fit if nothing were asked."""


class Packed(NamedTuple):
    """A batch on the device."""

    ids: Tensor
    positions: Tensor
    markers: Tensor
    kinds: Tensor
    """For each token, a number that the kind chose for its question."""
    segments: Segments


class MarkerEncoder(TorchModel):
    """Head, state, end; all questions of a batch in one packed row."""

    state_prefix = ""
    gives_features = True

    def __init__(
        self, card: ModelCard, placement: Placement, vocabulary: Vocabulary, encoder: Encoder, network: nn.Module,
        longest: int,
    ) -> None:  # fmt: skip
        super().__init__(card, placement)
        self.vocabulary = vocabulary
        self.longest = longest
        self._cls, self._sep, self._mask = (vocabulary.id_of(role) for role in ("cls_token", "sep_token", "mask_token"))
        self._begin, self._end = np.array([self._cls], np.int32), np.array([self._sep], np.int32)
        self.encoder = encoder.eval()
        self.network = network.eval()
        shape = encoder.shape
        self.attention = Attention(has_flash(placement.device, placement.dtype, shape.heads, shape.width))
        self.encoder.steps = fuse_steps(placement, shape.hidden, shape.inner, shape.heads, shape.activation)
        self.recorder = CudaGraphCache() if self.attention.flash else None

    @abstractmethod
    def head(self, question: Question) -> QuestionHead:
        """A question in tokens."""

    @abstractmethod
    def score(self, vectors: Tensor, batch: Packed) -> Tensor:
        """One logit for each marker."""

    def kind_of(self, question: Question) -> int:
        return 0

    def in_order(self, question: Question, logits: Sequence[float]) -> list[float]:
        """Logits of the markers, as logits of the options."""
        return list(logits)

    def clean(self, state: str) -> str:
        return state

    def prepare(self, questions: Sequence[Question]) -> list[QuestionHead]:
        return [self.head(question) for question in questions]

    def lay_out(self, question: Question, about: Tokens, options: Sequence[Tokens]) -> QuestionHead:
        """What is asked, and the options with a marker before each."""
        ids = [self._cls, *about.ids, self._sep]
        markers = []
        for option in options:
            markers.append(len(ids))
            ids += [self._mask, *option.ids]
        ids.append(self._sep)
        cuts = about.cuts + join_cuts([option.cuts for option in options])
        room = max(0, self.longest - len(ids) - 1)
        return QuestionHead(np.array(ids, np.int32), np.array(markers, np.int32), room, question, cuts)

    def encode(self, prepared: list[QuestionHead], state: str) -> Encoded:
        room = max(head.room for head in prepared)
        read = tokens(self.vocabulary, self.state_prefix + self.clean(state), "state", self.longest - 2)
        ids = np.array(read.ids, np.int32)
        given, estimated = (read.cuts[0].given, read.cuts[0].estimated) if read.cuts else (len(ids), False)
        items, cuts = [], []
        for number, head in enumerate(prepared):
            row = Row(np.concatenate((head.ids, ids[: head.room], self._end)), head.markers, head.question, ids)
            items.append(Item([number], len(row.ids), row))
            short = (Cut("state", head.room, given, estimated),) if given > head.room else ()
            cuts.append((*short, *head.cuts))
        input_tokens = min(len(ids), room) + sum(len(head.ids) + 1 for head in prepared)
        return Encoded(items, input_tokens, cuts)

    def forward(self, items: Sequence[Item]) -> Callable[[], Weights]:
        # By length, so that sequences of one length stand together.
        order = sorted(range(len(items)), key=lambda number: len(items[number].payload.ids))
        rows: list[Row] = [items[number].payload for number in order]
        counts = [len(row.markers) for row in rows]
        wait = to_host(self.placement, self._logits(rows)[: sum(counts)])
        described = [item for item in items if item.wants_features]
        pooled = to_host(self.placement, self._pool([item.payload.state for item in described])) if described else list

        def collect() -> Weights:
            for item, vector in zip(described, pooled(), strict=True):
                item.features = vector
            found = softmax(self.rescale(wait(), rows), counts)
            weights: list[list[list[float]]] = [[] for _ in items]
            for number, row, shares in zip(order, rows, found, strict=True):
                weights[number] = [self.in_order(row.question, shares)]
            return weights

        return collect

    def _pool(self, states: list[Ints]) -> Tensor:
        """For each state, the mean of its tokens' vectors. It is read once more, without a question: beside one, its
        vectors would be of the question too."""
        rows = [np.concatenate((self._begin, state, self._end)) for state in states]
        lengths = [len(row) for row in rows]
        starts = np.cumsum([0, *lengths], dtype=np.int32)
        places = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
        ids, positions, edges = to_device(self.placement, np.concatenate(rows), places, starts)
        vectors = self.encoder(ids, positions, Segments(lengths, edges), self.attention)
        return torch.stack([part.mean(0, dtype=torch.float32) for part in vectors.split(lengths)])

    def rescale(self, logits: Floats, rows: list[Row]) -> Floats:
        """Logits at the model's own temperatures."""
        return logits

    def free(self) -> None:
        if self.recorder is not None:
            self.recorder.clear()
        super().free()

    def _logits(self, rows: list[Row]) -> Tensor:
        """One logit for each marker of the batch; with recorded launches, some more behind them."""
        lengths = [len(row.ids) for row in rows]
        starts = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(lengths, out=starts[1:])
        arrays = [
            np.concatenate([row.ids for row in rows]),
            np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
            np.concatenate([row.markers + start for row, start in zip(rows, starts, strict=False)]),
            np.repeat(np.array([self.kind_of(row.question) for row in rows], np.int32), lengths),
            starts,
        ]
        if self.recorder is None or starts[-1] > MOST_ROWS:
            return self._run(lengths, max(lengths), *to_device(self.placement, *arrays))
        count, longest = round_up(len(arrays[0])), round_up_by_doubling(max(lengths), least=128)
        sizes = (count, count, round_up_by_doubling(len(arrays[2])), count, 1 + round_up_by_doubling(len(rows)))
        inputs = to_device(self.placement, *(fill_up(array, size) for array, size in zip(arrays, sizes, strict=True)))
        return self.recorder.run((*sizes, longest), partial(self._run, lengths, longest), *inputs)

    def _run(
        self, lengths: Sequence[int], longest: int, ids: Tensor, positions: Tensor, markers: Tensor, kinds: Tensor,
        starts: Tensor,
    ) -> Tensor:  # fmt: skip
        batch = Packed(ids, positions, markers, kinds, Segments(lengths, starts, longest))
        return self.score(self.encoder(ids, positions, batch.segments, self.attention), batch)


def assemble(
    shape: Shape, make_network: Callable[[], nn.Module], weights: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
    placement: Placement,
) -> tuple[Encoder, nn.Module]:  # fmt: skip
    """The encoder and what stands behind it, with their weights. Every parameter must be there, in its shape."""
    with torch.device("meta"):  # shapes only: the checkpoint brings the numbers
        encoder, network = Encoder(shape), make_network()
    for module, named in zip((encoder, network), weights, strict=True):
        module.load_state_dict({name: tensor.to(placement.dtype) for name, tensor in named.items()}, assign=True)
        module.to(placement.device).requires_grad_(False)
    return encoder, network
