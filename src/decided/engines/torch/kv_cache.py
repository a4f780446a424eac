"""Keys and values of states that were read, kept for the next question about them within a bound of memory."""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from torch import Tensor


class CachedState:
    """What the layers remember of a state: keys and values, [layers, 2, tokens, heads, width], once it is read."""

    __slots__ = ("length", "memory")

    def __init__(self, length: int) -> None:
        self.length = length
        self.memory: Tensor | None = None

    def whole(self) -> Tensor:
        if self.memory is None:
            raise RuntimeError("a state was kept that was never read to its end")
        return self.memory


class KvCache:
    """The states asked about most recently."""

    def __init__(self, limit_bytes: int, bytes_per_token: int) -> None:
        self._limit = limit_bytes // max(1, bytes_per_token)
        self._kept: OrderedDict[bytes, CachedState] = OrderedDict()
        self._tokens = 0
        self.hits = 0

    def find(self, key: bytes) -> CachedState | None:
        known = self._kept.get(key)
        if known is not None:
            self.hits += 1
            self._kept.move_to_end(key)
        return known

    def keep(self, key: bytes, known: CachedState) -> bool:
        """Make room for a state that is about to be read. One that is larger than the bound is not kept."""
        if known.length > self._limit:
            return False
        self._kept[key] = known
        self._tokens += known.length
        while self._tokens > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self._tokens -= oldest.length
        return True

    def clear(self) -> None:
        self._kept.clear()
        self._tokens = 0


class Shelf:
    """Memory for the keys and values of a batch that stays where it is: recorded launches know its address."""

    def __init__(self, make: Callable[[int], Tensor], moved: Callable[[], None]) -> None:
        self._make = make
        self._moved = moved
        self._memory: Tensor | None = None

    def take(self, tokens: int) -> Tensor:
        if self._memory is None or self._memory.shape[2] < tokens:
            self.clear()
            self._memory = self._make(tokens)
        return self._memory[:, :, :tokens]

    def clear(self) -> None:
        self._memory = None
        self._moved()


def gather(known: Iterable[CachedState], into: Tensor) -> None:
    """Put the memory of states together, one after the other."""
    start = 0
    for state in known:
        into[:, :, start : start + state.length] = state.whole()
        start += state.length
