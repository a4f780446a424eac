"""`decided run --ray`: the same table and the same columns, with the rows spread over a Ray cluster by Ray Data.

Ray reads the table in blocks, deals them to workers, restarts what fails, and writes a folder of files. Here is only
what a worker does with a block: it opens the model or the server once, and asks about the rows as `decided run` does.
"""

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

from decided.backend import check_options, open_backend
from decided.errors import InputError
from decided.extras import install_command
from decided.settings import Settings
from decided.tables.run import Finished, Task, ask_rows, columns_of
from decided.tables.tables import Row, format_of, missing_column

_ROWS_PER_BLOCK = 256
_LOCAL = "local"


def check_that_it_can_be_used(task: Task) -> None:
    if importlib.util.find_spec("ray") is None:
        raise InputError(f"--ray needs Ray: {install_command('ray')}")
    if task.out is None or task.source == "-":
        raise InputError("--ray needs files: an INPUT that all machines can read, and an --out that all can write")
    if task.out.exists():
        raise InputError(f"{task.out} already exists: remove it or choose another name")


def run(settings: Settings, task: Task) -> None:
    """Ask about every row, on the cluster at the address; `local` starts one on this machine."""
    check_that_it_can_be_used(task)
    import ray

    if task.out is None:
        raise AssertionError("checked above")
    asked = columns_of(task)
    kind = format_of(str(task.out), "--out")
    ray.init(address=None if task.ray == _LOCAL else task.ray, log_to_driver=False)
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    try:
        workers = task.ray_workers or 1
        cpus_each = 0 if task.server else 1  # who asks a server only waits
        if workers * cpus_each >= ray.cluster_resources().get("CPU", 0):
            raise InputError(f"--ray-workers {workers}: the cluster needs more CPUs than workers")
        table = _read(ray.data, task)
        names = table.columns() or []
        for name in asked.types:
            if name in names:
                raise InputError(f"the input has a column {name!r} already: give the question another name")
        for name in task.state_columns:
            if name not in names:
                raise InputError(f"--state-column {name}: {missing_column(name, names)}")
        answered = table.map_batches(
            RowWorker,
            fn_constructor_args=(settings, task),
            batch_size=_ROWS_PER_BLOCK,
            batch_format="pyarrow",
            concurrency=workers,
            num_cpus=cpus_each,
        )
        _write(answered, kind, str(task.out.absolute()))
    finally:
        ray.shutdown()


class RowWorker:
    """What runs on the cluster, once per worker: the model or the server, opened."""

    def __init__(self, settings: Settings, task: Task) -> None:
        self._loop = asyncio.new_event_loop()
        self._task = task
        self._asked = columns_of(task)
        self._backend = self._loop.run_until_complete(open_backend(settings, task.server, task.api_key))
        check_options(self._backend, self._asked.questions)

    def __call__(self, block: Any) -> Any:
        import pyarrow

        rows = [Row(values) for values in block.to_pylist()]
        added: list[dict[str, Any]] = []

        def sink(finished: list[Finished]) -> None:
            added.extend(values for _, values in finished)

        answering = ask_rows(self._task, iter(rows), self._asked, self._backend, sink, lambda _values: None)
        self._loop.run_until_complete(answering)
        plain = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
        for name, kind in self._asked.types.items():
            block = block.append_column(name, pyarrow.array([values[name] for values in added], plain[kind]))
        return block


def _read(data: Any, task: Task) -> Any:
    path = str(Path(task.source).absolute())
    match format_of(task.source, "INPUT"):
        case "csv":
            return data.read_csv(path)
        case "jsonl":
            return data.read_json(path)
        case "parquet":
            return data.read_parquet(path)
    raise InputError("--ray reads .csv, .jsonl and .parquet")


def _write(table: Any, kind: str, folder: str) -> None:
    match kind:
        case "csv":
            table.write_csv(folder)
        case "jsonl":
            table.write_json(folder)
        case "parquet":
            table.write_parquet(folder)
        case _:
            raise InputError("--ray writes .csv, .jsonl and .parquet")
