"""`decided teach`: learn your questions from your labels."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from decided.commands.common import add_questions, add_reading, add_source, as_flag, positive
from decided.errors import InputError
from decided.settings import Settings, read_share, use_one_thread_for_numpy

SUMMARY = "learn your questions from your labels"

DESCRIPTION = """\
Learn from labelled texts how to answer your questions better, and write what was learnt as profiles, a small file for
each question, which `decided serve --profiles` applies. Everything is judged on labels that were held back: a profile
that does not beat the model as it is beyond noise is not written.

LABELS is a table (.csv, .tsv, .jsonl, .parquet) with a text column and a column for each question of --questions; an
empty cell is no label. Without --questions it has labelled questions, one JSON object per line, as for `decided eval`.
"""

EPILOG = """\
try it:
  decided teach labels.csv --questions questions.yaml --out profiles/
  decided teach labels.csv --questions questions.yaml --out profiles/ --target-accuracy 0.98 --coverage 0.9
  decided teach labels.jsonl --out profiles/ --server http://127.0.0.1:8000
  decided serve --profiles profiles/ --outcomes outcomes.jsonl
  decided teach --outcomes outcomes.jsonl --out profiles/

Give at least three examples of each answer; 30 to 200 are a good start. A model in this
process can be given a head on its own features; behind --server, only bias and temperature are learnt.

exit codes: 0 done, even if nothing was worth keeping; 2 a setting or the input is wrong; 3 the model cannot be loaded,
a server cannot be asked, or there is no answer to most texts
"""

OVERRIDES = {"temperature": "1"}  # learnt is what the model itself says: a profile takes a temperature's place
_SHARE = as_flag(read_share(0.5, below_one=True))


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("labels", metavar="LABELS", nargs="?", help="a file of labels; - for standard input")
    parser.add_argument(
        "--outcomes",
        dest="outcomes_file",  # the server's setting of that name is another thing
        metavar="FILE",
        type=Path,
        help="learn from outcomes that `decided serve --outcomes` kept instead",
    )
    add_questions(parser, required=False)
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="write the profiles here (default: only report)")
    add_reading(parser, "the column with the text; several make an object")
    parser.add_argument(
        "--target-accuracy",
        metavar="SHARE",
        type=_SHARE,
        help="find the probability from which so many answers are right (default: 0.95)",
    )
    parser.add_argument(
        "--coverage",
        metavar="SHARE",
        type=_SHARE,
        help="find sets of options that hold the right one so often",
    )
    parser.add_argument("--limit", metavar="N", type=positive, help="use the first N rows only")
    add_source(parser, {"temperature", "profiles"})


async def execute(chosen: Settings, given: dict[str, Any]) -> None:
    if given["labels"] is not None and given["outcomes_file"] is not None:
        raise InputError("LABELS and --outcomes cannot be combined: learn from a file of labels or from outcomes")
    use_one_thread_for_numpy()
    from decided.evaluation.teach import Task, teach

    await teach(chosen, Task(**given | {"state_columns": tuple(given["state_columns"])}))
