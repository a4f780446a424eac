"""`systemone:NAME`, another server of this very protocol: the hosted service, or another `decided`.

Questions go through as they came, all questions about a state in one call. What comes back is taken apart into
probabilities, so the answers are made here as for every engine.
"""

import re
from collections.abc import Sequence

from decided.contract.answers import is_distribution
from decided.contract.types import Question
from decided.engines.api import Cut
from decided.engines.remote.engine import TRIVIAL, PartialVerdict, Remote, RequestInFlight, Unsuitable
from decided.engines.remote.pool import Garbled
from decided.engines.remote.upstream import Refused, address, probability, whole
from decided.settings import Settings

_CUT = re.compile(r"the model read ([0-9]{1,9}) of (about )?([0-9]{1,9}) tokens of the (state|instructions|options)")
_CHARACTERS_PER_TOKEN = 4


class SystemOne(Remote):
    def __init__(self, kind: str, name: str, settings: Settings) -> None:
        url = address(settings.remote_url, None, "").removesuffix("/systemone").removesuffix("/v1")
        super().__init__(kind, name, url, settings)

    async def _look(self, timeout_s: float) -> None:
        try:
            await self._upstream.get(f"{self._upstream.url}/ready", timeout_s)
        except Refused as error:
            if error.status not in (404, 405):  # servers of the protocol need not have it
                raise

    async def _try_out(self, asking: RequestInFlight) -> None:
        state, question = TRIVIAL
        try:
            await self._ask(asking, state, [question])
        except Garbled as error:
            raise Unsuitable(f"the engine does not speak the protocol: {error}") from None

    def _groups(self, questions: int) -> Sequence[Sequence[int]]:
        return [range(questions)]

    async def _ask(self, asking: RequestInFlight, state: str, questions: Sequence[Question]) -> PartialVerdict:
        names = [f"q{number}" for number in range(len(questions))]
        body = {"model": self.card.name, "state": state, "questions": dict(zip(names, questions, strict=True))}
        reply = await self._post(asking, f"{self._upstream.url}/v1/systemone", body)
        try:
            answers = [reply["answers"][name] for name in names]
            weights = [
                [probability(answer["probabilities"][key]) for key in question.keys()]  # noqa: SIM118
                for question, answer in zip(questions, answers, strict=True)
            ]
            read, said = whole(reply["usage"]["input_tokens"]), whole(reply["usage"]["output_tokens"])
            warnings = [warning for warning in reply.get("warnings") or () if isinstance(warning, str)]
            cut = [answer.get("truncated") is True for answer in answers]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Garbled("the reply lacks probabilities or usage, or has nonsense in their place") from None
        if not all(map(is_distribution, weights)):
            raise Garbled("the reply gives no option of a question any probability")
        cuts = [_cuts(name, warnings, state, read) if was else () for name, was in zip(names, cut, strict=True)]
        return PartialVerdict(weights, read, said, cuts if any(cuts) else ())


def _cuts(name: str, warnings: Sequence[str], state: str, read: int) -> Sequence[Cut]:
    """What was cut of a question's input: in figures where the warnings have them, else as an estimate."""
    about = " ".join(warning for warning in warnings if f'"{name}"' in warning)
    figures = [(part, int(kept), int(given), bool(guess)) for kept, guess, given, part in _CUT.findall(about)]
    found = [Cut(part, kept, given, guess) for part, kept, given, guess in figures if kept <= given]
    return found or [Cut("state", read, max(read + 1, len(state) // _CHARACTERS_PER_TOKEN), estimated=True)]


def load(name: str, settings: Settings) -> SystemOne:
    return SystemOne("systemone", name, settings)
