"""What travels to the workers, and what is refused because it cannot."""

import errno
import functools
import os
import pickle
import resource
import sys
import threading
import types

import pytest
from trainyard import payload
from trainyard.trainer import BackendConfig, call, check_function, required_arguments


def travel(function, config=None):
    return payload.load(payload.dump(function, config, BackendConfig(), {"resources": {"CPU": 1}}))


def test_closures_lambdas_partials_travel():
    base = 40
    assert travel(lambda: base + 2).function() == 42
    assert travel(functools.partial(lambda a, b: a + b, 2)).function(3) == 5
    loaded = travel(lambda config: config["a"], {"a": 7})
    assert (loaded.function(loaded.config), loaded.facts) == (7, {"resources": {"CPU": 1}})


def test_a_descriptor_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "payload"
    path.write_bytes(payload.dump(len, None, BackendConfig(), {}))
    fd = os.open(path, os.O_RDONLY)
    os.lseek(fd, 5, os.SEEK_SET)
    assert payload.load(fd).function is len and payload.load(fd).function is len
    os.close(fd)


def test_functions_of_modules_beside_the_script_travel_by_name(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("def train():\n    return __name__\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from beside import train

    data = payload.dump(train, None, BackendConfig(), {})
    monkeypatch.delitem(sys.modules, "beside")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    assert payload.load(data).function() == "beside"
    assert str(tmp_path) in sys.path


LOCK = threading.Lock()


class Holder:
    def __init__(self):
        self.lock = threading.Lock()

    def train(self):
        pass


def closure(lock):
    return lambda: lock


def uses_global():
    return LOCK


def with_default(lock=LOCK):
    return lock


uses_global.__module__ = with_default.__module__ = "__main__"  # so that they go by value, as in a script


@pytest.mark.parametrize(
    "function, config, words",
    [
        (closure(threading.Lock()), None, ["train_loop_per_worker", "closure variable `lock`", "lock"]),
        (uses_global, None, ["global `LOCK`", "uses_global"]),
        (with_default, None, ["default 1"]),
        (functools.partial(len, threading.Lock()), None, ["argument 1 of the partial"]),
        (functools.partial(len, obj=LOCK), None, ["argument `obj` of the partial"]),
        (Holder().train, None, ["lock"]),
        (len, {"data": {"open": LOCK}}, ["`train_loop_config`['data']['open']"]),
        (len, {"data": [1, LOCK]}, ["`train_loop_config`['data'][1]"]),
        (len, Holder(), ["`train_loop_config`.lock"]),
    ],
)
def test_a_refusal_names_the_holder(function, config, words):
    with pytest.raises(TypeError) as caught:
        payload.dump(function, config, BackendConfig(), {})
    for word in [*words, "was found to be non-serializable", "cannot be pickled"]:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "function, n",
    [
        (lambda: 0, 0),
        (lambda config: 0, 1),
        (lambda config=None: 0, 0),
        (lambda *args: 0, 1),
        (lambda **kwargs: 0, 0),
        (lambda a, b=1: 0, 1),
        (lambda *, a=1: 0, 0),
        (functools.partial(lambda a, b: 0, 1), 1),
        (Holder().train, 0),
        (Holder, 0),
    ],
)
def test_arguments_are_counted(function, n):
    assert required_arguments(function) == n
    check_function(function)


def test_arity():
    with pytest.raises(ValueError, match="should take in 0 or 1 required arguments, but it accepts 2"):
        check_function(lambda a, b: 0)
    with pytest.raises(ValueError, match="train_loop_per_worker"):
        check_function("train")
    assert call(lambda: "none", {"a": 1}) == "none"
    assert call(lambda config: config, {"a": 1}) == {"a": 1}
    assert call(lambda config: config, None) == {}


def test_a_required_keyword_is_refused():
    def train(*, config):
        pass

    with pytest.raises(ValueError, match="`train_loop_per_worker` requires `config` by keyword"):
        check_function(train)
    check_function(functools.partial(train, config={}))


def test_a_function_with_a_cache_travels(monkeypatch):
    def double(n):
        return n * 2

    typed = functools.lru_cache(maxsize=3, typed=True)(double)
    loaded = travel(lambda: typed).function()
    assert loaded(4) == 8 and loaded.cache_parameters() == {"maxsize": 3, "typed": True}
    assert loaded.cache_info().currsize == 1, "the cache itself stays at home"
    assert travel(functools.cache(functools.partial(double, 5))).function() == 10

    monkeypatch.setattr(double, "__module__", "__main__")
    monkeypatch.setattr(double, "__qualname__", "double")
    monkeypatch.setattr(sys.modules["__main__"], "double", functools.cache(double), raising=False)
    data = payload.dump(sys.modules["__main__"].double, None, BackendConfig(), {})
    monkeypatch.delattr(sys.modules["__main__"], "double")
    assert payload.load(data).function(6) == 12


def test_a_payload_that_finds_no_room_leaves_nothing():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    descriptors = os.listdir("/proc/self/fd")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError), payload.sendable(bytes(payload.SENT_MAX + 1)):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir("/proc/self/fd") == descriptors


@pytest.fixture
def large(monkeypatch):
    """All payloads are large."""
    monkeypatch.setattr(payload, "SENT_MAX", 0)
    return payload.dump(len, {"a": 1}, BackendConfig(), {})


@pytest.mark.parametrize("memory", [True, False])
def test_a_large_payload_has_no_name(large, tmp_path, monkeypatch, memory):
    def refused(*arguments):
        raise OSError(errno.ENOSYS, "no such call")

    if not memory:
        monkeypatch.setattr(os, "memfd_create", refused)
    descriptors = os.listdir("/proc/self/fd")
    with payload.sendable(large) as sent:
        assert len(sent) < 300 and payload.load(sent).config == {"a": 1}
        assert os.listdir(tmp_path) == [], "TMPDIR"
        fd = pickle.loads(sent)["fd"]
        assert os.fstat(fd).st_nlink == 0 and os.fstat(fd).st_mode & 0o777 == 0o600
        if memory:
            with pytest.raises(PermissionError):
                os.pwrite(fd, b"other", 0)
    assert os.listdir("/proc/self/fd") == descriptors
    with pytest.raises(RuntimeError, match="the payload cannot be read from the driver"):
        payload.load(sent)


def test_a_descriptor_that_was_used_again_is_not_taken_for_the_payload(large, tmp_path):
    (tmp_path / "other").write_bytes(large)
    os.mkfifo(tmp_path / "fifo")
    with payload.sendable(large) as sent:
        fd = pickle.loads(sent)["fd"]
        for name in ("other", "fifo"):
            other = os.open(tmp_path / name, os.O_RDWR)
            os.dup2(other, fd)
            os.close(other)
            with pytest.raises(RuntimeError, match=f"descriptor {fd} was closed"):
                payload.load(sent)
    assert os.fstat(fd), "somebody else's stays open"
    os.close(fd)


def test_modules_of_a_class_of_their_own(monkeypatch):
    class Module(types.ModuleType):
        def __reduce_ex__(self, protocol):
            raise TypeError("cannot pickle 'Module' object")

    module = Module("module_of_its_own")
    monkeypatch.setitem(sys.modules, "module_of_its_own", module)
    assert travel(lambda: module).function() is module
