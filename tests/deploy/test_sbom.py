"""The bill of materials says what the locks, the cards and the files say, in the words of CycloneDX."""

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from packaging.requirements import Requirement
from referencing import Registry, Resource

from decided.version import VERSION

ROOT = Path(__file__).parents[2]
NOTICE = (ROOT / "NOTICE").read_text()
FOLDERS = {
    "decided-base-10": ROOT / "models/base/src/decided_model_base",
    "decided-small-8": ROOT / "src/decided/weights",
}


@pytest.fixture(scope="module")
def bom() -> Any:
    done = subprocess.run([sys.executable, "deploy/sbom.py"], cwd=ROOT, capture_output=True, check=True)
    return json.loads(done.stdout)


def of_type(bom: Any, kind: str) -> list[Any]:
    return [component for component in bom["components"] if component["type"] == kind]


def test_it_is_valid_by_the_schema(bom: Any) -> None:
    folder = files("cyclonedx") / "schema" / "_res"
    names = [f"{name}.SNAPSHOT.schema.json" for name in ("bom-1.6", "spdx", "jsf-0.82")]
    schemas = {name: json.loads((folder / name).read_text()) for name in names}
    home = schemas[names[0]]["$id"].rpartition("/")[0]
    resources = [(f"{home}/{name}", Resource.from_contents(schema)) for name, schema in schemas.items()]
    validator = Draft7Validator(schemas[names[0]], registry=Registry().with_resources(resources))
    assert [error.message for error in validator.iter_errors(bom)] == []
    assert [*validator.iter_errors(bom | {"specVersion": 1})] != []
    references = Counter(one["bom-ref"] for one in bom["components"])
    assert set(references.values()) == {1}


def test_the_libraries_are_those_of_the_lock(bom: Any) -> None:
    """Read in another way: as pip reads it."""
    text = (ROOT / "requirements-runtime.lock").read_text().replace("\\\n", " ")
    locked = {}
    for line in text.splitlines():
        words, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
        requirement = Requirement(words)
        (pin,) = requirement.specifier
        locked[requirement.name, pin.version] = {value.strip() for value in hashes}
    found = {
        (one["name"], one["version"]): {digest["content"] for digest in one["externalReferences"][0]["hashes"]}
        for one in of_type(bom, "library")
    }
    assert found == locked
    assert len(found) > 20


def test_the_product_depends_on_all_that_is_shipped(bom: Any) -> None:
    assert bom["metadata"]["component"]["version"] == VERSION
    (dependency,) = bom["dependencies"]
    shipped = [one for one in bom["components"] if one.get("scope") != "excluded"]
    assert dependency == {"ref": "decided", "dependsOn": [one["bom-ref"] for one in shipped]}


def test_the_models_are_those_of_the_cards_and_the_files(bom: Any) -> None:
    models = {one["name"]: one for one in of_type(bom, "machine-learning-model")}
    assert set(models) == set(FOLDERS)
    for name, folder in FOLDERS.items():
        card = json.loads((folder / "card.json").read_text())
        model = models[name]
        assert (card["name"], card["release_date"], card["description"]) == (
            name,
            model["version"],
            model["description"],
        )
        assert model["licenses"] == [{"license": {"name": card["license"]}}]
        assert model["hashes"][0]["content"] == digest(folder / "card.json")
        listed = {one["name"]: one["hashes"][0]["content"] for one in model["components"]}
        assert listed == card["sha256"] == {file: digest(folder / file) for file in card["sha256"]}
        shipped = {path.name for path in folder.iterdir() if path.suffix in (".bin", ".onnx", ".json")}
        assert shipped - {"card.json"} == set(listed)


def test_the_data_has_a_licence_and_a_line_in_the_notice(bom: Any) -> None:
    data = {one["bom-ref"]: one for one in of_type(bom, "data")}
    assert len(data) > 30
    noted = {
        (line.strip(), block.splitlines()[0])
        for block in NOTICE.split("\n\n")[2:]
        for line in block.splitlines()[1:]
        if line.startswith("  ")
    }
    assert {(one["name"], one["licenses"][0]["license"]["name"]) for one in data.values()} == noted
    for model in of_type(bom, "machine-learning-model"):
        assert {one["ref"] for one in model["modelCard"]["modelParameters"]["datasets"]} == set(data)


def test_every_repository_of_the_data_page_is_listed(bom: Any) -> None:
    page = (ROOT / "training" / "DATA.md").read_text().partition("## Public sources")[2].partition("\n## ")[0]
    repositories = set(re.findall(r"\b[\w-]+/[\w.-]*\w", page))
    names = " ".join(one["name"] for one in of_type(bom, "data"))
    assert len(repositories) > 25
    assert [name for name in repositories if name not in names] == []


def test_the_same_checkout_gives_the_same_bytes(bom: Any) -> None:
    again = subprocess.run([sys.executable, "deploy/sbom.py"], cwd=ROOT, capture_output=True, check=True)
    assert json.loads(again.stdout) == bom


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
