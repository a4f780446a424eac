"""The service put together from its settings, for whatever speaks HTTP in front of it."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from decided.audit.log import AuditLog
from decided.engines.api import Engine
from decided.logs import RequestLog
from decided.serving.metrics import Metrics
from decided.serving.service import Service
from decided.serving.start import load_profiles, open_audit_log, open_ledger, read_audit_key, shadowing, start_engine
from decided.settings import Settings, misspelt
from decided.version import VERSION
from decided.web.edge import Edge
from decided.web.keys import Keys
from decided.web.playground import Playground
from decided.web.routes import App
from decided.web.spans import open_spans

log = logging.getLogger("decided")


class Assembly(NamedTuple):
    """A service that answers: where requests go in, and what there is to say about it."""

    edge: Edge
    keys: Keys
    engine: Engine
    service: Service
    request_log: RequestLog
    load_seconds: float
    audit: AuditLog | None

    @property
    def model(self) -> str:
        return self.engine.card.name


@asynccontextmanager
async def assemble(settings: Settings) -> AsyncIterator[Assembly]:
    """Load and warm up; at the end, let go. Raises StartError if the service cannot start."""
    for name, meant in misspelt().items():
        log.warning("%s is not a setting: did you mean %s?", name, meant)
    keys, audit_key = Keys(settings), read_audit_key(settings)
    metrics = Metrics(by_client=keys.named)
    began = time.perf_counter()
    engine = await start_engine(settings, metrics)
    load_seconds = time.perf_counter() - began
    spans = open_spans(engine.card)
    request_log = RequestLog(
        settings.log_format, settings.log_level in ("debug", "info"), asyncio.get_running_loop().call_later
    )
    audit = None
    try:
        temperatures = settings.temperature
        if temperatures.model not in ("", engine.card.name):
            log.warning("--temperature was fitted for the model %s, not for %s", temperatures.model, engine.card.name)
        limits = settings.max_in_flight, settings.request_timeout_s
        profiles, ledger = load_profiles(settings, engine), open_ledger(settings, engine)
        audit = open_audit_log(settings, engine, audit_key)
        if audit is not None:
            metrics.audited(audit.lines)
        service = Service(engine, metrics, *limits, temperatures, profiles, ledger, audit)
        service.places.shared = len(keys.clients) > 1
        tell_profiles(service)
        metrics.loaded(VERSION, engine.card.name, load_seconds, lambda: service.in_flight, engine.queue_depth)
        app = App(service, keys, settings.max_body_bytes, Playground() if settings.page else None)
        edge = Edge(app, metrics, request_log, spans)
        async with shadowing(settings, service):
            yield Assembly(edge, keys, engine, service, request_log, load_seconds, audit)
    finally:
        await engine.close()
        if audit is not None:
            await audit.close()
        request_log.flush()
        if spans is not None:
            await spans.close()


def tell_profiles(service: Service) -> None:
    if service.profiles is not None:
        log.info("profiles loaded: %s", ", ".join(service.profiles.identities))
