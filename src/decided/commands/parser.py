"""The commands by name, and what was given to one of them on the command line."""

import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Coroutine, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn, Protocol

from decided.commands import ask, audit, calibrate, completion, doctor, evaluate, run, serve, teach
from decided.settings import Settings
from decided.version import VERSION


class Command(Protocol):
    """What the module of a command has."""

    SUMMARY: str
    DESCRIPTION: str
    EPILOG: str
    OVERRIDES: dict[str, str]
    """Settings that are not the user's to choose here."""

    def add_arguments(self, parser: ArgumentParser) -> None: ...
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


def parse(arguments: Sequence[str] | None) -> dict[str, Any]:
    """What was given, by name. A flag that is not known is told by the parser of its command, which knows its like."""
    parser = _parser()
    found, unknown = parser.parse_known_args(arguments)
    if unknown:
        commands = next(action for action in parser._actions if action.dest == "command")
        of_command: dict[str, _Parser] = commands.choices  # type: ignore[assignment]
        of_command[found.command].refuse(unknown)
    given = vars(found)
    if given["command"] == "completion":
        given["flags"] = _flags_of_commands()
    return given


_INSTEAD = {("calibrate", "--server"): "a server is a model here: --model systemone:NAME --remote-url URL"}
"""What to do where a command lacks a flag that others have."""


class _Parser(ArgumentParser):
    """Says which flag or command may have been meant."""

    def error(self, message: str) -> NoReturn:
        wrong = re.match(r"argument COMMAND: invalid choice: '(.*?)'", message)
        if wrong and (near := get_close_matches(wrong[1], COMMANDS, 1)):
            message += f" (did you mean {near[0]}?)"
        super().error(message)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        hints = (self._hint(word.partition("=")[0]) for word in unknown)
        self.error(f"unrecognized arguments: {' '.join(unknown)}{next(filter(None, hints), '')}")

    def _hint(self, flag: str) -> str:
        if instead := _INSTEAD.get((self.prog.split()[-1], flag)):
            return f" ({instead})"
        if others := [name for name, flags in _flags_of_commands().items() if flag in flags]:
            return f" ({flag} is a flag of {', '.join(others)})"
        known = [name for action in self._actions for name in action.option_strings]
        near = get_close_matches(flag, known, 1)
        return f" (did you mean {near[0]}?)" if near else ""


def _flags_of_commands() -> dict[str, list[str]]:
    """The commands, and the flags that each takes."""
    found = {}
    for name, command in COMMANDS.items():
        parser = ArgumentParser(prog=name)
        command.add_arguments(parser)
        found[name] = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
    return found


def _parser() -> ArgumentParser:
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
                formatter_class=RawDescriptionHelpFormatter,
            )
        )
    return parser
