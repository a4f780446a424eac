"""Batches of both clients: of any length, from any iterable, with errors in their midst, broken off and taken up."""

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import pytest

from decided import Choice, Client, ClientError, Noul
from tests.clients.common import KEY
from tests.clients.own import ANSWER, YES, Make, answering
from tests.spec.checks import eventually, in_flight
from tests.support.gate import Gate
from tests.support.scripted_server import ReceivedRequest, Scripted, scripted_server
from tests.support.server import Server, running_server


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    """A server with little time, whose model takes one question at a time."""
    with running_server("--request-timeout-s", "1", env={"FAKE_TOKEN_BUDGET": "10"}) as running:
        yield running


def test_a_batch_of_any_length_has_a_result_for_every_state(server: Server, make: Make) -> None:
    states = [f"state {n}" for n in range(700)]
    with make(server.url) as client:
        results = {result.index: result for result in client.batch(iter(states), YES)}
        assert sorted(results) == list(range(700))
        for n in (0, 255, 256, 699):
            assert results[n].answered().answers == client.ask(states[n], YES).answers


def test_large_states_are_spread_over_requests(server: Server, make: Make) -> None:
    with make(server.url) as client:
        results = list(client.batch((f"{n} " + "x" * 150_000 for n in range(12)), YES))
    assert all(result.error is None for result in results)
    assert {result.index for result in results} == set(range(12))


def test_states_are_taken_as_they_are_needed(server: Server, make: Make) -> None:
    taken = 0

    def states() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "x"

    with make(server.url) as client:
        assert len(list(islice(client.batch(states(), YES), 300))) == 300
    assert taken <= 512


def test_a_state_that_fails_is_a_result_with_an_error(server: Server, make: Make) -> None:
    states = [
        "fine",
        "FAIL",
        "y" * 200_001,
        "fine too",
        "\ud800".encode("utf-16", "surrogatepass").decode("utf-16", "ignore"),
    ]
    with make(server.url) as client:
        results = {result.index: result for result in client.batch(states, YES)}
    assert {index: result.error.status for index, result in results.items() if result.error} == {1: 500, 2: 422}
    assert results[2].error.message == "state is too long: 200001 characters, at most 200000"  # of one
    with pytest.raises(ClientError, match="inference failed"):
        results[1].answered()


def test_what_no_json_can_say_is_the_one_kind_of_error(server: Server, make: Make) -> None:
    with make(server.url) as client:
        for state, questions in (("\ud800", YES), ({"a": ["\udcff"]}, YES), ("x", {"q": Noul("\ud800?")})):
            with pytest.raises(ClientError, match="surrogates not allowed") as refused:
                client.ask(state, questions)
            assert (refused.value.status, refused.value.code) == (0, "unreadable")
        with pytest.raises(ClientError, match="the questions cannot be sent"):
            list(client.batch(["x"], {"\ud800": Noul("Is it so?")}))
    with make(server.url, model="\ud800") as client, pytest.raises(ClientError, match="the model cannot be sent"):
        client.ask("x", YES)


@pytest.mark.parametrize("states", [["a", "\ud800", "b"], ["\ud800", "a"], ["a", "\udcff"], ["\ud800"]])
def test_a_state_that_no_json_can_say_fails_alone(server: Server, make: Make, states: list[str]) -> None:
    with make(server.url) as client:
        results = {result.index: result for result in client.batch(states, YES)}
    assert sorted(results) == list(range(len(states)))
    for index, state in enumerate(states):
        error = results[index].error
        assert (error.code if error else "") == ("" if state.isascii() else "unreadable")


def test_a_state_larger_than_the_server_takes_fails_alone(small: Server, make: Make) -> None:
    states = ["x", "y" * 3000, *[f"state {n} " + "z" * 700 for n in range(9)]]
    with make(small.url, KEY) as client:
        results = {result.index: result for result in client.batch(states, YES)}
    assert sorted(results) == list(range(11))
    assert {index: result.error.status for index, result in results.items() if result.error} == {1: 413}
    assert results[1].error.message.startswith("state is too long for the server: the body is larger than ")


@pytest.mark.parametrize("states", [["x"], ["x", "y"]], ids=["one state", "two states"])
def test_what_concerns_all_states_is_raised(server: Server, keyed: Server, make: Make, states: list[str]) -> None:
    many = Choice({str(n): None for n in range(257)})
    with make(server.url) as client:
        for questions, said in (
            ({"q": many}, "too many options"),
            ({"states[0]": many}, "too many options"),
            ({}, "at least one question"),
            (dict.fromkeys(map(str, range(65)), Noul("Is it so?")), "too many questions"),
            ({"state": Noul()}, "a noul needs instructions"),
        ):
            with pytest.raises(ClientError, match=said):
                list(client.batch(states, questions))
    with make(keyed.url) as client, pytest.raises(ClientError, match="401"):
        list(client.batch(states, YES))


@pytest.mark.parametrize(
    ("detail", "raised"),
    [
        ('question "state": too many options', True),
        ([{"loc": ["body", "questions", "q"], "msg": "no"}], True),
        ([{"loc": ["body", "state"], "msg": "no", "input": "a question"}], False),
        ("state is too long", False),
        ("no", False),
    ],
)
def test_without_batches_a_refusal_is_of_what_it_names_first(make: Make, detail: Any, raised: bool) -> None:
    replies = Scripted(404, {"detail": "Not Found"}), Scripted(422, {"detail": detail}), Scripted(body=ANSWER)
    with answering(make, *replies) as (client, log):
        if raised:
            with pytest.raises(ClientError, match="422"):
                list(client.batch(["x", "y"], YES))
        else:
            refused, answered = client.batch(["x", "y"], YES)
            assert (refused.error.status, answered.error) == (422, None)
        assert len(log) == (2 if raised else 3)


def test_a_batch_that_takes_longer_than_a_request_may_is_continued(hasty: Server, make: Make) -> None:
    with make(hasty.url) as client:
        results = {result.index: result for result in client.batch(["SLEEP=0.3"] * 4 + ["SLEEP=1.1"], YES)}
    assert sorted(results) == list(range(5))
    assert {index: result.error.status for index, result in results.items() if result.error} == {4: 504}


def test_requests_that_had_to_be_smaller_grow_again(make: Make) -> None:
    busy = True

    def script(asked: ReceivedRequest) -> Scripted:
        nonlocal busy
        count = len(asked.body["states"])
        busy = busy and count > 10
        if busy:
            return Scripted(504, {"detail": "no answer within 30 s"})
        return Scripted(lines=[{"index": index, **ANSWER} for index in range(count)])

    with scripted_server(script) as (url, log), make(url) as client:
        results = [result.index for result in client.batch([f"state {number}" for number in range(64)], YES)]
    assert results == list(range(64))
    assert [len(asked.body["states"]) for asked in log] == [64, 32, 16, 8, 9, 10, 11, 12, 13, 1]


def test_names_with_odd_line_ends_stay_whole(server: Server, make: Make) -> None:
    names = ["a\u2028b", "c\u0085d", "e\x0bf", "g\u2029h"]
    with make(server.url) as client:
        (result,) = client.batch(["x"], {"q": Choice(dict.fromkeys(names))})
    assert list(result.answered().choice("q").probabilities) == names


def test_after_a_broken_stream_only_what_is_missing_is_asked_again(make: Make) -> None:
    first = [{"index": index, **ANSWER} for index in (2, 0)]
    second = [{"index": index, **ANSWER} for index in range(2)]
    with answering(make, Scripted(lines=first, broken=True), None, Scripted(lines=second)) as (client, log):
        results = [result.index for result in client.batch(["a", "b", "c", "d"], YES)]
    assert results == [2, 0, 1, 3]
    assert [asked.body["states"] for asked in log] == [["a", "b", "c", "d"], ["b", "d"], ["b", "d"]]


def test_a_line_of_a_busy_server_is_asked_again(make: Make) -> None:
    first = [{"index": 0, **ANSWER}, {"index": 1, "status": 503, "detail": "busy"}]
    with answering(make, Scripted(lines=first), Scripted(lines=[{"index": 0, **ANSWER}])) as (client, log):
        results = [result.index for result in client.batch(["a", "b"], YES)]
    assert (results, log[1].body["states"]) == ([0, 1], ["b"])


def test_a_server_without_streams_gives_whole_batches(make: Make) -> None:
    def script(asked: ReceivedRequest) -> Scripted:
        return Scripted(body={"model": "m", "results": [ANSWER for _ in asked.body["states"]], "total_usage": {}})

    with scripted_server(script) as (url, log), make(url) as client:
        assert [result.index for result in client.batch("abc", YES)] == [0, 1, 2]
    assert len(log) == 1
    assert "application/x-ndjson" in log[0].headers["accept"]


def test_a_server_without_batches_is_asked_one_by_one(make: Make) -> None:
    """The hosted service: a model must be named, nouls have a number only, scores no level."""
    score = {
        "type": "score",
        "score": 1.4,
        "legend": {},
        "probabilities": {"0": 0.2, "1": 0.2, "2": 0.6},
        "confidence": 0.1,
    }

    def script(asked: ReceivedRequest) -> Scripted:
        if asked.path != "/v1/systemone":
            return Scripted(404, {"detail": "Not Found"})
        assert asked.body["model"] == "hosted"
        if asked.body["state"] == "bad":
            return Scripted(422, {"detail": [{"msg": "bad"}]}, headers={"x-typesafe-request-id": "r1"})
        return Scripted(body={**ANSWER, "answers": {**ANSWER["answers"], "s": score}})

    with scripted_server(script) as (url, log), make(url, "key", model="hosted") as client:
        good, bad = client.batch(["good", "bad"], YES)
    assert (good.answered().noul("q").probabilities, good.answered().noul("q").confidence) == (
        {"true": 0.75, "false": 0.25},
        0.5,
    )
    assert good.answered().score("s").level == 2
    assert (bad.error.status, bad.error.request_id) == (422, "r1")
    assert log[0].headers["authorization"] == "Bearer key"
    assert [asked.path for asked in log[1:]] == ["/v1/systemone"] * 2


def test_a_batch_that_is_left_early_abandons_the_rest(make: Make) -> None:
    one_by_one = {"FAKE_TOKEN_BUDGET": "10"}
    with Gate() as gate, running_server(env=one_by_one) as server, make(server.url) as client:
        results = client.batch(["first", gate.state, *["never"] * 248], YES)
        next(results)
        results.close()
        assert eventually(lambda: in_flight(server) == 0)
        gate.open()
        assert client.ask("next", YES).model == "fake"
        assert server.metric("service_batch_questions_sum") <= 3


def test_the_types_say_that_a_batch_can_be_closed(server: Server) -> None:
    with Client(server.url) as client, closing(client.batch(["one", "two"], YES)) as results:
        assert next(results).answered().noul("q")
    assert list(results) == []
