"""The request id: echoed when it is one, made when it is not, on every response under both names."""

import random
import re
import string

import pytest

from decided.web.edge import chosen_id
from tests.spec.checks import (
    AUTHORIZED,
    GETS,
    POSTS,
    SINGLE,
    body_for,
    bytes_for,
    eventually,
    has_ids,
    in_flight,
    refused,
)
from tests.spec.conftest import SMALL_BODY
from tests.spec.wire import Wire, head, message
from tests.support.server import Reply, Server

ALLOWED = string.ascii_letters + string.digits + "._:-"


def with_id(server: Server, request_id: str, path: str = "/health") -> Reply:
    """A request with these very characters (of Latin-1) as its id."""
    with Wire(server) as wire:
        if path in POSTS:
            return wire.exchange(message(bytes_for(path), f"X-Request-Id: {request_id}", path=path))
        return wire.exchange(head(f"X-Request-Id: {request_id}", method="GET", path=path))


@pytest.mark.parametrize("path", [*GETS, *POSTS, "/openapi.json", "/nowhere"])
def test_the_id_is_echoed_on_every_path(server: Server, path: str) -> None:
    assert has_ids(with_id(server, "my-id", path)) == "my-id"


@pytest.mark.parametrize(
    "request_id",
    ["a", "0", ".", "_", ":", "-", ALLOWED, "A" * 127, "z" * 128, "0f8fad5b-d9cb-469f-a165-70867728950e"],
)
def test_a_good_id_is_echoed(server: Server, request_id: str) -> None:
    assert has_ids(with_id(server, request_id)) == request_id


@pytest.mark.parametrize(
    "request_id",
    ["", "a" * 129, "a" * 5000, *(f"a{sign}b" for sign in " !\"#$%&'()*+,/;<=>?@[\\]^`{|}~\t\xe9\xb2\xff")],
    ids=repr,
)
def test_a_bad_id_is_replaced(server: Server, request_id: str) -> None:
    assert has_ids(with_id(server, request_id)) != request_id


def test_characters_that_only_look_like_letters_or_digits_are_not_allowed(server: Server) -> None:
    for sign in ("\u00e9", "\u0663", "\uff41", "\u00b2"):
        given = f"a{sign}".encode().decode("latin-1")
        assert has_ids(with_id(server, given)) != given


def test_without_an_id_each_request_gets_its_own(server: Server) -> None:
    with Wire(server) as wire:
        ids = {has_ids(wire.exchange(head(method="GET", path="/ready"))) for _ in range(20)}
    assert len(ids) == 20


def untempered(word: int) -> int:
    """The word of the state of MT19937 from which this output was made."""
    word ^= word >> 18
    word ^= (word << 15) & 0xEFC60000
    found = word
    for _ in range(5):
        found = word ^ ((found << 7) & 0x9D2C5680)
    word = found
    for _ in range(3):
        found = word ^ (found >> 11)
    return found & 0xFFFFFFFF


def test_an_id_that_is_made_cannot_be_foretold_from_those_before() -> None:
    """Ids stand in logs and in replies to anybody; whoever has 156 of them knows all that `random` will ever say."""
    seen = [int(chosen_id(b""), 16) for _ in range(156)]
    state = [untempered(number >> shift & 0xFFFFFFFF) for number in seen for shift in (0, 32, 64, 96)]
    foretold = random.Random()
    foretold.setstate((3, (*state, 624), None))
    assert chosen_id(b"") != b"%032x" % foretold.getrandbits(128)


def test_ids_that_are_made_are_128_bits_and_never_the_same() -> None:
    made = [chosen_id(b"") for _ in range(10_000)]
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(rb"[0-9a-f]{32}", one) for one in made)


def test_the_name_of_the_header_has_no_case(server: Server) -> None:
    for name in ("x-request-id", "X-REQUEST-ID", "X-Request-ID"):
        assert has_ids(server.request("POST", SINGLE, body_for(SINGLE), {name: "mine"})) == "mine"


MINE = "X-Request-Id: mine"


def test_the_id_is_echoed_with_what_is_refused_early(strict: Server) -> None:
    """Without the key, without a place, and for a body that is too large."""
    assert eventually(lambda: in_flight(strict) == 0)
    key = f"Authorization: {AUTHORIZED['Authorization']}"
    with Wire(strict) as holder, Wire(strict) as wire:
        for path in POSTS:
            for request, status in (
                (message(b"{}", MINE, path=path), 401),
                (message(b" " * (SMALL_BODY + 1), MINE, key, path=path), 413),
            ):
                reply = wire.exchange(request)
                refused(reply, status)
                assert has_ids(reply) == "mine"
        holder.send(head("Content-Length: 5", key))
        assert eventually(lambda: in_flight(strict) == 1)
        for path in POSTS:
            reply = wire.exchange(message(b"{}", MINE, key, path=path))
            refused(reply, 503)
            assert has_ids(reply) == "mine"


@pytest.mark.parametrize("path", POSTS)
def test_the_id_is_echoed_with_what_takes_too_long(narrow: Server, path: str) -> None:
    assert eventually(lambda: in_flight(narrow) == 0)
    with Wire(narrow) as wire:
        reply = wire.exchange(head("Content-Length: 5", MINE, path=path))
        refused(reply, 504)
        assert has_ids(reply) == "mine"


def test_the_id_is_echoed_with_an_error(server: Server) -> None:
    for body, status in ((b"", 400), (b"{}", 422), (bytes_for(state="FAIL"), 500)):
        reply = server.request("POST", SINGLE, body, {"X-Request-Id": "mine"})
        assert (reply.status, has_ids(reply)) == (status, "mine")
