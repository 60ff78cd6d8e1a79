"""Metrics come back as they were given."""

import datetime
import json
import math
import sys
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
    ],
)
def test_round_trip(value):
    text = metrics.dump(value)
    assert "\n" not in text and metrics.load(text) == value


def test_not_a_number_and_numpy():
    assert math.isnan(metrics.load(metrics.dump({"loss": math.nan}))["loss"])
    text = metrics.dump(
        {"a": numpy.float32(0.5), "b": numpy.int64(3), "c": numpy.bool_(True), "d": numpy.float64("nan")}
    )
    back = metrics.load(text)
    assert (back["a"], back["b"], back["c"]) == (0.5, 3, True) and math.isnan(back["d"])
    assert type(json.loads(text)["b"]) is int
    assert (metrics.load(metrics.dump({"x": numpy.arange(3)}))["x"] == numpy.arange(3)).all()
    assert metrics.load(metrics.dump({"pair": (1, 2)})) == {"pair": [1, 2]}


def test_what_is_no_metrics():
    with pytest.raises(TypeError, match="dict"):
        metrics.dump([1])
    with pytest.raises(ValueError, match="name 1"):
        metrics.dump({1: 2})
    with pytest.raises(ValueError, match="lock.*cannot be pickled"):
        import threading

        metrics.dump({"lock": threading.Lock()})


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
