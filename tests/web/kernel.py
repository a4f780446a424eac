"""What the kernel of this machine (Linux) knows about a connection."""

import re
import socket
from pathlib import Path
from typing import NamedTuple

from tests.support.server import Server


class End(NamedTuple):
    """One end of a connection."""

    state: str
    unsent: int  # handed to the kernel and not yet with the other end
    unread: int  # with the kernel and not yet taken by the process

    @property
    def established(self) -> bool:
        return self.state == "01"


def server_end(server: Server, client: socket.socket) -> End | None:
    return _end(server.port, client.getsockname()[1])


def client_end(server: Server, client: socket.socket) -> End | None:
    return _end(client.getsockname()[1], server.port)


def _end(local: int, remote: int) -> End | None:
    """None when there is none, and now and then when there is one: the table is not read in one moment."""
    found = re.search(rf":{local:04X} [0-9A-F]+:{remote:04X} (\w\w) (\w+):(\w+)", Path("/proc/net/tcp").read_text())
    return End(found[1], int(found[2], 16), int(found[3], 16)) if found else None
