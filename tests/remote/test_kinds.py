"""What each kind sends, and how it reads what comes back."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from decided.engines.remote import upstream
from decided.errors import ModelError, SettingsError
from tests.remote.fake_engine import FakeEngine
from tests.spec.checks import eventually
from tests.support.server import Server, running_server, start

TOPIC: dict[str, Any] = {
    "type": "choice",
    "instructions": "Which?",
    "criteria": {"one": None, "two": "RIGHT", "three": None},
}


@contextmanager
def decided(engine: FakeEngine, kind: str, *flags: str) -> Iterator[Server]:
    environment = {"SERVICE_REMOTE_URL": engine.url}
    with running_server("--model", f"{kind}:some/model", *flags, env=environment, module="decided") as server:
        yield server


CHAT = "/v1/chat/completions"
PATHS = {"ollama": "/api/chat", "lmstudio": "/v1/responses"}
SENT: dict[str, dict[str, Any]] = {
    "openai": {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20},
    "vllm": {"logprob_token_ids": [65, 1065, 66, 1066, 67, 1067], "top_logprobs": 20},
    "sglang": {"regex": "[ABC]", "top_logprobs": 3},
    "llamacpp": {"logit_bias": [[text, 50.0] for text in ("A", " A", "B", " B", "C", " C")]},
    "ollama": {"truncate": False, "shift": False, "think": False, "stream": False, "logprobs": True},
    "lmstudio": {"include": ["message.output_text.logprobs"], "store": False, "max_output_tokens": 1},
}


@pytest.mark.parametrize("kind", SENT)
def test_every_kind_asks_in_its_way_and_answers(kind: str) -> None:
    with FakeEngine() as engine, decided(engine, kind) as server:
        reply = server.ask("text", {"q": TOPIC, "only": {"type": "choice", "criteria": {"x": None}}})
        (call,) = engine.of(PATHS.get(kind, CHAT))  # no call for a question with one option
        entry = server.get("/v1/models").json["models"][0]
        assert server.get("/ready").json == {"ready": True, "upstream": True}
    answer = reply.json["answers"]["q"]
    assert answer["choice"] == "two"
    assert answer["probabilities"] == pytest.approx({"one": 1 / 11, "two": 9 / 11, "three": 1 / 11}, abs=1e-6)
    assert reply.json["answers"]["only"]["probabilities"] == {"x": 1.0}
    assert reply.json["usage"]["output_tokens"] == 1
    assert reply.json["usage"]["input_tokens"] > 10
    assert (reply.json["model"], entry["name"], entry["kind"]) == ("some/model", "some/model", kind)
    assert call.body["model"] == "some/model"
    assert {field: call.body[field] for field in SENT[kind]} == SENT[kind]
    if kind == "openai":  # strict servers refuse what they do not know
        assert set(call.body) == {"model", "messages", *SENT[kind]}


def test_labels_beyond_those_shown_get_an_estimate() -> None:
    with FakeEngine(shown=20) as engine, decided(engine, "openai") as server:
        options = {f"option {number}": "RIGHT" if number == 25 else None for number in range(26)}
        answer = server.ask("text", {"q": {"type": "choice", "criteria": options}}).json["answers"]["q"]
    assert answer["choice"] == "option 25"
    assert min(answer["probabilities"].values()) > 0


def test_the_state_comes_first_and_the_question_last() -> None:
    """So that the prompts of all questions about a state begin alike, up to the question."""
    with FakeEngine() as engine, decided(engine, "openai") as server:
        yes_no = {"type": "noul", "instructions": "Is it so?", "criteria": {"true": "as said"}}
        level = {"type": "score", "instructions": "How much?", "criteria": ["little", "much"]}
        server.ask("THE STATE", {"one": TOPIC, "two": yes_no, "three": level})
        prompts = sorted(call.prompt for call in engine.of("/chat/completions"))
    assert len({prompt[: prompt.index("THE STATE") + len("THE STATE")] for prompt in prompts}) == 1
    assert any("A. yes: as said\nB. no\n" in prompt for prompt in prompts)
    assert any("A. little\nB. much\n" in prompt for prompt in prompts)
    assert any("A. one\nB. two: RIGHT\nC. three\n" in prompt for prompt in prompts)


def test_rotations_take_out_a_fondness_for_a_letter() -> None:
    even = {"type": "choice", "instructions": "BIAS=1.5", "criteria": {"one": None, "two": None, "three": None}}
    with FakeEngine() as engine:
        with decided(engine, "openai") as server:
            biased = server.ask("text", {"q": even}).json["answers"]["q"]["probabilities"]
        assert biased["one"] == pytest.approx(1.5 / 3.5)
        engine.calls.clear()
        with decided(engine, "openai", "--rotations", "3") as server:
            fair = server.ask("text", {"q": even}).json
            assert len(engine.of("/chat/completions")) == 3
            assert fair["usage"]["output_tokens"] == 3
            server.ask("text", {"q": TOPIC})
            assert len(engine.of("/chat/completions")) == 4  # the top two are not close: one order is enough
        assert fair["answers"]["q"]["probabilities"] == pytest.approx(dict.fromkeys(("one", "two", "three"), 1 / 3))


def test_a_big_batch_does_not_starve_small_requests() -> None:
    with FakeEngine(seconds=0.02) as engine, decided(engine, "openai", "--remote-concurrency", "4") as server:
        states = [f"state {number}" for number in range(64)]
        big = threading.Thread(target=server.batch, args=(states, {str(number): TOPIC for number in range(8)}))
        big.start()
        assert eventually(lambda: server.get("/health").json["queue_depth"] > 400)
        for _ in range(5):
            assert server.ask("small", {"q": TOPIC}).status == 200
        assert server.get("/health").json["queue_depth"] > 100
        big.join()
        assert server.get("/health").json["queue_depth"] == 0


# --- the start ---


def failed_start(*flags: str, env: dict[str, str]) -> tuple[int, str]:
    server = start("--host", "127.0.0.1", "--port", "0", *flags, env=env, module="decided")
    code = server.process.wait(30)
    log = server.log()
    server.log_path.unlink()
    return code, log


def test_a_model_that_puts_nothing_on_labels_is_refused() -> None:
    with FakeEngine(label_mass=0.001) as engine:
        code, log = failed_start("--model", "openai:m", env={"SERVICE_REMOTE_URL": engine.url})
    assert code == ModelError.exit_code
    assert "put 0.1% of its probability on them" in log


def test_an_engine_that_refuses_the_model_ends_the_start() -> None:
    with FakeEngine(status=404) as engine:
        code, log = failed_start("--model", "openai:m", env={"SERVICE_REMOTE_URL": engine.url})
    assert code == ModelError.exit_code
    assert "404" in log


def test_a_gateway_without_its_engine_does_not_end_the_start() -> None:
    with FakeEngine(status=502) as engine, decided(engine, "openai") as server:
        assert server.get("/ready").status == 503
        engine.status = 200
        assert eventually(lambda: server.get("/ready").status == 200)
        assert server.ask("text", {"q": TOPIC}).status == 200


@pytest.mark.parametrize(
    ("model", "url", "code"),
    [
        ("openai:m", None, ModelError.exit_code),
        ("systemone:m", None, ModelError.exit_code),
        ("openai:", "http://127.0.0.1:1", ModelError.exit_code),
        ("openai:m", "ftp://127.0.0.1", SettingsError.exit_code),
        ("openai:m", "127.0.0.1:80", SettingsError.exit_code),
        ("openai:m", "http://user:secret@127.0.0.1:80/v1", SettingsError.exit_code),
    ],
)
def test_an_address_that_cannot_be_meant_ends_the_start(model: str, url: str | None, code: int) -> None:
    found, log = failed_start("--model", model, env={"SERVICE_REMOTE_URL": url} if url else {})
    assert found == code
    assert "secret" not in log


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (None, "http://127.0.0.1:8000/v1"),
        ("http://gpu:8000", "http://gpu:8000/v1"),
        ("http://gpu:8000/", "http://gpu:8000/v1"),
        ("https://gateway/team/v1/", "https://gateway/team/v1"),
    ],
)
def test_addresses(given: str | None, url: str) -> None:
    assert upstream.address(given, "http://127.0.0.1:8000/v1", "/v1") == url
