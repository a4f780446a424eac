"""In which numbers the embedded model is tested, and how near two runs of it come.

What is written down, in the docs and in golden files, is what float32 says: sums in another order differ in their last
bits, and in nothing else. With 8 bits one such bit can tip a rounding, so they are held to float32 on the same machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from decided.settings import Settings
from tests.support.server import ROOT, Server, running_server

FLOAT32 = {"SERVICE_DTYPE": "float32"}
DOCUMENTED = FLOAT32 | {"SERVICE_THREADS": "1"}
"""Weights are laid out once, not once for each number of threads, and the answers are the same: test_invariance.py."""
AGREEMENT = 1e-4
"""A probability in float32, on two processors."""
ROUNDING = 0.05
"""A probability with 8 bits and in float32, on one processor, in the golden cases. `docs/model.md` has more of them."""
WITHOUT_VNNI = str(ROOT / "tests" / "support" / "without_vnni")
"""On PYTHONPATH, it makes of any machine an x86 without VNNI."""


@contextmanager
def documented_server(*flags: str) -> Iterator[Server]:
    """The server that the README starts, with the numbers that the docs show."""
    patient = DOCUMENTED | {"SERVICE_REQUEST_TIMEOUT_S": "300"}  # one thread of float32, beside other tests
    with running_server("--model", Settings().model, *flags, env=patient, module="decided") as running:
        yield running
