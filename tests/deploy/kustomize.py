"""As much of kustomize as the manifests use: resources, other folders among them, and patches merged by name."""

from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]


def build(folder: Path) -> list[Manifest]:
    """The manifests that `kubectl apply -k FOLDER` would apply."""
    plan = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(plan) <= {"apiVersion", "kind", "resources", "patches"}
    built: list[Manifest] = []
    for name in plan["resources"]:
        path = folder / name
        built += build(path) if path.is_dir() else documents(path)
    for patch in plan.get("patches", []):
        assert set(patch) == {"path"}
        for change in documents(folder / patch["path"]):
            (place,) = [index for index, one in enumerate(built) if identity(one) == identity(change)]
            built[place] = merged(built[place], change)
    return built


def documents(path: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(path.read_text()))


def identity(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def merged(old: Any, new: Any) -> Any:
    """A strategic merge: objects by key, lists of named things by name, all else replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: merged(old.get(key), value) for key, value in new.items()}
    if isinstance(old, list) and isinstance(new, list) and old and all("name" in one for one in (*old, *new)):
        by_name = {one["name"]: one for one in new} | {one["name"]: one for one in old}
        changes = {one["name"]: one for one in new}
        return [merged(one, changes.get(name, {})) for name, one in by_name.items()]
    return new
