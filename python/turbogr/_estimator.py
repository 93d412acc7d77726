"""Estimators in the manner of scikit-learn: settings first, then fit, then recommend."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from typing import Any

import numpy as np

from turbogr import _turbogr
from turbogr import _arguments as arguments
from turbogr._columns import Table
from turbogr._data import Store, prepare
from turbogr._model import Model, load
from turbogr._train import Run, train

# Short names of the settings people change most; any other key goes by its section: model={"alpha": 2.0}.
_KEYS = {
    "layers": "model.layers",
    "width": "model.width",
    "heads": "model.heads",
    "dropout": "model.dropout",
    "max_length": "data.max_length",
    "epochs": "train.epochs",
    "steps": "train.steps",
    "patience": "train.patience",
    "batch": "train.batch",
    "threads": "train.threads",
    "device": "train.device",
    "lr": "optim.lr",
    "negatives": "negatives.count",
    "seed": "run.seed",
    "holdout": "data.holdout",
}


class HSTU:
    """An HSTU recommender: ``HSTU(layers=2, epochs=20).fit(interactions).recommend(users, k=10)``.

    Settings that are not given are chosen from the data's size. ``path`` is the folder of the run; without it the run
    lives as long as the estimator. Sections of the configuration may be given as dictionaries.
    """

    _kind = "hstu"

    def __init__(self, *, path: str | os.PathLike[str] | None = None, progress: bool = False, **settings: Any):
        self._settings: dict[str, Any] = {}
        self.path = path
        self.progress = arguments.flag_of("progress", progress)
        self.set_params(**settings)
        self.store: Store | None = None
        self.run: Run | None = None
        self._model: Model | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings that were given."""
        return {"path": self.path, "progress": self.progress, **self._settings}

    def set_params(self, **settings: Any) -> HSTU:
        """Changes settings; they count at the next fit."""
        for name, value in settings.items():
            if name in ("path", "progress"):
                setattr(self, name, value)
            elif name in _KEYS or isinstance(value, dict) or "." in name:
                self._settings[name] = value
            else:
                raise TypeError(
                    f"unknown setting {name!r}; there are {', '.join(_KEYS)}, and sections of the configuration as "
                    'dictionaries: model={"alpha": 2.0}'
                )
        return self

    def fit(self, interactions: Any, y: Any = None, **columns: Any) -> HSTU:
        """Trains on a log: anything :func:`turbogr.prepare` takes, with its arguments (``user="who"``), or a store."""
        own = tempfile.mkdtemp(prefix="turbogr-fit-")
        weakref.finalize(self, shutil.rmtree, own, ignore_errors=True)
        if isinstance(interactions, Store):
            if columns:
                raise TypeError(f"interactions is a store; {next(iter(columns))} has nothing to say about it")
            self.store = interactions
        else:
            self.store = prepare(interactions, os.path.join(own, "store"), **columns)
        overrides: dict[str, Any] = {"model.kind": self._kind}
        for name, value in self._settings.items():
            overrides[_KEYS.get(name, name)] = value
        overrides["run.dir"] = os.path.join(own, "run") if self.path is None else arguments.path_of("path", self.path)
        self.run = train(store=self.store, progress=self.progress, **overrides)
        self._model = load(self.run, self.store)
        return self

    @property
    def model(self) -> Model:
        """The trained model."""
        if self._model is None:
            raise _turbogr.Error(f"this {type(self).__name__} has not been fitted yet; call fit first")
        return self._model

    def recommend(self, users: Any = None, k: int = 10, **options: Any) -> Table:
        """:meth:`turbogr.Model.recommend` of the trained model."""
        return self.model.recommend(users, k, **options)

    def recommend_for(self, histories: Any, k: int = 10, **options: Any) -> Table:
        """:meth:`turbogr.Model.recommend_for` of the trained model."""
        return self.model.recommend_for(histories, k, **options)

    def evaluate(self, split: str = "test", **options: Any) -> dict[str, float]:
        """:meth:`turbogr.Model.evaluate` of the trained model."""
        return self.model.evaluate(split, **options)

    def user_vectors(self, users: Any = None) -> np.ndarray:
        """:meth:`turbogr.Model.user_vectors` of the trained model."""
        return self.model.user_vectors(users)

    def item_vectors(self) -> np.ndarray:
        """:meth:`turbogr.Model.item_vectors` of the trained model."""
        return self.model.item_vectors()

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        return f"turbogr.{type(self).__name__}({settings})"


class FuXi(HSTU):
    """A FuXi recommender, with the settings of :class:`HSTU`."""

    _kind = "fuxi"
