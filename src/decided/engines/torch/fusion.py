"""The small steps between matrix products: on a GPU each is compiled into one kernel, where a compiler is at hand.

Written out, a step is several kernels, and each of them carries every number of the batch to and fro: together they
took half of the time of an encoder.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from decided.engines.torch.placement import Placement

log = logging.getLogger("decided.engines")


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """x of shape [tokens, ..., heads, width], each pair of numbers turned by its position's angle (see `rope`)."""
    return x * turn[0] + x.roll(x.shape[-1] // 2, -1) * turn[1]


def rope(positions: Tensor, theta: float, width: int, dtype: torch.dtype) -> Tensor:
    """For each position, what numbers are multiplied by, and what the other number of the pair is: [2, tokens, 1, 1,
    width]. The numbers of a pair stand half a width apart."""
    steps = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    angles = positions[:, None].float() * (1.0 / theta**steps)
    cosine, sine = angles.cos(), angles.sin()
    both = torch.stack((torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1)))
    return both.to(dtype)[:, :, None, None]


def add_and_norm(x: Tensor, more: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """The sum, and the sum normed."""
    x = x + more
    return x, F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def apply_gate(x: Tensor, activation: str) -> Tensor:
    value, gate = x.chunk(2, dim=-1)
    return ACTIVATIONS[activation](value) * gate


def mix_parts(own: Tensor, own_weight: Tensor, far: Tensor, far_weight: Tensor, first: Tensor) -> Tensor:
    """Two attentions of the same queries over different keys, as one over all: weights are logarithms. Queries before
    the first have their own keys alone."""
    share = torch.sigmoid(far_weight - own_weight)[..., None]
    both = torch.lerp(own.float(), far.float(), share).to(own.dtype)
    return torch.where(torch.arange(len(own), device=own.device)[:, None, None] < first, own, both)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "silu": F.silu, "relu": F.relu}


class Steps(NamedTuple):
    """The steps of an encoder."""

    rotate: Callable[[Tensor, Tensor], Tensor] = rotate
    add_and_norm: Callable[[Tensor, Tensor, Tensor, Tensor | None, float], tuple[Tensor, Tensor]] = add_and_norm
    apply_gate: Callable[[Tensor, str], Tensor] = apply_gate


class Sample:
    """Random numbers of the shapes that a model has. Kernels are made for them, and for any number of tokens."""

    def __init__(self, placement: Placement, tokens: int) -> None:
        self.tokens = tokens
        self._placement = placement
        self._draw = torch.Generator(placement.device).manual_seed(0)

    def __call__(self, *shape: int) -> Tensor:
        numbers = torch.randn(shape, generator=self._draw, device=self._placement.device)
        return numbers.to(self._placement.dtype)


Step = TypeVar("Step", bound=Callable[..., Any])


def fuse(step: Step, placement: Placement, inputs: Callable[[Sample], tuple[Any, ...]]) -> Step:
    """The step as one kernel, if a compiler is here and the kernel is right; else as it is."""
    if not placement.on_gpu:
        return step
    compiled: Step = torch.compile(step)
    try:
        with torch.inference_mode():
            for tokens in (2048, 3072):  # from the second size on, it is for any number of tokens
                given = inputs(Sample(placement, tokens))
                torch.testing.assert_close(compiled(*given), step(*given), rtol=0.05, atol=0.05)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        log.warning("kernels cannot be compiled, which costs speed (is there a C compiler?): %s", reason)
        return step
    return compiled


def fuse_steps(placement: Placement, hidden: int, inner: int, heads: int, activation: str) -> Steps:
    width = hidden // heads
    return Steps(
        fuse(
            rotate,
            placement,
            lambda draw: (draw(draw.tokens, 3, heads, width)[:, :2], draw(2, draw.tokens, 1, 1, width)),
        ),
        fuse(
            add_and_norm,
            placement,
            lambda draw: (draw(draw.tokens, hidden), draw(draw.tokens, hidden), draw(hidden), None, 1e-5),
        ),
        fuse(apply_gate, placement, lambda draw: (draw(draw.tokens, 2 * inner), activation)),
    )


def fuse_mix(
    placement: Placement, heads: int, width: int
) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    def inputs(draw: Sample) -> tuple[Tensor, ...]:
        of_weight = [draw(heads, draw.tokens).float().transpose(0, 1) for _ in range(2)]
        first = torch.full((4,), draw.tokens // 2, dtype=torch.int32, device=placement.device)[0]
        return (draw(draw.tokens, heads, width), of_weight[0], draw(draw.tokens, heads, width), of_weight[1], first)

    return fuse(mix_parts, placement, inputs)


def fuse_layers(network: nn.Module, count: int, on: bool) -> None:
    """Compile the layers of a decoder, or undo it. They are alike: it takes the time of one."""
    for module in network.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            for layer in module:
                layer._compiled_call_impl = None
                if on:
                    layer.compile(dynamic=True)
