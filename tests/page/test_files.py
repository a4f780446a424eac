"""The page as the server sends it: its files, its headers, its switch. No browser is needed here."""

import hashlib
import http.client
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spec.checks import eventually, has_ids, refused
from tests.support.server import ROOT, Server, running_server

TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
FOLDER = ROOT / "src" / "decided" / "web" / "page"
FILES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in TYPES)
OURS = [name for name in FILES if not name.startswith("preact")]
LIBRARY_SHA256 = "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7"  # of htm 3.1.1


def address(name: str) -> str:
    return "/" if name == "index.html" else f"/page/{name}"


@pytest.fixture(scope="module")
def without_page() -> Iterator[Server]:
    with running_server("--page", "off") as running:
        yield running


# --- what is there ---


def test_the_library_is_the_one_that_was_published() -> None:
    assert hashlib.sha256((FOLDER / "preact.js").read_bytes()).hexdigest() == LIBRARY_SHA256
    licence = (FOLDER / "preact.LICENSE.txt").read_text()
    assert "The MIT License" in licence
    assert "Apache License" in licence


@pytest.mark.parametrize("name", FILES)
def test_what_a_file_names_is_there(name: str) -> None:
    text = (FOLDER / name).read_text()
    named = re.findall(r'^import .* from "\./(.+)";$|(?:src|href)="page/(.+?)"', text, re.MULTILINE)
    assert {one or other for one, other in named} <= set(FILES)
    assert name != "index.html" or len(named) > 2


@pytest.mark.parametrize("name", OURS)
def test_no_file_names_another_host_or_turns_text_into_code(name: str) -> None:
    text = (FOLDER / name).read_text().replace("http://www.w3.org/2000/svg", "")
    assert (
        re.findall(r"https?://(?!127\.0\.0\.1)|\beval\b|innerHTML|new Function|Storage\b|document\.cookie", text) == []
    )
    assert len(text.splitlines()) < 400


# --- how it is sent ---


@pytest.mark.parametrize("name", FILES)
def test_file_is_sent_under_the_policy(server: Server, name: str) -> None:
    reply = server.get(address(name))
    assert (reply.status, reply.body) == (200, (FOLDER / name).read_bytes())
    assert reply.headers["content-type"].split(";")[0] == TYPES[Path(name).suffix]
    policy = dict(part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self'",
        "connect-src": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    has_ids(reply)


@pytest.mark.parametrize("name", ["index.html", "app.js"])
def test_head_has_the_headers_alone(server: Server, name: str) -> None:
    whole, head = server.get(address(name)), server.request("HEAD", address(name))
    assert (head.status, head.body) == (200, b"")
    ours = ("content-type", "content-length", "etag", "content-security-policy")
    assert [head.headers[each] for each in ours] == [whole.headers[each] for each in ours]


@pytest.mark.parametrize("wrapped", ["{}", 'W/{}, "another"', "*"])
def test_a_file_that_the_browser_has_is_not_sent_again(server: Server, wrapped: str) -> None:
    """And the connection goes on after it: nothing of a body may follow the head."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=40)
    try:
        connection.request("GET", "/page/app.js")
        first = connection.getresponse()
        length, tag = len(first.read()), first.headers["ETag"]
        connection.request("GET", "/page/app.js", headers={"If-None-Match": wrapped.format(tag)})
        again = connection.getresponse()
        assert (again.status, again.read(), again.headers["ETag"]) == (304, b"", tag)
        assert again.headers["Content-Length"] == str(length)
        connection.request("GET", "/page/app.js", headers={"If-None-Match": '"another"'})
        other = connection.getresponse()
        assert (other.status, len(other.read())) == (200, length)
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/", "/page/app.js"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_another_method_is_not_allowed(server: Server, path: str, method: str) -> None:
    reply = server.request(method, path, b"{}")
    refused(reply, 405)
    assert reply.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "path", ["/page", "/page/", "/page/index.html", "/page/nothing.js", "/page/../app.js", "/index.html"]
)
def test_no_other_path_is_a_file(server: Server, path: str) -> None:
    refused(server.get(path), 404)


def test_the_page_needs_no_key(keyed: Server) -> None:
    assert [keyed.get(address(name)).status for name in FILES] == [200] * len(FILES)


@pytest.mark.parametrize("path", ["/", "/page/app.js"])
def test_the_page_can_be_switched_off(without_page: Server, path: str) -> None:
    refused(without_page.get(path), 404)
    refused(without_page.request("POST", path, b"{}"), 404)


def test_the_page_has_one_label_in_metrics_and_log(server: Server) -> None:
    series = 'service_requests_total{endpoint="/",status="200"}'
    before = server.metric(series)
    for path in ("/", "/page/app.js"):
        server.get(path, {"X-Request-Id": "the-page"})
    assert server.metric(series) == before + 2
    assert "/page/" not in server.get("/metrics").body.decode()
    assert eventually(lambda: server.log().count("id=the-page endpoint=/ status=200") == 2)
