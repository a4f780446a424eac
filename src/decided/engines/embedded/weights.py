"""Where the embedded models' files are: the small one in this package, the base one in a package of its own."""

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from decided.errors import ModelError

_BASE_PACKAGE = "decided_model_base"


def locate(name: str) -> Path:
    """The folder of `small` or `base`; without a name, of the best that is installed."""
    if name not in ("", "base", "small"):
        raise ModelError(f"--model embedded:{name}: the embedded models are embedded:base and embedded:small")
    installed = find_spec(_BASE_PACKAGE) is not None
    if name == "base" and not installed:
        raise ModelError("--model embedded:base is not installed: run `make install`, or pip install ./models/base")
    if name == "small" or not installed:
        return Path(str(files("decided"))) / "weights"
    return Path(str(files(_BASE_PACKAGE)))
