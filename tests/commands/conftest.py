"""The commands, run in this process or in one of their own, with the fake model."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from decided.cli import main
from decided.engines.api import KINDS
from tests.support.server import ROOT


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """The command line in this process, with `fake` and `fake-remote` as more kinds of model, `fake` as the default."""
    for name in list(os.environ):
        if name.startswith("SERVICE_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SERVICE_MODEL", "fake")
    monkeypatch.setitem(KINDS, "fake", "tests.support.fake_model")
    monkeypatch.setitem(KINDS, "fake-remote", "tests.spec.engines")

    def run(*arguments: object, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as left:
            code = int(left.code or 0)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Done(code, out.decode(), err.decode())

    return run


def started(*arguments: object, **environment: str) -> "subprocess.Popen[bytes]":
    """The command line with the fake model in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.fake_server", *map(str, arguments)],
        cwd=ROOT,
        env=kept | {"SERVICE_MODEL": "fake"} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
