"""The policy in a browser: what a script that got into the page could not do, and that the tests would notice."""

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


def test_the_browser_blocks_what_the_policy_forbids(playground: Playground) -> None:
    page = playground.page
    for directive, attempt in ATTEMPTS.items():
        with page.expect_console_message(lambda said, name=directive: said.text.startswith(f"policy: {name} ")):  # type: ignore[misc]
            page.evaluate(f"() => {{ {attempt} }}")
        assert playground.troubles != [], "the tests would not notice"
        playground.troubles.clear()
    assert page.evaluate("window.got") is None
