"""The list of what is not tried with every front names tests that exist, and each once."""

import ast
from pathlib import Path

from tests.spec.fronts import LEFT_OUT

FOLDER = Path(__file__).parent


def test_what_is_left_out_exists() -> None:
    known = set()
    for path in FOLDER.glob("test_*.py"):
        tests = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        known |= {path.stem, *(f"{path.stem}.{test.name}" for test in tests)}
    assert {name.partition("[")[0] for left in LEFT_OUT for name in left.tests} <= known


def test_each_is_named_once_for_a_front() -> None:
    named = [(front, name) for left in LEFT_OUT for front in left.fronts for name in left.tests]
    assert len(named) == len(set(named))
