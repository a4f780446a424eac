"""The `system-one` package, sync and async, unmodified, against the running server."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr
from system_one import (
    APIError,
    AsyncSystemOne,
    AuthenticationError,
    Choice,
    HTTPConfig,
    Noul,
    NoulCriteria,
    Score,
    SystemOne,
    SystemOneOutput,
    TypesafeConfig,
)
from system_one.backends.http import AsyncHTTPBackend, HTTPBackend

from tests.clients.common import KEY, LONG_STATE, QUESTIONS, STATE, assert_distribution, busy, noise, plain_answer
from tests.support.server import Server

QUESTION = {"q": Noul(instructions="Is this about billing?")}
both = pytest.mark.parametrize("kind", ["sync", "async"])


def ask(kind: str, config: HTTPConfig, state: Any, questions: Any) -> SystemOneOutput:
    if kind == "sync":
        with httpx2.Client(verify=False, timeout=config.timeout) as client:
            return SystemOne(using=HTTPBackend(config, client=client)).ask(state, questions)

    async def main() -> SystemOneOutput:
        async with httpx2.AsyncClient(verify=False, timeout=config.timeout) as client:
            return await AsyncSystemOne(using=AsyncHTTPBackend(config, client=client)).ask(state, questions)

    return asyncio.run(main())


def config_of(server: Server, **settings: Any) -> HTTPConfig:
    return HTTPConfig(base_url=server.url, model="any", **settings)


@both
def test_every_question_shape_is_answered_as_without_the_client(server: Server, kind: str) -> None:
    result = ask(kind, config_of(server), STATE, QUESTIONS)
    plain = plain_answer(server)
    assert result.model == plain["model"]
    assert result.usage.model_dump(exclude_none=True) == plain["usage"]
    assert list(result.answers) == list(QUESTIONS)
    for name, noul in result.nouls.items():
        assert (noul.noul, noul.confidence) == (plain["answers"][name]["noul"], plain["answers"][name]["confidence"])
    for name, choice in result.choices.items():
        assert choice.model_dump() == plain["answers"][name]
        assert choice.confidence is not None
        assert_distribution(choice.probabilities or {}, choice.confidence)
    urgency = result.scores["urgency"]
    assert urgency.legend == dict(enumerate(QUESTIONS["urgency"]["criteria"]))
    assert urgency.probabilities is not None
    assert {str(k): p for k, p in urgency.probabilities.items()} == plain["answers"]["urgency"]["probabilities"]
    assert urgency.score == pytest.approx(sum(level * p for level, p in urgency.probabilities.items()), abs=1e-6)


def test_an_answer_about_a_cut_state_is_understood(server: Server) -> None:
    result = ask("sync", config_of(server), LONG_STATE, QUESTIONS)
    plain = plain_answer(server, LONG_STATE)
    assert plain["warnings"]
    assert result.choices["team"].probabilities == plain["answers"]["team"]["probabilities"]


@both
def test_confidence_is_the_one_this_client_would_derive(server: Server, kind: str) -> None:
    """The client has its own formulas, used when a server sends no confidence: ours must agree with them."""
    result = ask(kind, config_of(server), STATE, QUESTIONS)
    for answer in result.answers.values():
        derived = type(answer).model_validate(answer.model_dump(exclude={"confidence"})).confidence
        assert derived is not None
        assert answer.confidence == pytest.approx(derived, abs=1e-4)


@both
def test_question_objects(server: Server, kind: str) -> None:
    questions = {
        "described": Noul(criteria=NoulCriteria(true="It asks for money back")),
        "team": Choice(instructions="Which team?", criteria={"billing": None, "sales": None, "né": None}),
        "labels": {"type": "choice", "criteria": ["left", "right"]},
        "urgency": Score(criteria=["low", {"level": None}]),
    }
    result = ask(kind, config_of(server), STATE, questions)
    wire = {
        "described": QUESTIONS["described"],
        "team": QUESTIONS["team"],
        "labels": {"type": "choice", "criteria": {"left": None, "right": None}},
        "urgency": {"type": "score", "criteria": ["low", {"level": None}]},
    }
    plain = plain_answer(server, questions=wire)["answers"]
    assert result.nouls["described"].noul == plain["described"]["noul"]
    assert result.choices["team"].probabilities == plain["team"]["probabilities"]
    assert result.choices["labels"].probabilities == plain["labels"]["probabilities"]
    assert result.scores["urgency"].score == plain["urgency"]["score"]


def test_only_the_base_address_changes(keyed: Server) -> None:
    """The preset of the hosted service, pointed here."""
    config = TypesafeConfig(base_url=keyed.url + "/", api_key=SecretStr(KEY))
    assert ask("sync", config, "text", QUESTION).nouls.keys() == {"q"}


@both
def test_settings_from_the_environment(keyed: Server, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BASE_URL": keyed.url, "MODEL": "any", "API_KEY": KEY}.items():
        monkeypatch.setenv(f"SYSTEM_ONE_{name}", value)
    config = HTTPConfig()  # type: ignore[call-arg]
    assert ask(kind, config, noise(50_000), QUESTION).nouls.keys() == {"q"}


@both
@pytest.mark.parametrize("key", [None, SecretStr("wrong")], ids=["no key", "wrong key"])
def test_a_missing_or_wrong_key_is_an_authentication_error(keyed: Server, kind: str, key: SecretStr | None) -> None:
    with pytest.raises(AuthenticationError) as caught:
        ask(kind, config_of(keyed, api_key=key), "text", QUESTION)
    assert caught.value.status == 401
    assert list(json.loads(caught.value.body or "")) == ["detail"]


@both
def test_an_invalid_request_is_422_and_not_retried(server: Server, kind: str) -> None:
    invalid = 'service_requests_total{endpoint="/v1/systemone",status="422"}'
    before = server.metric(invalid)
    with pytest.raises(APIError) as caught:
        ask(kind, config_of(server), "text", {"faulty-one": Choice(criteria={str(i): None for i in range(257)})})
    assert server.metric(invalid) == before + 1
    assert caught.value.status == 422
    assert "faulty-one" in json.loads(caught.value.body or "")["detail"]


@both
def test_503_is_retried_after_the_announced_second(tight: Server, kind: str) -> None:
    with busy(tight):
        started = time.monotonic()
        assert ask(kind, config_of(tight, max_retries=1), "text", QUESTION).nouls.keys() == {"q"}
        assert time.monotonic() - started >= 1.0


@both
def test_503_without_retries_tells_when_to_come_back(tight: Server, kind: str) -> None:
    with busy(tight), pytest.raises(APIError) as caught:
        ask(kind, config_of(tight, max_retries=0), "text", QUESTION)
    assert (caught.value.status, caught.value.retry_after) == (503, 1.0)
