"""Training from Python: the program's bits, callbacks, Ctrl-C, errors."""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import turbogr

PROGRAM = os.environ.get("TGR_PROGRAM", "turbogr")
ROOT = pathlib.Path(__file__).parents[2]


def checkpoints(folder):
    """The tensors of every checkpoint of a run, file by file."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(pathlib.Path(folder).glob("checkpoints/step-*/*.safetensors"))
    }


def test_run_has_the_bits_of_the_program(run, store, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text((pathlib.Path(run) / "config.toml").read_text())
    theirs = tmp_path / "theirs"
    subprocess.run([PROGRAM, "train", config, f"--run.dir={theirs}"], check=True, capture_output=True)
    ours = checkpoints(run)
    assert len(ours) >= 3
    assert ours == checkpoints(theirs)
    same = ("step", "epoch", "split", "loss", "hr@5", "ndcg@10", "mrr")
    figures = [
        [{name: record[name] for name in same if name in record} for record in turbogr.Run(folder).records()]
        for folder in (run, theirs)
    ]
    assert figures[0] == figures[1]


def test_the_published_recipe_has_the_bits_of_the_program(tmp_path):
    """configs/ml1m-hstu.toml as it is, on a world like MovieLens-1M that is small enough for a test."""
    world = ["data", "synth", "--like", "movielens", "--users", "300", "--items", "500", "--mean-length", "40", "--out", tmp_path / "store"]
    subprocess.run([PROGRAM, *map(os.fspath, world)], check=True, capture_output=True)
    config = ROOT / "configs/ml1m-hstu.toml"
    steps = {"train.steps": 6, "train.epochs": 0, "train.threads": 2, "eval.every": 0, "checkpoint.every_epochs": 0}
    run = turbogr.train(config, tmp_path / "store", progress=False, **steps, **{"run.dir": tmp_path / "ours"})
    options = [f"--{name}={value}" for name, value in steps.items()]
    theirs = [f"--data.store={tmp_path / 'store'}", f"--run.dir={tmp_path / 'theirs'}"]
    subprocess.run([PROGRAM, "train", config, *options, *theirs], check=True, capture_output=True)

    def hashes(folder):
        return {name: hashlib.sha256(content).hexdigest() for name, content in checkpoints(folder).items()}

    assert hashes(run) and hashes(run) == hashes(tmp_path / "theirs")


def test_a_file_and_a_dictionary_are_the_same_config(store, small, tmp_path):
    text = turbogr.config_text(small, store, run={"dir": "x"})
    (tmp_path / "small.toml").write_text(text)
    assert turbogr.config_text(tmp_path / "small.toml") == text
    assert turbogr.config_text(small, store, **{"run.dir": "x", "train": {"epochs": 9}}) == text.replace(
        "epochs = 4", "epochs = 9"
    )


def test_a_store_alone_is_enough(store):
    assert "layers" in turbogr.config_text(store=store)


def test_callbacks_hear_every_record(store, small, tmp_path):
    heard = []
    run = turbogr.train(small, store, callbacks=heard.append, progress=False, run={"dir": tmp_path / "run"})
    assert run.end == "finished"
    records = run.records()
    assert [(r["step"], r.get("split")) for r in heard] == [(r["step"], r.get("split")) for r in records]
    assert [r["loss"] for r in heard if "split" not in r] == pytest.approx([r["loss"] for r in records if "split" not in r])
    assert {r.get("split") for r in heard} == {None, "validation", "test"}
    table = run.metrics("validation")
    assert table["ndcg@10"].tolist() == pytest.approx([r["ndcg@10"] for r in records if r.get("split") == "validation"])


def test_a_callback_stops_the_run_after_a_checkpoint(store, small, tmp_path):
    run = turbogr.train(
        small, store, callbacks=lambda record: record["step"] >= 4, progress=False, run={"dir": tmp_path / "run"}
    )
    assert run.end == "stopped"
    steps = run.records()[-1]["step"]
    assert 4 <= steps < 8 and turbogr.load(run).step == steps
    resumed = turbogr.train(
        small, store, progress=False, run={"dir": tmp_path / "run", "resume": True}
    )
    assert resumed.end == "finished"


def test_a_stopped_and_resumed_run_equals_one_that_went_through(run, store, small, tmp_path):
    settings = {"progress": False, "run": {"dir": tmp_path / "run"}}
    turbogr.train(small, store, callbacks=lambda record: record["step"] >= 6, **settings)
    settings["run"]["resume"] = True
    turbogr.train(small, store, **settings)
    last = sorted(checkpoints(run))[-1].split(os.sep)[1]
    ours = {name: data for name, data in checkpoints(run).items() if last in name}
    assert ours == {name: data for name, data in checkpoints(tmp_path / "run").items() if last in name}


def test_early_stopping(store, small, tmp_path):
    class Worse(turbogr.EarlyStopping):
        def __call__(self, record):
            if record.get("split") == "validation":
                record["ndcg@10"] = -float(record["step"])
            return super().__call__(record)

    settings = dict(small, train={**small["train"], "epochs": 50}, eval={**small["eval"], "every": 1})
    run = turbogr.train(
        settings, store, callbacks=Worse(patience=2), progress=False, run={"dir": tmp_path / "run"}
    )
    assert run.end == "stopped"
    evaluations = [record for record in run.records() if record.get("split") == "validation"]
    assert len(evaluations) == 3


def test_an_error_in_a_callback_comes_back_after_a_checkpoint(store, small, tmp_path):
    def fails(record):
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        turbogr.train(small, store, callbacks=[fails], progress=False, run={"dir": tmp_path / "run"})
    assert turbogr.load(tmp_path / "run").step >= 1


def test_ctrl_c_saves_and_returns(store, small, tmp_path):
    script = textwrap.dedent(
        """
        import json, os, signal, sys
        import turbogr
        small = json.loads(sys.argv[1])
        before = signal.getsignal(signal.SIGINT)
        def press(record):
            if record["step"] == 6:
                os.kill(os.getpid(), signal.SIGINT)
        run = turbogr.train(small, sys.argv[2], callbacks=press, progress=False, run={"dir": sys.argv[3]},
                            train={"epochs": 100000})
        assert signal.getsignal(signal.SIGINT) is before
        print(run.end, turbogr.load(run).step)
        """
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, json.dumps(small), store.path, tmp_path / "run"],
        capture_output=True, text=True, timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    end, step = ended.stdout.split()
    assert end == "interrupted" and int(step) >= 6


CUT = """
import faulthandler, json, os, sys, turbogr
small, store, run, handler = json.loads(sys.argv[1]), *sys.argv[2:]
if handler == "faulthandler":
    faulthandler.enable()
def cut(record):
    os.truncate(store + "/items.bin", 0)
turbogr.train(small, store, callbacks=cut, progress=False, run={"dir": run}, train={"epochs": 1000})
"""


@pytest.mark.parametrize("handler", ["none", "faulthandler"])
def test_a_store_that_is_cut_is_named_before_the_signal(handler, columns, small, tmp_path):
    store = turbogr.prepare(columns, tmp_path / "walks")
    ended = subprocess.run(
        [sys.executable, "-c", CUT, json.dumps(small), store.path, tmp_path / "run", handler],
        capture_output=True, text=True, timeout=120,
    )
    assert ended.returncode == -signal.SIGBUS, ended.stderr
    named = "walks/items.bin' was cut short while it was in use" in ended.stderr
    assert named == (handler == "none")
    assert ("Fatal Python error: Bus error" in ended.stderr) == (handler == "faulthandler")


def test_nothing_is_printed_unless_asked_for(store, small, tmp_path, capfd):
    turbogr.train(small, store, progress=False, run={"dir": tmp_path / "quiet"})
    assert capfd.readouterr() == ("", "")
    turbogr.train(small, store, run={"dir": tmp_path / "loud"})
    out, err = capfd.readouterr()
    assert out == "" and "validation after 2.00 epochs" in err and "loss" in err


def test_other_threads_go_on(store, small, tmp_path):
    ticks = []
    done = threading.Event()

    def tick():
        while not done.wait(0.01):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        turbogr.train(small, store, progress=False, run={"dir": tmp_path / "run"}, train={"epochs": 20})
    finally:
        done.set()
        thread.join()
    assert len(ticks) > 5


def test_two_runs_at_once(run, store, small, tmp_path):
    threads = [
        threading.Thread(target=turbogr.train, args=(small, store), kwargs={"progress": False, "run": {"dir": tmp_path / name}})
        for name in ("a", "b")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert checkpoints(tmp_path / "a") == checkpoints(tmp_path / "b") == checkpoints(run)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"model": {"layer": 2}}, "unknown key 'model.layer'.*model.layers"),
        ({"model.layers": "two"}, "model.layers.*a whole number"),
        ({"model": {"layers": -1}}, "model.layers = -1 is not allowed"),
        ({"run": {"dir": "a\nb\"c"}, "model": {"kind": "lstm"}}, "model.kind"),
    ],
)
def test_wrong_settings_are_refused_in_the_program_s_words(store, small, overrides, words):
    with pytest.raises(turbogr.Error, match=words):
        turbogr.train(small, store, progress=False, **overrides)


def test_a_run_folder_in_use_is_refused(run, store, small):
    with pytest.raises(turbogr.Error, match="run.dir|resume"):
        turbogr.train(small, store, progress=False, run={"dir": run})


def test_the_first_line_has_the_time_of_its_step(store, small, tmp_path):
    lines = []
    turbogr.train(
        small, store, callbacks=[lines.append], progress=False, run={"dir": tmp_path / "run"},
        train={**small["train"], "epochs": 1}, log={"every": 1},
    )  # fmt: skip
    first = next(line for line in lines if "tokens_per_s" in line)
    assert 0 < first["tokens_per_s"] < 1e8  # a window of no time would make it millions of millions
