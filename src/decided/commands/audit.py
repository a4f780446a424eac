"""`decided audit`: check an audit log, or print its head."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from decided.errors import InputError, StartError
from decided.settings import Settings

SUMMARY = "check an audit log, or print its head"

DESCRIPTION = """\
verify  Look at every line of an audit log that `decided serve --audit-log` wrote, and say which were changed, are
        missing or stand in another place. Files that were put aside (FILE.000001 and so on) are read before FILE. Of a
        log that you moved yourself, give all files, the oldest first.
head    Print the number and the hash of the last line. Noted where the log cannot be changed, it shows later that
        nothing was cut off or rewritten up to there: give the notes to verify with --anchors.
"""

EPILOG = """\
try it:
  decided audit verify audit.jsonl
  decided audit head audit.jsonl >> /somewhere/else/anchors
  decided audit verify audit.jsonl --anchors /somewhere/else/anchors

exit codes: 0 the log is as it was written; 1 it is not; 2 a file cannot be read
"""

OVERRIDES: dict[str, str] = {}


class _Tampered(StartError):
    exit_code = 1


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("verify", "head"), help="what to do")
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="the log")
    parser.add_argument(
        "--anchors", metavar="FILE", type=Path, help="heads that were noted, one per line, which the log must have"
    )


async def execute(chosen: Settings, given: dict[str, Any]) -> None:
    if given["action"] == "head":
        _print_head(given["files"], given["anchors"])
    else:
        _verify(given["files"], given["anchors"])


def _print_head(files: list[Path], anchors: Path | None) -> None:
    from decided.audit.files import head_of

    if anchors is not None:
        raise InputError("--anchors is for verify: head looks at the last line alone")
    if len(files) > 1:
        raise InputError("head takes one file: the log, or the newest of its files")
    head, _ = head_of(files[0])
    if not head.seq:
        raise InputError(f"{files[0]} has no line of an audit log")
    print(head.seq, head.hash)


def _verify(files: list[Path], anchors: Path | None) -> None:
    from decided.audit.verify import read_anchors, verify

    found = verify(files, read_anchors(anchors) if anchors else ())
    for finding in found.findings:
        print(finding)
    if found.problems > len(found.findings):
        print(f"... and {found.problems - len(found.findings)} more")
    if found.problems:
        raise _Tampered(f"{found.problems} problem{'s' if found.problems > 1 else ''} found in {found.lines:,} lines")
    if found.head is None:
        print("no lines")
    else:
        print(f"{found.lines:,} lines, {found.first} to {found.head.seq}, as they were written")
        print(f"head: {found.head.seq} {found.head.hash}")
