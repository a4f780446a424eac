"""Many texts: pasted as lines or taken from a file, answered as a stream into a table, and saved as CSV."""

import csv
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.page.browser import PATIENCE_S, Playground, open_backend, pick
from tests.support.gate import Gate
from tests.support.server import Server, running_server

HEAD = ["team", "team.confidence", *(f"team.p.{name}" for name in ("billing", "delivery", "technical", "sales"))]

QUICK = "quick\n" * 8
"""As many texts as the first request asks about: what follows them is in the next."""


@pytest.fixture
def many(playground: Playground) -> Playground:
    pick(playground.page.get_by_role("radio", name="Many texts"))
    return playground


def rows(playground: Playground) -> Locator:
    return playground.page.locator("tbody tr")


def give(playground: Playground, name: str, content: bytes) -> None:
    file = {"name": name, "mimeType": "text/csv", "buffer": content}
    playground.page.get_by_label("CSV file", exact=True).set_input_files(file)  # type: ignore[arg-type]


def saved(playground: Playground, separator: str = ",") -> tuple[str, list[list[str]]]:
    with playground.page.expect_download() as download:
        playground.page.get_by_role("button", name="Download CSV").click()
    text = download.value.path().read_bytes().decode("utf-8-sig")
    return download.value.suggested_filename, list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))


def word(answer: dict[str, Any]) -> str:
    if answer["type"] == "score":
        return str(answer["level"])
    return str(answer["choice"]) if answer["type"] == "choice" else str(answer["noul"] >= 0.5).lower()


def test_lines_become_a_table_and_a_file(many: Playground, server: Server) -> None:
    texts = ["I paid twice.", "Where is it?", '=HYPERLINK("x")', 'It is <b>bold</b>, and "quoted".']
    many.text.fill("\n".join([texts[0], "", "  ", *texts[1:], ""]))
    expect(many.page.get_by_text("4 texts", exact=True)).to_be_visible()
    many.ask()
    expect(rows(many).locator("th")).to_have_text(texts)
    expect(many.page.get_by_text("4 texts in")).to_be_visible()
    results = server.batch(texts, many.body()["questions"]).json["results"]
    for row, result in zip(rows(many).all(), results, strict=True):
        shares = [100 * max(answer["probabilities"].values()) for answer in result["answers"].values()]
        shown = [float(each.removesuffix("%")) for each in row.locator(".bar-share").all_inner_texts()]
        assert shown == pytest.approx(shares, abs=0.06)
    name, (head, *table) = saved(many)
    assert name == "texts-answers.csv"
    assert head[:7] == ["text", *HEAD]
    assert head[-2:] == ["warning", "error"]
    assert [row[0] for row in table] == [texts[0], texts[1], "'" + texts[2], texts[3]]  # no formula for a spreadsheet
    for line, result in zip(table, results, strict=True):
        given = dict(zip(head, line, strict=True))
        for question, answer in result["answers"].items():
            assert given[question] == word(answer)
            assert float(given[f"{question}.confidence"]) == pytest.approx(answer["confidence"], abs=1e-6)
            for key, share in answer["probabilities"].items():
                assert float(given[f"{question}.p.{key}"]) == pytest.approx(share, abs=1e-6)


def test_the_texts_together_are_counted(many: Playground, server: Server) -> None:
    texts = [f"text {number}" for number in range(30)]
    many.text.fill("\n".join(texts))
    many.ask()
    answers = [each["answers"]["refund"] for each in server.batch(texts, many.body()["questions"]).json["results"]]
    unsure = sum(answer["confidence"] < 0.5 for answer in answers)
    yes = sum(answer["confidence"] >= 0.5 and answer["noul"] >= 0.5 for answer in answers)
    assert 0 < yes < 30 > unsure > 0
    counted = many.page.locator("figure").nth(2)
    expect(counted.locator("li", has_text="yes").locator(".bar-share")).to_have_text(str(yes))
    expect(counted.locator("li", has_text="unsure").locator(".bar-share")).to_have_text(str(unsure))


@pytest.mark.parametrize(
    ("content", "encoding", "separator"),
    [
        ('id,review\r\n1,"Late, again"\r\n2,\r\n3,"He said ""no""\nand left"\r\n', "utf-8-sig", ","),
        ('id;review\n1;Späte Lieferung\n2; \n3;"gut; sehr gut, ja"', "cp1252", ";"),
        ("id\treview\n1\tSpäte Lieferung\n2\t\n3\tgut\n", "utf-16", "\t"),
    ],
    ids=["quotes", "semicolons", "utf-16"],
)
def test_a_file_is_read_as_it_is(
    many: Playground, server: Server, tmp_path: Path, content: str, encoding: str, separator: str
) -> None:
    given = list(csv.reader(io.StringIO(content, newline=""), delimiter=separator))
    give(many, "reviews.csv", content.encode(encoding))
    expect(many.page.get_by_label("Column with the text")).to_have_value("1")  # the longest
    expect(many.page.get_by_text("2 texts", exact=True)).to_be_visible()
    many.ask()
    expect(many.page.get_by_text("2 texts in")).to_contain_text("1 empty row left out")
    name, (head, *table) = saved(many, separator)
    assert name == "reviews-answers.csv"
    assert head[:8] == ["id", "review", *HEAD]
    assert [row[:2] for row in table] == given[1:]
    assert [row[-1] for row in table] == ["", "empty", ""]
    program = many.request("Python")
    (tmp_path / "reviews.csv").write_bytes(content.encode(encoding))
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path
    )
    assert done.stderr == ""
    texts = [given[1][1], given[3][1]]
    results = server.batch(texts, many.body()["questions"]).json["results"]
    assert done.stdout == "".join(f"{text} {each['answers']}\n" for text, each in zip(texts, results, strict=True))


def test_a_row_that_does_not_fit_its_columns_is_not_asked(many: Playground, tmp_path: Path) -> None:
    """Nor by the copied code; what is wrong with it is said as `decided run` says it."""
    content = b'id,text\n1,fine\n\n2,"My parcel\nis late", and so am I,"\xc3\xa9"\n3\n4,good'
    give(many, "broken.csv", content)
    expect(many.page.locator(".file")).to_contain_text("4 rows, 2 with too many or too few cells")
    expect(many.page.get_by_text("4 texts", exact=True)).to_be_visible()
    assert many.body()["states"] == ["fine", "good"]
    many.ask()
    expect(many.page.get_by_text("4 texts in")).to_contain_text("2 without an answer")
    wrong = ['line 5: 4 cells in place of 2; without a column: [" and so am I","é"]', "line 6: 1 cells in place of 2"]
    for at, words in enumerate(wrong, 1):
        expect(rows(many).nth(at).get_by_role("cell")).to_have_text([words])  # once, whatever the number of questions
    _, (_, *table) = saved(many)
    assert [row[:2] for row in table] == [["1", "fine"], ["2", "My parcel\nis late"], ["3", ""], ["4", "good"]]
    assert [row[-1] for row in table] == ["", *wrong, ""]
    (tmp_path / "broken.csv").write_bytes(content)
    program = many.request("Python")
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["fine", "good"]


def test_a_file_of_tabs_is_saved_as_one(many: Playground) -> None:
    give(many, "one.tsv", b"id\ttext\n1\tfine\n")
    expect(many.page.locator(".file p").first).to_have_text("one.tsv 1 row")
    many.ask()
    name, (head, row) = saved(many, "\t")
    assert (name, head[:2], row[:2]) == ("one-answers.tsv", ["id", "text"], ["1", "fine"])


def test_another_column_can_be_chosen_and_the_file_taken_away(many: Playground) -> None:
    give(many, "a.csv", b"long,short\nsomething longer,x\n")
    many.page.get_by_label("Column with the text").select_option("short")
    assert many.body()["states"] == ["x"]
    many.page.get_by_role("button", name="Remove the file").click()
    expect(many.text).to_be_focused()


def test_a_file_that_is_dropped_is_taken(playground: Playground) -> None:
    playground.page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["text\\nfirst\\nsecond\\n"], "dropped.csv"));
            document.getElementById("state").dispatchEvent(
                new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
        }"""
    )
    expect(playground.page.get_by_text("dropped.csv", exact=True)).to_be_visible()
    assert playground.body()["states"] == ["first", "second"]


@pytest.mark.parametrize(
    ("name", "content", "trouble"),
    [
        ("table.xlsx", b"PK", "Save the spreadsheet as CSV first."),
        ("picture.csv", b"a\0b", "This file is not a text."),
        ("empty.csv", b"only,names\n", "This table has no rows"),
    ],
)
def test_a_file_that_is_no_table_is_told(many: Playground, name: str, content: bytes, trouble: str) -> None:
    give(many, name, content)
    expect(many.page.get_by_role("alert").filter(has_text=trouble)).to_be_visible()
    expect(many.text).to_be_visible()


def test_more_than_one_batch_of_texts(many: Playground) -> None:
    many.text.fill("\n".join(f"text {number}" for number in range(260)))
    many.ask_button.click()
    expect(many.page.get_by_text("260 texts in")).to_be_visible()
    expect(rows(many)).to_have_count(100)
    many.page.get_by_role("button", name="Show more (160 left)").click()
    expect(rows(many)).to_have_count(200)
    _, (_, *table) = saved(many)
    assert [row[0] for row in table] == [f"text {number}" for number in range(260)]
    assert len(many.body()["states"]) == 256
    expect(many.page.get_by_text("The first 256 texts")).to_be_visible()
    assert many.request("Python").count('"text ') == 260


def test_a_text_on_which_the_model_fails_fails_alone(many: Playground) -> None:
    many.text.fill("fine\nFAIL\nalso fine")
    many.ask()
    expect(many.page.get_by_text("3 texts in")).to_contain_text("1 without an answer")
    expect(rows(many).nth(1)).to_contain_text("inference failed")
    _, (_, *table) = saved(many)
    assert [row[-1] for row in table] == ["", "inference failed", ""]


def test_a_text_that_is_too_long_is_left_out_alone(many: Playground) -> None:
    """Long in characters as the server counts them: a letter that JavaScript takes for two is one."""
    long = ["x" * 200_001, "🙂" * 200_001]
    many.text.fill("\n".join(["short", *long, "🙂" * 110_000]))
    many.ask()
    expect(many.page.get_by_text("4 texts in")).to_contain_text("2 without an answer")
    expect(rows(many).nth(2)).to_contain_text("state is too long: 200001 characters, at most 200000")
    expect(rows(many).nth(3).locator(".cell-name")).to_have_count(3)
    assert [text[:5] for text in many.body()["states"]] == ["short", "🙂" * 5]


def test_answers_arrive_while_others_wait_and_the_rest_can_be_left(many: Playground) -> None:
    with Gate() as gate:
        many.text.fill(QUICK + gate.state)
        many.ask_button.click()
        expect(many.page.get_by_text("8 of 9 texts answered")).to_be_visible()
        expect(rows(many).first.locator(".cell-name")).to_have_count(3)
        progress = many.page.get_by_role("progressbar", name="Texts answered")
        expect(progress).to_have_attribute("aria-valuenow", "8")
        many.page.get_by_role("button", name="Stop").click()
        expect(progress).to_have_count(0)
        gate.open()
        many.page.get_by_role("button", name="Continue").click()
        expect(many.page.get_by_text("9 texts in")).to_be_visible()


def test_a_run_goes_on_when_the_server_is_back(browser: Browser) -> None:
    with running_server() as server, open_backend(browser, server.url) as playground, Gate() as gate:
        pick(playground.page.get_by_role("radio", name="Many texts"))
        playground.text.fill(QUICK + gate.state)
        playground.ask_button.click()
        expect(playground.page.get_by_text("8 of 9 texts answered")).to_be_visible()
        server.end()
        expect(playground.note).to_contain_text("The server cannot be reached")
        gate.open()
        with running_server("--port", str(server.port)):
            playground.note.get_by_role("button", name="Continue").click()
            expect(playground.page.get_by_text("9 texts in")).to_be_visible()
            expect(playground.note).to_have_count(0)


def test_texts_that_take_too_long_together_are_asked_again_in_smaller_parts(browser: Browser) -> None:
    """The eight of the first part take longer than a request may, and one does not by far."""
    with running_server("--request-timeout-s", "4") as server, open_backend(browser, server.url) as playground:
        pick(playground.page.get_by_role("radio", name="Many texts"))
        playground.text.fill("\n".join(f"SLEEP=0.6 {number}" for number in range(8)))
        playground.ask_button.click()
        expect(playground.page.get_by_text("8 texts in")).not_to_contain_text("without an answer")
