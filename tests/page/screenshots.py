"""The pictures of the docs, taken anew, in the numbers of the docs: `make pictures`.

Fonts are the machine's; the pictures of the repository were taken with Debian's fonts-noto-core and fonts-noto-mono.
"""

from io import BytesIO
from typing import Literal, NamedTuple

from PIL import Image
from playwright.sync_api import FloatRect

from decided.settings import Settings
from tests.page.browser import launched, open_backend
from tests.support.precision import documented_server
from tests.support.server import ROOT

IMAGES = ROOT / "docs" / "images"
SCALE = 1.5
MARGIN = 16
COLOURS = 128


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
    port = str(Settings().port)  # the address that the docs name
    with documented_server("--port", port) as server, launched() as browser:
        for picture in PICTURES:
            window = {"color_scheme": picture.scheme, "device_scale_factor": SCALE, "reduced_motion": "reduce"}
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
