"""The pictures of the docs, taken anew, in the numbers of the docs: `make pictures`.

Fonts are the machine's; the pictures of the repository were taken with Debian's fonts-noto-core and fonts-noto-mono.
"""

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import msgspec
from PIL import Image
from playwright.sync_api import Browser, FloatRect

from decided.settings import Settings
from tests.page.browser import launched, open_backend
from tests.support.precision import documented_server
from tests.support.server import ROOT
from training.archive import KEPT
from training.data import asked, read_rows, split_of

IMAGES = ROOT / "docs" / "images"
SCALE = 1.5
MARGIN = 16
COLOURS = 128
EVERY = 24  # of the questions that no model learnt from: minutes, not an hour


class Picture(NamedTuple):
    name: str
    example: str
    scheme: Literal["light", "dark"] = "light"
    width: int = 1280
    part: bool = False  # the answers alone


PICTURES = [
    Picture("playground-light", "triage"),
    Picture("playground-dark", "routing", "dark"),
    Picture("playground-narrow", "triage", width=390),
    Picture("playground-table", "reviews"),
    *(Picture(f"tutorial-{name}", name, part=True) for name in ("triage", "moderation", "routing", "reviews")),
]


def take() -> None:
    with launched() as browser:
        take_report(browser)
        take_playground(browser)


def take_report(browser: Browser) -> None:
    """The first part of a report: two models on hand-written questions that neither learnt from."""
    files = sorted((ROOT / "training" / "everyday").glob("*.jsonl"))
    kept = [row for path in files for row in read_rows(path) if split_of(row) == KEPT]
    with TemporaryDirectory() as folder:
        labels, html = Path(folder, "labels.jsonl"), Path(folder, "report.html")
        with labels.open("w") as lines:
            for row in kept[::EVERY]:
                print(json.dumps(row | {"question": msgspec.to_builtins(asked(row["question"]))}), file=lines)
        command = [
            sys.executable,
            "-m",
            "decided",
            "eval",
            labels.name,
            "--against",
            "embedded:small",
            "--html",
            html.name,
        ]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        with browser.new_context(viewport={"width": 1072, "height": 800}, device_scale_factor=SCALE) as window:
            page = window.new_page()
            page.goto(html.as_uri())
            first = page.locator("section").first.bounding_box()
            assert first is not None
            height = first["y"] + first["height"] + MARGIN
            save("report", page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": 1072, "height": height}))


def take_playground(browser: Browser) -> None:
    port = str(Settings().port)  # the address that the docs name
    with documented_server("--port", port) as server:
        for picture in PICTURES:
            window = {"color_scheme": picture.scheme, "device_scale_factor": SCALE}
            size = {"width": picture.width, "height": 800}
            with open_backend(browser, server.url, f"#{picture.example}", viewport=size, **window) as playground:
                page = playground.page
                height = page.evaluate("document.documentElement.scrollHeight")
                page.set_viewport_size({"width": picture.width, "height": height})
                page.mouse.move(0, 0)
                part = page.get_by_role("region", name="Answers", exact=True).bounding_box()
                save(picture.name, page.screenshot(clip=around(part) if picture.part else None))


def around(box: FloatRect | None) -> FloatRect:
    assert box is not None
    return {
        "x": box["x"] - MARGIN,
        "y": box["y"] - MARGIN,
        "width": box["width"] + 2 * MARGIN,
        "height": box["height"] + 2 * MARGIN,
    }


def save(name: str, screenshot: bytes) -> None:
    """A picture of few colours takes a third of the room."""
    Image.open(BytesIO(screenshot)).convert("RGB").quantize(COLOURS).save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    take()
