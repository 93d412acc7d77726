"""What a run of the ranking task has learnt, open for use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from turbogr import _turbogr
from turbogr import _arguments as arguments
from turbogr._columns import Table
from turbogr._trained import Trained, id_of, ids_of

LATEST = 10**14


def _question(name: str, request: Any) -> Any:
    if not isinstance(request, Mapping):
        raise TypeError(f'{name} is {arguments.shown(request)}; wanted: {{"user": ..., "items": [...]}}')
    for key in request:
        if key not in ("user", "items", "at", "context"):
            raise ValueError(f"{name} has {arguments.shown(key)}; wanted: user, items, at and context")
    for key in ("user", "items"):
        if key not in request:
            raise ValueError(f"{name} has no {key}; wanted: user and items, at and context if known")
    question = _turbogr.Question()
    question.user = id_of(f"{name} user", request["user"])
    question.items = ids_of(f"{name} items", request["items"])
    if not question.items:
        raise ValueError(f"{name} items is empty; wanted: at least one item")
    at = request.get("at")
    question.at = None if at is None else arguments.integer_of(f"{name} at", at, -LATEST, LATEST)
    context = {} if request.get("context") is None else request["context"]
    if not isinstance(context, Mapping):
        raise TypeError(f"{name} context is {arguments.shown(context)}; wanted: a dictionary, a feature of events to its value")
    question.context = {
        arguments.text_of(f"{name} context", feature): id_of(f"{name} context {feature}", value)
        for feature, value in context.items()
    }
    return question


class Ranker(Trained):
    """A trained model of the ranking task; made by :func:`load`."""

    def __init__(self, path: Any, store: Any = None, threads: int = 0):
        super().__init__(_turbogr.Ranker, path, store, threads)

    @property
    def tasks(self) -> list[str]:
        """What it predicts, in the order of the columns."""
        return self._model.tasks

    def rank(
        self,
        user: Any,
        items: Any,
        *,
        at: int | None = None,
        context: Mapping[str, Any] | None = None,
        by: str | None = None,
        unknown: str = "skip",
    ) -> Table:
        """How it judges ``items`` for ``user``: a table of user, item, a column a task (a probability, or the
        number itself) and rank (from 1), best first by the task ``by`` (default: the first).

        ``at`` is the time in the store's unit: events from then on are no history (default: after the user's last).
        ``context`` are features of events that are known, such as where the items are shown. A user whom the store does
        not have is judged without a history; items it does not have are skipped with a warning, or with
        ``unknown="error"`` refused.
        """
        return self.rank_all([{"user": user, "items": items, "at": at, "context": context}], by=by, unknown=unknown)

    def rank_all(self, requests: Iterable[Mapping[str, Any]], *, by: str | None = None, unknown: str = "skip") -> Table:
        """The same for many requests, dictionaries of user, items, at and context, with a column request (its place)."""
        if isinstance(requests, (str, bytes, Mapping)) or not isinstance(requests, Iterable):
            raise TypeError(f"requests is {arguments.shown(requests)}; wanted: a list of dictionaries")
        given = list(requests)
        if not given:
            raise ValueError("requests is empty; wanted: at least one request")
        questions = [_question(f"requests[{i}]", request) for i, request in enumerate(given)]
        tasks = self.tasks
        column = 0 if by is None else tasks.index(arguments.choice_of("by", by, tuple(tasks)))
        arguments.choice_of("unknown", unknown, ("skip", "error"))
        place, item, scores = self._model.rank(questions, unknown)
        order = np.lexsort((-scores[:, column], place))  # stable: equals stay in the order asked
        place, item, scores = place[order], item[order], scores[order]
        starts = np.searchsorted(place, place)
        users = np.array([request["user"] for request in given])
        columns = {"request": place, "user": users[place], "item": self.store.item_ids()[item]}
        columns.update({name: np.ascontiguousarray(scores[:, i]) for i, name in enumerate(tasks)})
        columns["rank"] = np.arange(len(place)) - starts + 1
        return Table(columns)

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """AUC, AUC inside groups, normalised entropy and accuracy of the held-out targets, over all tasks and of each."""
        arguments.choice_of("split", split, ("validation", "test"))
        return self._model.evaluate(split)
