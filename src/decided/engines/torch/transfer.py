"""To the device and back: one copy each way for a batch, and nobody waits before the numbers are needed."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decided.engines.torch.placement import Placement

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


def to_device(placement: Placement, *arrays: Sequence[int] | NDArray[np.signedinteger[Any]]) -> list[Tensor]:
    """Whole numbers to the device, as one tensor for each array."""
    parts = [np.asarray(array, dtype=np.int32) for array in arrays]
    host = torch.from_numpy(np.concatenate(parts))
    if placement.on_gpu:
        host = host.pin_memory()
    moved = host.to(placement.device, non_blocking=True)
    return list(moved.split([len(part) for part in parts]))


def to_host(placement: Placement, result: Tensor) -> Callable[[], Floats]:
    """Bring numbers back: the copy is asked for now, and waited for when they are needed."""
    result = result.float()
    if not placement.on_gpu:
        values: Floats = result.cpu().numpy()
        return lambda: values
    host = torch.empty(result.shape, dtype=torch.float32, pin_memory=True)
    host.copy_(result, non_blocking=True)
    done = torch.cuda.Event(blocking=True)
    done.record()

    def wait() -> Floats:
        done.synchronize()
        found: Floats = host.numpy()
        return found

    return wait
