"""What an answer rests on: asked for with a switch, marked in the text, listed under the answer, and copied."""

import re
import sys
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.page.browser import Playground, open_backend, pick
from tests.page.test_access import SCHEMES, assert_accessible, no_scrolling
from tests.page.test_sharing import run, run_curl
from tests.support.server import Server

TEXT = """My parcel 📦 is late. I want my money back! 👩‍👩‍👧 and I wait.
Is anybody there? \U0001d50areetings 😀, Tom.
"""
RECORD = """ {"subject": "late \\"again\\" 📦", "a/b~c": {"paid": [12345678901234567890, true, {"\\u00e9": "]}, {"}]},
  "none": null, "empty": {}, "list": [], "😀": "smile"}
"""
VALUES = {
    "/subject": '"late \\"again\\" 📦"',
    "/a~1b~0c/paid/0": "12345678901234567890",
    "/a~1b~0c/paid/1": "true",
    "/a~1b~0c/paid/2/é": '"]}, {"',
    "/none": "null",
    "/empty": "{}",
    "/list": "[]",
    "/😀": '"smile"',
}
ENOUGH_CONTRAST = 4.5
CONTRAST = """mark => {
    const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const over = (...colours) => {
        for (context.fillStyle of colours) context.fillRect(0, 0, 1, 1);
        const [red, green, blue] = [...context.getImageData(0, 0, 1, 1).data].map(
            (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
    };
    mark.style.setProperty("--share", 1);
    const colour = (each, name) => getComputedStyle(each)[name];
    const paper = over(colour(mark.closest(".sheet"), "backgroundColor"), colour(mark, "backgroundColor"));
    const ink = over(colour(document.getElementById("state"), "color"));
    return Math.max(paper, ink) / Math.min(paper, ink);
}"""


def switch(playground: Playground) -> Locator:
    return playground.page.get_by_role("checkbox", name="Show what each answer rests on")


def marks(playground: Playground) -> Locator:
    return playground.page.locator(".marks mark")


def explained(playground: Playground) -> dict[str, list[dict[str, Any]]]:
    """Ask; what the server says that each answer rests on."""
    with playground.page.expect_response("**/v1/systemone") as reply:
        playground.ask_button.click()
    playground.settled()
    return {name: answer["evidence"] for name, answer in reply.value.json()["answers"].items()}


@pytest.fixture
def explaining(playground: Playground) -> Playground:
    with playground.page.expect_response("**/v1/systemone"):
        switch(playground).check()
    expect(playground.page.locator(".evidence")).to_have_count(3)
    return playground


def test_it_is_asked_for_only_when_it_is_wanted(playground: Playground) -> None:
    expect(switch(playground)).not_to_be_checked()
    assert "explain" not in playground.body()
    expect(playground.page.locator(".evidence")).to_have_count(0)
    asked: list[str] = []
    playground.page.on("request", lambda request: asked.append(str(request.post_data)))
    for wanted in (True, False, True):
        switch(playground).set_checked(wanted)
        expect(playground.page.locator(".evidence")).to_have_count(3 * wanted)
        assert playground.body().get("explain", False) is wanted
    assert [body.count('"explain": true') for body in asked] == [1], "the answers that stand there are asked for once"
    pick(playground.page.get_by_role("radio", name="Many texts"))
    expect(switch(playground)).to_have_count(0)
    assert "explain" not in playground.body()


def test_the_parts_are_those_of_the_server_in_characters(explaining: Playground) -> None:
    explaining.text.fill(TEXT)
    found = explained(explaining)
    assert sum(map(len, found.values())) > 3
    for card, (name, evidence) in zip(explaining.answers.all(), found.items(), strict=True):
        expect(card.locator("mark")).to_have_text([TEXT[one["start"] : one["end"]] for one in evidence])
        top = max(float(share.removesuffix("%")) for share in card.locator(".bar .bar-share").all_inner_texts())
        without = [float(share.split("%")[0]) for share in card.locator(".evidence .bar-share").all_inner_texts()]
        assert without == pytest.approx([top - 100 * one["effect"] for one in evidence], abs=0.11)
        card.hover()
        in_order = sorted(evidence, key=lambda one: int(one["start"]))
        expect(marks(explaining)).to_have_text([TEXT[one["start"] : one["end"]] for one in in_order])
        expect(explaining.page.locator(".marks")).to_have_text(TEXT + "\u200b")
        if evidence:
            expect(explaining.text).to_have_accessible_description(re.compile(f"Marked: what {name} rests on"))
        expect(card).to_have_attribute("aria-current", "true")
        expect(explaining.page.locator("article[aria-current]")).to_have_count(1)


def test_fields_of_a_record_are_named_and_marked_where_they_stand(explaining: Playground) -> None:
    pick(explaining.page.get_by_role("radio", name="JSON").first)
    seen = set()
    for padding in range(8):  # the simulated model rests on other fields each time
        explaining.text.fill(RECORD + " " * padding)
        explaining.question("team").get_by_label("Question", exact=True).fill(f"About? {padding}")
        for card, evidence in zip(explaining.answers.all(), explained(explaining).values(), strict=True):
            pointers = [one["pointer"] for one in evidence]
            seen.update(pointers)
            expect(card.locator("mark")).to_have_text([VALUES[pointer] for pointer in pointers])
            names = [pointer[1:].replace("/", " \u203a ").replace("~1", "/").replace("~0", "~") for pointer in pointers]
            expect(card.locator(".quote b")).to_have_text(names)
            card.hover()
            in_order = sorted(pointers, key=list(VALUES).index)
            expect(marks(explaining)).to_have_text([VALUES[pointer] for pointer in in_order])
    assert seen >= {"/subject", "/a~1b~0c/paid/0", "/a~1b~0c/paid/2/é", "/empty", "/😀"}


def test_no_single_part(explaining: Playground) -> None:
    pick(explaining.page.get_by_role("radio", name="JSON").first)
    explaining.text.fill("4471")
    assert not any(explained(explaining).values())
    for card in explaining.answers.all():
        expect(card).to_have_accessible_description("Rests on no single part.")
    expect(marks(explaining)).to_have_count(0)
    expect(explaining.page.get_by_text("Marked:")).to_have_count(0)


def test_marks_go_when_the_text_changes_and_the_list_stays(explaining: Playground) -> None:
    explaining.text.fill(TEXT)
    explained(explaining)
    listed = explaining.page.locator(".evidence").all_inner_texts()
    explaining.answers.first.hover()
    expect(marks(explaining).first).to_be_visible()
    explaining.text.press("End")
    explaining.text.type("!")
    expect(marks(explaining)).to_have_count(0)
    expect(explaining.text).to_be_focused()
    assert explaining.page.locator(".evidence").all_inner_texts() == listed
    explaining.text.press("Backspace")
    expect(marks(explaining).first).to_be_visible()


# --- for everybody ---


def test_by_keyboard_and_for_those_who_listen(explaining: Playground) -> None:
    switch(explaining).focus()
    for name in ("team", "urgency", "refund"):
        explaining.page.keyboard.press("Tab")
        card = explaining.page.get_by_role("article", name=name, exact=True)
        expect(card).to_be_focused()
        expect(card).to_have_attribute("aria-current", "true")
        expect(card).to_have_accessible_description(re.compile(r"^Rests on(?: .+ [\d.]+% without it)+$", re.DOTALL))
    expect(explaining.page.locator("#state-marked")).to_have_text("Marked: what refund rests on")


def test_on_a_telephone_a_tap_shows_the_parts(browser: Browser, server: Server) -> None:
    size = {"width": 390, "height": 844}
    with open_backend(browser, server.url, viewport=size, has_touch=True, is_mobile=True) as playground:
        switch(playground).tap()
        quote = playground.answers.last.locator(".quote").first
        quote.wait_for()
        line = quote.bounding_box()
        playground.answers.last.locator("h3").tap()
        expect(playground.page.locator("#state-marked")).to_have_text("Marked: what refund rests on")
        whole = quote.bounding_box()
        assert line is not None
        assert whole is not None
        assert whole["height"] > line["height"], "the text is out of sight, so the quote is whole"
        no_scrolling(playground)
        assert playground.troubles == []


def test_a_stronger_part_has_a_stronger_tint_and_line_and_the_letters_stay_readable(explaining: Playground) -> None:
    explaining.text.fill(TEXT)
    found = explained(explaining)
    card = max(range(3), key=lambda number: len(list(found.values())[number]))
    style = """all => all.map((each) => [getComputedStyle(each)])
        .map(([style]) => [style.backgroundColor, style.textDecorationThickness, style.textDecorationLine])"""
    looks = explaining.answers.nth(card).locator("mark").evaluate_all(style)
    tints = [float(re.split(r"[/ )]+", tint)[-2]) for tint, _, _ in looks]
    lines = [float(thickness.removesuffix("px")) for _, thickness, _ in looks]
    assert len(looks) > 1
    assert (tints, lines) == (sorted(tints, reverse=True), sorted(lines, reverse=True))
    assert tints[0] > tints[-1]
    assert {line for _, _, line in looks} == {"underline"}
    explaining.answers.nth(card).hover()
    for scheme in SCHEMES:
        explaining.page.emulate_media(color_scheme=scheme)
        assert marks(explaining).first.evaluate(CONTRAST) >= ENOUGH_CONTRAST
    explaining.page.emulate_media(color_scheme="light")
    assert_accessible(explaining)


def test_the_marks_lie_behind_their_letters(explaining: Playground) -> None:
    """The sheet has the measures of the box, moves with it, and shows the strongest part of a long text."""
    explaining.text.fill("A line of words that goes on and on, until it has to break, and then some.\n" * 60)
    explained(explaining)
    for width in (390, 1440):
        explaining.page.set_viewport_size({"width": width, "height": 800})
        for card in explaining.answers.all():
            card.hover()
            expect(card).to_have_attribute("aria-current", "true")
            measures = "each => [each.clientWidth, each.clientHeight, each.scrollHeight, each.scrollTop]"
            sheet = explaining.page.locator(".marks")
            assert sheet.evaluate(measures) == explaining.text.evaluate(measures)
            box, first = explaining.text.bounding_box(), sheet.locator("[data-strongest=true]").bounding_box()
            assert box
            assert first
            assert box["y"] <= first["y"] < box["y"] + box["height"]
        explaining.text.evaluate("each => each.scrollTop = 77")
        expect(explaining.page.locator(".marks")).to_have_js_property("scrollTop", 77)


def test_what_is_copied_asks_for_it_too(explaining: Playground) -> None:
    explaining.text.fill(TEXT)
    found = explained(explaining)
    copied = run_curl(explaining.request("curl"))["answers"]
    assert {name: answer["evidence"] for name, answer in copied.items()} == found
    printed = run([sys.executable, "-"], explaining.request("Python")).splitlines()
    assert printed == [f"{name} {answer}" for name, answer in copied.items()]
