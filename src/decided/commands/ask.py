"""`decided ask`: one state, some questions, the answers as bars or as JSON."""

import sys
import time
from argparse import Action, ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from decided.commands.common import add_questions, add_source
from decided.contract.decoding import read_value
from decided.contract.types import Question, encode
from decided.errors import DecidedError, InputError, ModelError
from decided.printable import printable
from decided.settings import Settings

SUMMARY = "ask questions about one text, here and now"

DESCRIPTION = """\
Ask questions about one text or JSON value, and see the answers with all their probabilities.

The state comes first: as an argument, as @FILE, or, without either, from standard input. A file called .json is read as
JSON, any other as text. Questions come as flags, whose first word is the question and whose others are the options (an
option may say what it means: NAME=DESCRIPTION), or from a file. In a terminal, `decided ask` alone asks you for both.
"""

EPILOG = """\
try it:
  decided ask "My parcel is two days late!" --noul "Is the parcel late?"
  decided ask "I was charged twice. Please pay one back today!" \\
      --choice "Which team?" "billing=invoices and payments" delivery \\
      --score "How urgent is it?" "it can wait" "this week" today
  decided ask @message.txt --questions questions.yaml
  cat message.txt | decided ask --questions questions.yaml --json
  decided ask "Where is it?" --noul "Is it a question?" --server http://127.0.0.1:8000

a file of questions:
  team:
    type: choice
    instructions: Which team should answer?
    criteria: {billing: invoices and payments, delivery: null}
  urgency: {type: score, criteria: [it can wait, this week, today]}
  refund: {type: noul, instructions: "Is a refund asked for?"}

exit codes: 0 answered; 1 the state was refused, or the model failed on it; 2 a setting or the input is wrong; 3 the
model cannot be loaded, or the server cannot be asked
"""

OVERRIDES: dict[str, str] = {}


class _CollectQuestion(Action):
    """All questions in one list, whatever their type, in the order in which they were asked."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option: str | None = None) -> None:
        namespace.asked = [*(namespace.asked or ()), (self.dest, values)]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("state", metavar="STATE", nargs="?", help="the text; @FILE reads it from a file")
    parser.set_defaults(asked=None)
    parser.add_argument(
        "--choice", action=_CollectQuestion, nargs="+", metavar=("QUESTION", "OPTION"), help="which of these?"
    )
    parser.add_argument("--score", action=_CollectQuestion, nargs="+", metavar=("QUESTION", "LEVEL"), help="how much?")
    parser.add_argument("--noul", action=_CollectQuestion, nargs=1, metavar="QUESTION", help="yes or no?")
    add_questions(parser, required=False)
    parser.add_argument("--json", action="store_true", help="print the response as JSON")
    add_source(parser)


async def execute(chosen: Settings, given: dict[str, Any]) -> None:
    from decided.backend import check_options, open_backend
    from decided.commands.interactive import converse

    nothing_given = given["state"] is None and given["asked"] is None and given["questions"] is None
    interactive = nothing_given and sys.stdin.isatty()
    questions = {} if interactive else _questions(given)
    state = None if interactive else _state(given["state"])
    backend = await open_backend(chosen, given["server"], given["api_key"], retries=1)

    async def ask(state: Any, questions: dict[str, Question]) -> None:
        check_options(backend, questions)
        began = time.perf_counter()
        async for result in backend.batch([state], questions):
            if result.error is not None:
                raise ModelError(result.error.message) if result.error.status == 503 else _Failed(result.error.message)
            _show(result.answered(), time.perf_counter() - began, given["json"])

    try:
        await (converse(ask) if interactive else ask(state, questions))
    finally:
        await backend.close()


class _Failed(InputError):
    exit_code = 1


def _questions(given: dict[str, Any]) -> dict[str, Question]:
    from decided import questions

    if given["asked"] is None and given["questions"] is None:
        raise InputError("nothing to ask: use --choice, --score or --noul, or --questions FILE")
    if given["asked"] is not None and given["questions"] is not None:
        raise InputError("--questions and --choice, --score or --noul cannot be combined: ask from a file or by flags")
    if given["questions"] is not None:
        return questions.read_file(given["questions"])
    return questions.from_words(given["asked"])


def _state(given: str | None) -> Any:
    if given is not None and not given.startswith("@"):
        try:
            given.encode()
        except UnicodeEncodeError:  # Python takes any byte as an argument, and so marks those that are no text
            raise InputError("the state is not UTF-8 text") from None
        return given
    where = "standard input" if given is None else given[1:]
    try:
        content = sys.stdin.buffer.read() if given is None else Path(given[1:]).read_bytes()
        if where.endswith(".json"):
            return read_value(content, "the file")
        return content.decode()
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{where} is not UTF-8 text") from None
    except DecidedError as error:
        raise InputError(f"{where}: {error}") from None


def _show(response: Any, seconds: float, as_json: bool) -> None:
    from decided.commands import terminal

    if as_json:
        sys.stdout.buffer.write(encode(response) + b"\n")
        return
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    for line in terminal.lines(response, plain):
        print(line.encode("ascii", "replace").decode() if plain else line)
    print(f"\n{printable(response.model)}, {response.usage.input_tokens} tokens, {seconds * 1000:.0f} ms")
