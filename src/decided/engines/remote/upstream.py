"""Calls to a remote engine: JSON in, JSON out, one origin, nothing followed.

What can go wrong is sorted here into what may be tried again and what may not. The messages are for the log: nothing
of the engine's words or address is ever shown to a client.
"""

import re
import sys
from typing import Any
from urllib.parse import urlsplit

import msgspec

from decided import tracing
from decided.engines.remote.pool import Garbled, HttpReply, Pool
from decided.errors import ModelError, SettingsError
from decided.retries import retry_after_seconds
from decided.version import VERSION

_EXCERPT_CHARACTERS = 300
_PLAIN = re.compile(r"[!-~]+\Z")
_MOST_COUNTED = 10**9
_ROUNDING = 1e-6
_decode = msgspec.json.Decoder().decode


class Busy(Exception):
    """429 or 503: the engine asks to be asked later."""

    def __init__(self, status: int, retry_after_s: float) -> None:
        super().__init__(f"the engine answered {status}")
        self.retry_after_s = retry_after_s


class Refused(Exception):
    """Any other answer than 200. What the engine said about it may hold the prompt: not for every log."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"the engine answered {status}")
        self.status = status
        self.said = said


def address(given: str | None, default: str | None, path: str) -> str:
    """The engine's address, without a slash at its end. One without a path gets the usual one."""
    if given is None and default is None:
        raise ModelError("this kind of engine has no default address: set SERVICE_REMOTE_URL")
    url = (given or default or "").rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "?" in url or "#" in url or not _PLAIN.match(url):
        raise SettingsError("--remote-url must be an address like http://127.0.0.1:8080, without a query")
    if parts.username is not None or parts.password is not None:
        raise SettingsError("--remote-url must not hold a key: set SERVICE_REMOTE_API_KEY")
    return url if parts.path else url + path


# --- what stands in a reply, or ValueError. Stricter than int() and float(), which take "7", true and 1.9 ---


def number(value: Any, least: float = -sys.float_info.max, most: float = sys.float_info.max) -> float:
    """A finite number. It is compared before it is converted: JSON has integers that no float can hold."""
    if type(value) not in (int, float) or not least <= value <= most:  # false for NaN too
        raise ValueError("no number, or one out of range")
    return float(value)


def probability(value: Any) -> float:
    return min(1.0, max(0.0, number(value, -_ROUNDING, 1 + _ROUNDING)))


def whole(value: Any) -> int:
    """A count, or the number of a token."""
    if type(value) is not int:
        raise ValueError("no whole number")
    return int(number(value, 0, _MOST_COUNTED))


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value


class Upstream:
    """Calls to one engine. The key goes with every call, all calls go to one origin, and no redirect is followed."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url
        parts = urlsplit(url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._pool = Pool(self._origin)
        headers = [
            f"Host: {parts.netloc}",
            "Accept: application/json",
            "Accept-Encoding: identity",  # a compressed reply has no bound
            "Content-Type: application/json",
            f"User-Agent: decided/{VERSION}",
        ]
        if key is not None:
            headers.append(f"Authorization: Bearer {key}")
        self._headers = "\r\n".join(headers)

    async def post(self, url: str, body: object, timeout_s: float) -> Any:
        """The JSON object that answers a JSON body."""
        return _read(await self._call("POST", url, msgspec.json.encode(body), timeout_s))

    async def get(self, url: str, timeout_s: float) -> Any:
        """The JSON object that is there. Some engines say that they are well with a bare 200."""
        reply = await self._call("GET", url, b"", timeout_s)
        return _read(reply) if reply.body or reply.status != 200 else {}

    def close(self) -> None:
        self._pool.close()

    async def _call(self, method: str, url: str, body: bytes, timeout_s: float) -> HttpReply:
        path = url.removeprefix(self._origin)
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}{tracing.headers()}\r\nContent-Length: {len(body)}\r\n\r\n"
        return await self._pool.call(head.encode() + body, timeout_s)


def _read(reply: HttpReply) -> Any:
    if reply.status in (429, 503):
        raise Busy(reply.status, retry_after_seconds(reply.retry_after))
    if reply.status != 200:
        raise Refused(
            reply.status, reply.body[: 4 * _EXCERPT_CHARACTERS].decode(errors="replace")[:_EXCERPT_CHARACTERS]
        )
    try:
        value = _decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Garbled("the reply is not JSON") from error
    if not isinstance(value, dict):
        raise Garbled("the reply is not a JSON object")
    return value
