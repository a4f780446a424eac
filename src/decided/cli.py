"""The command line: flags into settings, settings into a running server."""

import argparse
import asyncio
import dataclasses
import logging
import sys
from collections.abc import Sequence

import uvloop

from decided import logs, settings
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
"""

_EXAMPLE = """\
try it:
  decided serve --host 127.0.0.1
  curl http://127.0.0.1:8000/v1/systemone -d '{
    "state": "My parcel is two days late and nobody answers the phone!",
    "questions": {"angry": {"type": "noul", "instructions": "Is the customer angry?"}}}'

exit codes: 0 stopped when told to, 2 a setting is wrong, 3 the model cannot be loaded, 4 the address is taken
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The `decided` command."""
    given = vars(_parser().parse_args(arguments))
    given.pop("command")
    try:
        chosen = settings.load({name: value for name, value in given.items() if value is not None})
        logs.configure(chosen.log_level, chosen.log_format)
        uvloop.run(serve(_within_the_machine(chosen)))
    except StartError as error:
        print(f"decided: {error}", file=sys.stderr)
        return error.exit_code
    except asyncio.CancelledError:
        return 1
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
    for item in flag_settings():
        default = default_of(item)
        shown = "" if default is None else f" (default: {default})"
        serving.add_argument(
            flag(item), metavar="VALUE", default=None, help=f"{item.metadata['about']}{shown} [{variable(item)}]"
        )
    return parser


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
