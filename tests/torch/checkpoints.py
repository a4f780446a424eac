"""Tiny random checkpoints in the formats that the models' authors use, written by their own code where there is some.

Random weights decide nonsense, but the same nonsense everywhere: what is compared is arithmetic, not quality. They are
drawn wide enough that probabilities differ visibly.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
)

SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
TEXTS = [
    "The parcel arrived two days late and the box was open.",
    "I was charged twice for order 1182. Please give the money back today, or I will leave.",
    "yes no true false level question input statement holds does not hold billing technical refund urgent",
    "Which team should handle this? How upset is the writer? Is this a complaint? A. B. C. D. E. F. G. H.",
    "Straße, naïve café, 日本語, emoji 🙂, numbers 0 1 2 3 4 5 6 7 8 9.",
]


def tokenizer(**special: str) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer, trained on a few sentences."""
    chosen = special or SPECIAL
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=[*dict.fromkeys(chosen.values())], initial_alphabet=alphabet, show_progress=False
    )
    trained.train_from_iterator(TEXTS * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=trained, **chosen)


def modernbert(words: PreTrainedTokenizerFast, **more: Any) -> Any:
    sizes: dict[str, Any] = {
        "vocab_size": len(words), "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 4,
        "num_attention_heads": 2, "local_attention": 16, "max_position_embeddings": 512, "initializer_range": 0.25,
        "pad_token_id": words.pad_token_id, "bos_token_id": None, "eos_token_id": None,
        "cls_token_id": words.cls_token_id, "sep_token_id": words.sep_token_id,
    }  # fmt: skip
    return AutoConfig.for_model("modernbert", **sizes | more)


def opendecider(folder: Path) -> Path:
    """The nano format: the encoder as transformers writes it, the head beside it, `opendecider.json`."""
    torch.manual_seed(1)
    words = tokenizer()
    encoder = AutoModel.from_config(modernbert(words)).eval()
    encoder.to(torch.bfloat16).save_pretrained(folder)  # the family stores its weights so
    words.save_pretrained(folder)
    width = encoder.config.hidden_size
    head = torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width), torch.nn.Linear(width, 1)
    )
    torch.nn.init.normal_(head[3].weight, std=0.3)
    save_file({name: tensor.bfloat16() for name, tensor in head.state_dict().items()}, folder / "head.safetensors")
    (folder / "opendecider.json").write_text(json.dumps({"name": "tiny-nano", "kind": "nano", "max_len": 256}))
    return folder


LAYA = {
    "head_layers": 2, "max_len": 256, "head_max_len": 96, "act_costs": {"wait": 0.1}, "amp_dtype": "bf16",
    "temperature": [1.3, 0.8, 1.7],
    "temperature_by_options": {"choice:3-5": 2.2, "choice:11+": 0.1, "noul:2": 1.1},
}  # fmt: skip


def laya(folder: Path) -> Path:
    """Made of laya's own model class, and written by its own training code."""
    from laya.common import DecisionModel
    from laya.train import save_checkpoint

    torch.manual_seed(2)
    words = tokenizer()
    encoder = AutoModel.from_config(modernbert(words, rope_parameters=None, norm_bias=False))
    model = DecisionModel(encoder, 2, 2)
    torch.nn.init.normal_(model.scorer[3].weight, std=0.3)
    torch.nn.init.normal_(model.type_emb.weight)
    save_checkpoint(model, words, {"encoder": str(folder / "encoder"), **LAYA}, str(folder))
    return folder


CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def decoder(folder: Path, family: str, **more: Any) -> Path:
    """A language model of a family that transformers knows, with a chat template."""
    torch.manual_seed(3)
    words = tokenizer(pad_token="<|end|>", eos_token="<|im_end|>", bos_token="<|im_start|>", unk_token="<|end|>")
    words.chat_template = CHATML
    sizes: dict[str, Any] = {
        "vocab_size": len(words), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 1024,
        "initializer_range": 0.3, "pad_token_id": words.pad_token_id, "eos_token_id": words.eos_token_id,
        "bos_token_id": words.bos_token_id, "tie_word_embeddings": True,
    }  # fmt: skip
    config = AutoConfig.for_model(family, **sizes | more)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def cross_encoder(folder: Path, family: str, labels: Sequence[str]) -> Path:
    """A classifier of pairs, as transformers writes it."""
    torch.manual_seed(4)
    words = tokenizer()
    start, end = words.cls_token_id, words.sep_token_id
    words.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", start), ("[SEP]", end)],
    )
    words.model_input_names = ["input_ids", "attention_mask", *(["token_type_ids"] if family == "bert" else [])]
    names = {"id2label": dict(enumerate(labels)), "label2id": {label: place for place, label in enumerate(labels)}}
    if family == "modernbert":
        config = modernbert(words, **names)
    else:
        config = AutoConfig.for_model(
            family, vocab_size=len(words), hidden_size=64, intermediate_size=96, num_hidden_layers=3,
            num_attention_heads=4, max_position_embeddings=256, initializer_range=0.3, **names,
        )  # fmt: skip
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def gliclass(folder: Path) -> Path:
    """Made of the library's own classes."""
    from gliclass import GLiClassModel, GLiClassModelConfig

    torch.manual_seed(5)
    words = tokenizer()
    words.add_special_tokens({"additional_special_tokens": ["<<LABEL>>", "<<SEP>>", "<<EXAMPLE>>"]})
    config = GLiClassModelConfig(
        encoder_config=modernbert(words),
        encoder_model="made-here",
        class_token_index=words.convert_tokens_to_ids("<<LABEL>>"),
        text_token_index=words.convert_tokens_to_ids("<<SEP>>"),
        example_token_index=words.convert_tokens_to_ids("<<EXAMPLE>>"),
        hidden_size=128, vocab_size=len(words), prompt_first=True, architecture_type="uni-encoder",
        max_num_classes=64, scorer_type="simple",
    )  # fmt: skip
    GLiClassModel(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
