"""Columns of NumPy arrays as Arrow, and back: the way tables go in and out without pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from turbogr import _turbogr
from turbogr._arguments import shown

_FORMATS = {
    "int8": "c", "uint8": "C", "int16": "s", "uint16": "S", "int32": "i", "uint32": "I",
    "int64": "l", "uint64": "L", "float16": "e", "float32": "f", "float64": "g",
}  # fmt: skip


def _strings(name: str, values: np.ndarray) -> tuple[str, list[Any]]:
    """Texts end to end, with their offsets; None and NaN are missing."""
    encoded = []
    there = np.ones(len(values), bool)
    for i, value in enumerate(values.tolist()):
        if isinstance(value, str):
            encoded.append(value.encode("utf-8", "surrogateescape"))
        elif isinstance(value, bytes):
            encoded.append(value)
        elif value is None or value != value:
            encoded.append(b"")
            there[i] = False
        else:
            raise TypeError(
                f"column {name!r}: value {i} is {shown(value)} among strings; wanted: strings, "
                "or one type of numbers"
            )
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    bitmap = None if there.all() else np.packbits(there, bitorder="little")
    return "U", [bitmap, offsets, b"".join(encoded)]


def _column(name: str, values: Any) -> tuple[str, str, list[Any], int]:
    try:
        array = np.asarray(values)
    except Exception as error:
        raise TypeError(f"column {name!r} is {shown(values)}; wanted: an array") from error
    if array.ndim != 1:
        raise ValueError(f"column {name!r} has {array.ndim} dimensions; wanted: 1")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    kind = array.dtype.kind
    if kind == "O" and len(array) and all(type(v) is int for v in array.tolist()):
        raise ValueError(f"column {name!r} has integers past 64 bits; wanted: int64, or strings")
    if kind in "OUST":
        text_format, buffers = _strings(name, array)
        return name, text_format, buffers, len(array)
    bitmap = None
    if kind == "M":
        unit = np.datetime_data(array.dtype)[0]
        if unit not in ("s", "ms", "us", "ns"):
            array = array.astype("datetime64[s]")
            unit = "s"
        there = ~np.isnat(array)
        bitmap = None if there.all() else np.packbits(there, bitorder="little")
        text_format = "ts" + unit[0] + ":"
        array = array.view(np.int64)
    elif kind == "b":
        return name, "b", [None, np.packbits(array, bitorder="little")], len(array)
    else:
        text_format = _FORMATS.get(array.dtype.name, "")
        if not text_format:
            raise TypeError(
                f"column {name!r} has the type {array.dtype}; wanted: integers, floats, booleans, "
                "strings or datetime64"
            )
    return name, text_format, [bitmap, np.ascontiguousarray(array)], len(array)


def stream_of_columns(what: str, columns: Mapping[str, Any]) -> Any:
    """The capsule of an Arrow stream over the columns; numbers are not copied."""
    ready = []
    length: int | None = None
    for name, values in columns.items():
        if not isinstance(name, str):
            raise TypeError(f"{what}: a column is named {shown(name)}; wanted: a string")
        *column, rows = _column(name, values)
        if length is not None and rows != length:
            raise ValueError(f"{what}: column {name!r} has {rows} values, the others have {length}")
        length = rows
        ready.append(tuple(column))
    if length is None:
        raise ValueError(f"{what} has no columns")
    return _turbogr.columns_stream(ready, length)


class Table(Mapping):
    """Columns by name, each a NumPy array. pandas, polars, pyarrow and DuckDB read it without a copy.

    ``table["score"]`` is a column, ``len(table)`` the number of columns as of any mapping, and
    ``table.rows`` the number of rows.
    """

    def __init__(self, columns: Mapping[str, np.ndarray]):
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self._columns.values()), ()))

    def __repr__(self) -> str:
        return f"turbogr.Table of {self.rows} rows: {', '.join(self._columns)}"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The Arrow PyCapsule interface: what other libraries read it through."""
        return stream_of_columns("the table", self._columns)

    def to_pandas(self) -> Any:
        """A pandas data frame."""
        import pandas

        return pandas.DataFrame(self._columns)

    def to_arrow(self) -> Any:
        """A pyarrow table."""
        import pyarrow

        return pyarrow.table(self)

    def to_polars(self) -> Any:
        """A polars data frame."""
        import polars

        return polars.DataFrame(self)


def id_array(ids: Sequence[Any]) -> np.ndarray:
    """Ids as a store has them: int64, or objects of type str."""
    if len(ids) and isinstance(ids[0], str):
        array = np.empty(len(ids), object)
        array[:] = ids
        return array
    return np.asarray(ids, np.int64)
