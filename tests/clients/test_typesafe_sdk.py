"""The official Python client, sync and async, unmodified, against the running server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2
import pytest
from typesafe_sdk import (
    AsyncTypeSafeClient,
    Box,
    Choice,
    Image,
    Noul,
    RetryPolicy,
    Score,
    SystemOneResponse,
    TypeSafeAPIError,
    TypeSafeAPITimeoutError,
    TypeSafeAuthenticationError,
    TypeSafeBadRequestError,
    TypeSafeClient,
    TypeSafeInternalServerError,
    TypeSafeNotFoundError,
    TypeSafeUnprocessableEntityError,
)

from tests.clients.common import (
    KEY,
    LONG_STATE,
    QUESTIONS,
    STATE,
    assert_distribution,
    busy,
    noise,
    plain_answer,
    wait_for_in_flight,
)
from tests.support.gate import Gate
from tests.support.server import Server, running_server

T = TypeVar("T")
NO_RETRY = RetryPolicy(max_retries=0)
QUESTION = {"q": Noul(instructions="Is this about billing?")}
PLAIN_QUESTION = {"q": {"type": "noul", "instructions": "Is this about billing?"}}


def in_async(server: Server, use: Callable[[AsyncTypeSafeClient], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        async with AsyncTypeSafeClient(**{"api_key": "any", "base_url": server.url, **options}) as client:
            return await use(client)

    return asyncio.run(main())


def ask(
    kind: str, server: Server, *args: Any, options: dict[str, Any] | None = None, **kwargs: Any
) -> SystemOneResponse:
    """One `system_one` call through a new sync or async client, without the cost of loading TLS certificates."""
    options = {"api_key": "any", "base_url": server.url, **(options or {})}
    if kind == "sync":
        with TypeSafeClient(http_client=httpx2.Client(verify=False, timeout=10), **options) as client:
            result: SystemOneResponse = client.system_one(*args, **kwargs)
            return result

    async def use(client: AsyncTypeSafeClient) -> SystemOneResponse:
        return await client.system_one(*args, **kwargs)

    return in_async(server, use, http_client=httpx2.AsyncClient(verify=False, timeout=10), **options)


both = pytest.mark.parametrize("kind", ["sync", "async"])


def sent(result: SystemOneResponse) -> httpx2.Request:
    return result.raw_http_response.request


@both
def test_every_question_shape_is_answered_as_without_the_client(server: Server, kind: str) -> None:
    result = ask(kind, server, STATE, QUESTIONS)
    plain = plain_answer(server)
    assert result.raw_http_response.json()["answers"] == plain["answers"]
    assert list(result.answers) == list(QUESTIONS)
    assert result.model == plain["model"]
    assert result.usage.model_dump() == plain["usage"]
    assert result.usage.input_tokens is not None
    assert result.usage.input_tokens > 0
    assert result.usage.output_tokens == 0
    for name, noul in result.nouls.items():
        assert 0 <= noul.noul <= 1
        assert noul.noul == plain["answers"][name]["probabilities"]["true"]
    for name, choice in result.choices.items():
        assert_distribution(choice.probabilities, choice.confidence)
        assert list(choice.probabilities) == list(QUESTIONS[name]["criteria"])
        assert choice.choice == max(choice.probabilities, key=choice.probabilities.__getitem__)
    assert result.choices["only"].probabilities == {"one": 1.0}
    assert result.choices["only"].confidence == 1.0
    urgency = result.scores["urgency"]
    assert_distribution(urgency.probabilities, urgency.confidence)
    assert urgency.legend == dict(enumerate(QUESTIONS["urgency"]["criteria"]))
    assert urgency.score == pytest.approx(sum(level * p for level, p in urgency.probabilities.items()), abs=1e-6)
    assert (len(result.nouls), len(result.choices), len(result.scores)) == (3, 3, 1)


@both
def test_an_answer_about_a_cut_state_is_understood(server: Server, kind: str) -> None:
    result = ask(kind, server, LONG_STATE, QUESTIONS)
    body = result.raw_http_response.json()
    assert body == plain_answer(server, LONG_STATE)
    assert len(body["warnings"]) == len(QUESTIONS)
    assert all(answer["truncated"] is True for answer in body["answers"].values())
    assert list(result.answers) == list(QUESTIONS)


@both
def test_question_objects_and_dictionaries_get_the_same_answers(server: Server, kind: str) -> None:
    objects = {
        "billing": Noul(instructions="Is this about billing?"),
        "described": Noul(criteria={"true": "It asks for money back"}),
        "team": Choice(instructions="Which team?", criteria={"billing": None, "sales": None, "né": None}),
        "only": Choice(criteria={"one": "the only option"}),
        "urgency": Score(instructions=["How", "urgent?"], criteria=["low", {"level": "mid"}, ["high"]]),
    }
    result = ask(kind, server, STATE, objects)
    plain = plain_answer(server, questions={name: QUESTIONS[name] for name in objects})
    assert result.raw_http_response.json()["answers"] == plain["answers"]


@pytest.mark.parametrize(
    "state", ["", "plain text", {}, [], {"a": None}, [None, 1, -0.5, "x", {"é": []}], "\u2028\x00"]
)
def test_any_state_a_caller_may_pass(server: Server, state: Any) -> None:
    result = ask("sync", server, state, QUESTION)
    assert result.raw_http_response.json() == plain_answer(server, state, PLAIN_QUESTION)


@both
def test_bodies_of_one_kib_and_more_are_sent_compressed_and_understood(server: Server, kind: str) -> None:
    overhead = len(sent(ask(kind, server, "", QUESTION)).content)
    for size, encoding in ((1023, None), (1024, "zstd"), (150_000, "zstd")):
        state = noise(size - overhead)
        result = ask(kind, server, state, QUESTION)
        assert sent(result).headers.get("content-encoding") == encoding
        assert int(sent(result).headers["content-length"]) == len(sent(result).content)
        expected = plain_answer(server, state, PLAIN_QUESTION)
        assert result.raw_http_response.json() == expected


def test_compression_can_be_off(server: Server) -> None:
    state = noise(5_000)
    result = ask("sync", server, state, QUESTION, options={"compression": False})
    assert "content-encoding" not in sent(result).headers
    assert result.answers == ask("sync", server, state, QUESTION).answers


@both
@pytest.mark.parametrize("compression", [None, False])
def test_the_longest_state_is_served_and_one_character_more_is_422(
    server: Server, kind: str, compression: bool | None
) -> None:
    options = {"compression": compression, "timeout": 30.0}
    longest = "🙂" * 200_000  # 800 kB of UTF-8, below the body limit
    result = ask(kind, server, longest, QUESTION, options=options)
    assert 0 <= result.nouls["q"].noul <= 1
    with pytest.raises(TypeSafeUnprocessableEntityError):
        ask(kind, server, longest + "🙂", QUESTION, options=options)


@both
def test_request_id_is_the_callers_or_a_new_one(server: Server, kind: str) -> None:
    result = ask(kind, server, "text", QUESTION, extra_headers={"x-request-id": "order-42:a.b_c"})
    assert result.request_id == "order-42:a.b_c"
    first, second = (ask(kind, server, "text", QUESTION) for _ in range(2))
    assert first.request_id
    assert first.request_id != second.request_id
    assert first.request_id == first.raw_http_response.headers["x-request-id"]


@both
def test_model_list(server: Server, kind: str) -> None:
    async def use(client: AsyncTypeSafeClient) -> Any:
        return await client.models.list()

    if kind == "sync":
        with TypeSafeClient(api_key="any", base_url=server.url + "/") as client:
            listed = client.models.list()
    else:
        listed = in_async(server, use)
    (model,) = listed.models
    assert model.name == plain_answer(server)["model"]
    assert model.description
    time.strptime(model.release_date, "%Y-%m-%d")
    assert listed.request_id


def test_only_the_base_address_changes(keyed: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TYPESAFE_BASE_URL", keyed.url)
    monkeypatch.setenv("TYPESAFE_API_KEY", KEY)
    with TypeSafeClient() as client:
        assert client.system_one(state="text", questions=QUESTION).nouls.keys() == {"q"}

    async def main() -> SystemOneResponse:
        async with AsyncTypeSafeClient() as client:
            return await client.system_one(state="text", questions=QUESTION)

    assert asyncio.run(main()).nouls.keys() == {"q"}


@both
@pytest.mark.parametrize("size", [10, 190_000])
def test_a_wrong_key_is_401_and_the_right_one_is_not(keyed: Server, kind: str, size: int) -> None:
    """Also when a large body is under way while the refusal is sent."""
    state, plain = "🙂" * size, {"compression": False}
    for _ in range(3):
        with pytest.raises(TypeSafeAuthenticationError) as caught:
            ask(kind, keyed, state, QUESTION, options={"api_key": KEY + "x", **plain})
        assert caught.value.request_id
        assert list(caught.value.body) == ["detail"]
        assert caught.value.headers["www-authenticate"] == "Bearer"
    assert ask(kind, keyed, state, QUESTION, options={"api_key": KEY, **plain}).nouls


def test_the_model_list_needs_no_right_key(keyed: Server) -> None:
    with TypeSafeClient(api_key="wrong", base_url=keyed.url) as client:
        assert len(client.models.list().models) == 1


BAD_QUESTIONS: dict[str, Any] = {
    "unknown type": {"type": "rank", "criteria": ["a"]},
    "number as description": {"type": "choice", "criteria": {"a": 1}},
    "null level": {"type": "score", "criteria": ["low", None]},
    "other noul outcome": {"type": "noul", "instructions": "Sure?", "criteria": {"maybe": "perhaps"}},
    "box": Box(instructions="The dog"),
    "too many options": Choice(criteria={str(i): None for i in range(257)}),
    "criteria as array": {"type": "choice", "criteria": ["a", "b"]},
}


@both
@pytest.mark.parametrize("question", BAD_QUESTIONS.values(), ids=BAD_QUESTIONS.keys())
def test_an_invalid_question_is_422_that_names_it(server: Server, kind: str, question: Any) -> None:
    with pytest.raises(TypeSafeUnprocessableEntityError) as caught:
        ask(kind, server, "text", {"fine": QUESTION["q"], "faulty-one": question})
    assert list(caught.value.body) == ["detail"]
    assert "faulty-one" in caught.value.body["detail"]
    assert caught.value.body["detail"] in str(caught.value)
    assert caught.value.request_id


@both
def test_too_many_questions_is_422_and_the_limit_is_served(server: Server, kind: str) -> None:
    questions = {f"q{i}": Noul(instructions=f"Is it {i}?") for i in range(64)}
    assert list(ask(kind, server, "text", questions).nouls) == list(questions)
    with pytest.raises(TypeSafeUnprocessableEntityError):
        ask(kind, server, "text", {**questions, "one more": QUESTION["q"]})


@both
def test_parts_that_cannot_be_honoured_are_refused(server: Server, kind: str) -> None:
    image = Image(b"\x89PNG\r\n\x1a\n" + bytes(3000))
    with pytest.raises(TypeSafeAPIError) as caught:
        ask(kind, server, {"photo": image}, QUESTION)
    assert caught.value.status == 415
    assert list(caught.value.body) == ["detail"]
    with pytest.raises(TypeSafeUnprocessableEntityError, match="assets"):
        ask(kind, server, "text", QUESTION, extra_body={"assets": {"x": {"type": "image", "data_base64": "AAAA"}}})


@both
def test_unknown_fields_are_ignored(server: Server, kind: str) -> None:
    extra = {"temperature": 0.3, "keep_alive": None, "provider": {"order": ["x"]}, "user": "u", "assets": {}}
    result = ask(kind, server, "text", QUESTION, model="another-model", extra_body=extra)
    assert result.answers == ask(kind, server, "text", QUESTION).answers


@both
@pytest.mark.parametrize("compression", [None, False], ids=["zstd", "plain"])
def test_a_body_over_the_limit_is_413(server: Server, kind: str, compression: bool | None) -> None:
    """Plain: refused while the body is under way. Compressed: few bytes that grow past the limit."""
    for _ in range(3):
        with pytest.raises(TypeSafeAPIError) as caught:
            ask(kind, server, "x" * 1_500_000, QUESTION, options={"compression": compression, "retry": NO_RETRY})
        assert caught.value.status == 413
        assert list(caught.value.body) == ["detail"]


@both
def test_a_wrong_base_address_is_404_and_a_bad_body_400(server: Server, kind: str) -> None:
    with pytest.raises(TypeSafeNotFoundError):
        ask(kind, server, "text", QUESTION, options={"base_url": server.url + "/v1"})
    with pytest.raises(TypeSafeBadRequestError):
        ask(kind, server, "text", QUESTION, extra_headers={"content-encoding": "gzip"})


@both
def test_503_is_retried_after_the_announced_second(tight: Server, kind: str) -> None:
    with busy(tight):
        started = time.monotonic()
        result = ask(kind, tight, "text", QUESTION)
        waited = time.monotonic() - started
    # The client's own back-off would be at most half a second and would need a second retry.
    assert sent(result).headers["x-typesafe-retry-count"] == "1"
    assert waited >= 1.0


@both
@pytest.mark.parametrize("size", [10, 900_000])
def test_503_without_retries_comes_at_once(tight: Server, kind: str, size: int) -> None:
    with busy(tight), pytest.raises(TypeSafeInternalServerError) as caught:  # it did not wait for the place
        ask(kind, tight, noise(size), QUESTION, options={"retry": NO_RETRY, "compression": False})
    assert caught.value.status == 503
    assert caught.value.headers["retry-after"] == "1"
    assert caught.value.request_id
    assert list(caught.value.body) == ["detail"]


@both
def test_a_failing_model_is_500_without_internals(server: Server, kind: str) -> None:
    with pytest.raises(TypeSafeInternalServerError) as caught:
        ask(kind, server, "FAIL", QUESTION, options={"retry": NO_RETRY})
    assert caught.value.status == 500
    assert caught.value.body == {"detail": "inference failed"}
    assert caught.value.request_id


def test_504_when_the_answer_takes_too_long() -> None:
    with (
        running_server("--request-timeout-s", "0.5") as hasty,
        Gate() as gate,
        pytest.raises(TypeSafeInternalServerError) as caught,
    ):
        ask("sync", hasty, gate.state, QUESTION, options={"retry": NO_RETRY})
    assert caught.value.status == 504
    assert list(caught.value.body) == ["detail"]


@both
def test_a_client_that_gives_up_frees_its_place(tight: Server, kind: str) -> None:
    with Gate() as gate:
        with pytest.raises(TypeSafeAPITimeoutError):
            ask(kind, tight, gate.state, QUESTION, options={"retry": NO_RETRY, "timeout": 0.2})
        wait_for_in_flight(tight, 0)
    assert ask(kind, tight, "text", QUESTION, options={"retry": NO_RETRY}).nouls


def test_one_connection_serves_answers_and_refusals(server: Server) -> None:
    with TypeSafeClient(api_key="any", base_url=server.url) as client:

        def local_port() -> int:
            response = client.system_one("text", QUESTION).raw_http_response
            port: int = response.extensions["network_stream"].get_extra_info("client_addr")[1]
            return port

        first = local_port()
        with pytest.raises(TypeSafeUnprocessableEntityError):
            client.system_one("text", {"q": Box(instructions="The dog")})
        client.models.list()
        assert local_port() == first


def test_many_calls_at_once_get_the_answers_of_calls_alone(server: Server) -> None:
    states = [f"message {i}: " + noise(20 * i) for i in range(60)]

    async def use(client: AsyncTypeSafeClient) -> list[SystemOneResponse]:
        return await asyncio.gather(*(client.system_one(state, QUESTIONS) for state in states))

    together = in_async(server, use)
    assert len({result.request_id for result in together}) == len(states)
    for state, result in zip(states, together, strict=True):
        alone = plain_answer(server, state)
        assert result.usage.model_dump() == alone["usage"]
        for name, answer in result.nouls.items():
            assert answer.noul == pytest.approx(alone["answers"][name]["noul"], abs=1e-3)
        for name, choice in result.choices.items():
            assert choice.probabilities == pytest.approx(alone["answers"][name]["probabilities"], abs=1e-3)
    wait_for_in_flight(server, 0)
