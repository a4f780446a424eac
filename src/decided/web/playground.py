"""The page for people at `/`: static files of the package, read once, under a policy that lets nothing else in."""

import hashlib
from importlib.resources import files
from pathlib import PurePath

from decided.errors import Headers
from decided.web.message import HttpRequest, Reply

_FIRST = "index.html"
_FOLDER = "page"
_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
}
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_GUARD: Headers = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),  # kept by the browser, and asked for again by its tag
)


class Playground:
    """The page at `/`, and what it is made of under `/page/`."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, Reply]] = {}
        for file in files("decided.web").joinpath(_FOLDER).iterdir():
            content_type = _TYPES.get(PurePath(file.name).suffix)
            if content_type is None:  # what an editor or a system left there
                continue
            body = file.read_bytes()
            tag = b'"%s"' % hashlib.sha256(body).hexdigest()[:32].encode()
            path = "/" if file.name == _FIRST else f"/{_FOLDER}/{file.name}"
            self._files[path] = tag, Reply(200, body, content_type, (*_GUARD, (b"etag", tag)))

    @property
    def paths(self) -> list[str]:
        return list(self._files)

    async def reply(self, request: HttpRequest) -> Reply:
        tag, reply = self._files[request.path]
        known = request.headers.get(b"if-none-match", b"")
        return reply._replace(status=304) if tag in known or known.strip() == b"*" else reply
