"""Request bodies: read whole, decoded, and never larger than the limit, neither on the wire nor unpacked."""

import zlib
from collections.abc import Callable

import zstandard

from decided.errors import BodyTooLarge, Unreadable, UnsupportedMedia

_ZSTD_MAX_WINDOW = 8 * 2**20  # what RFC 8878 asks of decoders; a larger window is a request for memory, not data


class _Followed(EOFError):
    """The end of the stream is not that of the body."""


def check_encoding(content_type: bytes, content_encoding: bytes) -> None:
    """415 for what cannot be read, before anything is unpacked."""
    if content_type.strip().lower().startswith(b"multipart/"):
        raise UnsupportedMedia("multipart bodies are not supported: send JSON")
    if content_encoding and _normal(content_encoding) not in _DECODERS:
        more = ", one encoding only" if b"," in content_encoding else ""
        raise UnsupportedMedia(f"this Content-Encoding is not supported: send zstd, gzip, deflate or none{more}")


def decode(body: bytes, content_encoding: bytes, limit: int) -> bytes:
    """The body without its encoding, unpacked no further than the limit."""
    if not content_encoding:  # the usual case
        return body
    unpack = _DECODERS[_normal(content_encoding)]
    if unpack is None:
        return body
    try:
        return unpack(body, limit)
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        name = _normal(content_encoding).decode()
        if isinstance(error, _Followed):
            raise Unreadable(f"the body must be one {name} stream, with nothing after it") from None
        if "too much memory" in str(error):
            raise Unreadable(f"the {name} stream asks for a window above {_ZSTD_MAX_WINDOW // 2**20} MiB") from None
        raise Unreadable(f"the body is not a whole, valid {name} stream") from None


def _normal(content_encoding: bytes) -> bytes:
    return content_encoding.strip().lower()


def _gzip(body: bytes, limit: int) -> bytes:
    return _inflate(body, limit, zlib.MAX_WBITS | 16)


def _deflate(body: bytes, limit: int) -> bytes:
    """`deflate` means zlib, but some clients send the bare stream."""
    try:
        return _inflate(body, limit, zlib.MAX_WBITS)
    except zlib.error:
        return _inflate(body, limit, -zlib.MAX_WBITS)


def _inflate(body: bytes, limit: int, wbits: int) -> bytes:
    stream = zlib.decompressobj(wbits)
    data = stream.decompress(body, limit + 1)
    if len(data) > limit:
        raise BodyTooLarge(limit, "unpacks to more")
    if not stream.eof:
        raise EOFError
    if stream.unused_data:
        raise _Followed
    return data


def _zstd(body: bytes, limit: int) -> bytes:
    """Twice over the stream: the reader stops at the limit but does not see a missing end, the object does."""
    packer = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    if len(packer.stream_reader(body).read(limit + 1)) > limit:
        raise BodyTooLarge(limit, "unpacks to more")
    stream = packer.decompressobj()
    data = stream.decompress(body)
    if not stream.eof:
        raise EOFError
    if stream.unused_data:
        raise _Followed
    return data


_DECODERS: dict[bytes, Callable[[bytes, int], bytes] | None] = {
    b"": None,
    b"identity": None,
    b"gzip": _gzip,
    b"x-gzip": _gzip,
    b"deflate": _deflate,
    b"zstd": _zstd,
}
