"""What data sets have for preparing them: columns by expressions, groups and what they come to, files."""

import os

import numpy as np
import pytest
from trainyard import data
from trainyard.data import aggregate
from trainyard.data.expression import col, lit
from trainyard.data.writing import FilenameProvider, SaveMode

pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")


@pytest.fixture
def rows():
    """k: 0, 1, 2, 0, ..; v: 0.0 to 9.0; s: a, b, a, .."""
    return data.range(10, override_num_blocks=3).map(
        lambda row: {"k": row["id"] % 3, "v": float(row["id"]), "s": "ab"[row["id"] % 2]}
    )


@pytest.mark.parametrize(
    "expression, expected",
    [
        (col("id") * 2 + 1, [1, 3, 5, 7]),
        (10 - col("id"), [10, 9, 8, 7]),
        (col("id") / 2, [0, 0, 1, 1]),  # whole numbers, as in pyarrow
        (-col("id") / 2, [0, 0, -1, -1]),
        (col("id") / 2.0, [0, 0.5, 1, 1.5]),
        (col("id") // 2, [0, 0, 1, 1]),
        (lit("x"), ["x"] * 4),
        ((col("id") - 2).abs(), [2, 1, 0, 1]),
        (col("id").power(2).alias("other"), [0, 1, 4, 9]),
        ((col("id") > 0) & ~col("id").is_in([2]), [False, True, False, True]),
        (col("id").not_in([1]) | (col("id") == 1), [True] * 4),
        (col("id").is_null(), [False] * 4),
        (col("id").cast("string"), ["0", "1", "2", "3"]),
    ],
)
def test_a_column_by_an_expression(expression, expected):
    dataset = data.range(4).with_column("made", expression)
    assert [row["made"] for row in dataset.take_all()] == expected
    assert dataset.columns() == ["id", "made"]


NULLS = [{"n": 1, "t": "a"}, {"n": None, "t": None}, {"n": -3, "t": "b"}]


@pytest.mark.parametrize(
    "expression, expected",
    [
        (col("n") / 2, [0, None, -1]),
        (col("n") // 2, [0, None, -1]),
        (col("n") % 2, [1, None, -1]),
        (col("n").cast("string"), ["1", None, "-3"]),
        (col("n").cast("int32"), [1, None, -3]),
        (col("n") + 2**53, [2**53 + 1, None, 2**53 - 3]),
        (col("n") != 1, [False, None, True]),
        (~(col("n") == 1), [False, None, True]),
        ((col("n") > 0) | (col("n").is_null()), [True, True, False]),
        ((col("n") > 0) & lit(False), [False, False, False]),
        (col("n").is_in([1]), [True, False, False]),
        (col("n").is_in([1, "a"]), [True, False, False]),
        (col("n").is_not_null(), [True, False, True]),
        (col("t") + "x", ["ax", None, "bx"]),
        ("x" + col("t"), ["xa", None, "xb"]),
        (col("t") > "a", [False, None, True]),
        (-col("n"), [-1, None, 3]),
        ((col("n") / 8.0).round(2), [0.12, None, -0.38]),
    ],
)
def test_a_missing_value_stays_one(expression, expected):
    made = data.from_items(NULLS).with_column("made", expression).take_all()
    assert [row["made"] for row in made] == expected
    assert [type(row["made"]) for row in made] == list(map(type, expected))
    alone = data.from_items(NULLS).repartition(3).with_column("made", expression).take_all()
    assert [row["made"] for row in alone] == expected


@pytest.mark.parametrize("expression", [col("n") != 1, ~(col("n") == 1), "n != 1", "not n == 1", "not n > 0"])
def test_a_row_stays_only_where_the_expression_is_true(expression):
    assert [row["n"] for row in data.from_items(NULLS).filter(expr=expression).take_all()] == [-3]


def test_a_column_alone_keeps_its_type():
    import pyarrow as pa

    times = pa.array([1, None], pa.timestamp("us", "UTC"))
    dataset = data.from_arrow(pa.table({"ts": times, "f": [float("nan"), 1.0]}))
    made = dataset.with_columns({"a": col("ts"), "b": col("ts").alias("c"), "null": col("f").is_null()})
    assert made.schema().types[:4:2] == [times.type] * 2 and made.schema().types[3] == times.type
    assert [row["null"] for row in made.take_all()] == [False, False]


@pytest.mark.parametrize("sign", ["/", "//", "%"])
def test_whole_numbers_of_arrays_are_divided_towards_zero(sign):
    expected = {"/": [-1, -1, 0, 0], "//": [-1, -1, 0, 0], "%": [-1, 0, -1, 0]}[sign]
    numbers = data.from_numpy(np.array([-3, -2, -1, 0]))
    assert ids_of(numbers, eval(f"col('data') {sign} 2")) == expected
    with pytest.raises(ZeroDivisionError, match="divide by zero"):
        ids_of(numbers, eval(f"col('data') {sign} 0"))


def ids_of(dataset, expression):
    return [row["made"] for row in dataset.with_column("made", expression).take_all()]


@pytest.mark.parametrize("value", [b"a\0", [1, 2], None, "x", 3, 2.5, {"a": 1}])
def test_a_constant_is_the_same_in_each_row(value):
    assert ids_of(data.range(3), lit(value)) == [value] * 3


def test_a_constant_array():
    assert [row.tolist() for row in ids_of(data.range(2), lit(np.array([1, 2, 3])))] == [[1, 2, 3]] * 2


def test_several_columns_are_of_those_that_were_there():
    dataset = data.range(2).with_columns({"id": col("id") + 10, "old": col("id")})
    assert dataset.take_all() == [{"id": 10, "old": 0}, {"id": 11, "old": 1}]


def test_a_part_without_rows_gets_no_column():
    some = data.range(9, override_num_blocks=3).filter(lambda row: row["id"] > 5).map(lambda row: {"x": row["id"]})
    assert [row["y"] for row in some.with_column("y", col("x") + 1).take_all()] == [7, 8, 9]


def test_expressions_filter_too():
    assert [row["id"] for row in data.range(9).filter(expr=(col("id") > 5) & (col("id") != 7)).take_all()] == [6, 8]


@pytest.mark.parametrize(
    "wrong, error, words",
    [
        (lambda: data.range(2).with_column("x", 3), TypeError, "expects an expression for 'x'"),
        (lambda: data.range(2).with_column("x", col("id"), nothing=1), TypeError, r"Dataset.with_column\(\) got"),
        (lambda: data.range(2).with_columns([col("id")]), TypeError, "must be mappings"),
        (lambda: data.range(2).with_column("x", col("y")).take_all(), KeyError, "no column 'y'"),
        (lambda: data.range(2).with_column("x", col("id") / 0).take_all(), ZeroDivisionError, "divide by zero"),
        (lambda: bool(col("id") > 3), TypeError, "`&` for and"),
        (lambda: data.range(2).with_column("x", col("id").str.upper()).take_all(), NotImplementedError, "utf8_upper"),
    ],
)
def test_wrong_expressions(wrong, error, words):
    with pytest.raises(error, match=words):
        wrong()


def test_groups_come_in_the_order_of_their_keys(rows):
    shuffled = rows.random_shuffle(seed=3)
    assert shuffled.groupby("k").sum("v").take_all() == [
        {"k": 0, "sum(v)": 18.0},
        {"k": 1, "sum(v)": 12.0},
        {"k": 2, "sum(v)": 15.0},
    ]
    assert [(row["s"], row["k"], row["count()"]) for row in shuffled.groupby(["s", "k"]).count().take_all()] == [
        ("a", 0, 2), ("a", 1, 1), ("a", 2, 2), ("b", 0, 2), ("b", 1, 2), ("b", 2, 1)
    ]  # fmt: skip
    assert rows.groupby("s").max(["v", "k"]).take_all() == [
        {"s": "a", "max(v)": 8.0, "max(k)": 2},
        {"s": "b", "max(v)": 9.0, "max(k)": 2},
    ]
    assert rows.groupby(None).min("v").take_all() == [{"min(v)": 0.0}]
    assert rows.drop_columns("s").groupby("k").mean().columns() == ["k", "mean(v)"]
    assert data.range(0).groupby("id").count().take_all() == []


def test_aggregations(rows):
    product = aggregate.AggregateFn(
        init=lambda key: 1, accumulate_row=lambda so_far, row: so_far * (row["k"] + 1), merge=lambda a, b: a * b, name="product"
    )
    length = aggregate.AggregateFn(
        init=lambda key: key, accumulate_block=lambda so_far, table: f"{so_far}{table.num_rows}", merge=None, name="length"
    )
    found = rows.groupby("s").aggregate(
        aggregate.Count(),
        aggregate.Std("v", ddof=0),
        aggregate.Quantile("v", q=0.25),
        aggregate.Unique("k"),
        aggregate.CountDistinct("k"),
        aggregate.AsList("v"),
        product,
        length,
    )
    first = found.take(1)[0]
    assert first.pop("std(v)") == pytest.approx(8**0.5)
    assert first == {
        "s": "a", "count()": 5, "quantile(v)": 2.0, "unique(k)": [0, 2, 1], "count_distinct(k)": 3,
        "list(v)": [0.0, 2.0, 4.0, 6.0, 8.0], "product": 1 * 3 * 2 * 1 * 3, "length": "a5",
    }  # fmt: skip
    assert rows.aggregate(aggregate.Max("v"), aggregate.AbsMax("v", alias_name="m"), aggregate.Sum("v"), aggregate.Sum("v")) == {
        "max(v)": 9.0, "m": 9.0, "sum(v)": 45.0, "sum(v)_2": 45.0
    }  # fmt: skip
    assert data.range(0).aggregate(aggregate.Sum("id")) is None


def test_missing_values_in_groups():
    some = data.from_items([{"k": "x", "v": 1}, {"k": None, "v": 2}, {"k": "x", "v": None}, {"k": "a", "v": None}])
    assert some.groupby("k").sum("v").take_all() == [
        {"k": "a", "sum(v)": None},
        {"k": "x", "sum(v)": 1},
        {"k": None, "sum(v)": 2},
    ]
    assert [row["sum(v)"] for row in some.groupby("k").sum("v", ignore_nulls=False).take_all()] == [None, None, 2]
    assert some.aggregate(aggregate.Count("v"), aggregate.Count("v", ignore_nulls=True, alias_name="n")) == {"count(v)": 4, "n": 2}


def test_whole_numbers_stay_such_beside_missing_ones():
    big = 2**53
    some = data.from_items([{"k": big, "v": big + 1}, {"k": big + 1, "v": 2}, {"k": None, "v": None}, {"k": big, "v": None}])
    found = some.groupby("k").aggregate(aggregate.Sum("v"), aggregate.AsList("v")).take_all()
    assert [tuple(row.values()) for row in found] == [
        (big, big + 1, [big + 1, None]), (big + 1, 2, [2]), (None, None, [None])
    ]  # fmt: skip
    whole = some.aggregate(aggregate.Max("v"), aggregate.Min("v"), aggregate.Unique("v"))
    assert whole == {"max(v)": big + 1, "min(v)": 2, "unique(v)": [big + 1, 2, None]}
    assert list(map(type, whole.values())) == [int, int, list]
    assert some.max("v") == big + 1 and type(some.sum("v")) is int


def test_lists_and_arrays_in_groups():
    lists = data.from_items([{"k": 1, "v": [1, 2]}, {"k": 1, "v": None}, {"k": 1, "v": [1, 2]}, {"k": 1, "v": [3]}])
    of_lists = lists.groupby("k").aggregate(
        aggregate.AsList("v"), aggregate.Unique("v"), aggregate.CountDistinct("v"), aggregate.Count("v", ignore_nulls=True)
    )
    assert [*of_lists.take(1)[0].values()] == [1, [[1, 2], None, [1, 2], [3]], [[1, 2], [3], None], 2, 3]
    arrays = data.from_numpy(np.array([[1.0, np.nan], [3, 4], [3, 4]]))
    assert arrays.aggregate(aggregate.Count("data", ignore_nulls=True), aggregate.CountDistinct("data")) == {
        "count(data)": 3, "count_distinct(data)": 2
    }  # fmt: skip
    assert len(arrays.aggregate(aggregate.AsList("data"))["list(data)"]) == 3
    for dataset, name in ((lists, "v"), (arrays, "data")):
        with pytest.raises(TypeError, match=f"Sum\\('{name}'\\): lists and arrays"):
            dataset.aggregate(aggregate.Sum(name))
        with pytest.raises(TypeError, match=f"'{name}' has lists or arrays"):
            dataset.groupby(name).count().take_all()


def test_what_cannot_be_aggregated(rows):
    with pytest.raises(ValueError, match="there is no column 'typo'"):
        rows.aggregate(aggregate.Count("typo"))
    with pytest.raises(ValueError, match="Aggregate requires at least one aggregation"):
        rows.groupby("k").aggregate()
    with pytest.raises(ValueError, match="AbsMax needs `on`"):
        aggregate.AbsMax()
    mixed = data.from_items([{"k": 1}, {"k": "a"}])
    with pytest.raises(TypeError, match="'k' has values of several types, int, str"):
        mixed.groupby("k").count().take_all()


def test_a_function_of_each_group(rows):
    def centred(group):
        return group.assign(v=group["v"] - group["v"].mean())

    found = rows.groupby("s").map_groups(centred, batch_format="pandas").take_all()
    assert [row["v"] for row in found] == [-4, -2, 0, 2, 4] * 2
    sizes = rows.groupby("k").map_groups(lambda group: ({"n": np.array([one])} for one in (len(group["v"]), 0)))
    assert [row["n"] for row in sizes.take_all()] == [4, 0, 3, 0, 3, 0]
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        rows.groupby("k").map_groups(centred, nothing=1)
    with pytest.raises(ValueError, match="there is no column 'z'"):
        rows.groupby("z").count().take_all()
    with pytest.raises(ValueError, match="no such column"):
        data.range(3).groupby("z")
    with pytest.raises(TypeError, match="takes aggregations"):
        rows.groupby("k").aggregate("v")


def test_each_class_has_the_same_part_of_its_rows(rows):
    train, test = rows.train_test_split(0.4, stratify="s")
    assert [row["v"] for row in test.take_all()] == [6, 8, 7, 9]
    assert sorted(row["v"] for part in (train, test) for row in part.take_all()) == list(range(10))
    assert rows.train_test_split(4, stratify="s")[1].count() == 4
    with pytest.raises(ValueError, match="Cannot specify both"):
        rows.train_test_split(0.5, stratify="s", shuffle=True)


def test_a_row_stays_with_its_part_in_all_epochs(rows):
    train, test = rows.random_shuffle().train_test_split(0.4, stratify="s")
    iterators = train.iterator(), test.iterator()
    for _ in range(4):
        seen = [[row["v"] for row in iterator.iter_rows()] for iterator in iterators]
        assert sorted(seen[0] + seen[1]) == list(range(10))
        assert set(seen[1]) == {row["v"] for row in test.take_all()}


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_what_is_written_is_read_again(rows, tmp_path, form):
    getattr(rows, f"write_{form}")(tmp_path / "out")
    assert len(os.listdir(tmp_path / "out")) == 3
    again = getattr(data, f"read_{form}")(str(tmp_path / "out"))
    assert sorted((row["v"], row["k"], row["s"]) for row in again.take_all()) == [(n, n % 3, "ab"[n % 2]) for n in range(10)]


def test_a_column_is_written_as_an_array(tmp_path):
    data.range(5).write_numpy(tmp_path / "out", column="id")
    arrays = [np.load(tmp_path / "out" / name) for name in sorted(os.listdir(tmp_path / "out"))]
    assert np.concatenate(arrays).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="no column 'x'"):
        data.range(5).write_numpy(tmp_path / "other", column="x")


def test_files_by_rows_names_and_directories(rows, tmp_path):
    class Named(FilenameProvider):
        def get_filename_for_task(self, write_uuid, task_index):
            return f"mine-{task_index}.{self.file_format}"

    rows.write_csv(tmp_path / "sized", min_rows_per_file=4, filename_provider=Named(file_format="csv"))
    assert sorted(os.listdir(tmp_path / "sized")) == ["mine-0.csv", "mine-1.csv", "mine-2.csv"]
    rows.write_parquet(tmp_path / "parts", partition_cols=["s"], compression="none")
    assert sorted(os.listdir(tmp_path / "parts")) == ["s=a", "s=b"]
    assert sorted(data.read_parquet(str(tmp_path / "parts" / "s=a")).columns()) == ["k", "v"]


def test_what_is_there_already(rows, tmp_path):
    def files():
        return set(os.listdir(tmp_path / "out"))

    rows.write_json(tmp_path / "out")
    first = files()
    rows.write_json(tmp_path / "out", mode=SaveMode.IGNORE)
    assert files() == first
    with pytest.raises(ValueError, match="already exists"):
        rows.write_json(tmp_path / "out", mode="error")
    rows.write_json(tmp_path / "out")
    assert first < files()
    rows.write_json(tmp_path / "out", mode=SaveMode.OVERWRITE)
    assert len(files()) == 3 and not files() & first


def test_nothing_is_lost_where_overwriting_fails(rows, tmp_path):
    rows.write_parquet(tmp_path / "out")
    first = set(os.listdir(tmp_path / "out"))
    again = data.read_parquet(str(tmp_path / "out"))
    with pytest.raises(ValueError, match=r"materialize\(\) the data set first"):
        again.write_parquet(tmp_path / "out", mode="overwrite")
    for wrong in (rows.map(lambda row: {"x": 1 / row["v"]}), rows.map(lambda row: {"x": row["nothing"]})):
        with pytest.raises((ZeroDivisionError, KeyError)):
            wrong.write_parquet(tmp_path / "out", mode="overwrite")
        assert first <= set(os.listdir(tmp_path / "out"))
    again.materialize().write_parquet(tmp_path / "out", mode="overwrite", partition_cols=["s"])
    assert sorted(os.listdir(tmp_path / "out")) == ["s=a", "s=b"]
    rows.write_parquet(tmp_path / "out", mode="overwrite")
    assert data.read_parquet(str(tmp_path / "out")).count() == 10 and len(os.listdir(tmp_path / "out")) == 3


class Same(FilenameProvider):
    def get_filename_for_task(self, write_uuid, task_index):
        return "same"


@pytest.mark.parametrize(
    "form, options, words",
    [
        ("parquet", {"filename_provider": Same()}, "Write UUID missing"),
        ("csv", {"filename_provider": Same()}, "gave the name 'same' twice"),
        ("csv", {"min_rows_per_file": -1}, "`min_rows_per_file` must be a whole number from 1 on, not -1"),
        ("csv", {"max_rows_per_file": 0}, "`max_rows_per_file` must be"),
        ("csv", {"min_rows_per_file": 3, "max_rows_per_file": 2}, "must not be above"),
        ("csv", {"mode": "replace"}, "`mode` must be one of 'append', 'create', 'error', 'ignore', 'overwrite', not 'replace'"),
        ("parquet", {"partition_cols": ["k", "v", "s"]}, "leaves no column"),
    ],
)
def test_what_cannot_be_written_so(rows, tmp_path, form, options, words):
    with pytest.raises(ValueError, match=words):
        getattr(rows, f"write_{form}")(tmp_path / "out", **options)


def test_names_by_the_rows_in_a_file(rows, tmp_path):
    class First(FilenameProvider):
        def get_filename_for_block(self, block, write_uuid, task_index, block_index):
            return f"{self.dataset_uuid}-{block.column('v')[0].as_py():.0f}-{task_index}-{block_index}"

    rows.write_csv(tmp_path / "out", filename_provider=First("mine"))
    assert sorted(os.listdir(tmp_path / "out")) == ["mine-0-0-0", "mine-3-1-0", "mine-6-2-0"]


def test_directories_of_any_value(tmp_path):
    some = [{"k": "a/b c", "v": 1}, {"k": None, "v": 2}, {"k": "100%", "v": 3}]
    data.from_items(some).write_parquet(tmp_path / "out", partition_cols="k")
    assert sorted(os.listdir(tmp_path / "out")) == ["k=100%25", "k=__HIVE_DEFAULT_PARTITION__", "k=a%2Fb%20c"]
    found = data.read_parquet(str(tmp_path / "out")).take_all()
    assert sorted(found, key=lambda row: row["v"]) == [{"v": row["v"], "k": row["k"]} for row in some]


def test_how_files_are_opened(rows, tmp_path):
    import gzip

    rows.repartition(1).write_csv(f"local://{tmp_path}/out", arrow_open_stream_args={"compression": "gzip"})
    (name,) = os.listdir(tmp_path / "out")
    assert gzip.decompress((tmp_path / "out" / name).read_bytes()).startswith(b'"k","v","s"')
    with pytest.raises(FileNotFoundError):
        rows.write_csv(tmp_path / "none", try_create_dir=False)
    with pytest.raises(ValueError, match="no column 'x'"):
        rows.write_numpy(tmp_path / "arrays", column="x")
    assert os.listdir(tmp_path / "arrays") == []
    rows.write_parquet(tmp_path / "pages", arrow_open_stream_args={"compression": "gzip"})
    assert data.read_parquet(str(tmp_path / "pages")).count() == 10


def test_two_of_one_name_are_counted_apart(rows):
    few, many = (rows.groupby("k").map_groups(lambda group, n=n: {"n": np.arange(n)}) for n in (1, 2))
    assert few.union(many).split_at_indices([3])[1].count() == 6


def test_another_file_system(rows, tmp_path):
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    there = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    rows.write_parquet("some/where", filesystem=there)
    assert data.read_parquet("some/where", filesystem=there).count() == 10
    assert len(os.listdir(tmp_path / "some/where")) == 3


def test_numbers_by_their_intervals():
    from trainyard.data.preprocessors import CustomKBinsDiscretizer, UniformKBinsDiscretizer

    values = data.from_items([{"x": float(x)} for x in (0, 1, 4, 10, 25)])

    def binned(preprocessor):
        return [row["y"] for row in preprocessor.fit_transform(values).take_all()]

    assert binned(CustomKBinsDiscretizer(["x"], [-1, 1, 5, 30], output_columns=["y"])) == [0, 0, 1, 2, 2]
    assert binned(CustomKBinsDiscretizer(["x"], {"x": [0, 1, 5, 30]}, right=False, output_columns=["y"])) == [0, 1, 1, 2, 2]
    assert binned(UniformKBinsDiscretizer(["x"], 5, output_columns=["y"])) == [0, 0, 0, 1, 4]
    named = CustomKBinsDiscretizer(
        ["x"], [-1, 5, 30], dtypes={"x": pandas.CategoricalDtype(["low", "high"])}, output_columns=["y"]
    )
    assert binned(named) == ["low", "low", "low", "high", "high"]
    with pytest.raises(TypeError, match="`bins` must be an integer"):
        UniformKBinsDiscretizer(["x"], [1, 2]).fit(values)
    with pytest.raises(ValueError, match="CustomKBinsDiscretizer: there is no column 'z', only"):
        CustomKBinsDiscretizer(["z"], [0, 1]).transform(values).take_all()
    with pytest.raises(ValueError, match="must be present in it"):
        CustomKBinsDiscretizer(["x"], {"y": [1, 2]})


def test_lists_of_classes_words_and_powers():
    from trainyard.data.preprocessors import MultiHotEncoder, PowerTransformer, Tokenizer

    films = data.from_items([{"g": ["fun", "war", "fun"], "t": "a bc", "x": 3.0}, {"g": ["law"], "t": None, "x": -1.0}])
    encoder = MultiHotEncoder(["g"])
    assert [row["g"].tolist() for row in encoder.fit_transform(films).take_all()] == [[2, 0, 1], [0, 1, 0]]
    assert encoder.stats_ == {"unique_values(g)": {"fun": 0, "law": 1, "war": 2}}
    most = MultiHotEncoder(["g"], max_categories={"g": 1}, output_columns=["h"])
    assert [row["h"].tolist() for row in most.fit_transform(films).take_all()] == [[2], [0]]
    none = data.from_items([{"g": None}, {"g": ["fun", "law"]}])
    assert [row["g"].tolist() for row in MultiHotEncoder(["g"]).fit_transform(none).take_all()] == [[0, 0], [1, 1]]
    assert [row["t"] for row in Tokenizer(["t"]).transform(films).take_all()] == [["a", "bc"], None]
    assert Tokenizer(["t"], list).transform(films.limit(1)).take(1)[0]["t"] == list("a bc")
    powered = PowerTransformer(["x"], power=2).transform(films).take_all()
    assert [row["x"] for row in powered] == [(4**2 - 1) / 2, pytest.approx(-np.log(2))]
    boxed = PowerTransformer(["x"], power=0.5, method="box-cox").transform(films.limit(1)).take(1)[0]
    assert boxed["x"] == pytest.approx((3**0.5 - 1) / 0.5)
    with pytest.raises(ValueError, match="Method x is not supported"):
        PowerTransformer(["x"], power=1, method="x")


def test_counts_in_percent_several_quantiles_and_the_most_frequent():
    rows = data.from_items(
        [{"g": i % 2, "n": n, "w": w} for i, (n, w) in enumerate(zip([0, 5, None, 0, 9], ["a", "b", "a", None, "c"]))]
    )
    missing, zeros = aggregate.MissingValuePercentage("n"), aggregate.ZeroPercentage("n")
    assert rows.aggregate(missing, zeros) == {"missing_pct(n)": 20.0, "zero_pct(n)": 50.0}
    assert rows.aggregate(aggregate.ZeroPercentage("n", ignore_nulls=False, alias_name="z")) == {"z": 40.0}
    assert data.from_items([{"n": None}]).aggregate(aggregate.ZeroPercentage("n")) == {"zero_pct(n)": None}
    assert rows.groupby("g").aggregate(aggregate.ApproximateQuantile("n", [0, 0.5, 1])).take_all() == [
        {"g": 0, "approx_quantile(n)": [0, 0, 9]},
        {"g": 1, "approx_quantile(n)": [0, 0, 5]},
    ]
    assert rows.aggregate(aggregate.ApproximateTopK("w", k=1)) == {"approx_topk(w)": [{"w": "a", "count": 2}]}
    lists = data.from_items([{"x": [1, 1, None]}, {"x": [2, 1]}])
    most = aggregate.ApproximateTopK("x", k=3, encode_lists=True)
    assert lists.aggregate(most) == {"approx_topk(x)": [{"x": 1, "count": 3}, {"x": 2, "count": 1}]}
    assert lists.aggregate(aggregate.Unique("x", encode_lists=True)) == {"unique(x)": [1, 2, None]}
    assert lists.aggregate(aggregate.Unique("x", encode_lists=True, ignore_nulls=True)) == {"unique(x)": [1, 2]}


def test_an_aggregation_of_tables(rows):
    class Product(aggregate.AggregateFnV2):
        def __init__(self, on, ignore_nulls=True):
            super().__init__(f"product({on})", lambda: 10, on=on, ignore_nulls=ignore_nulls)

        def aggregate_block(self, block):
            return int(np.prod([value + 1 for value in block.column(self.get_target_column()).to_pylist()]))

        def combine(self, current_accumulator, new):
            return current_accumulator * new

        def finalize(self, accumulator):
            return -accumulator

    assert [row["product(k)"] for row in rows.groupby("s").aggregate(Product("k")).take_all()] == [-18, -12]
    assert rows.limit(3).aggregate(Product("k", ignore_nulls=False)) == {"product(k)": -60}
    with pytest.raises(ValueError, match="Non-empty string"):
        aggregate.AggregateFnV2("", lambda: 0, on=None, ignore_nulls=True)
