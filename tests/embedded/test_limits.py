"""What the model reads: long states from start to end, many options, and a report of what it did not read."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from decided.contract.types import Choice, Noul
from decided.engines.api import Cut
from decided.engines.embedded.layout import CLS, MARK, SEP
from decided.engines.embedded.model import Embedded, load
from decided.errors import ModelError
from decided.hardware import multiplies_bytes_exactly
from decided.settings import Settings
from tests.embedded.asking import ask
from tests.embedded.conftest import WEIGHTS
from tests.support.precision import FLOAT32, WITHOUT_VNNI
from tests.support.server import running_server

_FILLER = (
    "The kitchen on the second floor was painted over the weekend. Lunch is served from noon to two. "
    "The lift is inspected in the first week of the month. Visitors sign in at the front desk. "
)


def _padded(sentence: str, place: str, sentences: int) -> str:
    before = {"start": 0, "middle": sentences // 2, "end": sentences}[place]
    return _FILLER * before + sentence + " " + _FILLER * (sentences - before)


@pytest.mark.parametrize("place", ["start", "middle", "end"])
@pytest.mark.parametrize(("sentences", "tokens"), [(28, 1_100), (40, 1_600)])
def test_the_decisive_sentence_is_found_wherever_it_stands(
    model: Embedded, place: str, sentences: int, tokens: int
) -> None:
    refund = _padded("The parcel arrived broken and the customer wants a refund.", place, sentences)
    praise = _padded("The customer is happy with the new bicycle.", place, sentences)
    question = Choice({"refund": "the customer wants money back", "praise": "the customer is happy"}, "What is said?")
    reading = model.encode(model.prepare([question]), refund)
    assert reading.input_tokens > tokens
    assert reading.cuts == [()]
    [wanted], [happy] = ask(model, refund, question), ask(model, praise, question)
    assert wanted[0] > 0.5 > happy[0]
    leak = _padded("The sprinkler in room C512 is leaking and water is running down the stairs.", place, sentences)
    dry = _padded("The window in room C512 was closed and everything is fine.", place, sentences)
    [yes], [no] = (ask(model, state, Noul("Is water leaking somewhere?")) for state in (leak, dry))
    assert yes[0] > no[0] + 0.02


def test_a_state_is_read_up_to_its_last_token(model: Embedded) -> None:
    fits, too_long = "word " * 8_160, "word " * 8_161
    [question] = model.prepare([Noul("Is it long?")])
    assert model.encode([question], fits).cuts == [()]
    assert model.encode([question], too_long).cuts == [(Cut("state", 8_160, 8_161),)]


def test_markers_in_a_clients_text_are_plain_text(model: Embedded) -> None:
    marks = "[CLS] [SEP] [MASK]"
    [asked] = model.prepare([Choice({marks: marks, "other": None}, marks)])
    [item] = model.encode([asked], marks).items
    assert not {CLS, SEP, MARK} & set(item.payload.ids)
    frame = asked.ids.tolist()
    assert (frame.count(CLS), frame.count(SEP), frame.count(MARK)) == (1, 1, 2)


def test_256_options_of_many_words_are_all_read_and_the_cut_is_told(model: Embedded) -> None:
    options: dict[str, str | dict[str, Any] | list[Any] | None] = {
        f"intent_{i}": f"the customer asks for thing number {i}" for i in range(256)
    }
    [short] = model.prepare([Choice(options, "Which?")])
    assert short.cuts == ()
    [long] = model.prepare([Choice(dict.fromkeys(f"{i} " + "word " * 100 for i in range(256)), "Which?")])
    assert len(long.ids) <= 8_192 + 2
    assert [cut.part for cut in long.cuts] == ["options"]
    [answer] = ask(model, "Please give me thing number 77.", Choice(options, "What does the customer ask for?"))
    assert answer.argmax() == 77


@pytest.mark.parametrize("name", ["weights.bin", "model.onnx", "tokenizer.json"])
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(WEIGHTS, folder)
    damaged = bytearray((folder / name).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (folder / name).write_bytes(damaged)
    with pytest.raises(ModelError, match=f"{name} is damaged"):
        Embedded(folder, exact=False, threads=1)


@pytest.mark.parametrize(
    "settings", [Settings(model="embedded", device="cuda"), Settings(model="embedded", dtype="bfloat16")]
)
def test_what_it_does_not_have_ends_the_start(settings: Settings) -> None:
    with pytest.raises(ModelError, match="embedded"):
        load("", settings)


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", "flags : fpu avx2 avx512_vnni", True),
        ("AMD64", "flags : fpu avx2 avx_vnni", True),
        ("x86_64", "flags : fpu avx2 avx512f", False),
        ("x86_64", None, False),
        ("aarch64", None, True),
    ],
)
def test_bytes_are_multiplied_only_where_that_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, flags: str | None, expected: bool
) -> None:
    if flags is not None:
        (tmp_path / "cpuinfo").write_text(flags)
    monkeypatch.setattr("decided.hardware._CPU_FLAGS", tmp_path / "cpuinfo")
    monkeypatch.setattr("decided.hardware.platform.machine", lambda: machine)
    assert multiplies_bytes_exactly() is expected


def test_a_processor_that_clips_gets_float32() -> None:
    """And is told so. The same pretence runs all tests of this folder: `make test-without-vnni`."""
    question = {"late": {"type": "noul", "instructions": "Is the parcel late?"}}
    clipping, small = {"PYTHONPATH": WITHOUT_VNNI}, ("--model", "embedded:small")
    with running_server(*small, env=clipping) as without, running_server(*small, env=FLOAT32) as exact:
        assert "lacks VNNI" in without.log()
        assert "lacks VNNI" not in exact.log()
        here, there = (server.ask("The parcel is late.", question).json["answers"] for server in (without, exact))
    assert here == there
    assert here["late"]["noul"] > 0.5


def test_a_name_ends_the_start() -> None:
    with pytest.raises(ModelError, match="embedded"):
        load("large", Settings())
