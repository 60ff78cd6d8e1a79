"""Expressions for columns of one kind, and by functions of a user's; what an expression is made of."""

import datetime

import pytest
from trainyard import data
from trainyard.data.datatype import DataType
from trainyard.data.expression import ColumnExpr, UDFExpr, col, lit, random, udf, uuid
from trainyard.data.operations import Operation

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

ROWS = [
    {"text": "Ann Lee", "at": datetime.datetime(2024, 5, 6, 17, 8, 9), "numbers": [3, 1, 2], "record": {"a": 1, "b": "x"}},
    {"text": None, "at": None, "numbers": None, "record": None},
    {"text": "bob", "at": datetime.datetime(1999, 12, 31, 2), "numbers": [5], "record": {"a": 2, "b": "y"}},
]


def made(expression, rows=ROWS):
    return [row["made"] for row in data.from_items(rows).with_column("made", expression).take_all()]


@pytest.mark.parametrize(
    "expression, expected",
    [
        (col("text").str.upper(), ["ANN LEE", None, "BOB"]),
        (col("text").str.len(), [7, None, 3]),
        (col("text").str.contains("b"), [False, None, True]),
        (col("text").str.starts_with("ann", ignore_case=True), [True, None, False]),
        (col("text").str.match("A%e"), [True, None, False]),
        (col("text").str.replace("o", "0"), ["Ann Lee", None, "b0b"]),
        (col("text").str.replace_regex("[aeo]+", "-"), ["Ann L-", None, "b-b"]),
        (col("text").str.split(" "), [["Ann", "Lee"], None, ["bob"]]),
        (col("text").str.slice(0, 2), ["An", None, "bo"]),
        (col("text").str.strip("b"), ["Ann Lee", None, "o"]),
        (col("text").str.rstrip("b").str.lstrip(), ["Ann Lee", None, "bo"]),
        (col("text").str.pad(5, "*", side="left"), ["Ann Lee", None, "**bob"]),
        (col("text").str.rpad(5), ["Ann Lee", None, "bob  "]),
        (col("text").str.extract(r"(?P<first>\w)"), [{"first": "A"}, None, {"first": "b"}]),
        (col("text").str.len() + 1 > 4, [True, None, False]),
        (col("at").dt.year(), [2024, None, 1999]),
        (col("at").dt.strftime("%d.%m."), ["06.05.", None, "31.12."]),
        (col("at").dt.floor("day"), [datetime.datetime(2024, 5, 6), None, datetime.datetime(1999, 12, 31)]),
        (col("at").dt.round("day"), [datetime.datetime(2024, 5, 7), None, datetime.datetime(1999, 12, 31)]),
        (col("numbers").list.len(), [3, None, 1]),
        (col("numbers").list.get(0), [3, None, 5]),
        (col("numbers").list[-1], [2, None, 5]),
        (col("numbers").list[0:2], [[3, 1], None, [5]]),
        (col("numbers").list.sort(order="descending"), [[3, 2, 1], None, [5]]),
        (col("record").struct["b"], ["x", None, "y"]),
        (col("record").struct.field("a") * 10, [10, None, 20]),
    ],
)
def test_columns_of_one_kind(expression, expected):
    assert made(expression) == expected


def test_lists_of_lists_maps_and_arrays():
    lists = [{"x": [[1], [2, 3]]}, {"x": [[], None]}, {"x": None}]
    assert made(col("x").list.flatten(), lists) == [[1, 2, 3], [], None]
    maps = data.from_arrow(pa.table({"x": pa.array([{"a": 1}, {}, None], pa.map_(pa.string(), pa.int64()))}))
    both = maps.with_columns({"keys": col("x").map.keys(), "values": col("x").map.values()}).take_all()
    assert [(row["keys"], row["values"]) for row in both] == [(["a"], [1]), ([], []), (None, None)]
    pairs = [{"x": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]}]
    assert made(col("x").map.values(), pairs) == [[1, 2]]
    fixed = data.from_arrow(pa.table({"x": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))}))
    assert [row["y"] for row in fixed.with_column("y", col("x").arr.to_list()).take_all()] == [[1, 2], [3, 4]]


def test_functions_of_a_user():
    objects = []

    @udf(DataType.int64())
    def larger(x, y, by=1):
        assert isinstance(x, pa.Array)
        return pc.add(pc.add(x, y), by)

    @udf(return_dtype=DataType.string())
    class Named:
        def __init__(self, word):
            objects.append(word)
            self.word = word

        def __call__(self, x):
            words = [f"{self.word}{one}" for one in x.to_pylist()]
            return words if self.word == "!" else pa.array(words)

    counted = data.range(4, override_num_blocks=2).with_column("y", larger(col("id"), col("id") * 2, by=lit(5)) - 5)
    assert [row["y"] for row in counted.take_all()] == [0, 3, 6, 9]
    named = data.range(4, override_num_blocks=4).with_column("y", Named("x")(col("id")))
    assert [row["y"] for row in named.take_all()] == ["x0", "x1", "x2", "x3"] and objects == ["x"]
    with pytest.raises(TypeError, match="Named.* returned invalid type list. Expected type: pandas.Series, numpy.ndarray"):
        data.range(2).with_column("y", Named("!")(col("id"))).take_all()
    with pytest.raises(ValueError, match="needs at least one expression"):
        larger(1, 2)


def test_a_function_that_is_awaited():
    @udf(DataType.int64())
    async def double(x):
        return pc.multiply(x, 2)

    assert [row["y"] for row in data.range(3).with_column("y", double(col("id"))).take_all()] == [0, 2, 4]


def test_numbers_and_names_that_are_drawn():
    rows = data.range(100, override_num_blocks=4).with_columns({"r": random(seed=3), "u": random(), "id2": uuid()})
    once, again = rows.take_all(), rows.take_all()
    assert [row["r"] for row in once] == [row["r"] for row in again]
    assert [row["u"] for row in once] != [row["u"] for row in again]
    assert len({row["r"] for row in once}) == len({row["id2"] for row in once + again}) // 2 == 100
    assert all(0 <= row["r"] < 1 for row in once)


def test_what_an_expression_is_made_of():
    total = (col("a") + 1).alias("b")
    assert total.name == "b" and total.expr.op is Operation.ADD and total.expr.right.value == 1
    assert isinstance(total.expr.left, ColumnExpr) and total.expr.left.name == "a"
    assert total.structurally_equals((col("a") + 1).alias("b"))
    assert not total.structurally_equals((col("a") + 1.0).alias("b"))
    assert not total.structurally_equals((col("a") - 1).alias("b")) and not total.structurally_equals(total.expr)
    upper = col("a").str.upper()
    assert isinstance(upper, UDFExpr) and upper.structurally_equals(col("a").str.upper())
    assert not upper.structurally_equals(col("a").str.lower())
    assert lit(3).data_type == DataType.int64() and col("a").is_null().data_type == DataType.bool()


@pytest.mark.parametrize(
    "wrong, error, words",
    [
        (lambda: col("a").str.shout(), AttributeError, "'Text' object has no attribute 'shout'"),
        (lambda: col("a").str.pad(3, side="up"), ValueError, "side must be"),
        (lambda: col("a").list["x"], TypeError, "must be integers or slices"),
        (lambda: col("a").list.sort(order="up"), ValueError, "'ascending' or 'descending', got 'up'"),
        (lambda: made(col("text").list.flatten()), TypeError, "requires a list column"),
        (lambda: made(col("numbers").list.flatten()), TypeError, "elements are also lists"),
        (lambda: made(col("numbers").list.len() + "x"), TypeError, "string-like pyarrow columns .* not int32"),
        (lambda: made(col("text").arr.to_list()), TypeError, "only be called on list-like columns"),
        (lambda: made(col("text").map.keys()), TypeError, "columns of maps"),
        (lambda: DataType("int"), TypeError, "DataType supports only"),
    ],
)
def test_what_is_no_expression(wrong, error, words):
    with pytest.raises(error, match=words):
        wrong()


def test_types_of_columns():
    assert DataType.from_arrow(pa.list_(pa.int64())) == DataType.list(DataType.int64())
    assert DataType.from_numpy("float32").to_arrow_dtype() == pa.float32()
    assert DataType.int32().to_numpy_dtype() == "int32" and DataType.string().to_numpy_dtype() == "O"
    assert DataType(int).to_python_type() is int and DataType(int).to_arrow_dtype([1]) == pa.int64()
    assert DataType.temporal("timestamp", unit="ms").to_arrow_dtype() == pa.timestamp("ms")
    assert DataType.large_list(DataType.int8()).is_list_type() and not DataType.int8().is_list_type()
    assert DataType.int8().is_integer_type() and DataType.float64().is_numerical_type() and DataType.string().is_string_type()
    assert repr(DataType.int64()) == "DataType(arrow:int64)"
