"""Metrics on their way: JSON values as they are, other objects pickled inside the JSON, and back again."""

from __future__ import annotations

import json
import sys
from typing import Any

PICKLE = "$pickle"
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_PLAIN = frozenset((float, bool, type(None)))
_INTEGER_MAX = 2**63
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def dump(metrics: dict[str, Any]) -> str:
    """The metrics as a JSON object on one line. TypeError for what is no dict, ValueError for a tensor inside, or an
    object that cannot be pickled."""
    if type(metrics) is dict and _is_flat(metrics):
        return _encode(metrics)
    if not isinstance(metrics, dict):
        raise TypeError(f"`metrics` must be a dict of names to values, not {type(metrics).__name__}")
    for name in metrics:
        if not isinstance(name, str):
            raise ValueError(f"`metrics`: the name {name!r} must be text, not {type(name).__name__}")
    return _encode({name: _plain(value, name) for name, value in metrics.items()})


def find(metrics: dict[str, Any], name: str) -> Any:
    """The metric of this name, "a/b" is also b in the dict a; None where there is none."""
    if name in metrics:
        return metrics[name]
    found: Any = metrics
    for part in name.split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _is_flat(metrics: dict) -> bool:
    """Whether JSON gives every value back as it is."""
    for name, value in metrics.items():
        kind = type(value)
        if type(name) is not str:
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


def _plain(value: Any, where: str) -> Any:
    """`value` as JSON can carry it; `where` names it in a refusal."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int and -_INTEGER_MAX <= value < _INTEGER_MAX:
        return value
    if kind is str and _is_plain_text(value):
        return value
    if kind is dict and all(type(name) is str and name != PICKLE and _is_plain_text(name) for name in value):
        return {name: _plain(item, f"{where}.{name}") for name, item in value.items()}
    if kind in (list, tuple):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    _refuse_tensor(value, where)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        item = value.item()
        return _plain(item, where) if not isinstance(item, numpy.generic) else _pickled(value, where)
    return _pickled(value, where)


def _refuse_tensor(value: Any, where: str) -> None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "is_tensor"):
        return
    if torch.is_tensor(value):
        raise ValueError(
            f"`metrics`: {where} is a torch tensor; convert it to a number with `.item()` (or `.tolist()`), so that no "
            "device is needed to read it"
        )
    if isinstance(value, dict):
        for name, item in value.items():
            _refuse_tensor(item, f"{where}[{name!r}]")
    elif isinstance(value, (list, tuple, set, frozenset)):
        for i, item in enumerate(value):
            _refuse_tensor(item, f"{where}[{i}]")


def _pickled(value: Any, where: str) -> dict[str, str]:
    import base64

    import cloudpickle

    try:
        return {PICKLE: base64.b64encode(cloudpickle.dumps(value)).decode()}
    except Exception as error:
        raise ValueError(
            f"`metrics`: {where}, a {type(value).__name__}, cannot be pickled: {error}"
        ) from error


def load(text: str) -> Any:
    """What `dump` was given, from its JSON."""
    return restore(json.loads(text))


def restore(value: Any) -> Any:
    """The same, from JSON already parsed."""
    if isinstance(value, str):
        return _NOT_FINITE.get(value, value)
    if isinstance(value, list):
        return [restore(item) for item in value]
    if isinstance(value, dict):
        if len(value) == 1 and PICKLE in value:
            return _unpickled(value[PICKLE])
        return {name: restore(item) for name, item in value.items()}
    return value


def _unpickled(text: str) -> Any:
    import base64
    import pickle

    try:
        return pickle.loads(base64.b64decode(text))
    except Exception as error:
        return f"<a value that cannot be unpickled here: {error}>"
