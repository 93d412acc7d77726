"""Models: lists, vectors and figures are the program's."""

import csv
import multiprocessing
import os
import pickle
import subprocess
import threading

import numpy as np
import pytest

import turbogr

PROGRAM = os.environ.get("TGR_PROGRAM", "turbogr")


def test_lists_are_those_of_the_program(model, run, tmp_path):
    subprocess.run(
        [PROGRAM, "recommend", "--checkpoint", run, "--all", "--k", "5", "--out", tmp_path / "lists.csv"],
        check=True, capture_output=True,
    )
    with open(tmp_path / "lists.csv") as lines:
        theirs = [(int(r["user"]), int(r["place"]), int(r["item"]), float(r["score"])) for r in csv.DictReader(lines)]
    ours = model.recommend(k=5)
    assert [row[:3] for row in theirs] == list(zip(ours["user"].tolist(), ours["rank"].tolist(), ours["item"].tolist()))
    assert ours["score"].tolist() == pytest.approx([row[3] for row in theirs], abs=1e-6)


def test_users_in_the_order_asked_for(model):
    table = model.recommend([1007, 1003, 1007], k=2)
    assert table["user"].tolist() == [1007, 1007, 1003, 1003, 1007, 1007]
    assert table["rank"].tolist() == [1, 2] * 3
    assert table.rows == 6 and list(table) == ["user", "item", "score", "rank"]
    assert model.recommend(1007, k=2)["item"].tolist() == table["item"].tolist()[:2]


def test_unknown_users_are_skipped_or_refused(model, caplog):
    table = model.recommend([1, 1003, "nobody"], k=1)
    assert table["user"].tolist() == [1003]
    assert "2 of 3 users skipped" in caplog.text
    with pytest.raises(turbogr.Error, match="no user '1'"):
        model.recommend([1, 1003], unknown="error")


def test_only_and_exclude(model):
    items = model.store.item_ids()
    chosen = items[5:12]
    only = model.recommend([1003], k=100, only=chosen, seen="keep", untrained_items=True)
    assert sorted(only["item"].tolist()) == chosen.tolist()
    best = only["item"][0]
    without = model.recommend([1003], k=100, only=chosen, exclude=[best], seen="keep", untrained_items=True)
    assert without["item"].tolist() == only["item"].tolist()[1:]
    everything = model.recommend([1003], k=10**6, seen="keep", untrained_items=True)
    assert everything.rows == len(items)


def test_seen_items_are_dropped_or_kept(model, columns):
    met = set(columns["item_id"][columns["user_id"] == 1003].tolist())
    assert not met & set(model.recommend([1003], k=100, seen="drop")["item"].tolist())
    assert met & set(model.recommend([1003], k=100, seen="keep")["item"].tolist())


def history_of(columns, user):
    rows = columns["user_id"] == user
    order = np.argsort(columns["timestamp"][rows], kind="stable")
    return list(zip(columns["item_id"][rows][order].tolist(), columns["timestamp"][rows][order].tolist()))


def test_a_history_by_hand_is_a_user_of_the_store(model, columns):
    given = model.recommend_for([history_of(columns, 1003), history_of(columns, 1010)], k=4)
    stored = model.recommend([1003, 1010], k=4)
    assert given["history"].tolist() == [0] * 4 + [1] * 4
    assert given["item"].tolist() == stored["item"].tolist()
    assert given["score"].tolist() == stored["score"].tolist()


def test_histories_of_unknown_items(model, caplog):
    table = model.recommend_for([["new"], [510, "new", 511]], k=3)
    assert table["history"].tolist() == [1, 1, 1]
    assert "2 items of histories skipped" in caplog.text
    with pytest.raises(turbogr.Error, match=r"histories\[0\]\[0\]: no item 'new'"):
        model.recommend_for([["new"]], unknown="error")
    with pytest.raises(turbogr.Error, match="none of the 1 histories"):
        model.recommend_for([["new"]])


def test_vectors_order_items_as_recommend_does(model, columns):
    users, items = model.user_vectors([1003, 1010]), model.item_vectors()
    assert users.shape == (2, 16) and items.shape == (model.store.items, 16)
    assert users.dtype == items.dtype == np.float32
    assert np.linalg.norm(users, axis=1) == pytest.approx([1, 1], abs=1e-5)
    table = model.recommend([1003], k=5, seen="keep", untrained_items=True)
    order = np.argsort(-(items @ users[0]), kind="stable")[:5]
    assert model.store.item_ids()[order].tolist() == table["item"].tolist()
    assert model.user_vectors().shape == (60, 16)
    assert model.vectors_for([history_of(columns, 1003)])[0].tolist() == users[0].tolist()


def test_candidates_of_one_call_do_not_stay(model):
    before = model.item_vectors()
    model.recommend([1003], k=1, only=model.store.item_ids()[:3], seen="keep", untrained_items=True)
    assert (model.item_vectors() == before).all()


def test_figures_are_those_of_the_program(model, run, tmp_path):
    import json

    subprocess.run(
        [PROGRAM, "eval", "--checkpoint", run, "--at", "5,10", "--json", tmp_path / "figures.json"],
        check=True, capture_output=True,
    )
    theirs = {(row["split"], row["ranking"]): row for row in json.loads((tmp_path / "figures.json").read_text())}
    for split in ("validation", "test"):
        for popularity in (False, True):
            ours = model.evaluate(split, at=[5, 10], popularity=popularity)
            row = theirs[split, "popularity" if popularity else "model"]
            assert ours == {name: row[name] for name in ours}


def test_pickles_by_path(model):
    again = pickle.loads(pickle.dumps(model))
    assert again.recommend([1003], k=3)["item"].tolist() == model.recommend([1003], k=3)["item"].tolist()
    assert pickle.loads(pickle.dumps(model.store)).events == model.store.events


def test_threads_take_turns(model):
    expected = model.recommend([1003, 1010], k=5)["score"].tolist()
    results = []

    def ask():
        for _ in range(5):
            results.append(model.recommend([1003, 1010], k=5)["score"].tolist())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 20


def _in_child(model, pipe):
    try:
        model.recommend([1003])
        pipe.send("no error")
    except turbogr.Error as error:
        pipe.send(str(error))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told_to_load_again(model):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_in_child, args=(model, theirs))
    child.start()
    assert ours.poll(60), "the child hangs"
    assert "load it again" in ours.recv()
    child.join(10)


def test_tables_reach_every_library(model):
    pd = pytest.importorskip("pandas")
    table = model.recommend([1003, 1010], k=3)
    assert isinstance(table.to_pandas(), pd.DataFrame) and len(table.to_pandas()) == 6
    pytest.importorskip("pyarrow")
    assert table.to_arrow().column("score").to_pylist() == table["score"].tolist()
    assert pytest.importorskip("polars").DataFrame(table)["item"].to_list() == table["item"].tolist()


def test_a_run_that_is_not_there_is_named(tmp_path):
    with pytest.raises(turbogr.Error, match="no checkpoint at .*gone"):
        turbogr.load(tmp_path / "gone")


def test_exported_files_are_the_vectors(model, run, tmp_path):
    subprocess.run([PROGRAM, "export", "--checkpoint", run, "--out", tmp_path / "v.npy"], check=True, capture_output=True)
    assert np.array_equal(np.load(tmp_path / "v.items.npy"), model.item_vectors())
    assert np.array_equal(np.load(tmp_path / "v.users.npy"), model.user_vectors())
    assert np.array_equal(np.load(tmp_path / "v.item_ids.npy"), model.store.item_ids())
    assert np.array_equal(np.load(tmp_path / "v.user_ids.npy"), model.store.user_ids())
    assert set(np.load(tmp_path / "v.items_trained.npy").tolist()) <= {0, 1}
    ended = subprocess.run([PROGRAM, "export", "--checkpoint", run, "--out", tmp_path / "v.txt"], capture_output=True, text=True)
    assert ended.returncode == 1 and ".safetensors, .npy or .parquet" in ended.stderr
