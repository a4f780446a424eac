"""Questions from a file or from the words of a command line, checked as the server checks those of a request."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from decided.contract.decoding import quote, read_object, read_request
from decided.contract.types import MAX_OPTIONS, Question, encode
from decided.errors import DecidedError, InputError

Questions = dict[str, Question]


_FIELDS = ("type", "instructions", "criteria")
_NEEDS = {
    "choice": "a choice needs options: criteria: {billing: invoices and payments, other: null}",
    "score": "a score needs levels, the lowest first: criteria: [can wait, this week, today]",
}


def read_file(path: Path) -> Questions:
    """A map of questions by name, at the top or under the key `questions`: JSON if the file is called so, else YAML.

    People write these files, so a mistake is told with its line and with what to write instead.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        found, lines = (read_object(content, "the file"), {}) if path.suffix == ".json" else _read_yaml(content)
    except DecidedError as error:
        raise InputError(f"{path}: {error}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    inner = found.get("questions")
    nested = isinstance(inner, dict) and not isinstance(inner.get("type"), str)
    questions: dict[str, Any] = found["questions"] if nested else found
    for name, question in questions.items():
        where = f"{path}, line {lines[name]}" if name in lines else str(path)
        questions[name] = _amend(question, f"{where}: question {quote(name)}")
    return check(questions, str(path))


def check(questions: object, where: str) -> Questions:
    """Questions as they stand in a request, typed; or InputError."""
    try:
        return read_request(encode({"state": "", "questions": questions}), MAX_OPTIONS).questions
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: {error.object!r} is not UTF-8 text") from None
    except DecidedError as error:
        raise InputError(f"{where}: {error}") from None


def _amend(question: object, where: str) -> object:
    """What a request would ignore or refuse in a machine's words is told in a person's; a list of options is taken."""
    if not isinstance(question, dict):
        raise InputError(f"{where} needs a type, instructions and criteria, indented below its name")
    for field in question:
        if field not in _FIELDS:
            near = get_close_matches(field, _FIELDS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"a question has {', '.join(_FIELDS)}"
            raise InputError(f"{where}: unknown field {quote(field)}: {hint}")
    kind, criteria = question.get("type"), question.get("criteria")
    if kind == "choice" and isinstance(criteria, list) and all(isinstance(option, str) for option in criteria):
        if len(set(criteria)) < len(criteria):
            raise InputError(f"{where}: duplicate option")
        return question | {"criteria": dict.fromkeys(criteria)}
    if kind in _NEEDS and (not criteria or not isinstance(criteria, dict if kind == "choice" else list)):
        raise InputError(f"{where}: {_NEEDS[kind]}")
    return question


def from_words(asked: Sequence[tuple[str, Sequence[str]]]) -> Questions:
    """Questions from the command line: a type, then the instructions and the options. The instructions are the name."""
    questions: dict[str, Any] = {}
    for kind, (instructions, *options) in asked:
        if instructions in questions:
            raise InputError(f"--{kind}: duplicate question {instructions!r}")
        question: dict[str, Any] = {"type": kind, "instructions": instructions}
        if kind != "noul" and not options:
            raise InputError(f"--{kind} {instructions!r}: name the options after the question")
        if kind == "choice":
            question["criteria"] = dict(_option(option) for option in options)
            if len(question["criteria"]) < len(options):
                raise InputError(f"--choice {instructions!r}: duplicate option")
        elif kind == "score":
            question["criteria"] = options
        questions[instructions] = question
    return check(questions, "questions")


def _option(word: str) -> tuple[str, str | None]:
    """`name`, or `name=what it means`."""
    name, separator, description = word.partition("=")
    return (name, description or None) if separator else (word, None)


def _read_yaml(content: bytes) -> tuple[dict[str, Any], dict[str, int]]:
    """YAML in which only null is not a text: an option called `no` keeps its name. And the lines of the names."""
    import yaml

    lines: dict[str, int] = {}

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value]
            for key, value in node.value:
                if names.count(key.value) > 1:
                    raise ValueError(f"line {node.start_mark.line + 1}: duplicate key {str(key.value)!r}")
                if isinstance(value, yaml.MappingNode):
                    lines.setdefault(str(key.value), key.start_mark.line + 1)
            return dict(super().construct_mapping(node, deep))

    Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
    try:
        found = yaml.load(content, Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        problem = error.problem or error.context or ""
        quotes = "a text with one of ? : , # { } [ ] in it needs quotes around it"
        hint = "indent with spaces, not tabs" if "'\\t'" in problem else quotes
        raise ValueError(f"{line}not valid YAML: {problem}; {hint}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ValueError("the file must map names to questions")
    return found, lines
