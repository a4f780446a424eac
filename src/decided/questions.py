"""Questions from a file or from the words of a command line, checked as the server checks those of a request."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from decided.contract import MAX_OPTIONS, Question, encode
from decided.errors import DecidedError, InputError
from decided.reading import read_object, read_request

Questions = dict[str, Question]


def read_file(path: Path) -> Questions:
    """A map of questions by name, at the top or under the key `questions`: JSON if the file is called so, else YAML."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        found = read_object(content) if path.suffix == ".json" else _yaml(content)
    except DecidedError as error:
        raise InputError(f"{path}: {str(error).replace('the body', 'the file', 1)}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    inner = found.get("questions")
    nested = isinstance(inner, dict) and not isinstance(inner.get("type"), str)
    return checked(inner if nested else found, str(path))


def checked(questions: object, where: str) -> Questions:
    """Questions as they stand in a request, typed; or InputError."""
    try:
        return read_request(encode({"state": "", "questions": questions}), MAX_OPTIONS).questions
    except DecidedError as error:
        raise InputError(f"{where}: {error}") from None


def from_words(asked: Sequence[tuple[str, Sequence[str]]]) -> Questions:
    """Questions from the command line: a type, then the instructions and the options. The instructions are the name."""
    questions: dict[str, Any] = {}
    for kind, (instructions, *options) in asked:
        if instructions in questions:
            raise InputError(f"--{kind}: the question {instructions!r} stands twice")
        question: dict[str, Any] = {"type": kind, "instructions": instructions}
        if kind != "noul" and not options:
            raise InputError(f"--{kind} {instructions!r}: name the options after the question")
        if kind == "choice":
            question["criteria"] = dict(_option(option) for option in options)
            if len(question["criteria"]) < len(options):
                raise InputError(f"--choice {instructions!r}: an option stands twice")
        elif kind == "score":
            question["criteria"] = options
        questions[instructions] = question
    return checked(questions, "questions")


def _option(word: str) -> tuple[str, str | None]:
    """`name`, or `name=what it means`."""
    name, separator, description = word.partition("=")
    return (name, description or None) if separator else (word, None)


def _yaml(content: bytes) -> dict[str, Any]:
    """YAML in which only null is not a text: an option called `no` or `1` keeps its name."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value]
            if len(set(map(str, names))) < len(names):
                raise ValueError(f"line {node.start_mark.line + 1}: a name stands twice")
            return dict(super().construct_mapping(node, deep))

    Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
    try:
        found = yaml.load(content, Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no YAML: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("the file must hold questions by name")
    return found
