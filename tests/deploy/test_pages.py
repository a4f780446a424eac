"""The pages about engines and deployment say what the code and the manifests do."""

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from decided.commands import parser as command_line
from decided.engines.api import KINDS
from decided.engines.remote.openai import Chat
from decided.engines.remote.vllm import Vllm
from decided.settings import Settings, load
from decided.version import VERSION
from tests.deploy.test_manifests import BUILT, FOLDER, OVERLAYS, container, of_kind
from tests.test_docs import ALL_BLOCKS, PAGES, ROOT, Block, blocks, place, table

INDEX = ROOT / "docs" / "engines.md"
DEPLOYMENT = ROOT / "docs" / "deployment.md"
REMOTE = sorted(kind for kind, module in KINDS.items() if kind != "embedded" and ".torch." not in module)
COMMANDS = [
    (block, line.strip())
    for block in ALL_BLOCKS
    if block.language == "sh" and block.page.parent.name == "engines"
    for line in block.text.replace("\\\n", "").splitlines()
    if re.search(r"\bdecided serve\b", line)
]


def page_of(kind: str) -> Path:
    return INDEX.parent / "engines" / f"{kind}.md"


def engine(kind: str) -> Any:
    return import_module(KINDS[kind]).load("some-model", Settings(remote_url="http://127.0.0.1:1"))


def settings_of(command: str) -> Settings:
    """The settings that a command line of the docs makes."""
    words = shlex.split(command)
    given = dict(word.split("=", 1) for word in words if word.startswith("SERVICE_"))
    start = next(index for index, word in enumerate(words) if word.endswith("decided"))
    flags = {
        key: value
        for key, value in vars(command_line._parser().parse_args(words[start + 1 :])).items()
        if value is not None
    }
    return load({key: value for key, value in flags.items() if key != "command"}, given)


def test_every_engine_has_a_page_and_a_row() -> None:
    assert {page for page in PAGES if page.parent.name == "engines"} == {page_of(kind) for kind in REMOTE}
    rows = {row[1].strip("`"): row for row in table(INDEX.read_text()) if len(row) == 5}
    assert sorted(rows) == REMOTE
    for kind, row in rows.items():
        assert f"(engines/{kind}.md)" in row[0]
        usual = getattr(type(engine(kind)), "usual_address", None)
        assert row[2].strip("`").removesuffix("/v1") == (usual or "none").removesuffix("/v1")


@pytest.mark.parametrize("kind", REMOTE)
def test_page_has_a_command_for_the_engine_and_one_for_us(kind: str) -> None:
    models = [settings_of(command).model for block, command in COMMANDS if block.page == page_of(kind)]
    assert any(model.startswith(f"{kind}:") for model in models)
    assert len([block for block in blocks(page_of(kind)) if block.language == "sh"]) >= 1 + (kind != "openai")
    for title in ("What is sent", "Quirks", "Sizing"):
        assert f"\n## {title}\n" in page_of(kind).read_text()


@pytest.mark.parametrize("kind", REMOTE)
def test_page_names_every_field_that_is_sent_and_no_other(kind: str) -> None:
    found = engine(kind)
    if isinstance(found, Vllm):
        found._spellings = [[1, 2]] * 26
    sent = set(found._body([], 26)) if isinstance(found, Chat) else {"model", "state", "questions"}
    section = page_of(kind).read_text().partition("## What is sent")[2].partition("\n## ")[0]
    assert {name for row in table(section) for name in re.findall(r"`(\w+)`", row[0])} == sent


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=place)
def test_commands_are_accepted(block: Block, command: str) -> None:
    assert settings_of(command).model.partition(":")[0] in KINDS


# --- deployment ---


def test_the_page_shows_vllm_as_the_manifests_start_it() -> None:
    (command,) = [
        block.text
        for block in blocks(page_of("vllm"))
        if block.language == "sh" and block.text.startswith("vllm serve")
    ]
    shown = set(re.findall(r"--\S+(?: \d+)?", command)) - {"--port 8001"}
    real = container(of_kind("vllm", "StatefulSet", "vllm"))["args"]
    assert command.split()[2] == real[0]
    assert {flag.replace(" ", "=") for flag in shown} <= set(real)


def test_deployment_names_what_is_there() -> None:
    text = DEPLOYMENT.read_text()
    assert set(re.findall(r"decided:(\d\S*)", text)) == {VERSION}
    assert set(re.findall(r"newTag: (\S+)", text)) == {VERSION}
    rows = [row[0].strip("`") for row in table(text) if len(row) == 2]
    assert sorted(rows) == sorted(OVERLAYS)
    assert set(re.findall(r"apply -k (\S+)", text)) == {f"deploy/kubernetes/{name}" for name in OVERLAYS}
    secrets = {"decided-keys", "vllm-key"}
    assert set(re.findall(r"create secret generic (\S+)", text)) == secrets
    assert all(name in str(BUILT["vllm"]) for name in secrets)
    for block in blocks(DEPLOYMENT):
        if block.language == "yaml":
            assert yaml.safe_load(block.text)
    assert {path.name for path in FOLDER.iterdir()} == {"base", *OVERLAYS}


def test_numbers_of_the_page() -> None:
    text = DEPLOYMENT.read_text()
    scaler = of_kind("vllm", "HorizontalPodAutoscaler", "decided")["spec"]
    assert text.count(f"{scaler['minReplicas']} to {scaler['maxReplicas']} replicas") == len(OVERLAYS)
    spec = of_kind("vllm", "Deployment", "decided")["spec"]["template"]["spec"]
    assert f"A grace period of {spec['terminationGracePeriodSeconds']} s" in text
    pause = container(of_kind("vllm", "Deployment", "decided"))["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert f"A preStop of {pause} s" in text
    picture = (ROOT / "docs/images/deployment.svg").read_text()
    assert f"{scaler['minReplicas']} to {scaler['maxReplicas']}" in picture
    assert f"{of_kind('vllm', 'StatefulSet', 'vllm')['spec']['replicas']} GPUs" in picture
