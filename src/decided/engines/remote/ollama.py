"""`ollama:NAME`, an Ollama server, by its own protocol: the OpenAI one has no way to forbid cutting the prompt."""

from typing import Any

from decided.engines.letters import Token
from decided.engines.remote.engine import RequestInFlight
from decided.engines.remote.openai import TOP, Body, Chat, tokens_of
from decided.settings import Settings


class Ollama(Chat):
    usual_address = "http://127.0.0.1:11434/v1"

    def _open_body(self, messages: list[dict[str, str]]) -> Body:
        return {
            "model": self.card.name,
            "messages": messages,
            "stream": False,
            "think": False,
            "truncate": False,  # an error is better than an answer to half a text
            "shift": False,
            "logprobs": True,
            "top_logprobs": TOP,
            "options": {"num_predict": 1, "temperature": 0},
        }

    async def _look(self, timeout_s: float) -> None:
        await self._upstream.get(f"{self._root}/api/tags", timeout_s)

    async def _complete(self, asking: RequestInFlight, body: Body) -> Any:
        return await self._post(asking, f"{self._root}/api/chat", body)

    def _tokens(self, reply: Any) -> list[Token]:
        return tokens_of(reply["logprobs"][0])

    def _usage(self, reply: Any) -> tuple[Any, Any]:
        return reply.get("prompt_eval_count"), reply.get("eval_count")


def load(name: str, settings: Settings) -> Ollama:
    return Ollama("ollama", name, settings)
