"""From settings to a listening process and back: load, warm up, bind, serve, drain."""

import asyncio
import errno
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from decided.errors import WORKER_LOST_EXIT_CODE, BindError, SettingsError, StartError
from decided.serving.start import load_profiles, wait_until_lost
from decided.settings import Settings
from decided.web.assembly import Assembly, assemble, tell_profiles
from decided.web.listener import Listener

log = logging.getLogger("decided")

_OTHER_FILES = 256  # that the process may need beside its connections


async def serve(settings: Settings) -> None:
    """Serve until told to stop. Raises StartError if the service cannot start."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # nothing is in flight yet; and process 1 has no default
    _bind(settings.host, settings.port).close()  # a port that is taken is told now, not after the model has loaded
    async with assemble(settings) as assembly:
        gc.freeze()  # the model and the modules stay: no collection need look at them again
        gc.set_threshold(5_000, 10, 10)  # requests leave few cycles behind, but what they hold may be large
        sock = _bind(settings.host, settings.port)
        listener = Listener(assembly.edge, settings.request_timeout_s, _connections_within_the_limits(settings))
        _obey_signals(listener, lambda: _reload(settings, assembly))
        _tell(settings, assembly, sock)  # last: whoever reads that it serves may send a signal at once
        watch = asyncio.create_task(_end_when_lost(assembly, settings.worker_grace_s))
        try:
            await listener.serve(sock)
        finally:
            watch.cancel()
    log.info("stopped")


def _tell(settings: Settings, assembly: Assembly, sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    log.info("serving %s (loaded in %.2f s) on http://%s", assembly.model, assembly.load_seconds, address)
    if settings.open_to_the_network:
        log.warning(
            "listening on %s without an API key: anyone who reaches this port can ask. Set SERVICE_API_KEY", host
        )


async def _end_when_lost(assembly: Assembly, grace_s: float) -> None:
    """A model that cannot answer does not heal by itself: whoever watches over this process starts a new one."""
    if assembly.engine.remote or not grace_s:
        return
    await wait_until_lost(assembly.engine, grace_s)
    log.critical("the inference worker did not come back within %g s: ending", grace_s)
    assembly.request_log.flush()
    os._exit(WORKER_LOST_EXIT_CODE)  # a thread that is stuck in a device cannot be waited for


def _connections_within_the_limits(settings: Settings) -> int:
    """Each is an open file: without one left the system closes new ones unheard, and engines cannot be reached."""
    others = settings.remote_concurrency + _OTHER_FILES
    needed = settings.max_connections + others
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < needed and files != resource.RLIM_INFINITY:
        more = needed if most == resource.RLIM_INFINITY else min(needed, most)
        with suppress(ValueError, OSError):  # the system may have another limit that it does not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, most))
            files = more
        connections = min(settings.max_connections, max(files - others, files // 2))
        if connections < settings.max_connections:
            log.info("serving at most %d connections: this process may open %d files", connections, files)
        return connections
    return settings.max_connections


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = (
            "it is taken; choose another with --port" if error.errno == errno.EADDRINUSE else error.strerror or error
        )
        raise BindError(f"cannot listen on {host} port {port}: {reason}") from None


def _obey_signals(listener: Listener, reload: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, listener.stop)
    loop.add_signal_handler(signal.SIGINT, listener.stop)
    loop.add_signal_handler(signal.SIGHUP, reload)


def _reload(settings: Settings, assembly: Assembly) -> None:
    try:
        if assembly.keys.reload():
            assembly.service.places.shared = len(assembly.keys.clients) > 1
            log.info("key file reloaded")
        elif settings.profiles is None:
            log.info("SIGHUP: there is neither a key file nor a folder of profiles to read again")
    except SettingsError as error:
        log.error("%s; keeping the current keys", error)
    if assembly.audit is not None:
        assembly.audit.reopen()
    try:
        assembly.service.profiles = load_profiles(settings, assembly.engine) or None
    except StartError as error:
        log.error("%s; keeping the current profiles", error)
    else:
        tell_profiles(assembly.service)
