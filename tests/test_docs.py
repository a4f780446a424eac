"""The docs are complete and true: what they must name is read from the code, and their examples are run.

An example is a `sh` block with a curl call; the `json answer` or `ndjson answer` block after it is what the server
said, in float32. When the model or the contract changed, `make numbers` writes those blocks anew.
"""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import Field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import pytest

from decided.cli import INTERRUPTED
from decided.commands import parser as command_line
from decided.contract import decoding as reading
from decided.contract import types as contract
from decided.engines.api import KINDS
from decided.errors import WORKER_LOST_EXIT_CODE, DecidedError, StartError
from decided.settings import Settings, all_settings, default_of, flag, in_words, variable
from decided.web import connection, listener, parser
from decided.web.playground import Playground
from decided.web.routes import App
from tests.support.precision import AGREEMENT, documented_server
from tests.support.server import Server, running_server, untraced

T = TypeVar("T")

ROOT = Path(__file__).parents[1]
README, API, SETTINGS, BEHAVIOUR = (
    ROOT / name for name in ("README.md", "docs/api.md", "docs/settings.md", "docs/behaviour.md")
)
PAGES = [README, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
ADDRESS = f"http://127.0.0.1:{Settings().port}"
ANSWER, ANSWER_LINES = "json answer", "ndjson answer"
ANSWER_WIDTH = 110
DECIMALS = 4

# Constant of the code -> its row in the table of limits.
LIMITS = {
    "MAX_QUESTIONS": "questions per state",
    "MAX_OPTIONS": "options or levels per question",
    "MAX_REMOTE_OPTIONS": "the same, with a remote engine",
    "MAX_STATE_CHARACTERS": "characters of a state",
    "MAX_STATES": "states per batch",
    "MAX_REQUEST_ID_CHARACTERS": "request id that is echoed",
    "MAX_HEAD_BYTES": "request line and headers",
    "MAX_DRAINED_BYTES": "rest of a refused body that is read and dropped",
    "MAX_BYTES_AHEAD": "bytes sent ahead of their turn on a connection",
    "KEEP_ALIVE_S": "a connection without a whole head",
}
SET_LIMITS = {
    "max_body_bytes": "request body, as received and as decoded",
    "max_in_flight": "requests admitted at a time",
    "max_connections": "connections open at a time",
    "request_timeout_s": "time to answer",
}


class Block(NamedTuple):
    """A fenced block: its page, first line, language and text."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def is_curl(self) -> bool:
        return self.language == "sh" and "curl " in self.text


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)
    return [Block(page, text.count("\n", 0, one.start()) + 1, one[1], one[2]) for one in found]


ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]
CURLS = [block for block in ALL_BLOCKS if block.is_curl]
ANSWERS = {
    before: after
    for page in PAGES
    for before, after in pairwise(blocks(page))
    if after.language in (ANSWER, ANSWER_LINES)
}  # the curl block -> what it shows


def place(value: object) -> str:
    return f"{value.page.name}:{value.line}" if isinstance(value, Block) else str(value)


def section(page: Path, title: str) -> str:
    """The text under a heading, up to the next of its rank."""
    found = re.search(rf"^## {re.escape(title)}\n((?:(?!## ).*\n)*)", page.read_text(), re.MULTILINE)
    assert found is not None, f"{page.name} has no section {title!r}"
    return found[1]


def table(text: str) -> list[list[str]]:
    """The cells of all table rows in a text, heads and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rules = [index for index, row in enumerate(rows) if set("".join(row)) == {"-"}]
    return [row for index, row in enumerate(rows) if index not in rules and index + 1 not in rules]


def tree(kind: type[T]) -> Iterator[type[T]]:
    yield kind
    for each in kind.__subclasses__():
        yield from tree(each)


def routes() -> dict[str, str]:
    """Path -> method."""
    app = App(cast(Any, SimpleNamespace(ledger=object())), cast(Any, None), 0, Playground())
    return {path: method for path, (method, _) in app._routes.items()}


# --- what must be named ---


@pytest.mark.parametrize("item", all_settings(), ids=lambda item: str(item.name))
def test_setting(item: Field[Any]) -> None:
    (row,) = [row for row in table(SETTINGS.read_text()) if len(row) == 5 and row[1] == f"`{variable(item)}`"]
    default = default_of(item)
    assert row[0] == ("" if item.metadata["secret"] else f"`{flag(item)}`")
    shown = f"{default:g}" if isinstance(default, float) else in_words(default)
    assert row[2] == ("" if default is None else f"`{shown}`")
    assert row[4]
    try:
        item.metadata["read"](" ")
    except ValueError as refusal:
        if bounds := re.search(r" from (\S+ to \S+)$| one of (.+)$", str(refusal)):
            assert row[3] == (bounds[1] or bounds[2])


def test_no_setting_is_named_that_does_not_exist() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    flags = {flag(item) for item in all_settings() if not item.metadata["secret"]}
    assert set(re.findall(r"`(--[a-z][a-z-]+)", text)) <= flags | command_flags()
    assert set(re.findall(r"\bSERVICE_[A-Z_]*[A-Z]", text)) == {variable(item) for item in all_settings()}


def command_flags() -> set[str]:
    """The flags of all commands."""
    parser = command_line._parser()
    (commands,) = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
    return {flag for command in commands.values() for flag in command._option_string_actions}


def test_kinds_of_models() -> None:
    assert {row[0] for row in table(section(SETTINGS, "Models"))} == {f"`{kind}`" for kind in KINDS}


def test_exit_codes() -> None:
    codes = {str(kind.exit_code) for kind in tree(StartError)}
    assert {row[0] for row in table(section(SETTINGS, "Exit codes"))} == {
        "0", *codes, str(WORKER_LOST_EXIT_CODE), str(INTERRUPTED),
    }  # fmt: skip


def test_routes() -> None:
    headings = re.findall(r"^## ([A-Z]+) (/\S*)$", API.read_text(), re.MULTILINE)
    assert {path: method for method, path in headings} == routes()
    rows = table(section(README, "Endpoints"))
    assert {re.sub(r"^\[`(.*)`\].*", r"\1", row[1]): row[0] for row in rows} == routes()


def test_limits() -> None:
    rows = {row[0]: row for row in table(section(API, "Limits"))}
    found = {
        name: value
        for module in (contract, reading, connection, listener, parser)
        for name, value in vars(module).items()
        if type(value) in (int, float) and name.isupper() and not name.startswith("_")
    }
    assert set(found) == set(LIMITS)
    shown = {row: found[name] for name, row in LIMITS.items()}
    shown |= {row: getattr(Settings(), name) for name, row in SET_LIMITS.items()}
    assert {row: cells[1].split()[0] for row, cells in rows.items()} == {
        row: f"{value:,g}" if isinstance(value, float) else f"{value:,}" for row, value in shown.items()
    }
    for name, row in SET_LIMITS.items():
        assert any(word in rows[row][2] for word in (f"--{name.replace('_', '-')}", f"SERVICE_{name.upper()}"))


def test_error_statuses() -> None:
    rows = table(section(API, "Errors"))
    kinds = list(tree(DecidedError))
    assert {row[0] for row in rows} == {str(kind.status) for kind in kinds}
    headers = {(kind.status, name, value) for kind in kinds for name, value in kind.headers}
    for status, name, value in headers:
        written = f"{name.decode()}: {value.decode()}".lower()
        assert any(row[0] == str(status) and written in row[2].lower() for row in rows)
    for detail in ("inference failed", "internal server error"):
        assert any(row[0] == "500" and f"`{detail}`" in row[1] for row in rows)


def test_wire_fields() -> None:
    text = API.read_text()
    structs = [kind for _, kind in inspect.getmembers(contract, inspect.isclass) if issubclass(kind, msgspec.Struct)]
    assert len(structs) > 10
    names = {field.encode_name for kind in structs for field in msgspec.structs.fields(kind)}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
    for part in reading.UNSERVED_PARTS:
        assert f"`{part}`" in text


def test_metrics(server: Server) -> None:
    server.ask("Some state.")
    server.ask("Some state.", {})
    exposition = server.get("/metrics").body.decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE))
    rows = {row[0].strip("`"): row for row in table(section(BEHAVIOUR, "Metrics"))}
    assert {name: row[1] for name, row in rows.items()} == kinds
    for name, row in rows.items():
        series = re.search(rf"^{name}(?:_bucket)?(?:{{(.*)}})? ", exposition, re.MULTILINE)
        assert series is not None
        labels = set(re.findall(r'(\w+)="', series[1] or "")) - {"le"}
        assert set(re.findall(r"`(\w+)`", row[2])) == labels
        if row[1] == "histogram":
            bounds = re.findall(rf'^{name}_bucket{{.*le="([\d.]+)"', exposition, re.MULTILINE)
            steps = ", ".join(f"{float(bound):g}" for bound in dict.fromkeys(bounds))
            assert f"{steps}." in section(BEHAVIOUR, "Metrics").replace("\n", " ")
    for error in tree(DecidedError):
        if error.refusal:
            assert f"`{error.refusal}` ({error.status}" in rows["service_rejected_total"][3]


@pytest.mark.parametrize("style", ["text", "json"])
def test_log_line(style: str) -> None:
    (shown,) = [block.text for block in blocks(BEHAVIOUR) if block.language == style and "endpoint" in block.text]
    with running_server("--log-format", style) as server:
        server.ask("Some state.")
        server.stop()
        (real,) = [line for line in server.log().splitlines() if "/v1/systemone" in line]
    if style == "json":
        assert [(name, type(value)) for name, value in json.loads(shown).items()] == [
            (name, type(value)) for name, value in json.loads(real).items()
        ]
    else:
        assert re.sub(r"[0-9a-f]{32}|[\d.]+", "#", shown.strip()) == re.sub(r"[0-9a-f]{32}|[\d.]+", "#", real)


def test_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] in (ROOT / "CHANGELOG.md").read_text()
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in README.read_text()


# --- what must be true ---


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_links_and_names_resolve(page: Path) -> None:
    text = re.sub(r"^```(?:.*\n)*?```$", "", page.read_text(), flags=re.MULTILINE)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        assert linked.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}"
    for path in re.findall(r"`((?:tests|docs|benchmarks|training|src|deploy)/[^`]*)`", text):
        assert (ROOT / path).exists(), f"{page.name} names {path}"
    for goal in re.findall(r"\bmake ([a-z]+)[`\n]", page.read_text()):
        assert re.search(rf"^{goal}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"{page.name} names make {goal}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language.startswith("json")], ids=place)
def test_json_is_json(block: Block) -> None:
    assert json.loads(block.text)


@pytest.fixture(scope="module")
def default_server() -> Iterator[Server]:
    with documented_server() as running:
        yield running


def test_examples_are_found() -> None:
    assert {README, API} <= {block.page for block in CURLS}
    assert all(before.is_curl for before in ANSWERS)
    assert next(block for block in CURLS if block.page == README) in ANSWERS


@pytest.mark.parametrize("block", CURLS, ids=place)
def test_curl_example(default_server: Server, block: Block) -> None:
    real = run_curl(default_server, block)
    if block in ANSWERS:
        assert_like(parsed(ANSWERS[block].text), parsed(real), "$")
    else:
        assert real
        assert not real.startswith('{"detail"')


@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language == "python"], ids=place)
def test_python_example(default_server: Server, block: Block) -> None:
    assert run_python(default_server, block)


def run_python(server: Server, block: Block) -> str:
    assert ADDRESS in block.text
    code = block.text.replace(ADDRESS, server.url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment())
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def parsed(text: str) -> list[Any]:
    """One JSON value, or one a line; those of a stream come in any order."""
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return sorted(map(json.loads, text.splitlines()), key=lambda line: line["index"])


def run_curl(server: Server, block: Block) -> str:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    assert ADDRESS in block.text
    command = block.text.replace(ADDRESS, server.url)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=300, env=environment())
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def environment() -> dict[str, str]:
    """The environment of a newcomer: no proxies in between, no settings of a client. Nor is such a process traced: what
    the docs show, other tests run in their own."""
    kept = {name: value for name, value in untraced({**os.environ}).items() if not name.lower().endswith("_proxy")}
    return {name: value for name, value in kept.items() if not name.startswith(("TYPESAFE_", "SERVICE_"))}


def assert_like(shown: Any, real: Any, where: str) -> None:
    """The same keys in the same order, the same words, and numbers but for their rounding."""
    assert type(shown) is type(real) or {type(shown), type(real)} == {int, float}, where
    if isinstance(shown, dict):
        assert list(shown) == list(real), where
        for key in shown:
            assert_like(shown[key], real[key], f"{where}.{key}")
    elif isinstance(shown, list):
        assert len(shown) == len(real), where
        for index, pair in enumerate(zip(shown, real, strict=True)):
            assert_like(*pair, f"{where}[{index}]")
    elif isinstance(shown, float):
        assert shown == pytest.approx(real, abs=AGREEMENT + 0.5 * 10**-DECIMALS), where
    else:
        assert shown == real, where


# --- writing the answers anew ---


def laid_out(value: Any, indent: int = 0) -> str:
    """JSON for reading: on one line where it fits, numbers to four decimals."""
    value = round(value, DECIMALS) if isinstance(value, float) else value
    if isinstance(value, dict | list) and value:
        pairs = value.items() if isinstance(value, dict) else [(None, each) for each in value]
        inner = [("" if key is None else json.dumps(key) + ": ", each) for key, each in pairs]
        start, end = "{}" if isinstance(value, dict) else "[]"
        line = start + ", ".join(key + laid_out(each, -(10**6)) for key, each in inner) + end
        if len(line) + indent <= ANSWER_WIDTH:
            return line
        pad = " " * (indent + 2)
        lines = ",\n".join(pad + key + laid_out(each, indent + 2) for key, each in inner)
        return f"{start}\n{lines}\n{' ' * indent}{end}"
    return json.dumps(value, ensure_ascii=False)


def rewrite() -> None:
    with documented_server() as server:
        for curl, answer in ANSWERS.items():
            indent = -(10**6) if answer.language == ANSWER_LINES else 0  # a line is a line, however long
            new = "".join(laid_out(value, indent) + "\n" for value in parsed(run_curl(server, curl)))
            old = f"{curl.text}```"
            before, _, after = curl.page.read_text().partition(old)
            fence = f"```{answer.language}\n"
            after = after.replace(f"{fence}{answer.text}```", f"{fence}{new}```", 1)
            curl.page.write_text(before + old + after)
