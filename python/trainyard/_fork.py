"""`start_method="fork"`: the driver itself is the template (docs/design.md 4). A copy of it is made for
each `fit`, becomes a child of the agent, and forks the workers, so that nothing is imported twice and the training
function is not pickled.

The copy keeps what the user made: objects, modules, open files. It has nothing of what this process does besides: no handler of
a signal, nothing that was to be done at its exit, no link to agents.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import traceback
import weakref
from typing import Any, NoReturn

from . import _core, _template, defaults, runtime, seeds
from .payload import Payload


def begin(trainer: Any, facts: dict[str, Any]) -> None:
    """Makes the copy; it is the next run's that starts with this method. ValueError says why it cannot be made."""
    why = _elsewhere() or _template.unsafe()
    if why:
        raise ValueError(
            f"`RunConfig.start_method`='fork': this process cannot be forked: {why}{_advice(why)}"
        )
    payload = Payload(
        trainer.train_loop_per_worker,
        trainer.train_loop_config,
        trainer.backend_config,
        facts,
        trainer.data() if trainer.datasets else None,
    )
    _template.flush()
    control = _core.fork_driver()
    if control is not None:
        _live(control, payload)


def drop() -> None:
    """Ends the copy if no run has taken it."""
    _core.fork_drop()


def _elsewhere() -> str | None:
    """What would need a template in another place than this process."""
    if defaults.current.cluster is not None:
        return "`init(cluster=...)` gives several nodes, each with a template of its own"
    engine = "join" if defaults.joined() is not None else defaults.current.engine
    if defaults.named() is not None:
        engine = "ssh"
    if engine not in (None, "auto", "local"):
        return f"workers of engine {engine} are not on this machine alone"
    return None


def _advice(why: str) -> str:
    if "thread" not in why:
        return ""
    return (
        " (a library that starts threads when it is imported can be held to one: OPENBLAS_NUM_THREADS=1, "
        "OMP_NUM_THREADS=1; 'template' and 'spawn' work with threads)"
    )


def _live(control: int, payload: Payload) -> NoReturn:
    """The life of the copy, and of each worker that it forks; the frames of the driver are never returned to."""
    try:
        _forget_driver()
        place = payload.facts.get("directory")
        if place:
            sys.path.insert(0, place)
        seeds.note()  # what the driver seeded is the driver's
        connection = socket.socket(fileno=control)
        _template.prepare(connection, lambda: None)
        request = _template.serve(connection)
        _template.become_worker(request, keep=True)
        from . import _worker

        _template.end(_worker.main(payload))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _forget_driver() -> None:
    """What belongs to the process that was copied."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        _default(number)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    _forget_exits()
    runtime.end()
    sys.excepthook = sys.__excepthook__
    sys.settrace(None)
    sys.setprofile(None)


def _default(number: int) -> None:
    """As an interpreter has it when it starts."""
    ignored = {signal.SIGPIPE, getattr(signal, "SIGXFSZ", None)}
    handler: Any = signal.SIG_IGN if number in ignored else signal.SIG_DFL
    if number == signal.SIGINT:
        handler = signal.default_int_handler
    try:
        signal.signal(number, handler)
    except (OSError, ValueError):
        pass  # those that the C library keeps for itself


def _forget_exits() -> None:
    """Functions of `atexit`, temporary directories and children are the driver's. What workers add is theirs."""
    atexit._clear()
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    logging = sys.modules.get("logging")
    if logging is not None:
        atexit.register(logging.shutdown)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes._children = set()  # type: ignore[attr-defined]
    if "multiprocessing.util" in sys.modules:
        atexit.register(sys.modules["multiprocessing.util"]._exit_function)  # type: ignore[attr-defined]
