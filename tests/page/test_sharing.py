"""What is taken from the page works elsewhere: the curl command, the Python program, the link."""

import json
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.page.browser import PATIENCE_S, Playground, link_to, open_backend, pick
from tests.page.conftest import KEY
from tests.support.server import ROOT, Server
from tests.test_docs import ADDRESS, ANSWER, blocks
from tests.test_docs import environment as newcomer

AWKWARD = """It's "quoted", costs $HOME and `ls`,
JSON
\\n is not a line; é, 鍵, 🙂 are letters
and </script> is not an end. ''' ~~~ ?~~? ??~~ >>> ?>>? ??>>
\tThree double quotes: \"\"\"
"""
JSON_STATE = '{"n": 12345678901234567890, "path": "a\\/b", "ok": true, "none": null, "said": "true \\" null \\u00e9"}'


def run(command: list[str], text: str, **environment: str) -> str:
    """What a program of the clipboard prints, in the environment of a newcomer."""
    env = newcomer() | environment
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE_S, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def run_curl(text: str, **environment: str) -> Any:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    return json.loads(run(["sh"], text, **environment))


def answers(server: Server, playground: Playground, key: str | None = None) -> Any:
    headers = None if key is None else {"Authorization": f"Bearer {key}"}
    return server.request("POST", "/v1/systemone", playground.request().encode(), headers).json["answers"]


@pytest.mark.parametrize("example", ["triage", "moderation", "routing", "reviews"])
def test_what_is_copied_gives_the_answers_of_the_page_and_stands_in_the_tutorial(
    browser: Browser, served: Server, example: str
) -> None:
    with open_backend(browser, served.url, f"#{example}") as playground:
        command = playground.request("curl")
        real = run_curl(command)
        printed = run([sys.executable, "-"], playground.request("Python")).splitlines()
        body = playground.body()
        if example == "reviews":
            texts, results = body["states"], real["results"]
            assert printed == [f"{text} {each['answers']}" for text, each in zip(texts, results, strict=True)]
        else:
            assert real["answers"] == served.request("POST", "/v1/systemone", body).json["answers"]
            assert printed == [f"{name} {answer}" for name, answer in real["answers"].items()]
    tutorial = ROOT / "docs" / "tutorials" / f"{example}.md"
    shown, answer, program = blocks(tutorial)
    assert (shown.text, answer.language, program.language) == (command.replace(served.url, ADDRESS), ANSWER, "python")
    assert f"{ADDRESS}/#{example}" in tutorial.read_text()


def test_awkward_text_survives(playground: Playground, server: Server) -> None:
    playground.text.fill(AWKWARD)
    playground.question("refund").get_by_label("Question", exact=True).fill("Is it 'true' or \"null\"?\\")
    assert playground.body()["state"] == AWKWARD
    real = answers(server, playground)
    assert run_curl(playground.request("curl"))["answers"] == real
    assert len(run([sys.executable, "-"], playground.request("Python")).splitlines()) == 3


def test_a_json_state_is_sent_to_the_last_digit(playground: Playground, server: Server) -> None:
    pick(playground.page.get_by_role("radio", name="JSON").first)
    playground.text.fill(JSON_STATE)
    assert playground.body()["state"] == json.loads(JSON_STATE)
    program = playground.request("Python").partition("request = ")[0]
    shown = run([sys.executable, "-"], f"{program}print(json.dumps(body))")
    assert json.loads(shown)["state"] == json.loads(JSON_STATE)
    assert run_curl(playground.request("curl"))["answers"] == answers(server, playground)


def test_a_long_state_is_copied_whole(playground: Playground) -> None:
    playground.text.fill("word " * 5_000)
    assert len(playground.body()["state"]) == 25_000
    expect(playground.page.get_by_text("Shown in part")).to_be_visible()
    assert "warnings" in run_curl(playground.request("curl"))


def test_the_key_is_never_in_what_is_copied(browser: Browser, keyed: Server) -> None:
    with open_backend(browser, keyed.url) as playground:
        playground.key.fill(KEY)
        texts = {form: playground.request(form) for form in ("curl", "Python", "JSON")}
        real = answers(keyed, playground, KEY)
        playground.page.get_by_role("button", name="Copy link").click()
        expect(playground.page.get_by_role("button", name="Link copied")).to_be_visible()
        assert all(KEY not in text for text in (*texts.values(), playground.clipboard(), playground.page.url))
        assert "DECIDED_KEY" not in texts["JSON"]
        assert run_curl(texts["curl"], DECIDED_KEY=KEY)["answers"] == real
        assert len(run([sys.executable, "-"], texts["Python"], DECIDED_KEY=KEY).splitlines()) == 3


# --- the link ---


def test_the_link_opens_the_same_draft_elsewhere(browser: Browser, server: Server, playground: Playground) -> None:
    playground.text.fill(AWKWARD)
    card = playground.question("team")
    card.get_by_role("button", name="Add an option").click()
    card.get_by_label("Option 5", exact=True).fill("7")
    card.get_by_role("button", name="Move up: option 7").click()
    playground.question("refund").get_by_label("No means").fill("nein")
    playground.page.get_by_role("button", name="Copy link").click()
    expect(playground.page.get_by_role("button", name="Link copied")).to_be_visible()
    link = playground.clipboard()
    assert link == playground.page.url
    assert {"-", "_"} <= set(link), "both letters in which the link's alphabet differs from that of base64"
    wanted = playground.request()
    with open_backend(browser, server.url, link.removeprefix(f"{server.url}/")) as elsewhere:
        assert elsewhere.request() == wanted
        elsewhere.ask()
        expect(elsewhere.answers).to_have_count(3)
        assert elsewhere.troubles == []
    playground.page.reload()
    assert playground.request() == wanted


def test_nobody_is_asked_by_opening_a_link(browser: Browser, server: Server) -> None:
    asked = server.metric('service_requests_total{endpoint="/v1/systemone",status="200"}')
    with open_backend(browser, server.url, link_to({"state": "A text.", "questions": [{}]})) as playground:
        expect(playground.text).to_have_value("A text.")
        expect(playground.answers).to_have_count(0)
        expect(playground.page.get_by_text("Press Ask.")).to_be_visible()
    assert server.metric('service_requests_total{endpoint="/v1/systemone",status="200"}') == asked


def test_a_damaged_link_is_said_to_be_one(playground: Playground) -> None:
    for fragment in ("%%%", "bm8", "e30", "bnVsbA", "eyJxdWVzdGlvbnMiOltudWxsXX0"):
        playground.open("#moderation")
        playground.open(f"#draft={fragment}")
        expect(playground.page.get_by_role("alert")).to_contain_text("This link is damaged")
        expect(playground.page.get_by_role("link", name="Triage")).to_have_attribute("aria-current", "true")


def test_the_way_back_from_an_example_keeps_what_was_written(playground: Playground) -> None:
    playground.text.fill("My own words.")
    playground.page.get_by_role("link", name="Moderation").click()
    assert playground.body()["questions"].keys() == {"kind", "harm", "spam"}
    playground.page.go_back()
    expect(playground.text).to_have_value("My own words.")
    playground.page.go_forward()
    assert playground.body()["questions"].keys() == {"kind", "harm", "spam"}


def test_copying_without_the_clipboard_of_a_trusted_page(browser: Browser, server: Server) -> None:
    """A page over plain HTTP from another machine may not use it."""
    with open_backend(browser, f"http://decided.test:{server.port}") as playground:
        page = playground.page
        assert page.evaluate("navigator.clipboard") is None
        page.get_by_role("button", name="Copy curl").click()
        page.get_by_role("button", name="Copied").wait_for()
        playground.text.fill("")
        playground.text.press("Control+V")
        expect(playground.text).to_have_value(re.compile(rf"^curl -s http://decided\.test:{server.port}/v1/systemone"))
        assert playground.troubles == []
