"""Numbers as they stand in files: float32, little endian, in base64."""

import array
import base64
import sys
from collections.abc import Iterable


def pack(numbers: Iterable[float]) -> str:
    return base64.b64encode(_swapped(array.array("f", numbers)).tobytes()).decode()


def unpack(text: str) -> "array.array[float]":
    """Raises ValueError for a text that `pack` did not write."""
    return _swapped(array.array("f", base64.b64decode(text, validate=True)))


def _swapped(numbers: "array.array[float]") -> "array.array[float]":
    """From this machine's order of bytes to that of the files, or back."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
