"""How fast `turbogr.prepare` takes a log of integers: from memory (Arrow), from Parquet and from CSV.

    PYTHONPATH=build/python python bench/prepare_arrow.py RATINGS [EVENTS] [FORM...]

RATINGS is MovieLens-1M's log, its ratings.dat or a CSV of user, item, rating, time in this order; it is repeated, each time with users of
its own, to EVENTS (50 million). Where times are missing, an event's time is its place. FORM is arrow, shuffled (the same in a random order),
parquet or csv. Beside the wall it shows the time of cores, which a busy machine does not
change much. Files are written to the folder for temporary files first, and read twice, so that they come from the system's memory.
"""
import os
import resource
import sys
import tempfile
import time

import numpy as np

import turbogr


def read(path):
    """User, item and time of each event, in the file's order."""
    text = open(path, encoding="latin-1").read().replace("::", ",")
    rows = [line.split(",") for line in text.splitlines() if line[:1].isdigit()]
    return np.array([[int(row[0]), int(row[1]), int(row[3] or -1)] for row in rows])


def repeated(rows, events):
    """A dictionary of columns."""
    times = -(-events // len(rows))
    step = int(rows[:, 0].max()) + 1
    users = np.concatenate([rows[:, 0] + step * i for i in range(times)])[:events]
    when = np.tile(rows[:, 2], times)[:events] if (rows[:, 2] >= 0).all() else np.arange(events)
    return {"user_id": users, "item_id": np.tile(rows[:, 1], times)[:events], "timestamp": when}


def file_of(form, log, folder):
    """The log as a file."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    path = os.path.join(folder, f"log.{form}")
    table = pyarrow.table(log)
    if form == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    os.sync()  # or the store's own fsync would wait for this file, too
    return path


def data_of(form, log, folder):
    """What prepare is given."""
    if form == "shuffled":
        order = np.random.default_rng(0).permutation(len(log["user_id"]))
        return {name: values[order] for name, values in log.items()}
    return log if form == "arrow" else file_of(form, log, folder)


def main():
    """Three rounds, all forms in each, so that a busy neighbour hurts them alike; the best of a form counts."""
    events = int(sys.argv[2]) if len(sys.argv) > 2 else 50_000_000
    forms = sys.argv[3:] or ["arrow", "parquet", "csv", "shuffled"]
    log = repeated(read(sys.argv[1]), events)
    with tempfile.TemporaryDirectory() as folder:
        given = {form: data_of(form, log, folder) for form in forms}
        for form in forms * 3:
            before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            store = turbogr.prepare(given[form], os.path.join(folder, "store"), memory="8GB", overwrite=True)
            wall = time.perf_counter() - begin
            after = resource.getrusage(resource.RUSAGE_SELF)
            cores = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"{form:8} {events / 1e6:.0f} M events  {events / wall / 1e6:5.1f} M/s by the wall  "
                f"{events / cores / 1e6:5.1f} M/s of a core  reading {store.report.parse_seconds:.2f} of {wall:.2f} s",
                flush=True,
            )


main()
