"""The editor: questions, options and levels added, removed and put in order, by mouse and by keyboard alone; and what
is wrong with them, said where it is."""

import re

from playwright.sync_api import Locator, expect

from tests.page.browser import Playground, pick


def options(playground: Playground, name: str = "team") -> list[str]:
    """The options of a question, or the labels of its levels, as they will be sent."""
    return list(playground.body()["questions"][name]["criteria"])


def press(within: Locator, name: str) -> None:
    within.get_by_role("button", name=name, exact=True).click()


def test_an_option_is_added_moved_asked_and_removed(playground: Playground) -> None:
    card = playground.question("team")
    press(card, "Add an option")
    added = card.get_by_label("Option 5", exact=True)
    expect(added).to_be_focused()
    added.fill("legal")
    card.get_by_label("Description of option 5").fill("threats to go to court")
    press(card, "Move up: option legal")
    assert options(playground) == ["billing", "delivery", "technical", "legal", "sales"]
    assert playground.body()["questions"]["team"]["criteria"]["legal"] == "threats to go to court"
    playground.ask()
    assert "legal" in playground.answers.first.locator(".bar-name").all_inner_texts()
    press(card, "Remove: option legal")
    expect(card.get_by_role("button", name="Remove: option sales")).to_be_focused()
    assert options(playground) == ["billing", "delivery", "technical", "sales"]
    press(card, "Move down: option billing")
    assert options(playground) == ["delivery", "billing", "technical", "sales"]


def test_the_ends_of_a_list_stay_where_they_are(playground: Playground) -> None:
    card = playground.question("team")
    for name in ("Move up: option billing", "Move down: option sales"):
        button = card.get_by_role("button", name=name)
        assert button.get_attribute("aria-disabled") == "true"
        button.click(force=True)
    assert options(playground) == ["billing", "delivery", "technical", "sales"]


def test_levels_are_added_moved_and_removed(playground: Playground) -> None:
    card = playground.question("urgency")
    press(card, "Add a level")
    card.get_by_role("textbox", name="Level 3").fill("at once")
    press(card, "Move up: level today")
    press(card, "Remove: level no hurry")
    assert options(playground, "urgency") == ["today", "in the next few days", "at once"]


def test_options_that_look_like_numbers_keep_their_order(playground: Playground) -> None:
    card = playground.question("team")
    for number, name in enumerate(["10", "2", "1", "__proto__"], 1):
        card.get_by_label(f"Option {number}", exact=True).fill(name)
    playground.question("refund").get_by_label("Name in the answers").fill("1")
    assert options(playground) == ["10", "2", "1", "__proto__"]
    assert list(playground.body()["questions"]) == ["team", "urgency", "1"]
    playground.ask()
    assert sorted(playground.answers.first.locator(".bar-name").all_inner_texts()) == ["1", "10", "2", "__proto__"]
    expect(playground.answers.last.get_by_role("heading")).to_have_text("1")


def test_questions_are_added_moved_and_removed(playground: Playground) -> None:
    press(playground.page.locator("main"), "Add a question")
    card = playground.question("question_4")
    expect(card.get_by_label("Question", exact=True)).to_be_focused()
    card.get_by_label("Question", exact=True).fill("Is the tone polite?")
    pick(card.get_by_role("radio", name="Yes/No"))
    press(card, "Move up: question question_4")
    press(playground.page.locator("main"), "Remove: question urgency")
    assert list(playground.body()["questions"]) == ["team", "question_4", "refund"]
    assert playground.body()["questions"]["question_4"] == {"type": "noul", "instructions": "Is the tone polite?"}
    playground.ask()
    expect(playground.answers).to_have_count(3)
    for name in ("team", "question_4", "refund"):
        press(playground.page.locator("main"), f"Remove: question {name}")
    add = playground.page.get_by_role("button", name="Add a question")
    expect(add).to_be_focused()
    playground.text.focus()
    playground.ask_button.click()
    expect(add).to_be_focused()
    expect(playground.page.locator(".wrong", has_text="Add a question.")).to_be_visible()


def test_the_type_can_change_and_change_back(playground: Playground) -> None:
    card = playground.question("team")
    before = playground.body()
    for title, kind in (("Yes/No", "noul"), ("Options", "choice")):
        pick(card.get_by_role("radio", name=title))
        assert playground.body()["questions"]["team"]["type"] == kind
    assert playground.body() == before


def test_outcomes_of_a_yes_and_a_no(playground: Playground) -> None:
    card = playground.question("refund")
    for yes, no, criteria in (
        ("it does", "", {"true": "it does", "false": None}),
        ("", "it does not", {"true": None, "false": "it does not"}),
        ("", "", None),
    ):
        card.get_by_label("Yes means").fill(yes)
        card.get_by_label("No means").fill(no)
        assert playground.body()["questions"]["refund"].get("criteria") == criteria
    playground.ask()
    expect(playground.answers).to_have_count(3)


def test_what_is_left_empty_is_not_sent(playground: Playground) -> None:
    card = playground.question("team")
    card.get_by_label("Question", exact=True).fill("")
    card.get_by_label("Description of option 1").fill("")
    question = playground.body()["questions"]["team"]
    assert "instructions" not in question
    assert question["criteria"]["billing"] is None


# --- mistakes ---


def test_names_that_come_twice_are_marked_at_once_and_never_lost(playground: Playground) -> None:
    """A program with two questions of one name would ask one of them."""
    playground.question("refund")
    name = playground.page.get_by_label("Name in the answers")
    name.fill("team")
    expect(name).to_have_accessible_description("Another question has this name.")
    for form in ("Python", "curl", "JSON"):
        pick(playground.page.get_by_role("group", name="Form of the code").get_by_role("radio", name=form))
        expect(playground.page.get_by_role("button", name=f"Copy {form}")).to_have_count(0)
        expect(playground.page.get_by_text("The code comes when the questions are complete.")).to_be_visible()
    name.fill("refund")
    second = playground.question("team").get_by_label("Option 2", exact=True)
    second.fill("billing")
    expect(second).to_have_accessible_description("Another option has this name.")
    playground.text.focus()
    playground.ask_button.click()
    expect(playground.question("team").get_by_label("Option 1", exact=True)).to_be_focused()
    second.fill("delivery")
    assert options(playground) == ["billing", "delivery", "technical", "sales"]


def test_what_is_missing_is_said_at_its_field_when_it_is_asked(playground: Playground) -> None:
    playground.page.get_by_role("link", name="Start empty").click()
    wrong = playground.page.locator(".wrong:not(:empty)")
    expect(playground.text).to_have_value("")
    expect(wrong).to_have_count(0)
    playground.ask_button.click()
    expect(playground.text).to_be_focused()
    expect(playground.text).to_have_accessible_description(re.compile("Write or paste a text first."))
    playground.text.fill("A text.")
    playground.ask_button.click()
    card = playground.question("answer")
    first = card.get_by_label("Option 1", exact=True)
    expect(first).to_be_focused()
    expect(first).to_have_accessible_description("Name this option, or remove it.")
    expect(wrong).to_have_count(2)
    first.fill("good")
    card.get_by_label("Option 2", exact=True).fill("bad")
    name = playground.page.get_by_label("Name in the answers")
    name.fill("")
    expect(name).to_have_accessible_description("Name the question.")
    name.fill("quality")
    expect(wrong).to_have_count(0)
    playground.ask()
    expect(playground.answers).to_have_count(1)


def test_a_closed_card_says_that_something_is_wrong_inside(playground: Playground) -> None:
    card = playground.question("urgency")
    card.get_by_role("textbox", name="Level 1").fill("today")
    expect(card.get_by_role("textbox", name="Level 1")).to_have_accessible_description("Another level has this name.")
    playground.question("refund")
    expect(card).to_contain_text("Open it to see what.")
    playground.ask_button.click()
    expect(card.get_by_role("textbox", name="Level 1")).to_be_focused()


# --- without a mouse ---


def test_tools_are_seen_where_the_pointer_or_the_focus_is(playground: Playground) -> None:
    card = playground.question("team")
    rows = card.get_by_role("listitem")
    tools = [rows.nth(at).get_by_role("toolbar") for at in (0, 1)]
    rows.nth(0).hover()
    expect(tools[0]).to_have_css("opacity", "1")
    expect(tools[1]).to_have_css("opacity", "0")
    card.get_by_label("Option 2", exact=True).focus()
    expect(tools[1]).to_have_css("opacity", "1")


def test_few_stops_of_tab_lead_from_the_text_to_the_button(playground: Playground) -> None:
    playground.text.focus()
    stops = 0
    while stops < 8 and not playground.ask_button.evaluate("each => each === document.activeElement"):
        playground.page.keyboard.press("Tab")
        stops += 1
    expect(playground.ask_button).to_be_focused()  # adding a question, two for each card, and the button


def test_all_of_it_by_keyboard(playground: Playground) -> None:
    """From the top of the page: choose an example, write a text, add, move and remove an option, change a kind, ask."""
    page = playground.page
    focused = page.locator(":focus")

    def tab_to(target: Locator) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if target.evaluate("each => each === document.activeElement"):
                outline = target.evaluate(
                    "each => getComputedStyle(each.type === 'radio' ? each.nextElementSibling : each).outlineStyle"
                )
                assert outline != "none", "the focus is not visible"
                return
        raise AssertionError(f"Tab does not reach {target}")

    tab_to(page.get_by_role("link", name="Moderation"))
    page.keyboard.press("Enter")
    tab_to(page.get_by_role("radio", name="One text"))
    tab_to(playground.text)
    page.keyboard.press("Control+A")
    page.keyboard.type("Does it come in red?")
    tab_to(page.get_by_role("button", name=re.compile("^kind Options")))
    page.keyboard.press("Enter")
    card = playground.question("kind")
    tab_to(card.get_by_role("radio", name="Options"))
    tab_to(card.get_by_label("Option 4", exact=True))
    page.keyboard.press("Enter")
    expect(focused).to_have_value("")
    expect(focused).to_have_attribute("placeholder", "option")
    page.keyboard.type("colour")
    page.keyboard.press("Alt+ArrowUp")
    expect(focused).to_have_value("colour")
    page.keyboard.press("Alt+ArrowUp")
    assert options(playground, "kind") == ["review", "question", "colour", "advertising", "abuse"]
    card.get_by_label("Option 3", exact=True).focus()
    page.keyboard.press("Alt+Delete")
    expect(focused).to_have_value("advertising")
    assert options(playground, "kind") == ["review", "question", "advertising", "abuse"]
    page.get_by_role("button", name=re.compile("^kind Options")).focus()
    tab_to(page.get_by_role("button", name="Move up: question kind"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(focused).to_have_accessible_name("Move down: question kind")
    assert list(playground.body()["questions"]) == ["harm", "kind", "spam"]
    card = playground.question("harm")
    tab_to(card.get_by_role("radio", name="Scale"))
    page.keyboard.press("ArrowRight")
    assert playground.body()["questions"]["harm"]["type"] == "noul"
    playground.text.focus()
    with page.expect_response("**/v1/systemone"):
        page.keyboard.press("Control+Enter")
    expect(playground.page.get_by_text("Changed since this was asked")).to_have_count(0)
    expect(playground.answers).to_have_count(3)
    expect(playground.text).to_be_focused()
