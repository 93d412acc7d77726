"""The estimators."""

import pytest

import turbogr

SETTINGS = {"layers": 1, "width": 16, "heads": 1, "epochs": 2, "batch": 16, "negatives": 16, "max_length": 32}


@pytest.mark.parametrize("kind", [turbogr.HSTU, turbogr.FuXi])
def test_fit_then_recommend(kind, columns):
    estimator = kind(**SETTINGS).fit(columns)
    table = estimator.recommend([1003, 1004], k=3)
    assert table["user"].tolist() == [1003] * 3 + [1004] * 3
    assert estimator.evaluate(at=5).keys() >= {"hr@5", "ndcg@5", "mrr"}
    assert estimator.recommend_for([[510, 511]], k=2).rows == 2
    assert estimator.item_vectors().shape == (estimator.store.items, 16)


def test_settings_reach_the_run(columns, tmp_path):
    estimator = turbogr.HSTU(path=tmp_path / "run", seed=5, model={"alpha": 0.5}, **SETTINGS).fit(columns)
    text = estimator.model.config
    assert "seed = 5" in text and "alpha = 0.5" in text and 'kind = "hstu"' in text
    assert estimator.get_params()["layers"] == 1
    assert turbogr.load(tmp_path / "run").step == estimator.model.step


def test_before_fit_it_says_so():
    with pytest.raises(turbogr.Error, match="not been fitted"):
        turbogr.HSTU().recommend([1])


def test_unknown_settings_are_named():
    with pytest.raises(TypeError, match="'layer'.*layers"):
        turbogr.HSTU(layer=2)
