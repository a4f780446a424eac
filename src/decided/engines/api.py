"""The two seams behind which every model lives, and the table of kinds.

A `Model` is in-process and knows nothing of threads or requests: it turns text into tokens, and tokens into
probabilities. An `Engine` is what the service sees. `serving/worker.py` makes an Engine of any Model; a remote engine
is one by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from typing_extensions import TypeIs

from decided.contract.types import MAX_OPTIONS, Question
from decided.engines.checkpoint import locate, recognise
from decided.errors import DecidedError, ModelError, StartError
from decided.extras import install_command
from decided.settings import Settings

KINDS: dict[str, str] = {
    "causal": "decided.engines.torch.causal",
    "embedded": "decided.engines.embedded.model",
    "gliclass": "decided.engines.torch.gliclass",
    "laya": "decided.engines.torch.laya",
    "llamacpp": "decided.engines.remote.llamacpp",
    "lmstudio": "decided.engines.remote.lmstudio",
    "nli": "decided.engines.torch.nli",
    "ollama": "decided.engines.remote.ollama",
    "openai": "decided.engines.remote.openai",
    "opendecider": "decided.engines.torch.opendecider",
    "sglang": "decided.engines.remote.sglang",
    "systemone": "decided.engines.remote.systemone",
    "vllm": "decided.engines.remote.vllm",
    "worded": "decided.engines.torch.worded",
}
"""Kind -> module. The module has `load(name: str, settings: Settings) -> Model | Engine`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What the operator and the clients may know of a model."""

    name: str
    description: str
    release_date: str
    kind: str
    device: str
    max_options: int = MAX_OPTIONS
    provenance: str = ""
    """Which weights, in which numbers, calibrated by whom: a sentence behind the description."""
    weights: str = ""
    """A digest of the weights, where there is one: what was learnt on some weights is wrong for others."""


class Cut(NamedTuple):
    """A part of the input that did not fit: how many of its tokens the model read."""

    part: str
    kept: int
    given: int
    estimated: bool = False


@dataclass(slots=True)
class Item:
    """Some questions about one state, tokenised: the unit that batches are made of."""

    questions: Sequence[int]
    cost: int
    """What its next run costs, in tokens or what takes as long. An item of many runs says `More` at the end of each."""
    payload: Any = None
    stop: Callable[[], None] = lambda: None
    """Called from another thread when nobody waits for the answers any more: a run may end early, with any error."""
    wants_features: bool = False
    features: Any = None
    """What the model made of the state, as a vector of float32; filled in by `run` where it is wanted."""


class More(NamedTuple):
    """In place of answers: the item has kept what it found so far, and its next run costs so much."""

    cost: int


@dataclass(slots=True)
class Encoded:
    """One state with all its questions, tokenised once."""

    items: Sequence[Item]
    input_tokens: int
    cuts: Sequence[Sequence[Cut]] = ()
    """For each question, what was cut; empty when nothing was."""
    room: int = 0
    """Bytes that its items keep from their first run to their last."""


@dataclass(slots=True)
class Verdict:
    """All that an engine says about one state: for each question, a weight for each option, in the options' order."""

    weights: list[Sequence[float]]
    input_tokens: int
    output_tokens: int = 0
    cuts: Sequence[Sequence[Cut]] = ()
    """For each question, what was cut; empty when nothing was."""
    features: Any = None
    """The model's own description of the state, a vector of float32, if it was asked for."""


class Caller(NamedTuple):
    """Who asks: what an engine may know of a request beside its content."""

    client: str = ""
    """The name of the key that it came with. Clients share an engine evenly."""


NOBODY = Caller()

Emit = Callable[[int, Verdict | DecidedError], None]
"""Takes the number of a state, and the verdict on it or what went wrong."""
_OF_EXTRAS = dict.fromkeys(("torch", "transformers", "huggingface_hub"), "torch") | {"gliclass": "gliclass"}
"""Libraries that an extra brings -> that extra."""


Result = Sequence[Sequence[float]] | More
"""For each question of an item, the weights of its options; or that there is more to do."""


class Model(Protocol):
    """An in-process model. One thread reads, another runs; neither method is called by two threads at a time."""

    card: ModelCard
    token_budget: int
    """The cost up to which items run together, and which no run should exceed by much: whoever comes next waits for its
    end. It may change from batch to batch."""

    def prepare(self, questions: Sequence[Question]) -> Sequence[Any]:
        """What each question is for all states. The service asks for a few at a time, and keeps what it gets for other
        requests that ask the same."""

    def encode(self, prepared: Sequence[Any], state: str) -> Encoded:
        """Tokenise one state for the questions prepared."""

    def run(self, items: Sequence[Item]) -> Sequence[Result]:
        """One batch. `DeviceLost` says that no run can succeed any more."""


class ParallelModel(Model, Protocol):
    """A model that several threads may run at a time, an item each."""

    runners: int
    """How many of them keep the machine busy."""
    room: int
    """Bytes that all items together may keep between their runs; one state may have more if it is alone."""


class OverlappingModel(Model, Protocol):
    """A model on a device of its own: the next batch can be made and sent off while the one before still runs."""

    def launch(self, items: Sequence[Item]) -> Callable[[], Sequence[Result]]:
        """Start a batch; what is returned waits for it and gives what `run` would have given."""


class Engine(Protocol):
    """What the service asks. Every method is called on the event loop."""

    card: ModelCard
    remote: bool

    async def start(self) -> None:
        """Warm up; raise ModelError if the model cannot serve."""

    async def decide(
        self, states: Sequence[str], questions: Sequence[Question], *, caller: Caller = NOBODY
    ) -> list[Verdict]:
        """One verdict per state. Cancelling the call abandons what has not been started."""

    async def decide_each(
        self, states: Sequence[str], questions: Sequence[Question], emit: Emit, *, caller: Caller = NOBODY
    ) -> None:
        """The same, but each state is told as soon as it is decided, in any order, and one that fails fails alone.
        An error that is raised is that of all states not told."""

    async def check(self) -> None:
        """Return when a request would be answered now, raise Unavailable when not."""

    def queue_depth(self) -> int:
        """Questions admitted and not yet begun."""

    async def close(self) -> None:
        """Let go of threads and connections."""


class FeatureEngine(Engine, Protocol):
    """An engine whose verdicts hold the model's features of the state when they are asked for."""

    async def decide(
        self, states: Sequence[str], questions: Sequence[Question], features: bool = False, *, caller: Caller = NOBODY
    ) -> list[Verdict]: ...

    async def decide_each(
        self,
        states: Sequence[str],
        questions: Sequence[Question],
        emit: Emit,
        features: bool = False,
        *,
        caller: Caller = NOBODY,
    ) -> None: ...


def load(settings: Settings) -> Model | Engine:
    """The model that the settings name."""
    kind, _, name = settings.model.partition(":")
    try:
        if kind not in KINDS:
            kind, name = _recognise(settings)
        loaded: Model | Engine = import_module(KINDS[kind]).load(name, settings)
    except StartError:
        raise
    except ModuleNotFoundError as error:
        if error.name not in _OF_EXTRAS:
            raise
        command = install_command(_OF_EXTRAS[error.name])
        raise ModelError(f"--model {settings.model!r} needs {error.name}: {command}") from None
    except Exception as error:
        raise ModelError(f"--model {settings.model!r} cannot be loaded: {error}") from error
    return loaded


def _recognise(settings: Settings) -> tuple[str, str]:
    """The kind of a folder, a file or a name on the Hub, from the model's files."""
    name = settings.model
    if not Path(name).expanduser().exists() and (":" in name or "/" not in name):
        raise ModelError(f"--model {name!r}: unknown kind; the kinds are {', '.join(sorted(KINDS))}")
    return recognise(locate(name, settings)), name


def overlaps(model: Model) -> TypeIs[OverlappingModel]:
    """Whether its batches may be launched ahead."""
    return bool(getattr(model, "overlaps", False))


def is_parallel(model: Model) -> TypeIs[ParallelModel]:
    """Whether several threads may run it."""
    return hasattr(model, "runners")


def run_to_end(model: Model, items: Sequence[Item]) -> list[Sequence[Sequence[float]]]:
    """All the runs that items take, one batch after the other, without a worker."""
    results = list(model.run(items))
    while going := [place for place, result in enumerate(results) if isinstance(result, More)]:
        for place, result in zip(going, model.run([items[place] for place in going]), strict=True):
            results[place] = result
    return [result for result in results if not isinstance(result, More)]


def gives_features(engine: Engine) -> TypeIs[FeatureEngine]:
    """Whether its verdicts can hold features."""
    return bool(getattr(engine, "gives_features", False))


def is_model(loaded: Model | Engine) -> TypeIs[Model]:
    """Whether it needs a worker to become an Engine."""
    return hasattr(loaded, "run")
