"""`decided run --ray`: the same answers as without it, also when a worker is killed. `make test-ray`."""

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import ROOT, running_server

pytestmark = pytest.mark.ray

PATIENCE_S = 180
QUESTIONS = {
    "team": {"type": "choice", "criteria": {"billing": None, "delivery": None}},
    "n": {"type": "noul", "instructions": "So?"},
}


def start(*arguments: Any, stderr: int = subprocess.PIPE) -> "subprocess.Popen[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
    command = [sys.executable, "-m", "decided", "run", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, env=kept | {"SERVICE_MODEL": "embedded:small"}, stderr=stderr, text=True)


def run(*arguments: Any) -> str:
    process = start(*arguments)
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, said
    return said


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(QUESTIONS))
    return path


def table(path: Path, rows: int) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=";").writerows([["id", "state"], *([n, f"row {n}"] for n in range(rows))])
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two nodes on this machine, of one CPU each."""
    address = f"127.0.0.1:{free_port()}"
    program = str(Path(sys.executable).with_name("ray"))
    folder = tmp_path_factory.mktemp("r")
    host, port = address.split(":")
    nodes = []
    with (folder / "log").open("w") as log:
        for role in (["--head", f"--port={port}", f"--node-ip-address={host}"], [f"--address={address}"]):
            command = [program, "start", *role, "--num-cpus=1", "--include-dashboard=false", "--block"]
            command = command if "--head" in role else [word for word in command if "dashboard" not in word]
            nodes.append(subprocess.Popen(command, stdout=log, stderr=log))
            time.sleep(1)
    look = f"import ray; ray.init('{address}', logging_level=40); print(len(ray.nodes()))"
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
            if found.stdout.strip() == "2":
                break
            assert time.monotonic() < deadline, (folder / "log").read_text()
        yield address
    finally:
        for node in reversed(nodes):
            node.send_signal(signal.SIGTERM)
            node.wait(60)


def test_two_nodes_and_a_worker_that_is_killed(tmp_path: Path, questions: Path, cluster: str) -> None:
    source = table(tmp_path / "in.csv", 600)
    run(source, "--questions", questions, "--out", tmp_path / "alone.csv")
    out = tmp_path / "ray.csv"
    process = start(
        source, "--questions", questions, "--out", out, "--ray", cluster, "--ray-workers", 2, "--log-level", "debug"
    )
    assert process.stderr is not None
    workers: list[int] = []
    said = ""
    for line in process.stderr:
        said += line
        workers += map(int, re.findall(r"a worker is ready: node \S+, process (\d+)", line))
        if len(workers) == 2:
            break
    part = tmp_path / "ray.csv.part"
    while process.poll() is None and (not part.exists() or part.stat().st_size < 2000):
        time.sleep(0.01)
    os.kill(workers[0], signal.SIGKILL)
    said += process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, said
    assert "a worker on the cluster was lost; another takes its place" in said
    assert out.read_text() == (tmp_path / "alone.csv").read_text()


def test_a_cluster_without_room_is_told(tmp_path: Path, questions: Path, cluster: str) -> None:
    process = start(table(tmp_path / "in.csv", 3), "--questions", questions, "--ray", cluster, "--ray-workers", 7)
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 3
    assert "7 workers need 7 CPUs; 2 of 2 CPUs are free" in said


def test_no_cluster_is_told(tmp_path: Path, questions: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    process = start(table(tmp_path / "in.csv", 3), "--questions", questions, "--ray", address)
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert (process.returncode, f"--ray {address}: no cluster" in said) == (3, True), said


def test_progress_on_a_terminal_with_a_cluster_of_its_own(tmp_path: Path, questions: Path) -> None:
    out = tmp_path / "out.csv"
    inner, outer = os.openpty()
    process = start(
        table(tmp_path / "in.csv", 20), "--questions", questions, "--out", out, "--ray", "local", stderr=outer
    )
    os.close(outer)
    assert process.wait(PATIENCE_S) == 0
    said = os.read(inner, 65536).decode()
    os.close(inner)
    assert "20/20 rows" in said
    assert len(out.read_text().splitlines()) == 21


def test_workers_that_ask_a_server(tmp_path: Path, questions: Path, cluster: str) -> None:
    source = table(tmp_path / "in.csv", 500)
    with running_server() as server:
        common = (source, "--questions", questions, "--server", server.url)
        run(*common, "--out", tmp_path / "alone.jsonl")
        said = run(*common, "--out", tmp_path / "ray.jsonl", "--ray", cluster, "--ray-workers", 2)
    assert said == ""  # no noise of another program
    assert (tmp_path / "ray.jsonl").read_text() == (tmp_path / "alone.jsonl").read_text()
