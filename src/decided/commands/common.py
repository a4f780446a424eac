"""What several commands take: settings as flags, a server in place of the model, questions in a file."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, TypeVar

from decided.errors import InputError
from decided.settings import default_of, flag, flag_settings, in_words, variable

T = TypeVar("T")


def add_settings(parser: ArgumentParser, left_out: AbstractSet[str] = frozenset(), to_serve: bool = False) -> None:
    """A flag for every setting that is no secret, and, where nothing is served, not of serving alone."""
    group = parser.add_argument_group("settings" if to_serve else "settings of the model")
    for item in flag_settings():
        if item.name not in left_out and (to_serve or not item.metadata["serve_only"]):
            default = default_of(item)
            shown = "" if default is None else f" (default: {in_words(default)})"
            about = f"{item.metadata['about']}{shown} [{variable(item)}]"
            group.add_argument(flag(item), metavar=item.metadata["metavar"], default=None, help=about)


def add_source(parser: ArgumentParser, left_out: AbstractSet[str] = frozenset()) -> None:
    """Who decides: a running server, or else the model in this process, with the settings of `decided serve`."""
    group = parser.add_argument_group("where to run (default: load the model into this process)")
    group.add_argument("--server", metavar="URL", help="ask a running server of the protocol")
    group.add_argument(
        "--api-key", metavar="KEY", help="the server's key; better in SERVICE_API_KEY, which other users cannot see"
    )
    add_settings(parser, left_out)


def refuse_flags_of_a_model(flags: Mapping[str, str], given: Mapping[str, Any]) -> None:
    """A server has a model and settings of its own: a flag that would change nothing is a mistake."""
    if given.get("server") is None:
        return
    unused = flags.keys() - {"log_level", "log_format"}
    against = given.get("against")
    if against is not None and not against.startswith(("http://", "https://")):
        unused &= {"model"}  # the others are of the model that the server is compared with
    if unused:
        named = ", ".join(flag(item) for item in flag_settings() if item.name in unused)
        raise InputError(f"--server and {named} cannot be combined: a server answers with its own model and settings")


def add_questions(parser: ArgumentParser, required: bool) -> None:
    parser.add_argument(
        "--questions",
        metavar="FILE",
        type=Path,
        required=required,
        help="questions by name, as in a request, in YAML or JSON",
    )


def add_reading(parser: ArgumentParser, state: str) -> None:
    """How a table is read."""
    parser.add_argument("--state-column", dest="state_columns", metavar="NAME", action="append", default=[], help=state)
    parser.add_argument(
        "--input-format", choices=("csv", "tsv", "jsonl"), help="format of standard input (default: jsonl)"
    )


def positive(value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ArgumentTypeError(f"must be a whole number from 1, not {value!r}")
    return int(value)


def as_flag(read: Callable[[str], T]) -> Callable[[str], T]:
    """What reads a setting, for a flag of one command."""

    def checked(value: str) -> T:
        try:
            return read(value)
        except ValueError as error:
            raise ArgumentTypeError(f"{error}, not {value!r}") from None

    return checked
