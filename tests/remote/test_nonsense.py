"""An engine whose numbers are none: every kind tells nonsense from an answer, and nothing of it is passed on."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.remote.fake_engine import FakeEngine
from tests.remote.test_kinds import TOPIC, decided
from tests.support.server import Server

KINDS = ("openai", "llamacpp", "lmstudio", "ollama", "systemone")
"""Those that read their answers each in its way; vLLM and SGLang answer as `openai` does."""

BEYOND_FLOATS = "1" + "0" * 310
SHARE = r'"(logprob|prob|one|two|three)": [-\d.e]+'
READ = r'"(prompt_tokens|prompt_eval_count|input_tokens)": \d+'
SAID = r'"(completion_tokens|eval_count|output_tokens)": \d+'
NO_NUMBERS = ['"0.5"', '"-0.5"', '" nan "', '""', "true", "false", "null", "[]", "[0.5]", "{}", "NaN", "1e400", "1_0"]


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeEngine]:
    with FakeEngine() as running:
        yield running


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, engine: FakeEngine) -> Iterator[Server]:
    with decided(engine, request.param) as running:
        yield running


def check_refused(server: Server, engine: FakeEngine, pattern: str, value: str) -> None:
    """It fails as the contract says, with nothing unforeseen in the log and nothing in the metrics."""
    engine.spoil = (pattern, rf'"\g<1>": {value}')
    counted = tokens(server)
    reply = server.ask("FAULT=spoilt", {"q": TOPIC})
    assert (reply.status, reply.detail) == (500, "inference failed")
    assert tokens(server) == counted
    assert "Traceback" not in server.log()


def tokens(server: Server) -> tuple[float, ...]:
    return tuple(server.metric(f'service_tokens_total{{direction="{way}"}}') for way in ("input", "output"))


def kind_of(server: Server) -> str:
    return str(server.get("/health").json["kind"])


@pytest.mark.parametrize("value", [*NO_NUMBERS, "1.5", "1e308", BEYOND_FLOATS, f"-{BEYOND_FLOATS}", "1" + "0" * 5000])
def test_a_probability_that_is_none_is_a_failure(server: Server, engine: FakeEngine, value: str) -> None:
    check_refused(server, engine, SHARE, value)


@pytest.mark.parametrize("value", ["0", "-0.5", "-1e308"])
def test_what_may_be_a_logarithm_is_no_probability(server: Server, engine: FakeEngine, value: str) -> None:
    if kind_of(server) in ("llamacpp", "systemone"):
        check_refused(server, engine, SHARE, value)


@pytest.mark.parametrize("pattern", [READ, SAID], ids=["read", "said"])
@pytest.mark.parametrize(
    "value", ['"7"', '""', "true", "false", "[]", "{}", "-5", "1.9", "1e300", "1000000001", BEYOND_FLOATS]
)
def test_a_count_of_tokens_is_a_whole_number_in_reason(
    server: Server, engine: FakeEngine, pattern: str, value: str
) -> None:
    check_refused(server, engine, pattern, value)


def test_some_engines_do_not_count(server: Server, engine: FakeEngine) -> None:
    if kind_of(server) == "systemone":  # there, the protocol wants it
        check_refused(server, engine, READ, "null")
        return
    engine.spoil = (READ, r'"\1": null')
    reply = server.ask("FAULT=spoilt", {"q": TOPIC})
    assert (reply.status, reply.json["usage"]) == (200, {"input_tokens": 0, "output_tokens": 1})


@pytest.mark.parametrize("value", ["1e308", BEYOND_FLOATS])
def test_in_a_stream_every_state_has_its_line(server: Server, engine: FakeEngine, value: str) -> None:
    engine.spoil = (SHARE, rf'"\1": {value}')
    body = {"states": ["fine", "FAULT=spoilt", "also fine", "FAULT=spoilt too"], "questions": {"q": TOPIC}}
    reply = server.request("POST", "/v1/systemone/batch", body, {"Accept": "application/x-ndjson"})
    lines = sorted((json.loads(line) for line in reply.body.splitlines()), key=lambda line: int(line["index"]))
    assert [line.get("status", 200) for line in lines] == [200, 500, 200, 500]
    assert lines[1] == {"index": 1, "status": 500, "detail": "inference failed"}
    assert "Traceback" not in server.log()


def test_a_token_is_text(server: Server, engine: FakeEngine) -> None:
    """As deep as JSON can be read, and too deep to be written."""
    if kind_of(server) != "systemone":
        for depth in (1, *range(900, 1000)):
            engine.spoil = (r'"token": "[^"]*"', f'"token": {"[" * depth}{"]" * depth}')
            assert server.ask("FAULT=spoilt", {"q": TOPIC}).detail == "inference failed"
        assert "Traceback" not in server.log()


@pytest.mark.parametrize("figures", ["9" * 5000 + " of 3", "3 of " + "9" * 5000, "12 of 3", "٣ of ٩", "-3 of 9"])
def test_a_cut_in_impossible_figures_is_told_as_an_estimate(engine: FakeEngine, figures: str) -> None:
    with decided(engine, "systemone") as server:
        reply = server.ask("CUT " + "long " * 50, {"q": TOPIC})
        assert reply.json["warnings"] == ['question "q": the model read 3 of 9 tokens of the state']
        engine.spoil = ("3 of 9", json.dumps(figures)[1:-1].replace("\\", r"\\"))
        reply = server.ask("FAULT=spoilt CUT " + "long " * 50, {"q": TOPIC})
        assert (reply.status, reply.json["answers"]["q"]["truncated"]) == (200, True)
        assert re.fullmatch(
            r'question "q": the model read 52 of about 6\d tokens of the state', *reply.json["warnings"]
        )
        assert "Traceback" not in server.log()


@pytest.mark.parametrize("value", [BEYOND_FLOATS, "-1", '"7"', "true", "1.0"])
def test_a_vocabulary_of_nonsense_is_not_sent_back(value: str) -> None:
    with FakeEngine(spoil=(r'"tokens": \[\d+', f'"tokens": [{value}')) as engine, decided(engine, "vllm") as server:
        assert server.get("/ready").status == 503
        reply = server.ask("fine", {"q": TOPIC})
        assert (reply.status, reply.detail) == (500, "inference failed")
        assert "Traceback" not in server.log()
        engine.spoil = ("(?!)", "")
        assert server.ask("fine", {"q": TOPIC}).status == 200
