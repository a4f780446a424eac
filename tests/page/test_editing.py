"""The editor: questions, options and levels added, removed and put in order, by mouse and by keyboard alone."""

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
    assert options(playground, "urgency") == ["today", "this week", "at once"]


def test_options_that_look_like_numbers_keep_their_order(playground: Playground) -> None:
    card = playground.question("team")
    for number, name in enumerate(["10", "2", "1", "__proto__"], 1):
        card.get_by_label(f"Option {number}", exact=True).fill(name)
    playground.question("refund").get_by_label("Question name").fill("1")
    assert options(playground) == ["10", "2", "1", "__proto__"]
    assert list(playground.body()["questions"]) == ["team", "urgency", "1"]
    playground.ask()
    assert sorted(playground.answers.first.locator(".bar-name").all_inner_texts()) == ["1", "10", "2", "__proto__"]
    expect(playground.answers.last.get_by_role("heading")).to_have_text("1")


def test_questions_are_added_moved_and_removed(playground: Playground) -> None:
    press(playground.page.locator("main"), "Add a question")
    card = playground.question("question_4")
    expect(card.get_by_label("Instructions")).to_be_focused()
    card.get_by_label("Instructions").fill("Is the tone polite?")
    pick(card.get_by_role("radio", name="noul"))
    press(card, "Move up: question question_4")
    press(playground.page.locator("main"), "Remove: question urgency")
    assert list(playground.body()["questions"]) == ["team", "question_4", "refund"]
    assert playground.body()["questions"]["question_4"] == {"type": "noul", "instructions": "Is the tone polite?"}
    playground.ask()
    expect(playground.answers).to_have_count(3)
    for name in ("team", "question_4", "refund"):
        press(playground.page.locator("main"), f"Remove: question {name}")
    expect(playground.page.get_by_role("button", name="Add a question")).to_be_focused()
    playground.ask_button.click()
    expect(playground.note).to_contain_text("There is no question")


def test_the_type_can_change_and_change_back(playground: Playground) -> None:
    card = playground.question("team")
    before = playground.body()
    for kind in ("noul", "score", "choice"):
        pick(card.get_by_role("radio", name=kind))
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
    card.get_by_label("Instructions").fill("")
    card.get_by_label("Description of option 1").fill("")
    question = playground.body()["questions"]["team"]
    assert "instructions" not in question
    assert question["criteria"]["billing"] is None


def test_names_that_come_twice_are_not_sent(playground: Playground) -> None:
    playground.question("refund").get_by_label("Question name").fill("team")
    playground.page.get_by_label("Option 2", exact=True).first.fill("billing")
    playground.ask_button.click()
    expect(playground.note).to_contain_text("Two questions have the name “team”.")
    expect(playground.note).to_contain_text("Question “team” has two options with the name “billing”.")


def test_all_of_it_by_keyboard(playground: Playground) -> None:
    """From the top of the page: choose an example, write a state, add and move an option, change a type, ask."""
    page = playground.page
    focused = page.locator(":focus")

    def tab_to(target: Locator) -> None:
        for _ in range(60):
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
    tab_to(page.get_by_role("radio", name="Text"))
    tab_to(playground.state)
    page.keyboard.press("Control+A")
    page.keyboard.type("Does it come in red?")
    card = playground.question("kind")
    tab_to(card.get_by_role("radio", name="choice"))
    tab_to(card.get_by_label("Option 4", exact=True))
    page.keyboard.press("Enter")
    expect(focused).to_have_attribute("placeholder", "option")
    page.keyboard.type("colour")
    page.keyboard.press("Alt+ArrowUp")
    expect(focused).to_have_value("colour")
    page.keyboard.press("Alt+ArrowUp")
    assert options(playground, "kind") == ["review", "question", "colour", "advertising", "abuse"]
    card.get_by_label("Option 3", exact=True).focus()
    tab_to(card.get_by_role("button", name="Move down: option colour"))
    page.keyboard.press("Space")
    expect(focused).to_have_accessible_name("Move down: option colour")
    tab_to(card.get_by_role("button", name="Remove: option colour"))
    page.keyboard.press("Enter")
    assert options(playground, "kind") == ["review", "question", "advertising", "abuse"]
    page.get_by_label("Question name").nth(1).focus()
    tab_to(playground.question("harm").get_by_role("radio", name="score"))
    page.keyboard.press("ArrowRight")
    assert playground.body()["questions"]["harm"]["type"] == "noul"
    playground.state.focus()
    with page.expect_response("**/v1/systemone"):
        page.keyboard.press("Control+Enter")
    expect(playground.answers).to_have_count(3)
    expect(playground.state).to_be_focused()
