"""A server with an audit log: what it writes, and what it does when it cannot."""

import hashlib
import hmac
import json
import re
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from decided.audit.verify import verify
from decided.contract.types import compact
from decided.errors import StartError
from decided.profiles.fingerprint import fingerprint
from decided.serving.start import read_audit_key
from decided.settings import Settings
from decided.version import VERSION
from tests.audit.logs import entries
from tests.profiles.shelf import QUESTION, TOPIC, written
from tests.spec.checks import BATCH, CHOICE, NOUL, SCORE, eventually, refused, served
from tests.support.server import Reply, Server, running_server, start

KEY = "0123456789abcdef0123456789abcdef"
CI = {"Authorization": "Bearer ci-key"}
ASKED: dict[str, Any] = {"late": NOUL, "topic": TOPIC, "colour": CHOICE, "much": SCORE}
LINES = {"Accept": "application/x-ndjson"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("audit")
    (path / "audit.key").write_text(KEY + "\n")
    (path / "keys").write_text("ci=ci-key\nweb=web-key\n")
    written(path / "profiles")
    return path


def flags(folder: Path, name: str, *more: str) -> list[str]:
    return ["--audit-log", str(folder / name), "--audit-key-file", str(folder / "audit.key"), *more]


@pytest.fixture(scope="module")
def audited(folder: Path) -> Iterator[Server]:
    env = {"SERVICE_API_KEY_FILE": str(folder / "keys")}
    with running_server(*flags(folder, "full.jsonl", "--profiles", str(folder / "profiles")), env=env) as server:
        yield server


@pytest.fixture
def lines(folder: Path, audited: Server) -> Callable[[Reply], list[dict[str, Any]]]:
    """The lines of a reply, which must be there when the reply is."""

    def of(reply: Reply) -> list[dict[str, Any]]:
        request_id = reply.headers["x-request-id"]
        return [entry for entry in entries(folder / "full.jsonl") if entry.get("request_id") == request_id]

    return of


Lines = Callable[[Reply], list[dict[str, Any]]]


def check(line: dict[str, Any], answer: dict[str, Any], state: Any) -> None:
    """Whether a line says what the answer says."""
    assert line["probabilities"] == answer["probabilities"]
    assert line["confidence"] == answer["confidence"]
    assert line["profile"] == answer.get("profile", "")
    assert line["decided"] == answer.get("decided")
    assert line["answer"] == max(answer["probabilities"], key=answer["probabilities"].get)
    assert line["truncated"] is answer.get("truncated", False)
    assert line["state_hmac"] == hmac.new(KEY.encode(), compact(state).encode(), hashlib.sha256).hexdigest()
    assert (line["model"], line["weights"], line["version"]) == ("fake", "", VERSION)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"])


@pytest.mark.parametrize("state", ["my money", "größer", {"from": "a", "text": ["b"]}, "word " * 2000])
def test_a_line_for_every_answer(audited: Server, lines: Lines, state: Any) -> None:
    reply = audited.ask(state, ASKED, CI)
    answers = served(reply)["answers"]
    found = lines(reply)
    assert [line["question"] for line in found] == list(ASKED)
    for line in found:
        check(line, answers[line["question"]], state)
        assert (line["client"], line["index"]) == ("ci", 0)
    topic = found[1]
    assert topic["fingerprint"] == fingerprint(QUESTION)
    assert (topic["threshold"], found[0]["threshold"]) == (0.9, None)
    assert topic["decided"] is not None


@pytest.mark.parametrize("headers", [CI, CI | LINES], ids=["whole", "as a stream"])
def test_a_line_for_every_answer_of_a_batch(audited: Server, lines: Lines, headers: dict[str, str]) -> None:
    states = [f"state {number}" for number in range(20)]
    reply = audited.request("POST", BATCH, {"states": states, "questions": ASKED}, headers)
    assert reply.status == 200
    results = reply.json["results"] if headers == CI else [json.loads(line) for line in reply.body.splitlines()]
    found = {(line["index"], line["question"]): line for line in lines(reply)}
    assert len(found) == 20 * 4
    for place, result in enumerate(results):
        index = result.get("index", place)
        for name, answer in result["answers"].items():
            check(found[index, name], answer, states[index])


def test_a_batch_that_is_sent_in_parts(audited: Server, lines: Lines) -> None:
    wide = {"type": "choice", "criteria": {f"{'option' * 10} {number}": None for number in range(250)}}
    reply = audited.request("POST", BATCH, {"states": [f"{n}" for n in range(30)], "questions": {"q": wide}}, CI)
    assert reply.headers["transfer-encoding"] == "chunked"
    assert len(reply.json["results"]) == len(lines(reply)) == 30


def test_what_was_not_answered_has_no_line(audited: Server, lines: Lines) -> None:
    for reply in (audited.ask("x"), audited.ask("FAIL", headers=CI), audited.ask("x", {}, CI)):
        assert reply.status >= 400
        assert not lines(reply)
    reply = audited.request("POST", BATCH, {"states": ["a", "FAIL"], "questions": {"q": NOUL}}, CI | LINES)
    assert [line["index"] for line in lines(reply)] == [0]
    assert audited.request("POST", BATCH, {"states": [], "questions": {"q": NOUL}}, CI).status == 200


def test_no_state_and_no_key_is_in_the_log(audited: Server, folder: Path) -> None:
    served(audited.ask("zq-secret-state", ASKED, CI))
    log = (folder / "full.jsonl").read_text()
    assert "zq-secret-state" not in log
    assert KEY not in log
    assert "ci-key" not in log


def test_the_log_is_sound_and_counted(audited: Server, folder: Path) -> None:
    served(audited.ask("one more", ASKED, CI))
    found = verify([folder / "full.jsonl"])
    assert not found.findings
    assert audited.metric("service_audit_lines_total") == found.lines - 1  # the first tells that it was opened
    assert audited.metric("service_audit_lost_total") == 0


def test_a_second_server_may_not_write_the_same_log(audited: Server, folder: Path) -> None:
    assert "another process" in refusal(*flags(folder, "full.jsonl"))


# --- settings ---


def refusal(*given: str) -> str:
    """What a server says that does not start."""
    server = start("--model", "fake", "--host", "127.0.0.1", "--port", "0", *given)
    try:
        assert server.process.wait(120) == 2
        return server.log()
    finally:
        server.end()
        server.log_path.unlink()


def test_texts_are_kept_with_outcomes_alone() -> None:
    assert "--keep-texts keeps them with outcomes: --outcomes FILE" in refusal("--keep-texts", "on")


def test_a_log_needs_a_key(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "short.key").write_text("short\n")
    for name, said in ((None, "openssl rand"), ("short.key", "at least 16 bytes"), ("no.key", "cannot be read")):
        settings = Settings(audit_log=folder / "never.jsonl", audit_key_file=folder / name if name else None)
        with pytest.raises(StartError, match=said):
            read_audit_key(settings)
    assert read_audit_key(Settings(audit_key_file=folder / "no.key")) is None
    assert "there is no audit log" in caplog.text
    assert "--audit-key-file" in refusal("--audit-log", str(folder / "never.jsonl"))
    assert not (folder / "never.jsonl").exists()


# --- when it cannot be written ---


@contextmanager
def full_disk(server: Server, path: Path) -> Iterator[None]:
    """As if there were no room for another line: the system lets no file of that process grow."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = path.stat().st_size + 100
    assert server.log_path.stat().st_size < size / 2, "the server's own log would be stopped too"
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, most))


def ask_until_there_is_a_log(server: Server) -> None:
    for number in range(3):
        served(server.batch([f"{number} {state}" for state in range(20)]))


def test_required_answers_only_what_was_written(folder: Path) -> None:
    path = folder / "required.jsonl"
    with running_server(*flags(folder, path.name, "--audit", "required")) as server:
        ask_until_there_is_a_log(server)
        with full_disk(server, path):
            before = len(entries(path))
            for reply in (server.ask("lost"), server.batch(["lost"])):
                assert refused(reply, 503) == "the audit log cannot be written"
            stream = server.request("POST", BATCH, {"states": ["lost"], "questions": {"q": NOUL}}, LINES)
            assert [json.loads(line)["status"] for line in stream.body.splitlines()] == [503]
            assert refused(server.get("/ready"), 503) == "the audit log cannot be written"
            assert server.get("/health").status == 200
            assert len(entries(path)) == before
        assert served(server.get("/ready")) == {"ready": True}
        assert len(entries(path)) == before
        reply = server.ask("found")
        served(reply)
        assert entries(path)[-1]["request_id"] == reply.headers["x-request-id"]
        assert server.metric("service_audit_lost_total") == 0
        assert eventually(lambda: "can be written again" in server.log())
        assert server.stop() == 0
    assert not verify([path]).findings


def test_best_effort_answers_and_counts_what_was_lost(folder: Path) -> None:
    path = folder / "best-effort.jsonl"
    with running_server(*flags(folder, path.name, "--audit", "best-effort")) as server:
        ask_until_there_is_a_log(server)
        assert eventually(lambda: server.metric("service_audit_lines_total") == 60)
        with full_disk(server, path):
            for _ in range(3):
                served(server.ask("lost"))
            assert eventually(lambda: server.metric("service_audit_lost_total") == 3)
            served(server.get("/ready"))
        served(server.ask("found"))
        assert eventually(lambda: server.metric("service_audit_lines_total") == 61)
        assert server.stop() == 0
    assert not verify([path]).findings
    *_, told, last = entries(path)
    assert (told["event"], told["lost"]) == ("lost", 3)
    assert last["question"] == "q"


# --- files ---


def test_a_file_is_put_aside_by_size_and_a_moved_one_is_let_go_on_sighup(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    key = str(folder / "audit.key")
    with running_server("--audit-log", str(path), "--audit-key-file", key, "--audit-max-bytes", "16384") as server:
        for _ in range(3):
            served(server.batch(["state"] * 20))
        assert (tmp_path / "audit.jsonl.000002").exists()
        moved = [file.rename(tmp_path / f"moved.{file.name}") for file in sorted(tmp_path.glob("audit.jsonl.*"))]
        moved.append(path.rename(tmp_path / "moved.last"))
        server.process.send_signal(signal.SIGHUP)
        assert eventually(path.exists)
        assert eventually(lambda: "audit log reopened" in server.log())
        served(server.ask("after"))
        assert [entry.get("event") for entry in entries(path)] == ["opened", None]
        assert server.stop() == 0
    assert not verify([*moved, path]).findings
