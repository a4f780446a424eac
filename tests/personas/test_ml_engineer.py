"""The ML engineer brings a model of their own, and labels."""

import datetime
import json
from pathlib import Path

import pytest

from decided.engines.checkpoint import Checkpoint
from tests.personas.conftest import Program
from tests.support.server import Server


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("./no-folder", "--model ./no-folder: no such folder"),
        ("/no/folder", "--model /no/folder: no such folder"),
        ("nothing/", "--model nothing/: no such folder"),
        ("./model.gguf", "--model ./model.gguf: no such file"),
        ("embedded:large", "embedded:large"),
    ],
)
def test_a_model_that_is_not_there(decided: Program, model: str, said: str) -> None:
    done = decided("ask", "x", "--noul", "So?", "--model", model)
    assert (done.returncode, done.stdout) == (3, "")
    assert said in done.stderr


def test_a_local_model_has_the_date_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x")
    today = datetime.datetime.now(datetime.UTC).date()
    assert abs(datetime.date.fromisoformat(Checkpoint("mine", tmp_path).date()) - today) <= datetime.timedelta(days=1)


def test_two_models_on_lines_of_labels(decided: Program, small: Server, tmp_path: Path) -> None:
    question = {"type": "noul", "instructions": "Is it about a parcel?"}
    texts = ("My parcel is late.", "My parcel is lost.", "The lamp is green.", "Good morning!")
    rows = [{"state": text, "question": question, "answer": text.startswith("My parcel")} for text in texts]
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = decided("eval", labels, "--server", small.url, "--against", "embedded:small", "--concurrency", "2", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["names"] == [f"at {small.url}", "in this process"]
    assert report["sections"][0]["comparison"]["only_a_right"] == 0
    assert report["settings"] == [f"server {small.url}"]
