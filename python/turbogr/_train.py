"""Runs: configurations from Python, training, progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from turbogr import _turbogr
from turbogr import _arguments as arguments
from turbogr._columns import Table

Record = dict[str, Any]
Callback = Callable[[Record], Any]


def _toml(name: str, value: Any) -> str:
    """A value as an override on the program's command line spells it."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(arguments.text_of(name, value, empty=True), ensure_ascii=False)
    if isinstance(value, os.PathLike):
        return json.dumps(arguments.path_of(name, value), ensure_ascii=False)
    if isinstance(value, (list, tuple, np.ndarray)):
        return "[" + ", ".join(_toml(f"{name}[{i}]", entry) for i, entry in enumerate(value)) + "]"
    if hasattr(type(value), "__index__"):
        return str(arguments.integer_of(name, value, -(2**63)))
    number = arguments.number_of(name, value)
    return repr(number)


def _flattened(name: str, values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """{"model": {"layers": 2}} and {"model.layers": 2} alike as [("model.layers", "2")]."""
    flat = []
    for key, value in values.items():
        if not isinstance(key, str):
            where = prefix.rstrip(".") or name
            raise TypeError(f"{where} has the key {arguments.shown(key)}; wanted: a string such as 'model.layers'")
        if isinstance(value, Mapping):
            flat += _flattened(name, value, f"{prefix}{key}.")
        elif value is not None:
            flat.append((f"{prefix}{key}", _toml(f"{prefix}{key}", value)))
    return flat


def _arguments_of(config: Any, store: Any, overrides: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    path, flat = "", []
    if isinstance(config, Mapping):
        flat += _flattened("config", config)
    elif config is not None:
        path = arguments.path_of("config", config)
    if store is not None:
        flat.append(("data.store", _toml("store", arguments.path_of("store", store))))
    return path, flat + _flattened("overrides", overrides)


def config_text(config: Any = None, store: Any = None, **overrides: Any) -> str:
    """The whole configuration that :func:`train` would run with, as TOML."""
    return _turbogr.config_text(*_arguments_of(config, store, overrides))


class EarlyStopping:
    """A callback that stops a run after ``patience`` evaluations without a better ``metric``.

    Evaluations come as often as ``eval.every`` (epochs) or ``eval.every_steps`` say. ``train.patience`` does the
    same inside the engine; this one shows how.
    """

    def __init__(self, metric: str = "ndcg@10", patience: int = 3, split: str = "validation"):
        self.metric = arguments.text_of("metric", metric)
        self.patience = arguments.integer_of("patience", patience, 1)
        self.split = arguments.choice_of("split", split, ("validation", "test"))
        self.best = float("-inf")
        self.since_best = 0

    def __call__(self, record: Record) -> bool:
        if record.get("split") != self.split:
            return False
        if self.metric not in record:
            raise _turbogr.Error(
                f"no metric {self.metric!r} in an evaluation; it has: {', '.join(sorted(record))}"
            )
        self.since_best = 0 if record[self.metric] > self.best else self.since_best + 1
        self.best = max(self.best, record[self.metric])
        return self.since_best >= self.patience


def _progress(record: Record) -> None:
    """A line a record, on whatever Python calls standard error: notebooks show it as it comes."""
    if "split" in record:
        figures = "  ".join(f"{name} {value:.4f}" for name, value in record.items() if "@" in name or name == "mrr")
        text = f"{record['split']} after {record['epoch']:.2f} epochs: {figures}"
    else:
        text = f"step {record['step']}  epoch {record['epoch']:.2f}  loss {record.get('loss', float('nan')):.4f}"
    print(text, file=sys.stderr, flush=True)


class Run:
    """A training run that has ended, or was stopped: its folder and its figures."""

    def __init__(self, path: str | os.PathLike[str], end: str = "finished"):
        self.path = os.path.abspath(arguments.path_of("path", path))
        self.end = end  # finished, stopped (by a callback) or interrupted (Ctrl-C)

    def __fspath__(self) -> str:
        return self.path

    def records(self) -> list[Record]:
        """Every line of figures and every evaluation, from metrics.jsonl."""
        with open(os.path.join(self.path, "metrics.jsonl"), encoding="utf-8") as lines:
            return [json.loads(line) for line in lines if line.strip()]

    def metrics(self, split: str | None = None) -> Table:
        """The figures as columns: of training, or of the evaluations of a split."""
        arguments.choice_of("split", split, (None, "validation", "test"))
        records = [record for record in self.records() if record.get("split") == split]
        names = list(dict.fromkeys(name for record in records for name in record if name != "split"))
        return Table({name: np.array([record.get(name) for record in records], float) for name in names})

    def load(self, **options: Any) -> Any:
        """The model it has learnt: ``turbogr.load(run)``."""
        from turbogr._model import load

        return load(self, **options)

    def __repr__(self) -> str:
        return f"turbogr.Run({self.path!r}): {self.end}"

    def __reduce__(self) -> Any:
        return Run, (self.path, self.end)


def train(
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    store: Any = None,
    *,
    callbacks: Callback | Sequence[Callback] = (),
    progress: bool = True,
    **overrides: Any,
) -> Run:
    """Trains a model and returns its run; the same as ``turbogr train``, to the bit.

    ``config`` is a TOML file, a dictionary of its keys, or None: then model and length of the run are chosen from
    the store's size. ``store`` is a :class:`Store` or its folder. Keys are overridden by sections,
    ``train={"epochs": 5}``, or by full names, ``**{"train.epochs": 5}``; ``run={"dir": "runs/mine"}`` says where the run
    goes, and ``run={"resume": True}`` goes on with one.

    Each callback is called with every line of figures (``step``, ``epoch``, ``loss``, ...) and every evaluation
    (``split``, ``hr@10``, ...) as a dictionary. A callback that returns True, or raises, stops the run after a
    checkpoint; so does Ctrl-C, which raises nothing: the run returned says ``end == "interrupted"``. Other
    Python threads go on while it trains.
    """
    path, flat = _arguments_of(config, store, overrides)
    if callable(callbacks):
        callbacks = (callbacks,)
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise TypeError(f"callbacks is {arguments.shown(callbacks)}; wanted: a function, or a list of functions")
    listeners = list(callbacks)
    if arguments.flag_of("progress", progress):
        listeners.insert(0, _progress)

    def hear(record: Record) -> bool:
        answers = [listener(dict(record)) for listener in listeners]
        return any(answer is True for answer in answers)

    words = [path] if path else []
    command = " ".join(["turbogr train", *words, *(f"--{key}={value}" for key, value in flat)])
    end, folder = _turbogr.train(path, flat, command, hear)
    return Run(folder, end)
