"""Extras: what the docs and the messages say installs them, from wherever the package came from."""

import importlib.metadata
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from decided.cli import main
from decided.extras import install_command
from tests.test_docs import PAGES, ROOT, SETTINGS, section, table

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
IN_THE_DOCS = [
    shlex.split(line)
    for page in PAGES
    for line in page.read_text().splitlines()
    if "pip install" in line and "--editable" in line
]


def try_out(words: list[str]) -> str:
    """What pip says to a command, which it follows only up to the libraries of the extra."""
    bare = ["--dry-run", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    done = subprocess.run([*words, *bare], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_the_command_of_the_messages_works() -> None:
    words = shlex.split(install_command("parquet"))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    said = try_out(words)
    assert "Would install decided-" in said
    assert "does not provide the extra" not in said
    for extra in EXTRAS:
        assert shlex.split(install_command(extra)) == [word.replace("[parquet]", f"[{extra}]") for word in words]


def test_the_commands_of_the_docs_work() -> None:
    assert IN_THE_DOCS
    for words in IN_THE_DOCS:
        assert words[:4] == [".venv/bin/python", "-m", "pip", "install"]
        said = try_out([sys.executable, *words[1:]])
        assert "Would install decided-" in said
        assert "does not provide the extra" not in said


def test_the_docs_name_every_extra_and_no_other() -> None:
    assert {row[0].strip("`") for row in table(section(SETTINGS, "Extras"))} == set(EXTRAS)
    said = "\n".join(page.read_text() for page in PAGES)
    assert set(re.findall(r"(?:decided|\.)\[(\w+)\]", said)) <= set(EXTRAS)


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        (None, ["decided[ray]"]),
        ({"url": "file:///a%20b/c", "dir_info": {"editable": True}}, ["--editable", "/a b/c[ray]"]),
        ({"url": "file:///a/c", "dir_info": {}}, ["decided[ray] @ file:///a/c"]),
        ({"url": "file:///d-1.whl", "archive_info": {}}, ["decided[ray] @ file:///d-1.whl"]),
        ({"url": "https://x/y", "vcs_info": {"vcs": "git", "commit_id": "0"}}, ["decided[ray] @ git+https://x/y"]),
    ],
    ids=["index", "editable", "folder", "wheel", "repository"],
)
def test_the_command_leads_to_where_the_package_came_from(
    origin: dict[str, Any] | None, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(importlib.metadata.PathDistribution, "read_text", lambda _self, _name: text)
    assert shlex.split(install_command("ray"))[4:] == wanted


@pytest.mark.parametrize(
    ("library", "arguments", "extra"),
    [("pyarrow", ["in.parquet"], "parquet"), ("ray", ["in.csv", "--out", "out.csv", "--ray", "local"], "ray")],
)
def test_what_needs_an_extra_says_how_to_install_it(
    library: str,
    arguments: list[str],
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("questions.yaml").write_text("q: {type: noul, instructions: Is it so}\n")
    for name in ("in.csv", "in.parquet"):
        Path(name).write_text("state\nx\n")
    monkeypatch.setitem(sys.modules, library, None)
    assert main(["run", *arguments, "--questions", "questions.yaml"]) == 2
    assert install_command(extra) in capsys.readouterr().err
