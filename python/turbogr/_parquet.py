"""Parquet by pyarrow, as Arrow streams in bounded memory: the same files, types and words as the program's own reader
(turbogr/data/arrow/parquet_scan.cc)."""

from __future__ import annotations

import concurrent.futures
import contextlib
import glob
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from turbogr import _turbogr

_MOST_ROWS = 1 << 16  # of a batch
_BUFFER = 1 << 18  # of the file's bytes, a column
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}  # bytes; the others have 8


def is_parquet(path: str) -> bool:
    """Whether it is named like Parquet, or a folder with such files in it."""
    if os.path.isdir(path):
        pattern = os.path.join(glob.escape(path), "**", "*.parquet")
        return next(glob.iglob(pattern, recursive=True), None) is not None
    return path.endswith((".parquet", ".pq"))


@contextlib.contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """What pyarrow says becomes a turbogr.Error that names the file."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise _turbogr.Error(f"'{name}': Parquet cannot be read: {error}") from error


def _dataset(path: str) -> Any:
    """What pyarrow makes of a file or a (hive-partitioned) folder."""
    try:
        import pyarrow.dataset
    except ImportError as error:
        raise _turbogr.Error(
            f"'{path}' is Parquet, which pyarrow reads, and pyarrow is not installed: "
            "pip install 'turbogr[parquet]', or give a table of another library"
        ) from error
    if not os.path.exists(path):
        raise _turbogr.Error(f"there is no input '{path}'")
    with _errors_of(path):
        return pyarrow.dataset.dataset(path, format="parquet", partitioning="hive")


def _bytes_of_value(column: Any, chunk: Any) -> float:
    """What a value takes in memory, with its levels while it is read. Sizes in the metadata are of encoded values, which
    for repeated ones are next to nothing: only their number says what becomes of them."""
    levels = 4 if column.max_definition_level + column.max_repetition_level > 0 else 0
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return levels + column.length
    if column.physical_type != "BYTE_ARRAY":
        return levels + _WIDTHS.get(column.physical_type, 8)
    lengths = [chunk.total_uncompressed_size / max(chunk.num_values, 1)]
    if chunk.is_stats_set and chunk.statistics.has_min_max:
        lengths += [len(chunk.statistics.min_raw), len(chunk.statistics.max_raw)]
    return levels + 4 + max(lengths)


def _bytes_of_row(metadata: Any, names: list[str]) -> float:
    """Bytes of a row: the mean of the row group with the longest ones."""
    leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    columns = [i for i, leaf in enumerate(leaves) if any(leaf.path == name or leaf.path.startswith(name + ".") for name in names)]
    most = 1.0
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        if group.num_rows == 0:
            continue
        chunks = [(leaves[i], group.column(i)) for i in columns]
        size = sum(chunk.num_values * _bytes_of_value(leaf, chunk) for leaf, chunk in chunks)
        most = max(most, size / group.num_rows)
    return most


def _rows_of_batch(batch_bytes: int, row_bytes: float) -> int:
    return min(max(int(batch_bytes / row_bytes), 1), _MOST_ROWS)


def _batches_of(fragment: Any, schema: Any, batch_bytes: int) -> Iterator[Any]:
    """One file, in batches of the schema: cast, null where it lacks a column, constant where its folder says the value."""
    import pyarrow as pa
    import pyarrow.dataset
    import pyarrow.parquet

    constants = pa.dataset.get_partition_keys(fragment.partition_expression)
    names = [name for name in schema.names if name not in constants]

    def column_of(batch: Any, field: Any) -> Any:
        if field.name in constants:
            return pa.repeat(pa.scalar(constants[field.name]), batch.num_rows).cast(field.type)
        if field.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, field.type)
        column = batch.column(field.name)
        return column if column.type == field.type else column.cast(field.type)

    with pa.parquet.ParquetFile(fragment.path, pre_buffer=False, buffer_size=_BUFFER) as file:
        row_bytes = _bytes_of_row(file.metadata, names)
        rows = _rows_of_batch(batch_bytes, row_bytes)
        for batch in file.iter_batches(rows, columns=[name for name in names if name in file.schema_arrow.names]):
            # Rows may be sorted by their length: the next ones are like the last, if these were longer.
            found = batch.get_total_buffer_size() / max(batch.num_rows, 1)
            file.reader.set_batch_size(_rows_of_batch(batch_bytes, max(row_bytes, found)))
            columns = []
            for field in schema:
                with _errors_of(f"{fragment.path}': column '{field.name}"):
                    columns.append(column_of(batch, field))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _batches(fragments: list[Any], schema: Any, batch_bytes: int) -> Iterator[Any]:
    """One file after the other; the next batch is made while the last is used."""

    def all_of_them() -> Iterator[Any]:
        for fragment in fragments:
            with _errors_of(fragment.path):
                yield from _batches_of(fragment, schema, batch_bytes)

    batches = all_of_them()
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            ahead = thread.submit(next, batches, None)
            while (batch := ahead.result()) is not None:
                ahead = thread.submit(next, batches, None)
                yield batch
                del batch
    except GeneratorExit:
        raise
    except BaseException as error:  # Ctrl-C is one
        _raised.error = error
        raise


_raised = threading.local()


@contextlib.contextmanager
def errors_through_streams() -> Iterator[None]:
    """Of what is raised while a stream is read only words come out of it, in a traceback: the error itself is raised."""
    _raised.__dict__.clear()
    try:
        yield
    except _turbogr.Error:
        if (error := _raised.__dict__.pop("error", None)) is not None:
            raise error from None
        raise


def parquet_stream(paths: list[str], memory_bytes: int, choose: Callable[[list[str]], list[str]] | None = None) -> Any:
    """The capsule of an Arrow stream of all these files and folders, in their order: the columns chosen, of the types that
    the first file gives them."""
    datasets = [_dataset(path) for path in paths]
    import pyarrow as pa

    schema = datasets[0].schema
    if choose is not None:
        schema = pa.schema([schema.field(name) for name in choose(schema.names)])
    fragments = [fragment for dataset in datasets for fragment in dataset.get_fragments()]
    batches = _batches(fragments, schema, _turbogr.parquet_batch_bytes(memory_bytes))
    return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__()
