"""A server that is killed under load: with `--audit required`, every answer that was sent is in the log."""

import http.client
import json
import random
import threading
from pathlib import Path

import pytest

from decided.audit.verify import verify
from decided.cli import main
from tests.audit.logs import entries
from tests.spec.checks import MIXED, SINGLE, eventually
from tests.support.server import PATIENCE_S, Server, running_server

THREADS = 8
BODY = json.dumps({"state": "A parcel is late.", "questions": MIXED}).encode()


class Load:
    """Asks on several connections until the server is gone; knows which requests were answered."""

    def __init__(self, server: Server, round_number: int) -> None:
        self.answered: set[str] = set()
        self._server = server
        self._round = round_number
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, answers: int) -> bool:
        return eventually(lambda: len(self.answered) >= answers)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        connection = http.client.HTTPConnection(self._server.host, self._server.port, timeout=PATIENCE_S)
        count = 0
        try:
            while True:
                count += 1
                request_id = f"{self._round}-{number}-{count}"
                connection.request("POST", SINGLE, BODY, {"X-Request-Id": request_id})
                response = connection.getresponse()
                response.read()
                if response.status != 200:
                    return
                self.answered.add(request_id)
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_every_answer_that_was_sent_is_in_the_log(
    rounds: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One log through all rounds: each start goes on with what the last kill left."""
    path, key = tmp_path / "audit.jsonl", tmp_path / "audit.key"
    key.write_text("0123456789abcdef")
    chance = random.Random(rounds)
    flags = ("--audit-log", str(path), "--audit-key-file", str(key), "--audit-max-bytes", "100000")
    answered: set[str] = set()
    for number in range(rounds):
        with running_server(*flags) as server:
            load = Load(server, number)
            wanted = chance.randrange(10, 200)
            assert load.wait_for(wanted)
            server.process.kill()
            load.join()
            answered |= load.answered
        problems = [finding.problem for finding in verify([path]).findings]
        assert [problem for problem in problems if not problem.startswith("the line is unfinished")] == []
    with running_server(*flags) as server:
        assert server.stop() == 0
    assert main(["audit", "verify", str(path)]) == 0, capsys.readouterr().out
    files = [*sorted(tmp_path.glob("audit.jsonl.*")), path]
    written = [entry for file in files for entry in entries(file)]
    asked = {(entry["request_id"], entry["question"]) for entry in written if "request_id" in entry}
    assert {(request_id, name) for request_id in answered for name in MIXED} <= asked
    assert [entry["event"] for entry in written if "event" in entry] == ["opened"] * (rounds + 1)
