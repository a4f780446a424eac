"""`decided.Client` and `decided.AsyncClient`, against this server and against others of the protocol."""

import asyncio
import datetime
import email.utils
import subprocess
import sys
from typing import Any, get_args, get_type_hints

import pytest

from decided import AsyncClient, Choice, ClientError, Noul, Outcomes, Response, Score
from decided.client.protocol import Tries
from tests.clients.common import KEY, busy
from tests.clients.own import ANSWER, YES, Make, answering
from tests.support.scripted_server import Scripted
from tests.support.server import Server

QUESTIONS = {
    "topic": Choice({"parcel": "a late one", "bill": None}, "What is it about?"),
    "upset": Score(["calm", "cross", "angry"]),
    "refund": Noul("Is a refund asked for?", Outcomes(yes="money back", no=None)),
}


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


def test_many_questions_at_once_share_a_client(server: Server) -> None:
    async def main() -> list[Response]:
        async with AsyncClient(server.url) as client:
            return list(await asyncio.gather(*(client.ask(f"state {n}", YES) for n in range(200))))

    assert len(asyncio.run(main())) == 200


def test_importing_the_package_or_serving_does_not_load_the_http_library() -> None:
    code = "import decided, sys; before = set(sys.modules); from decided import Client, Noul; "
    code += "import decided.cli, decided.commands.parser; "
    code += "print({'msgspec', 'httpx2'} & before, 'httpx2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set() False\n"


def test_every_type_that_a_client_takes_or_gives_can_be_imported() -> None:
    import decided

    found: set[type] = set()

    def look(hint: Any) -> None:
        for part in get_args(hint):
            look(part)
        if isinstance(hint, type) and hint.__module__.startswith("decided.") and hint not in found:
            found.add(hint)
            for part in get_type_hints(hint).values():
                look(part)

    for client in (decided.Client, AsyncClient):
        for method in (client.ask, client.batch, client.models):
            for hint in get_type_hints(method).values():
                look(hint)
    assert {Response, Choice, Outcomes} <= found
    assert {one.__name__ for one in found} <= set(decided.__all__)
    assert {"Question", "Questions", "Answer"} <= set(decided.__all__)  # what is written in their place


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
