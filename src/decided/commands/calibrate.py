"""`decided calibrate`: fit a model's temperatures to labelled questions."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from decided.commands.common import add_settings, positive
from decided.settings import Settings

SUMMARY = "fit a model's temperatures to labelled questions"

DESCRIPTION = """\
Ask a model questions whose answers you know, and fit the temperature for each type of question at which its
probabilities come closest to how often it is right. Fewer than 20 questions of a type leave it at 1.

LABELS has one JSON object per line: a state, a question as in a request, and the right answer (the name of an option,
the number of a level, true or false). Several questions about one state may share a line.
"""

EPILOG = """\
two lines of labels:
  {"state": "Where is my parcel?", "question": {"type": "noul", "instructions": "Is it a complaint?"}, "answer": false}
  {"state": "Charged twice!", "questions": {
     "team": {"type": "choice", "criteria": {"billing": null, "delivery": null}},
     "anger": {"type": "score", "criteria": ["calm", "annoyed", "angry"]}}, "answers": {"team": "billing", "anger": 1}}
  (the second is broken here to fit the page; in the file it is one line)

try it:
  decided calibrate labels.jsonl --out calibration.json --plot reliability.svg
  decided serve --temperature calibration.json

exit codes: 0 done, even if some lines were skipped; 2 a setting or the input is wrong; 3 the model cannot be loaded, or
fails on most lines
"""

OVERRIDES = {"temperature": "1"}  # fitted is what the model itself says, whatever it is served with


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("labels", metavar="LABELS", help="a file of labelled questions; - for standard input")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the temperatures here, as JSON")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw the reliability diagram here, as SVG")
    parser.add_argument("--limit", metavar="N", type=positive, help="use the first N lines only")
    add_settings(parser, {"profiles", "temperature"})


async def execute(chosen: Settings, given: dict[str, Any]) -> None:
    from decided.evaluation.calibrate import Task, calibrate

    await calibrate(chosen, Task(**given))
