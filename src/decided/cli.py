"""The command line: flags into settings, settings into one of the commands, errors into exit codes."""

import argparse
import asyncio
import dataclasses
import logging
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import uvloop

from decided import logs, settings
from decided.commands import ask, calibrate, evaluate, run, serve
from decided.errors import StartError
from decided.hardware import physical_cores
from decided.settings import Settings, all_settings
from decided.version import VERSION


class Command(Protocol):
    """What a module of `commands/` has."""

    SUMMARY: str
    DESCRIPTION: str
    EPILOG: str
    OVERRIDES: dict[str, str]
    """Settings that are not the user's to choose here."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def execute(self, chosen: Settings, given: dict[str, Any]) -> Coroutine[Any, Any, None]: ...


COMMANDS: dict[str, Command] = {"serve": serve, "ask": ask, "run": run, "eval": evaluate, "calibrate": calibrate}


def main(arguments: Sequence[str] | None = None) -> int:
    """The `decided` command."""
    given = vars(_parser().parse_args(arguments))
    command = COMMANDS[given.pop("command")]
    named = {item.name: given.pop(item.name, None) for item in all_settings() if item.metadata["secret"] is False}
    try:
        flags = {name: value for name, value in named.items() if value is not None}
        chosen = settings.load(flags | command.OVERRIDES)
        logs.configure(chosen.log_level, chosen.log_format)
        uvloop.run(command.execute(_within_the_machine(chosen), given))
    except StartError as error:
        print(f"decided: {error}", file=sys.stderr)
        return error.exit_code
    except asyncio.CancelledError:
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # who read the output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="decided", description="A self-hosted server for typed decisions.")
    parser.add_argument("--version", action="version", version=f"decided {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.add_arguments(
            commands.add_parser(
                name,
                help=command.SUMMARY,
                description=command.DESCRIPTION,
                epilog=command.EPILOG,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
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
