"""Data sets from files, and from what other libraries hold."""

import io
import itertools
import json
import threading

import numpy as np
import pytest
from conftest import join_readers
from trainyard import data

pa = pytest.importorskip("pyarrow")
import pyarrow.compute  # noqa: E402
import pyarrow.fs  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402


def ids(dataset, column="id"):
    return [row[column] for row in dataset.iter_rows()]


@pytest.fixture
def tables(place):
    """Five files of 100 rows, 30 a row group."""
    for i in range(5):
        numbers = np.arange(100 * i, 100 * i + 100)
        table = pa.table({"id": numbers, "x": numbers * 0.5, "s": [f"row {n}" for n in numbers]})
        (place / "tables").mkdir(exist_ok=True)
        pq.write_table(table, place / "tables" / f"{i}.parquet", row_group_size=30)
    (place / "tables" / "_SUCCESS").write_text("")
    return place / "tables"


def test_parquet(tables):
    dataset = data.read_parquet(str(tables))
    assert dataset.count() == 500 and ids(dataset) == list(range(500))
    assert len(dataset.input_files()) == 5 and dataset.schema().names == ["id", "x", "s"]
    assert dataset.take(1) == [{"id": 0, "x": 0.0, "s": "row 0"}]
    assert (
        data.read_parquet([str(tables / "3.parquet"), f"file://{tables}/0.parquet"]).take(1)[0]["id"] == 300
    )
    assert data.read_parquet(f"{tables}/[12].parquet").count() == 200
    assert data.read_parquet(str(tables), include_paths=True).take(1)[0]["path"].endswith("0.parquet")


def test_columns_that_are_not_wanted_are_not_read(tables, monkeypatch):
    asked = []
    real = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, **options: (asked.append(options["columns"]), real(self, **options))[1],
    )
    assert data.read_parquet(str(tables)).select_columns(["x"]).take(1) == [{"x": 0.0}]
    assert asked == [["x"]]


def test_ranks_read_their_own_row_groups(tables, monkeypatch):
    asked = []
    real = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, **options: (asked.append(options["row_groups"]), real(self, **options))[1],
    )
    shards = data.read_parquet(str(tables)).streaming_split(5, equal=True)
    assert ids(shards[2]) == list(range(200, 300))
    assert asked == [[0], [1], [2], [3]]


def count_rows_read(monkeypatch):
    """The blocks of files that are read from here on."""
    read, real = [], data.files.Parquet.read

    def counted(self, *arguments):
        for block in real(self, *arguments):
            read.append(block.rows)
            yield block

    monkeypatch.setattr(data.files.Parquet, "read", counted)
    return read


@pytest.mark.parametrize("made", [lambda dataset: dataset, lambda dataset: dataset.map(lambda row: row)])
@pytest.mark.parametrize("options", [{"num_blocks": 50}, {"target_num_rows_per_block": 7}])
def test_a_part_that_is_divided_further_is_read_once(place, monkeypatch, made, options):
    pq.write_table(pa.table({"id": np.arange(1000)}), place / "a.parquet")
    read = count_rows_read(monkeypatch)
    dataset = made(data.read_parquet(str(place / "a.parquet"), batch_size=10)).repartition(**options)
    assert ids(dataset) == list(range(1000)) and sum(read) == 1000
    read.clear()
    first, second = dataset.streaming_split(2)
    assert ids(first) + ids(second) == list(range(1000))
    assert sum(read) < 1600  # half of it, and all of it
    read.clear()
    many = data.range(1000, override_num_blocks=100).zip(data.read_parquet(str(place / "a.parquet"), batch_size=10))
    assert ids(many, "id_1") == list(range(1000)) and sum(read) == 1000


def test_blocks_of_so_many_rows_need_no_count(place, monkeypatch):
    pq.write_table(pa.table({"id": np.arange(100)}), place / "a.parquet")
    read = count_rows_read(monkeypatch)
    sizes = []

    def seen(batch):
        sizes.append(len(batch["id"]))
        return batch

    even = data.read_parquet(str(place / "a.parquet"), batch_size=10).filter(lambda row: row["id"] % 2 == 0)
    assert ids(even.repartition(target_num_rows_per_block=15).map_batches(seen)) == list(range(0, 100, 2))
    assert sizes == [15, 15, 15, 5] and sum(read) == 100
    strict = even.union(even).repartition(target_num_rows_per_block=15, strict=True)
    assert [len(batch["id"]) for batch in strict.iter_batches(batch_size=None)] == [15] * 6 + [10]


def test_the_order_of_files_and_rows_is_drawn(tables):
    iterator = data.read_parquet(str(tables)).random_shuffle().iterator()
    first, second = ids(iterator), ids(iterator)
    assert first != second and sorted(first) == sorted(second) == list(range(500))
    assert sorted(first[:100]) != list(range(min(first[:100]), min(first[:100]) + 100))
    shards = data.read_parquet(str(tables)).random_shuffle().streaming_split(3, equal=True)
    rows = [row for shard in shards for row in ids(shard)]
    assert len(set(rows)) == 498

    same = data.FileShuffleConfig(seed=1, reseed_after_execution=False)
    kept = data.read_parquet(str(tables), shuffle=same).iterator()
    assert ids(kept) == ids(kept) != list(range(500))
    drawn = data.read_parquet(str(tables), shuffle="files").iterator()
    assert len({tuple(ids(drawn)) for _ in range(5)}) > 1
    with pytest.raises(ValueError, match="shuffle"):
        data.read_parquet(str(tables), shuffle="rows")


@pytest.mark.parametrize(
    "made",
    [
        lambda dataset: dataset.random_shuffle(),
        lambda dataset: dataset.filter(lambda row: row["id"] < 440).randomize_block_order(),
        lambda dataset: dataset.map_batches(lambda batch: {"id": batch["id"][batch["id"] < 440]}).random_shuffle(),
    ],
)
@pytest.mark.parametrize(
    "options",
    [{}, {"local_shuffle_buffer_size": 40}, {"local_shuffle_buffer_size": 9, "local_shuffle_seed": 3}],
)
def test_an_epoch_is_gone_on_with_by_other_ranks_of_another_process(tables, made, options):
    """Which draw no seeds of their own for that, and are as many as leave no row over."""
    seen, state = [], None
    for ranks, count in ((4, 2), (3, 1), (3, 2), (2, None)):
        reached = state
        for one in made(data.read_parquet(str(tables))).streaming_split(ranks, equal=True):
            if reached is not None:
                one.load_state_dict(json.loads(json.dumps(reached)))
            batches = itertools.islice(one.iter_batches(batch_size=10, **options), count)
            seen += [row for batch in batches for row in batch["id"].tolist()]
            state = one.state_dict()
    assert sorted(seen) == list(range(len(seen))) and len(seen) in (440, 500)


def test_an_epoch_is_gone_on_with_whatever_is_mixed_then(tables):
    first, second = (data.read_parquet(str(tables)).iterator() for _ in range(2))
    seen = [next(iter(first.iter_batches(batch_size=20, local_shuffle_buffer_size=100)))["id"].tolist()]
    state = first.state_dict()
    for options in ({"batch_size": 30, "local_shuffle_buffer_size": 50}, {"batch_size": 7}):
        second.load_state_dict(state)
        seen.append(next(iter(second.iter_batches(**options)))["id"].tolist())
        state = second.state_dict()
    second.load_state_dict(state)
    assert [len(rows) for rows in seen] == [20, 30, 7]
    assert sorted(sum(seen, ids(second))) == list(range(500))


def test_a_state_of_other_steps_is_refused(tables):
    dataset = data.read_parquet(str(tables))
    with pytest.raises(ValueError, match="the state is of a data set with 0 steps that draw"):
        dataset.random_shuffle().iterator().load_state_dict(dataset.iterator().state_dict())


def test_directories_are_columns(place):
    for year in (2020, 2021):
        (place / "t" / f"year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [year]}), place / "t" / f"year={year}" / "a.parquet")
    assert data.read_parquet(str(place / "t")).take() == [
        {"id": 2020, "year": "2020"},
        {"id": 2021, "year": "2021"},
    ]


def test_another_file_system(tables):
    there = pyarrow.fs.SubTreeFileSystem(str(tables), pyarrow.fs.LocalFileSystem())
    mocked = pyarrow.fs._MockFileSystem()
    assert data.read_parquet("1.parquet", filesystem=there).count() == 100
    with mocked.open_output_stream("a.csv") as file:
        file.write(b"id\n1\n2\n")
    assert ids(data.read_csv("a.csv", filesystem=mocked)) == [1, 2]
    with pytest.raises(FileNotFoundError, match="no.csv"):
        data.read_csv("no.csv", filesystem=mocked)


def test_a_path_counts_from_where_it_was_given(tables, monkeypatch):
    monkeypatch.chdir(tables.parent)
    monkeypatch.setenv("HOME", str(tables))
    near, home = data.read_parquet("tables/1.parquet"), data.read_parquet("~/2.parquet")
    monkeypatch.chdir("/")
    assert near.count() == home.count() == 100


def test_an_address_beside_a_file_system_names_a_place_on_it(tables):
    there = pyarrow.fs.SubTreeFileSystem(str(tables.parent), pyarrow.fs.LocalFileSystem())
    assert data.read_parquet("hf://tables/1.parquet", filesystem=there).count() == 100
    several = data.read_parquet([f"file://{tables}/{i}.parquet" for i in range(3)])
    assert several.count() == 300
    with pytest.raises(ValueError, match="must lie on one file system: mock://a.parquet and /b.parquet do not"):
        data.read_parquet(["mock://a.parquet", "/b.parquet"])
    data.range(3).write_csv("az://out", filesystem=there)
    assert ids(data.read_csv("az://out", filesystem=there)) == [0, 1, 2]


def test_lines_of_json_that_are_no_records_of_one_type(place):
    pytest.importorskip("pandas")
    (place / "lists.jsonl").write_text('["a", "b"]\n["c", "d"]\n')
    assert data.read_json(str(place / "lists.jsonl"), lines=True).take() == [{"0": "a", "1": "b"}, {"0": "c", "1": "d"}]
    rows = [{"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": {"hello": "world"}}}]
    (place / "mixed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert data.read_json(str(place / "mixed.jsonl"), lines=True).take() == rows


def test_csv_and_json_and_text(place):
    (place / "a.csv").write_text("id,s\n" + "".join(f"{i},v{i}\n" for i in range(10)))
    (place / "b.csv").write_text("id,s\n10,\n")
    dataset = data.read_csv([str(place / "a.csv"), str(place / "b.csv")])
    assert ids(dataset) == list(range(11)) and dataset.count() == 11
    assert [len(ids(one)) for one in dataset.streaming_split(2, equal=True)] == [5, 5]

    (place / "a.jsonl").write_text("\n".join(json.dumps({"id": i, "deep": {"x": [i]}}) for i in range(4)))
    (place / "b.json").write_text(json.dumps([{"id": 4, "deep": {"x": []}}]))
    (place / "c.json").write_text(json.dumps({"id": 5, "deep": {"x": [5]}}, indent=1))
    dataset = data.read_json([str(place / name) for name in ("a.jsonl", "b.json", "c.json")])
    assert ids(dataset) == [0, 1, 2, 3, 4, 5] and dataset.take(1)[0]["deep"] == {"x": [0]}

    (place / "a.txt").write_text("one\n\ntwo\r\nthree")
    assert ids(data.read_text(str(place / "a.txt")), "text") == ["one", "two", "three"]
    assert data.read_text(str(place / "a.txt"), drop_empty_lines=False).count() == 4
    assert data.read_binary_files(str(place / "a.txt")).take() == [{"bytes": b"one\n\ntwo\r\nthree"}]


def test_lines_end_as_in_a_text_of_python_and_one_of_blanks_is_empty(place):
    text = "one\n\n   \ntwo\r\nth\x0bree\rfour\u2028five"
    (place / "a.txt").write_bytes(text.encode("utf-16"))
    assert ids(data.read_text(str(place / "a.txt"), encoding="utf-16", drop_empty_lines=False), "text") == text.splitlines()
    there = pyarrow.fs.SubTreeFileSystem(str(place), pyarrow.fs.LocalFileSystem())
    found = data.read_text("a.txt", filesystem=there, encoding="utf-16")
    assert ids(found, "text") == ["one", "two", "th", "ree", "four", "five"]


@pytest.mark.parametrize("ending, compression", [(".gz", "gzip"), (".bz2", "bz2"), (".zst", "zstd"), (".bin", "gzip")])
def test_what_is_compressed_is_read_as_what_is_in_it(place, ending, compression):
    """By the ending of its name, or by what is said of it."""
    more = {"arrow_open_stream_args": {"compression": compression}} if ending == ".bin" else {}

    def written(name, content):
        with pyarrow.fs.LocalFileSystem().open_output_stream(str(place / name) + ending, compression=compression) as file:
            file.write(content)
        return str(place / name) + ending

    assert ids(data.read_text(written("t", b"a\nb\n"), **more), "text") == ["a", "b"]
    assert ids(data.read_csv(written("c.csv", b"id\n1\n2\n"), **more)) == [1, 2]
    assert ids(data.read_json(written("j.json", b'{"id": 1}\n{"id": 2}\n'), **more)) == [1, 2]
    assert ids(data.read_binary_files(written("b", b"bytes"), **more), "bytes") == [b"bytes"]
    stream = io.BytesIO()
    np.save(stream, np.arange(3))
    assert ids(data.read_numpy(written("a.npy", stream.getvalue()), **more), "data") == [0, 1, 2]


def test_a_schema_says_which_columns_of_parquet_there_are(tables):
    (tables / "tensors").mkdir()
    rows = [np.arange(4, dtype=np.int16), np.arange(4, 8, dtype=np.int16)]
    pq.write_table(pa.table({"id": [0, 1], "t": [row.tobytes() for row in rows]}), tables / "tensors" / "t.parquet")
    wanted = pa.schema([("x", pa.float32()), ("id", pa.string()), ("new", pa.string())])
    found = data.read_parquet(str(tables / "1.parquet"), schema=wanted)
    assert found.take(1) == [{"x": 50.0, "id": "100", "new": None}]
    assert found.schema().base_schema == wanted
    arrays = data.read_parquet(str(tables / "tensors"), tensor_column_schema={"t": (np.int16, (2, 2))}).take_batch()["t"]
    assert arrays.dtype == np.int16 and np.array_equal(arrays, np.arange(8).reshape(2, 2, 2))


def test_images_are_resized_by_what_lies_between_their_points(place):
    """As Ray does."""
    from PIL import Image

    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 6, 3), np.uint8))
    picture.save(place / "a.png")
    expected = np.asarray(picture.resize((3, 4), Image.Resampling.BILINEAR))
    assert np.array_equal(data.read_images(str(place), size=(4, 3)).take(1)[0]["image"], expected)


def test_small_files_are_read_several_at_once_and_stay_in_their_order(place, monkeypatch):
    for i in range(40):
        (place / f"{i:02}").write_bytes(b"%d" % i)
    together, real = threading.Barrier(2), data.files.Files.read

    def read(self, path):
        if path.endswith(("/00", "/01")):
            together.wait(60)
        return real(self, path)

    monkeypatch.setattr(data.files.Files, "read", read)
    assert ids(data.read_binary_files(str(place)), "bytes") == [b"%d" % i for i in range(40)]
    monkeypatch.undo()
    dataset = data.read_binary_files(str(place))
    (place / "07").unlink()
    with pytest.raises(FileNotFoundError, match="/07"):
        dataset.take_all()


def test_short_files_of_a_store_are_read_before_their_turn(place, monkeypatch):
    for i in range(20):
        (place / f"{i:02}.csv").write_text(f"id\n{2 * i}\n{2 * i + 1}\n")
    there = pyarrow.fs.SubTreeFileSystem(str(place), pyarrow.fs.LocalFileSystem())
    together, read, real, at_once = threading.Barrier(2), [], data.files.Csv.read, ["01.csv", "02.csv"]

    def counted(self, source, path, piece):
        read.append(path)
        if path in at_once:
            together.wait(60)
        yield from real(self, source, path, piece)

    monkeypatch.setattr(data.files.Csv, "read", counted)
    dataset = data.read_csv("", filesystem=there)
    steps = dataset.map(lambda row: {"id": row["id"] + 1}).random_shuffle(seed=1)
    for _ in range(2):
        read.clear()
        assert ids(dataset) == list(range(40)) and sorted(read) == [f"{i:02}.csv" for i in range(20)]
    at_once.clear()
    assert sorted(ids(steps)) == list(range(1, 41))
    assert [row for shard in dataset.streaming_split(3) for row in ids(shard)] == list(range(40))
    rows = iter(dataset.iter_rows())
    assert next(rows) == {"id": 0}
    rows.close()
    join_readers()
    (place / "05.csv").unlink()
    seen = []
    with pytest.raises(FileNotFoundError, match="05.csv"):
        for row in dataset.iter_rows():
            seen.append(row["id"])
    assert seen == list(range(10))


def test_arrays_of_objects_are_read_where_that_is_asked_for(place):
    np.save(place / "a.npy", np.array([{"x": 1}, None], dtype=object))
    assert ids(data.read_numpy(str(place), allow_pickle=True), "data") == [{"x": 1}, None]
    with pytest.raises(ValueError, match="a.npy.*allow_pickle=False"):
        data.read_numpy(str(place)).take()


def test_images_and_arrays(place):
    from PIL import Image

    (place / "images").mkdir()
    for i in range(70):
        Image.fromarray(np.full((4, 6, 3), i, np.uint8)).save(place / "images" / f"{i:02}.png")
    (place / "images" / "notes.txt").write_text("none of them")
    dataset = data.read_images(str(place / "images"), size=(2, 3), mode="L")
    assert dataset.count() == 70
    batch = dataset.take_batch(70)["image"]
    assert batch.shape == (70, 2, 3) and batch[7, 0, 0] == 7
    shards = dataset.streaming_split(3, equal=True)
    assert [int(row["image"][0, 0]) for row in shards[1].iter_rows()] == list(range(23, 46))
    (place / "broken.png").write_text("no picture")
    with pytest.raises(ValueError, match="broken.png"):
        data.read_images(str(place / "broken.png")).take()

    np.save(place / "a.npy", np.arange(12).reshape(6, 2))
    assert data.read_numpy(str(place / "a.npy")).take_batch()["data"].shape == (6, 2)


@pytest.mark.parametrize(
    "read, error",
    [
        (lambda: data.read_csv("nowhere.csv"), FileNotFoundError),
        (lambda: data.read_parquet([]), ValueError),
        (lambda: data.read_images("."), ValueError),
        (lambda: data.read_csv(".", delimiter=";"), TypeError),
    ],
)
def test_what_cannot_be_read_is_told_at_once(place, read, error):
    with pytest.raises(error):
        read()


def test_frames_tables_arrays(place):
    import pandas

    frame = pandas.DataFrame({"x": [1, 2], "s": ["a", None], "t": pandas.to_datetime(["2020-01-01"] * 2)})
    dataset = data.from_pandas([frame, frame])
    assert dataset.count() == 4 and dataset.take(2)[1]["s"] is None
    assert dataset.to_pandas()["x"].tolist() == [1, 2, 1, 2]
    assert data.from_arrow(pa.table({"x": [1, 2]})).take() == [{"x": 1}, {"x": 2}]
    assert data.from_numpy([np.arange(3), np.arange(2)]).random_shuffle().count() == 5
    assert data.from_items([1, 2]).take() == [{"item": 1}, {"item": 2}]
    types = pa.schema([("x", pa.int64()), ("s", pa.string())])
    empty = data.from_arrow(types.empty_table())
    assert empty.count() == 0 and empty.schema().base_schema == types and empty.columns() == ["x", "s"]
    with pytest.raises(ValueError, match="data frames"):
        data.from_pandas([1])


def test_data_sets_of_torch():
    import torch.utils.data as torch_data

    class Stream(torch_data.IterableDataset):
        def __iter__(self):
            return iter(range(10))

    class Counted(Stream):
        def __len__(self):
            return 10

    assert ids(data.from_torch(Counted()), "item") == list(range(10))
    pairs = torch_data.TensorDataset(*np.split(__import__("torch").arange(8).reshape(4, 2), 2, axis=1))
    assert len(data.from_torch(pairs).take(4)[3]["item"]) == 2
    assert [ids(one, "item") for one in data.from_torch(Stream()).streaming_split(2, equal=True)] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
    ]
    with pytest.raises(ValueError, match="read only once"):
        data.from_torch(iter([1, 2]))


def test_what_is_wrong_with_a_file_names_it(tables):
    dataset = data.read_parquet(str(tables))
    assert dataset.count() == 500
    (tables / "3.parquet").write_bytes(b"PAR1junk")
    for read in (dataset.take_all, data.read_parquet(str(tables)).count):
        with pytest.raises(ValueError, match="/3.parquet: "):
            read()
    (tables / "3.parquet").unlink()
    (tables / "bad.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match="Failed to read CSV file: .*/bad.csv: "):
        data.read_csv(str(tables / "bad.csv")).take()
    with pytest.raises(FileNotFoundError, match="/3.parquet"):
        dataset.take_all()


@pytest.mark.parametrize("where", ["pieces", "read"])
def test_an_error_that_passes_is_waited_for_and_no_row_comes_twice(tables, monkeypatch, where):
    monkeypatch.setattr(data.files, "PAUSE_S", 0.001)
    monkeypatch.setattr(data.files, "PAUSE_MOST_S", 0.001)
    context = data.DataContext()
    monkeypatch.setattr(data.DataContext, "_current", context)
    failures, real, words = [], getattr(data.files.Parquet, where), "AWS Error SLOW_DOWN during GetObject"

    def failing(self, source, path, *piece):
        yield from itertools.islice(real(self, source, path, *piece), 2)
        if path.endswith("2.parquet") and len(failures) < 3:
            failures.append(path)
            raise OSError(words)
        yield from itertools.islice(real(self, source, path, *piece), 2, None)

    monkeypatch.setattr(data.files.Parquet, where, failing)
    assert ids(data.read_parquet(str(tables), batch_size=10)) == list(range(500)) and len(failures) == 3
    failures.clear()
    words = "the disk is gone"
    with pytest.raises((OSError, ValueError), match="the disk is gone"):
        ids(data.read_parquet(str(tables), batch_size=10))
    assert len(failures) == 1
    context.retried_io_errors.append("the disk is")
    assert ids(data.read_parquet(str(tables), batch_size=10)) == list(range(500)) and len(failures) == 3
    monkeypatch.setattr(data.files, "TRIES", 2)
    failures.clear()
    with pytest.raises((OSError, ValueError), match="the disk is gone"):
        ids(data.read_parquet(str(tables), batch_size=10))


def test_what_would_leave_rows_out_is_refused_and_not_passed_over(tables):
    with pytest.raises(NotImplementedError, match=r"read_parquet\(filter=...\).*use `filter\(expr=...\)`"):
        data.read_parquet(str(tables), filter=pyarrow.compute.field("id") > 3)
    with pytest.raises(NotImplementedError, match=r"read_parquet\(include_row_hash=...\).*map_batches"):
        data.read_parquet(str(tables), include_row_hash=True)
    with pytest.raises(NotImplementedError, match="`partition_filter`.*name the files"):
        data.read_csv(str(tables), partition_filter=len)
    assert data.read_parquet(str(tables), filter=None, partition_filter=None).count() == 500


def test_what_is_no_path_and_no_table(place):
    with pytest.raises(ValueError, match="`paths` must be a path, not int"):
        data.read_parquet(3)
    with pytest.raises(ValueError, match="`path` must be a path, not int"):
        data.range(3).write_parquet(3)
    with pytest.raises(ValueError, match="from_arrow takes tables of pyarrow, not builtins.int"):
        data.from_arrow(3)
