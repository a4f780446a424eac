"""From settings to an engine that answers, with what was learnt for it, and the look whether it still does."""

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from decided.audit.line import Scribe
from decided.audit.log import AuditLog, read_key
from decided.engines import api
from decided.engines.api import Engine, gives_features, is_model
from decided.errors import ModelError, SettingsError, Unavailable
from decided.hardware import physical_cores
from decided.profiles.shelf import Profiles, read_profiles
from decided.serving.ledger import Ledger
from decided.serving.metrics import Metrics
from decided.serving.service import Service
from decided.serving.shadow import Shadow
from decided.serving.worker import Worker
from decided.settings import Settings

log = logging.getLogger("decided")


async def start_engine(settings: Settings, metrics: Metrics) -> Engine:
    """The engine that the settings name, warmed up."""
    loaded = api.load(_within_the_machine(settings))
    stall_after_s = max(10.0, 2 * settings.request_timeout_s)
    engine = Worker(loaded, stall_after_s, metrics.batch) if is_model(loaded) else loaded
    await engine.start()
    return engine


async def wait_until_lost(engine: Engine, grace_s: float) -> None:
    """Return when the model of this process has not been able to answer for so long. A remote engine may come back by
    itself, an inference worker that has stopped does not; one that is stuck may."""
    since = None
    while since is None or time.monotonic() - since < grace_s:
        await asyncio.sleep(min(1.0, grace_s / 5))
        try:
            await engine.check()
            since = None
        except Unavailable:
            since = since or time.monotonic()


def _within_the_machine(settings: Settings) -> Settings:
    cores = physical_cores()
    if settings.threads is None or settings.threads <= cores:
        return settings
    log.warning("--threads %d: this process may use %d cores; using %d", settings.threads, cores, cores)
    return dataclasses.replace(settings, threads=cores)


def load_profiles(settings: Settings, engine: Engine) -> Profiles | None:
    """The profiles that the settings name, if they name any. Raises InputError unless all can be used."""
    if settings.profiles is None:
        return None
    return read_profiles(settings.profiles, engine.card.name, engine.card.weights, gives_features(engine))


def open_ledger(settings: Settings, engine: Engine) -> Ledger | None:
    """The file of outcomes, if the settings name one."""
    if settings.outcomes is None:
        if settings.keep_texts:
            raise SettingsError("--keep-texts keeps them with outcomes: --outcomes FILE")
        return None
    return Ledger(settings.outcomes, engine.card, settings.keep_texts)


def read_audit_key(settings: Settings) -> bytes | None:
    """The key of the audit log, if the settings name a log. A missing one is told before the model is loaded."""
    if settings.audit_log is None:
        if settings.audit_key_file is not None:  # it may be there for `decided audit verify` alone
            log.warning("--audit-key-file without --audit-log: there is no audit log")
        return None
    if settings.audit_key_file is None:
        raise SettingsError(
            "--audit-log needs --audit-key-file, a file with a key for the hashes of states: "
            "make one with `openssl rand -hex 32 > audit.key`"
        )
    return read_key(settings.audit_key_file)


def open_audit_log(settings: Settings, engine: Engine, key: bytes | None) -> AuditLog | None:
    """The audit log, if the settings name one."""
    if settings.audit_log is None or key is None:
        return None
    scribe = Scribe(engine.card.name, engine.card.weights, key)
    is_required = settings.audit == "required"
    return AuditLog(settings.audit_log, scribe, is_required, settings.audit_max_bytes, settings.request_timeout_s)


@asynccontextmanager
async def shadowing(settings: Settings, service: Service) -> AsyncIterator[None]:
    """With the second model beside the service, if the settings name one."""
    if settings.shadow is None:
        if settings.shadow_log is not None:
            raise SettingsError("--shadow-log needs a second model: --shadow MODEL")
        yield
        return
    if settings.shadow_log is not None:
        try:
            settings.shadow_log.touch(0o600)
        except OSError as error:
            raise SettingsError(
                f"--shadow-log {settings.shadow_log} cannot be written: {error.strerror or error}"
            ) from None
    try:
        engine = await start_engine(dataclasses.replace(settings, model=settings.shadow), Metrics())
    except ModelError as error:
        raise ModelError(str(error).replace("--model", "--shadow")) from error
    limits = settings.shadow_share, settings.request_timeout_s
    service.shadow = Shadow(
        engine, *limits, service.metrics.shadowed, lambda: not service.in_flight, settings.shadow_log
    )
    log.info("%s is asked too, for %g %% of the answers", engine.card.name, 100 * settings.shadow_share)
    running = asyncio.create_task(service.shadow.run())
    try:
        yield
    finally:
        await service.shadow.close(running)
