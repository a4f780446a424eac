"""The report of `decided eval` in a real browser, at the width of a telephone."""

import json
from pathlib import Path

from playwright.sync_api import Browser

from tests.commands.conftest import started

WIDTH = 390
LONG = "x" * 300


def test_wrong_rows_are_cards_on_a_telephone(browser: Browser, tmp_path: Path) -> None:
    question = {"type": "choice", "instructions": LONG, "criteria": {LONG: None, LONG[1:]: None}}
    rows = ({"state": LONG * 2 + str(n), "question": question, "answer": LONG[n % 2 :]} for n in range(20))
    labels, html = tmp_path / "labels.jsonl", tmp_path / "report.html"
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    process = started("eval", labels, "--html", html)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    with browser.new_context(viewport={"width": WIDTH, "height": 800}) as window:
        page = window.new_page()
        page.goto(html.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == WIDTH
        table = page.locator("table.wrong")
        assert not table.get_by_text("confidence", exact=True).is_visible()  # each card names its own
        cells = table.locator("tr:nth-child(2) td")
        names = cells.evaluate_all("them => them.map(it => getComputedStyle(it, '::before').content)")
        assert [name.strip('" ') for name in names] == ["line", "answer", "truth", "confidence", "none"]
        for cell in cells.all():
            box = cell.bounding_box()
            assert box is not None
            assert 0 <= box["x"] <= box["x"] + box["width"] <= WIDTH
