"""Parquet by the program, through the library that `make parquet` builds (TGR_PARQUET names it)."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import turbogr

pa = pytest.importorskip("pyarrow")
import pyarrow.compute  # noqa: E402
import pyarrow.csv  # noqa: E402
import pyarrow.dataset  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("TGR_PROGRAM", shutil.which("turbogr") or "turbogr"))
LIBRARY = PROGRAM.parent / "libturbogr_parquet.so"
needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason="no libturbogr_parquet.so; `make parquet` builds it")


def contents(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def program(*words, at=PROGRAM):
    return subprocess.run([at, *map(os.fspath, words)], capture_output=True, text=True)


def prepared(out, *inputs, options=()):
    ended = program("data", "prepare", "--format", "parquet", *inputs, "--out", out, *options)
    assert ended.returncode == 0, ended.stderr
    return contents(out)


@pytest.fixture
def table(columns):
    return pa.table(columns)


@needs_library
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_files_of_every_codec(codec, table, store, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet", compression=codec, row_group_size=77)
    assert prepared(tmp_path / "s", tmp_path / "log.parquet") == contents(store)


@needs_library
@pytest.mark.parametrize("settings", [
    {"use_dictionary": True}, {"use_dictionary": False, "column_encoding": "DELTA_BINARY_PACKED"},
    {"use_dictionary": False, "column_encoding": "BYTE_STREAM_SPLIT"}, {"data_page_version": "2.0"}, {"version": "1.0"},
])  # fmt: skip
def test_files_of_every_encoding(settings, table, store, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet", **settings)
    assert prepared(tmp_path / "s", tmp_path / "log.parquet") == contents(store)


@needs_library
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "RLE_DICTIONARY"])
def test_strings_of_every_encoding(encoding, table, tmp_path):
    names = [pa.array([f"{name[0]}-{value:05}" for value in table[name].to_pylist()]) for name in ("user_id", "item_id")]
    texts = pa.table({"user_id": names[0], "item_id": names[1], "timestamp": table["timestamp"]})
    wanted = contents(turbogr.prepare(texts))
    assert "item_id_text.bin" in wanted
    by_column = {"use_dictionary": True} if encoding == "RLE_DICTIONARY" else {
        "use_dictionary": False, "column_encoding": {"user_id": encoding, "item_id": encoding},
    }  # fmt: skip
    file = tmp_path / "log.parquet"
    pq.write_table(texts, file, **by_column)
    assert encoding in pq.ParquetFile(file).metadata.row_group(0).column(1).encodings
    assert prepared(tmp_path / "s", file) == wanted
    assert contents(turbogr.prepare(file)) == wanted


TIMES = {
    "s": {"type": pa.timestamp("s")}, "ms": {"type": pa.timestamp("ms")}, "us": {"type": pa.timestamp("us")},
    "ns": {"type": pa.timestamp("ns")}, "ms in UTC": {"type": pa.timestamp("ms", "UTC")},
    "us in Berlin": {"type": pa.timestamp("us", "Europe/Berlin")}, "ns east of Greenwich": {"type": pa.timestamp("ns", "+05:30")},
    "INT96": {"type": pa.timestamp("ns"), "use_deprecated_int96_timestamps": True},
}  # fmt: skip


@needs_library
@pytest.mark.parametrize("form", TIMES)
def test_times_of_every_unit_and_zone(form, table, store, tmp_path):
    settings = dict(TIMES[form])
    when = table["timestamp"].cast(pa.timestamp("s")).cast(settings.pop("type"))
    file = tmp_path / "log.parquet"
    pq.write_table(table.set_column(2, "timestamp", when), file, **settings)
    physical = pq.ParquetFile(file).metadata.schema.column(2).physical_type
    assert physical == ("INT96" if form == "INT96" else "INT64")
    assert prepared(tmp_path / "s", file) == contents(store)
    assert contents(turbogr.prepare(file)) == contents(store)


@needs_library
def test_lists_of_lists_are_left_alone_or_refused(table, store, tmp_path):
    nested = pa.array([[[1, 2], [i]] for i in range(table.num_rows)])
    pq.write_table(table.append_column("path", nested), tmp_path / "log.parquet")
    assert prepared(tmp_path / "s", tmp_path / "log.parquet") == contents(store)
    assert contents(turbogr.prepare(tmp_path / "log.parquet")) == contents(store)
    words = "column 'path' holds lists of lists; one level is what can be read"
    options = ["--event-features", "path"]
    ended = program("data", "prepare", "--format", "parquet", tmp_path / "log.parquet", "--out", tmp_path / "t", *options)
    assert ended.returncode == 1 and words in ended.stderr, ended.stderr
    with pytest.raises(turbogr.Error, match=words):
        turbogr.prepare(tmp_path / "log.parquet", features="path")
    flat = pa.array([[i] for i in range(table.num_rows)])
    pq.write_table(table.append_column("tags", flat), tmp_path / "log.parquet")
    with pytest.raises(turbogr.Error, match="column 'tags' holds lists, and the item column does not"):
        turbogr.prepare(tmp_path / "log.parquet", numbers="tags")


PEAK = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10)
"""


def peak_bytes(*command):
    """What a process of its own had in memory at most."""
    ended = subprocess.run([sys.executable, "-c", PEAK, *map(os.fspath, command)], capture_output=True, text=True, check=True)
    code, peak = map(int, ended.stdout.split())
    assert code == 0, ended.stderr
    return peak


@needs_library
@pytest.mark.parametrize("lengths", ["equal", "sorted"])
@pytest.mark.parametrize("door", ["program", "python"])
def test_memory_is_bounded_however_long_the_lists_are(door, lengths, tmp_path):
    """A row group of 160 MB, in 1,000 rows: a batch of 65,536 of them would be all of it. Where 50,000 short rows lie before
    them, the mean of all is a fiftieth of the long ones."""
    counts = np.repeat([1, 10_000], [50_000 if lengths == "sorted" else 0, 1000])
    ends = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    items = np.arange(counts.sum()) * 7919 % 1000
    long = pa.table({
        "user_id": np.arange(len(counts)), "item_id": pa.ListArray.from_arrays(ends, pa.array(items)),
        "timestamp": pa.ListArray.from_arrays(ends, pa.array(np.arange(counts.sum()))),
    })  # fmt: skip
    assert long.nbytes > 160_000_000
    peaks = {}
    for name, rows in (("long", long), ("short", long.slice(0, 2))):
        pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=len(long))
        command = {
            "program": [PROGRAM, "data", "prepare", "--format", "parquet", tmp_path / f"{name}.parquet", "--memory", "64MB"],
            "python": [sys.executable, "-c", "import sys, turbogr; turbogr.prepare(sys.argv[1], sys.argv[3], memory='64MB')",
                       tmp_path / f"{name}.parquet"],
        }[door]  # fmt: skip
        peaks[name] = peak_bytes(*command, "--out", tmp_path / f"{name}.store")
    assert turbogr.Store(tmp_path / "long.store").events == counts.sum()
    # The first batch of long rows is as many as their mean lets it be.
    assert peaks["long"] - peaks["short"] < (128 if lengths == "equal" else 224) << 20


@needs_library
def test_folders_partitions_and_columns_nobody_asked_for(table, store, tmp_path):
    wide = table.append_column("payload", pa.array([{"a": 1}] * table.num_rows))
    half = table.num_rows // 2
    (tmp_path / "parts").mkdir()
    pq.write_table(wide.slice(0, half), tmp_path / "parts" / "a.parquet")
    pq.write_table(wide.slice(half), tmp_path / "parts" / "b.parquet")
    assert prepared(tmp_path / "s", tmp_path / "parts") == contents(store)
    assert prepared(tmp_path / "t", tmp_path / "parts" / "a.parquet", tmp_path / "parts" / "b.parquet") == contents(store)
    day = pa.array(["2022-04-0" + str(1 + i % 3) for i in range(table.num_rows)])
    pa.dataset.write_dataset(
        table.append_column("day", day), tmp_path / "hive", format="parquet",
        partitioning=pa.dataset.partitioning(pa.schema([("day", pa.string())]), flavor="hive"),
    )  # fmt: skip
    files = prepared(tmp_path / "u", tmp_path / "hive", options=["--event-features", "day:category"])
    assert b"2022-04-032022" not in files["event_feature_text_day.bin"]
    assert b"2022-04-01" in files["event_feature_text_day.bin"]


@needs_library
def test_partitions_without_a_value_are_missing_ones(table, tmp_path):
    day = pa.array([None if i % 3 == 0 else f"2022-04-0{i % 3}" for i in range(table.num_rows)])
    pa.dataset.write_dataset(
        table.append_column("day", day), tmp_path / "hive", format="parquet",
        partitioning=pa.dataset.partitioning(pa.schema([("day", pa.string())]), flavor="hive"),
    )  # fmt: skip
    wanted = contents(turbogr.prepare(table.append_column("day", day), features="day:category"))
    assert contents(turbogr.prepare(tmp_path / "hive", features="day:category")) == wanted
    assert prepared(tmp_path / "s", tmp_path / "hive", options=["--event-features", "day:category"]) == wanted


@needs_library
def test_differences_between_files(table, store, tmp_path):
    half = table.num_rows // 2
    narrow = table.slice(half).cast(pa.schema([("user_id", pa.int32()), ("item_id", pa.uint16()), ("timestamp", pa.int64())]))
    empty = table.slice(0, 0)
    (tmp_path / "parts").mkdir()
    files = [tmp_path / "parts" / name for name in ("a.parquet", "b.parquet", "c.parquet")]
    pq.write_table(table.slice(0, half).select(["timestamp", "user_id", "item_id"]), files[0])
    pq.write_table(empty, files[1])
    pq.write_table(narrow, files[2])
    assert prepared(tmp_path / "s", tmp_path / "parts") == contents(store)
    assert prepared(tmp_path / "t", *files) == contents(store)
    assert contents(turbogr.prepare(tmp_path / "parts")) == contents(store)
    assert contents(turbogr.prepare(files)) == contents(store)
    assert contents(turbogr.prepare(files[::-1])) == contents(store)  # 32 bits first, and 64 that fit


@needs_library
def test_a_column_that_a_file_has_not_is_missing_there(table, tmp_path):
    half = table.num_rows // 2
    like = pa.array([i % 2 for i in range(table.num_rows)])
    known = table.append_column("like", like)
    wanted = contents(turbogr.prepare(known.set_column(3, "like", pa.array([i % 2 if i < half else None for i in range(len(like))]))))
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(known.slice(0, half), files[0])
    pq.write_table(table.slice(half), files[1])
    assert prepared(tmp_path / "s", *files) == wanted
    assert contents(turbogr.prepare(files)) == wanted
    assert any(wanted["signals.bin"])


@needs_library
def test_a_value_that_does_not_fit_the_first_files_type_is_named(table, tmp_path):
    types = pa.schema([("user_id", pa.int32()), ("item_id", pa.int32()), ("timestamp", pa.int64())])
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(table.cast(types), files[0])
    pq.write_table(table.set_column(0, "user_id", pa.array([2**40] * table.num_rows)), files[1])
    ended = program("data", "prepare", "--format", "parquet", *files, "--out", tmp_path / "s")
    assert ended.returncode == 1 and re.search("b.parquet': column 'user_id': .*1099511627776", ended.stderr), ended.stderr
    with pytest.raises(turbogr.Error, match="^'[^']*b.parquet': column 'user_id': .*1099511627776[^\n]*$"):
        turbogr.prepare(files)


@needs_library
def test_shards_make_the_store_of_one_process(table, store, tmp_path):
    (tmp_path / "parts").mkdir()
    cuts = [0, 50, 51, 300, table.num_rows]
    files = [tmp_path / "parts" / f"{i}.parquet" for i in range(4)]
    for file, begin, end in zip(files, cuts, cuts[1:]):
        pq.write_table(table.slice(begin, end - begin), file)
    parts = [tmp_path / f"part{i}" for i in range(3)]
    for i, part in enumerate(parts):
        prepared(part, *files, options=["--shard", f"{i + 1}/3"])
    ended = program("data", "merge", *parts, "--out", tmp_path / "s")
    assert ended.returncode == 0, ended.stderr
    assert contents(tmp_path / "s") == contents(store)


@needs_library
def test_row_groups_without_rows(table, store, tmp_path):
    with pq.ParquetWriter(tmp_path / "log.parquet", table.schema) as writer:
        for begin, end in ((0, 0), (0, 100), (100, 100), (100, table.num_rows), (0, 0)):
            writer.write_table(table.slice(begin, end - begin))
    groups = pq.ParquetFile(tmp_path / "log.parquet").metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [0, 100, 0, table.num_rows - 100, 0]
    assert prepared(tmp_path / "s", tmp_path / "log.parquet") == contents(store)
    with pq.ParquetWriter(tmp_path / "nothing.parquet", table.schema) as writer:
        writer.write_table(table.slice(0, 0))
    ended = program("data", "prepare", "--format", "parquet", tmp_path / "nothing.parquet", "--out", tmp_path / "t")
    assert ended.returncode == 1 and "no usable row" in ended.stderr


@needs_library
def test_yambda_flat_and_sequential(tmp_path):
    random = np.random.default_rng(1)
    n = 400
    uid = np.sort(random.integers(1, 20, n)).astype(np.uint32)
    time = (5 * np.arange(n)).astype(np.uint32)
    listens = random.random(n) < 0.8
    flat = pa.table({
        "uid": uid, "timestamp": time, "item_id": random.integers(1, 50, n).astype(np.uint32),
        "is_organic": random.integers(0, 2, n).astype(np.uint8),
        "played_ratio_pct": pa.array(random.integers(0, 101, n), pa.uint16(), mask=~listens),
        "track_length_seconds": pa.array(random.integers(5, 300, n), pa.uint32(), mask=~listens),
        "event_type": pa.array(np.where(listens, "listen", "like")).dictionary_encode(),
    })  # fmt: skip
    pq.write_table(flat, tmp_path / "flat.parquet", compression="lz4")
    options = ["--number-columns", "played_ratio_pct,track_length_seconds"]
    files = prepared(tmp_path / "flat", tmp_path / "flat.parquet", options=options)
    opened = turbogr.Store(tmp_path / "flat")
    assert (opened.events, opened.time_unit, opened.signals) == (n, "s", ["is_organic"])
    frame = flat.to_pandas()
    lists = {"uid": [], "item_ids": [], "timestamps": [], "is_organic": [], "played_ratio_pct": [], "track_length_seconds": []}
    for user, rows in frame.groupby("uid"):
        lists["uid"].append(user)
        for name, column in (("item_ids", "item_id"), ("timestamps", "timestamp"), ("is_organic", "is_organic"),
                             ("played_ratio_pct", "played_ratio_pct"), ("track_length_seconds", "track_length_seconds")):
            lists[name].append([None if value != value else int(value) for value in rows[column]])
    types = {"uid": pa.uint32(), "item_ids": pa.list_(pa.uint32()), "timestamps": pa.list_(pa.uint32()),
             "is_organic": pa.list_(pa.uint8()), "played_ratio_pct": pa.list_(pa.uint16()), "track_length_seconds": pa.list_(pa.uint32())}
    pq.write_table(pa.table({name: pa.array(lists[name], types[name]) for name in lists}), tmp_path / "sequential.parquet")
    assert prepared(tmp_path / "sequential", tmp_path / "sequential.parquet", options=options) == files


@needs_library
def test_lists_of_recommendations(run, model, tmp_path):
    ended = program("recommend", "--checkpoint", run, "--all", "--k", "3", "--out", tmp_path / "lists.parquet")
    assert ended.returncode == 0, ended.stderr
    table = pq.read_table(tmp_path / "lists.parquet")
    assert [str(field.type) for field in table.schema] == ["int64", "int64", "int64", "float"]
    ours = model.recommend(k=3)
    assert table.column("user").to_pylist() == ours["user"].tolist()
    assert table.column("item").to_pylist() == ours["item"].tolist()
    assert table.column("score").to_pylist() == ours["score"].tolist()


@needs_library
def test_ids_that_are_no_utf8_are_not_others_in_lists(columns, small, tmp_path):
    named = {**columns, "item_id": np.array([b"caf\xe9 %d" % item for item in columns["item_id"]], object)}
    store = turbogr.prepare(named, tmp_path / "store")
    run = turbogr.train(small, store, run={"dir": tmp_path / "run"}, train={"epochs": 1}, progress=False)
    for name in ("lists.parquet", "lists.jsonl"):
        ended = program("recommend", "--checkpoint", run, "--all", "--k", "3", "--out", tmp_path / name)
        assert ended.returncode == 1 and re.search(r"the id 'caf\\xe9 \d+' is no UTF-8", ended.stderr), ended.stderr
        assert not (tmp_path / name).exists()
    assert program("recommend", "--checkpoint", run, "--all", "--k", "3", "--out", tmp_path / "lists.csv").returncode == 0
    assert (tmp_path / "lists.csv").read_bytes().count(b",caf\xe9 ") == 180


@needs_library
def test_vectors_become_tables(model, run, tmp_path):
    ended = program("export", "--checkpoint", run, "--out", tmp_path / "v.parquet")
    assert ended.returncode == 0, ended.stderr
    items = pq.read_table(tmp_path / "v.items.parquet")
    assert items.column_names == ["item", "vector", "trained"]
    assert items.column("item").to_pylist() == model.store.item_ids().tolist()
    assert items.column("vector").to_pylist() == model.item_vectors().tolist()
    users = pq.read_table(tmp_path / "v.users.parquet")
    assert users.column("user").to_pylist() == model.store.user_ids().tolist()
    assert users.column("vector").to_pylist() == model.user_vectors().tolist()


def damaged(table, folder):
    """Files cut short, of other bytes, and broken between a sound beginning and a sound end."""
    file = folder / "log.parquet"
    pq.write_table(table, file, compression="zstd")
    sound = bytearray(file.read_bytes())
    file.unlink()
    broken = bytearray(sound)
    middle = pq.ParquetFile(pa.BufferReader(bytes(sound))).metadata.row_group(0).column(1)
    begin = middle.dictionary_page_offset or middle.data_page_offset
    broken[begin + 4 : begin + middle.total_compressed_size - 4] = b"\xff" * (middle.total_compressed_size - 8)
    for name, content in (("cut", sound[:-20]), ("text", b"user_id,item_id\n1,2\n"), ("broken", broken)):
        (folder / f"{name}.parquet").write_bytes(content)
    return [folder / f"{name}.parquet" for name in ("cut", "text", "broken")]


@needs_library
def test_a_file_that_is_damaged_is_named(table, tmp_path):
    for file in damaged(table, tmp_path):
        ended = program("data", "prepare", "--format", "parquet", file, "--out", tmp_path / "s")
        assert ended.returncode == 1 and file.name in ended.stderr, ended.stderr
        assert not (tmp_path / "s").exists()


def test_damage_is_an_error_of_ours_in_python(table, columns, tmp_path):
    for file in damaged(table, tmp_path):
        for arguments in ({"data": file}, {"data": columns, "item_table": file}):
            with pytest.raises(turbogr.Error, match=f"{file.name}.*Parquet cannot be read"):
                turbogr.prepare(**arguments)
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(turbogr.Error, match="cut.parquet.*Parquet cannot be read"):
        turbogr.prepare([tmp_path / "log.parquet", tmp_path / "cut.parquet"])


def test_ctrl_c_while_python_waits_for_a_file(table, tmp_path, monkeypatch):
    def slow(*_):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        yield from ()

    pq.write_table(table, tmp_path / "log.parquet")
    monkeypatch.setattr(turbogr._parquet, "_batches_of", slow)
    with pytest.raises(KeyboardInterrupt):
        turbogr.prepare(tmp_path / "log.parquet", tmp_path / "s")
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]
    monkeypatch.undo()
    assert turbogr.prepare(tmp_path / "log.parquet", tmp_path / "s").events == table.num_rows


def test_without_the_library_the_program_says_how_to_get_it(table, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet")
    alone = shutil.copy(PROGRAM, tmp_path / "turbogr")
    ended = program("data", "prepare", "--format", "parquet", tmp_path / "log.parquet", "--out", tmp_path / "s", at=alone)
    assert ended.returncode == 1
    assert "libturbogr_parquet.so is not beside the program" in ended.stderr and "make parquet" in ended.stderr
    ended = program("data", "prepare", tmp_path / "log.parquet", "--out", tmp_path / "s", at=alone)
    assert "is a Parquet file; turbogr reads it with --format parquet" in ended.stderr


@needs_library
def test_another_arrow_is_named_with_both_versions(table, tmp_path):
    """A library whose Arrow has become another: here, its folder is gone and a newer one stands in the note."""
    pq.write_table(table, tmp_path / "log.parquet")
    alone = shutil.copy(PROGRAM, tmp_path / "turbogr")
    library = pathlib.Path(shutil.copy(LIBRARY, tmp_path / LIBRARY.name)).read_bytes()
    version = pa.__version__.split(".")
    soname = f"libarrow.so.{version[0]}00".encode()
    assert soname in library
    (tmp_path / LIBRARY.name).write_bytes(library.replace(soname, b"libarrow.so.9900"[: len(soname)]))
    (tmp_path / (LIBRARY.name + ".built-for")).write_text(f"99.0.0\n{pathlib.Path(pa.__file__).parent}\n")
    ended = program("data", "prepare", "--format", "parquet", tmp_path / "log.parquet", "--out", tmp_path / "s", at=alone)
    assert ended.returncode == 1
    assert "it was built for Arrow 99.0.0" in ended.stderr, ended.stderr
    assert soname.decode() in ended.stderr and "make parquet" in ended.stderr


ITEM_FEATURES = ["genre", "size", "price:number", "new", "tags:bag:bar", "when"]


@pytest.fixture
def items_table(columns):
    ids = np.unique(columns["item_id"])[3:]
    number = np.arange(len(ids))
    there = lambda values, every: [None if i % every == 1 else value for i, value in enumerate(values)]  # noqa: E731
    return pa.table({
        "item_id": pa.array(ids, pa.uint32()),
        "title": pa.array([f'title, "{i}"' for i in number]),
        "genre": pa.array(there([["odd", "even"][i % 2] for i in number], 5)).dictionary_encode(),
        "size": pa.array(there([int(i) for i in number], 4), pa.int16()),
        "price": pa.array(there([i / 8 for i in number], 3), pa.float32()),
        "new": pa.array(there([i % 3 == 0 for i in number], 7)),
        "tags": pa.array(there([[f"t{i % 4}", f"t{i % 3}"][: i % 3] for i in number], 6)),
        "when": pa.array([int(i) * 1000 for i in number], pa.timestamp("ms", tz="UTC")),
    })  # fmt: skip


def as_csv(table):
    def field(value):
        if value is None:
            return ""
        if isinstance(value, list):
            return "|".join(value)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float):
            return f"{value:g}"
        text = str(value)
        return '"' + text.replace('"', '""') + '"' if "," in text else text

    plain = table.set_column(table.schema.get_field_index("when"), "when", table["when"].cast(pa.int64()))
    lines = [",".join(plain.column_names)] + [",".join(map(field, row.values())) for row in plain.to_pylist()]
    return "\n".join(lines) + "\n"


def test_tables_from_parquet_frames_and_text_make_the_same_store(columns, items_table, tmp_path):
    (tmp_path / "items.csv").write_text(as_csv(items_table))
    options = {"item_features": ITEM_FEATURES, "on_error": "stop"}
    wanted = contents(turbogr.prepare(columns, item_table=tmp_path / "items.csv", **options))
    half = len(items_table) // 2
    (tmp_path / "parts").mkdir()
    pq.write_table(items_table, tmp_path / "items.parquet", row_group_size=7)
    pq.write_table(items_table.slice(0, half), tmp_path / "parts" / "a.parquet")
    pq.write_table(items_table.slice(half), tmp_path / "parts" / "b.parquet")
    for table in (tmp_path / "items.parquet", tmp_path / "parts", items_table, items_table.to_reader(max_chunksize=3)):
        store = turbogr.prepare(columns, item_table=table, **options)
        assert contents(store) == wanted
        store.verify()
    # In the order given: of an item the last row counts.
    changed = items_table.slice(0, 1).set_column(2, "genre", pa.array(["another"]))
    (tmp_path / "changed.csv").write_text(as_csv(changed))
    both = turbogr.prepare(columns, item_table=[tmp_path / "items.parquet", tmp_path / "changed.csv"], **options)
    assert "item feature genre: category, 3 values" in both.report.features[0]
    assert any("1 rows repeat the id of another" in remark for remark in both.report.remarks)


@needs_library
def test_tables_from_parquet_by_the_program(columns, table, items_table, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet")
    pq.write_table(items_table, tmp_path / "items.parquet")
    users = pa.table({"user_id": np.unique(columns["user_id"]), "clubs": [[1, 2]] * len(np.unique(columns["user_id"]))})
    pq.write_table(users, tmp_path / "users.parquet")
    made = prepared(tmp_path / "s", tmp_path / "log.parquet", options=[
        "--item-table", tmp_path / "items.parquet", "--item-features", ",".join(ITEM_FEATURES),
        "--user-table", tmp_path / "users.parquet", "--user-features", "clubs"])  # fmt: skip
    assert made == contents(
        turbogr.prepare(columns, item_table=items_table, item_features=ITEM_FEATURES, user_table=users, user_features=["clubs"])
    )


@needs_library
def test_yambdas_files_by_name(tmp_path):
    world = ["data", "synth", "--like", "yambda", "--users", "30", "--items", "400", "--mean-length", "60"]
    made = program(*world, "--out", tmp_path / "s", "--csv", tmp_path / "csv", "--parquet", tmp_path / "flat")
    assert made.returncode == 0, made.stderr
    wanted = contents(tmp_path / "s")
    flat = pq.read_table(tmp_path / "flat" / "multi_event.parquet")
    assert [(field.name, str(field.type)) for field in flat.schema] == [
        ("uid", "uint32"), ("timestamp", "uint32"), ("item_id", "uint32"), ("is_organic", "uint8"),
        ("played_ratio_pct", "uint16"), ("track_length_seconds", "uint32"), ("event_type", "string"),
    ]  # fmt: skip
    assert flat["played_ratio_pct"].null_count == flat["track_length_seconds"].null_count > 0
    assert set(flat["event_type"].to_pylist()) > {"listen", "like"}

    def program_made(folder, name):
        ended = program("data", "prepare", "--format", "yambda", folder, "--out", tmp_path / name)
        assert ended.returncode == 0, ended.stderr
        return contents(tmp_path / name)

    assert program_made(tmp_path / "flat", "a") == wanted
    assert contents(turbogr.prepare(tmp_path / "flat", format="yambda")) == wanted
    assert contents(turbogr.prepare(tmp_path / "csv" / "multi_event.csv", format="yambda")) == wanted
    # A row a user, the type a dictionary, the mappings above.
    lists = {("item_ids" if name == "item_id" else "timestamps" if name == "timestamp" else name): [] for name in flat.column_names}
    lists["uid"] = sorted(set(flat["uid"].to_pylist()))
    for user in lists["uid"]:
        rows = flat.filter(pa.compute.equal(flat["uid"], user))
        for name, column in zip(flat.column_names[1:], list(lists)[1:]):
            lists[column].append(rows[name].to_pylist())
    (tmp_path / "root" / "sequential" / "50m").mkdir(parents=True)
    types = dict(zip(lists, flat.schema.types))
    sequential = pa.table({
        name: pa.array(values, types[name] if name == "uid" else pa.list_(types[name])) for name, values in lists.items()
    })  # fmt: skip
    pq.write_table(sequential, tmp_path / "root" / "sequential" / "50m" / "multi_event.parquet")
    for mapping in ("artist_item_mapping.parquet", "album_item_mapping.parquet"):
        (tmp_path / "flat" / mapping).rename(tmp_path / "root" / mapping)
    assert program_made(tmp_path / "root" / "sequential" / "50m", "b") == wanted
    assert contents(turbogr.prepare(tmp_path / "root" / "sequential" / "50m", format="yambda")) == wanted


def in_lists(flat, plural):
    """A row a user, in the order of the rows; lists have the flat columns' names or the published plurals."""
    names = {"item_id": "item_ids", "timestamp": "timestamps"} if plural else {}
    order = flat.group_by("uid", use_threads=False).aggregate([(name, "list") for name in flat.column_names[1:]])
    return order.rename_columns(["uid"] + [names.get(name, name) for name in flat.column_names[1:]])


@needs_library
@pytest.mark.parametrize("form", ["flat", "sequential", "sequential plural"])
def test_yambdas_files_of_one_type_by_name(form, tmp_path):
    world = ["data", "synth", "--like", "yambda", "--users", "30", "--items", "400", "--mean-length", "60"]
    made = program(*world, "--parquet", tmp_path / "all")
    assert made.returncode == 0, made.stderr
    events = pq.read_table(tmp_path / "all" / "multi_event.parquet")
    folder = tmp_path / "50m"
    folder.mkdir()
    one_of = {}
    for name, kind in (("listens", "listen"), ("likes", "like"), ("dislikes", "dislike")):
        rows = events.filter(pa.compute.equal(events["event_type"], kind)).drop_columns(["event_type"])
        if name != "listens":
            rows = rows.drop_columns(["played_ratio_pct", "track_length_seconds"])
        assert rows.num_rows > 0
        one_of[name] = rows
        pq.write_table(rows if form == "flat" else in_lists(rows, form.endswith("plural")), folder / f"{name}.parquet")
    for name, labels in (("listens", ["listen_plus=played_ratio_pct>=50", "skip=!played_ratio_pct>=50"]), ("likes", []), ("dislikes", [])):
        wanted = contents(turbogr.prepare(one_of[name], time_unit="s", signals="none", labels=labels, features="is_organic:category"))
        ended = program("data", "prepare", "--format", "yambda", folder / f"{name}.parquet", "--out", tmp_path / name)
        assert ended.returncode == 0, ended.stderr
        assert contents(tmp_path / name) == wanted
        store = turbogr.prepare(folder / f"{name}.parquet", format="yambda")
        assert contents(store) == wanted
        assert store.signals == [label.partition("=")[0] for label in labels]

    def refused(*inputs):
        with pytest.raises(turbogr.Error) as error:
            turbogr.prepare(list(inputs), format="yambda")
        ended = program("data", "prepare", "--format", "yambda", *inputs, "--out", tmp_path / "no")
        assert ended.returncode == 1 and str(error.value) in ended.stderr
        return str(error.value)

    assert "give multi_event, or files of one type" in refused(folder / "listens.parquet", folder / "likes.parquet")
    assert "give multi_event, or files of one type" in refused(tmp_path / "all" / "multi_event.parquet", folder / "likes.parquet")
    assert "holds no multi_event but 'listens.parquet' and 2 others" in refused(folder)
    for name in ("listens", "dislikes"):
        (folder / f"{name}.parquet").unlink()
    assert contents(turbogr.prepare(folder, format="yambda")) == contents(tmp_path / "likes")


@needs_library
def test_kuairands_files_as_parquet(tmp_path):
    random = np.random.default_rng(2)
    n = 300
    log = pa.table({
        "user_id": random.integers(0, 20, n), "video_id": random.integers(0, 40, n), "date": np.full(n, 20220408),
        "hourmin": np.full(n, 1200), "time_ms": 1_649_400_000_000 + np.arange(n) * 1017, "is_click": random.integers(0, 2, n),
        "is_like": random.integers(0, 2, n), "long_view": random.integers(0, 2, n), "play_time_ms": random.integers(0, 9000, n),
        "duration_ms": random.integers(5000, 9000, n), "tab": random.integers(0, 5, n),
    })  # fmt: skip
    users = pa.table({"user_id": np.arange(20), "user_active_degree": ["full_active", "high_active"] * 10, "is_video_author": [0, 1] * 10})
    videos = pa.table({"video_id": np.arange(40), "author_id": np.arange(40) % 7, "video_type": ["NORMAL", "AD"] * 20, "tag": ["1,2", "3"] * 20})
    files = {
        "log_standard_4_08_to_4_21_pure": log.slice(0, 200), "log_standard_4_22_to_5_08_pure": log.slice(200),
        "user_features_pure": users, "video_features_basic_pure": videos,
    }  # fmt: skip
    for form, write in (("parquet", pq.write_table), ("csv", pa.csv.write_csv)):
        (tmp_path / form).mkdir()
        for name, rows in files.items():
            write(rows, tmp_path / form / f"{name}.{form}")
    features = {"user_features": "auto", "item_features": "auto"}
    wanted = contents(turbogr.prepare(tmp_path / "csv", format="kuairand", **features))
    assert "item_feature_tag.bin" in wanted and "user_feature_user_active_degree.bin" in wanted

    def without_copies(made):  # Parquet's are written as text of our own
        kept = {name: content for name, content in made.items() if not name.endswith("_features.csv") and name != "manifest.json"}
        assert len(made) - len(kept) == 3
        return kept

    by_program = ["--user-features", "auto", "--item-features", "auto"]
    given = {"folder": [tmp_path / "parquet"], "files": [tmp_path / "parquet" / f"{name}.parquet" for name in files]}
    for name, inputs in given.items():
        ended = program("data", "prepare", "--format", "kuairand", *inputs, "--out", tmp_path / name, *by_program)
        assert ended.returncode == 0, ended.stderr
        assert without_copies(contents(tmp_path / name)) == without_copies(wanted)
        store = turbogr.prepare(inputs, format="kuairand", **features)
        assert contents(store) == contents(tmp_path / name)
        assert store.signals == ["is_click", "is_like", "long_view"] and store.numbers == ["play_time_ms", "duration_ms"]
        assert store.time_unit == "ms"
    # Tables in the other form; the logs in both.
    for name in ("user_features_pure", "video_features_basic_pure"):
        shutil.copy(tmp_path / "csv" / f"{name}.csv", tmp_path / "parquet")
        (tmp_path / "parquet" / f"{name}.parquet").unlink()
    assert without_copies(contents(turbogr.prepare(tmp_path / "parquet", format="kuairand", **features))) == without_copies(wanted)
    shutil.copy(tmp_path / "csv" / "log_standard_4_08_to_4_21_pure.csv", tmp_path / "parquet")
    with pytest.raises(turbogr.Error, match="are the same in two forms"):
        turbogr.prepare(tmp_path / "parquet", format="kuairand")
    logs = [tmp_path / "csv" / "log_standard_4_08_to_4_21_pure.csv", tmp_path / "parquet" / "log_standard_4_22_to_5_08_pure.parquet"]
    with pytest.raises(turbogr.Error, match="one is Parquet and the other is not"):
        turbogr.prepare(logs, format="kuairand")
    pq.write_table(log.rename_columns(["who" if name == "user_id" else name for name in log.column_names]), tmp_path / "log_random_pure.parquet")
    with pytest.raises(turbogr.Error, match="there is no column 'user_id'"):
        turbogr.prepare(tmp_path / "log_random_pure.parquet", format="kuairand")


@needs_library
def test_shards_are_prepared_and_merged_as_the_page_says(table, store, tmp_path):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "data_format.md").read_text()
    (shard,) = re.findall(r"^turbogr( data prepare .*--shard 1/8 .*?) +#", page, re.MULTILINE)
    (merge,) = re.findall(r"^turbogr( data merge parts/1 .*)$", page, re.MULTILINE)
    (tmp_path / "log").mkdir()
    size = table.num_rows // 9
    for part in range(10):  # the last is a remainder
        pq.write_table(table.slice(part * size, size), tmp_path / "log" / f"part-{part:05}.parquet")
    shards = [shard.replace("1/8", f"{i}/8").replace("parts/1", f"parts/{i}") for i in range(1, 9)]
    for command in [*shards, merge]:
        ended = subprocess.run(f"{PROGRAM}{command}", shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
    assert contents(tmp_path / "stores" / "all") == contents(store)
