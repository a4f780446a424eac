"""`decided.Client` and `decided.AsyncClient`, against this server and against others of the protocol."""

import asyncio
import datetime
import email.utils
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol

import pytest

from decided import AsyncClient, BatchResult, Choice, Client, ClientError, Noul, Outcomes, Response, Score
from decided.client.protocol import Tries
from tests.clients.common import KEY, busy
from tests.spec.checks import eventually, in_flight
from tests.support.gate import Gate
from tests.support.scripted_server import ReceivedRequest, Scripted, scripted_server
from tests.support.server import Server, running_server

QUESTIONS = {
    "topic": Choice({"parcel": "a late one", "bill": None}, "What is it about?"),
    "upset": Score(["calm", "cross", "angry"]),
    "refund": Noul("Is a refund asked for?", Outcomes(yes="money back", no=None)),
}
YES = {"q": Noul("Is it so?")}


class Asker(Protocol):
    """What both clients can do, so that each test runs with both."""

    def ask(self, state: Any, questions: Any, *, explain: bool = False) -> Response: ...
    def batch(self, states: Iterable[Any], questions: Any, *, explain: bool = False) -> Iterator[BatchResult]: ...
    def models(self) -> Any: ...


class Waiting:
    """The asynchronous client, made to wait."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._client = AsyncClient(*args, **options)
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def ask(self, state: Any, questions: Any, *, explain: bool = False) -> Response:
        return self._loop.run_until_complete(self._client.ask(state, questions, explain=explain))

    def models(self) -> Any:
        return self._loop.run_until_complete(self._client.models())

    def batch(self, states: Iterable[Any], questions: Any, *, explain: bool = False) -> Iterator[BatchResult]:
        results = self._client.batch(states, questions, explain=explain)
        try:
            while True:
                yield self._loop.run_until_complete(anext(results))
        except StopAsyncIteration:
            return
        finally:
            self._loop.run_until_complete(results.aclose())


Make = Callable[..., Any]


@pytest.fixture(scope="module")
def small() -> Iterator[Server]:
    """A server that requires KEY, with one place and a low body limit."""
    env = {"SERVICE_API_KEY": KEY, "SERVICE_MAX_BODY_BYTES": "2000"}
    with running_server("--max-in-flight", "1", env=env) as running:
        yield running


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    """A server with little time, whose model takes one question at a time."""
    with running_server("--request-timeout-s", "1", env={"FAKE_TOKEN_BUDGET": "10"}) as running:
        yield running


@pytest.fixture(params=[Client, Waiting], ids=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Make:
    kind: Make = request.param
    return kind


# --- one state ---


def test_typed_questions_get_typed_answers(server: Server, make: Make) -> None:
    state = {"text": "Where is it?", "é": [1]}
    raw = server.ask(
        state,
        {
            "topic": {
                "type": "choice",
                "criteria": {"parcel": "a late one", "bill": None},
                "instructions": "What is it about?",
            },
            "upset": {"type": "score", "criteria": ["calm", "cross", "angry"]},
            "refund": {
                "type": "noul",
                "instructions": "Is a refund asked for?",
                "criteria": {"true": "money back", "false": None},
            },
        },
    ).json
    with make(server.url) as client:
        response = client.ask(state, QUESTIONS)
    assert list(response.answers) == list(raw["answers"])
    topic, upset, refund = response.choice("topic"), response.score("upset"), response.noul("refund")
    assert (topic.choice, topic.probabilities) == (
        raw["answers"]["topic"]["choice"],
        raw["answers"]["topic"]["probabilities"],
    )
    assert (upset.score, upset.level, upset.legend["2"]) == (
        raw["answers"]["upset"]["score"],
        raw["answers"]["upset"]["level"],
        "angry",
    )
    assert (refund.noul, refund.confidence) == (
        raw["answers"]["refund"]["noul"],
        raw["answers"]["refund"]["confidence"],
    )
    assert (response.model, response.usage.input_tokens) == (raw["model"], raw["usage"]["input_tokens"])
    assert response.request_id
    with pytest.raises(TypeError, match="is a ChoiceAnswer, not a NoulAnswer"):
        response.noul("topic")
    with pytest.raises(KeyError):
        response.choice("nothing")


def test_questions_may_be_plain(server: Server, make: Make) -> None:
    with make(server.url + "/v1/") as client:
        assert client.ask(None, {"q": {"type": "noul", "instructions": "Is it so?"}}).noul("q").noul > 0
        assert [model.name for model in client.models()] == ["fake"]


def test_what_was_cut_is_said(server: Server, make: Make) -> None:
    with make(server.url) as client:
        response = client.ask("word " * 2000, YES)
    assert response.noul("q").truncated
    assert len(response.warnings) == 1


def test_errors_have_status_code_message_and_request_id(keyed: Server, make: Make) -> None:
    with make(keyed.url) as client, pytest.raises(ClientError) as refused:
        client.ask("x", YES)
    assert (refused.value.status, refused.value.code) == (401, "unauthorized")
    assert "API key" in refused.value.message
    assert refused.value.request_id in str(refused.value)
    with make(keyed.url, KEY) as client:
        assert client.ask("x", YES).model == "fake"
        with pytest.raises(ClientError, match="at least one question") as invalid:
            client.ask("x", {})
        with pytest.raises(ClientError, match="inference failed") as failed:
            client.ask("FAIL", YES)
    assert (invalid.value.status, invalid.value.code) == (422, "invalid")
    assert (failed.value.status, failed.value.code) == (500, "failed")


def test_a_server_at_capacity_is_asked_again(small: Server, make: Make) -> None:
    refusals = 'service_requests_total{endpoint="/v1/systemone",status="503"}'
    before = small.metric(refusals)
    with busy(small, KEY), make(small.url, KEY) as client:
        assert client.ask("x", YES).model == "fake"
    assert small.metric(refusals) == before + 1  # it waited the second that it was asked to wait


# --- retries ---

ANSWER: dict[str, Any] = {
    "model": "m",
    "answers": {"q": {"type": "noul", "noul": 0.75}},
    "usage": {"input_tokens": 1, "output_tokens": 0},
}


@contextmanager
def answering(make: Make, *replies: Scripted | None, **options: Any) -> Iterator[tuple[Any, list[ReceivedRequest]]]:
    """A client of a server that gives these replies, the last one again and again."""
    waiting = list(replies)

    def script(asked: ReceivedRequest) -> Scripted | None:
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    with scripted_server(script) as (url, log), make(url, **options) as client:
        yield client, log


@pytest.mark.parametrize(
    "trouble",
    [
        Scripted(503, {"detail": "later"}, headers={"Retry-After": "0"}),
        Scripted(429, {"detail": "slower"}, headers={"Retry-After": "0.1"}),
        Scripted(503, "no error of ours"),
        None,
    ],
    ids=["503", "429", "odd 503", "closed connection"],
)
def test_what_passes_is_tried_again(make: Make, trouble: Scripted | None) -> None:
    with answering(make, trouble, trouble, Scripted(body=ANSWER)) as (client, log):
        assert client.ask("x", YES).noul("q").noul == 0.75
        assert len(log) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 415, 422, 500, 504])
def test_what_does_not_pass_is_not_tried_again(make: Make, status: int) -> None:
    with answering(make, Scripted(status, {"detail": [{"msg": "no"}]}, headers={"x-request-id": "abc"})) as (
        client,
        log,
    ):
        with pytest.raises(ClientError, match='"msg":"no"') as refused:
            client.ask("x", YES)
        assert (refused.value.status, refused.value.request_id, len(log)) == (status, "abc", 1)


def test_tries_are_bounded(make: Make) -> None:
    with answering(make, Scripted(503, {"detail": "never"}), retries=1) as (client, log):
        with pytest.raises(ClientError, match="503: never"):
            client.ask("x", YES)
        with pytest.raises(ClientError, match="503: never"):
            list(client.batch(["x"], YES))
        assert len(log) == 4


def test_a_pause_that_is_too_long_is_an_error_at_once(make: Make) -> None:
    for wait in (
        "3600",
        email.utils.format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)),
    ):
        with answering(make, Scripted(503, {"detail": "tomorrow"}, headers={"Retry-After": wait})) as (client, log):
            with pytest.raises(ClientError, match="tomorrow"):
                client.ask("x", YES)
            assert len(log) == 1


def test_retry_after_is_seconds_or_a_date() -> None:
    soon = email.utils.format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=20))
    for asked, at_least in (("7", 7.0), (soon, 15.0), ("soon", 0.0), ("nan", 0.0), ("", 0.0)):
        pause = Tries(3).pause_after(ClientError(503, "unavailable", "later", retry_after=asked))
        assert at_least <= pause <= 20
    tries, pauses = Tries(4), []
    for _ in range(4):
        pauses.append(tries.pause_after(ClientError(0, "unreachable", "gone")))
    assert all(0.5 * 0.25 * 2**n <= pause <= 1.5 * 0.25 * 2**n for n, pause in enumerate(pauses))


def test_a_server_that_is_not_there_is_an_error_after_some_tries(make: Make) -> None:
    with make("http://127.0.0.1:9", retries=1) as client, pytest.raises(ClientError) as failed:
        client.ask("x", YES)
    assert (failed.value.status, failed.value.code) == (0, "unreachable")


def test_an_answer_that_takes_too_long_is_given_up_and_not_asked_again(server: Server, make: Make) -> None:
    with make(server.url, timeout=0.2) as client, pytest.raises(ClientError) as failed:
        client.ask("SLEEP=1", YES)
    assert (failed.value.status, failed.value.code) == (0, "timed_out")


def test_what_is_no_reply_of_the_protocol_is_an_error(make: Make) -> None:
    bodies: list[Any] = [[], {"answers": {}}, {"answers": {"q": {"type": "box"}}}, "text", {**ANSWER, "usage": "none"}]
    for body in bodies:
        with (
            answering(make, Scripted(body=body)) as (client, _),
            pytest.raises(ClientError, match="not a System One response"),
        ):
            client.ask("x", YES)


# --- batches ---


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


def test_many_questions_at_once_share_a_client(server: Server) -> None:
    async def main() -> list[Response]:
        async with AsyncClient(server.url) as client:
            return list(await asyncio.gather(*(client.ask(f"state {n}", YES) for n in range(200))))

    assert len(asyncio.run(main())) == 200


# --- the package ---


def test_importing_the_package_or_serving_does_not_load_the_http_library() -> None:
    code = "import decided, sys; before = set(sys.modules); from decided import Client, Noul; "
    code += "import decided.cli, decided.commands.parser; "
    code += "print({'msgspec', 'httpx2'} & before, 'httpx2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set() False\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    import decided

    assert set(decided.__all__) <= {name for name in decided.__all__ if getattr(decided, name)}
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        decided.Cleint  # noqa: B018


def test_evidence(server: Server, make: Make) -> None:
    state = "My parcel is late. I want my money back."
    with make(server.url) as client:
        plain, explained = client.ask(state, QUESTIONS), client.ask(state, QUESTIONS, explain=True)
        (result,) = client.batch([state], QUESTIONS, explain=True)
    assert plain.noul("refund").evidence is None
    assert result.answered().answers == explained.answers
    found = [one for answer in explained.answers.values() for one in answer.evidence]
    assert {state[one.start : one.end] for one in found} <= {"My parcel is late.", "I want my money back."}
    assert all(one.effect > 0 and one.pointer is None for one in found)
    assert found
