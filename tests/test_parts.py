"""How a state is cut into parts that can be left out."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from decided.contract.types import compact
from decided.serving.parts import MOST_PARTS, Field, Span, parts_of

values = some.recursive(
    some.none() | some.booleans() | some.integers(-99, 99) | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=6) | some.dictionaries(some.text(max_size=3), inner, max_size=6),
    max_leaves=40,
)


def spans(text: str) -> list[str]:
    return [text[part.start : part.end] for part in parts_of(text) if isinstance(part, Span)]


def pointers(record: Any) -> list[str]:
    return [part.pointer for part in parts_of(record) if isinstance(part, Field)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It came. It broke!  Why?", ["It came.", "It broke!", "Why?"]),
        ('He said "stop." Then (at 3.5 km) he left.', ['He said "stop."', "Then (at 3.5 km) he left."]),
        ("Subject: parcel\n\n  Where is it", ["Subject: parcel", "Where is it"]),
        ("箱が来た。壊れていた。", ["箱が来た。", "壊れていた。"]),
        (" Where is it? ", ["Where", "is", "it?"]),
        ("word", ["word"]),
        (" \n ", []),
        ("", []),
    ],
)
def test_sentences_or_the_words_of_one(text: str, found: list[str]) -> None:
    assert spans(text) == found


def test_a_part_that_is_left_out_leaves_the_others_as_they_were() -> None:
    text = "One. Two. Three."
    assert [part.without(text) for part in parts_of(text)] == ["Two. Three.", "One. Three.", "One. Two. "]


def test_neighbours_go_together_where_there_are_too_many() -> None:
    text = " ".join(f"Sentence {number}." for number in range(100))
    found = spans(text)
    assert len(found) == MOST_PARTS
    assert " ".join(found) == text


@given(some.text("aB1.!? \n\"'。", max_size=200))
@settings(deadline=None, max_examples=200)
def test_any_text_is_covered_in_order(text: str) -> None:
    found = [part for part in parts_of(text) if isinstance(part, Span)]
    assert len(found) <= MOST_PARTS
    places = [place for part in found for place in (part.start, part.end)]
    assert places == sorted(places)
    assert "".join("".join(spans(text)).split()) == "".join(text.split())


@pytest.mark.parametrize("text", ["!" * 200_000, '."' * 100_000, "." + '"' * 199_999, "\n \n" * 60_000, ". " * 99_999])
def test_no_text_takes_longer_than_its_length(text: str) -> None:
    """It returns: a pattern that went back over what it had read would take minutes here."""
    assert len(parts_of(text)) <= MOST_PARTS


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({"a": 1, "b": {"c": 2, "d": [3, 4]}}, ["/a", "/b/c", "/b/d/0", "/b/d/1"]),
        ([["x"], "y"], ["/1", "/0/0"]),
        ({"a/b": 1, "~": 2, "": 3}, ["/a~1b", "/~0", "/"]),
        ({"a": {}, "b": []}, ["/a", "/b"]),
        ({"all": list(range(MOST_PARTS)), "more": 1}, ["/all", "/more"]),
        ({}, []),
        (None, []),
        (7, []),
    ],
)
def test_fields(record: Any, found: list[str]) -> None:
    assert pointers(record) == found


def test_of_too_many_fields_the_longest() -> None:
    record = {f"short{number}": number for number in range(20)} | {"long": "It came late."}
    assert len(pointers(record)) == MOST_PARTS
    assert "/long" in pointers(record)


def test_fields_nested_as_deeply_as_can_be_read() -> None:
    nested: Any = "word"
    for _ in range(500):
        nested = [nested]
    (part,) = parts_of(nested)
    assert part.without(nested) == "[" * 500 + "]" * 500


@given(values)
@settings(deadline=None)
def test_every_field_can_be_left_out_alone(record: Any) -> None:
    before = compact(record)
    for part in parts_of(record) if not isinstance(record, str) else []:
        assert isinstance(part, Field)
        rest = json.loads(before)
        inside = rest
        for key in part.path[:-1]:
            inside = inside[key]
        del inside[part.path[-1]]
        assert json.loads(part.without(record)) == rest
    assert compact(record) == before
