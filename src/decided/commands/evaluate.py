"""`decided eval`: how good a model's answers are, on questions whose answers you know."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from decided.commands.common import add_questions, add_reading, add_source, positive
from decided.settings import Settings

SUMMARY = "measure how good the answers are, on labelled questions"

DESCRIPTION = """\
Ask questions whose answers you know, and report how good the answers are: accuracy, macro-F1, Brier score, log-loss,
calibration error, and how accurate the answers are that pass a threshold of confidence. The report begins with a
verdict in sentences and lists the rows that were answered wrongly, the most confident first.

LABELS is a table (.csv, .tsv, .jsonl, .parquet, .xlsx) with a text column and a column for each question of
--questions; an empty cell is no label. Without --questions it has labelled questions, one JSON object per line
with a state, a question, and the right answer.

With --against, a second model or server is asked the same, and the two are compared row by row; with
--against-questions, another wording of the questions is; with --profiles, the model without them.
"""

EPILOG = """\
two lines of labels:
  {"state": "Where is my parcel?", "question": {"type": "noul", "instructions": "Is it a complaint?"}, "answer": false}
  {"state": "Charged twice!", "questions": {"team": {"type": "choice", "criteria": {"billing": null, "parcel": null}}},
   "answers": {"team": "billing"}}
  (the second is broken here to fit the page; in the file it is one line)

try it:
  decided eval labels.csv --questions questions.yaml --html report.html
  decided eval labels.csv --questions questions.yaml --against-questions reworded.yaml
  decided eval labels.jsonl --server http://127.0.0.1:8000 --json > report.json
  decided eval labels.jsonl --against vllm:Qwen/Qwen3-8B
  decided eval held-out.jsonl --profiles profiles/
  decided eval labels.jsonl --server http://127.0.0.1:8000 --against http://127.0.0.1:8001

exit codes: 0 done, even if some lines were skipped; 2 a setting or the input is wrong; 3 a model cannot be loaded, a
server cannot be asked, or there is no answer to most lines
"""

OVERRIDES: dict[str, str] = {}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("labels", metavar="LABELS", help="a file of labelled questions; - for standard input")
    add_questions(parser, required=False)
    add_reading(
        parser,
        "the column with the text; several make an object (default: state, text, or the one that is no question)",
    )
    parser.add_argument(
        "--against-questions", metavar="FILE", type=Path, help="another wording of the questions, to compare with"
    )
    parser.add_argument("--against", metavar="MODEL|URL", help="a second model, or a server, to compare with")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write the report, with plots, as one page")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--limit", metavar="N", type=positive, help="use the first N lines only")
    parser.add_argument(
        "--concurrency", metavar="N", type=positive, help="rows asked at a time, at most; fewer where it is slow"
    )
    add_source(parser)


async def execute(chosen: Settings, given: dict[str, Any]) -> None:
    from decided.evaluation.evaluate import Task, evaluate

    await evaluate(chosen, Task(**given | {"state_columns": tuple(given["state_columns"])}))
