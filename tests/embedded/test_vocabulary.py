"""Text to tokens: other threads go on meanwhile."""

import threading
from importlib.resources import files
from time import perf_counter

from tokenizers import Tokenizer

from decided.engines.vocabulary import Vocabulary


def test_a_long_text_does_not_hold_up_other_threads() -> None:
    vocabulary = Vocabulary(Tokenizer.from_file(str(files("decided") / "weights" / "tokenizer.json")), {})
    text = "A parcel arrived two days late, and nobody answers the phone. " * 4000
    pause, at_work, over = 0.0, threading.Event(), threading.Event()

    def look_at_the_clock() -> None:
        nonlocal pause
        last = perf_counter()
        while not over.is_set():
            at_work.set()
            now = perf_counter()
            pause, last = max(pause, now - last), now

    other = threading.Thread(target=look_at_the_clock)
    other.start()
    at_work.wait()
    began = perf_counter()
    ids = vocabulary.encode(text)
    elapsed = perf_counter() - began
    over.set()
    other.join()
    assert len(ids) > 40_000
    assert pause < elapsed / 2
