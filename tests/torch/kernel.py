"""A slow stand-in for the flash kernel of GPUs: what we hand to the kernel is checked here."""

import torch
from torch import Tensor


def varlen(
    q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor, most_q: int, most_k: int,
    window: tuple[int, int], scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    assert starts_q.dtype == starts_k.dtype == torch.int32
    assert len(starts_q) == len(starts_k)
    assert int(starts_q[-1]) <= len(q)
    assert int(starts_k[-1]) <= len(k)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    out, weight = torch.full_like(q, torch.nan), torch.full((q.shape[1], len(q)), torch.nan)  # what nobody asks for
    for number in range(len(starts_q) - 1):
        mine, theirs = (slice(int(s[number]), int(s[number + 1])) for s in (starts_q, starts_k))
        long_q, long_k = mine.stop - mine.start, theirs.stop - theirs.start
        if not long_q:
            continue
        assert long_q <= most_q
        assert long_k <= most_k
        logits = torch.einsum("qhd,khd->hqk", q[mine], k[theirs]) * (scale or q.shape[-1] ** -0.5)
        ahead = torch.arange(long_k) - torch.arange(long_k - long_q, long_k)[:, None]
        left, right = window
        hidden = (ahead > right if right >= 0 else ahead != ahead) | (ahead < -left if left >= 0 else ahead != ahead)
        logits = logits.masked_fill(hidden, float("-inf"))
        weight[:, mine] = logits.logsumexp(-1)
        out[mine] = torch.einsum("hqk,khd->qhd", logits.softmax(-1), v[theirs])
    return out, weight.transpose(0, 1)
