"""Attention over a packed batch: sequences one after the other in one long row, without padding.

On a GPU with half precision the flash kernel that comes with PyTorch takes the packed row as it is. Elsewhere each run
of sequences of one length is one dense call, so nothing is padded there either.
"""

import inspect
import logging
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

log = logging.getLogger("decided.engines")

Run = tuple[int, int, int]
"""Sequences of one length that stand one after the other: where they begin, how many, how long."""


class Segments:
    """Where the sequences of a packed batch begin and end."""

    def __init__(self, lengths: Sequence[int], starts: Tensor, longest: int = 0) -> None:
        self.starts = starts  # int32, on the device; one more than there are sequences
        self.longest = longest or max(lengths)
        self.runs: list[Run] = []
        begin = 0
        for length, same in groupby(lengths):
            count = len(list(same))
            self.runs.append((begin, count, length))
            begin += count * length


class Attention:
    """Softmax attention within each sequence of a packed batch."""

    def __init__(self, flash: bool) -> None:
        self.flash = flash

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, segments: Segments, window: int | None = None) -> Tensor:
        """q, k, v of shape [tokens, heads, width]; a token sees `window` tokens to either side, or all."""
        if self.flash:
            starts, longest = segments.starts, segments.longest
            near = (-1, -1) if window is None else (window, window)
            return varlen(q, k, v, starts, starts, longest, longest, near)[0]
        out = torch.empty_like(q)
        for begin, count, length in segments.runs:
            part = slice(begin, begin + count * length)
            shape = (count, length, *q.shape[1:])
            band = None if window is None or length <= window + 1 else _band(length, window, q.device)
            mixed = F.scaled_dot_product_attention(
                *(x[part].view(shape).transpose(1, 2) for x in (q, k, v)), attn_mask=band
            )
            out[part] = mixed.transpose(1, 2).reshape(count * length, *q.shape[1:])
        return out


def varlen(
    q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor, most_q: int, most_k: int,
    window: tuple[int, int], scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The flash kernel: what each query mixes, and the logarithm of the weight behind it, [tokens, heads].

    `window` is how far a query sees to the left and to the right, -1 for all the way. Keys may have fewer heads. The
    operator is called that stands under PyTorch's own function for it, whose parameters change between releases.
    """
    mixed, weight, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, starts_q, starts_k, most_q, most_k, 0.0, window == (-1, 0), False,
        scale=scale, window_size_left=window[0], window_size_right=window[1],
    )  # fmt: skip
    return mixed, weight.transpose(0, 1)


def _band(length: int, window: int, device: torch.device) -> Tensor:
    place = torch.arange(length, device=device)
    return (place[:, None] - place[None]).abs() <= window


def has_flash(device: torch.device, dtype: torch.dtype, heads: int, width: int) -> bool:
    """Whether the flash kernel is here and right: it is run once, and held against plain attention."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return False
    lengths = (3, 70, 70)
    starts = torch.tensor([0, 3, 73, 143], dtype=torch.int32, device=device)
    segments = Segments(lengths, starts)
    q, k, v = torch.randn(3, 143, heads, width, device=device, dtype=dtype).unbind(0)
    try:
        for window in (None, 16):
            fast, plain = (Attention(kernel)(q, k, v, segments, window) for kernel in (True, False))
            torch.testing.assert_close(fast, plain, rtol=0.05, atol=0.05)
    except Exception as error:  # an old PyTorch, an odd head size: plain attention does it
        log.warning("the flash attention kernel cannot be used: %s", str(error).splitlines()[0])
        return False
    return True


def takes(function: object, name: str) -> bool:
    """Whether a function of PyTorch, which changes from release to release, has a parameter."""
    return callable(function) and name in inspect.signature(function).parameters
