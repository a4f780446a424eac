"""GLiClass models, through their own library: all options of a question are read together with the text.

Needs the extra `gliclass`. The library takes text and pads; what does not fit is cut here before it sees it,
since it would cut without a word.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gliclass import GLiClassModel, ZeroShotClassificationPipeline

from decided.contract.types import MAX_OPTIONS, Noul, Question
from decided.engines.api import Cut, Encoded, Item, ModelCard
from decided.engines.checkpoint import locate
from decided.engines.prompts import hypotheses, instructions, join_cuts, option_text
from decided.engines.tokenizer import Vocabulary, vocabulary_of
from decided.engines.torch.base import TorchModel, Weights, card_of, parts_by_length, softmax
from decided.engines.torch.placement import Placement, place
from decided.engines.torch.transfer import Floats, to_host
from decided.errors import ModelError
from decided.settings import Settings

_LONGEST = 1024
_OPTION_TOKENS = 64
_FRAME = 8


class EncodedQuestion(NamedTuple):
    """A question in words: its labels, the prompt before the text, and how many tokens they take."""

    labels: list[str]
    options: int
    prompt: str
    size: int
    cuts: tuple[Cut, ...]


class Row(NamedTuple):
    text: str
    asked: EncodedQuestion


class GliClass(TorchModel):
    def __init__(
        self, card: ModelCard, placement: Placement, pipeline: Any, vocabulary: Vocabulary, longest: int
    ) -> None:
        super().__init__(card, placement)
        self._pipeline = pipeline
        self.vocabulary = vocabulary
        self._longest = longest

    def prepare(self, questions: Sequence[Question]) -> list[EncodedQuestion]:
        return [self._ask(question) for question in questions]

    def _ask(self, question: Question) -> EncodedQuestion:
        statements = hypotheses(question)
        alone = len(statements) == 1 and isinstance(question, Noul)
        texts = statements if alone else [_describe(question, number) for number in range(len(question.keys()))]
        room = self._longest // 2
        each = room if alone else max(4, min(_OPTION_TOKENS, room // len(texts) - 1))
        short = [self.vocabulary.shorten(_plain(text), "options", each) for text in texts]
        prompt = "" if alone else _plain(instructions(question))
        about = self.vocabulary.shorten(prompt, "instructions", room // 4)
        size = about[1] + sum(count + 1 for _, count, _ in short) + _FRAME
        cuts = about[2] + join_cuts([cut for _, _, cut in short])
        return EncodedQuestion([text for text, _, _ in short], len(question.keys()), about[0], size, cuts)

    def encode(self, prepared: list[EncodedQuestion], state: str) -> Encoded:
        items, cuts, used = [], [], 0
        for number, asked in enumerate(prepared):
            text, count, cut = self.vocabulary.shorten(_plain(state), "state", max(1, self._longest - asked.size))
            items.append(Item([number], count + asked.size, Row(text, asked)))
            cuts.append((*cut, *asked.cuts))
            used = max(used, count)
        return Encoded(items, used + sum(asked.size for asked in prepared), cuts)

    def forward(self, items: Sequence[Item]) -> Callable[[], Weights]:
        rows: list[Row] = [item.payload for item in items]
        found: list[tuple[list[int], Any]] = []
        for part in parts_by_length([item.cost for item in items], self.token_budget):
            labels = [rows[number].asked.labels for number in part]
            inputs = self._pipeline.prepare_inputs(
                [rows[number].text for number in part], labels, prompt=[rows[number].asked.prompt for number in part]
            )
            most = max(map(len, labels))
            found.append((part, to_host(self.placement, self._pipeline.model(**inputs, max_num_classes=most).logits)))

        def collect() -> Weights:
            weights: list[list[list[float]]] = [[] for _ in rows]
            for part, wait in found:
                for number, logits in zip(part, wait(), strict=True):
                    asked = rows[number].asked
                    weights[number] = [_shares(logits[: len(asked.labels)], asked.options)]
            return weights

        return collect


def _describe(question: Question, number: int) -> str:
    option = question.options()[number]
    return option_text(option) if not option.key.isdigit() else option.description or option.key


def _plain(text: str) -> str:
    """The library marks labels with `<<...>>` in the text itself: what a client wrote must not look like that."""
    return text.replace("<<", "< <")


def _shares(logits: Floats, options: int) -> list[float]:
    """One label for two options: whether it fits. Else each against the others."""
    rows = np.array([logits[0], 0.0], np.float32) if len(logits) < options else logits
    return softmax(rows, [len(rows)])[0]


def load(name: str, settings: Settings) -> GliClass:
    from transformers import CONFIG_MAPPING, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    checkpoint = locate(name, settings)
    checkpoint.weight_files()  # says so if there are none that are safe to read
    family = (checkpoint.json("config.json").get("encoder_config") or {}).get("model_type", "deberta-v2")
    if family not in CONFIG_MAPPING and not checkpoint.trusted:  # the library would fetch such a family's own code
        raise ModelError(f"the encoder family {family!r} comes with code of its own: --trust-remote-code on runs it")
    placement = place(settings)
    words = AutoTokenizer.from_pretrained(checkpoint.folder, local_files_only=True)
    network = GLiClassModel.from_pretrained(checkpoint.folder, local_files_only=True).to(placement.dtype)
    network = network.requires_grad_(False)
    encoder = getattr(network.config, "encoder_config", None)
    longest = min(_LONGEST, int(getattr(encoder, "max_position_embeddings", 0) or _LONGEST))
    pipeline = ZeroShotClassificationPipeline(
        network, words, max_length=longest, device=torch.device(placement.device), progress_bar=False
    ).pipe
    most = min(MAX_OPTIONS, longest // 8)
    description = f"A GLiClass model that reads {longest:,} tokens of text and options, up to {most} of them."
    weights = checkpoint.fingerprint()
    card = card_of("gliclass", checkpoint.name, description, weights, placement, checkpoint.date(), most)
    model = GliClass(card, placement, pipeline, vocabulary_of(words), longest)
    model.find_budget()
    return model
