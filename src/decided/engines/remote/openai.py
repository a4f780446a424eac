"""`openai:NAME`, any server of the OpenAI chat protocol, and what the engines with more to offer build on.

A question becomes one chat completion of one token. The decision is read from the log-probabilities of that token, so
nothing is ever parsed out of what the model wrote.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from decided.contract.types import Question
from decided.engines import letters, prompts
from decided.engines.api import Cut
from decided.engines.letters import LETTERS, NoLetters, Token
from decided.engines.remote.engine import TRIVIAL, PartialVerdict, Remote, RequestInFlight, Unsuitable, together
from decided.engines.remote.pool import Garbled
from decided.engines.remote.upstream import Refused, address, number, text, whole
from decided.settings import Settings

TOP = 20
"""The most tokens with log-probabilities that the protocol shows."""

_LEAST_MASS = 0.05

_MAX_CUTS = 10
_TOO_LONG = re.compile("context|too long|exceed", re.IGNORECASE)

Body = dict[str, Any]


class _Reading(NamedTuple):
    """What one order of the options gave: shares of the labels, tokens read and written, and what was cut."""

    order: list[int]
    shares: list[float]
    read: int
    said: int
    cuts: tuple[Cut, ...]


class Chat(Remote):
    """A language model behind `/chat/completions`."""

    usual_address: str | None = None

    def __init__(self, kind: str, name: str, settings: Settings) -> None:
        super().__init__(kind, name, address(settings.remote_url, self.usual_address, "/v1"), settings)
        self._root = self._upstream.url.removesuffix("/v1")
        self._rotations = settings.rotations

    # --- what an engine may do in its own way ---

    def _body(self, messages: list[dict[str, str]], count: int) -> Body:
        """The request, restricted to the first `count` labels where the engine can do that."""
        return self._open_body(messages)

    def _open_body(self, messages: list[dict[str, str]]) -> Body:
        """The request with nothing restricted, which shows where the model would put its probability by itself."""
        return {
            "model": self.card.name,
            "messages": messages,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": TOP,
        }

    async def _look(self, timeout_s: float) -> None:
        try:
            await self._upstream.get(f"{self._upstream.url}/models", timeout_s)
        except Refused as error:
            if error.status not in (404, 405):  # there, but without a list of models
                raise

    async def _complete(self, asking: RequestInFlight, body: Body) -> Any:
        return await self._post(asking, f"{self._upstream.url}/chat/completions", body)

    def _tokens(self, reply: Any) -> list[Token]:
        """The tokens that the model might have said."""
        return tokens_of(reply["choices"][0]["logprobs"]["content"][0])

    def _usage(self, reply: Any) -> tuple[Any, Any]:
        """Tokens read and written, as the engine counts them, if it does."""
        usage = reply.get("usage") or {}
        return usage.get("prompt_tokens"), usage.get("completion_tokens")

    # --- the Remote ---

    def _groups(self, questions: int) -> Sequence[Sequence[int]]:
        return [(number,) for number in range(questions)]

    async def _try_out(self, asking: RequestInFlight) -> None:
        state, question = TRIVIAL
        messages = prompts.lettered_prompt(state, question, LETTERS, letters.rotation(2, 0))
        try:
            tokens, _, _ = self._read(await self._complete(asking, self._open_body(messages)))
        except NoLetters as error:
            raise Unsuitable(f"decisions cannot be read from this model: {error}") from None
        found = letters.mass(tokens, 2)
        if found < _LEAST_MASS:
            raise Unsuitable(
                f"asked to answer with A or B, the model put {found:.1%} of its probability on them. Serve a model that"
                " follows instructions, and switch its thinking off"
            )

    async def _ask(self, asking: RequestInFlight, state: str, questions: Sequence[Question]) -> PartialVerdict:
        (question,) = questions
        count = len(question.keys())
        if count == 1:
            return PartialVerdict([[1.0]], 0, 0)
        first, *others = letters.shifts(count, self._rotations)
        readings = [await self._in_order(asking, state, question, letters.rotation(count, first))]
        if others and letters.is_close(readings[0].shares):
            orders = [letters.rotation(count, shift) for shift in others]
            readings += await together([self._in_order(asking, state, question, order) for order in orders])
        shares = letters.average([(reading.order, reading.shares) for reading in readings])
        cuts = max((reading.cuts for reading in readings), key=len)
        return PartialVerdict(
            [shares], sum(each.read for each in readings), sum(each.said for each in readings), [cuts]
        )

    async def _in_order(self, asking: RequestInFlight, state: str, question: Question, order: list[int]) -> _Reading:
        """The shares of the labels with the options in this order. A state too long for the model is cut to fit."""
        room = len(state)
        for cut in range(_MAX_CUTS):
            messages = prompts.lettered_prompt(state[:room], question, LETTERS, order)
            body = self._body(messages, len(order))
            try:
                reply = await self._complete(asking, body)
            except Refused as error:
                fitting = share_that_fits(error)
                if fitting is None or not room:
                    raise
                # Numbers help once: some engines stop counting at their limit, and name that.
                room = int(room * (min(fitting, 0.5) if cut else fitting))
                continue
            tokens, read, said = self._read(reply)
            cuts = _cut(read, sum(len(message["content"]) for message in messages), room, len(state))
            return _Reading(order, letters.weights(tokens, len(order)), read, said, cuts)
        raise Garbled("the prompt is too long for the model however much of the state is cut")

    def _read(self, reply: Any) -> tuple[list[Token], int, int]:
        try:
            tokens = self._tokens(reply)
            usage = self._usage(reply)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise NoLetters("the reply has no log-probabilities") from None
        if not tokens:
            raise NoLetters("the reply has no log-probabilities")
        try:
            read, said = (0 if count is None else whole(count) for count in usage)
        except ValueError:
            raise Garbled("the reply counts its tokens in something else than whole numbers in reason") from None
        return tokens, read, said


def tokens_of(position: Any) -> list[Token]:
    """One position of the output: the most likely tokens, and the one taken if it is not among them."""
    *tokens, taken = [
        Token(text(each["token"]), number(each["logprob"])) for each in (*position["top_logprobs"], position)
    ]
    return tokens if any(token.text == taken.text for token in tokens) else [*tokens, taken]


def _cut(tokens: int, characters: int, kept: int, given: int) -> tuple[Cut, ...]:
    """What was cut, in tokens. The engine counts those of the whole prompt, so they are shared out by characters."""
    if kept == given:
        return ()
    return (Cut("state", tokens * kept // characters, tokens * given // characters, estimated=True),)


def share_that_fits(error: Refused) -> float | None:
    """How much of a state to keep when the engine says that the prompt is too long; None if it says something else.

    Engines word it each in their way, most with two numbers: what the model can read, and what it was given.
    """
    if error.status not in (400, 413) or not _TOO_LONG.search(error.said):
        return None
    numbers = {int(number) for number in re.findall(r"\d{3,7}", error.said)} - {400, 413}
    if len(numbers) < 2:
        return 0.5
    return min(0.9, max(0.05, 0.9 * min(numbers) / max(numbers)))


def load(name: str, settings: Settings) -> Chat:
    return Chat("openai", name, settings)
