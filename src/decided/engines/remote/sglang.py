"""`sglang:NAME`, an SGLang server.

Its output can be held to a regular expression, and the log-probabilities it shows are those after that: with one
letter out of the labels allowed, as many tokens as there are labels show every one of them.
"""

from decided.engines.letters import LETTERS
from decided.engines.remote.openai import Body, Chat
from decided.settings import Settings


class SGLang(Chat):
    usual_address = "http://127.0.0.1:30000/v1"

    def _open_body(self, messages: list[dict[str, str]]) -> Body:
        return super()._open_body(messages) | {"chat_template_kwargs": {"enable_thinking": False}}

    def _body(self, messages: list[dict[str, str]], count: int) -> Body:
        # No more tokens than labels: the next ones have probability zero, whose logarithm JSON cannot write.
        return self._open_body(messages) | {"regex": f"[{LETTERS[:count]}]", "top_logprobs": count}

    async def _look(self, timeout_s: float) -> None:
        await self._upstream.get(f"{self._root}/health", timeout_s)


def load(name: str, settings: Settings) -> SGLang:
    return SGLang("sglang", name, settings)
