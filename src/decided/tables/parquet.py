"""Parquet tables, by pyarrow, which is the extra `parquet`. Read and written some rows at a time."""

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from decided.contract.types import compact
from decided.errors import InputError
from decided.extras import install_command

_ROWS = 1024
_BATCHES_PER_GROUP = 8
_LARGEST = 2**63


def check_that_it_can_be_used(what: str) -> None:
    """Before the long work rather than after it."""
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError(f"{what} needs pyarrow: {install_command('parquet')}")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    for batch in _opened(path).iter_batches(_ROWS, use_threads=False):
        yield from batch.to_pylist()


def columns(path: Path) -> list[str]:
    return list(_opened(path).schema_arrow.names)


def count(path: Path) -> int:
    return int(_opened(path).metadata.num_rows)


def _opened(path: Path) -> Any:
    check_that_it_can_be_used(str(path))
    import pyarrow
    from pyarrow.parquet import ParquetFile

    pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # the default one keeps what it had
    try:
        return ParquetFile(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise InputError(f"{path} is not a Parquet file: {error}") from None


def write(
    out: Path,
    finished: Callable[[], Iterable[dict[str, Any]]],
    source: Path | None,
    head: Iterable[str],
    added: Mapping[str, type],
) -> None:
    """A table of the finished rows. Columns that were there before, in `head` or in a row, have the type that they
    have in `source`, if that is Parquet, or else the one that fits all their values; values that are no text, number
    or truth are words of JSON."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    plain = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    fields = [pyarrow.field(name, plain[kind]) for name, kind in added.items()]
    if source is not None:
        given = _opened(source)
        before = list(given.schema_arrow)
        batches = (batch.columns for batch in given.iter_batches(_ROWS, use_threads=False))
    else:
        kinds = _kinds(finished(), head, added)
        before = [pyarrow.field(name, plain[kind]) for name, kind in kinds.items()]
        batches = (
            [pyarrow.array([_plain(row.get(name), kind) for row in chunk], plain[kind]) for name, kind in kinds.items()]
            for chunk in _chunks(finished())
        )
    schema = pyarrow.schema([*before, *fields])
    chunks = _chunks(finished())
    with ParquetWriter(out, schema) as writer:
        group: list[Any] = []
        for arrays in batches:
            chunk = next(chunks)
            new = [pyarrow.array([row.get(name) for row in chunk], plain[kind]) for name, kind in added.items()]
            group.append(pyarrow.RecordBatch.from_arrays([*arrays, *new], schema=schema))
            if len(group) == _BATCHES_PER_GROUP:
                writer.write_table(pyarrow.Table.from_batches(group))
                group.clear()
        if group:
            writer.write_table(pyarrow.Table.from_batches(group))


def _chunks(found: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    waiting = iter(found)
    while chunk := list(islice(waiting, _ROWS)):
        yield chunk


def _kinds(found: Iterable[dict[str, Any]], head: Iterable[str], added: Mapping[str, type]) -> dict[str, type]:
    """For each column that was there before, the type that fits all its values."""
    seen: dict[str, set[type]] = {name: set() for name in head}
    for row in found:
        for name, value in row.items():
            if name not in added:
                kinds = seen.setdefault(name, set())
                if value is not None:
                    large = isinstance(value, int) and not -_LARGEST <= value < _LARGEST
                    kinds.add(object if large else type(value))
    return {name: _common(kinds) for name, kinds in seen.items()}


def _common(kinds: set[type]) -> type:
    if len(kinds) == 1:
        (kind,) = kinds
        return kind if kind in (bool, int, float) else str
    return float if kinds == {int, float} else str


def _plain(value: Any, kind: type) -> Any:
    return value if value is None or kind is not str else compact(value)
