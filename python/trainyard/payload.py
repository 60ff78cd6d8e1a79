"""What travels to the workers: the training function, its config and the backend, as bytes; and back: what rank 0 returns.

The outer pickle holds plain settings, first of all where modules are found, so that the inner one, which holds the user's
objects, is only taken apart when its modules can be imported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import importlib
import inspect
import os
import pickle
import stat
import sys
import tempfile
import types
import warnings
from typing import Any, Callable, Iterator

VARIABLE = "TRAINYARD_PAYLOAD_FD"
prepare: list[str] = []  # functions, "module:name", that workers call before they take the user's objects apart
SENT_MAX = 31 << 20  # bytes; what is larger stays in the driver, where workers read it
_CACHED = type(functools.lru_cache(len))
_DEPTH = 4  # how far the search for what cannot be pickled goes
_ADVICE = "Make it inside the training function, or give what it is made of in `train_loop_config`."
_TRAVELLERS = {
    "function": ("`train_loop_per_worker`", _ADVICE),
    "config": ("`train_loop_config`", _ADVICE),
    "backend": ("`backend_config`", _ADVICE),
    "datasets": ("`datasets`", "Open it inside the function that needs it, or give a path in place of an open file."),
    "validation": ("`ValidationConfig.fn`", "Make it inside the function, or give it in `fn_kwargs`."),
    "defaults": ("`ValidationConfig.task_config.fn_kwargs`", "Give what it is made of."),
    "retry_exceptions": ("`ValidationConfig.ray_remote_kwargs`", "Give classes of exceptions."),
    "returned": ("the value that `train_loop_per_worker` returned", "Return what it is made of, or nothing."),
}


@dataclasses.dataclass
class Payload:
    """The training function and its company, in a worker. `datasets` are those of a trainer with their config, as `data.travel`
    sends them, or None. `facts` are plain: {"resources": {...}, "trainer_resources": {...}, "directory": where
    to start, or None, "defaults": what `init` was told in the driver, "returned": the place of a `Returned`, "exits_fail": as in
    defaults.Policy, "validates": whether checkpoints may be, "score": the metric that ranks them and its order, or None}."""

    function: Callable[..., Any]
    config: dict[str, Any] | None
    backend: Any
    facts: dict[str, Any]
    datasets: Any = None


def dump(
    function: Callable[..., Any], config: Any, backend: Any, facts: dict[str, Any], datasets: Any = None
) -> bytes:
    """The bytes of a payload. TypeError names the object that holds what cannot be pickled."""
    return dump_objects(
        {"function": function, "config": config, "backend": backend, "datasets": datasets}, facts
    )


def dump_objects(objects: dict[str, Any], facts: dict[str, Any]) -> bytes:
    """The user's objects with plain facts, as `load_objects` takes them. TypeError as by `dump`."""
    inner = pickled(objects)
    first = [facts["directory"]] if facts.get("directory") else []
    path = first + [_absolute(entry) for entry in sys.path]
    settings = {
        "path": path,
        "directory": _here(),
        "main": _main_file(),
        "facts": facts,
        "prepare": list(prepare),
    }
    return pickle.dumps((settings, inner), protocol=4)


def pickled(objects: dict[str, Any], take: Callable | None = None) -> bytes:
    """The bytes of objects, those of large buffers given to `take`. TypeError names what cannot be pickled."""
    try:
        return _pickled(objects, take)
    except Exception as error:
        raise TypeError(_refusal(objects, error)) from error


def _pickled(objects: Any, take: Callable | None = None) -> bytes:
    """As cloudpickle, but modules of a class of their own (torch.backends.cudnn is one) go by name as all modules do, and functions
    with a cache do not where workers would not find their name."""
    import io

    import cloudpickle

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, value: Any) -> Any:
            own = isinstance(value, types.ModuleType) and type(value) is not types.ModuleType
            if own and sys.modules.get(value.__name__) is value:
                return importlib.import_module, (value.__name__,)
            if isinstance(value, _CACHED) and (
                getattr(value, "__module__", None) in ("__main__", "__mp_main__")
                or "<locals>" in getattr(value, "__qualname__", "<locals>")
            ):
                return _cached, (value.__wrapped__, value.cache_parameters())
            return super().reducer_override(value)

    # In a child that multiprocessing has spawned this is what the program defines, and no other process has such a module.
    main = sys.modules.get("__mp_main__")
    if main is not None:
        cloudpickle.register_pickle_by_value(main)
    file = io.BytesIO()
    Pickler(file, protocol=5, buffer_callback=take).dump(objects)
    return file.getvalue()


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    return functools.lru_cache(**parameters)(function)


def file_of(fd: int) -> tuple[int, int] | None:
    """Which file a descriptor stands for; None where it is closed. A callback may close what is not its own, and open other files
    that have those numbers: whether it did is asked before such a descriptor is used again."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def close_file(fd: int, file: tuple[int, int] | None) -> None:
    """Closes the descriptor while it stands for that file."""
    if file_of(fd) == file is not None:
        os.close(fd)


@contextlib.contextmanager
def sendable(data: bytes) -> Iterator[bytes]:
    """What to send instead of `data`: itself when it is small; else where in this process workers find it, as long as the block
    lasts. It has no name that others could put something else under, and is gone with this process, however that ends."""
    if len(data) <= SENT_MAX:
        yield data
        return
    fd = nameless(data)
    file = file_of(fd)
    try:
        place = {"process": os.getpid(), "fd": fd, "file": file, "size": len(data)}
        del data
        yield pickle.dumps(place, protocol=4)
    finally:
        close_file(fd, file)


@contextlib.contextmanager
def lent(buffers: list, aligned: int) -> Iterator[tuple[dict[str, Any], list[tuple[int, int]]]]:
    """Buffers in a file without a name, as long as the block lasts: the place that `borrowed` takes, and where each is in it."""
    spans, at = [], 0
    for buffer in buffers:
        spans.append((at, buffer.nbytes))
        at += -(-buffer.nbytes // aligned) * aligned
    fd = _unnamed()
    file = file_of(fd)
    try:
        os.ftruncate(fd, at)
        for buffer, (start, _) in zip(buffers, spans):
            os.lseek(fd, start, os.SEEK_SET)
            _write(fd, buffer.cast("B") if buffer.nbytes else b"")
        yield {"process": os.getpid(), "fd": fd, "file": file, "size": at}, spans
    finally:
        close_file(fd, file)


def borrowed(process: int, fd: int, file: tuple[int, int], size: int) -> int:
    """A descriptor of what the driver lends."""
    return _opened(process, fd, file, os.O_RDONLY, size)


class Returned:
    """Where rank 0 of a run leaves what its function returned: a file without a name, of this process, as long as the block lasts.
    Nobody but this user's processes can write to it."""

    def __enter__(self) -> Returned:
        self._fd = _unnamed()
        self.place = {"process": os.getpid(), "fd": self._fd, "file": file_of(self._fd)}
        return self

    def __exit__(self, *_: Any) -> None:
        close_file(self._fd, self.place["file"])

    def value(self) -> Any:
        """What was left; None where nothing was. Of a class that only the workers know it is None, with a warning."""
        data = contents(self._fd) if file_of(self._fd) == self.place["file"] else b""
        try:
            return pickle.loads(data) if data else None
        except Exception as error:
            warnings.warn(f"what rank 0 returned cannot be read here: {error!r}", RuntimeWarning, stacklevel=2)
            return None


def give_back(place: dict[str, Any], value: Any) -> None:
    """In rank 0: leaves the value for the driver. TypeError names what of it cannot be pickled."""
    try:
        data = _pickled(value)
    except Exception as error:
        raise TypeError(_refusal({"returned": value}, error)) from error
    fd = _opened(place["process"], place["fd"], place["file"], os.O_RDWR)
    try:
        os.ftruncate(fd, 0)
        _write(fd, data)
    finally:
        os.close(fd)


def _unnamed() -> int:
    """A descriptor of a file without a name, of which nobody else can open more than this process lends."""
    try:
        fd = os.memfd_create("trainyard-payload", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        with tempfile.TemporaryFile() as file:
            fd = fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 0)
    os.fchmod(fd, 0o600)
    return fd


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def nameless(data: bytes, sealed: bool = True) -> int:
    """The same with the data in it, that nobody can change where the kernel has such files and it is sealed."""
    fd = _unnamed()
    try:
        _write(fd, data)
        if sealed:
            with contextlib.suppress(OSError):  # not every file can be sealed
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0xF)
    except BaseException:
        os.close(fd)
        raise
    return fd


def load(source: int | bytes | None = None) -> Payload:
    """The payload from its bytes or a descriptor of them (by default the one that the agent names)."""
    data = source if isinstance(source, bytes) else contents(source)
    objects, facts = load_objects(data)
    return Payload(**objects, facts=facts)


def load_objects(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The user's objects, when their modules can be found, and the facts."""
    outer = pickle.loads(data)
    if isinstance(outer, dict):
        outer = pickle.loads(_borrow(**outer))
    settings, inner = outer
    _take_settings(settings)
    return pickle.loads(inner), settings["facts"]


def _borrow(process: int, fd: int, file: tuple[int, int], size: int) -> bytes:
    """The bytes that the driver lends."""
    mine = _opened(process, fd, file, os.O_RDONLY, size)
    try:
        return contents(mine)
    finally:
        os.close(mine)


def _opened(process: int, fd: int, file: tuple[int, int], how: int, size: int | None = None) -> int:
    """A descriptor of the driver's, opened here: only of the very file that it made, which nobody else can have written to."""
    path = f"/proc/{process}/fd/{fd}"
    try:
        mine = os.open(path, how | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise RuntimeError(
            f"the payload cannot be read from the driver, process {process} ({error}): it must run, and its descriptors stay open"
        ) from None
    status = os.fstat(mine)
    is_it = (status.st_dev, status.st_ino) == tuple(file) and size in (None, status.st_size)
    ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 0
    if is_it and ours and not status.st_mode & 0o022:
        return mine
    os.close(mine)
    raise RuntimeError(
        f"{path} is not the payload that the driver made: its descriptor {fd} was closed, and used for something else"
    )


def contents(fd: int | None) -> bytes:
    """All bytes of the descriptor, from its beginning: workers of one node share it."""
    if fd is None:
        fd = int(os.environ[VARIABLE])
    size = os.fstat(fd).st_size
    parts, at = [], 0
    while at < size:
        part = os.pread(fd, min(size - at, 1 << 26), at)
        if not part:
            raise EOFError(f"the payload ended after {at} of {size} bytes")
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _take_settings(settings: dict[str, Any]) -> None:
    """Looks for modules where the driver looks, and then where this process did."""
    theirs = settings["path"]
    sys.path[:] = theirs + [entry for entry in sys.path if entry not in theirs]
    for name in settings["prepare"]:
        module, _, function = name.partition(":")
        getattr(importlib.import_module(module), function)()


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise FileNotFoundError(
            "workers begin in the working directory, and that was deleted: change to another one"
        ) from None


def _absolute(entry: str) -> str:
    return os.path.normpath(entry if os.path.isabs(entry) else os.path.join(_here(), entry))


def _main_file() -> str | None:
    return getattr(sys.modules.get("__main__"), "__file__", None)


def _refusal(objects: dict[str, Any], error: Exception) -> str:
    for key, value in objects.items():
        name, advice = _TRAVELLERS[key]
        found = _find(value, name, 0, set())
        if found is not None:
            holder, culprit = found
            kind = f"{type(culprit).__module__}.{type(culprit).__qualname__}"
            return f"{holder} was found to be non-serializable: it is a {kind}, which cannot be pickled. {advice}"
    return f"the training function was found to be non-serializable: it cannot be pickled: {error}"


def _can_pickle(value: Any) -> bool:
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def _find(value: Any, holder: str, depth: int, seen: set[int]) -> tuple[str, Any] | None:
    """The innermost part of `value` that cannot be pickled, and the words for where it is; None when all can."""
    if id(value) in seen or _can_pickle(value):
        return None
    seen.add(id(value))
    if depth < _DEPTH:
        for where, part in _parts(value, holder):
            found = _find(part, where, depth + 1, seen)
            if found is not None:
                return found
    return holder, value


def _parts(value: Any, holder: str) -> Iterator[tuple[str, Any]]:
    """What a value consists of, as far as pickling it needs, each with the words for it."""
    if inspect.isfunction(value):
        name = f"{holder} ({value.__qualname__})" if holder.startswith("`train_loop_per") else holder
        variables = inspect.getclosurevars(value)
        for kind, found in (("closure variable", variables.nonlocals), ("global", variables.globals)):
            for variable, part in found.items():
                yield f"{name}: the {kind} `{variable}`", part
        for i, part in enumerate(value.__defaults__ or ()):
            yield f"{name}: default {i + 1}", part
        for variable, part in (value.__kwdefaults__ or {}).items():
            yield f"{name}: the default of `{variable}`", part
    elif inspect.ismethod(value):
        yield f"{holder}: the object of the method", value.__self__
    elif hasattr(value, "func") and hasattr(value, "keywords") and hasattr(value, "args"):  # a partial
        yield f"{holder}: the function of the partial", value.func
        for i, part in enumerate(value.args):
            yield f"{holder}: argument {i + 1} of the partial", part
        for variable, part in value.keywords.items():
            yield f"{holder}: argument `{variable}` of the partial", part
    elif isinstance(value, dict):
        for name, part in value.items():
            yield f"{holder}[{name!r}]", part
    elif isinstance(value, (list, tuple, set, frozenset)):
        for i, part in enumerate(value):
            yield f"{holder}[{i}]", part
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for name, part in vars(value).items():
            yield f"{holder}.{name}", part
