"""Request bodies: encodings, media types, and bytes that cannot be read."""

import gzip
import json
import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from tests.spec.checks import BATCH, MIXED, POSTS, SINGLE, body_for, bytes_for, peak_memory, refused, served
from tests.spec.wire import Wire, message
from tests.support.server import Server

MIB = 2**20


def _raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


def _zstd_stream(body: bytes) -> bytes:
    """As a client writes it that does not know the size beforehand."""
    packer = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compressobj()
    return packer.compress(body) + packer.flush()


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "zstd": ("zstd", zstandard.compress),
    "zstd stream": ("zstd", _zstd_stream),
    "gzip": ("gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", _raw_deflate),
}
packed = pytest.mark.parametrize(("encoding", "pack"), PACKERS.values(), ids=PACKERS)


def post(server: Server, body: bytes, path: str = SINGLE, **headers: str) -> Any:
    return server.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})


# --- encodings ---


@packed
@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("size", [1, 50_000])
def test_the_encodings_of_the_official_clients_are_decoded(
    server: Server, path: str, encoding: str, pack: Callable[[bytes], bytes], size: int
) -> None:
    words = " ".join(random.Random(size).choices(["parcel", "late", "é🙂", "phone"], k=size))[:50_000]
    body = json.dumps(body_for(path, words, MIXED)).encode()
    assert served(post(server, pack(body), path, Content_Encoding=encoding)) == served(post(server, body, path))


@pytest.mark.parametrize("name", ["GZIP", "Gzip", " gzip"])
def test_the_case_of_an_encoding_does_not_matter(server: Server, name: str) -> None:
    served(post(server, gzip.compress(bytes_for()), Content_Encoding=name))


@packed
def test_a_broken_stream_is_unreadable(server: Server, encoding: str, pack: Callable[[bytes], bytes]) -> None:
    whole = pack(bytes_for(state="".join(random.Random(1).choices("abcdefgh ", k=3000))))
    middle = len(whole) // 2
    broken = {
        "cut in the middle": whole[:middle],
        "cut by a byte": whole[:-1],
        "not there": b"",
        "followed by more": whole + b"more",
        "another encoding": b"\x89PNG\r\n" + whole,
        "not encoded at all": bytes_for(),
    }
    for what, body in broken.items():
        assert encoding in refused(post(server, body, Content_Encoding=encoding), 400), what


@pytest.mark.parametrize("name", ["zstd stream", "gzip", "deflate"])
def test_a_stream_that_does_not_match_its_checksum_is_unreadable(server: Server, name: str) -> None:
    encoding, pack = PACKERS[name]
    whole = bytearray(pack(bytes_for()))
    whole[-6 if encoding == "gzip" else -1] ^= 0xFF
    refused(post(server, bytes(whole), Content_Encoding=encoding), 400)


@pytest.mark.parametrize("name", ["zstd", "gzip"])
def test_a_body_is_one_stream(server: Server, name: str) -> None:
    """Several in a row are a valid file, but another reader may stop after the first."""
    encoding, pack = PACKERS[name]
    body = bytes_for()
    served(post(server, pack(body), Content_Encoding=encoding))
    for several in (pack(body[:20]) + pack(body[20:]), pack(body) + pack(b""), pack(body) + bytes(8)):
        said = refused(post(server, several, Content_Encoding=encoding), 400)
        assert said == f"the body must be one {encoding} stream, with nothing after it"


@packed
def test_what_comes_out_of_a_stream_must_be_readable(
    server: Server, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    for body in (b"", b"no json", b"[]", b'{"state":"\xff"}'):
        refused(post(server, pack(body), Content_Encoding=encoding), 400)


@pytest.mark.parametrize("encoding", ["br", "compress", "lz4", "utf-8", "unknown", "zst"])
@pytest.mark.parametrize("path", POSTS)
def test_another_encoding_is_not_supported(server: Server, path: str, encoding: str) -> None:
    said = refused(post(server, bytes_for(path), path, Content_Encoding=encoding), 415)
    assert said == "this Content-Encoding is not supported: send zstd, gzip, deflate or none"


@pytest.mark.parametrize("lines", [["Content-Encoding: gzip, identity"], ["Content-Encoding: gzip"] * 2], ids=repr)
def test_two_encodings_are_not_supported(server: Server, lines: list[str]) -> None:
    with Wire(server) as wire:
        said = refused(wire.exchange(message(gzip.compress(bytes_for()), *lines)), 415)
    assert said.endswith("send zstd, gzip, deflate or none, one encoding only")


def _zeros(packer: Any, mebibytes: int) -> bytes:
    block = bytes(MIB)
    return b"".join([*(packer.compress(block) for _ in range(mebibytes)), packer.flush()])


@pytest.mark.parametrize(
    ("encoding", "bomb"),
    [
        ("gzip", lambda: _zeros(zlib.compressobj(wbits=zlib.MAX_WBITS | 16), 96)),
        ("deflate", lambda: _zeros(zlib.compressobj(), 96)),
        ("deflate", lambda: _zeros(zlib.compressobj(wbits=-zlib.MAX_WBITS), 96)),
        ("zstd", lambda: _zeros(zstandard.ZstdCompressor().compressobj(), 1024)),
        ("zstd", lambda: _zeros(zstandard.ZstdCompressor().compressobj(size=1024 * MIB), 1024)),
    ],
    ids=["gzip", "deflate", "raw deflate", "zstd", "zstd that tells its size"],
)
def test_a_bomb_is_too_large_and_costs_no_memory(server: Server, encoding: str, bomb: Callable[[], bytes]) -> None:
    """Around a hundred mebibytes, or a whole gibibyte, in less than the body limit."""
    body = bomb()
    assert len(body) < MIB
    served(post(server, zlib.compress(bytes_for(state="x" * 200_000)), Content_Encoding="deflate"))
    before = peak_memory(server)
    for path in POSTS:
        refused(post(server, body, path, Content_Encoding=encoding), 413)
    assert peak_memory(server) - before < 16 * MIB


def test_a_stream_that_asks_for_a_huge_window_costs_no_memory(server: Server) -> None:
    """A zstd frame may demand a window of gibibytes without holding a byte."""
    before = peak_memory(server)
    for descriptor in (0x90, 0xA8, 0xF8):
        frame = b"\x28\xb5\x2f\xfd\x00" + bytes([descriptor]) + b"\x01\x00\x00"
        said = refused(post(server, frame, Content_Encoding="zstd"), 400)
        assert said == "the zstd stream asks for a window above 8 MiB"
    assert peak_memory(server) - before < 16 * MIB


# --- media types ---


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "media_type",
    [
        "application/json",
        "application/json; charset=utf-16",
        "APPLICATION/JSON",
        "text/plain",
        "text/html",
        "application/x-www-form-urlencoded",
        "application/octet-stream",
        "image/png",
        "nonsense",
        "",
    ],
)
def test_the_content_type_is_not_looked_at(server: Server, path: str, media_type: str) -> None:
    served(post(server, bytes_for(path), path, Content_Type=media_type))


@pytest.mark.parametrize("path", POSTS)
def test_no_content_type_is_needed(server: Server, path: str) -> None:
    served(post(server, bytes_for(path), path))


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "media_type", ["multipart/form-data; boundary=x", "multipart/mixed", "Multipart/Form-Data", " multipart/related"]
)
def test_multipart_is_not_supported(server: Server, path: str, media_type: str) -> None:
    refused(post(server, bytes_for(path), path, Content_Type=media_type), 415)


# --- bytes ---

QUESTIONS = b'"questions":{"q":{"type":"noul","instructions":"so?"}}'


def _state(value: bytes) -> bytes:
    return b'{"state":' + value + b"," + QUESTIONS + b"}"


GOOD = _state(b'"x"')
UNREADABLE = {
    "empty": b"",
    "white space": b" \r\n",
    "no json": b"state=x",
    "cut": GOOD[:-1],
    "trailing bytes": GOOD + b"x",
    "trailing object": GOOD + b"{}",
    "trailing nul": GOOD + b"\x00",
    "trailing comma": GOOD[:-1] + b",}",
    "single quotes": GOOD.replace(b'"', b"'"),
    "a comment": b"/* so */" + GOOD,
    "a bare control character": _state(b'"a\nb"'),
    "an unknown escape": _state(b'"\\x41"'),
    "a leading zero": _state(b"01"),
    "invalid utf-8": _state(b'"\xff"'),
    "invalid utf-8 in a name": GOOD.replace(b'"q"', b'"\xff"'),
    "cut utf-8": _state(b'"\xc3"'),
    "overlong utf-8": _state(b'"\xc0\xaf"'),
    "latin-1": _state('"é"'.encode("latin-1")),
    "utf-16": GOOD.decode().encode("utf-16"),
    "utf-32": GOOD.decode().encode("utf-32-le"),
    "nan": _state(b"NaN"),
    "nan within": _state(b'{"a":[NaN]}'),
    "infinity": _state(b"Infinity"),
    "minus infinity": _state(b"-Infinity"),
    "a lone high surrogate": _state(b'"\\ud800"'),
    "a lone low surrogate": _state(b'"\\udc00"'),
    "a high surrogate before a letter": _state(b'"\\ud800x"'),
    "two high surrogates": _state(b'"\\ud800\\ud800"'),
    "a lone surrogate in a name": GOOD.replace(b'"q"', b'"\\ud800"'),
    "a lone surrogate in an ignored field": GOOD[:-1] + b',"x":"\\ud800"}',
    "surrogates as utf-8": _state(b'"\xed\xa0\xbd\xed\xb9\x82"'),
    "5,000 arrays deep": _state(b"[" * 5_000 + b"]" * 5_000),
    "100,000 arrays deep": _state(b"[" * 100_000 + b"]" * 100_000),
    "100,000 objects deep": _state(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "deep in an ignored field": GOOD[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "500,000 open brackets": b"[" * 500_000,
    "a number beyond all": _state(b"1e400"),
    "an integer of 4,301 digits": _state(b"9" * 4_301),
}
TWICE = {
    "whole numbers": b'{"b":1,"b":2}',
    "the same twice": b'{"b":1,"b":1}',
    "deep": b'{"a":{"b":1,"b":2}}',
    "in an array": b'[0,{"b":1,"b":2}]',
    "beside an odd number": b'{"x":1e5,"b":1,"b":2}',
    "escaped": b'{"a":1,"\\u0061":2}',
    "text": b'{"b":"x","b":"y"}',
    "objects": b'{"b":{},"b":{}}',
    "the empty name": b'{"":1,"":2}',
}
NESTED = {
    "instructions": b'{"type":"noul","instructions":DEEP}',
    "an unknown field": b'{"type":"noul","instructions":"Is it so?","x":DEEP}',
    "the type": b'{"type":DEEP}',
    "the description of an option": b'{"type":"choice","criteria":{"a":DEEP,"b":null}}',
    "a level": b'{"type":"score","criteria":["none",DEEP]}',
    "a criterion": b'{"type":"noul","criteria":{"true":DEEP}}',
    "criteria of the wrong kind": b'{"type":"choice","criteria":DEEP}',
    "beside a wrong question": b'{"type":"noul","instructions":DEEP},"r":{"type":"box"}',
    "the question": b"DEEP",
}
NO_OBJECT = {"an array": b"[]", "a string": b'"x"', "a number": b"1", "null": b"null", "true": b"true"}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
def test_bad_bytes_are_unreadable(server: Server, body: bytes) -> None:
    refused(post(server, body), 400)
    refused(post(server, body.replace(b'"state":', b'"states":'), BATCH), 400)


TOO_LARGE = "the body holds a number too large to be read (beyond 1.8e308, or more than 4300 digits)"
TOLD = {
    "empty": (b"", "the body is empty"),
    "a float": (_state(b"1e400"), TOO_LARGE),
    "a float within": (_state(b'{"a":[-1e400]}'), TOO_LARGE),
    "an integer": (_state(b"9" * 4_301), TOO_LARGE),
    "a byte": (_state(b'"\xff"'), "the body is not UTF-8: byte 0xff at byte 10"),
    "a byte behind é": (_state('"é'.encode() + b'\xe9"'), "the body is not UTF-8: byte 0xe9 at byte 12"),
    "a byte at the end": (GOOD + b"\xff", f"the body is not UTF-8: byte 0xff at byte {len(GOOD)}"),
    "a cut letter": (_state(b'"\xc3"'), "the body is not UTF-8: byte 0xc3 at byte 10"),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD, "the body begins with a byte order mark: send UTF-8 without one"),
    "utf-16": (GOOD.decode().encode("utf-16"), "the body looks like UTF-16: send UTF-8"),
    "utf-16-le": (GOOD.decode().encode("utf-16-le"), "the body looks like UTF-16: send UTF-8"),
    "utf-16-be": (GOOD.decode().encode("utf-16-be"), "the body looks like UTF-16: send UTF-8"),
    "gzip": (gzip.compress(GOOD), "the body looks like gzip: send Content-Encoding: gzip"),
    "zstd": (zstandard.compress(GOOD), "the body looks like zstd: send Content-Encoding: zstd"),
    "a comma": (b"[1,]", "the body is not valid JSON: "),
}


@pytest.mark.parametrize(("body", "said"), TOLD.values(), ids=TOLD)
def test_it_is_said_why_bytes_are_unreadable(server: Server, body: bytes, said: str) -> None:
    detail = refused(post(server, body), 400)
    assert detail.startswith(said) if said.endswith(": ") else detail == said


@pytest.mark.parametrize("value", TWICE.values(), ids=TWICE)
def test_a_key_twice_in_one_object_is_unreadable(server: Server, value: bytes) -> None:
    """Wherever it is: two readers would read two different requests."""
    questions = QUESTIONS.replace(b'"so?"', value)
    for body in (_state(value), GOOD[:-1] + b',"x":' + value + b"}", b'{"state":"x",' + questions + b"}"):
        assert "duplicate key" in refused(post(server, body), 400)
    for states in (b"[" + value + b"]", b'["x",' + value + b"]"):
        assert "duplicate key" in refused(post(server, b'{"states":' + states + b"," + QUESTIONS + b"}", BATCH), 400)


def test_an_integer_of_4_300_digits_is_a_state(server: Server) -> None:
    digits = b"9" * 4_300
    assert served(post(server, _state(digits))) == served(post(server, _state(b'"' + digits + b'"')))


@pytest.mark.parametrize("headers", [{}, {"Accept": "application/x-ndjson", "X_Explain": "1"}], ids=["plain", "asked"])
@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("place", NESTED.values(), ids=NESTED)
def test_what_is_nested_too_deeply_is_never_our_fault(
    server: Server, path: str, place: bytes, headers: dict[str, str]
) -> None:
    """Whichever step of the reading it is too deep for, and whatever was asked for in addition."""
    statuses = set()
    states = b'"state":"x"' if path == SINGLE else b'"states":["x"]'
    for depth in range(900, 1_051):
        question = place.replace(b"DEEP", b"[" * depth + b"]" * depth)
        reply = post(server, b"{" + states + b',"questions":{"q":' + question + b"}}", path, **headers)
        statuses.add(reply.status)
        if reply.status != 200:
            refused(reply, reply.status)
    assert 400 in statuses
    assert statuses <= {200, 400, 422}


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("body", NO_OBJECT.values(), ids=NO_OBJECT)
def test_a_body_is_a_json_object(server: Server, path: str, body: bytes) -> None:
    assert "object" in refused(post(server, body, path), 400)


def test_white_space_around_the_object_is_fine(server: Server) -> None:
    assert served(post(server, b"\r\n\t " + GOOD + b"\r\n\t ")) == served(post(server, GOOD))


def test_surrogate_pairs_are_characters(server: Server) -> None:
    assert served(post(server, _state(b'"\\ud83d\\ude42"'))) == served(post(server, _state('"🙂"'.encode())))


def test_no_readable_body_costs_much_memory(server: Server) -> None:
    """The mebibyte that makes the most of memory stays far below 200 MB."""
    before = peak_memory(server)
    for filling in (b"[],", b"{},", b'{"a":{}},', b"1.5,", b'"",', b"[[[[]]]],"):
        body = GOOD[:-1] + b',"x":[' + filling * ((MIB - 200) // len(filling)) + b"0]}"
        served(post(server, body))
    assert peak_memory(server) - before < 200e6
