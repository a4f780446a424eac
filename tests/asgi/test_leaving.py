"""The application when a client leaves, or does not read what it is sent."""

import asyncio
import json
from typing import Any

import pytest

from decided.asgi import Application
from tests.asgi.call import LEFT, LINES, Call, in_flight, part, run, states, until
from tests.spec.checks import BATCH, SINGLE, bytes_for, refused


@pytest.mark.parametrize("path", [SINGLE, BATCH])
def test_a_client_that_leaves_is_worked_for_no_longer(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def test(app: Application) -> None:
        call = Call(app, part(bytes_for(path, "SLEEP=5")), path=path)
        while await in_flight(app) != 1:
            await asyncio.sleep(0.005)
        call.incoming.put_nowait(LEFT)
        await asyncio.wait_for(call.task, 20)
        assert call.sent == []
        assert call.cancelling == 0  # what is around the application was not cancelled with it
        assert await in_flight(app) == 0

    run(test)
    assert " status=499 " in capsys.readouterr().err


def test_a_client_that_leaves_in_its_body_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    async def test(app: Application) -> None:
        for accept in ({}, LINES):
            call = Call(app, part(b"{", more=True), LEFT, path=BATCH, headers=accept)
            await asyncio.wait_for(call.task, 20)
            assert call.sent == []
            assert await in_flight(app) == 0

    run(test)
    said = capsys.readouterr().err
    assert said.count(" status=499 ") == 2
    assert "Traceback" not in said


def test_a_stream_is_sent_no_faster_than_it_is_read() -> None:
    async def test(app: Application) -> None:
        call = Call(app, states(*(f"state {number}" for number in range(100))), path=BATCH, headers=LINES)
        call.window = 3
        await until(lambda: len(call.sent) == call.window)
        while await in_flight(app):  # the model does not wait for a client
            await asyncio.sleep(0.005)
        assert call.asked == call.window + 1
        call.window = 1000
        reply = await call.reply()
        assert [json.loads(line)["index"] for line in reply.body.splitlines()] == list(range(100))
        assert "content-length" not in reply.headers

    run(test)


def test_a_stream_that_nobody_reads_is_broken_off() -> None:
    async def test(app: Application) -> None:
        call = Call(app, states("one", "two"), path=BATCH, headers=LINES)
        call.window = 1
        await until(call.task.done)
        assert isinstance(call.task.exception(), ConnectionAbortedError)
        assert call.sent[-1].get("more_body", True)

    run(test, request_timeout_s=0.3)


def test_a_client_that_leaves_in_mid_stream_is_no_error() -> None:
    async def test(app: Application) -> None:
        call = Call(app, states("one", "SLEEP=5"), path=BATCH, headers=LINES)
        await until(lambda: len(call.sent) >= 2)
        call.incoming.put_nowait(LEFT)
        await asyncio.wait_for(call.task, 20)
        assert call.sent[-1]["more_body"] is True
        assert call.cancelling == 0

    run(test)


def test_the_end_of_a_stream_is_not_taken_for_a_client_that_left() -> None:
    """Some servers tell of the end of a reply in the same words, before the last message is through."""

    class Told(Call):
        through = False

        async def _send(self, message: Any) -> None:
            await super()._send(message)
            if message.get("more_body") is False:
                self.incoming.put_nowait(LEFT)
                for _ in range(5):
                    await asyncio.sleep(0)
                self.through = True

    async def test(app: Application) -> None:
        call = Told(app, states("one", "two"), path=BATCH, headers=LINES)
        assert (await call.reply()).body.count(b"\n") == 2
        assert call.through

    run(test)


def test_a_server_that_gives_up_gets_a_refusal_to_send() -> None:
    async def test(app: Application) -> None:
        call = Call(app, part(bytes_for(state="SLEEP=5")))
        while await in_flight(app) != 1:
            await asyncio.sleep(0.005)
        call.task.cancel()
        assert "stopping" in refused(await call.reply(), 503)

    run(test)
