"""`decided eval`: the whole way from labels to a report, for people, for machines, and as a page."""

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import Run
from tests.page.browser import chromium
from tests.support.scripted_server import ReceivedRequest, Scripted, scripted_server
from tests.support.server import Server
from tests.test_calibrate import CHOICE, NOUL, labels, written

NAMES = ["Which?", "How much?", "Is it so?"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "labels.jsonl", labels(60))


def sections(done_out: str) -> dict[str, Any]:
    return {section["title"]: section for section in json.loads(done_out)["sections"]}


def test_the_report_has_what_the_rows_say(decided: Run, path: Path, server: Server) -> None:
    done = decided("eval", path, "--json")
    assert (done.code, done.err) == (0, "")
    report = json.loads(done.out)
    found = sections(done.out)
    assert (report["model"], report["lines"], report["skipped"]) == ("fake", 120, 0)
    assert set(found) == {"all questions", *NAMES}
    assert found["all questions"]["a"]["scores"]["rows"] == 180
    nouls = found["Is it so?"]["a"]
    assert nouls["scores"]["accuracy"]["value"] == 0.8  # as `labels` makes them
    assert (
        sum(map(sum, nouls["confusion"])) == sum(nouls["histogram"]) == sum(rows for rows, _, _ in nouls["bins"]) == 60
    )
    right = [line["answers"]["which"] for line in labels(60) if "answers" in line]
    states = [line["state"] for line in labels(60) if "answers" in line]
    said = [server.ask(state, {"q": CHOICE}).json["answers"]["q"]["choice"] for state in states]
    expected = sum(a == b for a, b in zip(right, said, strict=True)) / 60
    assert found["Which?"]["a"]["scores"]["accuracy"]["value"] == pytest.approx(expected)
    assert decided("eval", path, "--json").out == done.out  # chance is seeded


def test_a_table_for_people(decided: Run, path: Path) -> None:
    done = decided("eval", path)
    first, *_ = done.out.splitlines()
    assert re.fullmatch(rf"fake on {re.escape(str(path))}, \d{{4}}-\d\d-\d\d: 120 lines", first)
    assert "Is it so? (noul)" in done.out
    assert re.search(r"fake +60 +80\.0% +68\.2%-88\.2% ", done.out)  # the interval after Wilson
    assert "confidence from   0.00" in done.out
    assert "actual / predicted" in done.out


def test_texts_are_no_commands_to_the_terminal(decided: Run, tmp_path: Path) -> None:
    question = {"type": "choice", "criteria": {"red": None, "\x1b[31mblue": None}}
    rows = [
        {"state": f"\x1b[2J{n} \x9b1m", "question": question, "answer": name}
        for n in "12"
        for name in question["criteria"]
    ]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = decided("eval", tmp_path / "labels.jsonl")
    assert done.code == 0
    assert not {"\x1b", "\x9b"} & set(done.out)
    assert "\\x1b[2J" in done.out


def test_two_models_on_the_same_rows(decided: Run, path: Path, server: Server) -> None:
    done = decided("eval", path, "--against", f"fake-remote:{path}", "--json")
    assert done.code == 0
    report = json.loads(done.out)
    assert (report["model"], report["against"]) == ("fake", "far")
    for section in report["sections"]:
        one = section["comparison"]
        first, second = (section[part]["scores"]["accuracy"]["value"] for part in "ab")
        assert one["accuracy"]["value"] == pytest.approx(first - second)
        assert (one["only_a_right"] - one["only_b_right"]) / one["rows"] == pytest.approx(first - second)
    same = decided("eval", path, "--against", server.url)
    assert "difference in accuracy +0.0% (+0.0% to +0.0%): only the first is right in 0 rows" in same.out
    assert "McNemar's exact p = 1" in same.out


def test_a_key_goes_to_one_server_alone(decided: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two servers, neither sees the other's key; one address given twice is one server."""
    written(path, [{"state": "s", "question": NOUL, "answer": True}])
    monkeypatch.setenv("SERVICE_API_KEY", "first-key")
    with scripted_server(_first) as (first, log), scripted_server(_first) as (second, other_log):
        decided("eval", path, "--server", first, "--against", second)
        assert {asked.headers.get("authorization") for asked in log} == {"Bearer first-key"}
        assert {asked.headers.get("authorization") for asked in other_log} == {None}
        other_log.clear()
        monkeypatch.setenv("SERVICE_AGAINST_API_KEY", "second-key")
        decided("eval", path, "--server", first, "--against", second)
        assert {asked.headers.get("authorization") for asked in other_log} == {"Bearer second-key"}
        other_log.clear()
        decided("eval", path, "--against", second)
        assert {asked.headers.get("authorization") for asked in other_log} == {"Bearer second-key"}
        log.clear()
        decided("eval", path, "--server", first, "--against", f"{first}/v1/")
        assert {asked.headers.get("authorization") for asked in log} == {"Bearer first-key"}


def _first(asked: ReceivedRequest) -> Scripted:
    """A server that knows one line: a noul, to which it says yes."""
    if asked.path == "/v1/models":
        entry = {"name": "first", "description": "", "release_date": "2026-01-01", "kind": "scripted"}
        return Scripted(body={"models": [entry]})
    answers = {name: {"type": "noul", "noul": 0.9} for name in asked.body["questions"]}
    usage = {"input_tokens": 1, "output_tokens": 0}
    return Scripted(body={"model": "first", "results": [{"model": "first", "answers": answers, "usage": usage}]})


def test_a_server_gives_the_same_report(decided: Run, path: Path, server: Server) -> None:
    here, there = decided("eval", path, "--json"), decided("eval", path, "--json", "--server", server.url)
    told = json.loads(there.out)
    assert told["settings"] == [f"server {server.url}"]
    assert json.loads(here.out) == told | {"settings": []}


def test_a_server_has_its_own_model(decided: Run, path: Path, server: Server) -> None:
    """Flags about a model are refused beside it, unless they are of the model that it is compared with."""
    at_server = ("eval", path, "--server", server.url)
    done = decided(*at_server, "--model", "fake")
    assert (done.code, done.out) == (2, "")
    assert "--server and --model cannot be combined" in done.err
    assert decided(*at_server, "--against", server.url, "--temperature", "2").code == 2
    assert decided(*at_server, "--against", "fake", "--temperature", "2").code == 0
    assert decided(*at_server, "--against", "fake", "--model", "fake").code == 2


def test_a_key_that_is_missing_is_told_with_where_to_put_it(decided: Run, path: Path, server: Server) -> None:
    written(path, [{"state": "s", "question": NOUL, "answer": True}])  # one: what is refused at once breaks no pipe
    refusal = Scripted(401, {"detail": "missing or wrong API key"})
    models = Scripted(body={"models": [{"name": "m", "description": "", "release_date": "", "kind": ""}]})
    with scripted_server(lambda asked: models if asked.path == "/v1/models" else refusal) as (url, _):
        done = decided("eval", path, "--server", url)
        assert (done.code, "AGAINST" in done.err) == (3, False)
        assert "put the key in SERVICE_API_KEY, or give --api-key" in done.err
        for flags in ((), ("--server", server.url)):
            done = decided("eval", path, "--against", url, *flags)
            assert (done.code, "put the key in SERVICE_AGAINST_API_KEY" in done.err) == (3, True)


def test_lines_that_cannot_be_used_are_named_and_left_out(decided: Run, tmp_path: Path) -> None:
    rows = [{"state": state, "question": NOUL, "answer": True} for state in ("a", "FAIL", "b")]
    path = written(tmp_path / "labels.jsonl", [{"state": 1}, *rows])
    done = decided("eval", path)
    assert ": 2 lines, 2 skipped\n" in done.out
    assert "skipped line 1" in done.err
    assert "skipped line 3: inference failed" in done.err


def test_rows_without_a_text_are_named(decided: Run, tmp_path: Path) -> None:
    """Each of them once, whichever of the questions has a label there."""
    asked, path = tmp_path / "q.json", tmp_path / "labels.csv"
    asked.write_text(json.dumps({"so": NOUL, "too": NOUL}))
    path.write_text("text,so,too\na,yes,no\n,yes,\nb,no,yes\n ,,yes\n,yes,yes\n")
    done = decided("eval", path, "--questions", asked)
    assert ": 2 rows, 3 skipped\n" in done.out
    assert done.err == "".join(f"skipped row {number}: it has no text\n" for number in (2, 4, 5))


def test_lines_that_are_not_named_are_counted(decided: Run, tmp_path: Path) -> None:
    """Of those that cannot be read, and of those that get no answer."""
    row = {"question": NOUL, "answer": True}
    unread = [{"state": 1}] * 23
    failing = [{"state": "FAIL", **row}] * 22 + [{"state": str(n), **row} for n in range(23)]
    done = decided("eval", written(tmp_path / "labels.jsonl", [*unread, *failing]))
    assert ": 23 lines, 45 skipped\n" in done.out
    assert done.err.count("skipped line") == 40
    assert "... and 3 more like these\n" in done.err
    assert "... and 2 more like these\n" in done.err


def test_questions_too_many_to_tell_apart_are_put_together_by_type(decided: Run, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"state": str(n), "question": {"type": "noul", "instructions": f"Is it {n}?"}, "answer": n % 2 == 0}
        for n in range(30)
    ]
    rows += [
        {"state": str(n), "question": {"type": "choice", "criteria": {f"{n}a": None, f"{n}b": None}}, "answer": f"{n}a"}
        for n in range(30)
    ]
    found = sections(decided("eval", written(tmp_path / "labels.jsonl", rows), "--json").out)
    assert set(found) == {"all questions", "all of type noul", "all of type choice"}
    assert found["all of type noul"]["a"]["scores"]["macro_f1"] is not None
    assert found["all of type choice"]["a"]["scores"]["macro_f1"] is None  # their options are not the same
    assert "confusion" not in found["all of type choice"]["a"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["no-such-file"], 2, "no-such-file cannot be read"),
        (["LABELS", "--html", "no/such/folder.html"], 2, "must be a file in a directory that exists"),
        (["LABELS", "--model", "nothing"], 3, "unknown kind"),
        (["LABELS", "--against", "nothing"], 3, "unknown kind"),
        (["LABELS", "--model", "fake:broken", "--against", "http://"], 2, "--against must be an address such as http:"),
        (["LABELS", "--model", "fake:broken", "--against", "127.0.0.1:80"], 2, "--against must be an address such as"),
        (["LABELS", "--server", "127.0.0.1:80"], 2, "--server must be an address such as http://127.0.0.1:8000, not"),
        (["EMPTY"], 2, "is empty"),
        (["USELESS"], 2, "none of the lines can be used"),
        (["labels.CSV"], 2, "labels.CSV: a table needs --questions FILE"),
        (["FAILING"], 3, "no answer to 3 of 4 lines"),
    ],
)
def test_mistakes(decided: Run, tmp_path: Path, path: Path, arguments: list[str], code: int, said: str) -> None:
    row = {"question": NOUL, "answer": True}
    files = {
        "LABELS": path,
        "EMPTY": written(tmp_path / "empty", []),
        "USELESS": written(tmp_path / "useless", [{"a": 1}]),
        "FAILING": written(tmp_path / "failing", [{"state": s, **row} for s in ("FAIL", "FAIL", "FAIL", "ok")]),
    }
    done = decided("eval", *(files.get(argument, argument) for argument in arguments))
    assert done.code == code
    assert said in done.err
    assert "Traceback" not in done.err


# --- the page ---


def test_a_page_that_cannot_be_written_is_found_out_before_the_model_is_asked(
    decided: Run, path: Path, tmp_path: Path
) -> None:
    """And trying changes nothing that is there, and leaves nothing."""
    done = decided("eval", path, "--html", "/proc/page.html", "--model", "fake:broken")
    assert done == (2, "", "decided: /proc/page.html cannot be written: No such file or directory\n")
    there, new = tmp_path / "there.html", tmp_path / "new.html"
    there.write_text("as it was")
    for html in (there, new):
        assert decided("eval", path, "--html", html, "--model", "fake:broken").code == 3
    assert there.read_text() == "as it was"
    assert sorted(tmp_path.iterdir()) == [path, there]


def test_a_disk_that_is_full_in_the_end_costs_the_page_and_not_the_report(decided: Run, path: Path) -> None:
    for flags in ((), ("--json",)):
        done = decided("eval", path, "--html", "/dev/full", *flags)
        assert (done.code, done.err) == (2, "decided: /dev/full cannot be written: No space left on device\n")
        assert done.out == decided("eval", path, *flags).out


class Page(HTMLParser):
    """What stands on a page, and whether its tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_page_is_whole_and_asks_nothing_of_the_network(decided: Run, tmp_path: Path) -> None:
    hostile = "</title><script>alert(1)</script>\"'&"
    question = {"type": "choice", "instructions": hostile, "criteria": {hostile: None, "b": None}}
    rows: list[dict[str, Any]] = [{"state": str(n), "question": question, "answer": "b"} for n in range(25)]
    path, html = written(tmp_path / "labels.jsonl", [*rows, *labels(10)]), tmp_path / "report.html"
    done = decided("eval", path, "--html", html, "--against", f"fake-remote:{path}")
    assert (done.code, f"written: {html}" in done.out) == (0, True)
    text = html.read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object"}
    assert not [value for _, given in page.tags for name, value in given.items() if name in ("src", "href")]
    assert "http://" not in text
    assert "https://" not in text
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert hostile in page.words
    pictures = [given for tag, given in page.tags if tag == "svg"]
    assert len(pictures) == 3 * 5  # all questions, and the four kinds of them
    assert all(given["role"] == "img" and given["aria-label"] for given in pictures)
    numbers = re.findall(r'(?:points|[xy][12]?|c[xy]|r|width|height)="([^"]*)"', text)
    assert numbers
    assert all("nan" not in number and "inf" not in number for number in numbers)


def test_the_page_in_a_real_browser(decided: Run, path: Path, tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    assert decided("eval", path, "--html", html).code == 0
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'browser'}"]
    done = subprocess.run(
        [chromium(), *flags, "--enable-logging=stderr", "--dump-dom", html.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "<h2>all questions</h2>" in done.stdout
    assert "CONSOLE" not in done.stderr  # where a browser says what it refused or could not read
