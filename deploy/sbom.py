"""What is shipped, as a CycloneDX document: `make sbom`.

Libraries are those of the runtime lock, with its hashes. The weights are components of their own kind, with the hash of
every file from their cards and, as data that is not shipped, the sources they were trained on, from training/DATA.md.
The same checkout gives the same bytes: there is no clock and no network in it.
"""

import hashlib
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
MODELS = (ROOT / "models/base/src/decided_model_base", ROOT / "src/decided/weights")
_PINNED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?: ; (?P<marker>[^\\]+?))? \\$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Source(NamedTuple):
    """Public texts that questions were made from."""

    name: str
    licence: str


def document() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = {
        "type": "application",
        "bom-ref": "decided",
        "name": project["name"],
        "version": project["version"],
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
        "purl": f"pkg:pypi/{project['name']}@{project['version']}",
    }
    sources = [_source(source) for source in data_sources()]
    models = [_model(folder, sources) for folder in MODELS]
    libraries = list(_libraries(ROOT / "requirements-runtime.lock"))
    shipped = [component["bom-ref"] for component in libraries + models]
    body = {
        "metadata": {"component": about},
        "components": libraries + models + sources,
        "dependencies": [{"ref": "decided", "dependsOn": shipped}],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": number.urn, "version": 1, **body}


def data_sources() -> list[Source]:
    """The table of public sources in training/DATA.md, a source each."""
    table = (ROOT / "training" / "DATA.md").read_text().partition("## Public sources")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    found = [Source(name.strip(), row[3]) for row in rows[2:] for name in row[2].split(";") if row[3] != "theirs"]
    return sorted(set(found))


def _libraries(lock: Path) -> Iterator[dict[str, Any]]:
    """A pinned library each, with the hashes of the files that may be installed for it."""
    library: dict[str, Any] = {}
    for line in lock.read_text().splitlines():
        if pinned := _PINNED.match(line):
            if library:
                yield library
            purl = f"pkg:pypi/{pinned['name']}@{pinned['version']}"
            library = {"type": "library", "bom-ref": purl, "name": pinned["name"], "version": pinned["version"]}
            library |= {"purl": purl, "externalReferences": [{"type": "distribution", "url": purl, "hashes": []}]}
            if pinned["marker"]:
                library["properties"] = [{"name": "decided:only-where", "value": pinned["marker"]}]
        elif digest := _HASH.search(line):
            library["externalReferences"][0]["hashes"].append(_sha256(digest[1]))
    if library:
        yield library


def _model(folder: Path, sources: list[dict[str, Any]]) -> dict[str, Any]:
    """The hash is that of the card, which has those of the files."""
    card = json.loads((folder / "card.json").read_text())
    files = [
        {"type": "file", "bom-ref": f"{card['name']}/{name}", "name": name, "hashes": [_sha256(digest)]}
        for name, digest in card["sha256"].items()
    ]
    return {
        "type": "machine-learning-model",
        "bom-ref": card["name"],
        "name": card["name"],
        "version": card["release_date"],
        "description": card["description"],
        "hashes": [_sha256(hashlib.sha256((folder / "card.json").read_bytes()).hexdigest())],
        "licenses": [{"license": {"name": card["license"]}}],
        "externalReferences": [{"type": "model-card", "url": "docs/model.md"}],
        "components": files,
        "modelCard": {
            "modelParameters": {
                "approach": {"type": "supervised"},
                "task": "typed decisions about texts and records",
                "architectureFamily": "transformer encoder",
                "datasets": [{"ref": source["bom-ref"]} for source in sources],
                "inputs": [{"format": "text"}],
                "outputs": [{"format": "a probability for each option of a question"}],
            }
        },
    }


def _source(source: Source) -> dict[str, Any]:
    name = f"data: {source.name}"
    licences = [{"license": {"name": source.licence}}]
    return {"type": "data", "bom-ref": name, "name": source.name, "scope": "excluded", "licenses": licences}


def _sha256(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=2, ensure_ascii=False)
    print()
