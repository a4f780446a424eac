"""The questions that training makes: every one can be answered, from facts that are told, in both polarities."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import training
from training.data import example
from training.generate import FAMILIES as RECORD_FAMILIES
from training.stories import (
    FAMILIES,
    ONE_CASE,
    Domain,
    all_fillers,
    buried,
    draw,
    flag,
    number,
    similar,
    state_fact,
    tell,
)

FOLDER = Path(training.__file__).parent / "domains"
DOMAINS: list[Domain] = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: str(domain["name"]))
def test_every_family_makes_questions_with_an_answer_among_their_options(domain: Domain) -> None:
    rng = random.Random(1)
    for family in FAMILIES:
        extra = [DOMAINS[0] if domain is not DOMAINS[0] else DOMAINS[1]] if family is similar else []
        for _ in range(20):
            made: dict[str, Any] = family(rng, domain, *extra)
            assert example(made) is not None, made
            assert "{" not in made["question"]["instructions"]


def test_there_are_many_domains_and_no_name_comes_twice() -> None:
    names = [domain["name"] for domain in DOMAINS]
    assert len(names) == len(set(names)) >= 60


@pytest.mark.parametrize("family", [flag, number])
def test_yes_is_as_frequent_as_no(family: Any) -> None:
    rng = random.Random(2)
    rows = [family(rng, rng.choice(DOMAINS)) for _ in range(2_000)]
    found = Counter(row["answer"] for row in rows if row["question"]["type"] == "noul")
    assert 0.4 < found[True] / found.total() < 0.6


def test_a_fact_that_is_needed_is_told() -> None:
    rng = random.Random(3)
    for _ in range(200):
        domain = rng.choice(DOMAINS)
        key = rng.choice(domain["flags"])["key"]
        case = draw(rng, domain, [key])
        assert key in case.told
        assert tell(rng, case)
        assert state_fact(rng, domain, key, case.facts[key])


def test_a_buried_case_is_whole_wherever_it_stands() -> None:
    rng = random.Random(5)
    fillers = all_fillers(DOMAINS)
    places = []
    for family in ONE_CASE:
        for _ in range(20):
            made: dict[str, Any] = family(rng, rng.choice(DOMAINS))
            long: dict[str, Any] | None = buried(rng, made, fillers)
            assert (long is None) == (not isinstance(made["state"], str))
            if long:
                assert long["question"] == made["question"]
                assert 200 <= len(long["state"].split()) - len(made["state"].split()) <= 1_500
                places.append(long["state"].index(made["state"]) / len(long["state"]))
    assert min(places) < 0.1 < 0.8 < max(places)


@pytest.mark.parametrize("family", RECORD_FAMILIES, ids=lambda family: str(family.__name__))
def test_questions_about_records_can_be_answered(family: Any) -> None:
    rng = random.Random(4)
    assert all(example(family(rng)) is not None for _ in range(100))


def test_the_same_seed_makes_the_same_rows() -> None:
    first, second = ([flag(random.Random(5), domain) for domain in DOMAINS] for _ in range(2))
    assert first == second
