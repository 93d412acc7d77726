"""The README's example on made-up data: what a wheel must do by itself."""

import numpy as np

import turbogr

random = np.random.default_rng(0)
users = np.repeat(np.arange(200), 20)
items = (np.repeat(random.integers(0, 50, 200), 20) + np.tile(np.arange(20), 200)) % 50
store = turbogr.prepare({"user_id": users, "item_id": items, "timestamp": np.tile(np.arange(20), 200)})
run = turbogr.train(store=store, train={"epochs": 8}, run={"dir": "run"}, progress=False)
model = turbogr.load(run)
figures = model.evaluate(at=10)
print(f"hr@10 {figures['hr@10']:.3f}, by popularity {model.evaluate(at=10, popularity=True)['hr@10']:.3f}")
assert figures["hr@10"] > 0.5
assert model.recommend([3], k=5).rows == 5
