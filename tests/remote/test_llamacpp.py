"""A real engine: the llama.cpp server with a small real model, as `llamacpp:` and as `openai:`."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.remote.llama_server import Llama, running
from tests.support.server import Reply, Server, running_server

NAME = "smollm2"
LETTERS = {"type": "choice", "instructions": "Say B.", "criteria": {"x": None, "y": None}}
FEW = {
    "topic": {"type": "choice", "instructions": "Topic?", "criteria": {"parcel": None, "bill": None, "praise": None}},
    "late": {"type": "noul", "instructions": "Is it late?"},
    "mood": {"type": "score", "instructions": "How upset?", "criteria": ["calm", "cross", "furious"]},
}
MANY = {"type": "choice", "instructions": "Pick.", "criteria": {chr(97 + number): None for number in range(26)}}


@pytest.fixture(scope="module")
def llama() -> Iterator[Llama]:
    with running() as engine:
        yield engine


def decided(llama: Llama, kind: str) -> Any:
    flags = ("--model", f"{kind}:{NAME}", "--request-timeout-s", "120")
    return running_server(*flags, env={"SERVICE_REMOTE_URL": llama.url}, module="decided")


@pytest.fixture(scope="module")
def native(llama: Llama) -> Iterator[Server]:
    with decided(llama, "llamacpp") as server:
        yield server


def check(answers: dict[str, Any]) -> None:
    for answer in answers.values():
        assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-6)
        assert all(0 < share < 1 for share in answer["probabilities"].values())


def test_typed_answers_from_a_language_model(native: Server) -> None:
    reply = native.ask("The parcel is late.", FEW)
    assert reply.status == 200
    body = reply.json
    check(body["answers"])
    assert body["model"] == NAME
    assert body["usage"]["output_tokens"] == len(FEW)
    assert body["usage"]["input_tokens"] > 100


def test_all_26_labels_are_seen(native: Server) -> None:
    """Each has a probability of its own: none is an estimate shared with others."""
    shares = native.ask("x", {"q": MANY}).json["answers"]["q"]["probabilities"]
    assert len({round(share, 12) for share in shares.values()}) == 26


def test_27_options_are_refused(native: Server) -> None:
    options = {str(number): None for number in range(27)}
    reply = native.ask("x", {"q": {"type": "choice", "criteria": options}})
    assert reply.status == 422
    assert '"q"' in reply.detail


def test_what_it_says_of_itself(native: Server) -> None:
    health = native.get("/health").json
    assert (health["model"], health["kind"], health["device"]) == (NAME, "llamacpp", "remote")
    assert native.get("/ready").json == {"ready": True, "upstream": True}


def test_the_general_protocol_gives_the_same_answers(native: Server, llama: Llama) -> None:
    with decided(llama, "openai") as server:
        general = server.ask("The parcel is late.", FEW).json["answers"]
        special = native.ask("The parcel is late.", FEW).json["answers"]
    for name in FEW:
        assert general[name]["probabilities"] == pytest.approx(special[name]["probabilities"], abs=0.03)


def test_killed_under_load_and_back(llama: Llama, native: Server) -> None:
    """No request hangs, none is answered wrongly, and the service resumes by itself."""
    truth = native.ask("It is so.", {"q": LETTERS}).json["answers"]["q"]["probabilities"]
    replies: list[tuple[float, Reply]] = []
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            began = time.monotonic()
            reply = native.ask("It is so.", {"q": LETTERS})
            replies.append((time.monotonic() - began, reply))
            time.sleep(0.05)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(replies) >= 8)
    llama.kill()
    wait_until(lambda: native.get("/ready").status == 503)
    wait_until(lambda: sum(reply.status == 503 for _, reply in replies) >= 4)
    llama.start()
    wait_until(lambda: native.get("/ready").status == 200)
    resumed = len(replies)
    wait_until(lambda: sum(reply.status == 200 for _, reply in replies[resumed:]) >= 8)
    over.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert {reply.status for _, reply in replies} == {200, 503}
    for seconds, reply in replies:
        assert seconds < 60
        if reply.status == 200:
            assert json.loads(reply.body)["answers"]["q"]["probabilities"] == pytest.approx(truth, abs=0.02)
        else:
            assert str(llama.port) not in reply.detail


def test_ready_follows_the_engine_down_up_and_down(llama: Llama) -> None:
    """The server starts without its engine, and needs no restart when it comes."""
    llama.kill()
    try:
        with decided(llama, "llamacpp") as server:
            assert server.get("/ready").status == 503
            assert server.ask("It is so.", {"q": LETTERS}).status == 503
            llama.start()
            wait_until(lambda: server.get("/ready").status == 200)
            assert server.ask("It is so.", {"q": LETTERS}).status == 200
            llama.kill()
            wait_until(lambda: server.get("/ready").status == 503)
    finally:
        llama.kill()
        llama.start()
        llama.wait()


def wait_until(done: Any) -> None:
    deadline = time.monotonic() + 90
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)
