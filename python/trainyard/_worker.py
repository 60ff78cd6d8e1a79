"""The main of a worker process: takes the payload, runs the training function, tells how it ended.

`python -m trainyard._worker` starts a worker afresh; a fork template calls `main(payload)` in the child it made.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from types import FrameType, TracebackType
from typing import Any, NoReturn

from . import _core, defaults, errors, runtime, stacks
from . import context as context  # before there are threads: a child forked while one imports it could not
from . import payload as payloads

# What is told of an exception, in characters and bytes; the library takes 1 MiB in all.
_TRACEBACK_LIMIT = 16 << 10
_MESSAGE_LIMIT = 4 << 10
_PICKLE_LIMIT = 512 << 10

# Of the worker: its children may come up through `main` as well, and be the first to import this.
_pid = int(os.environ.get("TRAINYARD_PID") or os.getpid())


def main(payload: payloads.Payload | None = None) -> int:
    """Runs the worker; the exit status of its process. A SystemExit of the function keeps its code, unless it is to be a failure.

    A child that the function forked and did not end ends here too, by itself: the worker's end is not told, and nobody waited for.
    """
    global _pid
    _pid = os.getpid()
    runtime.of_trainer = True
    try:
        return _run(payload)
    except SystemExit as end:
        code = _exit_code(end)
    except _ExitFailed as failure:
        _tell(failure.args[0])
        code = _exit_code(failure.args[0]) or 1
    except BaseException as error:
        _tell(error)
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
    if _is_child():
        return code
    sent = send_reports()
    if code != 130 and os.environ.get("WORLD_SIZE") != "1":
        time.sleep(defaults.policy.fail_together_s)
    if not sent:
        _leave(code)
    return code


def _is_child() -> bool:
    return os.getpid() != _pid


def _run(payload: payloads.Payload | None) -> int:
    if payload is None:
        payload = payloads.load()
    if payload.facts.get("directory"):
        os.chdir(payload.facts["directory"])
    if payload.facts.get("defaults"):
        defaults.current = defaults.Defaults(**payload.facts["defaults"])
    stacks.register()
    session = runtime.WorkerSession(payload.facts)
    session.datasets = payload.datasets
    backend = payload.backend
    runtime.begin(session)
    try:
        backend.on_start(session)
        backend.on_training_start(session)
        with backend.train_func_context():
            returned = _call(payload)
        if _is_child():
            return 0
        if defaults.policy.returned is not None:
            returned = defaults.policy.returned(returned)
        if session.world_rank == 0 and returned is not None:
            payloads.give_back(payload.facts["returned"], returned)
        session.finish()
        backend.on_shutdown(session)  # waits for the other ranks, who may wait for what was just finished
    except BaseException:
        if not _is_child():
            backend.on_failure(session)
        raise
    return 0


def _call(payload: payloads.Payload) -> Any:
    """Runs the training function and gives what it returned; a SystemExit without failure counts as its return, one that is to be a
    failure is told of like any exception."""
    from . import trainer

    try:
        return trainer.call(payload.function, payload.config)
    except SystemExit as end:
        if payload.facts.get("exits_fail") and not _is_child():
            raise _ExitFailed(end) from end
        if end.code is not None and end.code != 0:
            raise
        return None


class _ExitFailed(Exception):
    """A SystemExit on its way to `main`, past what lets such an exception through."""


def fail(error: BaseException, frame: FrameType | None) -> NoReturn:
    """Ends the process, from any thread, as if `error` had been raised at `frame`."""
    trace = None
    while frame is not None and frame.f_code is not main.__code__:
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    _tell(error.with_traceback(trace))
    os._exit(1)


def send_reports() -> bool:
    """Of a worker that failed; what cannot be sent any more is lost with it. False: the channel is still in use, by a question to
    which no answer came."""
    session = runtime.current()
    if session is not None:
        with contextlib.suppress(Exception):
            return session.finish_failed()
    return True


def _leave(code: int) -> NoReturn:
    """Ends the process without another word over its channel."""
    import atexit

    from . import _template, limits

    limits.within(5, atexit._run_exitfuncs, "what was to be called at the end has not come to its own")
    _template.flush()
    os._exit(code)


def _exit_code(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF or (1 if end.code else 0)
    print(end.code, file=sys.stderr)
    return 1


def _tell(error: BaseException) -> None:
    """To the run, which keeps the traceback in the rank's log and prints that of the first cause; to stderr where it cannot, and
    of a child, which is not what the worker ends with."""
    text = "".join(traceback.format_exception(type(error), error, _own_frames_cut(error)))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if _is_child():
        sys.stderr.write(text)
        return
    try:
        _core.report_failure(json.dumps(_record(error, _cut(text, _TRACEBACK_LIMIT))))
    except Exception as problem:
        sys.stderr.write(text)
        print(f"trainyard: the exception could not be handed to the driver: {problem}", file=sys.stderr)


def _own_frames_cut(error: BaseException):
    """The traceback from the user's first frame on; whole when it never left this package."""
    here = os.path.dirname(os.path.abspath(__file__))
    trace = error.__traceback__
    while trace is not None and os.path.abspath(trace.tb_frame.f_code.co_filename).startswith(here + os.sep):
        trace = trace.tb_next
    return trace if trace is not None else error.__traceback__


def _record(error: BaseException, text: str) -> dict[str, str | None]:
    """{"type", "message", "traceback", "pickle": base64 or null}, what the driver makes the exception of again."""
    kind = type(error)
    home = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return {
        "type": home + kind.__qualname__,
        "message": _cut(_message(error), _MESSAGE_LIMIT),
        "traceback": text,
        "pickle": _pickled(error),
    }


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def _cut(text: str, limit: int) -> str:
    """At most about `limit` characters, the middle left out, as UTF-8 has them and without NUL."""
    if len(text) > limit:
        text = f"{text[: limit // 4]}\n... ({len(text) - limit} characters left out) ...\n{text[-limit * 3 // 4 :]}"
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _pickled(error: BaseException) -> str | None:
    """In base64; without what of it cannot be pickled. None when it is too large, or its class is the obstacle."""
    import base64

    data = _dumped(error) or _dumped(_Bare(error))
    return base64.b64encode(data).decode() if data is not None and len(data) <= _PICKLE_LIMIT else None


class _Bare:
    """Is read as the exception again, made without calling its class, of those of its parts that can be pickled."""

    def __init__(self, error: BaseException):
        args = error.args if _dumped(error.args) else (_message(error),)
        self._parts = type(error), args, {name: part for name, part in vars(error).items() if _dumped(part)}

    def __reduce__(self):
        return errors.made_of, self._parts


def _dumped(value: Any) -> bytes | None:
    """Pickled; None when it cannot be, or cannot be read again."""
    import pickle

    try:
        import cloudpickle

        data = cloudpickle.dumps(value)
        pickle.loads(data)
    except Exception:
        return None
    return data


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # lines are seen as they are written
    from ._template import end

    end(main())  # without the interpreter's own end: what libraries do there may wait for ranks that are not coming
