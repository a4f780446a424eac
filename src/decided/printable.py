"""Texts of others on a terminal: they are data, and no commands to it."""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """With control characters escaped."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
