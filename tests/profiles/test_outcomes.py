"""The loop closes: answers, what turned out to be right, and what is learnt from it."""

import asyncio
import gzip
import json
import math
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decided.contract.types import Noul, OutcomesRequest, Question
from decided.engines.api import Verdict
from decided.errors import Unavailable, UnknownRequest
from decided.evaluation.outcomes import read_outcomes
from decided.profiles.floats import pack
from decided.serving import ledger
from decided.serving.ledger import Ledger
from tests.profiles.shelf import TOPIC, written
from tests.profiles.test_teach import teach
from tests.spec.checks import BATCH, SINGLE, eventually, has_ids, in_flight, refused, served
from tests.spec.wire import Wire, head
from tests.support.disk import room_for
from tests.support.fake_model import FakeModel
from tests.support.server import Reply, Server, running_server

SHOP, SHOP_TOO, CI = ({"Authorization": f"Bearer {key}"} for key in ("shop-key", "next-key", "ci-key"))
KEY = "a key"
OUTCOMES = "/v1/outcomes"
NOUL = {"type": "noul", "instructions": "Is it late?"}
OF_SHOP, OF_CI = {"q": TOPIC}, {"late": NOUL}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outcomes.jsonl"


@pytest.fixture
def server(path: Path, tmp_path: Path) -> Iterator[Server]:
    folder = written(tmp_path / "p").parent
    with running_server("--outcomes", str(path), "--profiles", str(folder)) as server:
        yield server


def tell(server: Server, request_id: str, outcomes: Any, headers: Any = None, **more: Any) -> Reply:
    return server.request("POST", "/v1/outcomes", {"request_id": request_id, "outcomes": outcomes, **more}, headers)


def asked(server: Server, state: str, request_id: str) -> None:
    assert server.ask(state, {"q": TOPIC, "late": NOUL}, {"x-request-id": request_id}).status == 200


def recorded(kept: Ledger, client: str, told: OutcomesRequest) -> int:
    return asyncio.run(kept.record(client, told))[0].recorded


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_outcome_is_kept_without_its_text(server: Server, path: Path) -> None:
    asked(server, "my money", "one")
    reply = tell(server, "one", {"q": "bill", "late": False})
    assert (reply.status, reply.json) == (200, {"recorded": 2, "known": 0})
    first, second = lines(path)
    assert (first["name"], first["right"], first["model"]) == ("q", 1, "fake")
    assert (second["name"], second["right"]) == ("late", 1)
    assert "money" not in path.read_text()
    assert first["features"]


def test_told_again_it_counts_once_and_told_otherwise_it_is_corrected(server: Server, path: Path) -> None:
    asked(server, "my money", "one")
    tell(server, "one", {"q": "bill"})
    assert tell(server, "one", {"q": "bill"}).json == {"recorded": 0, "known": 1}
    assert len(lines(path)) == 1
    assert tell(server, "one", {"q": "parcel"}).json == {"recorded": 1, "known": 0}


def test_batches_and_streams_by_index(server: Server, path: Path) -> None:
    body = {"states": ["my box", "my money"], "questions": {"q": TOPIC}}
    for request_id, headers in (("whole", {}), ("lines", {"Accept": "application/x-ndjson"})):
        server.request("POST", "/v1/systemone/batch", body, {"x-request-id": request_id, **headers})
        assert tell(server, request_id, {"q": "bill"}, index=1).status == 200
        assert tell(server, request_id, {"q": "bill"}, index=2).status == 404
    assert [line["index"] for line in lines(path)] == [1, 1]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"request_id": "none", "outcomes": {"q": "bill"}}, 404, 'no answer with the request id "none" is remembered'),
        (
            {"request_id": "one", "outcomes": {"x": "bill"}},
            422,
            'question "x": the request with this id did not ask it',
        ),
        ({"request_id": "one", "outcomes": {"q": "fish"}}, 422, "must be one of the options"),
        ({"request_id": "one", "outcomes": {"late": "no"}}, 422, "true or false"),
        ({"request_id": "one", "outcomes": {"q": "bill", "late": None}}, 422, 'question "late": Expected'),
        ({"request_id": "one", "outcomes": {"": [1]}}, 422, 'question "": Expected'),
        ({"request_id": 1, "outcomes": {"q": {}}}, 422, 'question "q": Expected'),
        ({"request_id": "one", "outcomes": {"q": 1.5}}, 422, 'question "q": Expected'),
        ({"request_id": "one", "outcomes": ["q"]}, 422, "Expected `object`"),
        ({"request_id": "one", "outcomes": dict.fromkeys(map(str, range(65)))}, 422, "length <= 64"),
        ({"request_id": "one", "outcomes": {}}, 422, "outcomes"),
        ({"outcomes": {"q": "bill"}}, 422, "the field 'request_id' is missing"),
        ({"request_id": "one"}, 422, "the field 'outcomes' is missing"),
        ([], 400, "JSON object"),
    ],
)
def test_what_is_refused_is_told(server: Server, path: Path, body: Any, status: int, said: str) -> None:
    asked(server, "my money", "one")
    reply = server.request("POST", "/v1/outcomes", body)
    assert reply.status == status
    assert said in reply.detail
    assert path.read_text() == ""


def test_all_of_it_or_nothing(server: Server, path: Path) -> None:
    asked(server, "my money", "one")
    assert tell(server, "one", {"q": "bill", "late": "maybe"}).status == 422
    assert path.read_text() == ""


def test_an_answer_belongs_to_the_client_that_asked(path: Path, tmp_path: Path) -> None:
    """Another one can tell nothing about it, learn nothing of it, and not have it forgotten by asking with its id."""
    keys = tmp_path / "keys"
    keys.write_text("shop=shop-key\nshop=next-key\nci=ci-key\n")
    with running_server("--outcomes", str(path), env={"SERVICE_API_KEY_FILE": str(keys)}) as server:

        def ask(client: dict[str, str], request_id: str, path: str, headers: dict[str, str]) -> None:
            body = {"state": "my money", "states": ["my money"], "questions": OF_CI if client == CI else OF_SHOP}
            assert server.request("POST", path, body, {"x-request-id": request_id, **client, **headers}).status == 200

        ask(SHOP, "one", SINGLE, {})
        unknown = tell(server, "none", {"q": "bill"}, CI)
        for outcomes in ({"q": "bill"}, {"q": "fish"}, {"x": 1}):
            reply = tell(server, "one", outcomes, CI)
            assert (reply.status, reply.detail) == (404, unknown.detail.replace("none", "one"))
        for request_id, where, headers in (
            ("one", SINGLE, {}),
            ("two", BATCH, {}),
            ("three", BATCH, {"Accept": "application/x-ndjson"}),
        ):
            ask(SHOP, request_id, where, headers)
            ask(CI, request_id, where, headers)
            assert tell(server, request_id, {"q": "bill"}, SHOP_TOO).json == {"recorded": 1, "known": 0}
            assert tell(server, request_id, {"late": True}, CI).json == {"recorded": 1, "known": 0}
            assert tell(server, request_id, {"q": "bill"}, SHOP).json == {"recorded": 0, "known": 1}
    assert [line["client"] for line in lines(path)] == ["shop", "ci"] * 3


def test_without_a_file_for_outcomes_there_is_no_such_path() -> None:
    with running_server() as server:
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST"):
            assert server.request(method, "/v1/outcomes").status == 404
        assert "/v1/outcomes" not in server.get("/openapi.json").json["paths"]


def test_with_a_file_for_outcomes_the_path_is_in_the_api_document(server: Server) -> None:
    assert list(server.get("/openapi.json").json["paths"]["/v1/outcomes"]) == ["post"]
    reply = server.get("/v1/outcomes")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


def test_off_by_default_and_behind_the_key(path: Path) -> None:
    with running_server() as server:
        assert tell(server, "one", {"q": "bill"}).status == 404
    flags = ("--outcomes", str(path), "--keep-texts", "on")
    with running_server(*flags, env={"SERVICE_API_KEY": KEY}) as server:
        allowed = {"Authorization": f"Bearer {KEY}"}
        assert tell(server, "one", {"q": "bill"}).status == 401
        server.ask("my money", {"q": TOPIC}, {"x-request-id": "one", **allowed})
        assert tell(server, "one", {"q": "bill"}, allowed).status == 200
        assert lines(path)[0]["state"] == "my money"


def test_outcomes_have_the_limits_of_every_request(path: Path) -> None:
    limits = ("--max-in-flight", "1", "--request-timeout-s", "1")
    most = 300
    with (
        running_server("--outcomes", str(path), *limits, env={"SERVICE_MAX_BODY_BYTES": str(most)}) as server,
        Wire(server) as slow,
    ):

        def refusal(status: int, body: bytes, **headers: str) -> Reply:
            given = {name.replace("_", "-"): value for name, value in headers.items()} | {"X-Request-Id": "mine"}
            reply = server.request("POST", OUTCOMES, body, given)
            refused(reply, status)
            assert has_ids(reply) == "mine"
            return reply

        assert server.ask("my money", {"late": NOUL}, {"x-request-id": "one"}).status == 200
        good = b'{"request_id":"one","outcomes":{"late":true}}'
        slow.send(head("X-Request-Id: slow", "Content-Length: 50", path=OUTCOMES) + b"{")
        assert eventually(lambda: in_flight(server) == 1)
        assert refusal(503, good).headers["retry-after"] == "1"
        late = slow.reply()
        refused(late, 504)
        assert has_ids(late) == "slow"
        refusal(413, good + b" " * (most + 1 - len(good)))
        refusal(413, gzip.compress(good + b" " * most), Content_Encoding="gzip")
        refusal(415, good, Content_Encoding="br")
        refusal(415, good, Content_Type="multipart/form-data")
        refusal(400, good + b"x")
        refusal(422, b"{}")
        assert path.read_text() == ""
        assert served(server.request("POST", OUTCOMES, good + b" " * (most - len(good))))["recorded"] == 1


def test_metrics_of_a_profiled_question(server: Server) -> None:
    for number, (state, right) in enumerate((("my money", "bill"), ("my box", "parcel"), ("my box", "bill"))):
        asked(server, state, f"r{number}")
        tell(server, f"r{number}", {"q": right, "late": True})
    (label,) = {
        re.findall('profile="(.*?)"', line)[0]
        for line in server.get("/metrics").body.decode().splitlines()
        if line.startswith("service_profile_answers_total")
    }
    assert label.startswith("topic-")
    assert server.metric(f'service_profile_answers_total{{option="0",profile="{label}"}}') == 1
    assert server.metric(f'service_profile_answers_total{{option="1",profile="{label}"}}') == 2
    assert server.metric(f'service_profile_outcomes_total{{profile="{label}",result="right"}}') == 2
    assert server.metric(f'service_profile_outcomes_total{{profile="{label}",result="wrong"}}') == 1
    assert 2.9 < server.metric(f'service_profile_top_probability_total{{profile="{label}"}}') < 3
    assert 1.8 < server.metric(f'service_profile_brier_total{{profile="{label}"}}') < 2
    assert server.metric(f'service_profile_undecided_total{{profile="{label}"}}') == 0
    assert server.metric(f'service_profile_confidence_count{{profile="{label}"}}') == 3


def test_what_was_told_is_learnt(path: Path, tmp_path: Path) -> None:
    with running_server("--outcomes", str(path)) as server:
        for row in range(40):
            state, right = (f"money {row}", "bill") if row % 2 else (f"box {row}", "parcel")
            server.ask(state, {"q": TOPIC}, {"x-request-id": f"r{row}"})
            if not row:
                tell(server, "r0", {"q": "bill"})  # a mistake, corrected below
            assert tell(server, f"r{row}", {"q": right}).status == 200
    done: subprocess.CompletedProcess[str] = teach("--outcomes", path, "--out", tmp_path / "p")
    assert done.returncode == 0, done.stderr
    assert "q (choice), fake: 40 labels" in done.stdout
    assert "kept: a head on its features" in done.stdout
    with running_server("--profiles", str(tmp_path / "p")) as server:
        assert server.ask("money 77", {"q": TOPIC}).json["answers"]["q"]["choice"] == "bill"


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "o.jsonl").write_text('{"time": 1}\n')
    done = teach("--outcomes", tmp_path / "o.jsonl")
    assert done.returncode == 2
    assert "there is no outcome that can be used" in done.stderr


def test_lines_that_are_damaged_are_told_and_texts_stay_together(tmp_path: Path) -> None:
    def line(number: int, features: str, weights: str = "[1.0, 2.0]") -> str:
        return (
            f'{{"time": {number}, "request_id": "r{number}", "name": "late", "question": {json.dumps(NOUL)}, '
            f'"weights": {weights}, "right": {number % 2}, "model": "fake", "features": "{features}"}}\n'
        )

    path = tmp_path / "o.jsonl"
    good = [line(0, pack([1.0, 2.0])), line(1, pack([3.0, 4.0])), line(2, pack([1.0, 2.0]))]
    bad = [line(3, "AAA"), line(4, "*"), line(5, pack([math.nan])), line(6, pack([1.0]), "[0.0, 0.0]")]
    path.write_text("".join(good + bad))
    _, (found,), problems = read_outcomes(path)
    assert found.labels.states == ["request r0", "request r1", "request r0"]
    assert [problem.split(" of ")[0] for problem in problems] == ["line 4", "line 5", "line 6", "line 7"]


def test_two_clients_with_one_request_id_are_two_requests(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    kept = Ledger(path, FakeModel.card, False)
    for client in ("shop", "ci", ""):
        kept.remember(client, "one", 0, {"q": Noul("?")}, Verdict([[1.0, 2.0]], 1), "text")
        recorded(kept, client, OutcomesRequest("one", {"q": client == "shop"}))
    _, (found,), _ = read_outcomes(path)
    assert found.labels.states == ["request one of shop", "request one of ci", "request one"]


def test_large_questions_are_not_remembered_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_REMEMBERED_BYTES", 2**20)
    kept = Ledger(tmp_path / "o.jsonl", FakeModel.card, False)
    for number in range(20):
        asked: dict[str, Question] = {"q": Noul(f"{number} " + "long " * 20_000)}
        kept.remember("", f"r{number}", 0, asked, Verdict([[1.0, 2.0]], 1), "text")
    assert recorded(kept, "", OutcomesRequest("r19", {"q": True})) == 1
    with pytest.raises(UnknownRequest):
        recorded(kept, "", OutcomesRequest("r15", {"q": True}))


def test_a_busy_client_has_its_own_answers_forgotten_and_not_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_REMEMBERED_BYTES", 10 * 2100)
    kept = Ledger(tmp_path / "o.jsonl", FakeModel.card, False)
    for client, count in (("shop", 3), ("ci", 50)):
        for number in range(count):
            kept.remember(client, f"r{number}", 0, {"q": Noul("?")}, Verdict([[1.0, 2.0]], 1), "text")
    for client, request_id in (("shop", "r0"), ("shop", "r2"), ("ci", "r49"), ("ci", "r44")):
        assert recorded(kept, client, OutcomesRequest(request_id, {"q": True})) == 1
    with pytest.raises(UnknownRequest):
        recorded(kept, "ci", OutcomesRequest("r40", {"q": True}))


def test_on_a_full_disk_an_outcome_is_refused_whole_and_the_next_one_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    kept = Ledger(path, FakeModel.card, False)
    for number in range(3):
        kept.remember("", f"r{number}", 0, {"q": Noul("?")}, Verdict([[1.0, 2.0]], 1), "text")
    recorded(kept, "", OutcomesRequest("r0", {"q": True}))
    with room_for(path.stat().st_size + 20), pytest.raises(Unavailable, match="cannot be written"):
        recorded(kept, "", OutcomesRequest("r1", {"q": True}))
    assert recorded(kept, "", OutcomesRequest("r2", {"q": True})) == 1
    assert recorded(kept, "", OutcomesRequest("r1", {"q": True})) == 1
    assert [line["request_id"] for line in lines(path)] == ["r0", "r2", "r1"]


def test_the_file_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_FILE_BYTES", 300)
    path = tmp_path / "o.jsonl"
    kept = Ledger(path, FakeModel.card, True)
    for number in range(3):
        kept.remember("", f"r{number}", 0, {"q": Noul("?")}, Verdict([[1.0, 2.0]], 1), "text")
        recorded(kept, "", OutcomesRequest(f"r{number}", {"q": True}))
    assert {stat.S_IMODE(file.stat().st_mode) for file in (path, ledger.older(path))} == {0o600}


def test_outcomes_told_at_the_same_time_are_written_once(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    kept = Ledger(path, FakeModel.card, False)
    kept.remember("", "one", 0, {"q": Noul("?")}, Verdict([[1.0, 2.0]], 1), "text")

    async def tell_often() -> list[int]:
        told = [kept.record("", OutcomesRequest("one", {"q": True})) for _ in range(8)]
        return [receipt.recorded for receipt, _ in await asyncio.gather(*told)]

    assert sorted(asyncio.run(tell_often())) == [0] * 7 + [1]
    assert len(lines(path)) == 1


def test_memory_and_file_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_REMEMBERED_BYTES", 10 * 2100)
    monkeypatch.setattr(ledger, "MOST_FILE_BYTES", 1000)
    path = tmp_path / "o.jsonl"
    kept = Ledger(path, FakeModel.card, False)
    for number in range(50):
        kept.remember("", f"r{number}", 0, {"q": Noul("?")}, Verdict([[1.0, 2.0]], 1), "text")
    with pytest.raises(UnknownRequest):
        recorded(kept, "", OutcomesRequest("r30", {"q": True}))
    for number in range(41, 50):
        recorded(kept, "", OutcomesRequest(f"r{number}", {"q": True}))
    assert path.stat().st_size <= 1000
    assert ledger.older(path).stat().st_size <= 1000
