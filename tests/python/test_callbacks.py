"""Callbacks in the driver."""

import os
import signal
import subprocess
import sys

import pytest
import trainyard
from conftest import processes_with, wait_until
from trainyard import (
    Checkpoint,
    ControllerError,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    UserCallback,
    WorkerGroupError,
)
from trainyard.data import DataConfig

pytestmark = pytest.mark.usefixtures("common_directory")


class Recorder(UserCallback):
    def __init__(self):
        self.reports = []
        self.exceptions = []
        self.contexts = []

    def after_report(self, run_context, metrics, checkpoint):
        self.contexts.append(run_context)
        self.reports.append((metrics, checkpoint))

    def after_exception(self, run_context, worker_exceptions):
        self.contexts.append(run_context)
        self.exceptions.append(worker_exceptions)


def fit(storage, function, callback, workers=3, **run):
    trainer = DataParallelTrainer(
        function,
        train_loop_config={"lr": 1},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=storage, callbacks=[callback], **run),
    )
    return trainer.fit()


def test_reports_of_all_ranks(storage):
    def train(config):
        rank = trainyard.get_context().get_world_rank()
        for step in range(5):
            trainyard.report({"step": step, "rank": rank, "pair": {1: rank}})

    callback = Recorder()
    fit(storage, train, callback, name="mine")
    assert callback.reports == [
        ([{"step": step, "rank": rank, "pair": {1: rank}} for rank in range(3)], None) for step in range(5)
    ]
    context = callback.contexts[0]
    assert (context.run_id, context.path, context.train_loop_config) == ("mine", f"{storage}/mine", {"lr": 1})
    assert context.get_run_config().name == "mine" and context.scaling_config.num_workers == 3


def test_a_rank_that_is_silent(storage):
    def train(config):
        if trainyard.get_context().get_world_rank() != 1:
            trainyard.report({"a": 1})

    callback = Recorder()
    fit(storage, train, callback)
    assert callback.reports == []


def test_checkpoints_come_with_their_report(storage, tmp_path):
    def train(config):
        import pathlib
        import tempfile

        rank = trainyard.get_context().get_world_rank()
        trainyard.report({"n": 1})
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, f"rank-{rank}").write_text("x")
            trainyard.report({"n": 2}, checkpoint=Checkpoint.from_directory(directory) if rank > 0 else None)
        trainyard.report({"n": 3})

    callback = Recorder()
    result = fit(storage, train, callback)
    assert [metrics[0]["n"] for metrics, _ in callback.reports] == [1, 2, 3]
    assert [checkpoint for _, checkpoint in callback.reports] == [None, result.checkpoint, None]


def test_exceptions_of_the_ranks_that_failed(storage):
    def train(config):
        import time

        context = trainyard.get_context()
        if context.get_world_rank() == 0 and context.get_attempt() < 3:
            raise ValueError(f"attempt {context.get_attempt()}")
        if context.get_attempt() < 3:
            time.sleep(60)

    callback = Recorder()
    fit(storage, train, callback, failure_config=FailureConfig(max_failures=2))
    assert [list(failed) for failed in callback.exceptions] == [[0], [0]]
    assert [str(failed[0]) for failed in callback.exceptions] == ["attempt 1", "attempt 2"]
    callback = Recorder()
    with pytest.raises(WorkerGroupError):
        fit(storage, train, callback)
    assert [str(failed[0]) for failed in callback.exceptions] == ["attempt 1"]


class Ends(UserCallback):
    def __init__(self, broken=None):
        self.heard = []
        self.broken = broken

    def hear(self, what, context, *more):
        assert context.get_run_config().name
        self.heard.append((what, *more))
        if self.broken == what:
            raise RuntimeError("broken")

    def on_run_start(self, run_context):
        self.hear("start", run_context)

    def on_attempt_start(self, run_context, attempt, num_workers):
        self.hear("attempt", run_context, attempt, num_workers)

    def on_run_end(self, run_context, result, error):
        self.hear("end", run_context, result, type(error))


def fails_at_first():
    assert trainyard.get_context()._session.attempt > 1


def test_start_attempts_and_end(storage):
    ends = Ends()
    result = fit(storage, lambda: None, ends, workers=2)
    assert ends.heard == [("start",), ("attempt", 1, 2), ("end", result, type(None))]
    ends = Ends()
    fit(storage, fails_at_first, ends, workers=1, failure_config=FailureConfig(max_failures=1))
    assert [what for what, *_ in ends.heard] == ["start", "attempt", "attempt", "end"]
    ends = Ends("end")
    with pytest.raises(WorkerGroupError):  # not what the callback raises
        fit(storage, lambda: 1 / 0, ends, workers=1)
    assert ends.heard[-1] == ("end", None, WorkerGroupError)


class Runs(UserCallback):
    def __init__(self):
        self.heard = []

    def before_run(self, run_context):
        self.heard.append(run_context.get_run_config().name)

    def after_run(self, run_context, result):
        self.heard.append((result.metrics, result.error))
        raise RuntimeError("broken")


def test_before_and_after_a_run(storage):
    runs = Runs()
    with pytest.raises(ControllerError, match="broken"):
        fit(storage, lambda: trainyard.report({"a": 1}), runs, workers=1)
    assert (len(runs.heard), runs.heard[1]) == (2, ({"a": 1}, None))

    def fails():
        trainyard.report({"a": 2})
        raise ValueError("of the function")

    runs = Runs()
    with pytest.raises(WorkerGroupError) as raised:  # not what the callback raises
        fit(storage, fails, runs, workers=1)
    assert runs.heard[1:] == [({"a": 2}, raised.value)]


@pytest.mark.parametrize("where", ["start", "attempt", "end"])
def test_one_that_raises_at_any_of_them_fails_the_run(storage, where):
    ends = Ends(where)
    with pytest.raises(ControllerError, match="broken"):
        fit(storage, lambda: None, ends, workers=1)
    assert ends.heard[-1][0] == "end"


@pytest.mark.parametrize("method", ["after_report", "after_exception"])
def test_a_broken_callback_ends_the_run(storage, method):
    def train(config):
        import time

        trainyard.report({"a": 1})
        if config["fails"]:
            raise ValueError
        time.sleep(60)

    class Broken(UserCallback):
        pass

    def broken(self, **arguments):
        raise KeyError("broken")

    setattr(Broken, method, broken)
    trainer = DataParallelTrainer(
        train,
        train_loop_config={"fails": method == "after_exception"},
        run_config=RunConfig(
            storage_path=storage, callbacks=[Broken()], failure_config=FailureConfig(max_failures=3)
        ),
    )
    with pytest.raises(ControllerError) as caught:
        trainer.fit()
    assert isinstance(caught.value.controller_failure, KeyError)


def test_classes_that_the_environment_names(storage, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from trainyard import UserCallback\n"
        "class Callback(UserCallback):\n"
        "    seen = []\n"
        "    def after_report(self, *, metrics, **others):\n"
        "        self.seen.append(metrics)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RAY_TRAIN_CALLBACKS", "mine.Callback")
    DataParallelTrainer(lambda: trainyard.report({"a": 1}), run_config=RunConfig(storage_path=storage)).fit()
    from mine import Callback

    assert Callback.seen == [[{"a": 1}]]


def test_a_callback_may_begin_a_run_of_its_own(storage):
    class Nested(UserCallback):
        inner = None

        def after_report(self, **arguments):
            if self.inner is None:
                train = lambda: trainyard.report({"inner": True})
                self.inner = (
                    DataParallelTrainer(train, run_config=RunConfig(storage_path=storage)).fit().metrics
                )

    def train(config):
        for step in range(3):
            trainyard.report({"step": step})

    callback = Nested()
    assert fit(storage, train, callback).metrics == {"step": 2} and callback.inner == {"inner": True}


@pytest.mark.parametrize("opens", [0, 40])
def test_who_closes_the_descriptors_of_the_run_is_told(storage, place, opens):
    """In a process of its own, of which nothing else is left: no abort, no worker, and the run can be resumed."""
    program = f"""
import os, sys, time, trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, UserCallback

class Closes(UserCallback):
    def after_report(self, **arguments):
        os.closerange(3, 4096)
        self.files = [open({str(place)!r} + f"/mine-{{i}}", "w") for i in range({opens})]

def train(config):
    trainyard.report({{"a": 1}})
    time.sleep(60)

run = RunConfig(name="r", storage_path={str(storage)!r}, callbacks=[Closes()])
DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
"""
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=300)
    assert ended.returncode == 1, ended.stderr
    last = ended.stderr.rstrip().splitlines()[-1]
    assert "closed the run's descriptors" in last
    assert "the storage hangs" not in ended.stderr
    assert ranks(place) == []


OPENS = """
import os, sys, time, trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, UserCallback

place, way = sys.argv[1:]
mine = []

def close_all_and_open_others():
    time.sleep(2)  # what is being written comes to its end
    os.closerange(3, 4096)
    for i in range(60):
        fd = os.open(f"{place}/mine-{i}", os.O_RDWR | os.O_CREAT)
        os.write(fd, b"mine")
        mine.append((fd, os.fstat(fd).st_ino))

class Closes(UserCallback):
    def after_report(self, **arguments):
        if way == "between two runs":
            return
        if not mine:
            close_all_and_open_others()
        if way == "and raises":
            raise RuntimeError("enough")

def train(config):
    trainyard.report({"a": 1})
    time.sleep(60 if config else 0)

def fit(**config):
    run = RunConfig(storage_path=f"{place}/runs", callbacks=[Closes()], metrics_file=f"{place}/metrics.prom")
    scaling = ScalingConfig(num_workers=2)
    return DataParallelTrainer(train, train_loop_config=config, scaling_config=scaling, run_config=run).fit()

if way == "between two runs":
    fit()
    close_all_and_open_others()
    print(fit().metrics)
else:
    try:
        fit(long=True)
    except Exception as error:
        print(repr(error))
for fd, file in mine:
    try:
        same = os.fstat(fd).st_ino == file
    except OSError:
        same = False
    same = same and os.pread(fd, 100, 0) == b"mine" and os.lseek(fd, 0, os.SEEK_CUR) == 4
    print("mine" if same else f"descriptor {fd} is not as it was")
"""


@pytest.mark.parametrize(
    "way, told",
    [
        ("in a callback", "closed the run's descriptors"),
        ("and raises", "enough"),
        ("between two runs", "{'a': 1}"),
    ],
)
def test_who_closes_them_keeps_the_files_that_have_their_numbers_by_now(place, way, told):
    """They are neither closed, nor written or read."""
    ended = subprocess.run(
        [sys.executable, "-c", OPENS, str(place), way], capture_output=True, text=True, timeout=300
    )
    first, *files = ended.stdout.splitlines()
    assert told in first, ended.stderr
    assert files == ["mine"] * 60
    assert ranks(place) == []


@pytest.mark.parametrize(
    "way, error",
    [
        ("raise SystemExit(7)", SystemExit),
        ("raise KeyboardInterrupt", KeyboardInterrupt),
        ("signal.setitimer(signal.ITIMER_REAL, 0.01)", ZeroDivisionError),
    ],
)
def test_what_is_raised_in_the_midst_of_a_run_leaves_nothing_of_it(storage, place, way, error):
    """By a callback, or by the handler of a signal."""

    class Raises(UserCallback):
        def after_report(self, **arguments):
            exec(way, {"signal": signal})

    def train(config):
        import time

        trainyard.report({"a": 1})
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)

    before = signal.signal(signal.SIGALRM, lambda *arguments: 1 / 0)
    try:
        with pytest.raises(error):
            fit(storage, train, Raises())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert wait_until(lambda: ranks(place) == []), "workers live on"
    assert fit(storage, lambda config: trainyard.report({"a": 2}), Recorder()).metrics == {"a": 2}


def ranks(place):
    """Pids of workers."""
    found = []
    for pid in processes_with(str(place)):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                found += [pid] * ("rank" in file.read())
        except OSError:
            pass
    return found


@pytest.mark.parametrize("given", [None, DataConfig(datasets_to_split=[])])
def test_the_context_has_the_config_of_the_data_sets(storage, given):
    callback = Recorder()
    DataParallelTrainer(
        lambda: trainyard.report({}),
        run_config=RunConfig(storage_path=storage, callbacks=[callback]),
        dataset_config=given,
    ).fit()
    found = callback.contexts[0].dataset_config
    assert found is given if given else isinstance(found, DataConfig)


def test_a_handler_of_a_callback_stays(storage):
    """One that is put in place of the run's own is not taken back at the end."""
    mine = lambda *_: None
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    class Handles(UserCallback):
        def on_run_start(self, run_context):
            signal.signal(signal.SIGTERM, mine)

    try:
        fit(storage, lambda config: None, Handles(), workers=1)
        assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGHUP) == before[signal.SIGHUP]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_child_has_no_handler_of_a_run_that_had_one_within(storage):
    """Of a run within another nothing is forgotten when that ends."""
    ends = []

    class Within(UserCallback):
        def on_run_start(self, run_context):
            fit(storage, lambda config: None, UserCallback(), workers=1)

        def on_attempt_start(self, run_context, attempt, num_workers):
            child = os.fork()
            if child == 0:
                os._exit(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
            ends.append(os.waitpid(child, 0)[1])

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    fit(storage, lambda config: None, Within(), workers=1)
    assert ends == [0]
