"""Files of weights: whole, in half precision; in parts, in bytes, for a way that takes only small files; or the mean of
two runs, of which the second went on from the first.

In parts a matrix is bytes with one scale per 64 values (`coarse`), and half a byte more for what rounding left over
(`fine`). Each of the two is cut into numbered files; the coarse ones alone are enough for an 8-bit export.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from training.architecture import ARCHITECTURES, Architecture

Arrays = Mapping[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float32]

GROUP = 64
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


def coarse_and_fine(array: Floats) -> tuple[bytes, bytes]:
    if array.size < SMALL or array.size % (2 * GROUP):
        return array.astype(np.float32).tobytes(), b""
    groups = array.reshape(-1, GROUP).astype(np.float32)
    scale = (np.abs(groups).max(1, keepdims=True) / 127).astype(np.float16)
    scale = np.where(scale == 0, np.float16(1), scale)
    ratio = groups / scale.astype(np.float32)
    levels = np.clip(np.rint(ratio), -127, 127)
    rest = np.clip(np.floor((ratio - levels + 0.5) * 16), 0, 15).astype(np.uint8).reshape(-1, 2)
    return scale.tobytes() + levels.astype(np.int8).tobytes(), (rest[:, 0] | rest[:, 1] << 4).tobytes()


def from_coarse_and_fine(coarse: bytes, fine: bytes, shape: tuple[int, ...]) -> Floats:
    size = int(np.prod(shape))
    if size < SMALL or size % (2 * GROUP):
        return np.frombuffer(coarse, np.float32).reshape(shape)
    count = size // GROUP
    scale = np.frombuffer(coarse, np.float16, count).astype(np.float32)
    levels = np.frombuffer(coarse, np.int8, size, 2 * count).astype(np.float32)
    if fine:
        packed = np.frombuffer(fine, np.uint8)
        levels += (np.stack([packed & 15, packed >> 4], 1).reshape(-1) + 0.5) / 16 - 0.5
    return (levels.reshape(-1, GROUP) * scale[:, None]).reshape(shape).astype(np.float32)


def take_apart(architecture: str, arrays: Arrays, folder: Path, most: int) -> None:
    """Writes `index.json` and the numbered files of both kinds, none above `most` bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    streams: dict[str, list[bytes]] = {"coarse": [], "fine": []}
    index = []
    for name, array in arrays.items():
        parts = coarse_and_fine(np.asarray(array, np.float32))
        for stream, part in zip(streams.values(), parts, strict=True):
            stream.append(part)
        index.append([name, list(array.shape), *map(len, parts)])
    for kind, stream in streams.items():
        content = b"".join(stream)
        for number, start in enumerate(range(0, len(content), most)):
            (folder / f"{kind}.{number:02}").write_bytes(content[start : start + most])
    (folder / "index.json").write_text(json.dumps({"architecture": architecture, "arrays": index}))


def put_together(folder: Path) -> tuple[str, dict[str, Floats]]:
    """What `take_apart` wrote. Without the fine files the weights have eight bits each."""
    about = json.loads((folder / "index.json").read_text())
    coarse, fine = (b"".join(p.read_bytes() for p in sorted(folder.glob(f"{k}.*"))) for k in ("coarse", "fine"))
    arrays, at, fine_at = {}, 0, 0
    for name, shape, size, fine_size in about["arrays"]:
        rest = fine[fine_at : fine_at + fine_size] if fine else b""
        arrays[name] = from_coarse_and_fine(coarse[at : at + size], rest, tuple(shape))
        at, fine_at = at + size, fine_at + fine_size
    if at != len(coarse) or (fine and fine_at != len(fine)):
        raise SystemExit(f"{folder}: parts are missing")
    return str(about["architecture"]), arrays


def mix(first: Arrays, second: Arrays, share: float) -> dict[str, Floats]:
    """Between two runs: so much of the second, the rest of the first."""
    if first.keys() != second.keys():
        raise SystemExit(f"not the same arrays: {sorted(first.keys() ^ second.keys())[:3]}")
    return {name: ((1 - share) * first[name] + share * second[name]).astype(np.float32) for name in first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    ways = parser.add_subparsers(dest="way", required=True)
    for way, about in (("apart", "a file of weights into parts"), ("together", "parts into a file of weights")):
        one = ways.add_parser(way, help=about)
        one.add_argument("weights", type=Path, help="the .npz file")
        one.add_argument("folder", type=Path, help="the folder of the parts")
        one.add_argument("--most", type=int, default=16_000_000, help="bytes in a part")
    mean = ways.add_parser("mix", help="the mean of two files of weights")
    mean.add_argument("weights", type=Path, help="the .npz file to write")
    mean.add_argument("first", type=Path)
    mean.add_argument("second", type=Path)
    mean.add_argument("--share", type=float, default=0.5, help="of the second (0.5)")
    args = parser.parse_args()
    if args.way == "apart":
        architecture, arrays = load(args.weights)
        take_apart(architecture.name, arrays, args.folder, args.most)
    elif args.way == "together":
        name, found = put_together(args.folder)
        save(args.weights, name, found)
    else:
        (architecture, first), (_, second) = load(args.first), load(args.second)
        save(args.weights, architecture.name, mix(first, second, args.share))


if __name__ == "__main__":
    main()
