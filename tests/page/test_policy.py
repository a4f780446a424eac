"""The policy in a browser: what a script that got into the page could not do, and that the tests would notice."""

import pytest

from tests.page.browser import Playground

ATTEMPTS = {
    "script-src-elem": "document.body.append(Object.assign(document.createElement('script'), {text: 'got = 1'}))",
    "script-src-attr": "document.body.setAttribute('onclick', 'window.got = 1'); document.body.click()",
    "style-src-attr": "document.body.setAttribute('style', 'color: red')",
    "connect-src": "fetch('http://decided.test/').then(() => window.got = 1, () => {})",
    "img-src": "document.body.append(Object.assign(new Image(), {src: 'http://decided.test/x.png'}))",
    "frame-src": "document.body.append(Object.assign(document.createElement('iframe'), {src: 'http://decided.test/'}))",
    "form-action": "document.body.append(Object.assign(document.createElement('form'), {action: '/health'}));"
    "document.forms[0].submit()",
}


@pytest.mark.parametrize("directive", ATTEMPTS)
def test_the_browser_blocks(playground: Playground, directive: str) -> None:
    page = playground.page
    with page.expect_console_message(lambda said: said.text.startswith(f"policy: {directive} ")):
        page.evaluate(f"() => {{ {ATTEMPTS[directive]} }}")
    assert page.evaluate("window.got") is None
    assert playground.troubles != []
    playground.troubles.clear()
