"""The request: what is served, what is refused with 422, what makes no difference."""

import json
from typing import Any

import pytest

from tests.spec.checks import (
    BATCH,
    CHOICE,
    MIXED,
    NOUL,
    POSTS,
    SCORE,
    SINGLE,
    answers_of,
    body_for,
    bytes_for,
    refused,
    served,
)
from tests.support.server import Server

ANY_JSON = ["", "text", " ", "é🙂\x00", 0, -1.5, 10**30, True, False, None, [], {}, [None, [1]], {"a": {"": [2.5]}}]
STRUCTURED = ["words", {"ask": "so?"}, ["so", "?"]]
NO_WORDS = [1, 1.5, True, False]
NO_INSTRUCTIONS: list[Any] = [{"instructions": None}, {"instructions": ""}, {"instructions": {}}, {"instructions": []}]
UNSERVED_PARTS = ["assets", "images", "audio", "videos"]
FULL_PARTS: list[Any] = [[{"id": "a"}], ["data:,"], {"a": "b"}, "data:,"]
EMPTY_PARTS: list[Any] = [[], {}, None, 0, False, ""]


def one(server: Server, question: Any) -> Any:
    """The answer to one question."""
    return answers_of(server.ask("A parcel is late.", {"the name": question}))["the name"]


def refusal(server: Server, question: Any, said: str = "") -> None:
    """The question is refused with 422, by name and on both endpoints, though others beside it are good."""
    questions = {"good": NOUL, "the bad one": question, "also good": CHOICE}
    for path in POSTS:
        detail = refused(server.request("POST", path, body_for(path, questions=questions)), 422)
        assert "the bad one" in detail
        assert said in detail


# --- state and states ---


@pytest.mark.parametrize("state", ANY_JSON, ids=repr)
def test_a_state_is_a_string_or_any_json_value(server: Server, state: Any) -> None:
    assert list(answers_of(server.ask(state))) == ["q"]


def test_states_are_strings_or_any_json_values(server: Server) -> None:
    assert len(served(server.batch(ANY_JSON))["results"]) == len(ANY_JSON)


def test_no_states_give_no_results(server: Server) -> None:
    assert served(server.batch([]))["results"] == []


@pytest.mark.parametrize("path", POSTS)
def test_an_absent_state_is_refused(server: Server, path: str) -> None:
    field = "state" if path == SINGLE else "states"
    assert f"'{field}'" in refused(server.request("POST", path, {"questions": {"q": NOUL}}), 422)


@pytest.mark.parametrize("states", [None, "text", {"0": "text"}, 3, True], ids=repr)
def test_states_are_an_array(server: Server, states: Any) -> None:
    refused(server.batch(states), 422)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"a": 1, "b": ["x", None, True]}, '{"a":1,"b":["x",null,true]}'),
        ({"z": "é🙂", "a": "\u2028"}, '{"z":"é🙂","a":"\u2028"}'),
        ({"quote": 'a"b\\c\n'}, '{"quote":"a\\"b\\\\c\\n"}'),
        ([1, 2.5, [], {}], "[1,2.5,[],{}]"),
        (10**30, "1" + "0" * 30),
        (None, "null"),
        (False, "false"),
    ],
)
def test_other_values_reach_the_model_as_compact_json(server: Server, state: Any, text: str) -> None:
    assert served(server.ask(state, MIXED)) == served(server.ask(text, MIXED))


def test_white_space_and_escapes_of_the_client_change_nothing(server: Server) -> None:
    spaced = b'{"questions": {"q": %s},\r\n\t"state" : {"a" :\n [ 1 ,\t"\\u00e9\\ud83d\\ude42\\/" ] } }'
    plain = '{"state":{"a":[1,"é🙂/"]},"questions":{"q":%s}}'
    question = json.dumps(NOUL)
    first = served(server.request("POST", SINGLE, spaced % question.encode()))
    assert first == served(server.request("POST", SINGLE, (plain % question).encode()))


def test_strings_reach_the_model_as_they_are(server: Server) -> None:
    seen = [answers_of(server.ask(state, MIXED)) for state in ("a", " a", "a\n", '"a"', "A")]
    assert all(seen[0] != other for other in seen[1:])


@pytest.mark.parametrize("model", ["jev-large", "", None, 5, True, {}, ["fake"]], ids=repr)
def test_the_model_field_is_accepted_and_ignored(server: Server, model: Any) -> None:
    for path in POSTS:
        plain = served(server.request("POST", path, body_for(path)))
        assert plain["model"] == "fake"
        assert served(server.request("POST", path, body_for(path) | {"model": model})) == plain


# --- questions ---


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("questions", [None, {}, [], [NOUL], "q", 1, True], ids=repr)
def test_questions_are_a_non_empty_object(server: Server, path: str, questions: Any) -> None:
    body = body_for(path) | {"questions": questions}
    assert "questions" in refused(server.request("POST", path, body), 422)


@pytest.mark.parametrize("path", POSTS)
def test_absent_questions_are_refused(server: Server, path: str) -> None:
    body = body_for(path)
    del body["questions"]
    assert "questions" in refused(server.request("POST", path, body), 422)


def test_names_are_any_strings_and_keep_their_order(server: Server) -> None:
    names = [
        "z",
        "a",
        "",
        "10",
        "9",
        " ",
        "é🙂",
        'a"b',
        "a.b/c",
        "line\nbreak",
        "\x00",
        "__proto__",
        "true",
        "N" * 5000,
    ]
    questions = {name: (NOUL, CHOICE, SCORE)[index % 3] for index, name in enumerate(names)}
    assert list(answers_of(server.ask("x", questions))) == names
    for result in served(server.batch(["x", "y"], questions))["results"]:
        assert list(result["answers"]) == names


def test_each_answer_has_the_type_of_its_question(server: Server) -> None:
    assert {name: answer["type"] for name, answer in answers_of(server.ask("x", MIXED)).items()} == {
        "n": "noul",
        "c": "choice",
        "s": "score",
    }


@pytest.mark.parametrize("question", [None, 1, "noul", [], ["noul"], True], ids=repr)
def test_a_question_is_an_object(server: Server, question: Any) -> None:
    refusal(server, question)


@pytest.mark.parametrize("kind", ["Noul", "boolean", "", None, 1, True, ["noul"], {"noul": 1}], ids=repr)
def test_a_type_other_than_the_three_is_refused(server: Server, kind: Any) -> None:
    refusal(server, NOUL | {"type": kind})


@pytest.mark.parametrize("question", [{}, {"instructions": "so?"}, {"criteria": {"a": "b"}}], ids=repr)
def test_a_question_without_a_type_is_refused(server: Server, question: Any) -> None:
    refusal(server, question)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"instructions": "Late?"}, "the field 'type' is missing: 'choice', 'score' or 'noul'"),
        ({"type": None}, "the field 'type' must be text: 'choice', 'score' or 'noul'"),
        ({"type": "rank"}, "this service answers questions of type 'choice', 'score' and 'noul', not \"rank\""),
        ({"type": "choice", "criteria": ["a", "b"]}, "an object of at least one option"),
        ({"type": "choice"}, "an object of at least one option"),
        ({"type": "score", "criteria": {"0": "low"}}, "an array of at least one level, the lowest first"),
        ({"type": "noul", "criteria": ["yes", "no"]}, "left out, or an object that describes 'true' and 'false'"),
        (
            {"type": "noul", "criteria": dict.fromkeys(map(str, range(300)))},
            'the criteria of a noul have the keys "true" and "false" only, not "0"',
        ),
        (
            {"type": "noul", "criteria": {"true": "y", "yes": "y"}},
            'the criteria of a noul have the keys "true" and "false" only, not "yes"',
        ),
        (
            {"type": "noul", "criteria": {"false": 1.5}},
            'option "false" must be described by text, an object, an array or null, not a number',
        ),
        (
            {"type": "choice", "criteria": {"a": None, "b b": 5}},
            'option "b b" must be described by text, an object, an array or null, not a number',
        ),
        (CHOICE | {"instructions": True}, "instructions must be text, an object, an array or null, not a boolean"),
        (NOUL | {"instructions": 1}, "instructions must be text, an object, an array or null, not a number"),
        ({"type": "choice", "criteria": dict.fromkeys(map(str, range(257)))}, "too many options: 257, at most 256"),
        ({"type": "score", "criteria": ["a", 5]}, "level 1 must be text, an object or an array, not a number"),
        ({"type": "score", "criteria": [None]}, "level 0 must be text, an object or an array, not null"),
    ],
)
def test_a_refusal_names_what_is_wrong_with_the_question(server: Server, question: Any, said: str) -> None:
    detail = refused(server.ask("x", {"q": question}), 422)
    assert said in detail
    assert "`" not in detail
    assert "with this model" not in detail


@pytest.mark.parametrize("question", [CHOICE, SCORE], ids=["choice", "score"])
@pytest.mark.parametrize("instructions", [*STRUCTURED, None], ids=repr)
def test_instructions_are_words_or_structured_or_null(server: Server, question: Any, instructions: Any) -> None:
    assert one(server, question | {"instructions": instructions})["type"] == question["type"]


@pytest.mark.parametrize("question", [CHOICE, SCORE], ids=["choice", "score"])
def test_a_choice_or_a_score_needs_no_instructions(server: Server, question: Any) -> None:
    assert one(server, {name: question[name] for name in ("type", "criteria")})["type"] == question["type"]


@pytest.mark.parametrize("instructions", STRUCTURED, ids=repr)
def test_a_noul_takes_structured_instructions(server: Server, instructions: Any) -> None:
    assert one(server, {"type": "noul", "instructions": instructions})["type"] == "noul"


@pytest.mark.parametrize("question", [NOUL, CHOICE, SCORE], ids=["noul", "choice", "score"])
@pytest.mark.parametrize("instructions", NO_WORDS, ids=repr)
def test_numbers_and_booleans_are_no_instructions(server: Server, question: Any, instructions: Any) -> None:
    refusal(server, question | {"instructions": instructions})


@pytest.mark.parametrize("question", [NOUL, CHOICE, SCORE], ids=["noul", "choice", "score"])
def test_structured_instructions_are_rendered_as_compact_json(server: Server, question: Any) -> None:
    structured = one(server, question | {"instructions": {"a": ["é", None]}})
    assert structured == one(server, question | {"instructions": '{"a":["é",null]}'})


# --- criteria ---


@pytest.mark.parametrize("question", [CHOICE, SCORE], ids=["choice", "score"])
def test_criteria_of_a_choice_and_a_score_are_required(server: Server, question: Any) -> None:
    refusal(server, {name: question[name] for name in ("type", "instructions")})


@pytest.mark.parametrize("criteria", [None, {}, [], ["a", "b"], "a", 1, True], ids=repr)
def test_choice_criteria_are_a_non_empty_object(server: Server, criteria: Any) -> None:
    refusal(server, CHOICE | {"criteria": criteria})


@pytest.mark.parametrize("description", [*STRUCTURED, {}, [], "", None], ids=repr)
def test_a_description_is_words_or_structured_or_null(server: Server, description: Any) -> None:
    answer = one(server, CHOICE | {"criteria": {"a": description, "": "b"}})
    assert list(answer["probabilities"]) == ["a", ""]


@pytest.mark.parametrize("description", NO_WORDS, ids=repr)
def test_numbers_and_booleans_are_no_descriptions(server: Server, description: Any) -> None:
    refusal(server, CHOICE | {"criteria": {"a": "fine", "b": description}})


@pytest.mark.parametrize("criteria", [None, [], {}, {"0": "a", "1": "b"}, "a", 1, True], ids=repr)
def test_score_criteria_are_a_non_empty_array(server: Server, criteria: Any) -> None:
    refusal(server, SCORE | {"criteria": criteria})


@pytest.mark.parametrize("level", [*STRUCTURED, ""], ids=repr)
def test_a_level_is_words_or_structured(server: Server, level: Any) -> None:
    assert one(server, SCORE | {"criteria": ["low", level]})["legend"]["1"] == level


@pytest.mark.parametrize("level", [*NO_WORDS, None], ids=repr)
def test_null_numbers_and_booleans_are_no_levels(server: Server, level: Any) -> None:
    refusal(server, SCORE | {"criteria": ["low", level]})


@pytest.mark.parametrize(
    "criteria",
    [None, {}, {"true": "yes"}, {"false": None}, {"true": {"a": 1}, "false": ["b"]}, {"true": None, "false": None}],
    ids=repr,
)
def test_noul_criteria_may_describe_the_outcomes(server: Server, criteria: Any) -> None:
    assert list(one(server, NOUL | {"criteria": criteria})["probabilities"]) == ["true", "false"]


@pytest.mark.parametrize(
    "criteria",
    [
        [],
        ["yes", "no"],
        "yes",
        1,
        True,
        {"yes": "y"},
        {"True": "y"},
        {"true": "y", "maybe": "m"},
        {"true": 1},
        {"false": True},
    ],
    ids=repr,
)
def test_noul_criteria_are_nothing_else(server: Server, criteria: Any) -> None:
    refusal(server, NOUL | {"criteria": criteria})


@pytest.mark.parametrize("instructions", [{}, *NO_INSTRUCTIONS], ids=repr)
@pytest.mark.parametrize(
    "criteria",
    [
        {},
        {"criteria": None},
        {"criteria": {}},
        {"criteria": {"true": None}},
        {"criteria": {"true": ""}},
        {"criteria": {"true": None, "false": None}},
    ],
    ids=repr,
)
def test_a_noul_with_neither_instructions_nor_an_outcome_is_refused(
    server: Server, instructions: Any, criteria: Any
) -> None:
    refusal(server, {"type": "noul"} | instructions | criteria)


@pytest.mark.parametrize("instructions", [{}, {"instructions": None}], ids=["absent", "null"])
@pytest.mark.parametrize("criteria", [{"true": "y"}, {"false": ["n"]}, {"true": {"y": 1}, "false": None}], ids=repr)
def test_a_noul_with_a_described_outcome_needs_no_instructions(
    server: Server, instructions: Any, criteria: Any
) -> None:
    assert one(server, {"type": "noul", "criteria": criteria} | instructions)["type"] == "noul"


# --- what is ignored, and what is never silently dropped ---


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("value", [0.5, "5m", {"deep": [1]}, [1], None], ids=repr)
def test_unknown_fields_are_ignored(server: Server, path: str, value: Any) -> None:
    unknown = dict.fromkeys(("temperature", "keep_alive", "provider", "user", "x"), value)
    plain = served(server.request("POST", path, body_for(path, questions=MIXED)))
    questions = {name: question | unknown for name, question in MIXED.items()}
    assert served(server.request("POST", path, body_for(path, questions=questions) | unknown)) == plain


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("part", UNSERVED_PARTS)
def test_parts_that_cannot_be_honoured_are_refused_by_name(server: Server, path: str, part: str) -> None:
    for value in FULL_PARTS:
        assert part in refused(server.request("POST", path, body_for(path) | {part: value}), 422)


@pytest.mark.parametrize("question", MIXED.values(), ids=["noul", "choice", "score"])
@pytest.mark.parametrize("part", UNSERVED_PARTS)
def test_parts_of_a_question_are_refused_by_name_too(server: Server, question: Any, part: str) -> None:
    for value in FULL_PARTS:
        refusal(server, question | {part: value}, part)
    for value in EMPTY_PARTS:
        assert one(server, question | {part: value}) == one(server, question)


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("part", UNSERVED_PARTS)
def test_empty_parts_are_nothing_to_honour(server: Server, path: str, part: str) -> None:
    for value in EMPTY_PARTS:
        served(server.request("POST", path, body_for(path) | {part: value}))


def test_a_box_question_is_refused_in_words(server: Server) -> None:
    for path in POSTS:
        box = {"type": "box", "instructions": "Where is it?"}
        detail = refused(server.request("POST", path, body_for(path, questions={"good": NOUL, "where?": box})), 422)
        assert "box" in detail
        assert "where?" in detail


def test_each_endpoint_wants_its_own_field(server: Server) -> None:
    said = refused(server.request("POST", SINGLE, bytes_for(BATCH)), 422)
    assert said == "the field 'state' is missing: 'states' are for /v1/systemone/batch"
    said = refused(server.request("POST", BATCH, bytes_for(SINGLE)), 422)
    assert said == "the field 'states' is missing: one state is for /v1/systemone"
    assert refused(server.request("POST", SINGLE, b"{}"), 422) == "the field 'state' is missing"
    assert refused(server.request("POST", BATCH, b"{}"), 422) == "the field 'states' is missing"


def test_a_list_of_questions_is_told_what_is_wanted(server: Server) -> None:
    said = "the field 'questions' must be an object, from each question's name to the question"
    assert refused(server.ask("x", [NOUL]), 422) == said
