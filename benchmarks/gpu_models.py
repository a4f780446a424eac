"""Random models of real shapes, for `gpu.py`: ours, and the peer's around the very same weights.

Nothing is downloaded. The tokenizer is trained on this repository's own pages. Random weights decide nonsense at the
speed at which trained ones would decide.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

from decided.engines.api import ModelCard
from decided.engines.checkpoint import Checkpoint
from decided.engines.prompts import LETTERED
from decided.engines.tokenizer import Vocabulary
from decided.engines.torch import causal, opendecider
from decided.engines.torch.fusion import Steps, fuse_layers, mix_parts
from decided.engines.torch.language import Files
from decided.engines.torch.modernbert import Encoder, read_shape
from decided.engines.torch.placement import Placement
from decided.settings import Settings

ROOT = Path(__file__).parents[1]
SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
CHAT = (
    "{% for message in messages %}[CLS]{{ message['role'] }}\n{{ message['content'] }}[SEP]\n{% endfor %}"
    "{% if add_generation_prompt %}[CLS]assistant\n{% endif %}"
)

ENCODERS: dict[str, dict[str, Any]] = {
    "encoder-400m": {  # ModernBERT-large
        "vocab_size": 50368, "hidden_size": 1024, "intermediate_size": 2624, "num_hidden_layers": 28,
        "num_attention_heads": 16, "max_position_embeddings": 8192,
    },
    "encoder-tiny": {
        "vocab_size": 8192, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 2, "max_position_embeddings": 8192,
    },
}  # fmt: skip
DECODERS: dict[str, dict[str, Any]] = {
    "decoder-0.6b": {  # Qwen3-0.6B
        "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    },
    "decoder-4b": {  # Qwen3-4B
        "vocab_size": 151936, "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    },
    "decoder-tiny": {
        "vocab_size": 8192, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    },
}  # fmt: skip


@dataclass
class Built:
    """A model of ours, what a token costs in matrices and in attention, and the peer's model of the same weights."""

    model: Any
    flops_per_token: float
    flops_per_pair: float
    """Of one token that looks at one other, in all layers that see everything; in others, at `window` tokens."""
    flops_per_near_pair: float
    window: int
    peer: Any = None
    peer_float32: Any = None
    no_peer: str = ""


def trained_tokenizer() -> Tokenizer:
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8000, special_tokens=list(SPECIAL.values()), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    words.train_from_iterator((page.read_text() for page in sorted((ROOT / "docs").rglob("*.md"))), trainer)
    return words


def build(name: str, placement: Placement, plain: bool = False) -> Built:
    torch.manual_seed(0)
    return _encoder(name, placement, plain) if name in ENCODERS else _decoder(name, placement, plain)


def _encoder(name: str, placement: Placement, plain: bool) -> Built:
    config = {"model_type": "modernbert", **ENCODERS[name]}
    shape = read_shape(config)
    with placement.device:
        encoder = Encoder(shape).to(placement.dtype).requires_grad_(False)
        head = nn.Sequential(
            nn.Linear(shape.hidden, shape.hidden), nn.GELU(), nn.LayerNorm(shape.hidden), nn.Linear(shape.hidden, 1)
        )
        head = head.to(placement.dtype).requires_grad_(False)
    words = trained_tokenizer()
    longest = 4096
    card = _card(name, placement)
    vocabulary = Vocabulary(Tokenizer.from_str(words.to_str()), dict(SPECIAL))
    model = opendecider.OpenDecider(card, placement, vocabulary, encoder, head, longest)
    if plain:
        encoder.steps, model.recorder = Steps(), None
    model.find_budget()
    dense = sum(p.numel() for name, p in encoder.named_parameters() if "tok_embeddings" not in name)
    everywhere = sum(shape.layers)
    built = Built(
        model, 2.0 * dense, 4.0 * shape.hidden * everywhere, 4.0 * shape.hidden * (len(shape.layers) - everywhere),
        2 * shape.window + 1,
    )  # fmt: skip
    try:
        built.peer = _peer_encoder(config, encoder, head, words, placement, longest)
        if placement.dtype is not torch.float32:  # in which it comes
            exact = Placement(placement.device, torch.float32)
            built.peer_float32 = _peer_encoder(config, encoder, deepcopy(head).float(), words, exact, longest)
    except ImportError as error:
        built.no_peer = f"{error.name} is not installed"
    return built


def _peer_encoder(
    config: dict[str, Any], encoder: Encoder, head: nn.Module, words: Tokenizer, placement: Placement, longest: int
) -> Any:
    """opendecider's own class, filled by hand instead of from files."""
    from opendecider import OpenDecider
    from opendecider.nano import NanoModel
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    nano = NanoModel.__new__(NanoModel)
    nn.Module.__init__(nano)
    nano.tok = PreTrainedTokenizerFast(tokenizer_object=words, **SPECIAL)
    settings = AutoConfig.for_model(**config, pad_token_id=0, bos_token_id=None, eos_token_id=None)
    with placement.device:
        nano.enc = AutoModel.from_config(settings, dtype=placement.dtype)
    nano.enc.load_state_dict(encoder.state_dict(), strict=False)
    nano.head, nano.mask_id, nano.max_len = head, nano.tok.mask_token_id, longest
    nano.device = placement.device.type
    return OpenDecider(nano.to(placement.device).eval(), {"name": "peer", "kind": "nano"})


def _decoder(name: str, placement: Placement, plain: bool) -> Built:
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    settings = AutoConfig.for_model("qwen3", max_position_embeddings=40_960, **DECODERS[name])
    with placement.device:
        network = AutoModelForCausalLM.from_config(settings, dtype=placement.dtype)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained_tokenizer(), **SPECIAL, eos_token="[SEP]")
    tokenizer.chat_template = CHAT
    files = Files(Checkpoint(name, ROOT), "random", network, tokenizer, placement)
    model = causal.assemble(files, Settings(), LETTERED)
    if plain:
        model.decoder._attention.mix, model.decoder._recorder = mix_parts, None
        fuse_layers(network, settings.num_hidden_layers, on=False)
        model.find_budget()
    dense = sum(p.numel() for name, p in network.named_parameters() if "embed_tokens" not in name)
    width = settings.num_attention_heads * settings.head_dim
    built = Built(model, 2.0 * dense, 4.0 * width * settings.num_hidden_layers, 0.0, 0)
    try:
        built.peer = _peer_decoder(network, tokenizer, placement, model.decoder._compiles and not plain)
    except ImportError as error:
        built.no_peer = f"{error.name} is not installed"
    return built


def _peer_decoder(network: Any, tokenizer: Any, placement: Placement, compiled: bool) -> Any:
    """opendecider's own class around the same network, with the attention that it would have used."""
    from opendecider import OpenDecider
    from opendecider.prompt import LETTERS
    from opendecider.small import SmallModel

    small = SmallModel.__new__(SmallModel)
    small.device, small.tok, small.m = placement.device.type, tokenizer, network
    small.letters = tokenizer.convert_tokens_to_ids(list(LETTERS))
    small.max_input_tokens = network.config.max_position_embeddings
    return _AsItWas(OpenDecider(small, {"name": "peer", "kind": "small"}), network, compiled)


class _AsItWas:
    """The peer's model; while it is used, the network has the usual attention and layers."""

    def __init__(self, peer: Any, network: Any, compiled: bool) -> None:
        self.peer, self.network, self.compiled = peer, network, compiled
        self.ours = network.config._attn_implementation

    def __enter__(self) -> Any:
        self.network.set_attn_implementation("sdpa")
        fuse_layers(self.network, self.network.config.num_hidden_layers, on=False)
        return self.peer

    def __exit__(self, *_: object) -> None:
        self.network.set_attn_implementation(self.ours)
        fuse_layers(self.network, self.network.config.num_hidden_layers, on=self.compiled)


def _card(name: str, placement: Placement) -> ModelCard:
    return ModelCard(
        name=name, description="Random weights.", release_date="1970-01-01", kind="bench", device=placement.device.type
    )


def text_of(tokens: int, number: int, vocabulary: Vocabulary) -> str:
    """A state of about so many tokens, unlike all others."""
    source = (ROOT / "docs" / "design.md").read_text()
    start = (number * 977) % max(1, len(source) // 2)
    text = f"Ticket {number}. {(source[start:] + source) * (1 + tokens // 2000)}"[: tokens * 8]
    ids = vocabulary.encode(text)[:tokens]
    return str(vocabulary._tokenizer.decode(ids))


def load(name: str, settings: Settings) -> Any:
    """The kind `bench`: what was built for this run."""
    return READY[name]


READY: dict[str, Any] = {}


def questions(count: int) -> dict[str, dict[str, Any]]:
    kinds: Sequence[dict[str, Any]] = (
        {"type": "choice", "instructions": "Which team should handle this ticket?",
         "criteria": {"billing": "charges, refunds and invoices", "technical": "faults and outages",
                      "delivery": "parcels and addresses", "account": "sign-in, profile and plan"}},
        {"type": "score", "instructions": "How upset is the customer?",
         "criteria": ["calm", "annoyed", "angry", "furious"]},
        {"type": "noul", "instructions": "Does this need a reply today?"},
    )  # fmt: skip
    return {f"q{number}": kinds[number % 3] | {"instructions": f"{number}. {kinds[number % 3]['instructions']}"}
            for number in range(count)}  # fmt: skip
