"""What `decided.Client` and `decided.AsyncClient` do not take: wrong arguments, what no JSON says, asking too late."""

import asyncio
import datetime
import decimal
import math
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from decided import AsyncClient, Client, ClientError, Noul
from decided.client.protocol import ServerReply, Tries, models, response
from tests.clients.common import KEY
from tests.clients.own import ANSWER, YES, Make, answering
from tests.support.scripted_server import Scripted
from tests.support.server import Server

NOWHERE = "http://127.0.0.1:9"


# --- at construction ---


@pytest.mark.parametrize("retries", [-1, 1.5, math.inf, math.nan, None, "5"])
def test_retries_are_a_whole_number_from_0(make: Make, retries: Any) -> None:
    with pytest.raises(ValueError, match=r"^retries must be a whole number from 0, not "):
        make(NOWHERE, retries=retries)


@pytest.mark.parametrize("retries", [-1, 0, 0.5, 1, 1.5])
def test_tries_end_however_they_are_counted(retries: Any) -> None:
    tries, gone = Tries(retries), ClientError(0, "unreachable", "gone")
    if retries >= 1:
        tries.pause_after(gone)
    with pytest.raises(ClientError, match="gone"):
        tries.pause_after(gone)


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf, 1e10, None, "5"])
def test_a_timeout_is_a_number_of_seconds(make: Make, timeout: Any) -> None:
    with pytest.raises(ValueError, match=r"^timeout must be a finite number of seconds above 0, not "):
        make(NOWHERE, timeout=timeout)


@pytest.mark.parametrize("timeout", [60, 1e9])
def test_a_timeout_may_be_as_long_as_a_machine_can_wait(server: Server, make: Make, timeout: float) -> None:
    with make(server.url, timeout=timeout) as client:
        assert client.ask("x", YES).model == "fake"


@pytest.mark.parametrize(
    "base_url",
    [
        *(None, 5, b"http://127.0.0.1:9", "127.0.0.1:9", "http://", "http:///v1", "http://:9", "http://127.0.0.1:x"),
        *("http://a\nb", "http://\ud800", "http://[::1", "http://x..y", "http://" + 64 * "a"),
    ],
)
def test_a_base_url_is_an_address(make: Make, base_url: Any) -> None:
    with pytest.raises(ValueError, match=r"^base_url must be an address such as http://127.0.0.1:8000$"):
        make(base_url)


@pytest.mark.parametrize(
    "api_key", ["sekret\nb", "sekrét", "sekret ", " sekret", "sekret\0", "sekret\x7f", "sekret\ud800", b"sekret", 5]
)
def test_an_api_key_can_stand_in_a_header(make: Make, api_key: Any) -> None:
    with pytest.raises(ValueError, match=r"^api_key must be printable ASCII text") as refused:
        make(NOWHERE, api_key)
    assert "sekr" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_no_key_may_be_none_or_empty(server: Server, keyed: Server, make: Make) -> None:
    for api_key in (None, ""):
        with make(server.url, api_key) as client:
            assert client.ask("x", YES).model == "fake"
    with make(keyed.url, KEY) as client:
        assert client.ask("x", YES).model == "fake"


def test_a_command_refuses_such_a_key_in_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "decided", "ask", "x", "--noul", "q", "--server", NOWHERE],
        capture_output=True,
        text=True,
        env={**os.environ, "SERVICE_API_KEY": "sekrét", "PYTHONIOENCODING": "utf-8"},
    )
    said = "the server at http://127.0.0.1:9: api_key must be printable ASCII text without white space around it"
    assert (done.stdout, done.stderr) == ("", f"decided: {said}\n")


# --- what is asked ---

_CIRCULAR: list[Any] = []
_CIRCULAR.append(_CIRCULAR)


@pytest.mark.parametrize(
    "state",
    [
        *(b"abc", bytearray(b"abc"), memoryview(b"abc"), {"a": [b"abc"]}, {b"a": 1}),
        *(math.nan, {"a": [-math.inf]}, {math.nan: 1}, object(), {None: 1}, {(1, 2): 3}, _CIRCULAR),
    ],
    ids=lambda state: type(state).__name__,
)
def test_a_state_that_is_not_json_is_an_error_and_in_a_batch_that_of_this_state(
    server: Server, make: Make, state: Any
) -> None:
    with make(server.url) as client:
        with pytest.raises(ClientError, match=r"^unreadable: the state cannot be sent: ") as refused:
            client.ask(state, YES)
        assert (refused.value.status, refused.value.code) == (0, "unreadable")
        results = {result.index: result.error for result in client.batch(["a", state, "b"], YES)}
    assert {index: error.code for index, error in results.items() if error} == {1: "unreadable"}
    assert sorted(results) == [0, 1, 2]


def test_questions_that_are_not_json_are_an_error(server: Server, make: Make) -> None:
    with make(server.url) as client:
        wrong: list[Any] = [object(), Noul([b"Is it so?"]), {"type": "noul", "instructions": [math.inf]}]
        for question in wrong:
            with pytest.raises(ClientError, match="the questions cannot be sent"):
                client.ask("x", {"q": question})
            with pytest.raises(ClientError, match="the questions cannot be sent"):
                list(client.batch(["x"], {"q": question}))


def test_what_has_one_form_in_json_is_sent_in_it(make: Make) -> None:
    states: list[Any] = [(1, 2.5), {1: None}, 2**70, decimal.Decimal("0.10"), datetime.date(2024, 2, 29)]
    with answering(make, Scripted(body=ANSWER)) as (client, log):
        for state in states:
            client.ask(state, YES)
    assert [asked.body["state"] for asked in log] == [[1, 2.5], {"1": None}, 2**70, "0.10", "2024-02-29"]


# --- what is answered ---


@pytest.mark.parametrize(
    "reply",
    [
        Scripted(body=ANSWER, headers={"Content-Encoding": "gzip"}),
        Scripted(body={**ANSWER, "answers": {"q": {"type": "noul", "noul": 10**400}}}),
        Scripted(lines=[{"index": 0, "detail": 5}]),
        Scripted(lines=[{"index": 0, "status": "503", "detail": "busy"}]),
    ],
    ids=["not compressed", "large number", "odd detail", "odd status"],
)
def test_an_odd_reply_is_the_one_kind_of_error(make: Make, reply: Scripted) -> None:
    with answering(make, reply) as (client, log):
        with pytest.raises(ClientError) as refused:
            list(client.batch(["x"], YES)) if reply.lines else client.ask("x", YES)
        assert (refused.value.status, refused.value.code, len(log)) == (0, "invalid_response", 1)


def test_a_reply_that_is_nested_too_deeply_is_the_one_kind_of_error() -> None:
    deep = 10_000 * b"[" + 10_000 * b"]"
    for read in (lambda: response(deep, ""), lambda: models(ServerReply(200, {}, deep))):
        with pytest.raises(ClientError, match="not a System One response"):
            read()
    with pytest.raises(ClientError, match="the server answered 422"):
        ServerReply(422, {}, deep).checked()


# --- too late ---


def test_a_closed_client_says_so(server: Server) -> None:
    client = Client(server.url)
    client.close()
    for ask in (lambda: client.ask("x", YES), lambda: list(client.batch(["x"], YES)), client.models):
        with pytest.raises(ClientError, match=r"^closed: the client is closed$") as refused:
            ask()
        assert (refused.value.status, refused.value.code) == (0, "closed")
    client.close()


def test_a_client_that_another_thread_closes_says_so() -> None:
    client = Client(NOWHERE)
    closing = threading.Timer(0.2, client.close)  # between the tries
    closing.start()
    with pytest.raises(ClientError, match=r"^closed: "):
        client.ask("x", YES)
    closing.join()


def test_a_closed_asynchronous_client_says_so(server: Server) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            pass
        for asked in (client.ask("x", YES), anext(client.batch(["x"], YES)), client.models()):
            with pytest.raises(ClientError, match=r"^closed: the client is closed$"):
                await asked

    asyncio.run(main())


def test_an_asynchronous_client_belongs_to_one_event_loop(server: Server) -> None:
    client = AsyncClient(server.url)

    async def ask() -> str:
        return (await client.ask("x", YES)).model

    async def batch() -> int:
        return len([result async for result in client.batch(["x"], YES)])

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    assert first.run_until_complete(ask()) == "fake"
    for again in (ask, batch, client.models):
        with pytest.raises(ClientError, match=r"^closed: an AsyncClient belongs to the event loop "):
            second.run_until_complete(again())
    assert first.run_until_complete(ask()) == "fake"
    first.run_until_complete(client.close())
    for loop in (first, second):
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def test_closing_after_the_event_loop_has_ended_is_no_error_beside_that_of_asking(server: Server) -> None:
    code = """
import asyncio, sys
from decided import AsyncClient, ClientError, Noul

client = AsyncClient(sys.argv[1])

async def ask():
    return (await client.ask("x", {"q": Noul("Is it so?")})).model

async def ask_and_close():
    async with client:
        await ask()

print(asyncio.run(ask()))
try:
    asyncio.run(ask_and_close())
except ClientError as error:
    print(error.code, error.__cause__, error.__context__)
"""
    done = subprocess.run([sys.executable, "-c", code, server.url], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("fake\nclosed None None\n", "")
