"""Places for requests: how many are served at a time, and how many of them one client may have."""

from collections import Counter

from decided.errors import AtCapacity

_TIMES_THE_FREE = 7
"""Where clients share the places, how many one may have for each that is then still free, unless it is its first. Alone
it has seven of eight, or all but one; those that want all have the same number each, and whoever comes next finds a
place."""


class Places:
    """One for each request that is admitted, until it is answered."""

    def __init__(self, number: int) -> None:
        self.taken = 0
        self.shared = False
        """Whether there is more than one client."""
        self._number = number
        self._of_clients: Counter[str] = Counter()

    def enter(self, client: str) -> None:
        """Take a place, or raise AtCapacity."""
        free = self._number - self.taken
        held = self._of_clients[client]
        if free <= 0 or (self.shared and held and held >= _TIMES_THE_FREE * (free - 1)):
            raise AtCapacity(held if free > 0 else 0)
        self.keep(client)

    def keep(self, client: str) -> None:
        """Take a place, whatever is free: for a request that has just left one."""
        self.taken += 1
        self._of_clients[client] += 1

    def leave(self, client: str) -> None:
        self.taken -= 1
        self._of_clients[client] -= 1
