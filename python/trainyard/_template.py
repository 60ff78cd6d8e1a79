"""The fork template: imports once what every worker needs, and forks workers
(docs/design.md 4, src/agent/template/template.h).

`python -m trainyard._template MODULE...` is started by an agent and becomes, by turns:

- the zygote, which imports the modules, and forks for each run
- the run's template, which loads the training function, and forks for each start of
- a worker, which runs it.

_program.py does the same with the interpreter of a program, which knows nothing of this.

Each turn is a child that `serve` returns in. A fork copies one thread and no device, so nothing is forked while this process has
more than one thread or has touched a device: the agent is told why, and starts fresh processes.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import resource
import socket
import stat
import sys
import tempfile
import threading
import time
import traceback
import weakref
from typing import Any, Callable

from . import _core, seeds

VARIABLE = "TRAINYARD_TEMPLATE_FD"
DEVICES = (
    "/dev/nvidia",
    "/dev/kfd",
    "/dev/accel",
    "/dev/vfio",
    "/dev/dri/render",
    "/dev/neuron",
    "/dev/habanalabs",
)
PLACES = 5  # descriptors of a worker: standard ones, its socket, its payload
_MOST_FDS = 8
_TOLD_AFTER_S = 5.0  # that a worker waits for its threads


class Request:
    """What the agent asks for: words, and descriptors, which `close` closes."""

    def __init__(self, fds: list[int]):
        self.fds = fds[1:]
        try:
            self.words = os.pread(fds[0], os.fstat(fds[0]).st_size, 0).split(b"\0")[:-1]
        finally:
            os.close(fds[0])

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = []


def main(modules: list[str]) -> int:
    """The exit status of the worker that this process becomes at last."""
    control = take_control()
    prepare(control, lambda: import_modules(modules))
    request = serve(control)
    control, payload = become_run(request)
    prepare(control, payload.load, shared_directory)
    request = serve(control)
    become_worker(request)
    from . import _worker

    return _worker.main(payload.value)


# -- the socket to the agent


def take_control() -> socket.socket:
    """The socket, moved from where a worker's own descriptors will lie; those places are held until then."""
    given = int(os.environ.pop(VARIABLE))
    control = socket.socket(fileno=os.dup(given))
    while control.fileno() < PLACES:
        control = socket.socket(fileno=os.dup(control.detach()))
    nothing = os.open(os.devnull, os.O_RDWR)
    for place in range(3, PLACES):
        if nothing != place:
            os.dup2(nothing, place, inheritable=False)
    if nothing >= PLACES:
        os.close(nothing)
    return control


def answer(control: socket.socket, text: str) -> None:
    """One line."""
    control.sendall(" ".join(text.split()).encode("utf-8", "replace") + b"\n")


def prepare(
    control: socket.socket,
    load: Callable[[], Any],
    objection: Callable[[], str | None] = lambda: None,
    freeze: bool = True,
) -> None:
    """Loads what the forks are to share, and tells whether they can be made: `objection` is one more reason why not.
    `freeze`: what is shared is not looked at again, and so not copied; the garbage collector of a program would show that."""
    try:
        load()
    except BaseException as error:
        traceback.print_exc()
        answer(control, f"error {type(error).__name__}: {error}")
        return
    if freeze:
        gc.collect()
        gc.freeze()
    why = unsafe() or objection()
    answer(control, f"unsafe {why}" if why else "ready")


def serve(control: socket.socket, objection: Callable[[], str | None] = lambda: None) -> Request:
    """Forks a child for each request, and returns in the child. This process itself ends with its socket."""
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1, _MOST_FDS)
        if not message:
            os._exit(0)
        request = Request(fds)
        pid = fork(control, objection)
        if pid == 0:
            control.close()
            return request
        request.close()


def fork(control: socket.socket, objection: Callable[[], str | None]) -> int:
    """0 in the child; in this process its pid, or -1, and the agent is told."""
    flush()
    seeds.before_fork()
    pid, text = -1, unsafe() or objection()
    if text is None:
        try:
            pid = _core.fork_sibling()
            text = f"pid {pid}"
        except OSError as error:
            text = f"unsafe the system does not fork from a template (clone): {error.strerror}"
    else:
        text = f"unsafe {text}"
    if pid != 0:
        answer(control, text)
    return pid


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass


# -- what makes a fork unsafe


def unsafe() -> str | None:
    """Why this process must not be forked; None when it can be."""
    return _thread() or _open_device() or _device_context()


def _thread() -> str | None:
    """A thread that was waited for may be seen for some more moments."""
    for _ in range(20):
        others = [task for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
        if not others:
            return None
        time.sleep(0.002)
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    return f"{len(others)} other thread{'s' * (len(others) > 1)} ({', '.join(names or map(_comm, others))}) run in it"


def shared_directory() -> str | None:
    """Why each worker must load the user's modules itself: they made a temporary directory, which all would share and
    the first to end would remove. It goes, then."""
    made = weakref.finalize._registry.items()  # type: ignore[attr-defined]
    ours = [one for one, info in made if info.func == tempfile.TemporaryDirectory._cleanup]  # type: ignore[attr-defined]
    names = [one.peek()[0].name for one in ours]
    for one in ours:
        one()
    if not names:
        return None
    return f"the modules that it loaded made the temporary directory {names[0]}, which each worker needs for itself"


def _comm(task: str) -> str:
    try:
        with open(f"/proc/self/task/{task}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return task


def _open_device() -> str | None:
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if path.startswith(DEVICES):
            return f"it has {path} open"
    return None


def _device_context() -> str | None:
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu"):
        initialized = getattr(getattr(torch, name, None), "is_initialized", None)
        if initialized is not None and initialized():
            return f"torch.{name} is initialized"
    started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    return "a backend of jax is initialized" if started is not None and started() else None


# -- the zygote


def hold_threads() -> None:
    """The allocator of pyarrow starts a thread when it is loaded, to give memory back; without it that is done in passing."""
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


def import_modules(modules: list[str]) -> None:
    """What the working directory holds is not for the zygote: it may change before the next run."""
    hold_threads()
    path = list(sys.path)
    sys.path[:] = [entry for entry in path if entry not in ("", os.getcwd())]
    try:
        for module in modules:
            importlib.import_module(module)
    finally:
        sys.path[:] = path


# -- the run's template


class Loaded:
    """The payload of a run, None without."""

    def __init__(self, fd: int | None):
        self.fd = fd
        self.value = None

    def load(self) -> None:
        from . import payload

        hold_threads()
        importlib.import_module("trainyard._worker")  # its imports are shared, too
        if self.fd is not None:
            self.value = payload.load(self.fd)
            os.close(self.fd)


def become_run(request: Request) -> tuple[socket.socket, Loaded]:
    """Words: directory, environment. Descriptors: control socket, output, payload if there is one."""
    control, *payload = become_template(request)
    _core.set_title(f"trainyard: template of {os.environ.get('TRAINYARD_RUN', 'a run')}")
    seeds.note()
    return socket.socket(fileno=control), Loaded(payload[0] if payload else None)


def become_template(request: Request) -> list[int]:
    """The descriptors besides the output."""
    directory, *environment = request.words
    control, output, *others = request.fds
    for place in (1, 2):
        os.dup2(output, place)
    os.close(output)
    replace_environment(environment)
    _core.show_variable(
        "TRAINYARD_TOKEN", os.environ["TRAINYARD_TOKEN"]
    )  # shared by all that descend from here
    if directory:
        os.chdir(directory)
    return [control, *others]


def replace_environment(entries: list[bytes]) -> None:
    os.environb.clear()
    os.environb.update(entry.split(b"=", 1) for entry in entries)


# -- a worker


def become_worker(request: Request, keep: bool = False) -> None:
    """Words: cores, soft and hard limit of descriptors, directory, environment. Descriptors: what become 0 to 4; `keep`: in a
    copy of the driver only the first three do, for others are the user's."""
    link = become_process(request, 3 if keep else PLACES)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    if keep:
        os.environ["TRAINYARD_FD"] = str(link)
        _core.show_only(
            f"TRAINYARD_TOKEN={os.environ['TRAINYARD_TOKEN']}"
        )  # shared by all that descend from here
    _core.set_title(
        f"trainyard: rank {os.environ.get('RANK', '?')} of {os.environ.get('TRAINYARD_RUN', 'a run')}"
    )
    sys.argv[1:] = []
    renew_input()
    renew_libraries()


def become_process(request: Request, places: int) -> int:
    """What an executed worker would find. Returns the descriptor of its socket."""
    cores, soft, hard, directory, *environment = request.words
    link = place_descriptors(request, places)
    replace_environment(environment)
    os.environ["TRAINYARD_PID"] = str(os.getpid())
    resource.setrlimit(resource.RLIMIT_NOFILE, (_limit(soft), _limit(hard)))
    if cores:
        os.sched_setaffinity(0, _numbers(cores.decode()))
    if directory:
        os.chdir(directory)
    return link


def renew_input() -> None:
    """Of a worker that has one, a pipe or a terminal, which is its session's then: what the template may have read is another's."""
    if stat.S_ISREG(os.fstat(0).st_mode):
        return  # the empty file of those that have none
    if os.isatty(0):
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)


def place_descriptors(request: Request, places: int) -> int:
    """Nothing else that the template used stays open. Returns the descriptor of the worker's socket."""
    link = 3 if places > 3 else request.fds.pop(3)
    for place, fd in enumerate(request.fds):
        os.dup2(fd, place)
    for place in range(len(request.fds), places):
        os.close(place)
    request.close()
    return link


def _limit(text: bytes) -> int:
    number = int(text)
    return resource.RLIM_INFINITY if number >= 1 << 63 else number


def _numbers(text: str) -> list[int]:
    """Of a list as "0-3,8"."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def renew_libraries() -> None:
    """What a process of its own would have found out for itself."""
    tempfile.tempdir = None
    seeds.renew()
    threads = os.environ.get("OMP_NUM_THREADS", "") or str(len(os.sched_getaffinity(0)))
    if threads.isdigit() and int(threads) > 0:
        give_threads(int(threads))


def give_threads(n: int) -> None:
    """Numeric libraries were held to one thread in the template."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(n)
    if n > 1 and "numpy" in sys.modules:
        try:
            import threadpoolctl
        except ImportError:
            return
        threadpoolctl.threadpool_limits(n)


def wait_for_threads() -> None:
    """As an interpreter does when it ends; of those that do not end it is told that they are waited for."""
    others = [thread for thread in threading.enumerate() if not (thread.daemon or thread is threading.main_thread())]

    def tell() -> None:
        names = ", ".join(thread.name for thread in others if thread.is_alive())
        if names:
            print(f"trainyard: the worker has come to its end, and waits for its threads: {names}", file=sys.stderr, flush=True)

    timer = threading.Timer(_TOLD_AFTER_S, tell)
    timer.daemon = True
    if others:
        timer.start()
    threading._shutdown()
    timer.cancel()


def end(code: int) -> None:
    """The end of a process without the end of its interpreter, which in a forked one would only cost time."""
    try:
        wait_for_threads()
        atexit._run_exitfuncs()
        with contextlib.suppress(Exception):
            _core.report_drain()
        flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    end(main(sys.argv[1:]))
