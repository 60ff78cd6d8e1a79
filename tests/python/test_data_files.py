"""Data sets from files, and from what other libraries hold."""

import json

import numpy as np
import pytest
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
    with pytest.raises(ValueError, match="data frames"):
        data.from_pandas([1])


def test_data_sets_of_torch():
    import torch.utils.data as torch_data

    class Stream(torch_data.IterableDataset):
        def __iter__(self):
            return iter(range(10))

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
    with pytest.raises(FileNotFoundError, match="/3.parquet"):
        dataset.take_all()


def test_what_would_leave_rows_out_is_refused_and_not_passed_over(tables):
    with pytest.raises(NotImplementedError, match=r"read_parquet\(filter=...\).*use `filter\(expr=...\)`"):
        data.read_parquet(str(tables), filter=pyarrow.compute.field("id") > 3)
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
