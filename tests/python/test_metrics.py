"""Metrics come back as they were given."""

import base64
import collections
import datetime
import decimal
import json
import math
import pickle
import sys
import threading
import types

import numpy
import pytest
from trainyard import metrics


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"loss": 0.5, "step": 3, "good": True, "none": None, "name": "x"},
        {"deep": {"a": [1, 2.5, {"b": None}]}},
        {"text": "grüß\n"},
        {"text": "NaN"},
        {"text": "a\0b"},
        {"text": "\udc80"},
        {"big": 2**63, "small": -(2**63)},
        {"by_class": {0: 0.5, 1: 0.25}},
        {"when": datetime.datetime(2026, 1, 2)},
        {"bytes": b"\0\xff"},
        {"set": {1, 2}},
        {"inf": math.inf, "minus": -math.inf},
        {"trick": {"$pickle": "no"}},
        {"deep": [{"$types": {"/deep": "tuple"}}]},
        {"a/b": {"~": ((1, (2, 3)), [4])}},
        {"pair": (1, math.inf, "NaN")},
        {"by_pair": {(0, 1): {2: b"3"}, None: "x"}},
        {
            "time": datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.timezone.utc),
            "day": datetime.date(2026, 1, 2),
        },
        {"took": datetime.timedelta(-1, 2, 3), "at": datetime.time(1, 2, 3, 4)},
        {
            "complex": 1 - 2j,
            "frozen": frozenset({1, 2}),
            "array": bytearray(b"x"),
            "exact": decimal.Decimal("0.10"),
        },
    ],
)
def test_round_trip(value):
    text = metrics.dump(value)
    back = metrics.load(text)
    assert "\n" not in text and back == value and repr(back) == repr(value)
    json.loads(text, parse_constant=str)


Point = collections.namedtuple("Point", "x y")


class Described:
    def __repr__(self):
        return "a description\udc80"


@pytest.mark.parametrize(
    "value, back",
    [
        (Point(1, 2), (1, 2)),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.Counter([1, 1]), {1: 2}),
        (Described(), "a description\\udc80"),
        (types.SimpleNamespace(a=1), "namespace(a=1)"),
        (numpy.array([Described()]), "array([a description\\udc80], dtype=object)"),
        (types.SimpleNamespace(a="x" * 9999), "namespace(a='" + "x" * 4080 + "..."),
    ],
)
def test_what_has_no_word_comes_back_as_what_it_is_made_of(value, back):
    assert repr(metrics.load(metrics.dump({"value": value}))["value"]) == repr(back)


def test_integers_of_any_size():
    assert metrics.load(metrics.dump({"huge": -(7**9999)}))["huge"] == -(7**9999)
    large = {"seed": 2**64 + 1, "deep": [-(10**300)], "numpy": numpy.uint64(2**64 - 1)}
    text = metrics.dump(large)
    assert metrics.load(text) == large and type(metrics.load(text)["numpy"]) is numpy.uint64
    told = json.loads(text)  # as whoever knows no types reads it
    assert (told["seed"], told["deep"], told["numpy"]) == (2**64 + 1, [-(10**300)], 2**64 - 1)


def test_not_a_number_and_numpy():
    assert math.isnan(metrics.load(metrics.dump({"loss": math.nan}))["loss"])
    text = metrics.dump(
        {"a": numpy.float32(0.5), "b": numpy.int64(3), "c": numpy.bool_(True), "d": numpy.float64("nan")}
    )
    back = metrics.load(text)
    assert (back["a"], back["b"], back["c"]) == (0.5, 3, True) and math.isnan(back["d"])
    assert type(json.loads(text)["b"]) is int
    assert (metrics.load(metrics.dump({"x": numpy.arange(3)}))["x"] == numpy.arange(3)).all()
    assert [type(value) for value in back.values()] == [
        numpy.float32,
        numpy.int64,
        numpy.bool_,
        numpy.float64,
    ]


@pytest.mark.parametrize(
    "value",
    [
        numpy.float16(0.5),
        numpy.uint64(2**64 - 1),
        numpy.complex64(1j),
        numpy.datetime64("2026-01-02T03:04"),
        numpy.timedelta64(3, "ms"),
        numpy.zeros((2, 0, 3)),
        numpy.array([[True], [False]]),
        numpy.array([2**64 - 1, 1], dtype="uint64"),
        numpy.array([1j]),
        numpy.array([math.nan, -math.inf], dtype="float32"),
        numpy.array(["2026-01-02"], dtype="datetime64[D]"),
    ],
)
def test_numbers_and_arrays_of_numpy_keep_their_type(value):
    back = metrics.load(metrics.dump({"deep": [value]}))["deep"][0]
    assert (type(back), back.dtype, back.shape) == (type(value), value.dtype, value.shape)
    assert numpy.array_equal(back, value, equal_nan=value.dtype.kind == "f")


@pytest.mark.parametrize(
    "types",
    [
        3,
        [],
        {"/x": 3},
        {"/x": "os.system"},
        {"/x": "numpy.void"},
        {"/x": "numpy.core.multiarray.scalar"},
        {"/x": "datetime"},
        {"/x": "complex"},
        {"/x": "timedelta"},
        {"/x": "dict"},
        {"/x": "numpy"},
        {"/nowhere": "tuple", "": "tuple", "/": "set"},
    ],
)
def test_types_that_do_not_fit_change_nothing(types):
    text = json.dumps({"x": {"dtype": "O", "shape": [1 << 40], "bytes": "x", "values": [1]}, "$types": types})
    assert metrics.load(text) == {"x": json.loads(text)["x"]}


class Trap:
    def __reduce__(self):
        return exec, ("raise SystemExit('code was run')",)


def test_nothing_that_is_read_is_unpickled():
    data = base64.b64encode(pickle.dumps(Trap())).decode()
    for value in ({"$pickle": data}, {"x": {"$pickle": data}}, {"x": data, "$types": {"/x": "pickle"}}):
        assert metrics.load(json.dumps(value)) == {k: v for k, v in value.items() if k != "$types"}


def test_what_is_no_metrics():
    with pytest.raises(TypeError, match="dict"):
        metrics.dump([1])
    with pytest.raises(ValueError, match="name 1"):
        metrics.dump({1: 2})
    with pytest.raises(ValueError, match=r"lock is a _thread.lock, which JSON has no form for"):
        metrics.dump({"lock": threading.Lock()})
    with pytest.raises(ValueError, match=r"\$types is taken"):
        metrics.dump({"$types": {}})
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested too deeply"):
        metrics.dump({"endless": endless})


class Tensor:
    pass


@pytest.mark.parametrize(
    "value",
    [
        Tensor(),
        [Tensor()],
        {"a": {"b": Tensor()}},
        (1, Tensor()),
        {1: Tensor()},
        {"a": {Tensor()}},
    ],
)
def test_tensors_are_refused_at_any_depth(value, monkeypatch):
    torch = types.ModuleType("torch")
    torch.is_tensor = lambda value: isinstance(value, Tensor)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(ValueError, match="item"):
        metrics.dump({"loss": value})
