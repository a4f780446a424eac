"""A self-hosted server for typed decisions, and a client for any server of its protocol.

The names below are loaded when they are first used: `import decided` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decided.client.client import AsyncClient, Client
    from decided.client.protocol import BatchResult, ClientError, Response
    from decided.contract.types import Choice, ChoiceAnswer, Noul, NoulAnswer, Outcomes, Score, ScoreAnswer

__all__ = [
    "AsyncClient",
    "BatchResult",
    "Choice",
    "ChoiceAnswer",
    "Client",
    "ClientError",
    "Noul",
    "NoulAnswer",
    "Outcomes",
    "Response",
    "Score",
    "ScoreAnswer",
]

_HOMES = dict.fromkeys(("AsyncClient", "Client"), "decided.client.client")
_HOMES |= dict.fromkeys(("BatchResult", "ClientError", "Response"), "decided.client.protocol")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'decided' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "decided.contract.types")), name)
