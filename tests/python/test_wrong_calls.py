"""10,000 wrong calls: each raises an error that names the argument, and the interpreter lives on."""

import datetime
import decimal
import random
import re

import numpy as np
import pytest

import turbogr


class Hostile:
    """An object whose every method fails."""

    def __getattr__(self, name):
        raise RuntimeError("hostile")

    def __repr__(self):
        raise RuntimeError("hostile")


NOT_A_NUMBER = ["ten", b"10", None, [], {}, object(), Hostile(), 1.5, float("nan"), True, decimal.Decimal("1.5"), 1j, print, np.array([1, 2])]
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
        np.array([0, 0, 6, 6])[::2], [[0, 6]], [0, 2**62], ["a", "b"], [0, None], [0, 2.5, 6], [False, 6.0],
    ])  # fmt: skip


def bad_numbers(draw):
    return draw.choice([
        *NOT_AN_ARRAY, np.full(6, draw.choice([-1, 5, 99, 2**31 - 1]), np.int32), np.zeros(6, np.int64), np.zeros(6), [2**40] * 6,
    ])  # fmt: skip


def wrong(values):
    return lambda draw: draw.choice(values)


def attention_spoilers():
    count = wrong([*NOT_A_NUMBER, -1, 2**70])
    table = [*NOT_AN_ARRAY[:1], np.zeros(3), np.zeros(4), np.zeros((7, 1)), np.zeros(7, np.float32), 3]
    return {
        "q": bad_matrix, "k": bad_matrix, "v": bad_values, "offsets": bad_offsets, "heads": lambda d: d.choice([*NOT_A_NUMBER, 0, -1, 3, 5, 2**40]),
        "alpha": wrong(["x", None, float("nan"), float("inf"), [], True]), "norm_length": wrong(["x", None, 0, -1.0, float("nan"), []]),
        "window": count, "max_length": count, "position": wrong(table), "time": wrong([np.zeros(129), np.zeros(5), "x", 3]),
        "num_prefix": wrong([[9, 9], [-1, 0], [1], "x", 3, np.zeros(2)]), "num_targets": wrong([[9, 9], [-1, 0], [1], "x", 3, np.zeros(2)]),
    }  # fmt: skip


def softmax_spoilers():
    return {
        "query": bad_matrix, "items": lambda d: d.choice([*NOT_AN_ARRAY, np.zeros((0, 4)), np.zeros((5, 3)), np.zeros((5, 4), np.float32), np.zeros(4)]),
        "positive": bad_numbers, "negatives": bad_numbers, "correction": wrong(["x", 3, np.zeros(4), np.zeros(5, np.float32)]),
        "temperature": wrong(["x", None, 0, -1.0, float("nan")]), "normalize": wrong(NOT_A_FLAG),
    }  # fmt: skip


def targets(columns, store, model, run, ranker, folder):
    """(what, the right arguments, how to spoil each of them)."""
    number = wrong(NOT_A_NUMBER + [-1, 0, 2**70, np.int64(-5)])
    count = wrong([*NOT_A_NUMBER, -1, 2**70])
    number_above_zero = wrong([*NOT_A_NUMBER, -1, 1, 5, 2**70])
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
        "keep_items_without_events": flag,
    }  # fmt: skip
    yield turbogr.prepare, {"data": [folder / "log.csv", folder / "more.csv"], "shard": (1, 2)}, {
        "shard": wrong([1, "1/2", (1,), (0, 2), (3, 2), (1, 3), (1, 2, 3), (1.0, 2), ("1", "2"), (True, 2), (1, 2**70), [], {}, Hostile()]),
        "min_user": number_above_zero, "min_item": number_above_zero, "deduplicate": wrong(["events", "items", 3]), "user_table": wrong([columns, 3]),
        "item_table": wrong([columns, 3]), "keep_items_without_events": wrong([*NOT_A_FLAG, True]),
    }  # fmt: skip
    yield turbogr.merge, {"parts": [store]}, {
        "parts": wrong([3, None, "x", store, object(), Hostile(), [], [None], [3], [Hostile()], [store, store], [str(folder / "store gone")], [b"\0"], [""]]),
        "out": wrong([3, 1.5, object(), b"\0", "", "zero\0", store.path]), "min_user": count, "min_item": count, "deduplicate": word,
        "memory": wrong([*NOT_A_NUMBER[1:8], "much", "1MB", -1, 0, "", 2**80]), "overwrite": flag, "threads": wrong([*NOT_A_NUMBER, -1, 5000, 2**70]),
        "user_table": wrong([3, Hostile(), object(), 1.5]), "item_table": wrong([3, Hostile(), object(), 1.5]),
        "item_features": wrong([3, [3], [""], b"x", "genre"]), "user_features": wrong([3, [3], [""], b"x", "age"]),
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
    yield ranker.rank, {"user": 7, "items": [1, 2]}, {
        "user": wrong([*NOT_AN_ID, [7]]), "items": wrong([*[i for i in NOT_AN_ID if i != (1,)], [1, None], [1, 1.5], [], np.zeros((2, 2), int), np.array([1.5])]), "at": wrong([*[n for n in NOT_A_NUMBER if n is not None], 2**70, -(2**70)]),
        "context": wrong([3, "tab", [], [("tab", 1)], Hostile(), {3: 1}, {"shelf": 1}, {"tab": None}, {"tab": 1.5}, {"tab": []}, {"tab": Hostile()}, {"": 1}]),
        "by": wrong([*NOT_A_TEXT, "", "speed"]), "unknown": word,
    }  # fmt: skip
    good = {"user": 7, "items": [1]}
    yield ranker.rank_all, {"requests": [good]}, {
        "requests": wrong([3, None, "x", b"x", {}, [], [3], [None], [{}], [good, {"user": 7}], [{**good, "where": 1}], [{**good, 3: 1}], [Hostile()], Hostile(),
                           [{"items": [1]}], [{**good, "user": None}], [{**good, "items": None}], [{**good, "at": "noon"}], [good, "x"]]),
        "by": wrong([*NOT_A_TEXT, "", "speed"]), "unknown": word,
    }  # fmt: skip
    yield ranker.evaluate, {}, {"split": word}
    for kind in (turbogr.HSTU, turbogr.FuXi):
        yield lambda kind=kind, interactions=store, **settings: kind(**settings).fit(interactions), {"path": folder / "never"}, {
            "interactions": wrong([None, 3, object(), [], {}, Hostile(), {"user_id": [1]}, str(folder / "gone.csv"), turbogr.Table, 1.5]),
            "path": wrong([3, 1.5, object(), Hostile(), [], b"\0", "zero\0", ""]), "progress": flag, "layer": wrong([2]),
            "model": wrong([{"layers": 0}, {"layer": 1}, {"width": [1]}, {"dropout": 7}, {3: 1}]),
            "holdout": wrong(["x", "", 3, "last:200%", "last:0%,0%", True, [1]]), "device": wrong(["tpu", 3, "", [1]]),
            "dropout": wrong(["x", -0.1, 1.5, float("nan"), [], True, Hostile()]), "lr": wrong(["x", -1.0, float("nan"), [], True, Hostile()]),
            **{name: wrong(["ten", -1, 1.5, [], {3: 1}, True, Hostile(), object(), 2**70, print])
               for name in ("layers", "width", "heads", "max_length", "epochs", "steps", "patience", "batch", "threads", "negatives")},
            "seed": wrong(["ten", -1, 1.5, [], Hostile(), 2**70]),
        }  # fmt: skip
    estimator = turbogr.HSTU()
    estimator.store, estimator.run, estimator._model = store, run, model
    yield estimator.recommend, {"users": [1003], "k": 3}, {**listing, "user": wrong([1, "x"])}
    yield estimator.recommend_for, {"histories": [[510, 511]], "k": 3}, {**{k: v for k, v in listing.items() if k != "users"}, "histories": histories}
    yield estimator.evaluate, {}, {"split": word, "at": wrong([[], "x", None, [0], 1.5]), "popularity": flag}
    yield estimator.user_vectors, {"users": [1003]}, {"users": ids}
    yield turbogr.HSTU().recommend, {}, {"users": wrong([[1003]])}
    yield turbogr.Store, {"path": store.path}, {"path": wrong([*NOT_A_PATH, str(folder), ""])}
    yield turbogr.EarlyStopping, {}, {"metric": text, "patience": number, "split": word}
    for kind, maps in (("hstu", 1), ("fuxi", 3)):
        yield getattr(turbogr.ops, f"{kind}_attention"), ATTENTION, attention_spoilers()
        dout = wrong([*NOT_AN_ARRAY, np.zeros(4), np.zeros((6, 4 * maps), np.float32), np.zeros((5, 4 * maps)), np.zeros((6, 8 * maps))[:, ::2],
                      np.zeros((6, 4 * maps + 1)), np.zeros((6, 0)), np.zeros((6, 4 * maps)).astype(">f8"), np.zeros((12, 4 * maps))])  # fmt: skip
        yield getattr(turbogr.ops, f"{kind}_attention_backward"), {**ATTENTION, "dout": np.ones((6, 4 * maps))}, {**attention_spoilers(), "dout": dout}
    yield turbogr.ops.sampled_softmax, SOFTMAX, softmax_spoilers()
    loss, saved = turbogr.ops.sampled_softmax(**SOFTMAX)
    of_tokens = wrong([*NOT_AN_ARRAY, np.zeros(5), np.zeros(7), np.zeros(0), np.zeros((6, 1)), np.zeros(6, np.float32), np.zeros(12)[::2], np.zeros(6, int)])
    yield turbogr.ops.sampled_softmax_backward, {**SOFTMAX, "dloss": loss, "log_sum_exp": saved}, {
        **softmax_spoilers(), "dloss": of_tokens, "log_sum_exp": of_tokens,
    }  # fmt: skip
    yield turbogr.ops.set_threads, {"threads": 1}, {"threads": count}


# Words that an error may use for an argument: what the argument names is wrong, not the argument.
ALSO = {
    "data": ("column", "input", "user", "item", "no usable row", "turbogr reads", "cannot open"), "user": ("column",), "item": ("column",), "time": ("column", "times"),
    "signals": ("column",), "numbers": ("column",), "labels": ("label", "column"), "features": ("column", "feature"),
    "keep_signal": ("--keep-signal",), "store": ("manifest.json", "store gone"), "config": ("model", "config"), "run": ("run gone", "checkpoint", "path"),
    "q": ("k is [", "v is [", "k has", "v has", "offsets end"), "k": ("k is [",), "v": ("v is [",), "offsets": ("sequences",), "path": ("manifest.json", "store"),
    "users": ("no user '", "not been fitted"), "histories": ("history",), "alpha": ("scale",), "num_prefix": ("prefix",), "num_targets": ("targets",),
    "items": ("positive", "negatives", "query", "width"), "query": ("positive", "items", "tokens"), "positive": ("tokens",), "negatives": ("tokens",),
    "dout": ("dout",), "dloss": ("tokens",), "log_sum_exp": ("tokens",), "context": ("event feature",), "x": ("offsets end",), "query_times": ("query times",), "shard": ("shares", "shards"), "parts": ("part", "path", "store"),
    "interactions": ("data", "column", "input", "user", "item", "no usable row", "cannot open"), "user_table": ("shard",), "item_table": ("shard",), "keep_items_without_events": ("shard",),
    "eval": ("eval.",), "model": ("model.",), "out": ("path",),
}  # fmt: skip


def says(word, message):
    """Whether it is there as a word of its own: "q" is not said by "sequences", nor "at" by "at least"."""
    message = re.sub(r"\bat (least|most|a time)\b", "", message)
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)" if word[-1:].isalnum() else re.escape(word), message) is not None


def try_wrong_calls(cases, calls, seed):
    """Each call is right but for one argument."""
    draw = random.Random(seed)
    silent, unnamed = [], []
    for _ in range(calls):
        call, right, spoilers = draw.choice(cases)
        argument = draw.choice(sorted(spoilers))
        value = spoilers[argument](draw)
        what = f"{getattr(call, '__qualname__', type(call).__name__)}({argument}={turbogr._data.arguments.shown(value)})"
        try:
            call(**{**right, argument: value})
        except (turbogr.Error, TypeError, ValueError, OverflowError) as error:
            # The engine's options have the same names, spelt as the program has them.
            if not any(says(word, str(error)) for word in (argument, argument.replace("_", "-"), *ALSO.get(argument, ()))):
                unnamed.append(f"{what}: {type(error).__name__}: {error}")
        except Exception as error:
            unnamed.append(f"{what}: {type(error).__name__}, which is none of the errors that are promised: {error}")
        else:
            silent.append(what)
    assert not unnamed, f"{len(unnamed)} errors without a name:\n" + "\n".join(sorted(set(unnamed))[:20])
    assert not silent, f"{len(silent)} calls were taken:\n" + "\n".join(sorted(set(silent))[:20])


def test_wrong_calls(columns, store, model, run, ranker, tmp_path):
    rows = zip(*(columns[name].tolist() for name in ("user_id", "item_id", "timestamp")))
    text = "user_id,item_id,timestamp\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows)
    for name in ("log.csv", "more.csv"):
        (tmp_path / name).write_text(text)
    before = {str(path) for path in tmp_path.iterdir()}
    try_wrong_calls(list(targets(columns, store, model, run, ranker, tmp_path)), 8000, 20261116)
    assert {str(path) for path in tmp_path.iterdir()} == before
    assert model.recommend([1003], k=3).rows == 3
    assert ranker.rank(7, [1, 2]).rows == 2


def targets_of_torch(torch):
    """Tensors as PyTorch can have them, and what is none."""
    import turbogr.torch

    tensor = lambda value: torch.as_tensor(value) if isinstance(value, np.ndarray) and value.dtype.kind in "fiu" and value.dtype.isnative else value
    spoilt = lambda spoil: lambda draw: tensor(spoil(draw))
    no_matrix = [
        None, "x", 3, [[1.0]], Hostile(), np.zeros((6, 4)), torch.zeros(6, 4, dtype=torch.complex64), torch.zeros(6, 4, dtype=torch.bool),
        torch.zeros(6, 4, dtype=torch.int8), torch.zeros(6, 4, dtype=torch.float16), torch.zeros(6, 4, dtype=torch.float64).to_sparse(), torch.zeros(4, 6).T,
        torch.zeros(6, 4, dtype=torch.float64, device="meta"), torch.zeros(1, 4, dtype=torch.float64).expand(6, 4), torch.tensor(1.0),
        torch.zeros(5, 4, dtype=torch.float64), torch.zeros(6, 4, dtype=torch.float32), torch.nested.nested_tensor([torch.zeros(6, 4)]),
    ]  # fmt: skip
    right = {name: torch.as_tensor(value) for name, value in ATTENTION.items()}
    for attention in (turbogr.torch.hstu_attention, turbogr.torch.fuxi_attention):
        spoilers = {name: spoilt(spoil) for name, spoil in attention_spoilers().items()}
        yield attention, right, {**spoilers, **{name: wrong(no_matrix) for name in "qkv"}, "offsets": wrong([
            None, "x", [0, 6], np.array([0, 6]), torch.tensor([0, 5]), torch.tensor([0.0, 6.0]), torch.tensor([0, 6], dtype=torch.int32),
            torch.tensor([[0, 6]]), torch.tensor([0, 7, 6]), torch.tensor([]), torch.tensor([0, 0, 6, 6])[::2], torch.tensor([0, 2, 6]).to("meta"),
        ])}  # fmt: skip
    right = {name: torch.as_tensor(value) for name, value in SOFTMAX.items()}
    no_rows = [
        None, "x", [0] * 6, Hostile(), np.zeros(6, int), torch.zeros(6), torch.full((6,), -1), torch.full((6,), 5), torch.full((6,), 2**40),
        torch.zeros(6, dtype=torch.bool), torch.zeros(6, dtype=torch.complex64), torch.zeros(6, 2, 2, dtype=torch.int32), torch.tensor(1),
        torch.zeros(6, dtype=torch.int64, device="meta"), torch.zeros(6, dtype=torch.int64).to_sparse(),
    ]  # fmt: skip
    yield turbogr.torch.sampled_softmax, right, {
        **{name: spoilt(spoil) for name, spoil in softmax_spoilers().items()}, "query": wrong(no_matrix), "positive": wrong(no_rows),
        "negatives": wrong(no_rows),
    }  # fmt: skip
    size = wrong([*[n for n in NOT_A_NUMBER if n is not None], 0, -1, 2**70])
    yield turbogr.torch.HSTUBlock, {"width": 8}, {
        "width": size, "heads": wrong([*NOT_A_NUMBER, 0, -1, 3, 16]), "query_width": size, "value_width": size, "max_length": size,
        "dropout": wrong(["x", None, -0.1, 1, 7.0, float("nan")]), "alpha": wrong(["x", None, float("nan"), []]),
        "norm_length": wrong(["x", 0, -1.0, float("inf"), []]), "position_bias": wrong(NOT_A_FLAG), "time_bias": wrong(NOT_A_FLAG),
        "eps": wrong(["x", None, 0.0, -1.0]),
    }  # fmt: skip
    block = turbogr.torch.HSTUBlock(4, time_bias=True).double()
    no_times = [None, "x", 3, [1.5] * 6, torch.zeros(6), torch.zeros(5, dtype=torch.int64), torch.zeros(6, 1, dtype=torch.int64), torch.zeros(6, dtype=torch.int32)]
    yield block, {"x": torch.zeros(6, 4, dtype=torch.float64), "offsets": torch.tensor([0, 2, 6]), "times": torch.arange(6)}, {
        "x": wrong([None, "x", 3, np.zeros((6, 4)), torch.zeros(4).double(), torch.zeros(6, 5).double(), torch.zeros(2, 6, 4).double(), torch.zeros(5, 4).double()]),
        "offsets": wrong([None, "x", [0, 6], np.array([0, 6]), torch.tensor([0, 5]), torch.tensor([0.0, 6.0]), torch.tensor([[0, 6]])]),
        "times": wrong(no_times), "query_times": wrong(no_times[1:]),
    }  # fmt: skip


def test_wrong_calls_of_torch():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    try_wrong_calls(list(targets_of_torch(torch)), 2000, 20261118)
