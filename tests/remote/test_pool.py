"""The HTTP client: every way in which a reply can end, and which connections are kept."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from decided.engines.remote.pool import Garbled, HttpReply, Pool, Unreachable

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Origin:
    """Answers each request with the next of the given bytes; None closes the connection."""

    def __init__(self, *replies: bytes | None) -> None:
        self.replies = list(replies)
        self.connections = self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                reply = self.replies.pop(0)
                if reply is None:
                    break
                writer.write(reply)
                if b"Content-Length" not in reply and b"chunked" not in reply:
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()


def ask(origin: Origin, scenario: Callable[[Pool], Awaitable[None]]) -> None:
    async def main() -> None:
        server = await asyncio.start_server(origin.serve, "127.0.0.1", 0)
        pool = Pool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            await scenario(pool)
        finally:
            pool.close()
            server.close()
            await asyncio.sleep(0)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("reply", "status", "body"),
    [
        (PLAIN, 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, 200, b"ok"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", 500, b""),
    ],
    ids=["length", "chunks", "to the end", "old", "announced", "error"],
)
def test_every_kind_of_reply_is_read(reply: bytes, status: int, body: bytes) -> None:
    async def scenario(pool: Pool) -> None:
        for _ in range(2):
            found = await pool.call(REQUEST, 5)
            assert (found.status, found.body) == (status, body)

    ask(Origin(reply, reply), scenario)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (None, Unreachable),
        (b"HTTP/1.1 200 OK\r\nContent-Le", Unreachable),
        (b"SSH-2.0-x\r\n\r\n", Garbled),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, Garbled),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b" " * 5_000_000, Garbled),
    ],
    ids=["closed", "half", "no http", "endless head", "too large"],
)
def test_what_is_no_reply_is_an_error(reply: bytes | None, error: type[Exception]) -> None:
    async def scenario(pool: Pool) -> None:
        with pytest.raises(error):
            await pool.call(REQUEST, 5)

    ask(Origin(reply), scenario)


def test_connections_are_kept_unless_the_engine_says_otherwise() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    origin = Origin(PLAIN, PLAIN, PLAIN, closing, PLAIN)

    async def scenario(pool: Pool) -> None:
        for _ in range(5):
            assert (await pool.call(REQUEST, 5)).body == b"ok"

    ask(origin, scenario)
    assert origin.connections == 2


def test_words_after_the_reply_are_never_taken_for_the_next() -> None:
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    origin = Origin(PLAIN + forged, PLAIN)

    async def scenario(pool: Pool) -> None:
        for _ in range(2):
            assert (await pool.call(REQUEST, 5)).body == b"ok"

    ask(origin, scenario)
    assert origin.connections == 2


def test_a_call_out_of_time_takes_its_connection_with_it() -> None:
    origin = Origin(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", PLAIN)

    async def scenario(pool: Pool) -> None:
        with pytest.raises(TimeoutError):
            await pool.call(REQUEST, 0.05)
        assert await pool.call(REQUEST, 5) == HttpReply(200, b"ok", "")

    ask(origin, scenario)
    assert origin.connections == 2


def test_nobody_there() -> None:
    async def main() -> None:
        with pytest.raises(Unreachable):
            await Pool("http://127.0.0.1:9").call(REQUEST, 5)

    asyncio.run(main())


def test_a_busy_connection_is_replaced_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = Origin(*[PLAIN] * 4)

    async def scenario(pool: Pool) -> None:
        for _ in range(2):
            await pool.call(REQUEST, 5)
        assert origin.connections == 1
        monkeypatch.setattr("decided.engines.remote.pool._MAX_AGE_S", 0.0)
        for _ in range(2):
            await pool.call(REQUEST, 5)
        assert origin.connections == 2

    ask(origin, scenario)


def test_connections_beyond_the_need_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decided.engines.remote.pool._KEEP_ALIVE_S", 0.1)
    origin = Origin(*[PLAIN] * 1000)

    async def scenario(pool: Pool) -> None:
        await asyncio.gather(*(pool.call(REQUEST, 5) for _ in range(3)))
        assert origin.open == 3
        async with asyncio.timeout(5):
            while origin.open > 1:
                await pool.call(REQUEST, 5)
                await asyncio.sleep(0.01)

    ask(origin, scenario)
