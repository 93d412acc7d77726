"""What a run has learnt, open for use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from turbogr import _turbogr
from turbogr import _arguments as arguments
from turbogr._columns import Table
from turbogr._ranker import Ranker
from turbogr._trained import Trained, ids_of


def _histories(histories: Any) -> tuple[list[list[str]], list[list[int]]]:
    """Lists of items, or of (item, time), oldest first."""
    if isinstance(histories, (str, bytes, Mapping)) or not isinstance(histories, Iterable):
        raise TypeError(
            f"histories is {arguments.shown(histories)}; wanted: a list of histories, each a list of items or of "
            "(item, time)"
        )
    items: list[list[str]] = []
    times: list[list[int]] = []
    for i, history in enumerate(histories):
        name = f"histories[{i}]"
        if isinstance(history, (str, bytes, Mapping)) or not isinstance(history, Iterable):
            raise TypeError(f"{name} is {arguments.shown(history)}; wanted: a list of items, oldest first")
        entries = list(history)
        if not entries:
            raise ValueError(f"{name} is empty; wanted: at least one item")
        timed = isinstance(entries[0], (tuple, list)) and len(entries[0]) == 2
        if times and not timed or (not times and timed and items):
            raise ValueError(f"{name}: some histories have times and some do not; give all of them times, or none")
        if timed:
            for j, entry in enumerate(entries):
                if not isinstance(entry, (tuple, list)) or len(entry) != 2:
                    raise TypeError(f"{name}[{j}] is {arguments.shown(entry)}; wanted: (item, time)")
            own = [arguments.integer_of(f"{name}[{j}] time", entry[1], -(10**14), 10**14) for j, entry in enumerate(entries)]
            if any(later < earlier for earlier, later in zip(own, own[1:])):
                raise ValueError(f"{name}: its times fall; wanted: the oldest event first")
            times.append(own)
            entries = [entry[0] for entry in entries]
        items.append(ids_of(name, entries))
    return items, times


class Model(Trained):
    """A trained model of the retrieval task; made by :func:`load`."""

    def __init__(self, path: Any, store: Any = None, threads: int = 0):
        super().__init__(_turbogr.Model, path, store, threads)
        self._users: np.ndarray | None = None
        self._items: np.ndarray | None = None

    def _user_ids(self) -> np.ndarray:
        if self._users is None:
            self._users = self.store.user_ids()
        return self._users

    def _item_ids(self) -> np.ndarray:
        if self._items is None:
            self._items = self.store.item_ids()
        return self._items

    def _choice(self, k: Any, only: Any, exclude: Any, seen: Any, unknown: Any, untrained: Any) -> Any:
        choice = _turbogr.Choice()
        choice.k = arguments.integer_of("k", k, 1, 2**31)
        choice.only = None if only is None else ids_of("only", only)
        choice.exclude = [] if exclude is None else ids_of("exclude", exclude)
        choice.seen = arguments.choice_of("seen", seen, (None, "drop", "keep")) or ""
        choice.unknown = arguments.choice_of("unknown", unknown, ("skip", "error"))
        choice.untrained = arguments.flag_of("untrained_items", untrained)
        return choice

    def recommend(
        self,
        users: Any = None,
        k: int = 10,
        *,
        exclude: Any = None,
        only: Any = None,
        seen: str | None = None,
        unknown: str = "skip",
        untrained_items: bool = False,
    ) -> Table:
        """The ``k`` best items for each user: a table of user, item, score and rank (from 1).

        ``users`` are ids of the log, None means all. ``only`` and ``exclude`` are items; ``seen`` "drop" or "keep"
        decides about items the user has met (default: the run's ``eval.seen``). Ids that the store does not have are
        skipped with a warning, or with ``unknown="error"`` refused.
        """
        choice = self._choice(k, only, exclude, seen, unknown, untrained_items)
        asked = None if users is None else ids_of("users", users)
        if asked is not None and not asked:
            raise ValueError("users is empty; wanted: at least one id, or None for all users")
        place, item, score, rank = self._model.recommend(asked, choice)
        known = self._user_ids()
        if asked is not None:
            known = known[np.array(self._model.user_indices(asked, choice.unknown), np.int64)]
        return Table({"user": known[place], "item": self._item_ids()[item], "score": score, "rank": rank})

    def recommend_for(
        self,
        histories: Any,
        k: int = 10,
        *,
        exclude: Any = None,
        only: Any = None,
        seen: str | None = None,
        unknown: str = "skip",
        untrained_items: bool = False,
    ) -> Table:
        """The same for histories of users that no store has: a table of history (its place), item, score, rank.

        A history is a list of items, or of (item, time) with the time in the store's unit, oldest first. One without
        any item of the store has no rows.
        """
        choice = self._choice(k, only, exclude, seen, unknown, untrained_items)
        items, times = _histories(histories)
        if not items:
            raise ValueError("histories is empty; wanted: at least one history")
        place, item, score, rank = self._model.recommend_for(items, times, choice)
        return Table({"history": place, "item": self._item_ids()[item], "score": score, "rank": rank})

    def evaluate(
        self,
        split: str = "test",
        at: int | Sequence[int] = (10, 50, 200),
        *,
        seen: str | None = None,
        popularity: bool = False,
    ) -> dict[str, float]:
        """HR@K, NDCG@K and MRR of the held-out items, every item of the store a candidate.

        ``popularity=True`` ranks by popularity instead, to compare.
        """
        arguments.choice_of("split", split, ("validation", "test"))
        if isinstance(at, (str, bytes)):
            raise TypeError(f"at is {arguments.shown(at)}; wanted: a whole number or a list of them")
        cutoffs = list(at) if isinstance(at, Iterable) else [at]
        if not cutoffs:
            raise ValueError("at is empty; wanted: at least one K")
        cutoffs = [arguments.integer_of("at", cutoff, 1) for cutoff in cutoffs]
        rule = arguments.choice_of("seen", seen, (None, "drop", "keep")) or ""
        return self._model.evaluate(split, cutoffs, rule, arguments.flag_of("popularity", popularity))

    def user_vectors(self, users: Any = None, *, unknown: str = "error") -> np.ndarray:
        """Vectors of users' whole histories, of length one: float32 [users, width], in the order asked for (None:
        all, in the order of ``store.user_ids()``). Their products with item vectors order items as recommend does."""
        arguments.choice_of("unknown", unknown, ("skip", "error"))
        asked = None if users is None else ids_of("users", users)
        if asked is not None and not asked:
            raise ValueError("users is empty; wanted: at least one id, or None for all users")
        return self._model.user_vectors(asked, unknown)

    def vectors_for(self, histories: Any) -> np.ndarray:
        """The same for histories that are in no store; every item must be known."""
        items, times = _histories(histories)
        if not items:
            raise ValueError("histories is empty; wanted: at least one history")
        return self._model.vectors_for(items, times)

    def item_vectors(self) -> np.ndarray:
        """Vectors of all items, of length one: float32 [items, width], in the order of ``store.item_ids()``."""
        return self._model.item_vectors()


def load(run: Any, store: Any = None, threads: int = 0) -> Model | Ranker:
    """Opens the model of a run, a :class:`Model` or, of the ranking task, a :class:`Ranker`. ``run`` is a :class:`Run`, its folder (the best checkpoint, or the newest where none is kept), or
    one checkpoint. ``store`` is needed only where the one it was trained on has moved. ``threads`` 0: one a core."""
    path = arguments.path_of("path", run)
    arguments.integer_of("threads", threads, 0, 4096)
    kind = Ranker if _turbogr.task_of(path) == "ranking" else Model
    return kind(run, store, threads)
