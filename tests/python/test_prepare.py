"""Every way into prepare gives the same store."""

import datetime
import pathlib
import threading

import numpy as np
import pytest

import turbogr

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")


def contents(store):
    folder = pathlib.Path(store)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def csv_store(columns, tmp_path_factory):
    folder = tmp_path_factory.mktemp("csv")
    pd.DataFrame(columns).to_csv(folder / "log.csv", index=False)
    return turbogr.prepare(folder / "log.csv", folder / "store")


def relation(columns):
    frame = pd.DataFrame(columns)
    return duckdb.connect().from_df(frame) if hasattr(duckdb.connect(), "from_df") else duckdb.from_df(frame)


WAYS = {
    "dictionary of arrays": dict,
    "dictionary of lists": lambda columns: {name: list(map(int, column)) for name, column in columns.items()},
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow table": pa.table,
    "pyarrow in batches": lambda columns: pa.Table.from_batches(pa.table(columns).to_batches(max_chunksize=37)),
    "pyarrow reader": lambda columns: pa.table(columns).to_reader(max_chunksize=100),
    "duckdb": relation,
    "turbogr's own table": turbogr.Table,
    "narrow types": lambda columns: pa.table(columns).cast(
        pa.schema([("user_id", pa.uint16()), ("item_id", pa.int32()), ("timestamp", pa.uint32())])
    ),
    "strided array": lambda columns: {name: np.repeat(column, 3)[::3] for name, column in columns.items()},
    "big-endian array": lambda columns: {name: column.astype(">i8") for name, column in columns.items()},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_container_gives_the_bytes_of_the_csv(way, columns, csv_store):
    store = turbogr.prepare(WAYS[way](columns))
    assert contents(store) == contents(csv_store)


def test_store_says_what_it_holds(columns, csv_store):
    assert csv_store.users == 60
    assert csv_store.events == len(columns["user_id"])
    assert csv_store.items == len(np.unique(columns["item_id"]))
    assert csv_store.time_unit == "s"
    assert csv_store.user_ids().tolist() == sorted(set(columns["user_id"].tolist()))
    assert csv_store.report.rows == csv_store.events
    csv_store.verify()


def test_temporary_store_goes_with_its_object(columns):
    store = turbogr.prepare(columns)
    path = pathlib.Path(store.path)
    assert path.is_dir()
    del store
    assert not path.exists() and not path.parent.exists()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_with_units_and_zones(columns, csv_store, unit):
    typed = dict(columns)
    typed["timestamp"] = columns["timestamp"].astype("datetime64[s]").astype(f"datetime64[{unit}]")
    assert contents(turbogr.prepare(typed)) == contents(csv_store)
    assert contents(turbogr.prepare(pa.table(typed))) == contents(csv_store)
    if unit != "s":  # polars has no seconds
        assert contents(turbogr.prepare(pl.DataFrame(typed))) == contents(csv_store)
    zoned = pd.DataFrame(typed)
    zoned["timestamp"] = zoned["timestamp"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    assert contents(turbogr.prepare(zoned)) == contents(csv_store)


def test_strings_of_every_library_are_the_same_ids(columns):
    named = {
        "user_id": [f"user {u} with a long name" for u in columns["user_id"]],
        "item_id": [f"i{i}" for i in columns["item_id"]],
        "timestamp": columns["timestamp"],
    }
    first = contents(turbogr.prepare(named))
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        assert contents(turbogr.prepare(make(named))) == first
    categories = pd.DataFrame(named).astype({"user_id": "category", "item_id": "category"})
    assert contents(turbogr.prepare(categories)) == first
    large = pa.table(named).set_column(0, "user_id", pa.array(named["user_id"], pa.large_string()))
    assert contents(turbogr.prepare(large)) == first
    store = turbogr.prepare(named)
    assert store.item_ids()[0] == "i500"


def test_rows_of_users_equal_rows_of_events(columns, csv_store):
    frame = pd.DataFrame(columns).sort_values(["user_id", "timestamp"], kind="stable")
    lists = frame.groupby("user_id").agg(item_ids=("item_id", list), timestamps=("timestamp", list)).reset_index()
    table = pa.table(
        {"user_id": lists["user_id"], "item_ids": lists["item_ids"].tolist(), "timestamps": lists["timestamps"].tolist()}
    )
    assert contents(turbogr.prepare(table)) == contents(csv_store)


def test_missing_values(columns):
    frame = pa.table({
        "user_id": pa.array([1, None, 2, 2], pa.int64()),
        "item_id": pa.array(["a", "b", None, "c"]),
        "timestamp": pa.array([1, 2, 3, 4]),
        "is_click": pa.array([True, None, True, None]),
        "rating": pa.array([None, 1.0, 2.0, 3.0]),
    })
    with pytest.raises(turbogr.Error, match="user_id"):
        turbogr.prepare(frame)
    store = turbogr.prepare(frame, on_error="skip")
    assert (store.users, store.events, store.report.bad_rows) == (2, 2, 2)
    assert any("is_click is empty in 1 rows" in remark for remark in store.report.remarks)
    assert store.signals == ["is_click"] and store.numbers == ["rating"]


def test_columns_may_be_named(columns, csv_store):
    renamed = {"who": columns["user_id"], "what": columns["item_id"], "when": columns["timestamp"]}
    store = turbogr.prepare(renamed, user="who", item="what", time="when")
    assert contents(store) == contents(csv_store)
    with pytest.raises(turbogr.Error, match="no user column.*who, what, when"):
        turbogr.prepare(renamed)


def test_tables_about_items_may_be_frames(columns):
    items = sorted(set(columns["item_id"].tolist()))
    table = pd.DataFrame({"item_id": items, "title": [f"title, {i}" for i in items], "genre": ["odd" if i % 2 else "even" for i in items]})
    store = turbogr.prepare(columns, item_table=table, item_features=["genre"])
    assert "item feature genre: category, 2 values" in store.report.features[0]


def test_items_nobody_met_may_stay_for_their_features(columns):
    table = pa.table({"item_id": [501, 9_001], "genre": ["a", "b"]})
    left_out = turbogr.prepare(columns, item_table=table, item_features=["genre"])
    kept = turbogr.prepare(columns, item_table=table, item_features=["genre"], keep_items_without_events=True)
    assert kept.report.items_without_events == 1
    assert kept.item_ids().tolist() == [*left_out.item_ids().tolist(), 9_001]
    kept.verify()
    with pytest.raises(turbogr.Error, match="name some with --item-features"):
        turbogr.prepare(columns, item_table=table, keep_items_without_events=True)


def test_parquet_files_folders_and_partitions(columns, csv_store, tmp_path):
    import pyarrow.dataset
    import pyarrow.parquet

    table = pa.table(columns).append_column("unused", pa.array([b"x"] * len(columns["user_id"])))
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet", row_group_size=50, compression="zstd")
    assert contents(turbogr.prepare(tmp_path / "log.parquet")) == contents(csv_store)
    half = table.num_rows // 2
    (tmp_path / "parts").mkdir()
    pyarrow.parquet.write_table(table.slice(0, half), tmp_path / "parts" / "a.parquet", compression="snappy")
    pyarrow.parquet.write_table(table.slice(half), tmp_path / "parts" / "b.parquet", compression="gzip")
    assert contents(turbogr.prepare(tmp_path / "parts")) == contents(csv_store)
    day = pa.array([str(datetime.date(2022, 4, 8 + i % 3)) for i in range(table.num_rows)])
    pyarrow.dataset.write_dataset(
        table.append_column("day", day), tmp_path / "hive", format="parquet",
        partitioning=pyarrow.dataset.partitioning(pa.schema([("day", pa.string())]), flavor="hive"),
    )
    store = turbogr.prepare(tmp_path / "hive", features=["day:category"])
    assert store.events == csv_store.events
    with pytest.raises(turbogr.Error, match="no input"):
        turbogr.prepare(tmp_path / "gone.parquet")


def test_errors_leave_nothing_behind(columns, tmp_path):
    bad = dict(columns, item_id=np.full(len(columns["item_id"]), 0.5))
    with pytest.raises(turbogr.Error, match="0.5"):
        turbogr.prepare(bad, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_shards_merge_to_the_store_of_one_process(columns, csv_store, tmp_path):
    import pyarrow.parquet

    frame = pd.DataFrame(columns)
    for form in ("csv", "parquet"):
        files = [tmp_path / f"{i}.{form}" for i in range(5)]
        for i, file in enumerate(files):
            part = frame.iloc[i * len(frame) // 5 : (i + 1) * len(frame) // 5]
            part.to_csv(file, index=False) if form == "csv" else pyarrow.parquet.write_table(pa.Table.from_pandas(part), file)
        parts = [turbogr.prepare(files, tmp_path / f"{form}-{i}", shard=(i, 2)) for i in (1, 2)]
        assert [part.events for part in parts] == [2 * len(frame) // 5, len(frame) - 2 * len(frame) // 5]
        merged = turbogr.merge(parts, tmp_path / f"{form}-all")
        assert contents(merged) == contents(csv_store)
        assert merged.report.events == len(frame)
    half = len(frame) // 2
    merged = turbogr.merge([turbogr.prepare(frame.iloc[:half]), turbogr.prepare(frame.iloc[half:])])
    assert contents(merged) == contents(csv_store)
    path = pathlib.Path(merged.path)
    del merged
    assert not path.exists()


def test_merge_takes_what_concerns_all_events(columns, tmp_path):
    frame = pd.concat([pd.DataFrame(columns), pd.DataFrame(columns).iloc[::3]])
    items = pd.DataFrame({"item_id": range(500, 540), "genre": [f"g{i % 3}" for i in range(40)]})
    options = {"deduplicate": "events", "min_item": 20, "min_user": 12, "item_table": items, "item_features": "genre"}
    whole = turbogr.prepare(frame, **options)
    assert whole.report.repeated > 0 and whole.report.filtered > 0
    parts = [turbogr.prepare(frame.iloc[:100]), turbogr.prepare(frame.iloc[100:])]
    assert contents(turbogr.merge(parts, **options)) == contents(whole)


def test_shards_that_make_no_sense_are_refused(columns, csv_store, tmp_path):
    pd.DataFrame(columns).to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(turbogr.Error, match="2 shards of 1 log"):
        turbogr.prepare(tmp_path / "log.csv", shard=(1, 2))
    with pytest.raises(ValueError, match=r"shard\[0\] is 0; wanted: at least 1 and at most 2"):
        turbogr.prepare([tmp_path / "log.csv"] * 2, shard=(0, 2))
    with pytest.raises(ValueError, match="shard is given and data is no path"):
        turbogr.prepare(columns, shard=(1, 2))
    with pytest.raises(ValueError, match="turbogr.merge"):
        turbogr.prepare([tmp_path / "log.csv"] * 2, shard=(1, 2), min_user=2)
    with pytest.raises(turbogr.Error, match="given twice"):
        turbogr.merge([csv_store, csv_store])


def test_row_groups_without_rows(columns, csv_store, tmp_path):
    import pyarrow.parquet

    table, file = pa.table(columns), tmp_path / "log.parquet"
    with pyarrow.parquet.ParquetWriter(file, table.schema) as writer:
        for begin, end in ((0, 0), (0, 100), (100, 100), (100, table.num_rows), (0, 0)):
            writer.write_table(table.slice(begin, end - begin))
    groups = pyarrow.parquet.ParquetFile(file).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [0, 100, 0, table.num_rows - 100, 0]
    assert contents(turbogr.prepare(file)) == contents(csv_store)


def test_several_threads_prepare_at_once(columns, csv_store, tmp_path):
    made = {}

    def make(number):
        data = dict(columns) if number % 2 else pd.DataFrame(columns)
        made[number] = contents(turbogr.prepare(data, tmp_path / str(number)))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == dict.fromkeys(range(6), contents(csv_store))
