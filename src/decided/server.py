"""From settings to a listening process and back: load, warm up, bind, serve, drain."""

import asyncio
import gc
import logging
import signal
import socket
import sys
import time

from decided import engine as engines
from decided.app import App
from decided.edge import Edge
from decided.engine import Engine, is_model
from decided.errors import BindError, SettingsError
from decided.keys import Keys
from decided.listener import Listener
from decided.logs import RequestLog
from decided.metrics import Metrics
from decided.playground import Playground
from decided.service import Service
from decided.settings import Settings
from decided.version import VERSION
from decided.worker import Worker

log = logging.getLogger("decided")


async def serve(settings: Settings) -> None:
    """Serve until told to stop. Raises StartError if the service cannot start."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # nothing is in flight yet; and process 1 has no default
    keys = Keys(settings)
    metrics = Metrics()
    began = time.perf_counter()
    engine = await started_engine(settings, metrics)
    load_seconds = time.perf_counter() - began
    temperatures = settings.temperature
    if temperatures.model not in ("", engine.card.name):
        log.warning("--temperature was fitted for the model %s, not for %s", temperatures.model, engine.card.name)
    service = Service(engine, metrics, settings.max_in_flight, settings.request_timeout_s, temperatures)
    metrics.loaded(VERSION, engine.card.name, load_seconds, lambda: service.in_flight, engine.queue_depth)
    request_log = RequestLog(
        settings.log_format, settings.log_level in ("debug", "info"), asyncio.get_running_loop().call_later
    )
    app = App(service, keys, settings.max_body_bytes, Playground() if settings.page == "on" else None)
    edge = Edge(app, metrics, request_log)
    gc.freeze()  # the model and the modules stay: no collection need look at them again
    gc.set_threshold(50_000, 20, 50)  # requests leave hardly any cycles behind
    sock = _bind(settings.host, settings.port)
    host, port = sock.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    log.info("serving %s (loaded in %.2f s) on http://%s", engine.card.name, load_seconds, address)
    if settings.open_to_the_network:
        log.warning(
            "listening on %s without an API key: anyone who reaches this port can ask. Set SERVICE_API_KEY", host
        )
    listener = Listener(edge, settings.request_timeout_s)
    _obey_signals(listener, keys)
    try:
        await listener.serve(sock)
    finally:
        await engine.close()
        request_log.flush()
    log.info("stopped")


async def started_engine(settings: Settings, metrics: Metrics) -> Engine:
    """The engine that the settings name, warmed up."""
    loaded = engines.load(settings)
    stall_after_s = max(10.0, 2 * settings.request_timeout_s)
    engine = Worker(loaded, stall_after_s, metrics.batch) if is_model(loaded) else loaded
    await engine.start()
    return engine


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise BindError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None


def _obey_signals(listener: Listener, keys: Keys) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, listener.stop)
    loop.add_signal_handler(signal.SIGINT, listener.stop)
    loop.add_signal_handler(signal.SIGHUP, _reload, keys)


def _reload(keys: Keys) -> None:
    try:
        if keys.reload():
            log.info("the key file was read again")
    except SettingsError as error:
        log.error("%s; the keys are as before", error)
