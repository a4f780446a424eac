"""The command line: flags into settings, settings into a running server or another command."""

import argparse
import asyncio
import dataclasses
import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import Field
from pathlib import Path
from typing import Any

import uvloop

from decided import logs, settings
from decided.calibrate import Task, calibrate
from decided.errors import StartError
from decided.hardware import physical_cores
from decided.server import serve
from decided.settings import Settings, default_of, flag, flag_settings, variable
from decided.version import VERSION

_SERVE = """\
Serve typed decisions over HTTP until SIGTERM or Ctrl-C, then finish what is in flight and exit 0.

Every flag is also an environment variable, named in its line; the flag wins. Keys are variables only:
  SERVICE_API_KEY       the one key that the two POST endpoints ask for
  SERVICE_API_KEY_FILE  a file with one key a line, read again on SIGHUP
  SERVICE_REMOTE_API_KEY  the key that the remote engine asks for
"""

_EXAMPLE = """\
try it:
  decided serve --host 127.0.0.1
  curl http://127.0.0.1:8000/v1/systemone -d '{
    "state": "My parcel is two days late and nobody answers the phone!",
    "questions": {"angry": {"type": "noul", "instructions": "Is the customer angry?"}}}'

exit codes: 0 stopped when told to, 2 a setting is wrong, 3 the model cannot be loaded, 4 the address is taken
"""

_CALIBRATE = """\
Ask a model questions whose answers you know, and fit the temperature for each type of question at which its
probabilities come closest to how often it is right. Fewer than 20 questions of a type leave it at 1.

LABELS has a JSON object a line: a state, a question as in a request, and the right answer (the name of an option, the
number of a level, true or false). Several questions about one state may share a line.
"""

_CALIBRATE_EXAMPLE = """\
two lines of labels:
  {"state": "Where is my parcel?", "question": {"type": "noul", "instructions": "Is it a complaint?"}, "answer": false}
  {"state": "Charged twice!", "questions": {
     "team": {"type": "choice", "criteria": {"billing": null, "delivery": null}},
     "anger": {"type": "score", "criteria": ["calm", "annoyed", "angry"]}}, "answers": {"team": "billing", "anger": 1}}
  (the second is broken here to fit the page; in the file it is one line)

try it:
  decided calibrate labels.jsonl --out calibration.json --plot reliability.png
  decided serve --temperature calibration.json

exit codes: 0 done, even if some lines were skipped; 2 a setting or the input is wrong; 3 the model cannot be loaded, or
fails on most lines
"""

_ONLY_TO_SERVE = frozenset({"host", "port", "max_in_flight", "max_body_bytes", "page", "temperature"})


def main(arguments: Sequence[str] | None = None) -> int:
    """The `decided` command."""
    given = vars(_parser().parse_args(arguments))
    task: Task | None = None
    if given.pop("command") == "calibrate":
        task = Task(**{name: given.pop(name) for name in ("labels", "out", "plot", "limit")})
        given["temperature"] = "1"  # fitted is what the model itself says, whatever it is served with
    try:
        chosen = settings.load({name: value for name, value in given.items() if value is not None})
        logs.configure(chosen.log_level, chosen.log_format)
        chosen = _within_the_machine(chosen)
        uvloop.run(serve(chosen) if task is None else calibrate(chosen, task))
    except StartError as error:
        print(f"decided: {error}", file=sys.stderr)
        return error.exit_code
    except asyncio.CancelledError:
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="decided", description="A self-hosted server for typed decisions.")
    parser.add_argument("--version", action="version", version=f"decided {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serving = commands.add_parser(
        "serve",
        help="run the server",
        description=_SERVE,
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_settings(serving, flag_settings())
    calibrating = commands.add_parser(
        "calibrate",
        help="fit a model's temperatures to labelled questions",
        description=_CALIBRATE,
        epilog=_CALIBRATE_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    calibrating.add_argument("labels", metavar="LABELS", help="a file of labelled questions; - for standard input")
    calibrating.add_argument("--out", metavar="FILE", type=Path, help="write the temperatures here, as JSON")
    calibrating.add_argument("--plot", metavar="FILE", type=Path, help="draw the reliability diagram here, as PNG")
    calibrating.add_argument("--limit", metavar="N", type=_positive, help="use the first N lines only")
    _add_settings(calibrating, (item for item in flag_settings() if item.name not in _ONLY_TO_SERVE))
    return parser


def _add_settings(parser: argparse.ArgumentParser, items: Iterable[Field[Any]]) -> None:
    for item in items:
        default = default_of(item)
        shown = "" if default is None else f" (default: {default})"
        parser.add_argument(
            flag(item), metavar="VALUE", default=None, help=f"{item.metadata['about']}{shown} [{variable(item)}]"
        )


def _positive(value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, not {value!r}")
    return int(value)


def _within_the_machine(chosen: Settings) -> Settings:
    cores = physical_cores()
    if chosen.threads is not None and chosen.threads > cores:
        logging.getLogger("decided").warning(
            "--threads %d: this machine has %d cores; using %d", chosen.threads, cores, cores
        )
        return dataclasses.replace(chosen, threads=cores)
    return chosen


if __name__ == "__main__":
    sys.exit(main())
