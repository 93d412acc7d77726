"""What both kinds of trained models have: a checkpoint, a store, ids."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from turbogr import _arguments as arguments
from turbogr._data import Store


def id_of(name: str, value: Any) -> str:
    """One id, as text."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (str, int, np.integer)):
        raise TypeError(f"{name} is {arguments.shown(value)}; wanted: an id, a whole number or a string")
    return value if isinstance(value, str) else str(int(value))


def ids_of(name: str, value: Any) -> list[str]:
    """Ids as text: one id, or any list, array or column of them."""
    if isinstance(value, (str, int, np.integer)) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is {arguments.shown(value)}; wanted: an id or a list of ids")
    if hasattr(type(value), "to_list"):  # columns of pandas and polars
        value = value.to_list()
    elif hasattr(type(value), "to_pylist"):  # of pyarrow
        value = value.to_pylist()
    elif isinstance(value, np.ndarray):
        if value.ndim != 1:
            raise ValueError(f"{name} has {value.ndim} dimensions; wanted: a list of ids")
        value = value.tolist()
    return [id_of(f"{name}[{i}]", entry) for i, entry in enumerate(value)]


class Trained:
    """A checkpoint in use.

    It may be used from several threads (calls wait for each other) and pickled (by its path). In a process
    that was forked it says so: load it again there.
    """

    def __init__(self, kind: Any, path: Any, store: Any, threads: int):
        self._path = os.path.abspath(arguments.path_of("path", path))
        self._given_store = "" if store is None else arguments.path_of("store", store)
        self._threads = arguments.integer_of("threads", threads, 0, 4096)
        self._model = kind(self._path, self._given_store, self._threads)
        self.store = store if isinstance(store, Store) else Store(self._model.store_folder)

    @property
    def path(self) -> str:
        """The checkpoint in use."""
        return self._model.folder

    @property
    def step(self) -> int:
        """The step it was saved at."""
        return self._model.step

    @property
    def config(self) -> str:
        """Its run's configuration, as TOML."""
        return self._model.config

    def __repr__(self) -> str:
        return f"turbogr.{type(self).__name__}({self.path!r}), step {self.step}"

    def __reduce__(self) -> Any:
        return type(self), (self._path, self._given_store or None, self._threads)
