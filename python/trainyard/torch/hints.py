"""What a training function is going to import sooner or later, guessed from its code.

The first optimizer, and the first model that is wrapped, make torch import its compiler: a second or more of CPU, in each
worker, and the memory for it. A fork template that has imported it spares them that; a wrong guess costs time only.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any, Callable, Iterator

COMPILER = "trainyard.torch.compiler"
_NAMES = {
    "prepare_model",
    "DistributedDataParallel",
    "DDP",
    "FullyShardedDataParallel",
    "FSDP",
    "fully_shard",
}
_PARTS = {"optim", "_dynamo", "lightning", "transformers", "accelerate"}
_LIBRARIES = {"torch", "trainyard", "numpy", "builtins"}
_MOST = 200  # functions looked at


def needs_compiler(function: Callable[..., Any]) -> bool:
    """Whether the function, or one that it calls by name, seems to make an optimizer or to wrap a model."""
    seen: set[int] = set()
    waiting: list[Any] = [function]
    while waiting and len(seen) < _MOST:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _tells(one):
            return True
        if not _is_foreign(one):
            waiting += _held(one)
    return False


def _tells(one: Any) -> bool:
    if isinstance(one, types.CodeType):
        return any(name in _NAMES or not _PARTS.isdisjoint(name.split(".")) for name in one.co_names)
    home = one.__name__ if isinstance(one, types.ModuleType) else getattr(one, "__module__", None)
    return isinstance(home, str) and not _PARTS.isdisjoint(home.split("."))


def _is_foreign(one: Any) -> bool:
    """Whether it is of a library whose code says nothing of what the user's does."""
    if isinstance(one, functools.partial):
        return False
    root = str(getattr(one, "__module__", None)).partition(".")[0]
    return root in _LIBRARIES or root in sys.stdlib_module_names


def _held(one: Any) -> Iterator[Any]:
    """What is behind a callable: its code, the functions inside of it, and what its names stand for."""
    if isinstance(one, functools.partial):
        yield one.func
        yield from one.args
    elif isinstance(one, types.MethodType):
        yield one.__func__
    elif isinstance(one, types.FunctionType):
        yield one.__code__
        yield from _named(one)
        for cell in one.__closure__ or ():
            if cell != types.CellType():
                yield cell.cell_contents
    elif isinstance(one, types.CodeType):
        yield from (part for part in one.co_consts if isinstance(part, types.CodeType))
    elif isinstance(one, type):
        yield from vars(one).values()
    else:
        yield vars(type(one)).get("__call__")


def _named(function: types.FunctionType) -> Iterator[Any]:
    names = set(function.__code__.co_names)
    for part in _codes(function.__code__):
        names.update(part.co_names)
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, (types.FunctionType, type, types.ModuleType)):
            yield value


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield part
            yield from _codes(part)
