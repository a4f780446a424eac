"""`lmstudio:NAME`, the server of LM Studio. It shows log-probabilities in `/v1/responses` only."""

from typing import Any

from decided.engines.letters import Token
from decided.engines.remote.engine import RequestInFlight
from decided.engines.remote.openai import TOP, Body, Chat, tokens_of
from decided.settings import Settings


class LmStudio(Chat):
    usual_address = "http://127.0.0.1:1234/v1"

    def _open_body(self, messages: list[dict[str, str]]) -> Body:
        return {
            "model": self.card.name,
            "input": messages,
            "max_output_tokens": 1,
            "temperature": 0,
            "include": ["message.output_text.logprobs"],
            "top_logprobs": TOP,
            "store": False,
        }

    async def _complete(self, asking: RequestInFlight, body: Body) -> Any:
        return await self._post(asking, f"{self._upstream.url}/responses", body)

    def _tokens(self, reply: Any) -> list[Token]:
        messages = [item for item in reply["output"] if item["type"] == "message"]
        return tokens_of(messages[0]["content"][0]["logprobs"][0])

    def _usage(self, reply: Any) -> tuple[Any, Any]:
        usage = reply.get("usage") or {}
        return usage.get("input_tokens"), usage.get("output_tokens")


def load(name: str, settings: Settings) -> LmStudio:
    return LmStudio("lmstudio", name, settings)
