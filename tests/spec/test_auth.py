"""The API key: who is asked for it, how it is compared, where it comes from."""

import hmac
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from decided.cli import main
from decided.errors import Unauthorized
from decided.settings import Settings
from decided.web.keys import Keys
from tests.spec.checks import AUTHORIZED, GETS, KEY, POSTS, SINGLE, body_for, bytes_for, eventually, refused, served
from tests.spec.wire import Wire, message
from tests.support.server import Server, running_server, start

LOOPBACK = ("--model", "fake", "--host", "127.0.0.1", "--port", "0")


def status_for(server: Server, authorization: str | None, path: str = SINGLE) -> int:
    headers = {} if authorization is None else {"Authorization": authorization}
    reply = server.request("POST", path, body_for(path), headers)
    if reply.status == 401:
        refused(reply, 401)
        assert reply.headers["www-authenticate"] == "Bearer"
    else:
        served(reply)
    return reply.status


# --- one key ---


@pytest.mark.parametrize("path", POSTS)
def test_the_key_opens_both_posts(keyed: Server, path: str) -> None:
    assert status_for(keyed, f"Bearer {KEY}", path) == 200


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        KEY,
        f"Basic {KEY}",
        f"Bearer{KEY}",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY.upper()}",
        f"Bearer {KEY} {KEY}",
        f"Bearer {KEY},",
        f'Bearer "{KEY}"',
        f"Bearer Bearer {KEY}",
        f"Bearer {'x' * 10_000}",
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_missing_or_wrong_key_is_unauthorized(keyed: Server, path: str, authorization: str | None) -> None:
    assert status_for(keyed, authorization, path) == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_case_of_the_scheme_does_not_matter(keyed: Server, scheme: str) -> None:
    assert status_for(keyed, f"{scheme} {KEY}") == 200


@pytest.mark.parametrize("key", [b"\xff\xfe", "schlüssel".encode(), b"\xed\xa0\x80"])
def test_a_wrong_key_of_any_bytes_is_unauthorized(keyed: Server, key: bytes) -> None:
    with Wire(keyed) as wire:
        refused(wire.exchange(message(bytes_for(), "Authorization: Bearer " + key.decode("latin-1"))), 401)


@pytest.mark.parametrize("path", GETS)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}], ids=["none", "wrong"])
def test_the_other_endpoints_need_no_credentials(keyed: Server, path: str, headers: dict[str, str]) -> None:
    assert keyed.get(path, headers).status == 200


def test_the_api_document_is_covered_by_the_key(keyed: Server) -> None:
    refused(keyed.get("/openapi.json"), 401)
    served(keyed.get("/openapi.json", AUTHORIZED))


def test_the_key_is_in_no_reply(keyed: Server) -> None:
    replies = [keyed.get(path) for path in (*GETS, "/nowhere", "/openapi.json")]
    replies += [keyed.ask("x"), keyed.ask("x", headers=AUTHORIZED), keyed.ask("x", {}, AUTHORIZED)]
    for reply in replies:
        assert KEY.encode() not in reply.body
        assert all(KEY not in value for value in reply.headers.values())


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("authorization", [None, "Bearer anything", "Basic eDp5", "nonsense", ""], ids=repr)
def test_without_a_key_the_posts_are_open_and_the_header_is_ignored(
    server: Server, path: str, authorization: str | None
) -> None:
    assert status_for(server, authorization, path) == 200


def test_every_key_is_compared_in_constant_time_on_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also when the scheme is wrong or the first key matches: how long it takes tells nothing."""
    path = tmp_path / "keys"
    path.write_text("one\ntwo\nthree\n")
    keys = Keys(Settings(api_key_file=path))
    compared: list[object] = []
    real = hmac.compare_digest

    def compare(given: bytes, key: bytes) -> bool:
        compared.extend((given, key))
        return real(given, key)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    keys.check(b"Bearer one")
    for wrong in (b"Basic one", b"Bearer four", None):
        with pytest.raises(Unauthorized):
            keys.check(wrong)
    assert len(compared) == 2 * 3 * 4
    assert all(isinstance(value, bytes) for value in compared)


# --- the variable ---


def test_the_variable_is_exactly_one_key_taken_literally() -> None:
    """No list, no quoting, no expansion, and any characters."""
    key = "one,two three:a\\b\"c'$HOME#%20 schlüssel🙂"
    literal = key.encode().decode("latin-1")
    with running_server(env={"SERVICE_API_KEY": key}) as server:
        with Wire(server) as wire:
            served(wire.exchange(message(bytes_for(), f"Authorization: Bearer {literal}")))
            for part in ("one", "two three", "one,two", literal[:-1], literal.replace("%20", " ")):
                refused(wire.exchange(message(bytes_for(), f"Authorization: Bearer {part}")), 401)
        assert key not in server.log()


def test_an_empty_key_ends_the_start() -> None:
    """A variable that somebody forgot to fill must not open the doors."""
    server = start(*LOOPBACK, env={"SERVICE_API_KEY": ""})
    try:
        assert server.process.wait(60) == 2
        assert "SERVICE_API_KEY" in server.log()
    finally:
        server.log_path.unlink()


@pytest.mark.parametrize("key", ["", " ", "\n", " padded ", "line\nbreak", "tab\t"], ids=repr)
def test_a_key_that_no_header_can_carry_ends_the_start(
    key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", key)
    assert main(["serve", "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert "SERVICE_API_KEY" in said
    assert "padded" not in said


# --- the file ---


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    path = tmp_path / "keys"
    path.write_bytes(b"first\n\n  second  \r\nthird")
    with running_server(env={"SERVICE_API_KEY_FILE": str(path)}) as server:
        yield server, path


def test_a_key_file_and_its_rotation(filed: tuple[Server, Path]) -> None:
    """Any key of the file opens; SIGHUP reads it again; a file that is no good then changes nothing."""
    server, path = filed

    def opened_by(*keys: str) -> list[str]:
        return [key for key in keys if status_for(server, f"Bearer {key}") == 200]

    def reloads(count: int) -> bool:
        server.process.send_signal(signal.SIGHUP)
        return eventually(lambda: sum("key" in line.lower() for line in server.log().splitlines()) == count)

    everyone = ("first", "second", "third", "fourth", "first second", "")
    assert opened_by(*everyone) == ["first", "second", "third"]

    path.write_text("fourth\nfirst\n")
    assert opened_by(*everyone) == ["first", "second", "third"], "read again before it was told to"
    assert reloads(1)
    assert opened_by(*everyone) == ["first", "fourth"]

    path.write_text("\n \n")
    assert reloads(2)
    assert opened_by(*everyone) == ["first", "fourth"]

    path.unlink()
    assert reloads(3)
    assert opened_by(*everyone) == ["first", "fourth"]

    path.write_text("fifth\n")
    assert reloads(4)
    assert opened_by("fifth", *everyone) == ["fifth"]
    assert all(key not in server.log() for key in ("first", "second", "third", "fourth", "fifth"))


def test_a_key_file_that_is_missing_ends_the_start(tmp_path: Path) -> None:
    server = start(*LOOPBACK, env={"SERVICE_API_KEY_FILE": str(tmp_path / "keys")})
    try:
        assert server.process.wait(60) == 2
        assert f"SERVICE_API_KEY_FILE {tmp_path / 'keys'} cannot be read: No such file" in server.log()
    finally:
        server.log_path.unlink()


@pytest.mark.parametrize("content", [b"", b"\n \r\n"], ids=["empty", "blank"])
def test_a_key_file_without_a_key_ends_the_start(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    monkeypatch.setenv("SERVICE_API_KEY_FILE", str(path))
    assert main(["serve", "--port", "0"]) == 2
    assert "SERVICE_API_KEY_FILE" in capsys.readouterr().err


def test_sighup_without_a_key_file_changes_nothing(keyed: Server) -> None:
    keyed.process.send_signal(signal.SIGHUP)
    assert status_for(keyed, f"Bearer {KEY}") == 200
    assert status_for(keyed, "Bearer wrong") == 401
