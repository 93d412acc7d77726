"""5,000 wrong calls: each raises an error that names the argument, and the interpreter lives on."""

import datetime
import decimal
import random

import numpy as np

import turbogr

CALLS = 5000


class Hostile:
    """An object whose every method fails."""

    def __getattr__(self, name):
        raise RuntimeError("hostile")

    def __repr__(self):
        raise RuntimeError("hostile")


NOT_A_NUMBER = ["ten", b"10", None, [], {}, object(), Hostile(), 1.5, float("nan"), True, decimal.Decimal("1.5"), 1j, print]
NOT_AN_ID = [None, 1.5, True, b"x", object(), Hostile(), (1,), {}, float("inf"), datetime.date(2020, 1, 1)]
NOT_A_TEXT = [3, b"x", object(), Hostile(), 1.5, ["x"], {}, True, "with\0zero"]
NOT_A_FLAG = [0, 1, "yes", None, [], Hostile(), np.bool_(True), 1.0]
NOT_AN_ARRAY = ["x", None, 3, object(), Hostile(), {"a": 1}, np.array(["a"]), np.array([object()]), np.zeros((2, 2, 2)), int]
NOT_A_PATH = [3, None, 1.5, object(), Hostile(), [], b"\0", "zero\0"]

Q = np.random.default_rng(0).normal(size=(6, 4))
ATTENTION = {"q": Q, "k": Q + 1, "v": Q + 2, "offsets": np.array([0, 2, 6])}
SOFTMAX = {
    "query": Q, "items": Q[:5] + 1, "positive": np.zeros(6, np.int32), "negatives": np.array([1, 2], np.int32),
}  # fmt: skip


def bad_matrix(draw):
    return draw.choice([
        *NOT_AN_ARRAY, np.zeros(4), np.zeros((6, 4), draw.choice(["int32", "float16", "complex64", ">f8", "bool", "M8[s]"])),
        np.zeros((6, 8))[:, ::2], np.zeros((draw.choice([1, 5, 7, 100]), 4)), np.zeros((6, draw.choice([0, 1, 3, 5]))),
        np.zeros((6, 4), np.float32), np.zeros((6, 4)).T,
    ])  # fmt: skip


def bad_values(draw):
    """As bad_matrix, but any width of at least one is right for values."""
    value = bad_matrix(draw)
    right = isinstance(value, np.ndarray) and value.dtype == np.float64 and value.shape[:1] == (6,) and value.shape[1:] > (0,)
    return np.zeros((6, 0)) if right and value.strides[1] == 8 else value


def bad_offsets(draw):
    return draw.choice([
        *NOT_AN_ARRAY, [], [0], [0, 5], [0, 7], [1, 6], [0, 4, 2, 6], [0, -1, 6], np.array([0.0, 6.0]), np.array([0, 6], np.int32),
        np.array([0, 0, 6, 6])[::2], [[0, 6]], [0, 2**62], ["a", "b"], [0, None],
    ])  # fmt: skip


def bad_numbers(draw):
    return draw.choice([
        *NOT_AN_ARRAY, np.full(6, draw.choice([-1, 5, 99, 2**31 - 1]), np.int32), np.zeros(6, np.int64), np.zeros(6), [2**40] * 6,
    ])  # fmt: skip


def wrong(values):
    return lambda draw: draw.choice(values)


def targets(columns, store, model, run, folder):
    """(what, the right arguments, how to spoil each of them)."""
    number = wrong(NOT_A_NUMBER + [-1, 0, 2**70, np.int64(-5)])
    count = wrong([*NOT_A_NUMBER, -1, 2**70])
    text = wrong(NOT_A_TEXT)
    flag = wrong(NOT_A_FLAG)
    ids = lambda draw: draw.choice([*NOT_AN_ID[1:], [draw.choice(NOT_AN_ID)], [1003, draw.choice(NOT_AN_ID)], [], np.zeros((2, 2), int), np.array([1.5])])
    word = wrong([*NOT_A_TEXT, "", "no such word"])
    listing = {
        "users": ids, "k": number, "only": lambda draw: draw.choice([[draw.choice(NOT_AN_ID)], 1.5, b"x", Hostile()]),
        "exclude": lambda draw: draw.choice([[draw.choice(NOT_AN_ID)], 1.5, b"x", Hostile()]), "seen": word, "unknown": word,
        "untrained_items": flag,
    }  # fmt: skip
    histories = lambda draw: draw.choice([
        None, 3, "x", {}, Hostile(), [], [[]], [None], [3], ["x"], [[None]], [[1.5]], [[510], [(510, 1)]], [[(510, 1), 511]],
        [[(510, 2), (511, 1)]], [[(510, "now")]], [[(510, 2**80)]], [{}], [[(510, 1, 2)]],
    ])  # fmt: skip
    yield turbogr.prepare, {"data": columns}, {
        "data": lambda draw: draw.choice([
            None, 3, object(), [], {}, Hostile(), {"user_id": [1]}, {"user_id": [1], "item_id": [[1]]}, {1: [2]},
            {"user_id": [1, 2], "item_id": [1]}, {"user_id": [1.5], "item_id": [1]}, {"user_id": [1j], "item_id": [1]},
            {"user_id": [None], "item_id": [1]}, {"user_id": [object()], "item_id": [1]}, {"user_id": [2**70], "item_id": [1]},
            {"user_id": [], "item_id": []}, str(folder / "gone.csv"), str(folder / "gone.parquet"), turbogr.Table, 1.5,
        ]),
        "out": wrong([3, 1.5, object(), b"\0", "", "zero\0"]), "user": wrong([*NOT_A_TEXT, "", "no such column"]),
        "item": wrong([*NOT_A_TEXT, "", "no such column"]), "time": wrong([*NOT_A_TEXT, "", "no such column"]),
        "signals": wrong([3, b"x", [3], [""], ["no such column"], Hostile(), 1.5]), "numbers": wrong([3, b"x", [3], [""], ["no such column"]]),
        "labels": wrong([3, [3], ["rating"], ["no such column>=3"], b"x"]), "features": wrong([3, [3], ["no such column"], b"x"]),
        "keep_signal": wrong([*NOT_A_TEXT, "", "no such signal"]), "min_user": count, "min_item": count, "max_bad": count,
        "time_unit": word, "ids": word, "on_error": word, "header": word, "format": word, "deduplicate": word,
        "memory": wrong([*NOT_A_NUMBER[1:8], "much", "1MB", -1, 0, "", "12 XB", 2**80]), "overwrite": flag, "threads": wrong([*NOT_A_NUMBER, -1, 5000, 2**70]),
        "user_table": wrong([3, Hostile(), object(), 1.5]), "item_table": wrong([3, Hostile(), object(), 1.5]),
        "item_features": wrong([3, [3], [""], b"x"]), "user_features": wrong([3, [3], [""], b"x"]),
    }  # fmt: skip
    yield turbogr.train, {"store": store, "progress": False, "run": {"dir": folder / "never", "dry_run": True}}, {
        "config": wrong([3, 1.5, object(), Hostile(), b"\0", {"model": {"layers": "x"}}, {3: 4}, {"model": 3}, str(folder / "config.toml")]),
        "store": wrong([3, 1.5, object(), Hostile(), str(folder / "store gone"), b"\0"]), "progress": flag,
        "callbacks": wrong([3, "x", [3], [None], {}, Hostile()]),
        "model": wrong([{"layers": 0}, {"layers": 1.5}, {"layers": "x"}, {"layer": 1}, {"kind": 3}, {"width": [1]}, {"dropout": float("nan")}, {"dropout": 7}, {"layers": {"x": 1}}]),
        "eval": wrong([{"at": ["x"]}, {"at": 3}, {"at": [[1]]}, {"at": [0]}, {"metric": 3}]),
    }  # fmt: skip
    yield turbogr.load, {"run": run}, {
        "run": wrong([*NOT_A_PATH, str(folder / "run gone")]), "store": wrong([3, object(), str(folder / "store gone"), b"\0"]), "threads": count,
    }  # fmt: skip
    yield model.recommend, {"users": [1003], "k": 3}, listing
    yield model.recommend_for, {"histories": [[510, 511]], "k": 3}, {**{k: v for k, v in listing.items() if k != "users"}, "histories": histories}
    yield model.evaluate, {"split": "test"}, {
        "split": word, "at": wrong([[], "x", b"x", None, [0], [-1], ["x"], [1.5], 0, 1.5, Hostile(), {}]), "seen": word, "popularity": flag,
    }  # fmt: skip
    yield model.user_vectors, {"users": [1003]}, {"users": ids, "unknown": word}
    yield model.vectors_for, {"histories": [[510]]}, {"histories": histories}
    yield turbogr.Store, {"path": store.path}, {"path": wrong([*NOT_A_PATH, str(folder), ""])}
    yield turbogr.EarlyStopping, {}, {"metric": text, "patience": number, "split": word}
    for attention in (turbogr.ops.hstu_attention, turbogr.ops.fuxi_attention):
        yield attention, ATTENTION, {
            "q": bad_matrix, "k": bad_matrix, "v": bad_values, "offsets": bad_offsets, "heads": lambda d: d.choice([*NOT_A_NUMBER, 0, -1, 3, 5, 2**40]),
            "alpha": wrong(["x", None, float("nan"), float("inf"), [], True]), "norm_length": wrong(["x", None, 0, -1.0, float("nan"), []]),
            "window": count, "max_length": count, "position": wrong([*NOT_AN_ARRAY[:1], np.zeros(3), np.zeros(4), np.zeros((7, 1)), np.zeros(7, np.float32), 3]),
            "time": wrong([np.zeros(129), np.zeros(5), "x", 3]), "num_prefix": wrong([[9, 9], [-1, 0], [1], "x", 3, np.zeros(2)]),
            "num_targets": wrong([[9, 9], [-1, 0], [1], "x", 3, np.zeros(2)]),
        }  # fmt: skip
    yield turbogr.ops.sampled_softmax, SOFTMAX, {
        "query": bad_matrix, "items": lambda d: d.choice([*NOT_AN_ARRAY, np.zeros((0, 4)), np.zeros((5, 3)), np.zeros((5, 4), np.float32), np.zeros(4)]),
        "positive": bad_numbers, "negatives": bad_numbers, "correction": wrong(["x", 3, np.zeros(4), np.zeros(5, np.float32)]),
        "temperature": wrong(["x", None, 0, -1.0, float("nan")]), "normalize": flag,
    }  # fmt: skip
    yield turbogr.ops.set_threads, {"threads": 1}, {"threads": count}


# Words that an error may use for an argument: what the argument names is wrong, not the argument.
ALSO = {
    "data": ("column", "input", "user", "item", "no usable row", "turbogr reads"), "user": ("column",), "item": ("column",), "time": ("column", "times"),
    "signals": ("column",), "numbers": ("column",), "labels": ("label", "column"), "features": ("column", "feature"),
    "keep_signal": ("--keep-signal",), "store": ("manifest.json", "store gone"), "config": ("model", "config"), "run": ("run gone", "checkpoint", "path"),
    "q": ("k is [", "v is [", "k has", "v has", "offsets end"), "k": ("k is [",), "v": ("v is [",), "offsets": ("sequences",), "path": ("manifest.json", "store"),
    "users": ("no user '",), "histories": ("history",), "alpha": ("scale",), "num_prefix": ("prefix",), "num_targets": ("targets",),
    "items": ("positive", "negatives", "query", "width"), "query": ("positive", "items", "tokens"), "positive": ("tokens",), "negatives": ("tokens",),
    "eval": ("eval.",), "model": ("model.",), "out": ("path",),
}  # fmt: skip


def test_wrong_calls(columns, store, model, run, tmp_path):
    draw = random.Random(20261116)
    cases = list(targets(columns, store, model, run, tmp_path))
    before = {str(path) for path in tmp_path.iterdir()}
    silent, unnamed = [], []
    for _ in range(CALLS):
        call, right, spoilers = draw.choice(cases)
        argument = draw.choice(sorted(spoilers))
        value = spoilers[argument](draw)
        what = f"{getattr(call, '__qualname__', call)}({argument}={turbogr._data.arguments.shown(value)})"
        try:
            call(**{**right, argument: value})
        except (turbogr.Error, TypeError, ValueError, OverflowError) as error:
            if not any(word in str(error) for word in (argument, *ALSO.get(argument, ()))):
                unnamed.append(f"{what}: {type(error).__name__}: {error}")
        else:
            silent.append(what)
    assert not unnamed, f"{len(unnamed)} errors without a name:\n" + "\n".join(sorted(set(unnamed))[:20])
    assert not silent, f"{len(silent)} calls were taken:\n" + "\n".join(sorted(set(silent))[:20])
    assert {str(path) for path in tmp_path.iterdir()} == before
    assert model.recommend([1003], k=3).rows == 3
