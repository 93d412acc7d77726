"""The ranking task: scores are the program's."""

import json
import os
import pickle
import subprocess

import pytest

import turbogr

PROGRAM = os.environ.get("TGR_PROGRAM", "turbogr")


def test_a_ranking_run_gives_a_ranker(ranker, model):
    assert isinstance(ranker, turbogr.Ranker) and isinstance(model, turbogr.Model)
    assert ranker.tasks == ["like", "late"]
    assert "Ranker" in repr(ranker)


def test_scores_are_those_of_the_program(ranker, ranking_run, tmp_path):
    requests = [
        {"user": 7, "items": [1, 2, 3, 4], "at": 1_600_050_000, "context": {"tab": 1}},
        {"user": 8, "items": [29, 0]},
    ]
    (tmp_path / "requests.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests))
    done = subprocess.run(
        [PROGRAM, "rank", "--checkpoint", ranking_run, "--requests", tmp_path / "requests.jsonl", "--json", "--by", "late"],
        check=True, capture_output=True, text=True,
    )
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    ours = ranker.rank_all(requests, by="late")
    assert list(ours) == ["request", "user", "item", "like", "late", "rank"]
    assert ours["request"].tolist() == [0] * 4 + [1] * 2
    assert ours["user"].tolist() == [7] * 4 + [8] * 2
    assert ours["rank"].tolist() == [1, 2, 3, 4, 1, 2]
    flat = [
        (int(row["user"]), int(item["item"]), item["scores"]["like"], item["scores"]["late"])
        for row in theirs for item in row["items"]
    ]  # fmt: skip
    assert [row[:2] for row in flat] == list(zip(ours["user"].tolist(), ours["item"].tolist()))
    assert ours["like"].tolist() == pytest.approx([row[2] for row in flat], abs=1e-5)
    assert ours["late"].tolist() == pytest.approx([row[3] for row in flat], abs=1e-5)


def test_one_request(ranker):
    table = ranker.rank(7, [1, 2, 3])
    assert sorted(table["item"].tolist()) == [1, 2, 3]
    assert table["like"].tolist() == sorted(table["like"].tolist(), reverse=True)
    assert ((table["like"] > 0) & (table["like"] < 1)).all()
    again = pickle.loads(pickle.dumps(ranker)).rank(7, [1, 2, 3])
    assert again["like"].tolist() == table["like"].tolist()


def test_unknown_ids(ranker, caplog):
    assert ranker.rank("nobody", [1, 999])["item"].tolist() == [1]
    assert "nobody" in caplog.text and "1 of 2 items skipped" in caplog.text
    with pytest.raises(turbogr.Error, match="999"):
        ranker.rank(7, [1, 999], unknown="error")


def test_figures_are_those_of_the_program(ranker, ranking_run, tmp_path):
    subprocess.run([PROGRAM, "eval", "--checkpoint", ranking_run, "--split", "test", "--json", tmp_path / "eval.json"],
                   check=True, capture_output=True)  # fmt: skip
    theirs = json.loads((tmp_path / "eval.json").read_text())[0]
    ours = ranker.evaluate("test")
    assert ours["like.auc"] == theirs["like.auc"] and ours["ne"] == theirs["ne"]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ({"user": None, "items": [1]}, "user"),
        ({"user": 1.5, "items": [1]}, "user"),
        ({"user": 7, "items": []}, "items"),
        ({"user": 7, "items": 1.5}, "items"),
        ({"user": 7, "items": [1], "at": "noon"}, "at"),
        ({"user": 7, "items": [1], "context": "tab"}, "context"),
        ({"user": 7, "items": [1], "context": {3: 1}}, "context"),
        ({"user": 7, "items": [1], "by": "speed"}, "by"),
        ({"user": 7, "items": [1], "unknown": "maybe"}, "unknown"),
    ],
)
def test_wrong_calls_name_the_argument(ranker, call, named):
    with pytest.raises((TypeError, ValueError), match=named):
        ranker.rank(**call)


def test_wrong_requests_are_named(ranker):
    with pytest.raises(ValueError, match=r"requests\[1\] has no items"):
        ranker.rank_all([{"user": 7, "items": [1]}, {"user": 7}])
    with pytest.raises(ValueError, match="where"):
        ranker.rank_all([{"user": 7, "items": [1], "where": "home"}])
    with pytest.raises(TypeError, match="requests"):
        ranker.rank_all("all")
    with pytest.raises(turbogr.Error, match="shelf"):
        ranker.rank(7, [1], context={"shelf": 1})
