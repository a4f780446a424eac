"""Extras: libraries that only some parts of this package need, and the command that installs them."""

import json
import shlex
import sys
from importlib.metadata import distribution
from urllib.parse import unquote, urlsplit


def install_command(extra: str) -> str:
    """The command that works where this package came from, which may be a checkout or a file and no index."""
    origin = json.loads(distribution("decided").read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        wanted = ["--editable", f"{unquote(urlsplit(origin['url']).path)}[{extra}]"]
    elif origin:
        system = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
        wanted = [f"decided[{extra}] @ {system}{origin['url']}"]
    else:
        wanted = [f"decided[{extra}]"]
    return shlex.join([sys.executable, "-m", "pip", "install", *wanted])
