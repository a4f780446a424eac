"""Text to tokens: other threads go on meanwhile."""

import sys
import threading
from collections.abc import Iterator
from importlib.resources import files

import pytest
from tokenizers import Tokenizer

from decided.engines.tokenizer import Vocabulary


@pytest.fixture
def no_switching() -> Iterator[None]:
    """A thread keeps the interpreter until it gives it up by itself: whoever runs meanwhile was let in."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("no_switching")
def test_a_long_text_does_not_hold_up_other_threads() -> None:
    vocabulary = Vocabulary(Tokenizer.from_file(str(files("decided") / "weights" / "tokenizer.json")), {})
    text = "A parcel arrived two days late, and nobody answers the phone. " * 4000
    may_run, ran = threading.Event(), False

    def run() -> None:
        nonlocal ran
        may_run.wait()
        ran = True

    other = threading.Thread(target=run)
    other.start()
    may_run.set()
    for _ in range(20):  # the first may be over before the other has woken up
        assert len(vocabulary.encode(text)) > 40_000
        if ran:
            break
    let_in = ran
    other.join()
    assert let_in
