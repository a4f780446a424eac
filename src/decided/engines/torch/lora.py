"""LoRA adapters, added to the weights that they adapt: afterwards the model costs what it cost before."""

import math
import re
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from decided.engines.checkpoint import Checkpoint
from decided.errors import ModelError

_NAME = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight")
_PLAIN = {"use_dora": False, "fan_in_fan_out": False, "modules_to_save": None, "lora_bias": False}


def merge(model: nn.Module, adapter: Checkpoint) -> None:
    config = adapter.json("adapter_config.json")
    odd = [name for name, plain in _PLAIN.items() if config.get(name, plain) != plain]
    if config.get("peft_type", "LORA") != "LORA" or odd or config.get("bias", "none") != "none":
        raise ModelError(
            f"the adapter {adapter.name!r} is not a plain LoRA ({', '.join(odd) or config.get('peft_type')}): merge it "
            "into its base model with the library that made it, and serve the result"
        )
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for path in adapter.weight_files():
        for name, tensor in load_file(path).items():
            found = _NAME.fullmatch(name)
            if found is None:
                raise ModelError(f"the adapter {adapter.name!r} has a part that is not LoRA: {name}")
            parts.setdefault(found["module"], {})[found["side"]] = tensor
    for name, part in parts.items():
        try:
            weight = model.get_submodule(name).weight
        except AttributeError:
            raise ModelError(f"the adapter {adapter.name!r} is for another model: there is no {name}") from None
        change = part["B"].float() @ part["A"].float() * _scale(config, name)
        weight.data = (weight.data.float() + change.to(weight.device)).to(weight.dtype)


def _scale(config: dict[str, Any], name: str) -> float:
    rank, alpha = (
        next((value for key, value in (config.get(f"{what}_pattern") or {}).items() if name.endswith(key)), default)
        for what, default in (("rank", config["r"]), ("alpha", config["lora_alpha"]))
    )
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)
