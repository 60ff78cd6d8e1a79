"""Metrics on their way, as JSON alone: numbers stay numbers for whoever reads a run, and what else Python has is told beside them.

    {"loss": 0.5, "pair": [1, 2], "$types": {"/loss": "numpy.float32", "/pair": "tuple"}}

A key of `$types` is where in the metrics a value stands (a JSON pointer), its value one of the words below: `restore` knows these
words and no others, and names no class and no module. So a run's journal can be read by anybody, whoever wrote it.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import os
import re
import sys
from typing import Any, Callable

TYPES = "$types"
VALIDATION = "$validation"  # how the checkpoint of the report is to be validated, a dict; or how that ended, a text
_NOTES = {TYPES: "the types of the others", VALIDATION: "the checkpoint's validation"}
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_PLAIN = frozenset((float, bool, type(None)))
_INTEGER_MAX = 2**1023  # whoever reads JSON's numbers as doubles has these
_REPR_MOST = 4096  # characters
_NO_REPR = re.compile(r" at 0x[0-9a-fA-F]+>$")  # tells where the value is, not what
_NUMPY = frozenset("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split())
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def dump(metrics: dict[str, Any], validation: dict[str, Any] | str | None = None) -> str:
    """The metrics as a JSON object on one line, with what is noted of a validation. TypeError for what is no dict, ValueError for a
    tensor inside, or an object that has no form as text."""
    if validation is None and type(metrics) is dict and _is_flat(metrics):
        return _encode(metrics)
    if not isinstance(metrics, dict):
        raise TypeError(f"`metrics` must be a dict of names to values, not {type(metrics).__name__}")
    for name in metrics:
        if not isinstance(name, str):
            raise ValueError(f"`metrics`: the name {name!r} must be text, not {type(name).__name__}")
        if name in _NOTES:
            raise ValueError(f"`metrics`: the name {name} is taken for {_NOTES[name]}: choose another")
    types: dict[str, str] = {}
    noted = metrics if validation is None else {**metrics, VALIDATION: validation}
    try:
        plain = {str(name): _plain(value, _inside("", name), types) for name, value in noted.items()}
    except RecursionError:
        raise ValueError("`metrics`: values are nested too deeply, or hold themselves") from None
    return _encode({**plain, TYPES: types} if types else plain)


def find(metrics: dict[str, Any], name: str, in_lists: bool = False) -> Any:
    """The metric of this name, None where there is none; "a/b" is also b in the dict a, `in_lists` "a/0" the first of list a."""
    if name in metrics:
        return metrics[name]
    found: Any = metrics
    for part in name.split("/"):
        if isinstance(found, dict):
            found = found.get(part)
        elif in_lists and isinstance(found, (list, tuple)) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found


def unboxed(value: Any) -> Any:
    """A number of numpy as Python's; all else as it is."""
    return value.item() if getattr(value, "shape", None) == () else value


def score(metrics: dict[str, Any], name: str, order: str) -> tuple[bool, float]:
    """What the metric of this name counts for, more where it is better (`order` is "max" or "min"); least where it is no number."""
    value = unboxed(find(metrics, name))
    if not isinstance(value, (int, float)) or value != value:
        return False, 0
    return True, -value if order == "min" else value


def _is_flat(metrics: dict[str, Any]) -> bool:
    """Whether JSON gives every value back as it is."""
    for name, value in metrics.items():
        kind = type(value)
        if type(name) is not str or name in _NOTES:
            return False
        if kind in _PLAIN:
            continue
        if kind is int:
            if not -_INTEGER_MAX <= value < _INTEGER_MAX:
                return False
        elif kind is not str or not _is_plain_text(value):
            return False
    return True


def _is_plain_text(text: str) -> bool:
    """Whether the text is not one of those that stand for numbers, and is proper UTF-8 without a NUL."""
    if text in _NOT_FINITE or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _inside(place: str, name: Any) -> str:
    return f"{place}/{str(name).replace('~', '~0').replace('/', '~1')}"


# -- there


def _plain(value: Any, place: str, types: dict[str, str]) -> Any:
    """`value` as JSON can carry it; what its type was goes to `types`."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int and -_INTEGER_MAX <= value < _INTEGER_MAX:
        return value
    if kind is str and _is_plain_text(value):
        return value
    if kind is dict and all(type(name) is str and _is_plain_text(name) for name in value):
        return {name: _plain(item, _inside(place, name), types) for name, item in value.items()}
    if kind is list:
        return [_plain(item, _inside(place, i), types) for i, item in enumerate(value)]
    _refuse_tensor(value, place)
    word, form = _typed(value, place)
    if word is not None:
        types[place] = word
    return _plain(form, place, types)


def _typed(value: Any, place: str) -> tuple[str | None, Any]:
    """The word for what `value` is, None where its form says enough, and its form in JSON. Of a class derived from one of
    Python's the value is kept as Python's."""
    array = _as_array(value)  # first: numpy's float64 is derived from Python's float
    if array is not None:
        return array
    if isinstance(value, int):
        return (None, int(value)) if -_INTEGER_MAX <= value < _INTEGER_MAX else ("int", hex(value))
    if isinstance(value, str):
        return (None, str.__str__(value)) if _is_plain_text(value) else ("str", json.dumps(value))
    for kind, word, form in _FORMS:
        if isinstance(value, kind):
            return word, form(value)
    return None, _repr(value, place)


def _as_array(value: Any) -> tuple[str, Any] | None:
    """A number or an array of numpy's, or what can be made one; None for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is None or isinstance(value, type) or not hasattr(value, "__array__"):
        return None
    try:
        array = numpy.asarray(value)
        if (
            array.dtype.kind == "V" and array.dtype.names is None
        ):  # such as bfloat16, which is no type of numpy's own
            array = array.astype("float32")
    except Exception:
        return None
    name = array.dtype.name
    if name in _NUMPY and array.ndim == 0:
        return f"numpy.{name}", array.item()
    if name in _NUMPY:
        return "numpy", {"dtype": name, "shape": list(array.shape), "values": array.ravel().tolist()}
    if array.dtype.kind in "cmM":
        return "numpy", {
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "bytes": base64.b64encode(array.tobytes()).decode(),
        }
    return None


def _repr(value: Any, place: str) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<no repr: {error} at 0x0>"
    if _NO_REPR.search(text):
        kind = type(value)
        raise ValueError(
            f"`metrics`: {place[1:]} is a {kind.__module__}.{kind.__qualname__}, which JSON has no form for; give what it "
            "holds as numbers and text"
        )
    text = text if len(text) <= _REPR_MOST else text[: _REPR_MOST - 3] + "..."
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _refuse_tensor(value: Any, place: str) -> None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "is_tensor"):
        return
    if torch.is_tensor(value):
        raise ValueError(
            "Passing objects containing Torch tensors as metrics is not supported as it will throw an exception on "
            f"deserialization. `metrics`: {place[1:]} is a torch tensor: convert it to a number with `.item()` (or `.tolist()`)"
        )


# -- and back


def load(text: str) -> Any:
    """What `dump` was given, from its JSON."""
    return restore(json.loads(text))


def restore(value: Any) -> Any:
    """The same, from JSON already parsed. What the words do not fit stays as JSON has it."""
    if not isinstance(value, dict):
        return _restored(value, "", {})
    types = _types(value)
    return {
        name: _restored(item, _inside("", name), types) for name, item in value.items() if name not in _NOTES
    }


def validation(value: dict[str, Any]) -> dict[str, Any] | str | None:
    """What is noted of a validation in metrics from JSON."""
    noted: dict[str, Any] | str | None = _restored(
        value.get(VALIDATION), _inside("", VALIDATION), _types(value)
    )
    return noted


def _types(value: dict[str, Any]) -> dict[str, str]:
    types = value.get(TYPES)
    return types if isinstance(types, dict) else {}


def _restored(value: Any, place: str, types: dict[str, str]) -> Any:
    if isinstance(value, list):
        value = [_restored(item, _inside(place, i) if types else "", types) for i, item in enumerate(value)]
    elif isinstance(value, dict):
        value = {
            name: _restored(item, _inside(place, name) if types else "", types)
            for name, item in value.items()
        }
    elif isinstance(value, str):
        value = _NOT_FINITE.get(value, value)
    word = types.get(place)
    if not isinstance(word, str):
        return value
    try:
        return _number(word[6:], value) if word.startswith("numpy.") else _MADE[word](value)
    except Exception:
        return value


def _number(name: str, value: Any) -> Any:
    if name not in _NUMPY:
        return value
    import numpy

    return numpy.dtype(name).type(int(value) if isinstance(value, str) else value)


def _array(value: dict[str, Any]) -> Any:
    import numpy

    name = value["dtype"]
    if name in _NUMPY:
        return numpy.array(value["values"], dtype=name).reshape(value["shape"])
    if not re.fullmatch(r"[<>|=]?[cmM]\d+(\[\d*\w+\])?", name):
        return value
    made = numpy.frombuffer(base64.b64decode(value["bytes"]), dtype=name).reshape(value["shape"])
    return made.copy() if made.ndim else made[()]


# Class, word, form: the first class that fits counts.
_FORMS: tuple[tuple[Any, str | None, Callable[[Any], Any]], ...] = (
    (float, None, float),
    (tuple, "tuple", list),
    (list, None, list),
    (dict, "dict", lambda value: [[name, item] for name, item in value.items()]),
    (set, "set", list),
    (frozenset, "frozenset", list),
    (complex, "complex", lambda value: [value.real, value.imag]),
    (bytearray, "bytearray", lambda value: base64.b64encode(value).decode()),
    (bytes, "bytes", lambda value: base64.b64encode(value).decode()),
    (datetime.datetime, "datetime", lambda value: value.isoformat()),
    (datetime.date, "date", lambda value: value.isoformat()),
    (datetime.time, "time", lambda value: value.isoformat()),
    (datetime.timedelta, "timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    (decimal.Decimal, "decimal", str),
    (os.PathLike, None, os.fspath),
)

_MADE: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "str": json.loads,
    "tuple": tuple,
    "dict": dict,
    "set": set,
    "frozenset": frozenset,
    "complex": lambda parts: complex(*parts),
    "bytearray": lambda text: bytearray(base64.b64decode(text, validate=True)),
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "timedelta": lambda parts: datetime.timedelta(*parts),
    "decimal": decimal.Decimal,
    "numpy": _array,
}
