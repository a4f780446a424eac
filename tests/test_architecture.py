"""The map of docs/design.md is true, imports point down, and libraries stay in their rooms."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "decided"
MAX_LINES = 400

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
MAP = re.search(r"```text map\n(.*?)```", (ROOT / "docs" / "design.md").read_text(), re.DOTALL)

# Library -> the only places that may import it, as beginnings of paths. What is not named here is free.
AT_HOME: dict[str, tuple[str, ...]] = {
    "torch": ("engines/torch/",),
    "transformers": ("engines/torch/",),
    "safetensors": ("engines/torch/",),
    "tokenizers": ("engines/",),
    "numpy": ("engines/", "evaluation/", "profiles/"),
    "onnxruntime": ("engines/embedded/",),
    "httpx": (),
    "httpx2": ("client/",),
    "uvicorn": (),
    "starlette": (),
    "httptools": ("web/parser.py", "engines/remote/"),
    "matplotlib": (),
    "uvloop": ("cli.py",),
    "argparse": ("cli.py", "commands/"),
    "pyarrow": ("tables/",),
    "ray": ("tables/ray.py",),
    "yaml": ("questions.py",),
    "prometheus_client": ("serving/metrics.py",),
    "zstandard": ("web/bodies.py",),
    "opentelemetry": ("web/spans.py",),
    "threading": ("serving/worker.py", "serving/sleepers.py", "engines/", "audit/log.py"),
}
_MACHINERY = {"asyncio", "threading", "time", "queue", "random"}
PURE = dict.fromkeys(("fair_queue.py", "serving/admission.py", "serving/reader.py", "serving/scheduler.py"), _MACHINERY)


def place_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


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


def test_the_map_names_every_package_and_every_file() -> None:
    assert MAP is not None
    named = set(re.findall(r"[a-z_]+", re.sub(r"  +.*", "", MAP[1], flags=re.MULTILINE)))
    words = set(re.findall(r"[a-z_]+", MAP[1]))
    assert {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()} <= named
    assert {path.stem for path in MODULES if "torch" not in path.parts} <= words


def test_imports_point_down() -> None:
    """The contracts of pyproject.toml, which name the layers."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("command", ["ask", "run", "evaluate", "calibrate"])
def test_a_command_does_not_import_the_http_server(command: str) -> None:
    """Nor does whatever it imports when it starts to work."""
    work = {"ask": "decided.backend", "run": "decided.tables.run"}.get(command, f"decided.evaluation.{command}")
    code = f"import sys, decided.commands.{command}, {work}; print([m for m in sys.modules if 'decided.web' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", MODULES, ids=place_of)
class TestEveryModule:
    def test_leaves_libraries_in_their_rooms(self, path: Path) -> None:
        place = place_of(path)
        found = {name.split(".")[0] for name in imports(ast.walk(ast.parse(path.read_text())))}
        assert [library for library in found if not place.startswith(AT_HOME.get(library, ("",)))] == []
        assert found & PURE.get(place, set()) == set()

    def test_is_short(self, path: Path) -> None:
        assert len(path.read_text().splitlines()) < MAX_LINES

    def test_leaves_the_environment_to_the_settings(self, path: Path) -> None:
        tree = ast.parse(path.read_text())
        if place_of(path) == "engines/embedded/__init__.py":  # ONNX Runtime looks for its own when it is imported
            return
        assert not any(is_environment(node) for node in at_import(tree))
        if place_of(path) not in ("settings.py", "tables/ray.py"):  # Ray takes some of its settings from nowhere else
            assert not any(is_environment(node) for node in ast.walk(tree))
