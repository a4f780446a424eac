"""Questions about records as programs send them: the answer is what the record says."""

import random
import re
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from training.gauges import NONE, gauge
from training.readouts import SPANS, change, checks, delivery, form, hours, limit, permission, window
from training.rows import Row

ROWS = 400
CAPS = {"limit", "quota", "seats", "requests_per_minute", "max_weight_kg", "budget", "in_stock", "speed_limit",
        "minimum_age", "needed", "pass_mark"}  # fmt: skip
YES = {"yes", "true", "holds", True}


def made(family: Callable[[random.Random], Row], kind: str = "") -> list[dict[str, Any]]:
    rng = random.Random(3)
    rows: list[dict[str, Any]] = [family(rng) for _ in range(ROWS)]
    return [row for row in rows if not kind or row["task"] == f"gen/{kind}"]


def said(row: dict[str, Any]) -> bool:
    """The answer of a yes/no question, however it was put."""
    return row["answer"] in YES


def amount(value: object) -> float:
    found = re.search(r"[\d.]+", str(value))
    assert found, value
    return float(found[0])


def values(state: Any) -> dict[str, float]:
    """The values of a gauge, in any of the forms that it is shown in."""
    if isinstance(state, str):
        parts = [re.split(r":? (?=\d)", part, maxsplit=1) for part in re.split(r", |\n", state)]
        return {name: amount(value) for name, value in parts}
    if isinstance(state, list):
        return {entry["name"]: amount(entry["value"]) for entry in state}
    inner = next((part for part in state.values() if isinstance(part, dict)), state)
    return {name: amount(value) for name, value in inner.items()}


def test_the_largest_and_the_smallest_of_a_gauge_are_so() -> None:
    asked = Counter[bool]()
    for row in made(gauge, "extreme"):
        shown = values(row["state"])
        most = shown[row["answer"]] == max(shown.values())
        assert most or shown[row["answer"]] == min(shown.values())
        asked[most] += 1
        if "highest" in row["question"]["instructions"]:
            assert most, row
        if re.search(r"\blowest", row["question"]["instructions"]):
            assert not most, row
    assert min(asked.values()) > 50


def test_what_is_short_is_nearly_full_and_nothing_else_is() -> None:
    for row in made(gauge, "shortage"):
        shown = values(row["state"])
        full = [name for name, value in shown.items() if (value if value <= 1 else value / 100) > 0.9]
        if row["question"]["type"] == "choice" and row["answer"] not in YES | {"no", "false", "doesNotHold"}:
            assert row["answer"] in full if full else row["answer"] in NONE
        else:
            assert said(row) == bool(full)


def test_comparisons_are_those_of_the_numbers_shown() -> None:
    seen = 0
    for row in made(gauge, "comparison"):
        shown, ask = values(row["state"]), row["question"]["instructions"]
        above = re.search(r"above ([\d.]+)", ask)
        if not above:
            continue
        bound = float(above[1].rstrip("."))
        over = [name for name, value in shown.items() if value > bound]
        if any(value == bound for value in shown.values()):
            continue  # shown alike once rounded
        if row["question"]["type"] == "score":
            assert row["answer"] == len(over)
        elif "any of them" in ask:
            assert said(row) == bool(over)
        elif named := re.search(r".* of (.+) above", ask):
            assert said(row) == (named[1] in over)
        seen += 1
    assert seen > 40


def test_only_who_the_rule_names_is_allowed() -> None:
    seen = 0
    for row in made(permission):
        state = row["state"]
        record = state.get("request", state)
        rule = state.get("rule", row["question"]["instructions"])
        only = re.search(r"\bOnly (\w+)s may", rule)
        if not only:
            continue
        allowed = only[1] == record["role"]
        refusal = re.search(r"refused|blocked|against", row["question"]["instructions"]) is not None
        if row["answer"] in ("allow", "permit", "go ahead", "deny", "block", "refuse"):
            assert (row["answer"] in ("allow", "permit", "go ahead")) == allowed
        else:
            assert said(row) == (allowed != refusal)
        seen += 1
    assert seen > 20


def test_a_window_is_as_long_as_it_says() -> None:
    lengths = {text: days for days, text in SPANS}
    for row in made(window):
        state = dict(row["state"])
        rule = state.pop("terms", row["question"]["instructions"])
        told = next(text for text in sorted(lengths, key=len, reverse=True) if text in rule)
        days = []
        for text in list(state.values())[1:]:
            if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
                days.append(date.fromisoformat(text))
            else:
                way = "%d %B %Y" if text[-4:].isdigit() else "%d %b %Y"
                full = text if text[-4:].isdigit() else f"{text} 2026"
                days.append(datetime.strptime(full, way).date())
        assert said(row) == ((days[1] - days[0]).days <= lengths[told])


def test_a_limit_is_held_or_not() -> None:
    for row in made(limit):
        numbers = {name: value for name, value in row["state"].items() if name != "name"}
        (cap,) = (number for name, number in numbers.items() if name in CAPS)
        (value,) = (number for name, number in numbers.items() if name not in CAPS)
        ask = row["question"]["instructions"]
        fits = ask in ("Is this within what is allowed?", "OK?", "Does it fit?")
        assert said(row) == ((value > cap) != fits)


def test_what_is_missing_was_ordered_and_did_not_come_in_full() -> None:
    for row in made(delivery):
        ordered, came = row["state"].values()
        short = [name for name in ordered if came.get(name, 0) < ordered[name]]
        if row["answer"] in (*ordered, *NONE):
            assert row["answer"] in short if short else row["answer"] in NONE
        else:
            assert said(row) == (bool(short) == ("missing" in row["question"]["instructions"]))


def test_a_change_is_the_field_that_differs() -> None:
    for row in made(change):
        before, after = row["state"]["before"], row["state"]["after"]
        differs = next((name for name in before if before[name] != after[name]), "nothing")
        asked = re.fullmatch(r"Did the (\w+) change\?", row["question"]["instructions"])
        assert said(row) == (asked[1] == differs) if asked else row["answer"] == differs


def test_failed_checks_are_counted_and_named() -> None:
    for row in made(checks):
        told = row["state"]
        results = told if isinstance(told, dict) else {entry["check"]: entry["result"] for entry in told}
        wrong = [name for name, result in results.items() if result in ("failed", "error", "FAIL", "red", "not ok")]
        ask = row["question"]["instructions"]
        if row["question"]["type"] == "score":
            assert row["answer"] == len(wrong)
        elif row["answer"] in (*results, *NONE):
            assert row["answer"] in wrong if wrong else row["answer"] in NONE
        elif named := re.fullmatch(r"Did (.+) fail\?", ask):
            assert said(row) == (named[1] in wrong or (named[1] == "anything" and bool(wrong)))
        else:
            assert said(row) == (not wrong)


def test_an_empty_field_is_missing_and_a_zero_is_not() -> None:
    zero = 0
    for row in made(form):
        record = row["state"]
        empty = [name for name, value in record.items() if str(value).strip() in ("", "None", "n/a", "-", "[]")]
        zero += 0 in record.values()
        ask = row["question"]["instructions"]
        if row["answer"] in (*record, *NONE):
            assert row["answer"] in empty if empty else row["answer"] in NONE
        elif given := re.fullmatch(r"Is the (.+) given\?", ask):
            assert said(row) == (given[1].replace(" ", "_") not in empty)
        else:
            assert said(row) == (bool(empty) == ("missing" in ask))
    assert zero > 5


def test_a_time_is_within_the_hours_or_not() -> None:
    for row in made(hours):
        state = row["state"]
        text = f"{state} {row['question']['instructions']}"
        if isinstance(state, str):
            at = state.split(" at ")[1]
        else:
            at = next(value for name, value in state.items() if name in ("call_at", "arrival", "requested"))
        clock = re.match(r"(\d+):(\d\d) ?([ap])?", at)
        span = re.search(r"opens': '(\d+):00', 'closes': '(\d+):00|(\d+):00-(\d+):00|from (\d+)(?::00)? to (\d+)", text)
        assert clock, row
        assert span, row
        hour = int(clock[1]) % 12 + 12 * (clock[3] == "p") if clock[3] else int(clock[1])
        opens, closes = (int(part) for part in span.groups() if part)
        assert said(row) == (opens * 60 <= hour * 60 + int(clock[2]) < closes * 60), row
