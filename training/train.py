"""Trains the network on one GPU and keeps the moving average of its weights."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from training import base, network
from training.batches import Batch, Draw, Packer, Shape, plan
from training.calibrate import DEV_WEIGHT, apply, fit, judged, save_answers
from training.data import BENCH, DEV, HELD_OUT, Archive
from training.evaluate import answer, chosen_rows
from training.metrics import report
from training.network import Kernels, Network, log_softmax

SCORE = 1


class Packed(Dataset[Batch]):
    """Batches packed in worker processes, ahead of the GPU."""

    def __init__(self, packer: Packer, batches: list[list[Draw]], peers: bool) -> None:
        self.packer, self.batches, self.peers = packer, batches, peers

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        torch.set_num_threads(1)
        batch = self.packer.pack(self.batches[index])
        if not self.peers:
            batch["mark"].zero_()
        return batch


def stream(data: Packed, workers: int, cuda: bool) -> Iterator[Batch]:
    ahead = 4 if workers else None
    yield from DataLoader(data, batch_size=None, num_workers=workers, prefetch_factor=ahead, pin_memory=cuda)


def losses(
    logits: Tensor, batch: Batch, smoothing: float, ordinal: float, taught: Tensor | None = None, trust: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The mean loss over rows, and the plain log-loss for the log.

    A score's levels are ordered: its cross-entropy is joined by the squared distance between the cumulative
    distributions, so that a near miss costs less than a far one. With a teacher's log-probabilities (`taught`) the
    target is a mixture of the label and what the teacher says: labels are noisy, and it has seen the others.
    """
    row, valid = batch["mark_row"], batch["row_index"] >= 0
    rows, count = valid.shape[0], batch["row_options"].float()
    log_p = log_softmax(logits, batch)
    plain = -log_p[batch["row_gold"]]
    spread = -torch.zeros(rows, device=logits.device).index_add(0, row, log_p) / count
    loss = (1 - smoothing) * plain + smoothing * spread
    if taught is not None:
        said = -torch.zeros(rows, device=logits.device).index_add(0, row, taught.exp() * log_p)
        loss = (1 - trust) * loss + trust * said
    if ordinal:
        level = torch.arange(len(row), device=row.device)
        running = log_p.exp().double().cumsum(0)
        before = (running - log_p.exp().double())[batch["row_first"]]
        gap = running - before[row] - (level >= batch["row_gold"][row]).double()
        distance = torch.zeros(rows, device=logits.device).index_add(0, row, gap.square().float())
        loss = loss + ordinal * torch.where(batch["row_kind"] == SCORE, distance / (count - 1).clamp(min=1) * 2, 0.0)
    total = valid.sum()
    return (loss * valid).sum() / total, ((plain * valid).sum() / total).detach()


def groups(net: Network, rate: float, decay: float) -> list[dict[str, object]]:
    """Lower layers, which already know English, move more slowly; norms and biases are not decayed."""
    depth = len(net.layers)
    found: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for name, p in net.named_parameters():
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
    return min(1.0, (step + 1) / warmup) * max(0.01, 1 - progress)


def train(args: argparse.Namespace) -> None:
    started = time.time()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    torch.set_float32_matmul_precision("high")
    archive, shape = Archive.load(args.archive), Shape.of(args.tokens)
    packer, kernels = Packer(archive, shape), Kernels(device, shape)
    net = Network(args.dropout, args.depth)
    if args.base:
        missing = net.load_arrays(base.load(args.base))
        assert all(name.startswith("head") for name in missing), missing
    if args.start:
        assert not net.load_arrays(network.load(args.start))
    net.to(device)
    teacher = None
    if args.teacher:
        teacher = Network(0.0, args.depth).to(device).eval().requires_grad_(False)
        assert not teacher.load_arrays(network.load(args.teacher))
    batches = plan(archive, packer, args.total * 1e6, args.order or args.seed)
    optimiser = torch.optim.AdamW(groups(net, args.lr, args.layer_decay), betas=(0.9, 0.98), fused=cuda)
    live: list[Tensor] = list(net.parameters())
    average = [p.detach().clone() for p in live]
    args.out.mkdir(parents=True, exist_ok=True)
    print(f"{args.name}: {len(batches)} steps of {args.tokens} tokens, {sum(map(len, batches))} rows", flush=True)
    began, seen, mean = time.time(), 0, torch.zeros((), device=device)
    for step, host in enumerate(stream(Packed(packer, batches, not args.no_peers), args.workers, cuda)):
        progress = max(step / len(batches), (time.time() - started) / args.seconds)
        if progress >= 1:
            break
        for g in optimiser.param_groups:
            g["lr"] = g["top"] * pace(step, progress, args.warmup)
        batch = kernels.load(host)
        taught = None
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            if teacher:
                with torch.no_grad():
                    taught = log_softmax(teacher(batch, kernels), batch)
            logits = net(batch, kernels)
        loss, plain = losses(logits, batch, args.smoothing, args.ordinal, taught, args.trust)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(live, 1.0)
        optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(average, live, 1 - min(args.average, (step + 1) / (step + 10)))
        seen += int((host["doc"] < host["doc"][-1]).sum()) if step % 50 == 0 else shape.tokens
        mean = plain if step == 0 else mean.lerp(plain, 0.02)
        if step % args.log == 0 or step == 20:
            elapsed = time.time() - began
            speed = f"{elapsed:.0f}s {seen / elapsed / 1e6:.2f}M tok/s"
            print(f"{args.name} {step}/{len(batches)} nll {float(mean):.4f} {speed}", flush=True)
            if step and not args.no_save:  # a machine may be taken away at any time
                names = [n for n, _ in net.named_parameters()]
                network.save(args.out / f"{args.name}.npz", dict(zip(names, average, strict=True)))
    print(f"{args.name}: trained {time.time() - began:.0f}s", flush=True)
    with torch.no_grad():
        torch._foreach_copy_(live, average)
    finish(args, net, kernels, packer)


def finish(args: argparse.Namespace, net: Network, kernels: Kernels, packer: Packer) -> None:
    """Evaluates the averaged weights and writes them with their answers."""
    began = time.time()
    if not args.no_save:
        network.save(args.out / f"{args.name}.npz", dict(net.named_parameters()))
    found = {}
    for name, split in (("held_out", HELD_OUT), ("dev", DEV), ("bench", BENCH)):
        if rows := chosen_rows(packer.archive, split):
            found[name] = answer(net, kernels, packer, rows, not args.no_peers)
            save_answers(args.out / f"{args.name}.{name}.npz", found[name])
    temperatures = fit([*judged(found.get("held_out", [])), *judged(found["dev"], DEV_WEIGHT)])
    summary: dict[str, object] = {"args": {k: str(v) for k, v in vars(args).items()}, "temperatures": temperatures}
    for name, answers in found.items():
        raw, scaled = report(answers), report(apply(answers, temperatures))
        print(f"{args.name} {name:8} raw  {raw.line()}\n{args.name} {name:8} temp {scaled.line()}", flush=True)
        summary[name] = {"raw": raw._asdict(), "scaled": scaled._asdict()}
        if name == "dev":
            print(" ".join(f"{t}={v:.3f}" for t, v in raw.tasks.items()), flush=True)
    print(f"evaluated {time.time() - began:.0f}s; temperatures {json.dumps(temperatures)}")
    (args.out / f"{args.name}.json").write_text(json.dumps(summary, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archive", type=Path, required=True, help="made by training.data")
    parser.add_argument("--base", type=Path, help="pretrained encoder, made by training.base")
    parser.add_argument("--start", type=Path, help="go on from these weights")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="run")
    parser.add_argument("--total", type=float, default=300, help="million tokens to train on")
    parser.add_argument("--seconds", type=float, default=math.inf, help="finish the schedule so long after the start")
    parser.add_argument("--tokens", type=int, default=32768, help="tokens in a batch")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--layer-decay", type=float, default=0.95)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--smoothing", type=float, default=0.05)
    parser.add_argument("--ordinal", type=float, default=0.5, help="weight of the ordinal loss of scores")
    parser.add_argument("--average", type=float, default=0.998, help="decay of the weights' moving average")
    parser.add_argument("--teacher", type=Path, help="weights of an earlier run whose answers are learnt as well")
    parser.add_argument("--trust", type=float, default=0.5, help="weight of the teacher's answers")
    parser.add_argument("--no-peers", action="store_true", help="markers do not see each other")
    parser.add_argument("--no-save", action="store_true", help="do not keep the weights (ablations)")
    parser.add_argument("--depth", type=int, default=network.LAYERS, help="fewer layers, for a quick try")
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--log", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--order", type=int, default=0, help="another seed for the order of the rows alone")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
