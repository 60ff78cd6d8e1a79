"""Signals that end the driver's process while a run is on: the run hears of them, and ends first. And waits of the library's, in
which Python does no more than note a signal."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
from typing import Any, Callable, Iterator

from . import _core
from .errors import PreemptionError
from .screen import warn

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def pipe(flags: int) -> tuple[int, int]:
    """The limit is named, as the library does, where the program has too many files open."""
    try:
        return os.pipe2(flags | os.O_CLOEXEC)
    except OSError as error:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise OSError(error.errno, f"cannot make a pipe: {error.strerror} (limit {most}: ulimit -n)") from None


@contextlib.contextmanager
def _told(meeting: dict[str, Any]) -> Iterator[None]:
    """What the library says while it waits for nodes, line by line: it gives events only afterwards."""
    read, write = pipe(0)
    meeting["told"] = write

    def tell() -> None:
        with open(read, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                warn(line.rstrip())

    teller = threading.Thread(target=tell, daemon=True, name="trainyard-told")
    teller.start()
    try:
        yield
    finally:
        os.close(write)
        teller.join(1)  # a child that another thread forked may hold the other end


def _number(name: str | None) -> int:
    """Of a signal that the library takes; SIGTERM for one that it will refuse."""
    if name is None:
        return signal.SIGTERM
    found = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
    caught = isinstance(found, signal.Signals) and found not in (signal.SIGKILL, signal.SIGSTOP)
    return found if caught else signal.SIGTERM


def _is_native(number: int) -> bool:
    """Whether a library, as faulthandler, handles the signal without Python's knowing."""
    if signal.getsignal(number) is not signal.SIG_DFL:
        return False
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        caught = next((line for line in file if line.startswith("SigCgt:")), "SigCgt: 0")
    return int(caught.split()[1], 16) >> (number - 1) & 1 == 1


class Signals:
    """While a run is on, the signals that end this process end the run first; in the main thread only. A child that is forked
    meanwhile has the handlers from before, and loses no signal on the way."""

    on: Signals | None = None  # those of the run that is on, of several within each other the innermost
    _mask: Any = None

    def __init__(self, preempt_signal: str | None, deliver: Callable[[int], bool]):
        """preempt_signal: as in RunConfig. deliver: hands a signal to the run; false while there is none."""
        self._preempt_signal = preempt_signal
        self._deliver = deliver
        self._before: dict[int, Any] = {}
        self._outer: Signals | None = None
        self._caught: int | None = None
        self._awaited = False  # the library waits for nodes, and hears of signals itself

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in {*_ENDING, _number(self._preempt_signal)}:
                self._catch(number)
            self._outer, Signals.on = Signals.on, self
        return self

    def __exit__(self, *error: Any) -> None:
        if Signals.on is self:
            Signals.on = self._outer
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:  # and none that a callback has put in its place
                signal.signal(number, handler)

    def _catch(self, number: int) -> None:
        if signal.getsignal(number) not in (signal.SIG_IGN, None) and not _is_native(number):
            self._before[number] = signal.signal(number, self._handle)

    def also(self, number: int) -> None:
        """The run knows one more signal, from a file of settings for all runs."""
        if Signals.on is self and number not in self._before:
            self._catch(number)

    def _handle(self, number: int, frame: Any) -> None:
        self._caught = self._caught or number
        if not self._deliver(number) and not self._awaited:
            self.__exit__()
            signal.raise_signal(number)

    @classmethod
    @contextlib.contextmanager
    def awaited(cls, request: dict[str, Any]) -> Iterator[None]:
        """Around a call that may wait for nodes: who is missing is told. Python does no more there than note a signal: that ends
        the wait, and then the signal does what it would have done without us."""
        meeting = request.get("join") or request.get("hosts")
        if not meeting:
            yield
            return
        with _told(meeting):
            yield from cls._noted(meeting)

    @classmethod
    def _noted(cls, meeting: dict[str, Any]) -> Iterator[None]:
        on = cls.on
        if on is None:
            yield
            return
        read, write = pipe(os.O_NONBLOCK)
        before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        meeting["signals"] = read
        on._awaited = True
        try:
            yield
        except _core.Error as error:
            if on._caught is not None:
                warn(str(error))
            raise
        finally:
            on._awaited = False
            signal.set_wakeup_fd(before)
            os.close(read)
            os.close(write)
            if on._caught is not None:
                on.__exit__()
                signal.raise_signal(on._caught)

    @classmethod
    def hold(cls) -> None:
        """Before a fork: an interpreter forgets what comes to a child before it is ready."""
        if cls.on is not None:
            cls._mask = signal.pthread_sigmask(signal.SIG_BLOCK, cls.on._before)

    @classmethod
    def release(cls, child: bool) -> None:
        mask, cls._mask = cls._mask, None
        while child and cls.on is not None:
            cls.on.__exit__()
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def end_by_it(self) -> None:
        """A PreemptionError that nobody catches ends this process as the signal would have, after it was told."""
        number, told = self._caught, sys.excepthook
        if number is None:
            return

        def tell_and_end(kind: type[BaseException], error: BaseException, trace: Any) -> None:
            told(kind, error, trace)
            if isinstance(error, PreemptionError):
                sys.stderr.flush()
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        sys.excepthook = tell_and_end

    def raise_again(self, error: Exception | None) -> None:
        """After the end: does what the signal would have done without us, unless the run succeeded all the same."""
        if self._caught is not None and error is not None:
            signal.raise_signal(self._caught)
            raise KeyboardInterrupt


os.register_at_fork(
    before=Signals.hold,
    after_in_parent=lambda: Signals.release(child=False),
    after_in_child=lambda: Signals.release(child=True),
)
