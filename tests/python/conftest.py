"""Data that several tests share."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def columns():
    """A log of 60 users who walk through 40 items, each in a circle of their own stride."""
    random = np.random.default_rng(7)
    users, items, times = [], [], []
    for user in range(60):
        length = int(random.integers(8, 30))
        place = int(random.integers(0, 40))
        for step in range(length):
            users.append(1000 + user)
            items.append(500 + (place + step * (1 + user % 2)) % 40)
            times.append(1_600_000_000 + 3600 * step + user)
    order = random.permutation(len(users))
    return {
        "user_id": np.array(users)[order],
        "item_id": np.array(items)[order],
        "timestamp": np.array(times)[order],
    }


SMALL = {
    "model": {"layers": 1, "width": 16, "heads": 1, "dropout": 0.1},
    "data": {"max_length": 32},
    "train": {"epochs": 4, "batch": 16, "threads": 2},
    "negatives": {"count": 16},
    "eval": {"every": 2, "at": [5, 10], "metric": "ndcg@10"},
    "log": {"every": 2},
}


@pytest.fixture(scope="session")
def small():
    """A configuration that trains in a second."""
    return SMALL


@pytest.fixture(scope="session")
def store(columns, tmp_path_factory):
    """The log as a store that lives as long as the tests."""
    import turbogr

    return turbogr.prepare(columns, tmp_path_factory.mktemp("stores") / "walks")


@pytest.fixture(scope="session")
def run(store, small, tmp_path_factory):
    """A finished run on it."""
    import turbogr

    return turbogr.train(small, store, run={"dir": tmp_path_factory.mktemp("runs") / "small"}, progress=False)


@pytest.fixture(scope="session")
def model(run):
    """Its model."""
    import turbogr

    return turbogr.load(run)


RANKING = {
    "task": "ranking",
    "data": {"holdout": "last:20%", "max_length": 32},
    "model": {"layers": 1, "width": 16, "heads": 1, "embedding": 8},
    "train": {"epochs": 2, "batch": 16, "threads": 2},
    "tasks": {"like": {"signals": ["like"]}, "late": {"signals": ["late"]}},
}


@pytest.fixture(scope="session")
def ranking_run(tmp_path_factory):
    """A finished run of the ranking task, on a log of its own."""
    import turbogr

    random = np.random.default_rng(3)
    count = 1500
    user, item = random.integers(0, 50, count), random.integers(0, 30, count)
    log = {
        "user_id": user, "item_id": item, "timestamp": 1_600_000_000 + np.arange(count) * 60,
        "like": (user % 3 == item % 3).astype(np.int64), "late": (np.arange(count) % 2).astype(np.int64),
        "tab": random.integers(0, 3, count),
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("ranking")
    store = turbogr.prepare(log, folder / "store", signals=["like", "late"], features="tab")
    return turbogr.train(RANKING, store, run={"dir": folder / "run"}, progress=False)


@pytest.fixture(scope="session")
def ranker(ranking_run):
    """Its model."""
    import turbogr

    return turbogr.load(ranking_run)
