"""The two seams behind which every model lives, and the table of kinds.

A `Model` is in-process and knows nothing of threads or requests: it turns text into tokens, and tokens into
probabilities. An `Engine` is what the service sees. `worker.py` makes an Engine of any Model; a remote engine is one
by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from typing_extensions import TypeIs

from decided.contract import MAX_OPTIONS, Question
from decided.errors import DecidedError, ModelError, StartError
from decided.settings import Settings

KINDS: dict[str, str] = {
    "causal": "decided.engines.torch.causal",
    "embedded": "decided.engines.embedded",
    "gliclass": "decided.engines.torch.gliclass",
    "laya": "decided.engines.torch.laya",
    "llamacpp": "decided.engines.llamacpp",
    "lmstudio": "decided.engines.lmstudio",
    "nli": "decided.engines.torch.nli",
    "ollama": "decided.engines.ollama",
    "openai": "decided.engines.openai",
    "opendecider": "decided.engines.torch.opendecider",
    "sglang": "decided.engines.sglang",
    "systemone": "decided.engines.systemone",
    "vllm": "decided.engines.vllm",
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
    payload: Any = None


@dataclass(slots=True)
class Reading:
    """One state with all its questions, tokenised once."""

    items: Sequence[Item]
    input_tokens: int
    cuts: Sequence[Sequence[Cut]] = ()
    """For each question, what was cut; empty when nothing was."""


@dataclass(slots=True)
class Verdict:
    """All that an engine says about one state: for each question, a weight for each option, in the options' order."""

    weights: list[Sequence[float]]
    input_tokens: int
    output_tokens: int = 0
    cuts: Sequence[Sequence[Cut]] = ()
    """For each question, what was cut; empty when nothing was."""


Tell = Callable[[int, Verdict | DecidedError], None]
"""Takes the number of a state, and the verdict on it or what went wrong."""
_OF_EXTRAS = dict.fromkeys(("torch", "transformers", "huggingface_hub"), "torch") | {"gliclass": "gliclass"}
"""Libraries that an extra brings -> that extra."""


class Model(Protocol):
    """An in-process model. One thread reads, another runs; neither method is called by two threads at a time."""

    card: ModelCard
    token_budget: int
    """The cost up to which items run together. One item above it runs alone. It may change from batch to batch."""

    def prepare(self, questions: Sequence[Question]) -> Any:
        """What is common to all states of a request: done once for it, and kept for requests that ask the same."""

    def read(self, prepared: Any, state: str) -> Reading:
        """Tokenise one state for the questions prepared."""

    def run(self, items: Sequence[Item]) -> Sequence[Sequence[Sequence[float]]]:
        """For each item, for each of its questions, the weights of the options. One call is one batch."""


class OverlappingModel(Model, Protocol):
    """A model on a device of its own: the next batch can be made and sent off while the one before still runs."""

    def launch(self, items: Sequence[Item]) -> Callable[[], Sequence[Sequence[Sequence[float]]]]:
        """Start a batch; what is returned waits for it and gives what `run` would have given."""


class Engine(Protocol):
    """What the service asks. Every method is called on the event loop."""

    card: ModelCard
    remote: bool

    async def start(self) -> None:
        """Warm up; raise ModelError if the model cannot serve."""

    async def decide(self, states: Sequence[str], questions: Sequence[Question]) -> list[Verdict]:
        """One verdict per state. Cancelling the call abandons what has not been started."""

    async def decide_each(self, states: Sequence[str], questions: Sequence[Question], tell: Tell) -> None:
        """The same, but each state is told as soon as it is decided, in any order, and one that fails fails alone.
        An error that is raised is that of all states not told."""

    async def check(self) -> None:
        """Return when a request would be answered now, raise Unavailable when not."""

    def queue_depth(self) -> int:
        """Questions admitted and not yet begun."""

    async def close(self) -> None:
        """Let go of threads and connections."""


def load(settings: Settings) -> Model | Engine:
    """The model that the settings name."""
    kind, _, name = settings.model.partition(":")
    try:
        if kind not in KINDS:
            kind, name = _recognised(settings)
        loaded: Model | Engine = import_module(KINDS[kind]).load(name, settings)
    except StartError:
        raise
    except ModuleNotFoundError as error:
        if error.name not in _OF_EXTRAS:
            raise
        raise ModelError(
            f"--model {settings.model!r} needs {error.name}: pip install 'decided[{_OF_EXTRAS[error.name]}]'"
        ) from None
    except Exception as error:
        raise ModelError(f"--model {settings.model!r} cannot be loaded: {error}") from error
    return loaded


def _recognised(settings: Settings) -> tuple[str, str]:
    """The kind of a folder, a file or a name on the Hub, from the model's files."""
    name = settings.model
    if not Path(name).expanduser().exists() and (":" in name or "/" not in name):
        raise ModelError(f"--model {name!r}: unknown kind; the kinds are {', '.join(sorted(KINDS))}")
    checkpoint = import_module("decided.engines.checkpoint")
    return checkpoint.recognise(checkpoint.locate(name, settings)), name


def overlaps(model: Model) -> TypeIs[OverlappingModel]:
    """Whether its batches may be launched ahead."""
    return bool(getattr(model, "overlaps", False))


def is_model(loaded: Model | Engine) -> TypeIs[Model]:
    """Whether it needs a worker to become an Engine."""
    return hasattr(loaded, "run")
