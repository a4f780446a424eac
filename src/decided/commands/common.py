"""What several commands take: settings as flags, a server in place of the model, questions in a file."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from decided.errors import InputError
from decided.settings import default_of, flag, flag_settings, variable

ONLY_TO_SERVE = frozenset(
    {"host", "port", "max_in_flight", "max_connections", "max_body_bytes", "worker_grace_s", "page"}
    | {"outcomes", "keep_texts", "audit_log", "audit", "audit_key_file", "audit_max_bytes"}
    | {"shadow", "shadow_share", "shadow_log"}
)


def add_settings(parser: ArgumentParser, left_out: AbstractSet[str] = frozenset()) -> None:
    """A flag for every setting that is no secret."""
    group = parser.add_argument_group("settings of the model" if left_out else "settings")
    for item in flag_settings():
        if item.name not in left_out:
            default = default_of(item)
            shown = "" if default is None else f" (default: {default})"
            group.add_argument(
                flag(item), metavar="VALUE", default=None, help=f"{item.metadata['about']}{shown} [{variable(item)}]"
            )


def add_source(parser: ArgumentParser, left_out: AbstractSet[str] = frozenset()) -> None:
    """Who decides: a running server, or else the model in this process, with the settings of `decided serve`."""
    group = parser.add_argument_group("where to run (default: load the model into this process)")
    group.add_argument("--server", metavar="URL", help="ask a running server of the protocol")
    group.add_argument(
        "--api-key", metavar="KEY", help="the server's key; better in SERVICE_API_KEY, which other users cannot see"
    )
    add_settings(parser, ONLY_TO_SERVE | left_out)


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
        raise InputError(f"--server and {named} exclude each other: a server answers with its own model and settings")


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


def share(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ArgumentTypeError(f"must be a number from 0 to 1, not {value!r}")
    return found
