"""The same bytes as h11 reads them: another parser, by other people, and a strict one."""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

import h11

from decided.web.parser import MAX_HEAD_BYTES
from tests.web.in_process import Outcome, Seen

UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
# Why we accept what h11 refuses -> the same bytes without it.
LENIENCIES: dict[str, Callable[[bytes], bytes]] = {
    "RFC 9112, 2.2: empty lines before a request line should be ignored": lambda data: re.sub(
        rb"\A(\r\n)*\r\Z|\A(\r\n)+", b"", data
    ),
}
_REPLY = h11.Response(status_code=404, headers=[(b"content-length", b"0")])


def read(data: bytes, used: set[str]) -> Outcome:
    """What h11 makes of it, once what we accept beyond h11 is taken out. Which of that there was goes into `used`."""
    requests: list[Seen] = []
    while True:
        for reason, without in LENIENCIES.items():
            shorter = without(data)
            if shorter != data:
                used.add(reason)
            data = shorter
        try:
            seen, data, end = _read_one(data)
        except h11.RemoteProtocolError:
            return Outcome(requests, "refused")
        if seen is None:
            return Outcome(requests, "open")
        requests.append(seen)
        if end:
            return Outcome(requests, "closed")


def _read_one(data: bytes) -> tuple[Seen | None, bytes, bool]:
    """The first request, what follows it, and whether nothing may follow it."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    connection.receive_data(data)
    request, body = None, b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            break
        else:
            return None, b"", False
    assert request is not None
    connection.send(_REPLY)
    connection.send(h11.EndOfMessage())
    seen = Seen(request.method.decode(), _path(request.target), _headers(request), body)
    return seen, connection.trailing_data[0], connection.our_state is h11.MUST_CLOSE


def _headers(request: h11.Request) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in request.headers:
        headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def _path(target: bytes) -> str:
    text = target.decode("latin-1")
    path = text.split("?")[0] if text[0] in "/*" else _path_of_address(text)
    plain = {f"%{ord(each):02X}": each for each in UNRESERVED}
    return re.sub("%[0-9A-Fa-f]{2}", lambda escape: plain.get(escape[0].upper(), escape[0]), path)


def _path_of_address(text: str) -> str:
    """The one of a whole address, `/` if it has none. Without a plain host it is no address."""
    address = urlsplit(text)
    return address.path or "/" if re.fullmatch(r"[\w.-]+(:\d+)?", address.netloc, re.ASCII) else ""
