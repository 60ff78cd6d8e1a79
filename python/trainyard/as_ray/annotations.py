"""`ray.util.annotations`: marks that a program puts on its own functions. They change nothing."""

from __future__ import annotations

from typing import Any, Callable


class RayDeprecationWarning(DeprecationWarning):
    """The class of Ray's warnings; Trainyard warns with DeprecationWarning itself."""


def _mark(*args: Any, **kwargs: Any) -> Any:
    """A decorator with or without arguments that gives back what it decorates."""
    if len(args) == 1 and not kwargs and callable(args[0]):
        return args[0]
    return lambda marked: marked


PublicAPI: Callable = _mark
DeveloperAPI: Callable = _mark
Deprecated: Callable = _mark
