"""The driver: makes a request of a trainer, steps the run from this thread, and makes its end a Result or an exception."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterator

from . import _command, _core, callbacks, defaults, failures, limits, payload, reports
from .config import (
    RunConfig,
    ScalingConfig,
    check_directory,
    check_environment,
    fields_json,
    is_utf8,
    said_of,
    settings_of,
)
from .errors import ControllerError, InsufficientClusterResourcesError
from .result import Result, recorded_config
from .screen import barred, harmless, warn
from .signals import Signals, pipe

if TYPE_CHECKING:
    from .remote import Remote
    from .validation import Validations

_EVENTS = ["log", "run", "attempt", "failure", "exited", "start_failed", "node_lost", "attempt_end"]
_GRACE_S = 5.0  # where a run config gives none, as the library has it
_LOOK_S = 1.0  # the longest time between two looks for the first nodes
_TELL_S = 5.0  # between two lines that say what is missing, as the library has it where nodes join
_PACKAGE_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclasses.dataclass
class RunContext:
    """What callbacks are told of the run.

    run_id: its name. path: its directory. run_config, with the name in it, scaling_config, backend_config, train_loop_config,
    dataset_config: as the trainer has them. report_number: which report of the ranks `after_report` is called for; they count from
    1 on, through all attempts. 0 in an attempt that has none yet.
    """

    run_id: str
    path: str
    run_config: RunConfig
    scaling_config: ScalingConfig
    backend_config: Any
    train_loop_config: dict[str, Any] | None
    _dataset_config: Any = None
    report_number: int = 0

    @property
    def dataset_config(self) -> Any:
        """How the data sets are divided: a `trainyard.data.DataConfig`."""
        from . import data

        return self._dataset_config or data.DataConfig()

    def get_run_config(self) -> RunConfig:
        return self.run_config


def _serve(join: defaults.Join, config: RunConfig) -> int:
    """Another node has the controller: an agent of this one joins it. Its exit status is the run's."""
    words = [_command.path(), "agent", "--rendezvous", join.rendezvous, "--node-rank", str(join.node_rank)]
    words += ["--awaits", "another"]  # controller, should this one die: its program may be started again
    words += ["--ends-with", "input"]  # that is, with this process, however it ends
    if config.name and defaults.policy.run_name is None:  # else each node has made its own
        words += ["--run", os.path.basename(config.name)]
    if not os.environ.get("TRAINYARD_RUN_KEY"):
        words += ["--key", "none"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as agent:

        def hand_on(number: int) -> bool:
            agent.send_signal(number)
            return True

        with Signals(config.preempt_signal, hand_on):
            return agent.wait()


going: list[Driver] = []  # the fits of this process, and in a child those of its parent


class Driver:
    """One `fit`."""

    def __init__(self, trainer: Any):
        self._trainer = trainer
        self._config: RunConfig = trainer.run_config
        self.scaling: ScalingConfig = trainer.scaling_config
        self._group = os.path.dirname(self._config.name or "")  # of directories, as `Policy.groups` allows
        self._callbacks = callbacks.from_environment() + list(self._config.callbacks or [])
        self._run: Any = None
        self._signals: Signals | None = None
        self._ranking: Any = self._config.checkpoint_config  # until the run tells of its own
        self._broken: Exception | None = None  # what a callback raised
        self._reports: reports.Reports | None = None
        self._failures = failures.Failures()
        self._returned = payload.Returned()
        self._display = None
        self._attempt_end: dict[str, Any] | None = None  # of the last attempt
        self._remote: Remote | None = None
        self._join: defaults.Join | None = None
        self._validations: Validations | None = None
        self._stopped = False
        self._pid = os.getpid()
        self._wake = -1
        self._pipe: tuple[int, int] | None = None  # which file that is
        self.name = ""
        self.path = ""
        self.workers = 0  # of the attempt that is under way

    def is_of(self, trainer: Any) -> bool:
        return self._trainer is trainer

    def run(self) -> Result:
        """See DataParallelTrainer.fit."""
        self._join = defaults.joined()
        if self._join is not None and self._join.node_rank > 0:
            raise SystemExit(_serve(self._join, self._config))
        self._display = _display(self._config, self._run_path)
        if self._display is not None:
            _refuse_input(self._config)
        self._find_remote()
        with contextlib.ExitStack() as stack:
            self._returned = stack.enter_context(payload.Returned())
            data = stack.enter_context(
                self._forked() if self._config.start_method == "fork" else self._payload()
            )
            if self._display is not None:
                stack.enter_context(self._display)
            signals = stack.enter_context(Signals(self._config.preempt_signal, self.interrupt))
            self._prepare_remote()
            stack.callback(self._find_validations())
            self._signals = signals
            self._run = self._begun(data)
            try:
                if self._stopped:
                    self._run.stop(0)
                self._loop()
            except BaseException:
                if not self.is_child():
                    self._give_up()
                    if self._remote is not None:
                        self._remote.give_up()
                raise
            text, error = _close(self._run)
            returned = self._returned.value() if error is None else None
            summary = json.loads(text) if text else {}
            self._tell_how_to_go_on(summary)
        try:
            if getattr(error, "symbol", "") == "TY_EPREEMPTED":
                signals.end_by_it()
            else:
                signals.raise_again(error)
            self._finish_remote(error)
            result = self._conclude(summary, error)
        except BaseException as raised:
            self._tell_end(summary, raised)
            raise
        result.return_value = returned
        try:
            self._each("on_run_end", result=result, error=None)
            self._each("after_run", result=result)
        except Exception as raised:
            raise ControllerError(raised) from raised
        return result

    def _tell_end(self, summary: dict[str, Any], error: BaseException) -> None:
        """To the callbacks of a run that failed; nothing that one raises takes the place of the error."""
        from . import result

        with contextlib.suppress(Exception):
            self._each("on_run_end", result=None, error=error)
        if not summary or not isinstance(error, Exception):
            return
        with contextlib.suppress(Exception):
            try:
                failed = result.told(summary, self._ranking, self._remote)
            except Exception:  # the other side cannot be reached: what is here is told
                failed = result.told(summary, self._ranking)
            failed.error = error
            self._each("after_run", result=failed)

    def _begun(self, data: bytes) -> Any:
        """The run. On nodes that come and go it waits until its workers, of an elastic one the least, fit."""
        told = 0.0
        while True:
            try:
                return _open(self._said(), data)
            except ControllerError as error:
                short = isinstance(error.controller_failure, InsufficientClusterResourcesError)
                grows = defaults.current.grows and self._config.start_method != "fork"
                if not short or not grows or self._stopped:
                    raise
                quiet = self._config.quiet or defaults.policy.quiet
                if not quiet and (not told or time.monotonic() - told >= _TELL_S):
                    warn(f"{error.controller_failure}: the run waits for nodes")
                    told = time.monotonic()
                time.sleep(min(self.scaling.elastic_resize_monitor_interval_s, _LOOK_S))

    def _find_remote(self) -> None:
        """The other side of a run that is kept on another file system."""
        config = self._config
        if not config._is_remote():
            return
        from . import remote

        base, filesystem = remote.find(config.storage_path, config.storage_filesystem)
        self._remote = remote.Remote(os.path.join(base, self._group).rstrip("/"), filesystem, warn)

    def _prepare_remote(self) -> None:
        """Tries it before anything is started."""
        if self._remote is not None:
            resume = self._config.resume or defaults.policy.resume
            self._remote.prepare(settings_of(self._config).get("name"), _core.storage_path(), resume)

    def _find_validations(self) -> Callable[[], None]:
        """Makes ready what is validated beside the training, also what an earlier `fit` of the run left; gives what ends it."""
        config = self._trainer.validation_config
        if config is None:
            return lambda: None
        from . import validation

        asked = (config.ray_remote_kwargs.get("runtime_env") or {}).get("env_vars") or {}
        environment = {name: text for name, text in self._environment().items() if text is not None}
        facts = {**self._facts(), "returned": None}
        made = validation.Validations(
            config,
            _interpreter(),
            {**environment, **asked},
            facts,
            subprocess.DEVNULL if self._config.quiet or defaults.policy.quiet else None,
        )
        self._validations = made
        if self._resumes() and self._config.name is not None:
            from . import result

            path = os.path.join(self._storage_path() or _core.storage_path(), os.path.basename(self._config.name))
            with contextlib.suppress(_core.Error, OSError, ValueError):  # the run itself will tell
                for one in json.loads(_core.result_read(path))["checkpoints"]:
                    made.resume(one["number"], result.place_of(path, one["name"]), one["metrics"])
        return made.stop

    def _finish_remote(self, error: Exception | None) -> None:
        if self._remote is None:
            return
        from . import remote

        try:
            self._remote.finish()
        except remote.UploadFailed as failed:
            if error is None:  # else that is what failed first
                raise ControllerError(failed) from failed

    def _tell_remote(self, kind: str, event: dict[str, Any]) -> None:
        assert self._remote is not None
        if kind == "run":
            self._remote.begin(self.name, self._run_path())
        elif kind == "checkpoint":
            self._remote.committed(event["path"])

    def _give_up(self) -> None:
        """Ends the run at once, also when a signal's handler raises meanwhile."""
        try:
            self._run.stop(signal.SIGKILL)
        finally:
            with contextlib.suppress(Exception):
                self._run.close()

    def is_child(self) -> bool:
        """Whether this is a child that a callback forked: the run is none of its business, whatever it raises or returns."""
        return os.getpid() != self._pid

    def stop(self) -> None:
        """Ends the run, politely at first; from any thread."""
        self._stopped = True
        if not self.is_child():
            self.interrupt(0)

    def interrupt(self, number: int) -> bool:
        """Hands a signal to the run, 0 ends it politely; False while there is none. Also from a signal's handler."""
        if self._run is None:
            return False
        self._stopped = True
        with contextlib.suppress(ValueError):  # it has ended meanwhile
            self._run.stop(number)
        self.wake()
        return True

    def wake(self) -> None:
        if self._wakes(self._wake):
            os.write(self._wake, b"\0")

    def _wakes(self, fd: int) -> bool:
        return fd >= 0 and payload.file_of(fd) == self._pipe

    def request(self) -> dict[str, Any]:
        """What ty_run_open is asked."""
        trainer, config, given, hosts = self._trainer, self._config, defaults.current, defaults.named()
        backend = trainer.backend_config
        fork = config.start_method == "fork"
        request = {
            "scaling": json.loads(fields_json(self.scaling)),
            **settings_of(config),
            "grace_s": self._grace(),
            "storage_path": self._storage_path(),
            "resume": self._resumes(),
            "engine": given.engine,
            "cluster": given.cluster,
            "join": self._join
            and {
                "nodes": list(self._join.nnodes),
                "rank": self._join.node_rank,
                "address": self._join.rendezvous,
            },
            "hosts": hosts and dataclasses.asdict(hosts),
            "num_cpus": given.num_cpus,
            "num_gpus": given.num_gpus,
            "node_resources": given.resources or None,
            "argv": [*_interpreter(), "-m", "trainyard._worker"],
            "template_argv": None
            if fork
            else [*_interpreter(), "-m", "trainyard._template", *self._preload()],
            "environment": self._environment(),
            "framework": backend.framework,
            "backend": backend.comm_backend(self.scaling),
            "isolate_devices": self._isolates(),
            "quiet": config.quiet or defaults.policy.quiet,
            "progress": "none" if self._display is not None else config.progress,
            "output": "events" if self._display is not None else "inherit",
            "events": self._events(),
            "failure_config": settings_of(config.failure_config),
            "checkpoint_config": {**settings_of(config.checkpoint_config), "manifest": defaults.policy.manifest},
            "keep_agents": not fork,  # the copy is of this moment
        }
        return {name: value for name, value in request.items() if value is not None}

    def _said(self) -> dict[str, Any]:
        """Of the request what the program, or a policy, has said."""
        request, config = said_of(self._config, self.request()), self._config
        for section in ("failure_config", "checkpoint_config"):
            request[section] = said_of(getattr(config, section), request[section])
        return request

    def _isolates(self) -> bool:
        """Whether a worker sees its own devices alone."""
        if self._config.isolate_devices:
            return True
        sharing, kinds = defaults.policy.sharing, set(self.scaling._resources_per_worker_not_none)
        if "GPU" in kinds and sharing.get("AMD GPU") != sharing.get("GPU") and self._is_on_amd():
            kinds = kinds - {"GPU"} | {"AMD GPU"}
        said = [sharing[kind] for kind in kinds if kind in sharing]
        if said:
            return not all(said)
        backend = self._trainer.backend_config
        shares = backend.backend_cls.share_cuda_visible_devices if backend._has_hooks else backend.shares_devices
        return defaults.policy.shares_by_backend and not shares

    def _is_on_amd(self) -> bool:
        """Whether the GPUs are AMD's: those that are asked for, else those of any node."""
        asked = self.scaling.accelerator_type
        if asked is not None:
            return asked.startswith("AMD-")
        return any(node.get("accelerator_type", "").startswith("AMD-") for node in defaults.current.nodes())

    def _preload(self) -> list[str]:
        """What the template imports: what the backend needs, and what data sets are read with. pyarrow imports pandas for text."""
        modules = list(self._trainer.backend_config.preload)
        if self._trainer.datasets:
            modules += [name for name in ("trainyard.data", "pyarrow.parquet") if name in sys.modules]
            if "pyarrow" in sys.modules and importlib.util.find_spec("pandas") is not None:
                modules.append("pandas")
        return modules

    def _grace(self) -> float | None:
        """Of the run, with what the failure config adds to it."""
        more = self._config.failure_config.preemption_grace_s
        return (
            (_GRACE_S if self._config.grace_s is None else self._config.grace_s) + more
            if more
            else self._config.grace_s
        )

    @contextlib.contextmanager
    def _payload(self) -> Iterator[bytes]:
        """What is sent to the workers."""
        trainer = self._trainer
        with contextlib.ExitStack() as stack:
            datasets = None
            if trainer.datasets:
                from .data import travel

                datasets = stack.enter_context(travel.lent(trainer.data()))
            data = payload.dump(
                trainer.train_loop_per_worker,
                trainer.train_loop_config,
                trainer.backend_config,
                self._facts(),
                datasets,
            )
            sent = stack.enter_context(payload.sendable(data))
            del data, datasets
            yield sent

    def _facts(self) -> dict[str, Any]:
        """Plain settings that go with the training function."""
        directory = check_directory(self._config.worker_runtime_env, "RunConfig.worker_runtime_env")
        score = self._config.checkpoint_config.checkpoint_score_attribute
        # A `fit` of a worker is of its machine.
        given = defaults.current
        here = dataclasses.replace(given, join=None, hosts=None)
        if here.engine == "join":
            here.engine = None
        if defaults.policy.shows_nodes and self._join is None and defaults.named() is None and given.cluster is None:
            here.seen = given.nodes()
        return {
            "resources": self.scaling._resources_per_worker_not_none,
            "trainer_resources": self.scaling._trainer_resources_not_none,
            "directory": directory or defaults.current.directory,
            "defaults": dataclasses.asdict(here) if here != defaults.Defaults() else None,
            "returned": self._returned.place,
            "exits_fail": defaults.policy.exits_fail,
            "validates": self._trainer.validation_config is not None,
            "storage": self._remote.sent() if self._remote is not None else None,
            "storage_there": defaults.policy.storage_there,
            "group": self._group,
            "resume_from": self._trainer.resume_from_checkpoint,
            "metadata": self._trainer.metadata,
            "score": score and (score, self._config.checkpoint_config.checkpoint_score_order),
        }

    @contextlib.contextmanager
    def _forked(self) -> Iterator[bytes]:
        """Instead of what is sent: workers come from a copy of this process, which has it all."""
        from . import _fork

        _fork.begin(self._trainer, self._facts())
        try:
            yield b""
        finally:
            _fork.drop()

    def _environment(self) -> dict[str, str | None]:
        """Of all workers: this process's, then the backend's, then what `init` and the run config say."""
        environment = _own_environment()
        environment.update(self._trainer.backend_config.environment(self.scaling))
        environment.update(defaults.current.environment)
        environment.update(check_environment(self._config.worker_runtime_env, "RunConfig.worker_runtime_env"))
        limits.check(environment)
        environment["PYTHONPATH"] = _python_path(environment.get("PYTHONPATH") or "")
        return environment

    def _events(self) -> list[str]:
        names = list(_EVENTS)
        if self._callbacks:
            names += reports.KINDS
        if self._remote is not None:
            names += ["checkpoint"]
        if self._validations is not None:
            names += [*reports.KINDS, "run_end"]
        if self._display is not None:
            names += self._display.events
        return sorted(set(names))

    def _loop(self) -> None:
        """Steps the run to its end."""
        poller = select.poll()
        poller.register(self._run.fileno(), select.POLLIN)
        with _waker(self) as wake:
            poller.register(wake, select.POLLIN)
            while True:
                goes_on = self._run.dispatch()
                for text in iter(self._run.next_event, None):
                    self._take(json.loads(text))
                if not goes_on:
                    break
                timeout = self._run.timeout_ms()
                with self._validated(poller, timeout) as timeout:
                    for fd, events in poller.poll(timeout):
                        if fd == wake and events & select.POLLIN and self._wakes(wake):
                            os.read(wake, 4096)
            poller.unregister(self._run.fileno())
            while self._validations is not None and not self._stopped:
                with self._validated(poller, -1) as timeout:
                    if not self._validations.busy:
                        break
                    poller.poll(timeout)

    @contextlib.contextmanager
    def _validated(self, poller: select.poll, timeout_ms: int) -> Iterator[int]:
        """Around a wait: what is validated goes on, and ends the wait when it has ended. Gives how long to wait at most."""
        if self._validations is None:
            yield timeout_ms
            return
        self._validations.step(self._run)
        fd = self._validations.fd
        if fd >= 0:
            poller.register(fd, select.POLLIN)
        try:
            yield self._validations.timeout_ms(timeout_ms)
        finally:
            if fd >= 0:
                poller.unregister(fd)

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "log":
            _tell_log(event)
        elif kind == "run":
            self.name = event["name"]
            self._ranking = recorded_config(event)
            if self._signals is not None and "preempt_signal" in event:
                self._signals.also(event["preempt_signal"])
        elif kind == "attempt_end":
            self._attempt_end = event
            self.workers = 0
        elif kind == "attempt":
            self.workers = event["workers"]
            if self._attempt_end is not None:
                self._tell_attempt(self._attempt_end)
        if self._remote is not None:
            self._tell_remote(kind, event)
        if self._validations is not None and kind in reports.KINDS:
            self._validations.take(event, self._run)
        elif kind == "run_end" and event.get("outcome") == "time_limit":
            self._stopped = True  # nothing is waited for any more
        self._failures.take(event)
        if self._display is not None:
            self._display.take(event)
        if self._callbacks and self._broken is None:
            try:
                self._call_back(kind, event)
            except Exception as error:
                if self.is_child():
                    raise
                self._broken = error
                self._tell_broken(error)
                self._run.stop(0)

    def _tell_attempt(self, event: dict[str, Any]) -> None:
        """The traceback of an attempt that another follows; that of the last one is on the screen of the first cause."""
        rank, text = self._failures.first_traceback(event.get("rank"))
        if text is not None and not self._config.quiet:
            print(f"trainyard: attempt {event['attempt']} ended with rank {rank}:\n{barred(text)}", file=sys.stderr)

    def _tell_broken(self, error: Exception) -> None:
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        print(f"trainyard: a callback raised, which ends the run: {harmless(text)}", file=sys.stderr)

    def _call_back(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "run":
            self._each("on_run_start")
            self._each("before_run")
        elif kind == "attempt":
            self._reports = reports.Reports(event["workers"], self._remote and self._remote.there)
            self._each("on_attempt_start", attempt=event["attempt"], num_workers=event["workers"])
        elif kind in reports.KINDS and self._reports is not None:
            for metrics, checkpoint in self._reports.take(event):
                self._each("after_report", metrics=metrics, checkpoint=checkpoint)
        elif kind == "attempt_end" and event.get("outcome") not in (None, "succeeded", "finished"):
            failed = self._failures.collect(self._run_path())
            if failed:
                self._each("after_exception", worker_exceptions=failed)

    def _each(self, method: str, **arguments: Any) -> None:
        for callback in self._callbacks:
            function = getattr(callback, method, None)
            if function is not None:
                function(run_context=self._context(), **arguments)

    def _tell_how_to_go_on(self, summary: dict[str, Any]) -> None:
        """What to write after a run that was stopped from outside, or lost a node."""
        if summary.get("outcome") not in ("interrupted", "preempted", "time_limit", "node_lost"):
            return
        there = self._config.storage_path if self._remote is not None else self._storage_path()
        name = os.path.join(self._group, summary["name"]) if self._remote is not None else summary["name"]
        fields = {"name": name, "storage_path": there}
        words = [f"{name}={value!r}" for name, value in fields.items() if value is not None]
        words += [] if defaults.policy.resume else ["resume=True"]
        print(f"trainyard: to go on: fit again with RunConfig({', '.join(words)})", file=sys.stderr)

    def _tell_success(self, summary: dict[str, Any]) -> None:
        silent = self._config.quiet or defaults.policy.quiet or self._config.progress == "none"
        if summary.get("summary") and not silent and self._display is None:
            print(f"trainyard: {harmless(summary['summary'])}", file=sys.stderr, flush=True)

    def _storage_path(self) -> str | None:
        """Where runs are kept; None for the library's default."""
        path = self._config.storage_path or defaults.policy.storage_path
        if self._remote is not None:
            return None
        return os.path.abspath(os.path.join(os.path.expanduser(path), self._group)) if path else None

    def _resumes(self) -> bool:
        """Where that is the default nobody has asked, so that a new name is not worth a word."""
        if self._config.resume or not defaults.policy.resume or self._config.name is None:
            return self._config.resume
        return os.path.exists(os.path.join(self._storage_path() or _core.storage_path(), os.path.basename(self._config.name)))

    def _run_path(self) -> str:
        return os.path.join(self._storage_path() or _core.storage_path(), self.name)

    def _context(self) -> RunContext:
        trainer = self._trainer
        config = dataclasses.replace(self._config, name=os.path.join(self._group, self.name))
        return RunContext(
            self.name,
            self._run_path(),
            config,
            self.scaling,
            trainer.backend_config,
            trainer.train_loop_config,
            trainer.dataset_config,
            self._reports.number if self._reports is not None else 0,
        )

    def _conclude(self, summary: dict[str, Any], error: Exception | None) -> Result:
        """The Result of a run that succeeded; raises what it failed with."""
        from . import result

        if self._broken is not None:
            raise ControllerError(self._broken) from self._broken
        if error is None:
            self._tell_success(summary)
            return result.told(summary, self._ranking, self._remote)
        shown = bool(summary.get("failure")) and not self._config.quiet
        if shown:
            print(summary["failure"].rstrip("\n"), file=sys.stderr, flush=True)
        chained = defaults.policy.tracebacks
        raised = self._failures.exception(error, summary, tracebacks=chained or not shown)
        failed = getattr(raised, "worker_failures", {}) if chained else {}
        raise raised from next(iter(failed.values()), None)


def _tell_log(event: dict[str, Any]) -> None:
    """What the library logs; about the scaling config that config has warned already, when it was made."""
    if event["subsystem"] == "backend":
        warnings.warn(event["text"], stacklevel=6)  # where `fit` was called
    elif event["subsystem"] != "scaling":
        print(f"trainyard: {harmless(event['text'])}", file=sys.stderr)


def _open(request: dict[str, Any], data: bytes) -> Any:
    try:
        with Signals.awaited(request):
            return _core.Run(json.dumps(request), data)
    except _core.Error as error:
        raise failures.refusal(error) from None


def _close(run: Any) -> tuple[str | None, Exception | None]:
    """The result as JSON, None when the run never started, and why it failed."""
    try:
        return run.close(), None
    except Exception as error:
        return getattr(error, "result", None), error


def _interpreter() -> list[str]:
    """This interpreter with its flags; what lies in the working directory is not to hide what it imports."""
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *safe, *(flag for flag in flags if flag != "-P")]


def _own_environment() -> dict[str, str | None]:
    """This process's variables; None for a value that is no UTF-8, which JSON cannot carry and the library takes by itself. One
    without a name, which a parent may have left there, is none."""
    return {name: text if is_utf8(text) else None for name, text in os.environ.items() if name and is_utf8(name)}


def _python_path(given: str) -> str:
    """PYTHONPATH by which a fresh interpreter finds this package."""
    entries = [entry for entry in given.split(os.pathsep) if entry]
    if _PACKAGE_HOME in entries or os.path.basename(_PACKAGE_HOME) in ("site-packages", "dist-packages"):
        return given
    return os.pathsep.join([_PACKAGE_HOME, *entries])


def _display(config: RunConfig, path: Callable[[], str]) -> Any:
    """What shows the run in a notebook; None elsewhere, where output is inherited."""
    if "IPython" not in sys.modules:
        return None
    from . import notebook

    return notebook.Display(config, path) if notebook.in_kernel() else None


def _refuse_input(config: RunConfig) -> None:
    """A kernel's standard input is nobody's."""
    for name in ("debug", "stdin"):
        if getattr(config, name) not in (None, "none"):
            raise ValueError(
                f"`RunConfig.{name}`: a notebook has no terminal and no standard input to give; with `pty=True` each worker has a "
                "terminal, and `trainyard attach NAME --rank N`, in a terminal of yours, is at it"
            )


@contextlib.contextmanager
def _waker(driver: Driver) -> Iterator[int]:
    """A descriptor that `driver.wake` makes readable, from a signal handler too."""
    read, write = pipe(os.O_NONBLOCK)
    driver._wake, driver._pipe = write, payload.file_of(write)  # which is that of both ends
    try:
        yield read
    finally:
        driver._wake = -1
        for fd in (read, write):
            payload.close_file(fd, driver._pipe)
