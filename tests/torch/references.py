"""What others say to a question: the packages of the models' authors, or plain transformers on whole texts.

One question about one state at a time, with the attention and the tokenizing of theirs: slow, and right.
"""

import math
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from decided.contract.types import Choice, Noul, Question, Score
from decided.engines import letters, prompts, tournament
from tests.conformance import Says


def opendecider(folder: Path) -> Says:
    import opendecider

    model = opendecider.load(str(folder), device="cpu")

    def says(state: str, question: Question) -> list[float]:
        asked = {"q": msgspec.to_builtins(question)}
        return list(model.system_one(state, asked)["answers"]["q"]["probabilities"].values())

    return says


def laya(folder: Path) -> Says:
    import laya

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agent = laya.load(str(folder), device="cpu")

    def says(state: str, question: Question) -> list[float]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer: dict[str, Any] = agent.system_one(state, {"q": msgspec.to_builtins(question)})["answers"]["q"]
        if answer["type"] == "noul":
            return [answer["noul"], 1 - answer["noul"]]
        return list(answer["probabilities"].values())

    return says


def cross_encoder(folder: Path) -> Says:
    """Each statement by itself, as pairs of texts."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    labels = network.config.label2id

    def says(state: str, question: Question) -> list[float]:
        follows = []
        for statement in prompts.hypotheses(question):
            pair = tokenizer(state, statement, return_tensors="pt", truncation="only_first", max_length=256)
            with torch.inference_mode():
                follows.append(network(**pair).logits[0])
        if len(follows) == 1:
            other = labels.get("contradiction", labels.get("not_entailment"))
            found: list[float] = follows[0][[labels["entailment"], other]].softmax(-1).tolist()
            return found
        shares: list[float] = torch.stack([logits[labels["entailment"]] for logits in follows]).softmax(-1).tolist()
        return shares

    return says


def gliclass(folder: Path) -> Says:
    """The library's own pipeline, which scores each label."""
    from gliclass import GLiClassModel, ZeroShotClassificationPipeline

    pipeline = ZeroShotClassificationPipeline(
        GLiClassModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), device="cpu",
        classification_type="multi-label", progress_bar=False,
    )  # fmt: skip

    def says(state: str, question: Question) -> list[float]:
        if isinstance(question, Noul) and question.criteria is None:
            (alone,) = pipeline([state], [[question.instructions]], threshold=0.0)[0]
            return [alone["score"], 1 - alone["score"]]
        options = [(option.key, option.description) for option in question.options()]
        if isinstance(question, Score):
            names = [about or name for name, about in options]
        else:
            names = [f"{name}: {about}" if about else name for name, about in options]
        scores = pipeline([state], [names], threshold=0.0, prompt=[question.instructions])[0]
        found: list[float] = torch.tensor([score["score"] for score in scores]).logit().softmax(-1).tolist()
        return found

    return says


class Lettered:
    """A language model that is asked for a letter."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        tokens = self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))
        self.spelled = [
            [number for number, token in enumerate(tokens) if token.strip("Ġ.()Ċ:,*\"'`;[]") == letter]
            for letter in letters.LETTERS
        ]

    def shares(self, state: str, question: Question, order: tournament.Order) -> list[float]:
        messages = prompts.lettered_prompt(state, question, letters.LETTERS, order)
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        ids = self.tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        with torch.inference_mode():
            likely = self.network(ids).logits[0, -1].softmax(-1)
        of_letters = np.array([float(likely[self.spelled[place]].sum()) for place in range(len(order))])
        found: list[float] = (of_letters / of_letters.sum()).tolist()
        return found

    def __call__(self, state: str, question: Question) -> list[float]:
        return self.shares(state, question, range(len(question.keys())))


class Worded:
    """A language model that is asked how likely the words of each option are, with the text and without it."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def __call__(self, state: str, question: Question) -> list[float]:
        if isinstance(question, Choice):
            words = [name.replace("_", " ") for name in question.criteria]
        elif isinstance(question, Noul):
            words = ["Yes", "No"]
        else:
            words = [str(level) for level in question.criteria]
        gains = [math.exp(self._said(state, question, word) - self._said("N/A", question, word)) for word in words]
        return [gain / sum(gains) for gain in gains]

    def _said(self, state: str, question: Question, word: str) -> float:
        user = f"Text:\n{state}\n\nQuestion: {question.instructions}\nAnswer with one word."
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": user}], tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        before, behind = (self.tokenizer.encode(text, add_special_tokens=False) for text in (prompt, word))
        with torch.inference_mode():
            logits = self.network(torch.tensor([[*before, *behind]])).logits[0, len(before) - 1 : -1]
        found = torch.log_softmax(logits, -1)[range(len(behind)), behind]
        return float(found.sum())
