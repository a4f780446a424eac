"""`decided ask` alone, in a terminal."""

import os
import subprocess
import sys

import pytest

from decided.commands.interactive import parse
from decided.contract.types import Choice, Noul, Score
from decided.errors import InputError
from tests.support.server import ROOT


def test_questions_as_they_are_typed() -> None:
    assert parse("Is it late?") == {"Is it late?": Noul("Is it late?")}
    assert parse("Which? | a=first | b") == {"Which?": Choice({"a": "first", "b": None}, "Which?")}
    assert parse("How much? < little < a lot") == {"How much?": Score(["little", "a lot"], "How much?")}
    with pytest.raises(InputError, match="missing"):
        parse("Which? | a | | b")


def test_a_conversation() -> None:
    """A text of two lines, three questions of which one is wrong, another text, the end."""
    typed = "My parcel\nis late.\n\nIs it late?\nWhich? | a |\nWhich? | a | b\n\nThanks!\n\nIs it thanks?\n\n\n"
    inner, outer = os.openpty()
    command = [sys.executable, "-m", "tests.support.fake_server", "ask", "--model", "fake"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=outer, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(outer)
    os.write(inner, typed.encode())
    out, err = process.communicate(timeout=60)
    os.close(inner)
    assert (process.returncode, err) == (0, b"")
    shown = out.decode()
    assert shown.count("tokens,") == 3
    assert "something is missing between two |" in shown
    assert [shown.index(name) for name in ("Is it late?", "Which?", "Is it thanks?")] == sorted(
        shown.index(name) for name in ("Is it late?", "Which?", "Is it thanks?")
    )
