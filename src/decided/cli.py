"""The command line: flags into settings, settings into one of the commands, errors into exit codes."""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Coroutine, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn, Protocol

import uvloop

from decided import logs, settings
from decided.commands import ask, audit, calibrate, completion, doctor, evaluate, run, serve, teach
from decided.errors import StartError
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


COMMANDS: dict[str, Command] = {
    "serve": serve,
    "ask": ask,
    "run": run,
    "eval": evaluate,
    "teach": teach,
    "calibrate": calibrate,
    "audit": audit,
    "doctor": doctor,
    "completion": completion,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The `decided` command."""
    given = _parse(arguments)
    command = COMMANDS[given.pop("command")]
    if command is completion:
        given["flags"] = _flags_of_commands()
    named = {item.name: given.pop(item.name, None) for item in all_settings() if item.metadata["secret"] is False}
    try:
        flags = {name: value for name, value in named.items() if value is not None}
        chosen = settings.load(flags | command.OVERRIDES)
        logs.configure(chosen.log_level, chosen.log_format)
        uvloop.run(command.execute(chosen, given))
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


def _parse(arguments: Sequence[str] | None) -> dict[str, Any]:
    """What was given. A flag that is not known is told by the parser of its command, which knows its like."""
    parser = _parser()
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        commands = next(action for action in parser._actions if action.dest == "command")
        of_command: dict[str, argparse.ArgumentParser] = commands.choices  # type: ignore[assignment]
        of_command[given.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    return vars(given)


class _Parser(argparse.ArgumentParser):
    """Says which flag or command may have been meant."""

    def error(self, message: str) -> NoReturn:
        wrong = re.match(r"argument COMMAND: invalid choice: '(.*?)'", message)
        if wrong and (near := get_close_matches(wrong[1], COMMANDS, 1)):
            message += f" (did you mean {near[0]}?)"
        prefix = "unrecognized arguments: "
        if message.startswith(prefix):
            known = [name for action in self._actions for name in action.option_strings]
            for word in message.removeprefix(prefix).split():
                if near := get_close_matches(word.partition("=")[0], known, 1):
                    message += f" (did you mean {near[0]}?)"
                    break
        super().error(message)


def _flags_of_commands() -> dict[str, list[str]]:
    """The commands, and the flags that each takes."""
    found = {}
    for name, command in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=name)
        command.add_arguments(parser)
        found[name] = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
    return found


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="decided", description="A self-hosted server for typed decisions.")
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


if __name__ == "__main__":
    sys.exit(main())
