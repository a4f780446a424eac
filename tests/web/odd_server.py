"""The real command line with something odd about it, or several things, named by the variable ODD.

impatient    a reply that the client leaves unread is given up after a second
few-files    the system lets the process open 80 files
callback     reading a header `X-Fault`, or a chunk with `FAULT` in it, meets a bug of ours
never-ready  the check of the engine never ends
"""

import asyncio
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

from decided.cli import main
from decided.engines.api import KINDS
from decided.serving.worker import Worker
from decided.web.listener import Listener
from decided.web.parser import RequestParser


def plant_a_fault() -> None:
    on_header, on_body = RequestParser.on_header, RequestParser.on_body

    def on_faulty_header(self: RequestParser, name: bytes, value: bytes) -> None:
        assert name != b"X-Fault"
        on_header(self, name, value)

    def on_faulty_body(self: RequestParser, part: bytes) -> None:
        assert b"FAULT" not in part
        on_body(self, part)

    RequestParser.on_header = on_faulty_header  # type: ignore[method-assign]
    RequestParser.on_body = on_faulty_body  # type: ignore[method-assign]


def lose_patience() -> None:
    begin = Listener.__init__

    def begin_impatient(self: Listener, *given: Any) -> None:
        begin(self, *given)
        self.write_timeout_s = 1.0

    Listener.__init__ = begin_impatient  # type: ignore[assignment, method-assign]


def never_be_ready() -> None:
    async def check(self: Worker) -> None:
        await asyncio.Event().wait()

    Worker.check = check  # type: ignore[method-assign]


ODDITIES: dict[str, Callable[[], None]] = {
    "impatient": lose_patience,
    "few-files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80)),
    "callback": plant_a_fault,
    "never-ready": never_be_ready,
}

if __name__ == "__main__":
    KINDS["fake"] = "tests.support.fake_model"
    for oddity in os.environ["ODD"].split():
        ODDITIES[oddity]()
    sys.exit(main())
