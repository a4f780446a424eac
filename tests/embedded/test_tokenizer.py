"""Text to tokens: all of it is read, and other threads go on meanwhile."""

import sys
import threading
from collections.abc import Iterator
from importlib.resources import files

import pytest
from tokenizers import Tokenizer

from decided.engines.tokenizer import Vocabulary, split_long_words


@pytest.fixture
def no_switching() -> Iterator[None]:
    """A thread keeps the interpreter until it gives it up by itself: whoever runs meanwhile was let in."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def plain_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(files("decided") / "weights" / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@pytest.mark.parametrize("length", [90, 100, 101, 132, 133, 250, 10_000])
def test_no_word_is_too_long_to_be_read(length: int) -> None:
    word = ("iwantmymoneyback" * length)[:length]
    found = split_long_words(plain_tokenizer()).encode(f"Hello {word} there", add_special_tokens=False)
    assert "[UNK]" not in found.tokens
    assert "".join(token.removeprefix("##") for token in found.tokens) == f"hello{word}there"


@pytest.mark.parametrize("text", ["A parcel is late.", "x" * 100, "a" * 99 + " b" * 100, "https://x.y/" + "z/" * 99])
def test_what_fits_is_read_as_ever(text: str) -> None:
    plain = plain_tokenizer().encode(text, add_special_tokens=False).ids
    assert Vocabulary(plain_tokenizer(), {}).encode(text) == plain


@pytest.mark.usefixtures("no_switching")
def test_a_long_text_does_not_hold_up_other_threads() -> None:
    vocabulary = Vocabulary(plain_tokenizer(), {})
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
