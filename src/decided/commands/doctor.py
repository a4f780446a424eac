"""`decided doctor`: what this installation and this machine are, whether a model answers, and what to do about it."""

import os
import platform
import resource
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from decided.commands.common import add_settings
from decided.contract.types import Noul, Question
from decided.errors import StartError
from decided.hardware import has_flag, multiplies_bytes_exactly, physical_cores
from decided.settings import Settings, misspelt
from decided.version import VERSION

SUMMARY = "check this installation and this machine"

DESCRIPTION = """\
Print what matters to answers and speed on this machine: version, processor, precision, memory, the model. The model is
loaded and asked once. A line that begins with ! is a problem, and says what to do about it.
"""

EPILOG = """\
try it:
  decided doctor
  decided doctor --model embedded:small

exit codes: 0 no problem found; 1 a problem was found; 2 a setting is wrong; 3 the model cannot be loaded
"""

OVERRIDES = {"log_level": "error"}

_EXTRAS = {"excel": "openpyxl", "parquet": "pyarrow", "ray": "ray", "torch": "torch", "gliclass": "gliclass"}
_LEAST_FREE = 2**29
_LEAST_FILES = 1024
_QUESTION: dict[str, Question] = {"late": Noul("Is the parcel late?")}
_STATE = "My parcel is two days late!"


class Finding(NamedTuple):
    name: str
    found: str
    advice: str = ""


class _Unwell(StartError):
    exit_code = 1


def add_arguments(parser: ArgumentParser) -> None:
    add_settings(parser)


async def execute(chosen: Settings, given: dict[str, Any]) -> None:
    problems = 0
    for finding in (*_machine(chosen), await _model(chosen)):
        problems += bool(finding.advice)
        print(f"{'!' if finding.advice else ' '} {finding.name:<12} {finding.found}")
        if finding.advice:
            print(f"  {'':12} {finding.advice}")
    if problems:
        raise _Unwell(f"{problems} problem{'s' if problems > 1 else ''} found")


def _machine(chosen: Settings) -> Iterator[Finding]:
    yield Finding("decided", f"{VERSION} on Python {platform.python_version()}, {sys.platform} {platform.machine()}")
    flags = [name for name in ("avx512_vnni", "avx_vnni", "amx_int8", "avx2", "asimddp", "i8mm") if has_flag(name)]
    cores = physical_cores()
    threads = chosen.threads or cores
    yield Finding("processor", f"{cores} cores, {threads} used; {', '.join(flags) or 'no known features'}")
    exact = chosen.dtype == "float32" or not multiplies_bytes_exactly()
    reason = "as asked" if chosen.dtype == "float32" else "this CPU lacks VNNI: slower than 8 bits would be"
    yield Finding("precision", f"float32 ({reason})" if exact else "8 bits, with exact integer products")
    free = _available_bytes()
    if free is not None:
        advice = "less than 512 MiB are free: stop something, or take --model embedded:small"
        yield Finding("memory", f"{free / 2**30:.1f} GiB free", advice if free < _LEAST_FREE else "")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few = "every connection is an open file: raise the limit with `ulimit -n 65536`"
    yield Finding("open files", f"at most {files}", few if files < _LEAST_FILES else "")
    for name, meant in misspelt().items():
        yield Finding("variable", f"{name} is not a setting", f"did you mean {meant}?")
    extras = [extra for extra, library in _EXTRAS.items() if find_spec(library) is not None]
    yield Finding("extras", ", ".join(extras) or "none")


async def _model(chosen: Settings) -> Finding:
    """A model that cannot be loaded ends the command with its own message."""
    from decided.backend import open_backend

    began = time.perf_counter()
    backend = await open_backend(chosen, None, None, retries=0)
    loaded = time.perf_counter()
    try:
        async for result in backend.batch([_STATE], _QUESTION):
            answered = time.perf_counter()
            if result.response is None:
                return Finding("model", backend.model, f"it fails on a simple question: {result.error}")
            answer = result.response.noul("late").noul
    finally:
        await backend.close()
    found = f"{backend.model}, loaded in {loaded - began:.1f} s, one question in {1000 * (answered - loaded):.0f} ms"
    wrong = f"{_STATE!r} - {_QUESTION['late'].instructions} It says {answer:.0%} yes: take another model"
    return Finding("model", found, wrong if answer < 0.5 else "")


def _available_bytes() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
