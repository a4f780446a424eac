"""`decided run --ray`: the same run, with the questions answered by workers on a Ray cluster.

The table is read and written here, so everything that holds for `decided run` holds with Ray too: order, resuming,
formats. The workers get states and give answers; nothing but the package has to be on their machines. A worker that is
lost is replaced, and what it was asked is asked of another.
"""

import asyncio
import importlib.util
import logging
import os
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from decided.backend import Questions, open_backend
from decided.client.protocol import BatchResult
from decided.errors import InputError, ModelError
from decided.extras import install_command
from decided.settings import Settings
from decided.together import together

_LOCAL = "local"
_RESOURCES_S = 10.0
_REPLACED_S = 120.0
_TRIES = 3
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class About:
    """What a worker tells of itself."""

    model: str
    description: str
    max_options: int
    rows_in_flight: int
    where: str


class Worker:
    """What runs on the cluster: the model, or the server, opened as `decided run` opens it."""

    def __init__(self, settings: Settings, server: str | None, api_key: str | None) -> None:
        self._asked = (settings, server, api_key)

    async def about(self) -> About:
        import ray

        self._backend = found = await open_backend(*self._asked)
        where = f"node {ray.util.get_node_ip_address()}, process {os.getpid()}"
        return About(found.model, found.description, found.max_options, found.rows_in_flight, where)

    async def answer(self, states: Sequence[Any], questions: Questions) -> list[BatchResult]:
        return [result async for result in self._backend.batch(states, questions)]


class RayBackend:
    """The workers of a cluster as one backend: each request goes to the one that has the least to do."""

    def __init__(self, ray: Any, make: Any, workers: int) -> None:
        self._ray = ray
        self._make = make
        self._wanted = workers
        self._load: dict[Any, int] = {}
        self._starting: set[asyncio.Task[About]] = set()
        self._joined = asyncio.Event()

    async def open(self) -> "RayBackend":
        """Start the workers; all must be there before the first question."""
        async with together() as group:
            started = [group.create_task(self._start()) for _ in range(self._wanted)]
        about = started[0].result()
        self.model, self.description, self.max_options = about.model, about.description, about.max_options
        self.rows_in_flight = about.rows_in_flight * self._wanted
        self.least_in_flight = 4 * self._wanted
        return self

    async def batch(self, states: Sequence[Any], questions: Questions) -> AsyncGenerator[BatchResult, None]:
        for _ in range(_TRIES):
            worker = await self._idlest()
            self._load[worker] += len(states)
            try:
                results = await _result(worker.answer.remote(list(states), questions))
            except self._ray.exceptions.RayTaskError as error:
                raise _told(error) from None
            except self._ray.exceptions.RayActorError:
                self._lose(worker)
                continue
            finally:
                if worker in self._load:
                    self._load[worker] -= len(states)
            for result in results:
                yield result
            return
        raise ModelError(f"--ray: {_TRIES} workers were lost on the same rows")

    async def close(self) -> None:
        for task in self._starting:
            task.cancel()
        self._ray.shutdown()

    async def _start(self) -> About:
        worker = self._make()
        try:
            about: About = await _result(worker.about.remote())
        except self._ray.exceptions.RayTaskError as error:
            raise _told(error) from None
        except self._ray.exceptions.RayActorError as error:
            raise ModelError(f"--ray: a worker did not start: {_first_line(error)}") from None
        self._load[worker] = 0
        self._joined.set()
        _LOG.debug("a worker is ready: %s", about.where)
        return about

    async def _idlest(self) -> Any:
        while not self._load:
            self._joined.clear()
            try:
                await asyncio.wait_for(self._joined.wait(), _REPLACED_S)
            except TimeoutError:
                raise ModelError("--ray: all workers were lost, and the cluster has no room for others") from None
        return min(self._load, key=self._load.__getitem__)

    def _lose(self, worker: Any) -> None:
        """Once for all that was asked of it: it is out, and another is started in its place."""
        if self._load.pop(worker, None) is not None:
            _LOG.warning("a worker on the cluster was lost; another takes its place")
            task = asyncio.get_running_loop().create_task(self._start())
            self._starting.add(task)
            task.add_done_callback(self._replaced)

    def _replaced(self, task: "asyncio.Task[About]") -> None:
        self._starting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.warning("the worker could not be replaced: %s", error)


async def open_on_cluster(settings: Settings, server: str | None, api_key: str | None, address: str, workers: int | None
) -> RayBackend:  # fmt: skip
    """Workers on the cluster at the address; `local` starts one on this machine."""
    if importlib.util.find_spec("ray") is None:
        raise InputError(f"--ray needs Ray: {install_command('ray')}")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of a change to come
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else a cluster started here reports to its maker
    if address != _LOCAL:
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")  # of half a minute each, if `auto` finds a dead one
    import ray

    try:
        await _knock(address)
        ray.init(
            address=address,  # `local` too: with none, Ray takes the last cluster that was started here, dead or alive
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False if address == _LOCAL else None,
        )
    except Exception as error:  # whatever Ray raises: it has no one kind for it
        hint = "" if address == _LOCAL else "; start one with `ray start --head`, or run with --ray local"
        raise ModelError(f"--ray {address}: no cluster ({_first_line(error)}){hint}") from None
    try:
        cpus = 0 if server is not None else settings.threads or 1  # who asks a server only waits
        gpus = 1 if server is None and settings.device == "cuda" else 0
        count = workers or _as_many_as_fit(ray, cpus, gpus)
        options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus}
        if cpus:
            _reserve(ray, count, {"CPU": cpus} | ({"GPU": gpus} if gpus else {}))
        chosen = settings if server is not None else replace(settings, threads=cpus)
        remote = ray.remote(Worker).options(**options)
        return await RayBackend(ray, lambda: remote.remote(chosen, server, api_key), count).open()
    except BaseException:
        ray.shutdown()
        raise


async def _knock(address: str) -> None:
    """Where nobody listens, Ray itself tries twenty times, half a minute each, without a word."""
    place = urlsplit(f"//{address.rpartition('://')[2]}")
    if place.port is not None:  # `local` and `auto` have none
        _, writer = await asyncio.wait_for(asyncio.open_connection(place.hostname, place.port), _RESOURCES_S)
        writer.close()


def _as_many_as_fit(ray: Any, cpus: int, gpus: int) -> int:
    free = ray.available_resources()
    fit = [int(free.get(name, 0) // each) for name, each in (("CPU", cpus), ("GPU", gpus)) if each]
    return max(1, min(fit)) if fit else 1


def _reserve(ray: Any, workers: int, each: dict[str, int]) -> None:
    """See within seconds whether the cluster has the room, rather than wait for it without a word."""
    group = ray.util.placement_group([each] * workers)
    there = group.wait(_RESOURCES_S)
    ray.util.remove_placement_group(group)
    if not there:
        free, total = ray.available_resources(), ray.cluster_resources()
        has = ", ".join(f"{free.get(name, 0):g} of {total.get(name, 0):g} {name}s are free" for name in each)
        needs = " and ".join(f"{number * workers} {name}s" for name, number in each.items())
        raise ModelError(f"--ray: {workers} workers need {needs}; {has}. Use fewer --ray-workers or --threads")


async def _result(reference: Any) -> Any:
    return await asyncio.wrap_future(reference.future())


def _told(error: Exception) -> ModelError:
    """What a worker says, without the way it came."""
    cause = getattr(error, "cause", None) or error
    return ModelError(f"--ray: {_first_line(cause)}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
