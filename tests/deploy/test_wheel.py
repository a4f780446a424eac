"""The wheel: what is in it, and a first answer from it in an environment that has nothing else."""

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spec.checks import eventually
from tests.support.server import ROOT, Server
from tests.test_docs import environment

PACKAGE = ROOT / "src" / "decided"
NOT_CODE = {
    "py.typed",
    *(f"weights/{name}" for name in ("NOTICE.txt", "card.json", "tokenizer.json", "weights.bin")),
    *(f"weights/{name}.onnx" for name in ("exact", "model")),
    *(
        f"web/page/{name}.css"
        for name in ("answers", "evidence", "guide", "layout", "look", "parts", "questions", "table")
    ),
    *(
        f"web/page/{name}.js"
        for name in ("answers", "app", "checks", "code", "csv", "draft", "evidence", "examples", "link")
    ),
    *(
        f"web/page/{name}.js"
        for name in ("parts", "preact", "questions", "request", "table", "text", "verdict", "wire")
    ),
    *(f"web/page/{name}" for name in ("guide.html", "icon.svg", "index.html", "preact.LICENSE.txt")),
}
ABOUT = {"METADATA", "RECORD", "WHEEL", "entry_points.txt"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it asks for, in the versions of the lock."""
    home: Path = tmp_path_factory.mktemp("empty") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(home / "bin" / "python")]
    done = subprocess.run(
        [*uv, "--constraint", str(ROOT / "requirements-runtime.lock"), str(wheel)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return home / "bin"


def test_the_content(wheel: Path) -> None:
    """The code, the model, the page, and nothing else."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    about = {name for name in names if ".dist-info/" in name}
    code = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")}
    assert len(names) == len(set(names))
    assert {name.removeprefix("decided/") for name in set(names) - about} == code | NOT_CODE
    assert {name.partition(".dist-info/")[2] for name in about if "/licenses/" not in name} == ABOUT


@pytest.fixture
def server(installed: Path, tmp_path: Path) -> Iterator[Server]:
    """A server as a newcomer starts it."""
    handle, log = tempfile.mkstemp(dir=tmp_path)
    command = [str(installed / "decided"), "serve", "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(command, cwd=tmp_path, env=plain_environment(), stdout=handle, stderr=handle)
    os.close(handle)
    running = Server(process, Path(log))
    try:
        assert eventually(lambda: "on http" in running.log() or process.poll() is not None)
        found = re.search(r"on http://\S*:(\d+)", running.log())
        assert found, running.log()
        running.port = int(found[1])
        yield running
    finally:
        running.end()


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in environment().items() if not name.startswith(("PYTHON", "COVERAGE"))}


def test_a_first_answer(server: Server) -> None:
    question = {"late": {"type": "noul", "instructions": "Is the parcel late?"}}
    reply = server.ask("My parcel is two days late!", question)
    assert reply.status == 200
    assert reply.json["answers"]["late"]["noul"] > 0.5
    assert b"<title>" in server.get("/").body


def test_a_first_answer_in_the_terminal(installed: Path, tmp_path: Path) -> None:
    asked = ["ask", "My parcel is two days late!", "--noul", "Is the parcel late?", "--json"]
    done = subprocess.run(
        [str(installed / "decided"), *asked], cwd=tmp_path, env=plain_environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answers"]["Is the parcel late?"]["noul"] > 0.5
