"""`decided run --ray` on a local Ray: the same answers as without it. `make test-ray`, last run: docs/design.md."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest

from tests.support.server import ROOT, running_server

pytestmark = pytest.mark.ray

QUESTIONS = {
    "team": {"type": "choice", "criteria": {"billing": None, "delivery": None}},
    "n": {"type": "noul", "instructions": "So?"},
}


def run(*arguments: Any) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
    command = [sys.executable, "-m", "decided", "run", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def read(path: Path) -> pyarrow.Table:
    readers = {".csv": pyarrow.csv.read_csv, ".jsonl": pyarrow.json.read_json, ".parquet": pyarrow.parquet.read_table}
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    tables = [readers[path.suffix](file) for file in files]
    return pyarrow.concat_tables(tables, promote_options="permissive").sort_by("id")


def normal(table: pyarrow.Table) -> list[dict[str, Any]]:
    """CSV does not tell an empty text from none."""
    return [{name: value or None if value == "" else value for name, value in row.items()} for row in table.to_pylist()]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(QUESTIONS))
    return path


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_with_a_server_on_a_local_ray(tmp_path: Path, questions: Path, suffix: str) -> None:
    source = tmp_path / f"in.{suffix}"
    rows = [{"id": n, "state": f"row {n}" if n != 777 else "FAIL here"} for n in range(3000)]
    if suffix == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == "csv":
        source.write_text("id,state\n" + "".join(f"{row['id']},{row['state']}\n" for row in rows))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), source)
    with running_server() as server:
        common = (source, "--questions", questions, "--server", server.url)
        run(*common, "--out", tmp_path / f"alone.{suffix}")
        run(*common, "--out", tmp_path / f"ray.{suffix}", "--ray", "local", "--ray-workers", "2")
        assert server.metric("service_questions_total") == 2 * 2999 * len(QUESTIONS)
    alone, spread = read(tmp_path / f"alone.{suffix}"), read(tmp_path / f"ray.{suffix}")
    assert spread.column_names == alone.column_names
    assert normal(spread) == normal(alone)
    assert [row["error"] for row in normal(spread) if row["error"]] == ["inference failed"]


def test_with_the_model_inside_the_workers(tmp_path: Path, questions: Path) -> None:
    source = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"id": n, "state": f"row {n}"} for n in range(300)]), source)
    run(source, "--questions", questions, "--out", tmp_path / "alone.parquet")
    run(source, "--questions", questions, "--out", tmp_path / "ray.parquet", "--ray", "local")
    assert read(tmp_path / "ray.parquet").to_pylist() == read(tmp_path / "alone.parquet").to_pylist()
