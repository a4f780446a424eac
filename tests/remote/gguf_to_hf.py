"""`python gguf_to_hf.py MODEL.gguf FOLDER`: a GGUF model as the files that vLLM reads. Runs in vLLM's environment."""

import sys
from pathlib import Path
from typing import Any


def main(source: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {"gguf_file": source.name}
    AutoTokenizer.from_pretrained(source.parent, **where).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **where)
    # By hand: what was read from GGUF counts as quantised, and is refused by `save_pretrained`.
    weights = {
        name: tensor.contiguous().clone() for name, tensor in model.state_dict().items() if "lm_head" not in name
    }
    del model.config.quantization_config
    model.config.architectures = ["LlamaForCausalLM"]
    model.config.dtype = "float32"
    model.config.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
