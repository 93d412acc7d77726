"""Logs to stores."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from turbogr import _turbogr
from turbogr import _arguments as arguments
from turbogr._columns import id_array, stream_of_columns
from turbogr._parquet import errors_through_streams, is_parquet, parquet_stream

log = logging.getLogger("turbogr")


class Store:
    """A sequence store: the histories of all users, made by :func:`prepare` or the program."""

    def __init__(self, path: str | os.PathLike[str]):
        self._store = _turbogr.Store(arguments.path_of("path", path))
        self.report: Any = None  # what prepare read and left out; None for a store that was there

    @property
    def path(self) -> str:
        """Its folder."""
        return self._store.folder

    def __fspath__(self) -> str:
        return self.path

    @property
    def users(self) -> int:
        """How many users it has."""
        return self._store.users

    @property
    def items(self) -> int:
        """How many items it has."""
        return self._store.items

    @property
    def events(self) -> int:
        """How many events it has."""
        return self._store.events

    @property
    def time_unit(self) -> str:
        """``s``, ``ms`` or, where only the order of events is known, ``none``."""
        return self._store.time_unit

    @property
    def signals(self) -> list[str]:
        """Names of the signals of events."""
        return self._store.signals

    @property
    def numbers(self) -> list[str]:
        """Names of the numbers of events."""
        return self._store.numbers

    def user_ids(self) -> np.ndarray:
        """The users' own ids, in the store's order: int64, or str."""
        return id_array(self._store.user_ids())

    def item_ids(self) -> np.ndarray:
        """The items' own ids, in the store's order: int64, or str."""
        return id_array(self._store.item_ids())

    def verify(self) -> None:
        """Checks every byte; raises :class:`turbogr.Error` on the first thing wrong."""
        self._store.verify()

    def __repr__(self) -> str:
        return (
            f"turbogr.Store({self.path!r}): {self.users} users, {self.items} items, {self.events} events"
        )

    def __reduce__(self) -> Any:
        return Store, (self.path,)


def _is_paths(data: Any) -> bool:
    if isinstance(data, (str, os.PathLike)):
        return True
    return isinstance(data, (list, tuple)) and len(data) > 0 and all(
        isinstance(entry, (str, os.PathLike)) for entry in data
    )


def _parquet_log(paths: list[str], options: Any) -> tuple[str, Any]:
    """The columns of the log alone, of all these files and folders."""
    name = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} others"
    return name, parquet_stream(paths, options.memory_bytes, lambda names: _turbogr.log_columns(options, names, name))


def frame_stream(what: str, data: Any) -> Any:
    """The capsule of an Arrow stream of a table in memory: anything with __arrow_c_stream__, a mapping of
    arrays, a pandas frame where pyarrow is missing."""
    if hasattr(type(data), "__arrow_c_stream__"):
        try:
            return data.__arrow_c_stream__()
        except ImportError:
            pass  # pandas without pyarrow: its columns are arrays
    if isinstance(data, Mapping):
        return stream_of_columns(what, data)
    if hasattr(type(data), "columns") and hasattr(type(data), "to_numpy") and hasattr(type(data), "iloc"):
        return stream_of_columns(what, {str(name): data[name].to_numpy() for name in data.columns})
    if hasattr(type(data), "scanner"):
        return data.scanner().to_reader().__arrow_c_stream__()
    if hasattr(type(data), "collect"):
        raise TypeError(f"{what} is {arguments.shown(data)}, which is lazy; give {what}.collect()")
    raise TypeError(
        f"{what} is {arguments.shown(data)}; wanted: a path, a data frame (pandas, polars, pyarrow, DuckDB: "
        "anything with __arrow_c_stream__) or a dictionary of arrays"
    )


def _table_of_path(path: str, memory_bytes: int, kept: bool = True) -> tuple[str, Any, bool]:
    return path, parquet_stream([path], memory_bytes) if is_parquet(path) else None, kept


def _tables(name: str, value: Any, memory_bytes: int) -> list[tuple[str, Any, bool]]:
    """Tables about users or items: paths of text, or names and Arrow streams, and whether the store keeps them."""
    if value is None:
        return []
    if not _is_paths(value):
        return [(name, frame_stream(name, value), True)]
    paths = [arguments.path_of(name, path) for path in (value if isinstance(value, (list, tuple)) else [value])]
    return [_table_of_path(path, memory_bytes) for path in paths]


def _options_of_all_events(
    min_user: Any, min_item: Any, user_features: Any, item_features: Any, memory: Any, threads: Any, overwrite: Any
) -> Any:
    """What prepare and merge have in common."""
    options = _turbogr.PrepareOptions()
    options.min_user = arguments.integer_of("min_user", min_user, 0)
    options.min_item = arguments.integer_of("min_item", min_item, 0)
    options.user_features = arguments.texts_of("user_features", user_features)
    options.item_features = arguments.texts_of("item_features", item_features)
    options.memory_bytes = arguments.bytes_of("memory", memory)
    options.threads = arguments.integer_of("threads", threads, 0, 4096)
    options.overwrite = arguments.flag_of("overwrite", overwrite)
    return options


def _repeats(deduplicate: Any) -> str:
    return arguments.choice_of("deduplicate", deduplicate, (None, "events", "items")) or ""


def _made(out: Any, options: Any, user_table: Any, item_table: Any, make: Callable[[list[Any], list[Any]], Any]) -> Store:
    """The store that ``make`` writes by the options, in a temporary folder where ``out`` names none."""
    folder = tempfile.mkdtemp(prefix="turbogr-")
    try:
        options.out = os.path.join(folder, "store") if out is None else arguments.path_of("out", out)
        tables = {"user_table": user_table, "item_table": item_table}
        with errors_through_streams():
            report = make(*(_tables(name, table, options.memory_bytes) for name, table in tables.items()))
        store = Store(os.fspath(options.out))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    store.report = report
    for remark in report.remarks:
        log.warning("%s", remark)
    if out is None:
        weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return store


def prepare(
    data: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    signals: Any = None,
    numbers: Any = None,
    labels: Any = None,
    features: Any = None,
    keep_signal: str | None = None,
    min_user: int = 0,
    min_item: int = 0,
    deduplicate: str | None = None,
    time_unit: str = "auto",
    ids: str = "auto",
    on_error: str = "stop",
    max_bad: int = 1000,
    user_table: Any = None,
    item_table: Any = None,
    user_features: Any = None,
    item_features: Any = None,
    keep_items_without_events: bool = False,
    format: str | None = None,
    delimiter: str | None = None,
    header: str = "auto",
    memory: int | str = "2GB",
    threads: int = 0,
    overwrite: bool = False,
    shard: tuple[int, int] | None = None,
) -> Store:
    """Turns a log of events into a sequence store.

    ``data`` is a data frame or table (pandas, polars, pyarrow, DuckDB: anything with ``__arrow_c_stream__``), a
    dictionary of NumPy columns, or one or several files or folders: CSV, Parquet, KuaiRand's, MovieLens'. A row is
    an event; where the item column holds lists, a row is a user.

    ``out`` is the folder of the store; without it the store lives in a temporary folder as long as the object
    returned. Columns that are not named are found by their usual names. ``time="none"`` keeps the order of
    the rows instead. ``deduplicate`` is None, "events" (same user, item and time) or "items". ``item_table`` and
    ``user_table`` are tables in memory, or paths of CSV and Parquet. ``format`` is "csv", "parquet", "kuairand",
    "movielens" or "yambda"; None tells by the names of the files. ``shard=(1, 8)`` reads only the first of eight
    shares of the files, for :func:`merge`. The other arguments are the options of ``turbogr data prepare``
    (docs/data_format.md).
    """
    options = _options_of_all_events(min_user, min_item, user_features, item_features, memory, threads, overwrite)
    options.user = arguments.column_of("user", user)
    options.item = arguments.column_of("item", item)
    options.time = arguments.column_of("time", time)
    options.signals = arguments.texts_of("signals", signals)
    options.numbers = arguments.texts_of("numbers", numbers)
    options.labels = arguments.texts_of("labels", labels)
    options.event_features = arguments.texts_of("features", features)
    options.keep_signal = arguments.column_of("keep_signal", keep_signal)
    options.max_bad = arguments.integer_of("max_bad", max_bad, 0)
    options.time_unit = arguments.choice_of("time_unit", time_unit, ("auto", "s", "ms"))
    options.ids = arguments.choice_of("ids", ids, ("auto", "integer", "string"))
    options.header = arguments.choice_of("header", header, ("auto", "yes", "no"))
    options.delimiter = arguments.column_of("delimiter", delimiter)
    on_error = arguments.choice_of("on_error", on_error, ("stop", "skip"))
    repeats = _repeats(deduplicate)
    format = arguments.choice_of("format", format, (None, "csv", "parquet", "kuairand", "movielens", "yambda"))
    options.keep_items_without_events = arguments.flag_of("keep_items_without_events", keep_items_without_events)
    in_memory = not _is_paths(data)
    if in_memory and format is not None:
        raise ValueError(f"format is {format!r} and data is no path; leave format out")
    if shard is not None:
        place, options.shards = arguments.shard_of("shard", shard)
        options.shard = place - 1
        if in_memory:
            raise ValueError("shard is given and data is no path; give the part itself, and all parts to turbogr.merge")
        if min_user or min_item or repeats or keep_items_without_events or user_table is not None or item_table is not None:
            raise ValueError(
                "shard is given with min_user, min_item, deduplicate or a table: a part does not know of the others; "
                "give them to turbogr.merge"
            )

    def make(user_tables: list[Any], item_tables: list[Any]) -> Any:
        form = format
        streams = []
        if in_memory:
            streams.append((type(data).__name__, frame_stream("data", data)))
        else:
            paths = [arguments.path_of("data", p) for p in (data if isinstance(data, (list, tuple)) else [data])]
            if form in ("yambda", "kuairand"):
                options.inputs = paths
                form, users_found, items_found, remarks = _turbogr.resolve_published(options, form)
                for remark in remarks:
                    log.warning("%s", remark)
                user_tables = [_table_of_path(path, options.memory_bytes, kept) for path, kept in users_found] + user_tables
                item_tables = [_table_of_path(path, options.memory_bytes, kept) for path, kept in items_found] + item_tables
                paths = [os.fspath(path) for path in options.inputs]
                options.inputs = []
            if form == "parquet" or (form is None and all(is_parquet(path) for path in paths)):
                streams.append(_parquet_log(_turbogr.files_of_shard(paths, options), options))
            else:
                options.inputs = paths
        form = "csv" if form in (None, "parquet") else form
        return _turbogr.prepare(options, form, on_error, repeats, streams, user_tables, item_tables)

    return _made(out, options, user_table, item_table, make)


def merge(
    parts: Iterable[Store | str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    *,
    min_user: int = 0,
    min_item: int = 0,
    deduplicate: str | None = None,
    user_table: Any = None,
    item_table: Any = None,
    user_features: Any = None,
    item_features: Any = None,
    memory: int | str = "2GB",
    threads: int = 0,
    overwrite: bool = False,
) -> Store:
    """Joins stores of parts of one log, made by :func:`prepare` (with ``shard=``, or of frames that are parts), into the
    store that one :func:`prepare` of all would have made; the first part first. The other arguments are those of
    :func:`prepare`.
    """
    if isinstance(parts, (str, bytes, os.PathLike)) or not isinstance(parts, Iterable):
        raise TypeError(f"parts is {arguments.shown(parts)}; wanted: a list of stores")
    folders = [arguments.path_of(f"parts[{i}]", part) for i, part in enumerate(parts)]
    if not folders:
        raise ValueError("parts is empty; wanted: at least one store")
    repeats = _repeats(deduplicate)
    options = _options_of_all_events(min_user, min_item, user_features, item_features, memory, threads, overwrite)
    return _made(out, options, user_table, item_table, lambda *tables: _turbogr.merge(folders, options, repeats, *tables))
