"""The application at its seam: a server of two functions, so that a test decides when a byte comes and is taken."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from decided.asgi import Application, Settings, create_app
from decided.errors import SettingsError
from tests.asgi.call import Call, Message, part, run
from tests.spec.checks import AUTHORIZED, KEY, bytes_for, has_ids, refused, served

# --- life ---


async def live(app: Application) -> list[Message]:
    """The messages of a lifespan that is shut down at once."""
    sent: list[Message] = []
    incoming = iter(({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}))

    async def receive() -> Message:
        return next(incoming)

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "lifespan"}, receive, send)
    return sent


def test_a_lifespan_starts_and_stops() -> None:
    sent = asyncio.run(live(create_app(Settings(model="fake"))))
    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "fake:broken"}, "no such weights"),
        ({"model": "fake", "api_key": "k", "api_key_file": "keys"}, "SERVICE_API_KEY_FILE are both set"),
        ({"model": "fake", "request_timeout_s": "soon"}, "not supported between"),
    ],
    ids=["model", "keys", "unforeseen"],
)
def test_what_cannot_start_says_so_and_raises_nothing(settings: dict[str, Any], said: str) -> None:
    """An application that raises is taken for one without a lifespan, and served all the same."""
    (failed,) = asyncio.run(live(create_app(Settings(**settings))))
    assert failed["type"] == "lifespan.startup.failed"
    assert said in failed["message"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_outside_its_lifespan_it_answers_503(after: bool) -> None:
    async def test() -> None:
        app = create_app(Settings(model="fake"))
        if after:
            await live(app)
        reply = await Call(app, part(bytes_for()), headers={"x-request-id": "mine"}).reply()
        assert "lifespan" in refused(reply, 503)
        assert has_ids(reply) == "mine"

    asyncio.run(test())


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_MODEL", "fake:broken")
    (failed,) = asyncio.run(live(create_app()))
    assert "fake:broken" in failed["message"]
    monkeypatch.setenv("SERVICE_MAX_IN_FLIGHT", "many")
    with pytest.raises(SettingsError, match="SERVICE_MAX_IN_FLIGHT"):
        create_app()


def test_what_is_no_request_is_refused() -> None:
    async def test(app: Application) -> None:
        call = Call(app, {"type": "websocket.connect"}, type="websocket")
        await call.task
        assert call.sent == [{"type": "websocket.close"}]
        with pytest.raises(ValueError, match="smoke"):
            await Call(app, type="smoke").task

    run(test)


@contextmanager
def loggers_with(*handlers: logging.Handler) -> Iterator[logging.Logger]:
    """The logger of the package, where the root has these handlers and nothing else is configured."""
    root, ours = logging.getLogger(), logging.getLogger("decided")
    kept = root.handlers[:], ours.handlers[:], ours.level
    root.handlers[:], ours.handlers[:] = handlers, []
    try:
        yield ours
    finally:
        root.handlers[:], ours.handlers[:] = kept[:2]
        ours.setLevel(kept[2])


def test_without_a_logging_of_the_host_events_are_logged_as_by_the_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with loggers_with():
        asyncio.run(live(create_app(Settings(model="fake", log_format="json"))))
    said = [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()]
    assert any("serving fake" in line for line in said)
    assert any("SERVICE_API_KEY" in line for line in said)


def test_the_logging_of_the_host_is_left_alone() -> None:
    with loggers_with(handler := logging.NullHandler()) as ours:
        asyncio.run(live(create_app(Settings(model="fake", api_key=KEY))))
        assert (logging.getLogger().handlers, ours.handlers) == ([handler], [])


# --- where it is mounted ---


@pytest.mark.parametrize(
    ("root", "path", "status"),
    [
        ("", "/health", 200),
        ("/api", "/api/health", 200),
        ("/api/", "/api/health", 200),
        ("/api", "/health", 200),  # the server has taken the root off
        ("/a/b", "/a/b/health", 200),
        ("/health", "/health/health", 200),
        ("/api", "/api/api/health", 404),
        ("/api", "/apihealth", 404),
        ("/api", "/api", 404),
        ("", "/api/health", 404),
    ],
)
def test_the_root_path_is_honoured(root: str, path: str, status: int) -> None:
    async def test(app: Application) -> None:
        reply = await Call(app, part(b""), path=path, root_path=root, method="GET").reply()
        assert reply.status == status

    run(test)


def test_an_escaped_slash_separates_nothing() -> None:
    async def test(app: Application) -> None:
        reply = await Call(app, part(b""), path="/v1/models", raw_path=b"/v1%2Fmodels", method="GET").reply()
        refused(reply, 404)
        assert (
            await Call(app, part(b""), path="/v1/models", raw_path=b"/v1/models", method="GET").reply()
        ).status == 200

    run(test)


# --- the body ---


def test_nothing_is_read_before_the_key_is_checked() -> None:
    """A server invites the body when it is asked for the first part."""

    async def test(app: Application) -> None:
        call = Call(app, part(bytes_for()))
        refused(await call.reply(), 401)
        assert min(call.taken) >= 2  # the head and the words of the refusal
        served(await Call(app, part(bytes_for()), headers=AUTHORIZED).reply())

    run(test, api_key=KEY)


def test_a_body_is_read_no_further_than_the_limit_before_it_is_refused() -> None:
    async def test(app: Application) -> None:
        call = Call(app, *[part(b" " * 600, more=True)] * 20, part(b""))
        refused(await call.reply(), 413)
        assert len([sent for sent in call.taken if not sent]) == 4
        assert call.incoming.empty()  # the rest was dropped, so that the client gets to read the refusal

    run(test, max_body_bytes=2000)


def test_a_refused_body_without_end_is_not_read_for_ever() -> None:
    async def test(app: Application) -> None:
        call = Call(app, *[part(b" " * 2**20, more=True)] * 100)
        refused(await call.reply(), 413)
        assert 60 < len(call.taken) < 70

    run(test)


def test_a_refused_body_that_does_not_come_is_not_waited_for_for_ever() -> None:
    async def test(app: Application) -> None:
        refused(await Call(app, part(b" ", more=True), path="/nowhere").reply(), 404)

    run(test, request_timeout_s=0.2)


@pytest.mark.parametrize(("version", "connection"), [("1.1", "close"), ("2", None)])
def test_a_slow_sender_is_told_and_let_go(version: str, connection: str | None) -> None:
    async def test(app: Application) -> None:
        call = Call(app, part(b"{", more=True), http_version=version)
        reply = await call.reply()
        refused(reply, 504)
        assert reply.headers.get("connection") == connection
        assert max(call.taken) == 0  # the rest is not waited for
        assert call.cancelling == 0

    run(test, request_timeout_s=0.2)


def test_repeated_headers_are_one() -> None:
    """Two ids are no id, two encodings no encoding."""

    async def test(app: Application) -> None:
        call = Call(app, part(bytes_for()))
        call.scope["headers"] += [(b"x-request-id", b"one"), (b"x-request-id", b"two")]
        assert has_ids(await call.reply()) not in ("one", "two")

    run(test)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_reply_without_a_body(method: str) -> None:
    async def test(app: Application) -> None:
        page = await Call(app, part(b""), path="/", method="GET").reply()
        same = await Call(
            app, part(b""), path="/", method=method, headers={"if-none-match": page.headers["etag"]}
        ).reply()
        assert (same.status, same.body, same.headers.get("content-length")) == (304, b"", None)
        head = await Call(app, part(b""), path="/", method="HEAD").reply()
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(page.body)))

    run(test)


# --- clients that leave, or do not read ---
