"""Trains generative recommenders (HSTU, FuXi) on users' whole histories.

>>> store = turbogr.prepare(frame, user="user_id", item="item_id", time="timestamp")
>>> run = turbogr.train(store=store)
>>> turbogr.load(run).recommend(users=[42], k=10).to_pandas()
"""

import logging as _logging

from turbogr import _libraries, _turbogr, ops
from turbogr._columns import Table
from turbogr._data import Store, merge, prepare
from turbogr._estimator import HSTU, FuXi
from turbogr._model import Model, load
from turbogr._ranker import Ranker
from turbogr._train import EarlyStopping, Run, config_text, train
from turbogr._turbogr import Error, __version__

if _turbogr.with_cuda:
    _libraries.announce()
_turbogr.log_to(_logging.getLogger("turbogr"))

__all__ = [
    "EarlyStopping",
    "Error",
    "FuXi",
    "HSTU",
    "Model",
    "Ranker",
    "Run",
    "Store",
    "Table",
    "__version__",
    "config_text",
    "load",
    "merge",
    "ops",
    "prepare",
    "train",
]
