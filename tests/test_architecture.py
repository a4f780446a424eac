"""The floors of docs/design.md: imports point down, and libraries stay in their rooms."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "decided"
MAX_LINES = 400

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
FLOORS = [
    (room, int(floor))
    for room, floor in re.findall(r"^(\S+) +floor (\d) ", (ROOT / "docs" / "design.md").read_text(), re.MULTILINE)
]
ROOMS = [room for room, _ in FLOORS]

# Library -> the only rooms that may import it, if any. What is not named here is free.
AT_HOME: dict[str, set[str]] = {
    "torch": {"engines/"},
    "transformers": {"engines/"},
    "tokenizers": {"engines/"},
    "safetensors": {"engines/"},
    "numpy": {"engines/", "scoring.py"},
    "onnxruntime": {"engines/"},
    "httpx": set(),
    "httpx2": {"client.py"},
    "uvicorn": set(),
    "starlette": set(),
    "httptools": {"connection.py", "engines/"},
    "matplotlib": {"diagram.py"},
    "uvloop": {"cli.py"},
    "argparse": {"cli.py", "commands/"},
    "pyarrow": {"parquet.py", "raydata.py"},
    "ray": {"raydata.py"},
    "yaml": {"questions.py"},
    "prometheus_client": {"metrics.py"},
    "zstandard": {"bodies.py"},
    "threading": {"worker.py", "engines/"},
}
PURE = {"scheduler.py": {"asyncio", "threading", "time", "queue", "random"}}


def room_of(path: Path) -> str:
    """The module's entry in the list of floors: its file, or the folder that it shares."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) == 1 else f"{parts[0]}/"


def for_types_only(tree: ast.Module) -> set[ast.AST]:
    """What only the type checker reads."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {inner for block in blocks for inner in ast.walk(block)}


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Every module that is imported, in full."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            if node.module == "decided":
                yield from (f"decided.{alias.name}" for alias in node.names)
            else:
                yield node.module


def rooms_imported(nodes: Iterable[ast.AST]) -> set[str]:
    names = {name.split(".")[1] for name in imports(nodes) if name.split(".")[0] == "decided"}
    return {f"{name}/" if (PACKAGE / name).is_dir() else f"{name}.py" for name in names}


def is_environment(node: ast.AST) -> bool:
    names = ("environ", "environb", "getenv")
    return (isinstance(node, ast.Attribute) and node.attr in names) or (
        isinstance(node, ast.alias) and node.name in names
    )


def at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs when the module is imported: everything but the bodies of functions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += [default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None]
            waiting += [] if isinstance(node, ast.Lambda) else node.decorator_list
        else:
            waiting += ast.iter_child_nodes(node)


def test_the_list_of_floors_is_complete_and_in_order() -> None:
    assert sorted(ROOMS) == sorted({room_of(path) for path in MODULES})
    assert [floor for _, floor in FLOORS] == sorted(floor for _, floor in FLOORS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
class TestEveryModule:
    def test_imports_only_what_stands_above_it(self, path: Path) -> None:
        room = room_of(path)
        above = {*ROOMS[: ROOMS.index(room)], *({room} if room.endswith("/") else ())}
        beside = {each for each, floor in FLOORS if floor == dict(FLOORS)[room]}
        tree = ast.parse(path.read_text())
        types = for_types_only(tree)
        assert rooms_imported(set(ast.walk(tree)) - types) <= above
        assert rooms_imported(types) <= above | beside

    def test_leaves_libraries_in_their_rooms(self, path: Path) -> None:
        room = room_of(path)
        found = {name.split(".")[0] for name in imports(ast.walk(ast.parse(path.read_text())))}
        assert [library for library in found if room not in AT_HOME.get(library, {room})] == []
        assert found & PURE.get(room, set()) == set()

    def test_is_short(self, path: Path) -> None:
        assert len(path.read_text().splitlines()) < MAX_LINES

    def test_leaves_the_environment_to_the_settings(self, path: Path) -> None:
        tree = ast.parse(path.read_text())
        assert not any(is_environment(node) for node in at_import(tree))
        if path.name != "settings.py":
            assert not any(is_environment(node) for node in ast.walk(tree))
