"""docs/audit.md names every field and metric, and its example is a line."""

import json
import re

import msgspec

from decided.audit.line import DecisionLine
from tests.support.server import ROOT

PAGE = (ROOT / "docs" / "audit.md").read_text()
FIELDS = [field.encode_name for field in msgspec.structs.fields(DecisionLine)] + ["hash"]


def test_every_field_has_its_row() -> None:
    (table,) = re.findall(r"\| field \| what it is \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE)
    named = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(FIELDS)


def test_the_example_is_a_line() -> None:
    (example,) = re.findall(r"```json\n(.*)\n```", PAGE)
    assert list(json.loads(example)) == FIELDS
    fields = {name: value for name, value in json.loads(example).items() if name != "hash"}
    assert msgspec.convert(fields, DecisionLine).seq == 2


def test_the_metrics_are_named() -> None:
    source = (ROOT / "src" / "decided" / "serving" / "metrics.py").read_text()
    names = re.findall(r'CounterMetricFamily\("(service_audit_\w+)"', source)
    assert len(names) == 2
    assert [name for name in names if f"`{name}_total`" not in PAGE] == []
