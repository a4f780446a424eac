"""`llamacpp:NAME`, the llama.cpp server.

All label tokens get the same large bias, which leaves the ratios between them as they are and lifts every one of them
above the other tokens: so all 26 are seen, exactly, however unlikely.
"""

import math
from typing import Any

from decided.engines.letters import LETTERS, Token
from decided.engines.remote.openai import Body, Chat
from decided.engines.remote.upstream import probability, text
from decided.settings import Settings

_BIAS = 50.0
_ROOM = 12
"""Tokens shown beyond the labels: where a tokeniser cuts " A" in two, the blank is lifted too."""


class LlamaCpp(Chat):
    usual_address = "http://127.0.0.1:8080/v1"

    def _open_body(self, messages: list[dict[str, str]]) -> Body:
        body = super()._open_body(messages)
        return body | {"cache_prompt": True, "chat_template_kwargs": {"enable_thinking": False}}

    def _body(self, messages: list[dict[str, str]], count: int) -> Body:
        spellings = [spelling for label in LETTERS[:count] for spelling in (label, f" {label}")]
        return self._open_body(messages) | {
            "logit_bias": [[spelling, _BIAS] for spelling in spellings],
            "top_logprobs": len(spellings) + _ROOM,
            # After the bias, and with no sampler that would drop or reshape anything.
            "post_sampling_probs": True,
            "samplers": ["temperature"],
            "temperature": 1.0,
        }

    async def _look(self, timeout_s: float) -> None:
        await self._upstream.get(f"{self._root}/health", timeout_s)

    def _tokens(self, reply: Any) -> list[Token]:
        position = reply["choices"][0]["logprobs"]["content"][0]
        if "top_probs" not in position:
            return super()._tokens(reply)
        likely = [(text(each["token"]), probability(each["prob"])) for each in position["top_probs"]]
        return [Token(token, math.log(share)) for token, share in likely if share > 0]


def load(name: str, settings: Settings) -> LlamaCpp:
    return LlamaCpp("llamacpp", name, settings)
