"""`decided teach`: ask the model about labelled texts, learn each question, and write the profiles that win.

The model is asked through the same seam as in the server, so what is learnt is learnt on what will be served.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decided import questions
from decided.backend import Backend, check_options, open_backend, open_engine
from decided.contract.temperature import CALIBRATED
from decided.contract.types import Question
from decided.engines.api import Engine
from decided.errors import DecidedError, InferenceFailed, InputError, ModelError, Unavailable
from decided.evaluation import labelled, lesson_report, output
from decided.evaluation.asking import AT_A_TIME, ask_engine, check_weights, texts_at_a_time
from decided.evaluation.complaints import Complaints, complain
from decided.evaluation.labels import LabelEvidence, Labels, Source, profile_path, read_labels
from decided.evaluation.outcomes import read_outcomes
from decided.evaluation.scoring import wilson
from decided.profiles.fingerprint import fingerprint
from decided.profiles.profile import Profile, identity, read_profile
from decided.progress import Progress
from decided.settings import Settings
from decided.together import work_off

_DEFAULT_TARGET = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the command was told: labels in, profiles out."""

    labels: str | None = None
    """A path, or `-` for standard input."""
    outcomes_file: Path | None = None
    """A file of outcomes that a server kept, in place of labels."""
    questions: Path | None = None
    out: Path | None = None
    state_columns: tuple[str, ...] = ()
    input_format: str | None = None
    target_accuracy: float | None = None
    coverage: float | None = None
    limit: int | None = None
    server: str | None = None
    api_key: str | None = None


async def teach(settings: Settings, task: Task) -> None:
    """Learn and report. Raises StartError when that is not possible."""
    _check(task)
    if task.outcomes_file is not None:
        source, evidence, problems = read_outcomes(task.outcomes_file)
        complain(problems)
    else:
        source, evidence = await _from_labels(settings, task, task.labels or "-")
    _conclude(task, source, evidence)


async def _from_labels(settings: Settings, task: Task, path: str) -> tuple[Source, list[LabelEvidence]]:
    asked = None if task.questions is None else questions.read_file(task.questions)
    found = read_labels(path, task.input_format, asked, task.state_columns, task.limit)
    complain(found.problems)
    if not any(one.rows for one in found.questions):
        raise InputError(f"{labelled.named(path)}: there is no label that can be used")
    return await _gather(settings, task, found)


def _check(task: Task) -> None:
    """What can be known to fail later fails now: asking a model a thousand questions takes a while."""
    if (task.labels is None) == (task.outcomes_file is None):
        raise InputError("name a file of labels, or a file of outcomes with --outcomes")
    if task.labels is not None and task.questions is None:
        labelled.refuse_a_table(task.labels)
    if task.out is not None and task.out.exists() and not task.out.is_dir():
        raise InputError(f"--out {task.out}: must be a folder")
    if task.out is not None:
        output.check(task.out)


def _conclude(task: Task, source: Source, evidence: Sequence[LabelEvidence]) -> None:
    """Learn question by question, say what was found, and keep what won."""
    target = task.target_accuracy or _DEFAULT_TARGET
    kept = 0
    for number, one in enumerate(evidence):
        if number:
            print()
        learnt = lesson_report.learn(one.labels, one.weights, one.features, target, task.coverage)
        print("\n".join(lesson_report.text(one.labels, learnt, source.model, target)))
        asked_for_more = task.target_accuracy is not None or task.coverage is not None
        profile = lesson_report.profile_of(one.labels, learnt, source.model, source.weights, asked_for_more)
        kept += profile is not None
        if task.out is not None:
            _keep(profile_path(task.out, one.labels.name, fingerprint(one.labels.question)), profile)
    print()
    if not kept:
        print("nothing to serve: the model as it is does as well")
    elif task.out is None:
        print("nothing is written: name a folder with --out")
    else:
        print(f"to use:  decided serve --profiles {task.out}")
    if task.server is not None:
        print("behind --server no head can be learnt; without it one can, if the model loaded here gives features")


def _keep(path: Path, profile: Profile | None) -> None:
    """Write it, unless one that is better, and was learnt from as many labels, would be lost for it."""
    if profile is None:
        if path.exists():
            print(f"  {path} is of an earlier run and stays: remove it, unless it was learnt from more than this")
        return
    before = _better(path, profile)
    compared = ""
    if before is not None:
        compared = (
            f"right on {before.after.accuracy:.1%} of {before.labels} labels held back, the new one on "
            f"{profile.after.accuracy:.1%} of {profile.labels}"
        )
        if before.labels >= profile.labels:
            print(f"  not written: {path} is better and stays: {compared}; remove it to have the new one")
            return
    content = profile.encoded()
    _write(path, content)
    print(f"  written: {path} ({identity(profile, content)})")
    if before is not None:
        print(f"  it takes the place of a better one, learnt from fewer labels: {compared}")


def _better(path: Path, profile: Profile) -> Profile | None:
    """The profile that is there, if it was right more often beyond noise, and if the same model can still serve it."""
    try:
        there, _ = read_profile(path)
    except InputError:  # there is none, or none that is of use
        return None
    other = there.model != profile.model or (there.weights != profile.weights and there.weights and profile.weights)
    most = wilson(round(profile.after.accuracy * profile.labels), profile.labels).high + 1e-9
    return there if not other and there.after.accuracy > most else None


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: a server may read the folder at any time."""
    with output.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_bytes(content)
        part.replace(path)


# --- asking ---


async def _gather(settings: Settings, task: Task, found: Labels) -> tuple[Source, list[LabelEvidence]]:
    if task.server is not None:
        backend = await open_backend(settings, task.server, task.api_key)
        try:
            if CALIBRATED in backend.description:
                raise InputError(
                    f"--server {task.server}: it is run with --temperature, whose place a profile takes. "
                    "Ask a server without one"
                )
            for one in found.questions:
                check_options(backend, {one.name: one.question})
            return Source(backend.model), await TeachingSurvey(_ServerAsker(backend), found).take(AT_A_TIME)
        finally:
            await backend.close()
    engine = await open_engine(settings)
    try:
        for one in found.questions:
            if len(one.options) > engine.card.max_options:
                most = engine.card.max_options
                raise InputError(f"question {one.name!r}: too many options for this model, at most {most}")
        source = Source(engine.card.name, engine.card.weights)
        return source, await TeachingSurvey(_EngineAsker(engine), found).take(texts_at_a_time(settings, engine))
    finally:
        await engine.close()


class _EngineAsker:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def ask(self, state: str, asked: Sequence[Question]) -> tuple[Sequence[Sequence[float]], Any]:
        try:
            verdict = await ask_engine(self._engine, state, asked, features=True)
        except Unavailable as error:
            raise ModelError(f"gave up: {error}") from None
        return verdict.weights, verdict.features


class _ServerAsker:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def ask(self, state: str, asked: Sequence[Question]) -> tuple[Sequence[Sequence[float]], Any]:
        named = {str(number): question for number, question in enumerate(asked)}
        async with aclosing(self._backend.batch([state], named)) as results:
            async for result in results:
                if result.response is None:
                    raise InferenceFailed(result.error.message if result.error else "no answer")
                answers = [result.response.answers[name] for name in named]
                if used := next((answer.profile for answer in answers if answer.profile), ""):
                    raise InputError(
                        f"the server answers with the profile {used}: what is learnt on top of it would be applied in "
                        "its place. Ask a server without --profiles, or leave --server out"
                    )
                return [
                    [answer.probabilities[key] for key in question.keys()]  # noqa: SIM118
                    for answer, question in zip(answers, asked, strict=True)
                ], None
        raise InferenceFailed("no answer")


class TeachingSurvey:
    """Every text is asked once, with all questions that it has labels for."""

    def __init__(self, asker: "_EngineAsker | _ServerAsker", found: Labels) -> None:
        self._asker = asker
        self._evidence = [
            LabelEvidence(one, [None] * len(one.states), [None] * len(one.states)) for one in found.questions
        ]
        self._texts: dict[str, list[tuple[int, int]]] = {}
        for number, one in enumerate(found.questions):
            for place, state in enumerate(one.states):
                self._texts.setdefault(state, []).append((number, place))
        self._progress = Progress(len(self._texts), "texts", sys.stderr, time.monotonic)
        self._complaints = Complaints(self._progress.say)
        self._failed = 0

    async def take(self, at_a_time: int) -> list[LabelEvidence]:
        try:
            await work_off(self._texts, at_a_time, self._look_at)
        finally:
            self._progress.close()
        self._complaints.close()
        if self._failed * 2 > len(self._texts):  # the few that were answered may not be like the others
            raise ModelError(f"no answer to {self._failed} of {len(self._texts)} texts")
        return self._evidence

    async def _look_at(self, state: str) -> None:
        try:
            await self._ask(state, self._texts[state])
        except DecidedError as error:
            self._failed += 1
            number, place = self._texts[state][0]
            self._complaints.add(f"row {self._evidence[number].labels.rows[place]}: {error.in_full}")
        self._progress.advance()

    async def _ask(self, state: str, places: list[tuple[int, int]]) -> None:
        numbers = sorted({number for number, _ in places})
        asked = [self._evidence[number].labels.question for number in numbers]
        weights, features = await self._asker.ask(state, asked)
        for number, question, given in zip(numbers, asked, weights, strict=True):
            check_weights(question, given)
            one = self._evidence[number]
            by_key = dict(zip(question.keys(), given, strict=True))
            for place in (place for other, place in places if other == number):
                one.weights[place] = [float(by_key[key]) for key in one.labels.options]
                one.features[place] = features
