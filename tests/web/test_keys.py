"""Named keys: what a line of the key file means, and that the name reaches the log and the metrics."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decided.errors import SettingsError, Unauthorized
from decided.settings import Settings
from decided.web.keys import Keys
from tests.spec.checks import eventually, served
from tests.support.server import Server, running_server


def hashed(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def keys_of(folder: Path, content: str) -> Keys:
    path = folder / "keys"
    path.write_text(content)
    return Keys(Settings(api_key_file=path))


def client_of(keys: Keys, token: str) -> str | None:
    try:
        return keys.check(f"Bearer {token}".encode()).client
    except Unauthorized:
        return None


@pytest.mark.parametrize(
    ("line", "token", "client"),
    [
        ("plain", "plain", "default"),
        ("ci=secret", "secret", "ci"),
        ("ci=secret", "ci=secret", None),
        ("web-shop.2_b=secret", "secret", "web-shop.2_b"),
        ("ci=with=more", "with=more", "ci"),
        ("ci= spaced ", "spaced", "ci"),
        ("c2VjcmV0IG9mIHNpeHRlZQ==", "c2VjcmV0IG9mIHNpeHRlZQ==", "default"),
        ("c2VjcmV0IG9mIHNldmVudGVlbg8=", "c2VjcmV0IG9mIHNldmVudGVlbg8=", "default"),
        ("ci=c2VjcmV0cw=", "c2VjcmV0cw=", "ci"),
        ("ci=c2VjcmV0IQ==", "c2VjcmV0IQ==", "ci"),
        ("ci==secret", "=secret", "ci"),
        ("_under=secret", "secret", "_under"),
        ("-dash=secret", "secret", "-dash"),
        (".dot=secret", "secret", ".dot"),
        (f"{'n' * 64}=secret", "secret", "n" * 64),
        ("\ufeffplain", "plain", "default"),
        ("\ufeffci=secret", "secret", "ci"),
        ("\ufeff\nci=secret", "secret", "ci"),
        (f"ci={hashed('secret')}", "secret", "ci"),
        (f"ci={hashed('secret').upper().replace('SHA', 'sha')}", "secret", "ci"),
        (hashed("secret"), "secret", "default"),
        (f"ci={hashed('secret')}", hashed("secret"), None),
        (f"ci={hashed('secret')}", hashlib.sha256(b"secret").hexdigest(), None),
    ],
)
def test_a_line_of_the_file(tmp_path: Path, line: str, token: str, client: str | None) -> None:
    assert client_of(keys_of(tmp_path, f"{line}\nanother=key"), token) == client


def test_a_client_may_have_several_keys(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, f"ci=old\nci=new\nci=new\nweb={hashed('third')}\nplain\n")
    assert [client_of(keys, token) for token in ("old", "new", "third", "plain", "web")] == [
        "ci",
        "ci",
        "web",
        "default",
        None,
    ]
    assert keys.clients == {"ci", "web", "default"}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("ci=one\nweb=one\n", "line 2"),
        (f"ci=one\n\nweb={hashed('one')}\n", "line 3"),
        ("ci=sha256:abc\n", "line 1"),
        (f"one\nci=sha256:{'g' * 64}\n", "line 2"),
        (f"ci=sha256:{'a' * 62}\n", "line 1"),
        ("two abc=abc\n", "line 1"),
        ("plain\n\nci =abc\n", "line 3"),
        ("=abc\n", "line 1"),
        ("==abc=\n", "line 1"),
        (f"{'n' * 65}=abc\n", "line 1"),
        (f"{'n' * 65}={hashed('abc')}\n", "line 1"),
        ("größe=abc\n", "line 1"),
        ("ci/abc=abc\n", "line 1"),
        ("plain\nabc=\n", "line 2"),
        ("ci = \n", "line 1"),
        ("abc-of-production-east=\n", "line 1"),
        ("abc==\n", "line 1"),
        ("====\n", "line 1"),
        ("plain\n\ufeffci=abc\n", "line 2"),
        ("\ufeff\ufeffci=abc\n", "line 1"),
    ],
)
def test_what_is_wrong_is_told_by_its_line_and_without_the_key(tmp_path: Path, content: str, line: str) -> None:
    with pytest.raises(SettingsError, match=line) as refusal:
        keys_of(tmp_path, content)
    assert "one" not in str(refusal.value).split(line)[1]
    assert "abc" not in str(refusal.value)


def test_a_file_that_holds_nothing_but_a_byte_order_mark_holds_no_key(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no key"):
        keys_of(tmp_path, "\ufeff\n")


def test_a_file_that_has_become_wrong_changes_nothing(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "ci=secret\n")
    (tmp_path / "keys").write_text("web=other\nbad name=secret\n")
    with pytest.raises(SettingsError, match="line 2"):
        keys.reload()
    assert [client_of(keys, token) for token in ("secret", "other", "bad name=secret")] == ["ci", None, None]


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text(f"ci=first\nweb={hashed('second')}\nthird\n")
    env = {"SERVICE_API_KEY_FILE": str(path), "SERVICE_LOG_FORMAT": "json"}
    with running_server(env=env) as server:
        yield server


def ask(server: Server, key: str, request_id: str) -> int:
    return server.ask("x", headers={"Authorization": f"Bearer {key}", "X-Request-Id": request_id}).status


@pytest.mark.parametrize(("key", "client"), [("first", "ci"), ("second", "web"), ("third", "default")])
def test_the_name_is_in_the_request_log_and_in_the_metrics(named: Server, key: str, client: str) -> None:
    series = f'service_requests_total{{client="{client}",endpoint="/v1/systemone",status="200"}}'
    before = named.metric(series)
    assert ask(named, key, f"of-{client}") == 200
    assert named.metric(series) == before + 1

    def entry() -> dict[str, Any] | None:
        lines = [json.loads(line) for line in named.log().splitlines() if f'"of-{client}"' in line]
        return lines[0] if lines else None

    assert eventually(entry)
    assert (entry() or {})["client"] == client
    assert key not in named.log()


def test_what_comes_without_a_good_key_has_no_client(named: Server) -> None:
    assert ask(named, "wrong", "of-nobody") == 401
    served(named.get("/health"))
    assert named.metric('service_requests_total{client="",endpoint="/v1/systemone",status="401"}') >= 1
    assert named.metric('service_requests_total{client="",endpoint="/health",status="200"}') >= 1
    assert eventually(lambda: '"of-nobody"' in named.log())
    (line,) = [line for line in named.log().splitlines() if '"of-nobody"' in line]
    assert "client" not in json.loads(line)
