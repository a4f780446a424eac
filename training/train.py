"""Trains the network on one GPU for a given time and keeps the moving average of its weights."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from training.architecture import ARCHITECTURES, POSITIONS
from training.archive import Archive
from training.batches import BLOCK, Batch, Packer, Shape, drawn
from training.calibrate import apply, fit, save_answers, weighed
from training.evaluate import SPLITS, answer, chosen_rows
from training.metrics import report
from training.network import LARGE, Kernels, Network, Squares, log_softmax, restored, visible, who_sees
from training.weights import load, save

SCORE = 1
TOLERANCE = 0.03  # of the compiled attention against the plain one, in bfloat16


class Stream(IterableDataset[Batch]):
    """Batches packed in worker processes, ahead of the GPU."""

    def __init__(self, packer: Packer, seed: int, strange: float, fresh: Sequence[str], together: int) -> None:
        self.packer, self.seed, self.strange, self.fresh, self.together = packer, seed, strange, fresh, together

    def __iter__(self) -> Iterator[Batch]:
        torch.set_num_threads(1)
        info = get_worker_info()
        number, workers = (info.id, info.num_workers) if info else (0, 1)
        draws = drawn(self.packer.archive, self.seed, number, workers, self.strange, self.fresh, self.together)
        return map(self.packer.pack, self.packer.groups(draws))


def targets(batch: Batch, smoothing: tuple[float, float], spread: tuple[float, float]) -> Tensor:
    """The probabilities to learn, flat over all markers: (of noisy rows, of clean rows) in each pair.

    A little goes to all options. Levels of a score are ordered, so most of what the right one gives goes to its
    neighbours: each is worth `spread` times the one nearer to it.
    """
    row, gold = batch["mark_row"], batch["row_gold"]
    rows, clean = gold.shape[0], batch["row_clean"].bool()
    score = batch["row_kind"] == SCORE
    level = torch.arange(len(row), device=row.device)
    base = torch.where(score, torch.where(clean, spread[1], spread[0]), 0.0)
    worth = base[row] ** (level - gold[row]).abs()  # 0 ** 0 is 1
    whole = torch.zeros(rows, device=row.device).index_add(0, row, worth)
    worth = worth / whole.clamp(min=1)[row]  # padding has none
    given = torch.where(clean, smoothing[1], smoothing[0])[row]
    return (1 - given) * worth + given / batch["row_options"][row]


def losses(
    logits: Tensor,
    batch: Batch,
    target: Tensor,
    ordinal: float,
    taught: Tensor | None = None,
    trust: tuple[float, float] = (0.0, 0.0),
) -> tuple[Tensor, Tensor]:
    """The mean loss over rows, and the plain log-loss for the log.

    The cross-entropy of a score is joined by the squared distance between the cumulative distributions, so that a near
    miss costs less than a far one. With a teacher's log-probabilities (`taught`) the target is a mixture of the label
    and what the teacher says: labels are noisy, and it has seen the others. It is trusted more on noisy rows than on
    clean ones (`trust` has both), where it is heard only if it is right. Where the state is a stranger's there is no
    label, and the teacher alone is right.
    """
    row, valid, strange = batch["mark_row"], batch["row_index"] >= 0, batch["row_strange"].bool()
    rows, options = valid.shape[0], batch["row_options"].float()
    log_p = log_softmax(logits, batch)
    if taught is not None:
        best = torch.full((rows,), -torch.inf, device=logits.device).scatter_reduce(0, row, taught, "amax")
        knows = (taught[batch["row_gold"]] >= best).float()
        of_label = torch.where(batch["row_clean"].bool(), trust[1] * knows, trust[0])
        trusted = torch.where(strange, 1.0, of_label)[row]
        target = (1 - trusted) * target + trusted * taught.exp()
    loss = -torch.zeros(rows, device=logits.device).index_add(0, row, target * log_p)
    if ordinal:
        gap = (log_p.exp() - target).double().cumsum(0)  # each row's differences add up to nothing
        distance = torch.zeros(rows, device=logits.device).index_add(0, row, gap.square().float())
        loss = loss + ordinal * torch.where(batch["row_kind"] == SCORE, distance / (options - 1).clamp(min=1) * 2, 0.0)
    plain, labelled = -log_p[batch["row_gold"]], valid & ~strange
    return (loss * valid).sum() / valid.sum(), ((plain * labelled).sum() / labelled.sum().clamp(min=1)).detach()


def said(teachers: list[Network], batch: Batch, kernels: Kernels) -> Tensor | None:
    """What the teachers say together: the mean of their log-probabilities, which they share out anew."""
    if not teachers:
        return None
    with torch.no_grad():
        each = [log_softmax(teacher(batch, kernels), batch) for teacher in teachers]
        return log_softmax(torch.stack(each).mean(0), batch)


def trained(net: Network) -> dict[str, nn.Parameter]:
    """The weights that learn, by name."""
    return {name: p for name, p in net.named_parameters() if p.requires_grad}


def groups(net: Network, rate: float, decay: float) -> list[dict[str, object]]:
    """Lower layers, which already know English, move more slowly; norms and biases are not decayed."""
    depth = len(net.layers)
    found: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for name, p in trained(net).items():
        if name.startswith("layers."):
            below = depth - 1 - int(name.split(".")[1])
        else:
            below = 0 if name.startswith("head") else depth
        found.setdefault((below, p.dim() < 2), []).append(p)
    return [
        {"params": ps, "lr": rate * decay**below, "top": rate * decay**below, "weight_decay": 0.0 if flat else 0.01}
        for (below, flat), ps in found.items()
    ]


def pace(step: int, progress: float, warmup: int) -> float:
    """Warm up, then fall linearly to nothing."""
    return min(1.0, (step + 1) / warmup) * max(0.0, 1 - progress)


def agrees(net: Network, kernels: Kernels) -> bool:
    """Whether the attention in use gives what the rule says, and its gradient, on some tokens of the loaded batch."""
    a, slot, device, tokens = net.architecture, kernels.slot, kernels.device, kernels.shape.tokens
    real = torch.bfloat16 if device.type == "cuda" else torch.float32
    some = torch.randperm(int(slot["used"]), device=device)[:256]
    x = torch.randn(tokens, 3 * a.hidden, device=device, dtype=real, requires_grad=True)
    weight = torch.randn(a.heads, len(some), a.width, device=device)
    found = []
    for plain in (False, True):
        q, k, v = x.view(1, tokens, 3, a.heads, a.width).permute(2, 0, 3, 1, 4).unbind(0)
        if plain:
            every = torch.arange(tokens, device=device)
            seen = visible(*who_sees(slot), some[:, None], every[None])
            score = q[0, :, some].float() @ k[0].float().transpose(1, 2) / math.sqrt(a.width)
            if net.relative is not None:
                place = slot["position"]
                score = score + net.relative[:, place[some][:, None] - place[None] + POSITIONS - 1]
            out = score.masked_fill(~seen, -torch.inf).softmax(-1) @ v[0].float()
        else:
            out = kernels.attend(q, k, v, net.relative)[0, :, some].float()
        (slope,) = torch.autograd.grad((out * weight).sum(), x)
        found.append((out.detach(), slope.float()))
    errors = [float((mine - right).norm() / right.norm()) for mine, right in zip(*found, strict=True)]
    print(f"attention is off by {errors[0]:.5f}, its gradient by {errors[1]:.5f}", flush=True)
    return max(errors) < TOLERANCE


def duration(net: Network, kernels: Kernels) -> float:
    """Seconds that one layer's attention and its gradient take with the loaded batch."""
    a, tokens = net.architecture, kernels.shape.tokens
    x = torch.randn(tokens, 3 * a.hidden, device=kernels.device, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(1, a.heads, tokens, a.width, device=kernels.device)
    for i in range(13):
        if i == 3:
            torch.cuda.synchronize()
            began = time.perf_counter()
        q, k, v = x.view(1, tokens, 3, a.heads, a.width).permute(2, 0, 3, 1, 4).unbind(0)
        (kernels.attend(q, k, v, net.relative) * weight).sum().backward()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / 10


def working_kernels(net: Network, device: torch.device, shape: Shape, batch: Batch) -> Kernels:
    """Kernels that were seen to give the right result here; of those with large and with small squares the faster."""
    found: list[tuple[float, Kernels]] = []
    for squares in (LARGE, Squares(BLOCK), LARGE._replace(full=False)):
        if len(found) == 2 or (found and not squares.full):
            break
        kernels = Kernels(device, shape, squares)
        kernels.load(batch)
        if device.type != "cuda":
            return kernels
        try:
            if agrees(net, kernels):
                found.append((duration(net, kernels), kernels))
                print(f"attention in {squares}: {found[-1][0] * 1e3:.2f} ms a layer", flush=True)
        except Exception as e:
            print(f"attention in {squares} does not run: {e!r}"[:2000], flush=True)
            torch._dynamo.reset()
    if not found:
        raise SystemExit("no attention kernel works on this machine")
    return min(found, key=lambda pair: pair[0])[1]


def averaged(net: Network, average: list[Tensor]) -> dict[str, np.ndarray]:
    """All weights by name, the trained ones as their average."""
    named = dict(zip(trained(net), average, strict=True))
    return {n: named.get(n, t).half().cpu().numpy() for n, t in net.state_dict().items()}


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    torch.set_float32_matmul_precision("high")
    archive, shape = Archive.load(args.archive), Shape.of(args.tokens)
    packer = Packer(archive, shape)
    net = restored(args.start, args.dropout) if args.start else Network(ARCHITECTURES[args.architecture], args.dropout)
    if args.base:
        architecture, arrays = load(args.base)
        missing = net.load_arrays(arrays)
        assert architecture == net.architecture, architecture
        assert all(name.startswith("head") for name in missing), missing
    net.to(device)
    net.word.requires_grad_(not args.keep_words)
    teachers = [restored(path).to(device).eval().requires_grad_(False) for path in args.teacher]
    optimiser = torch.optim.AdamW(groups(net, args.lr, args.layer_decay), betas=(0.9, 0.98), fused=cuda)
    live: list[Tensor] = list(trained(net).values())
    average = [p.detach().clone() for p in live]
    args.out.mkdir(parents=True, exist_ok=True)
    ahead = 4 if args.workers else None
    stream = DataLoader(
        Stream(packer, args.order or args.seed, args.strange if teachers else 0.0, args.fresh, args.together),
        batch_size=None, num_workers=args.workers, prefetch_factor=ahead, pin_memory=cuda,
    )  # fmt: skip
    batches = iter(stream)
    kernels = working_kernels(net, device, shape, next(batches))
    print(f"{args.name}: {args.tokens} tokens a step, ready", flush=True)
    began = time.time()
    start, seen, step, mean = args.began or began, 0, 0, torch.zeros((), device=device)
    logged, saved = 0.0, began
    smoothing, spread = (args.smoothing, args.clean_smoothing), (args.spread, args.clean_spread)
    trust = (args.trust, args.clean_trust)
    for step, host in enumerate(batches):
        now = time.time()
        progress = max((now - start) / args.seconds, step / args.steps if args.steps else 0.0)
        if progress >= 1:
            break
        for g in optimiser.param_groups:
            g["lr"] = g["top"] * pace(step, progress, args.warmup)
        batch = kernels.load(host)
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            taught = said(teachers, batch, kernels)
            logits = net(batch, kernels)
        loss, plain = losses(logits, batch, targets(batch, smoothing, spread), args.ordinal, taught, trust)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(live, 1.0)
        optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(average, live, 1 - min(args.average, (step + 1) / (step + 10)))
        seen += int(host["used"])
        mean = plain if step == 0 else mean.lerp(plain, 0.02)
        if now - logged > args.log:
            if not math.isfinite(float(mean)):
                raise SystemExit(f"{args.name}: the loss is not a number any more")
            logged, taken = now, time.time() - began
            speed = f"{taken:.0f}s {seen / 1e6:.1f}M tokens {seen / taken / 1e6:.3f}M/s"
            print(f"{args.name} {step} {progress:.3f} loss {float(mean):.4f} {speed}", flush=True)
        if now - saved > args.save:  # a machine may be taken away at any time
            saved = now
            save(args.out / f"{args.name}.npz", net.architecture.name, averaged(net, average))
    print(f"{args.name}: trained {time.time() - began:.0f}s, {step} steps, {seen / 1e6:.1f}M tokens", flush=True)
    del batches, stream
    with torch.no_grad():
        torch._foreach_copy_(live, average)
    save(args.out / f"{args.name}.npz", net.architecture.name, averaged(net, average))
    (args.out / f"{args.name}.done").touch()
    finish(args, net, kernels, packer)


def finish(args: argparse.Namespace, net: Network, kernels: Kernels, packer: Packer) -> None:
    """Evaluates the averaged weights and keeps their answers."""
    began = time.time()
    found = {}
    for name, split in SPLITS.items():
        if rows := chosen_rows(packer.archive, split, args.evaluate):
            found[name] = answer(net, kernels, packer, rows)
            save_answers(args.out / f"{args.name}.{name}.npz", found[name])
    fitted = fit(weighed(*(found.get(name, []) for name in ("held_out", "dev", "kept"))))
    temperatures = fitted.as_json()
    summary: dict[str, object] = {"args": {k: str(v) for k, v in vars(args).items()}, "temperatures": temperatures}
    for name, answers in found.items():
        raw, scaled = report(answers), report(apply(answers, fitted))
        print(f"{args.name} {name:8} raw  {raw.line()}\n{args.name} {name:8} temp {scaled.line()}", flush=True)
        summary[name] = {"raw": raw._asdict(), "scaled": scaled._asdict()}
        if name == "dev":
            print(" ".join(f"{t}={v:.3f}" for t, v in raw.tasks.items()), flush=True)
    print(f"evaluated {time.time() - began:.0f}s; temperatures {json.dumps(temperatures)}", flush=True)
    (args.out / f"{args.name}.json").write_text(json.dumps(summary, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archive", type=Path, required=True, help="made by training.data")
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="gte-small")
    parser.add_argument("--base", type=Path, help="pretrained encoder, made by training.base")
    parser.add_argument("--start", type=Path, help="go on from these weights")
    parser.add_argument("--keep-words", action="store_true", help="leave the table of words as it is")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="run")
    parser.add_argument("--seconds", type=float, default=math.inf, help="the rate falls to nothing in this time")
    parser.add_argument("--began", type=float, help="when the schedule began (Unix time), to take up a broken run")
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps")
    parser.add_argument("--tokens", type=int, default=32768, help="tokens in a batch")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--layer-decay", type=float, default=0.95)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--smoothing", type=float, default=0.08, help="what right options give to all, public tasks")
    parser.add_argument("--clean-smoothing", type=float, default=0.02, help="the same, tasks of our own")
    parser.add_argument("--spread", type=float, default=0.2, help="worth of the levels beside the right one, public")
    parser.add_argument("--clean-spread", type=float, default=0.06, help="the same, tasks of our own")
    parser.add_argument("--ordinal", type=float, default=0.5, help="weight of the ordinal loss of scores")
    parser.add_argument("--average", type=float, default=0.998, help="decay of the weights' moving average")
    parser.add_argument("--teacher", type=Path, nargs="*", default=[], help="runs whose answers are learnt as well")
    parser.add_argument("--trust", type=float, default=0.5, help="weight of the teachers' answers, public tasks")
    parser.add_argument(
        "--clean-trust", type=float, default=0.3, help="the same, tasks of our own, where they are right"
    )
    parser.add_argument("--strange", type=float, default=0.2, help="with teachers: questions about other rows' states")
    parser.add_argument(
        "--fresh", nargs="*", default=[], help="hand-written files that --start has not seen: drawn more often"
    )
    parser.add_argument("--together", type=int, default=1, help="at most so many questions about one state, read once")
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--log", type=float, default=15, help="seconds between lines of the log")
    parser.add_argument("--save", type=float, default=120, help="seconds between saved weights")
    parser.add_argument("--evaluate", type=int, default=0, help="at most so many rows of each split (0: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--order", type=int, default=0, help="another seed for the order of the rows alone")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
