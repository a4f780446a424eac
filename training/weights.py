"""Files of weights: whole, in half precision; in parts, for a way that takes only small files; or the mean of two runs,
of which the second went on from the first.

In parts a run is its difference from the weights it started from: five bits a value, with one scale for 64 of them. The
difference is a twelfth of the weights, so this is as exact as eight bits of the weights themselves would be, and the
base network fits into 57 MB.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from training.architecture import ARCHITECTURES, Architecture

Arrays = Mapping[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float32]

GROUP = 64
BITS = 5
TOP = 2 ** (BITS - 1) - 1
SMALL = 8192  # values: smaller arrays stay as they are


def save(path: Path, architecture: str, arrays: Arrays) -> None:
    """In half precision, with the name of the architecture. The file is whole at any time."""
    halves: dict[str, Any] = {name: np.asarray(array, np.float16) for name, array in arrays.items()}
    part = path.with_name(f"{path.stem}.part.npz")
    np.savez(part, architecture=np.array(architecture), **halves)
    part.replace(path)


def load(path: Path) -> tuple[Architecture, dict[str, Floats]]:
    with np.load(path) as archive:
        arrays = {name: archive[name].astype(np.float32) for name in archive.files if name != "architecture"}
        return ARCHITECTURES[str(archive["architecture"])], arrays


def packed(difference: Floats) -> bytes:
    groups = difference.reshape(-1, GROUP)
    scale = (np.abs(groups).max(1, keepdims=True) / TOP).astype(np.float16)
    scale = np.where(scale == 0, np.float16(1), scale)
    levels = (np.clip(np.rint(groups / scale.astype(np.float32)), -TOP, TOP) + TOP).astype(np.uint8)
    bits = np.unpackbits(levels.reshape(-1, 1), axis=1)[:, -BITS:]
    return bytes(scale.tobytes() + np.packbits(bits).tobytes())


def unpacked(content: bytes, size: int) -> Floats:
    count = size // GROUP
    scale = np.frombuffer(content, np.float16, count).astype(np.float32)
    bits = np.unpackbits(np.frombuffer(content, np.uint8, offset=2 * count), count=size * BITS).reshape(size, BITS)
    levels = np.packbits(bits, axis=1)[:, 0] >> (8 - BITS)
    return np.asarray((levels.astype(np.float32) - TOP).reshape(-1, GROUP) * scale[:, None])


def take_apart(architecture: str, arrays: Arrays, start: Arrays, folder: Path, most: int) -> None:
    """Writes `index.json` and numbered files, none above `most` bytes. What is as it was at the start takes nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    index, content = [], []
    for name, array in arrays.items():
        now = np.asarray(array, np.float32)
        if np.array_equal(now, start[name]):
            part = b""
        elif now.size < SMALL or now.size % GROUP:
            part = now.tobytes()
        else:
            part = packed(now - start[name])
        index.append([name, list(now.shape), len(part)])
        content.append(part)
    whole = b"".join(content)
    for number, at in enumerate(range(0, len(whole), most)):
        (folder / f"part.{number:02}").write_bytes(whole[at : at + most])
    (folder / "index.json").write_text(json.dumps({"architecture": architecture, "arrays": index}))


def put_together(folder: Path, start: Arrays) -> tuple[str, dict[str, Floats]]:
    """What `take_apart` wrote, from the same start."""
    about = json.loads((folder / "index.json").read_text())
    whole = b"".join(path.read_bytes() for path in sorted(folder.glob("part.*")))
    arrays, at = dict[str, Floats](), 0
    if sum(size for _, _, size in about["arrays"]) != len(whole):
        raise SystemExit(f"{folder}: parts are missing")
    for name, shape, size in about["arrays"]:
        part, values = whole[at : at + size], math.prod(shape)
        if not size:
            arrays[name] = start[name]
        elif size == 4 * values:
            arrays[name] = np.frombuffer(part, np.float32).reshape(shape)
        else:
            arrays[name] = start[name] + unpacked(part, values).reshape(shape)
        at += size
    return str(about["architecture"]), arrays


def mix(first: Arrays, second: Arrays, share: float, only: Sequence[str] = ("",)) -> dict[str, Floats]:
    """Between two runs: so much of the second, the rest of the first. Arrays whose names begin otherwise than `only`
    stay those of the first."""
    if first.keys() != second.keys():
        raise SystemExit(f"not the same arrays: {sorted(first.keys() ^ second.keys())[:3]}")
    shares = {name: share if name.startswith(tuple(only)) else 0.0 for name in first}
    return {name: ((1 - s) * first[name] + s * second[name]).astype(np.float32) for name, s in shares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    ways = parser.add_subparsers(dest="way", required=True)
    for way, about in (("apart", "a file of weights into parts"), ("together", "parts into a file of weights")):
        one = ways.add_parser(way, help=about)
        one.add_argument("weights", type=Path, help="the .npz file")
        one.add_argument("folder", type=Path, help="the folder of the parts")
        one.add_argument("--start", type=Path, required=True, help="the .npz file that the run went on from")
        one.add_argument("--most", type=int, default=16_000_000, help="bytes in a part")
    mean = ways.add_parser("mix", help="the mean of two files of weights")
    mean.add_argument("weights", type=Path, help="the .npz file to write")
    mean.add_argument("first", type=Path)
    mean.add_argument("second", type=Path)
    mean.add_argument("--share", type=float, default=0.5, help="of the second (0.5)")
    mean.add_argument("--only", nargs="+", default=[""], help="beginnings of names: the other arrays stay the first's")
    args = parser.parse_args()
    if args.way == "apart":
        architecture, arrays = load(args.weights)
        take_apart(architecture.name, arrays, load(args.start)[1], args.folder, args.most)
    elif args.way == "together":
        name, found = put_together(args.folder, load(args.start)[1])
        save(args.weights, name, found)
    else:
        (architecture, first), (_, second) = load(args.first), load(args.second)
        save(args.weights, architecture.name, mix(first, second, args.share, args.only))


if __name__ == "__main__":
    main()
