"""`vllm:NAME`, a vLLM server.

It can be asked for the log-probabilities of given tokens (`logprob_token_ids`): so all 26 labels are seen, in both
spellings, with their true probabilities. Releases that do not know the field ignore it and show the 20 most likely.
"""

from decided.engines.letters import LETTERS
from decided.engines.remote.engine import RequestInFlight, together
from decided.engines.remote.openai import Body, Chat
from decided.engines.remote.pool import Garbled
from decided.engines.remote.upstream import Refused, whole
from decided.settings import Settings


class Vllm(Chat):
    usual_address = "http://127.0.0.1:8000/v1"

    def __init__(self, kind: str, name: str, settings: Settings) -> None:
        super().__init__(kind, name, settings)
        self._spellings: list[list[int]] = []

    def _open_body(self, messages: list[dict[str, str]]) -> Body:
        return super()._open_body(messages) | {"chat_template_kwargs": {"enable_thinking": False}}

    def _body(self, messages: list[dict[str, str]], count: int) -> Body:
        body = self._open_body(messages)
        tokens = [token for spellings in self._spellings[:count] for token in spellings]
        return body | {"logprob_token_ids": tokens} if tokens else body

    async def _look(self, timeout_s: float) -> None:
        await self._upstream.get(f"{self._root}/health", timeout_s)

    async def _try_out(self, asking: RequestInFlight) -> None:
        """Learn the labels' tokens, then as any other."""
        try:
            self._spellings = await together([self._tokens_of_label(asking, label) for label in LETTERS])
        except Refused:  # a gateway that passes on the chat alone
            self._spellings = []
        await super()._try_out(asking)

    async def _tokens_of_label(self, asking: RequestInFlight, label: str) -> list[int]:
        """The spellings of a label that are one token."""
        found: list[int] = []
        for spelling in (label, f" {label}"):
            body = {"model": self.card.name, "prompt": spelling, "add_special_tokens": False}
            reply = await self._post(asking, f"{self._root}/tokenize", body)
            tokens = reply.get("tokens")
            if not isinstance(tokens, list):
                raise Garbled("no tokens in the reply to /tokenize")
            try:
                numbers = [whole(token) for token in tokens]
            except ValueError:
                raise Garbled("the reply to /tokenize numbers tokens in something else than whole numbers") from None
            if len(numbers) == 1 and numbers[0] not in found:
                found += numbers
        return found


def load(name: str, settings: Settings) -> Vllm:
    return Vllm("vllm", name, settings)
