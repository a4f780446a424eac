"""Where a model runs and in which numbers: the settings, held against what the hardware can do."""

import logging
import time
from dataclasses import dataclass

import torch

from decided.errors import ModelError
from decided.hardware import physical_cores
from decided.settings import Settings

log = logging.getLogger("decided.engines")

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Placement:
    device: torch.device
    dtype: torch.dtype

    @property
    def on_gpu(self) -> bool:
        return bool(self.device.type == "cuda")

    @property
    def precision(self) -> str:
        return str(self.dtype).removeprefix("torch.")


def place(settings: Settings) -> Placement:
    """The device and the precision that the settings ask for, or the nearest that make sense here."""
    device = _device(settings.device)
    if device.type == "cpu":
        torch.set_num_threads(settings.threads or physical_cores())
    return Placement(device, _dtype(settings.dtype, device))


def _device(wanted: str) -> torch.device:
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return torch.device(next(name for name, is_here in here.items() if is_here))
    if not here[wanted]:
        raise ModelError(f"--device {wanted}: PyTorch finds no such device here; use --device auto")
    return torch.device(wanted)


def _dtype(wanted: str, device: torch.device) -> torch.dtype:
    if wanted == "int8":
        raise ModelError(
            "--dtype int8: PyTorch scales 8-bit numbers by what is in the batch, so answers would depend on other "
            "clients' questions; use float32, bfloat16 or float16"
        )
    if wanted == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    dtype = _DTYPES[wanted]
    if device.type == "cuda" and dtype is torch.bfloat16 and not torch.cuda.is_bf16_supported(False):
        log.warning("--dtype bfloat16: this GPU has no units for it; float16 is used")
        return torch.float16
    if device.type == "cpu" and dtype is not torch.float32 and (ratio := slowdown(dtype)) > 1:
        log.warning("--dtype %s is %.1f times slower than float32 on this CPU; float32 is used", wanted, ratio)
        return torch.float32
    return dtype


def slowdown(dtype: torch.dtype) -> float:
    """How much longer a matrix product takes on this CPU than in float32. Some have no units for the short formats."""
    supported = getattr(torch.ops.mkldnn, f"_is_mkldnn_{'bf16' if dtype is torch.bfloat16 else 'fp16'}_supported")
    if not supported():
        return float("inf")
    return _seconds(dtype) / _seconds(torch.float32)


def _seconds(dtype: torch.dtype) -> float:
    """The least of a few tries, since others may be busy on the same cores."""
    left, right = torch.ones(256, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
    times = []
    for _ in range(8):
        began = time.perf_counter()
        torch.mm(left, right)
        times.append(time.perf_counter() - began)
    return min(times)
