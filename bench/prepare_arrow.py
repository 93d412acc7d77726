"""How fast `turbogr.prepare` takes events that are in memory: PYTHONPATH=build/python python bench/prepare_arrow.py EVENTS

Users of 165 events each over 3,706 items, as many as MovieLens-1M has, in a random order of time. Beside the wall it shows the time of
cores, which a busy machine does not change much.
"""
import resource
import sys
import time

import numpy as np

import turbogr

events = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
random = np.random.default_rng(0)
log = {
    "user_id": np.arange(events) // 165,
    "item_id": random.integers(1, 3953, events),
    "timestamp": 956_703_932 + random.integers(0, 90_000_000, events),
}
for _ in range(3):
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    store = turbogr.prepare(log, memory="16GB")
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    cores = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{events / 1e6:.0f} M events: {events / wall / 1e6:.1f} M/s by the wall, {events / cores / 1e6:.1f} M/s of a core")
