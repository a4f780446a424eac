"""Questions and states as the words a model reads, and the one rule for cutting what does not fit.

Nothing is ever cut silently: whatever is shortened comes with a `Cut` that says how many tokens were kept.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from decided.contract.types import Noul, Option, Question, Score, compact
from decided.engines.api import Cut

MAX_CHARACTERS_PER_TOKEN = 16
"""Beyond this many characters per token kept, text is dropped before it is tokenised: tokenising a 200,000 character
state takes 130 ms, and nearly all of it to throw the tokens away."""


class Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...


class Tokens(NamedTuple):
    """The tokens that fit, and the cut if some did not."""

    ids: list[int]
    cuts: tuple[Cut, ...]


def tokens(tokenizer: Tokenizer, text: str, part: str, limit: int) -> Tokens:
    """The first `limit` tokens of a text. How many there were is counted, or estimated for a very long text."""
    room = limit * MAX_CHARACTERS_PER_TOKEN
    ids = tokenizer.encode(text[:room])
    estimated = len(text) > room
    if estimated and len(ids) <= limit:  # few tokens for so many characters: the rest may fit as well
        ids, estimated = tokenizer.encode(text), False
    if len(ids) <= limit:
        return Tokens(ids, ())
    given = len(ids) * len(text) // room if estimated else len(ids)
    return Tokens(ids[:limit], (Cut(part, limit, given, estimated),))


def option_text(option: Option) -> str:
    """An option in words: its name read as words, and what was said of it."""
    name = words(option.key)
    return f"{name}: {option.description}" if option.description else name


def instructions(question: Question) -> str:
    return compact(question.instructions) if question.instructions else ""


def words(name: str) -> str:
    """`refundRequest` and `refund_request` as words."""
    spaced = [
        f" {char.lower()}" if char.isupper() and index and name[index - 1].islower() else char
        for index, char in enumerate(name)
    ]
    return "".join(spaced).replace("_", " ")


def join_cuts(cuts: Sequence[tuple[Cut, ...]]) -> tuple[Cut, ...]:
    """The cuts of several pieces of one part, as one."""
    found = [cut for each in cuts for cut in each]
    if len(found) < 2:
        return tuple(found)
    kept, given = sum(cut.kept for cut in found), sum(cut.given for cut in found)
    return (Cut(found[0].part, kept, given, any(cut.estimated for cut in found)),)


def hypotheses(question: Question) -> list[str]:
    """A question as statements that may follow from the text: one for each option. A yes/no question of which not both
    outcomes are described is one statement, and yes means that it follows."""
    about = instructions(question)
    if isinstance(question, Noul):
        yes, no = (option.description for option in question.options())
        described = [yes, no] if yes and no else [yes or about or f"It is not so: {no}"]
    elif isinstance(question, Score):
        described = [option.description or option.key for option in question.options()]
    else:
        described = [option_text(option) for option in question.options()]
    return [text if not about or text == about else f"{about} {text}" for text in described]


def named_options(question: Question) -> list[str]:
    """Options as the opendecider families were trained to read them: the name as it is, yes and no as the words."""
    texts = []
    for name, description in question.options():
        if isinstance(question, Noul):
            name = "yes" if name == "true" else "no"
            description = description or name.capitalize()
        texts.append(f"{name}: {description}" if description and description != name else name)
    return texts


def worded_options(question: Question) -> list[str]:
    """Options in words: levels by their labels, yes and no as the words, names read as words."""
    options = question.options()
    if isinstance(question, Score):
        return [option.description or option.key for option in options]
    if isinstance(question, Noul):
        options = [Option(word, option.description) for word, option in zip(("yes", "no"), options, strict=True)]
    return [option_text(option) for option in options]


def spoken_options(question: Question) -> list[str]:
    """Options as somebody would say them: names and levels without what was said of them."""
    if isinstance(question, Score):
        return worded_options(question)
    return ["Yes", "No"] if isinstance(question, Noul) else [words(option.key) for option in question.options()]


class PromptWords(NamedTuple):
    """The words around a question for a language model. Each part is whole lines.

    The state comes before the question, so that all questions about it begin with the same tokens and are read from
    there on.
    """

    task: str
    state: str
    question: str
    option: str
    end: str
    texts: Callable[[Question], list[str]]

    def question_lines(self, question: Question) -> str:
        return self.question.format(instructions(question) or "Which option fits the text best?")


LETTERED = PromptWords(
    "You read a text and answer one question about it. The options have letters. Answer with the letter of the option "
    "that fits best, and with nothing else.",
    "Text:\n{}\n\n",
    "Question: {}\nOptions:\n",
    "{}. {}\n",
    "Answer with one letter.",
    worded_options,
)

OPENDECIDER = PromptWords(
    "You make one decision for a software system.",
    "Input:\n{}\n\n",
    "Question: {}\n\nOptions:\n",
    "{}) {}\n",
    "\nAnswer with the letter of the correct option only.",
    named_options,
)
"""What the language models of the opendecider family were trained on."""

WORDED = PromptWords("", "Text:\n{}\n\n", "Question: {}\n", "", "Answer with one word.", spoken_options)
"""For small models: the options are not shown, and what is asked for is their names."""


def lettered_prompt(state: str, question: Question, letters: str, order: Sequence[int]) -> list[dict[str, str]]:
    """A question for a language model that answers with a letter: the chat messages, options in the order given."""
    texts = LETTERED.texts(question)
    lines = [LETTERED.option.format(letter, texts[number]) for letter, number in zip(letters, order, strict=False)]
    user = LETTERED.state.format(state) + LETTERED.question_lines(question) + "".join(lines) + LETTERED.end
    return [{"role": "system", "content": LETTERED.task}, {"role": "user", "content": user}]
