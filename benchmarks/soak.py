"""Mixed traffic for as long as you like: does anything get lost, fail or grow?

    python benchmarks/soak.py --minutes 60 --plot soak.svg

The real command line serves the model (the embedded one, or any other). Clients send everything that a server meets:
valid requests, batches, streams, broken JSON, refused questions, slow senders, clients that leave, huge requests that
run into the time limit, the page and the metrics; SIGHUP now and then. With a model that fails when told to
(`--faults`, with tests/support/fake_server.py behind `--module`), failures of the engine are part of it.

Every request is counted with its end. The targets: every request has an end; none is 500 or above but those that were
provoked (500 by --faults, 503 and 504 by huge and slow ones); resident size within 5 % after the first tenth.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from loadgen import HOST  # noqa: E402
from workload import BATCH, QUESTIONS, SINGLE, STATE, huge_body  # noqa: E402

GROWTH = 0.05
WARM_UP_MIB = 6.0
"""What a process of some 50 MiB gains while it does everything for the first time, 4 to 5 as seen: no growth yet."""
SAMPLES = 240


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of request: its bytes, and how it may end. 0 is the end of a client that left."""

    path: str
    body: bytes
    ends: frozenset[int]
    weight: int
    headers: str = ""
    method: str = "POST"
    leaves: bool = False
    slow: bool = False


def kinds(faults: bool, huge: bool) -> dict[str, Kind]:
    """What is sent, and how often. A time limit may meet any of them while huge ones are under way."""
    late = frozenset({503, 504}) if huge else frozenset({503})

    def body(**fields: Any) -> bytes:
        return json.dumps({"questions": QUESTIONS, **fields}).encode()

    fine = frozenset({200}) | late
    found = {
        "single": Kind(SINGLE, body(state=STATE), fine, 30),
        "long": Kind(SINGLE, body(state="late parcel " * 400), fine, 3),
        "batch": Kind(BATCH, body(states=[f"Ticket {number}" for number in range(12)]), fine, 3),
        "stream": Kind(BATCH, body(states=["one", "two", "three"]), fine, 3, "Accept: application/x-ndjson\r\n"),
        "broken": Kind(SINGLE, b'{"state": ', frozenset({400}) | late, 4),
        "refused": Kind(SINGLE, body(state="x").replace(b'"noul"', b'"nothing"'), frozenset({422}) | late, 4),
        "slow": Kind(SINGLE, body(state=STATE), frozenset({200, 504}) | late, 2, slow=True),
        "leaves": Kind(BATCH, body(states=["gone " * 50] * 64), frozenset({0}) | fine, 3, leaves=True),
        "page": Kind("/", b"", frozenset({200}), 2, method="GET"),
        "metrics": Kind("/metrics", b"", frozenset({200}), 2, method="GET"),
        "ready": Kind("/ready", b"", frozenset({200}), 2, method="GET"),
    }
    if huge:
        found["huge"] = Kind(SINGLE, huge_body(), fine, 1)
    if faults:
        found["fails"] = Kind(SINGLE, body(state="FAIL"), frozenset({500}) | late, 3)
        found["not numbers"] = Kind(SINGLE, body(state="NAN"), frozenset({500}) | late, 1)
    return found


@dataclass
class Findings:
    sent: Counter[str] = field(default_factory=Counter)
    ended: Counter[tuple[str, int]] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    samples: list[tuple[float, float, int, int]] = field(default_factory=list)
    """Seconds since the start, MiB, open files, threads."""

    def verdicts(self) -> list[str]:
        """What was missed."""
        missed = []
        unanswered = sum(self.sent.values()) - sum(self.ended.values())
        if unanswered:
            missed.append(f"{unanswered} requests have no end")
        if self.unexpected:
            missed.append(f"{len(self.unexpected)} requests ended as they should not: {self.unexpected[:5]}")
        if self.growth() > GROWTH and max(size for _, size, _, _ in self.samples) > self.samples[0][1] + WARM_UP_MIB:
            missed.append(f"resident size grew by {self.growth():.1%}")
        return missed

    def growth(self) -> float:
        """Of what stays: the least of the last fifth of the samples against the least of the fifth before the middle.
        What a huge request takes for a while, and gives back, is no growth."""
        sizes = [size for _, size, _, _ in self.samples]
        fifth = max(1, len(sizes) // 5)
        return min(sizes[-fifth:]) / min(sizes[len(sizes) // 2 - fifth : len(sizes) // 2] or sizes) - 1


async def send(port: int, kind: Kind, patience_s: float) -> int:
    """One request on a connection of its own; its status, or 0 for a client that left."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        head = (
            f"{kind.method} {kind.path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{kind.headers}"
            f"Content-Length: {len(kind.body)}\r\n\r\n"
        )
        data = head.encode() + kind.body
        if kind.slow:
            writer.write(data[:-20])
            await asyncio.sleep(0.3)
            data = data[-20:]
        writer.write(data)
        if kind.leaves:
            await asyncio.sleep(random.random() * 0.2)
            return 0
        status = int((await asyncio.wait_for(reader.readline(), patience_s)).split()[1])
        await asyncio.wait_for(reader.read(), patience_s)
        return status
    finally:
        writer.close()


class Soak:
    def __init__(self, pid: int, port: int, given: argparse.Namespace) -> None:
        self.pid, self.port, self.given = pid, port, given
        self.found = Findings()
        self.until = monotonic() + 60 * given.minutes

    async def run(self) -> Findings:
        sorts = kinds(self.given.faults, not self.given.no_huge)
        watching = asyncio.ensure_future(self._watch())
        await asyncio.gather(*(self._client(sorts, number) for number in range(self.given.clients)))
        watching.cancel()
        return self.found

    async def _client(self, sorts: dict[str, Kind], seed: int) -> None:
        dice = random.Random(seed)
        names, weights = list(sorts), [kind.weight for kind in sorts.values()]
        while monotonic() < self.until:
            (name,) = dice.choices(names, weights)
            self.found.sent[name] += 1
            try:
                status = await send(self.port, sorts[name], self.given.limit + 30)
            except (OSError, TimeoutError, IndexError) as error:
                self.found.unexpected.append(f"{name}: {error!r}")
                continue
            self.found.ended[name, status] += 1
            if status not in sorts[name].ends:
                self.found.unexpected.append(f"{name}: {status}")
            await asyncio.sleep(dice.random() * self.given.pause)

    async def _watch(self) -> None:
        began = monotonic()
        pause = max(0.2, 60 * self.given.minutes / SAMPLES)
        while True:
            await asyncio.sleep(pause)
            self.found.samples.append((monotonic() - began, *look_at(self.pid)))
            if len(self.found.samples) % 20 == 0:
                os.kill(self.pid, signal.SIGHUP)


def look_at(pid: int) -> tuple[float, int, int]:
    """MiB, open files and threads of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return int(status["VmRSS"].split()[0]) / 1024, files, int(status["Threads"])


def plot(found: Findings, path: Path) -> None:
    """Size, open files and threads over time, each from 0 to its maximum, as one small SVG."""
    width, height, colours = 720, 120, ("#1f77b4", "#2ca02c", "#d62728")
    last = found.samples[-1][0]
    parts = []
    for number, (name, colour) in enumerate(zip(("MiB", "open files", "threads"), colours, strict=True)):
        values = [float(sample[1 + number]) for sample in found.samples]
        top = max(values) * 1.1
        points = " ".join(
            f"{60 + (width - 70) * sample[0] / last:.1f},{number * (height + 30) + height * (1 - value / top) + 20:.1f}"
            for sample, value in zip(found.samples, values, strict=True)
        )
        at = number * (height + 30)
        parts.append(
            f'<text x="60" y="{at + 14}" font-size="12">{name}: {values[0]:.0f} to {values[-1]:.0f}, most '
            f'{max(values):.0f}</text><path d="M60 {at + height + 20}H{width - 10}" stroke="#999"/>'
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
    total = 3 * (height + 30) + 10
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" font-family="sans-serif">'
        f'<rect width="{width}" height="{total}" fill="#fff"/>{"".join(parts)}'
        f'<text x="60" y="{total - 4}" font-size="11">{last / 60:.1f} minutes</text></svg>\n'
    )


def serve(given: argparse.Namespace, log: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", given.module, "serve", "--host", HOST, "--port", "0", "--model", given.model]
    command += ["--request-timeout-s", f"{given.limit:g}", "--log-level", "info"]
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, cwd=HERE.parent)


def port_of(process: "subprocess.Popen[bytes]", log: Path) -> int:
    while not (found := re.search(r"on http://\S*:(\d+)", log.read_text())):
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode}:\n{log.read_text()[-1500:]}")
        sleep(0.05)
    return int(found[1])


def soak(given: argparse.Namespace) -> tuple[Findings, int]:
    """What was found, and how the server ended."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        process = serve(given, log)
        try:
            found = asyncio.run(Soak(process.pid, port_of(process, log), given).run())
        finally:
            process.terminate()
            code = process.wait(given.limit + 20)
        return found, code


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--pause", type=float, default=0.2, help="longest pause of a client between requests, seconds")
    parser.add_argument("--limit", type=float, default=10.0, help="time limit of a request, seconds")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--module", default="decided", help="the command line to run, as a module")
    parser.add_argument("--faults", action="store_true", help="the model fails when told to: send what tells it")
    parser.add_argument("--no-huge", action="store_true", help="no requests of 690 KB")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw size, open files and threads over time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    return parser.parse_args(arguments)


def main(given: argparse.Namespace) -> int:
    from report import table, write_json

    found, code = soak(given)
    names = list(found.sent)
    ends = {name: {end: count for (of, end), count in sorted(found.ended.items()) if of == name} for name in names}
    rows = [
        [name, str(found.sent[name]), ", ".join(f"{end or 'left'}: {count}" for end, count in ends[name].items())]
        for name in sorted(names)
    ]
    print(table(["request", "sent", "ended"], rows))
    sizes = [size for _, size, _, _ in found.samples]
    print(
        f"\n{sum(found.sent.values())} requests sent, {sum(found.ended.values())} ended; {min(sizes):.0f} to "
        f"{max(sizes):.0f} MiB, growth {found.growth():.1%}; the server ended with {code}"
    )
    missed = found.verdicts() + ([f"the server ended with {code}"] if code else [])
    print("\n".join(f"MISSED: {each}" for each in missed) or "every target reached")
    if given.plot:
        plot(found, given.plot)
    if given.json:
        write_json(given.json, "soak", {"minutes": given.minutes}, {"ends": ends, "samples": found.samples})
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(parse()))
