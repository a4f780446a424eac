"""`decided run`: the same questions about every row of a table."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from decided.commands.common import add_questions, add_reading, add_source, as_flag, positive
from decided.settings import Settings, read_share

SUMMARY = "ask the same questions about every row of a table"

DESCRIPTION = """\
Read a table, ask questions about every row, and write the table with the answers beside each row.

The format is taken from the file name: .csv, .tsv, .jsonl, .parquet or .xlsx (the last two with the extras parquet and
excel). Without --out, lines of JSON go to standard output. The state of a row is the column named, else its column
'state' or 'text', else the whole row. A row that cannot be answered keeps its place, with the reason in the column
'error'.

A run that was interrupted, in whatever way, resumes where it stopped: give the same command again. Until it is
complete, OUT.part has the rows that are finished.
"""

EPILOG = """\
try it:
  decided run messages.csv --questions questions.yaml --out answered.csv
  decided run m.jsonl --questions questions.yaml --out answered.parquet --state-column subject --state-column text
  zcat messages.jsonl.gz | decided run - --questions questions.yaml | gzip > answered.jsonl.gz
  decided run messages.csv --questions questions.yaml --out answered.csv --server http://127.0.0.1:8000
  decided run messages.parquet --questions questions.yaml --out answered.parquet --ray auto

columns added for a question called team: team (the option, the level, or true or false), team.confidence, team.p.OPTION
for each option, and for levels team.level (its label) and team.score. Then: warning, error.

exit codes: 0 every row is written, even if some have errors; 2 a setting or the input is wrong, or OUT cannot be
written; 3 the model cannot be loaded, or it or the server went away; 130 interrupted
"""

OVERRIDES: dict[str, str] = {}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("source", metavar="INPUT", help="the table; - for standard input")
    add_questions(parser, required=True)
    parser.add_argument("--out", metavar="OUT", type=Path, help="the table to write (default: standard output)")
    add_reading(parser, "a column to ask about; several make an object")
    parser.add_argument("--delimiter", metavar="CHAR", help="separator of a CSV input (default: found by itself)")
    parser.add_argument("--encoding", metavar="NAME", help="encoding of a CSV input (default: found by itself)")
    parser.add_argument("--sheet", metavar="NAME", help="sheet of an Excel input (default: the first)")
    parser.add_argument(
        "--empty",
        choices=("skip", "ask"),
        default="skip",
        help="rows without a text: skip or ask (default: skip)",
    )
    parser.add_argument(
        "--no-probabilities", dest="probabilities", action="store_false", help="leave the columns NAME.p.OPTION out"
    )
    parser.add_argument(
        "--min-confidence",
        metavar="X",
        type=as_flag(read_share()),
        default=0.0,
        help="write 'unsure' where the confidence is below X",
    )
    parser.add_argument(
        "--concurrency", metavar="N", type=positive, help="rows in flight (default: 32 in this process, else 128)"
    )
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="run on the Ray cluster at this address; 'local' starts one here (with the extra ray)",
    )
    parser.add_argument(
        "--ray-workers",
        metavar="N",
        type=positive,
        help="workers on the cluster, --threads CPUs each (default: as many as fit)",
    )
    add_source(parser)


async def execute(chosen: Settings, given: dict[str, Any]) -> None:
    from decided.tables.run import Task, run

    await run(chosen, Task(**given | {"state_columns": tuple(given["state_columns"])}))
