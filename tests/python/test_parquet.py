"""Parquet by the program, through the library that `make parquet` builds (TGR_PARQUET names it)."""

import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

import turbogr

pa = pytest.importorskip("pyarrow")
import pyarrow.compute  # noqa: E402
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
def test_differences_between_files(table, store, tmp_path):
    half = table.num_rows // 2
    narrow = table.slice(half).cast(pa.schema([("user_id", pa.int32()), ("item_id", pa.uint16()), ("timestamp", pa.int64())]))
    empty = table.slice(0, 0)
    (tmp_path / "parts").mkdir()
    pq.write_table(table.slice(0, half).select(["timestamp", "user_id", "item_id"]), tmp_path / "parts" / "a.parquet")
    pq.write_table(empty, tmp_path / "parts" / "b.parquet")
    pq.write_table(narrow, tmp_path / "parts" / "c.parquet")
    assert prepared(tmp_path / "s", tmp_path / "parts") == contents(store)


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


@needs_library
def test_a_file_that_is_damaged_is_named(table, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet")
    cut = (tmp_path / "log.parquet").read_bytes()[:-20]
    (tmp_path / "cut.parquet").write_bytes(cut)
    ended = program("data", "prepare", "--format", "parquet", tmp_path / "cut.parquet", "--out", tmp_path / "s")
    assert ended.returncode == 1 and "cut.parquet" in ended.stderr
    assert not (tmp_path / "s").exists()


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
