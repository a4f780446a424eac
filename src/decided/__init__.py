"""A self-hosted server for typed decisions, and a client for any server of its protocol.

The names below are loaded when they are first used: `import decided` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decided.client.client import AsyncClient, Client
    from decided.client.protocol import BatchResult, ClientError, Questions, Response
    from decided.contract.types import (
        Answer,
        Choice,
        ChoiceAnswer,
        Evidence,
        ModelEntry,
        Noul,
        NoulAnswer,
        Outcomes,
        Question,
        Score,
        ScoreAnswer,
        Usage,
    )

__all__ = [
    "Answer",
    "AsyncClient",
    "BatchResult",
    "Choice",
    "ChoiceAnswer",
    "Client",
    "ClientError",
    "Evidence",
    "ModelEntry",
    "Noul",
    "NoulAnswer",
    "Outcomes",
    "Question",
    "Questions",
    "Response",
    "Score",
    "ScoreAnswer",
    "Usage",
]

_HOMES = dict.fromkeys(("AsyncClient", "Client"), "decided.client.client")
_HOMES |= dict.fromkeys(("BatchResult", "ClientError", "Questions", "Response"), "decided.client.protocol")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'decided' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "decided.contract.types")), name)
