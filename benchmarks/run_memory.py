"""Does the memory of `decided run` grow with the table? Peak memory and rate from 10,000 to 1,000,000 rows.

The model costs nothing (`noop` in noop.py) and runs in the same process, so what is measured is the reading, the asking
and the writing. Every size runs in a process of its own, whose peak the operating system tells. The largest table may
take at most a tenth more memory than the smallest; with Parquet three tenths, for what pyarrow keeps of each group of
rows.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import report

HERE = Path(__file__).parent
TARGETS = {"csv": 1.1, "jsonl": 1.1, "parquet": 1.3}
QUESTIONS = {
    "team": {"type": "choice", "criteria": {"billing": "invoices and payments", "delivery": None, "other": None}},
    "urgent": {"type": "noul", "instructions": "Is it urgent?"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10,000 and 50,000 rows only, about 15 s")
    parser.add_argument("--format", action="append", choices=("csv", "jsonl", "parquet"), help="default: all three")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here")
    parser.add_argument("--check", action="store_true", help="exit status 1 when the target is missed")
    given = parser.parse_args()
    sizes = [10_000, 50_000] if given.quick else [10_000, 100_000, 1_000_000]
    lines, results, missed = [], {}, False
    with tempfile.TemporaryDirectory(prefix="decided-") as name:
        folder = Path(name)
        (folder / "questions.json").write_text(json.dumps(QUESTIONS))
        for kind in given.format or ("csv", "jsonl", "parquet"):
            peaks = []
            for rows in sizes:
                report.progress(f"{kind}: {rows:,} rows")
                peak, seconds = measured(folder, kind, rows)
                peaks.append(peak)
                results[f"{kind} {rows}"] = {"peak_bytes": peak, "seconds": seconds}
                lines.append([kind, f"{rows:,}", f"{peak / 2**20:.0f}", f"{rows / seconds:,.0f}"])
            missed = missed or peaks[-1] > TARGETS[kind] * peaks[0]
    report.progress("")
    print(report.table(["format", "rows", "peak MiB", "rows/s"], lines))
    print(f"\nlargest against smallest: {'MISSED' if missed else 'met'}")
    if given.json:
        report.write_json(given.json, "run_memory", {"sizes": sizes}, results)
    return 1 if given.check and missed else 0


def measured(folder: Path, kind: str, rows: int) -> tuple[int, float]:
    """Peak memory in bytes, and seconds, of one run in a process of its own."""
    source, out = folder / f"in.{kind}", folder / f"out.{kind}"
    out.unlink(missing_ok=True)
    write(source, kind, rows)
    command = [sys.executable, str(HERE / "noop.py"), "run", str(source), "--questions", str(folder / "questions.json")]
    began = time.perf_counter()
    process = os.posix_spawn(sys.executable, [*command, "--out", str(out), "--model", "noop"], os.environ)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"the run ended with {status}")
    return usage.ru_maxrss * 1024, time.perf_counter() - began


def write(path: Path, kind: str, rows: int) -> None:
    """A table of messages of some hundred characters."""
    texts = (f"Message {n}: where is my parcel? " + "It was to come on Monday. " * (n % 8) for n in range(rows))
    if kind == "parquet":
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        schema = pyarrow.schema([("id", pyarrow.int64()), ("state", pyarrow.string())])
        with ParquetWriter(path, schema) as writer:
            for begin in range(0, rows, 10_000):
                numbers = range(begin, min(begin + 10_000, rows))
                arrays = [pyarrow.array(numbers), pyarrow.array([next(texts) for _ in numbers])]
                writer.write_batch(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))
        return
    with path.open("w") as file:
        if kind == "csv":
            file.write("id,state\n")
        for number, text in enumerate(texts):
            file.write(f'{number},"{text}"\n' if kind == "csv" else f'{{"id": {number}, "state": "{text}"}}\n')


if __name__ == "__main__":
    sys.exit(main())
