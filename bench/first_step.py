"""How long from `import turbogr` to the first step on MovieLens-1M, and what a run of it gives:

    python bench/first_step.py chrono.csv [EPOCHS]

The ten lines of a user: read the log, prepare, train as configs/ml1m-hstu.toml does, evaluate. Without EPOCHS it stops after the first step.
"""
import os
import sys
import tempfile
import time

begin = time.perf_counter()
import turbogr  # noqa: E402

imported = time.perf_counter()
epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 0
config = os.path.join(os.path.dirname(__file__), "..", "configs", "ml1m-hstu.toml")
steps = []


def on_line(line):
    """Notes when each line of the log came; the first is that of the first step."""
    if "loss" in line:
        steps.append(time.perf_counter())
    return epochs == 0


with tempfile.TemporaryDirectory() as folder:
    store = turbogr.prepare(sys.argv[1])
    prepared = time.perf_counter()
    run = turbogr.train(
        config, store, callbacks=[on_line], progress=False, run={"dir": os.path.join(folder, "run")},
        train={"epochs": epochs or 1}, log={"every": 20 if epochs else 1}, eval={"every": 0},
        checkpoint={"every_epochs": 0},
    )  # fmt: skip
    print(
        f"import {imported - begin:.2f} s, prepare {prepared - imported:.2f} s, to the end of the first "
        f"{'20 steps' if epochs else 'step'} {steps[0] - prepared:.2f} s: {steps[0] - begin:.2f} s in all"
    )
    if epochs:
        print(f"{epochs} epochs in {steps[-1] - prepared:.0f} s;", turbogr.load(run).evaluate(at=10))
