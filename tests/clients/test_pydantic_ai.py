"""Pydantic AI's two decision models, unmodified, against the running server."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

import httpx2
import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.decision import (
    ChoiceQuestion,
    DecisionModel,
    DecisionQuestion,
    DecisionRequest,
    DecisionResponse,
    NoulCriteria,
    NoulQuestion,
    ScoreAnswer,
    ScoreQuestion,
)
from pydantic_ai.models.system_one import SystemOneModel
from pydantic_ai.models.typesafe import TypeSafeModel
from pydantic_ai.providers.system_one import SystemOneProvider
from pydantic_ai.providers.typesafe import TypeSafeProvider
from pydantic_ai.settings import ModelSettings

from tests.clients.common import KEY, LONG_STATE, STATE, busy, noise, plain_answer
from tests.support.server import Server

both = pytest.mark.parametrize("kind", ["typesafe", "system-one"])


class Ticket(BaseModel):
    urgent: bool = Field(description="Does this need an answer today?")
    team: Literal["billing", "support", "sales"] = Field(description="Which team handles this?")
    tags: list[Literal["refund", "bug", "praise"]] = Field(description="What is it about?")
    churn: float = Field(ge=0, le=1, description="Will the customer leave?")


def model_of(kind: str, url: str, client: httpx2.AsyncClient, key: str | None = None) -> DecisionModel[Any]:
    if kind == "typesafe":
        return TypeSafeModel(
            "jev-latest", provider=TypeSafeProvider(api_key=key or "any", base_url=url, http_client=client)
        )
    return SystemOneModel("any", provider=SystemOneProvider(base_url=url, api_key=key, http_client=client))


def run_agent(kind: str, server: Server, prompt: str, key: str | None = None, **settings: Any) -> tuple[Any, Any]:
    """Run the agent once; its result and the JSON bodies of all answers it got."""
    bodies: list[Any] = []

    async def keep(response: httpx2.Response) -> None:
        await response.aread()
        bodies.append(response.json())

    async def main() -> Any:
        async with httpx2.AsyncClient(verify=False, event_hooks={"response": [keep]}, timeout=20) as client:
            agent = Agent(model_of(kind, server.url, client, key), output_type=Ticket, instructions="Sort the mail.")
            return await agent.run(prompt, model_settings=ModelSettings(**settings))  # type: ignore[typeddict-item]

    return asyncio.run(main()), bodies


def decide(kind: str, server: Server, state: Any, questions: dict[str, DecisionQuestion]) -> DecisionResponse:
    async def main() -> DecisionResponse:
        async with httpx2.AsyncClient(verify=False, timeout=20) as client:
            return await model_of(kind, server.url, client).decide(
                DecisionRequest(state=state, questions=questions), {}
            )

    return asyncio.run(main())


@both
@pytest.mark.parametrize("more", ["", noise(20_000), LONG_STATE], ids=["short", "large", "cut"])
def test_an_agent_fills_its_output_type_with_the_answers(server: Server, kind: str, more: str) -> None:
    result, (body,) = run_agent(kind, server, "I was charged twice and want my money back. " + more)
    assert ("warnings" in body) == (more == LONG_STATE)
    answers = body["answers"]
    assert list(answers) == ["urgent", "team", "tags.refund", "tags.bug", "tags.praise", "churn"]
    output: Ticket = result.output
    assert output.urgent == (answers["urgent"]["noul"] >= 0.5)
    assert output.team == answers["team"]["choice"]
    assert output.tags == [tag for tag in ("refund", "bug", "praise") if answers[f"tags.{tag}"]["noul"] >= 0.5]
    assert output.churn == answers["churn"]["noul"]
    assert result.usage.input_tokens == body["usage"]["input_tokens"] > 0
    assert result.usage.output_tokens == 0


@both
def test_every_question_shape(server: Server, kind: str) -> None:
    questions: dict[str, DecisionQuestion] = {
        "described": NoulQuestion(instructions="Angry?", criteria=NoulCriteria(true="Insults", false=None)),
        "structured": NoulQuestion(instructions={"field": "x", "question": "Is it a complaint?"}),
        "team": ChoiceQuestion(instructions=["Which", "team?"], criteria={"billing": None, "sales": {"who": "sells"}}),
        "urgency": ScoreQuestion(instructions="How urgent?", criteria=["low", {"level": "mid"}, ["high"]]),
    }
    got = decide(kind, server, STATE, questions)
    wire = {
        "described": {"type": "noul", "instructions": "Angry?", "criteria": {"true": "Insults"}},
        "structured": {"type": "noul", "instructions": {"field": "x", "question": "Is it a complaint?"}},
        "team": {
            "type": "choice",
            "instructions": ["Which", "team?"],
            "criteria": {"billing": None, "sales": {"who": "sells"}},
        },
        "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["low", {"level": "mid"}, ["high"]]},
    }
    plain = plain_answer(server, questions=wire)
    assert got.model_name == plain["model"]
    for name, answer in got.answers.items():
        for field in ("noul", "choice", "score", "confidence"):
            if hasattr(answer, field):
                assert getattr(answer, field) == plain["answers"][name][field]
    urgency = got.answers["urgency"]
    assert isinstance(urgency, ScoreAnswer)
    assert urgency.legend == {0: "low", 1: {"level": "mid"}, 2: ["high"]}
    if kind == "typesafe":
        assert got.provider_response_id


@pytest.mark.parametrize("options", [1, 2, 3, 7, 49, 256])
def test_numbers_pass_the_strict_checks_of_the_client(server: Server, options: int) -> None:
    """`SystemOneModel` refuses a sum, mean, bound or key that is off by more than float dust."""
    labels: dict[str, Any] = {f"option {i}": None for i in range(options)}
    questions: dict[str, DecisionQuestion] = {}
    for i in range(16):
        questions[f"c{i}"] = ChoiceQuestion(instructions=f"Which one, {i}?", criteria=labels)
        questions[f"s{i}"] = ScoreQuestion(instructions=f"How much, {i}?", criteria=list(labels))
        questions[f"n{i}"] = NoulQuestion(instructions=f"Is it {i}?")
    for state in ("", "option 0", noise(400)):
        assert decide("system-one", server, state, questions).answers.keys() == questions.keys()


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_base_address_with_or_without_version(server: Server, suffix: str) -> None:
    async def main() -> DecisionResponse:
        async with httpx2.AsyncClient(verify=False) as client:
            model = model_of("system-one", server.url + suffix, client)
            request = DecisionRequest(state="text", questions={"q": NoulQuestion(instructions="Sure?")})
            return await model.decide(request, {})

    assert asyncio.run(main()).answers.keys() == {"q"}


@both
def test_model_by_name_and_address_from_the_environment(
    keyed: Server, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = kind.upper().replace("-", "_")
    monkeypatch.setenv(f"{prefix}_BASE_URL", keyed.url)
    monkeypatch.setenv(f"{prefix}_API_KEY", KEY)

    async def main() -> Ticket:
        async with Agent(f"{kind}:any-name", output_type=Ticket) as agent:
            return (await agent.run("I was charged twice.")).output

    assert isinstance(asyncio.run(main()), Ticket)


@both
def test_settings_that_clients_add_are_ignored(server: Server, kind: str) -> None:
    plain, _ = run_agent(kind, server, "I was charged twice.")
    extra: dict[str, Any] = {"extra_body": {"keep_alive": None, "user": "u"}}
    if kind == "system-one":
        extra["temperature"] = 0.7
    result, _ = run_agent(kind, server, "I was charged twice.", **extra)
    assert result.output == plain.output


@both
def test_a_wrong_key_is_401(keyed: Server, kind: str) -> None:
    with pytest.raises(ModelHTTPError) as caught:
        run_agent(kind, keyed, "text", key="wrong")
    assert caught.value.status_code == 401
    assert isinstance(caught.value.body, dict)
    assert list(caught.value.body) == ["detail"]


def test_no_key_at_all_is_401_too(keyed: Server) -> None:
    with pytest.raises(ModelHTTPError) as caught:
        run_agent("system-one", keyed, "text")
    assert caught.value.status_code == 401


@both
def test_an_invalid_question_is_422_that_names_it(server: Server, kind: str) -> None:
    labels: dict[str, Any] = dict.fromkeys(map(str, range(257)))
    with pytest.raises(ModelHTTPError) as caught:
        decide(kind, server, "text", {"faulty-one": ChoiceQuestion(instructions="Which?", criteria=labels)})
    assert caught.value.status_code == 422
    assert "faulty-one" in str(caught.value.body)


def test_503_is_retried_by_the_model_that_retries(tight: Server) -> None:
    with busy(tight):
        started = time.monotonic()
        result, bodies = run_agent("typesafe", tight, "I was charged twice.")
        assert time.monotonic() - started >= 1.0
    assert isinstance(result.output, Ticket)
    assert [list(body) for body in bodies[:-1]] == [["detail"]]


def test_503_reaches_the_caller_of_the_model_that_does_not(tight: Server) -> None:
    with busy(tight), pytest.raises(ModelHTTPError) as caught:
        run_agent("system-one", tight, "text")
    assert caught.value.status_code == 503
