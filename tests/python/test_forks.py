"""Children that are forked where it hurts: in a worker beside its threads, and in the driver in the midst of a run.

A child is never the run's: what belongs to the process that forked it is neither used nor ended by the child's end.
"""

import os
import signal
import textwrap

import pytest
from conftest import processes_with, wait_until

# -- in workers

WORKERS = """
import multiprocessing, os, signal, subprocess, sys, threading, time, trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig

def wait_for(pid, seconds=180):
    '''The exit status of a child; one that hangs is killed.'''
    for _ in range(seconds * 100):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"

def fit(train, workers, method="spawn"):
    config = RunConfig(storage_path=sys.argv[1], start_method=method, name="forks")
    return DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=workers), run_config=config).fit()
"""


def run(start, storage, text, head=WORKERS):
    finished = start(head + textwrap.dedent(text), storage).finish()
    assert finished.status == 0, finished
    return finished


@pytest.mark.parametrize("method", ["spawn", "template", "fork"])
def test_a_child_reports_while_a_thread_of_the_worker_waits(start, storage, method):
    run(
        start,
        storage,
        f"""
        def child():
            trainyard.report({{"child": True}})

        def train():
            if trainyard.get_context().get_world_rank() == 1:
                while not os.path.exists("come"):
                    time.sleep(0.01)
                trainyard.collective.barrier()
                return
            thread = threading.Thread(target=trainyard.collective.barrier)
            thread.start()
            time.sleep(0.3)  # it waits for rank 1
            pid = os.fork()
            if pid == 0:
                child()
                os._exit(7)
            ends = [wait_for(pid)]
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            ends.append(wait_for(process.pid))
            ends.append(subprocess.call(["true"], preexec_fn=child))
            open("come", "w").close()
            thread.join()
            trainyard.report({{"ends": ends}})

        result = fit(train, 2, {method!r})
        assert result.metrics == {{"ends": [7, 0, 0]}}, result.metrics
        import sqlite3
        rows = sqlite3.connect(result.path + "/run.db").execute(
            "SELECT number, metrics FROM reports WHERE rank = 0 ORDER BY id").fetchall()
        assert [number for number, _ in rows] == [1, 2, 3, 4], rows
        """,
    )


def test_children_are_forked_while_a_thread_makes_the_first_report(start, storage):
    """What `report` needs is imported by then: a child cannot import what a thread of its parent was importing."""
    run(
        start,
        storage,
        """
        def fork(ends):
            for _ in range(10):
                pid = os.fork()
                if pid == 0:
                    trainyard.report({"child": True})
                    os._exit(0)
                ends.append(wait_for(pid))

        def train():
            sys.setswitchinterval(1e-6)
            ends = []
            threads = [threading.Thread(target=fork, args=(ends,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for _ in range(100):
                trainyard.report({"child": False})
            for thread in threads:
                thread.join()
            assert ends == [0] * 20, ends

        fit(train, 1)
        """,
    )


@pytest.mark.parametrize("method", ["spawn", "template", "fork"])
def test_the_end_of_a_child_is_not_that_of_the_worker(start, storage, method):
    """However it ends: by an exit, an exception, or as if it were the function itself."""
    finished = run(
        start,
        storage,
        f"""
        def train():
            ends = []
            for way in ("exit", "failure", "return"):
                pid = os.fork()
                if pid == 0:
                    trainyard.report({{"way": way}})
                    if way == "exit":
                        sys.exit(3)
                    if way == "failure":
                        raise KeyError("of the child")
                    return
                ends.append(wait_for(pid))
            trainyard.report({{"ends": ends}})

        result = fit(train, 2, {method!r})
        assert result.metrics == {{"ends": [3, 1, 0]}}, result.metrics
        assert [attempt.outcome for attempt in result.history] == ["succeeded"]
        import sqlite3
        rows = sqlite3.connect(result.path + "/run.db").execute(
            "SELECT metrics FROM reports WHERE rank = 0 ORDER BY id").fetchall()
        ways = ["exit", "failure", "return"]
        assert [eval(text) for text, in rows] == [{{"way": way}} for way in ways] + [{{"ends": [3, 1, 0]}}]
        """,
    )
    assert "KeyError: 'of the child'" in finished.out + finished.err


# -- in the driver

DRIVER = """
import multiprocessing, os, signal, sys, threading, time, trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, UserCallback
driver, ends = os.getpid(), []

def train():
    for i in range(3):
        trainyard.report({"i": i})
        time.sleep(0.2)

def fit(callback, train=train, method="auto", **scaling):
    config = RunConfig(storage_path=sys.argv[1], name="forks", callbacks=[callback], start_method=method)
    return DataParallelTrainer(train, scaling_config=ScalingConfig(**(scaling or {"num_workers": 2})), run_config=config).fit()
"""


@pytest.mark.parametrize("method", ["spawn", "template", "fork"])
@pytest.mark.parametrize(
    "way",
    [
        "sys.exit(3)",
        "raise KeyError('of the child')",
        "return",
        "os._exit(3)",
        "driver = 0; gc.collect(); sys.exit(3)",
    ],
)
def test_the_end_of_a_callbacks_child_is_nothing_to_the_run(start, storage, way, method):
    finished = run(
        start,
        storage,
        f"""
        import gc

        class Forks(UserCallback):
            def after_report(self, **arguments):
                global driver
                pid = os.fork()
                if pid == 0:
                    {way}
                ends.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

        try:
            result = fit(Forks(), method={method!r})
        finally:
            if os.getpid() != driver and driver != 0:
                print("a child left fit", flush=True)
        assert ends == [{"3" if "3" in way else "1"}] * 3, ends
        assert [(attempt.attempt, attempt.outcome) for attempt in result.history] == [(1, "succeeded")]
        """,
        DRIVER,
    )
    assert finished.out.count("a child left fit") == (0 if "driver = 0" in way or "os._exit" in way else 3)
    told = {
        "return": "this run belongs to process",
        "raise KeyError('of the child')": "KeyError: 'of the child'",
    }
    assert finished.err.count(told.get(way, "Traceback")) == (3 if way in told else 0), finished


def test_a_callbacks_child_hears_the_signals_of_its_own(start, storage):
    run(
        start,
        storage,
        """
        class Forks(UserCallback):
            def after_report(self, **arguments):
                process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
                process.start()
                process.terminate()
                process.join(100)
                ends.append(process.exitcode)
                process.kill()

        fit(Forks())
        assert ends == [-signal.SIGTERM] * 3, ends
        """,
        DRIVER,
    )


def test_a_callbacks_child_keeps_nothing_of_a_run_whose_driver_is_killed(start, storage, place):
    """Neither agents nor workers, nor the device, nor the run itself."""
    head = (
        DRIVER
        + "from trainyard import defaults\ndefaults.current = defaults.Defaults(num_cpus=4, num_gpus=1)\n"
    )
    script = start(
        head
        + textwrap.dedent(
            """
            class Forks(UserCallback):
                def after_report(self, **arguments):
                    if os.fork() == 0:
                        open(os.path.join(os.environ["PLACE"], "child"), "w").write(str(os.getpid()))
                        time.sleep(600)
                        os._exit(0)
                    while not os.path.exists(os.path.join(os.environ["PLACE"], "child")):
                        time.sleep(0.01)
                    os.kill(os.getpid(), signal.SIGKILL)

            def long():
                trainyard.report({"pid": os.getpid()})
                time.sleep(600)

            fit(Forks(), long, num_workers=1, use_gpu=True)
            """
        ),
        storage,
    )
    # its output goes on in the child, which has made its file, and may still be about to write into it
    assert script.process.wait(180) == -signal.SIGKILL
    child = int(wait_until((place / "child").read_text))
    try:
        assert wait_until(lambda: [pid for pid in processes_with(str(place)) if pid != child] == []), (
            "others live on"
        )
        os.kill(child, 0)
        run(
            start,
            storage,
            """
            config = RunConfig(storage_path=sys.argv[1], name="forks", resume=True)
            scaling = ScalingConfig(num_workers=1, use_gpu=True)
            result = DataParallelTrainer(train, scaling_config=scaling, run_config=config).fit()
            assert [attempt.outcome for attempt in result.history] == ["died", "succeeded"]
            """,
            head,
        )
    finally:
        os.kill(child, signal.SIGKILL)
        script.finish()


def test_a_child_of_a_driver_between_its_runs_drives_runs_of_its_own(start, storage):
    """Resting agents are the parent's; their descriptors are not mistaken for those that the child opens."""
    run(
        start,
        storage,
        """
        def once(name):
            config = RunConfig(storage_path=sys.argv[1], name=name)
            return DataParallelTrainer(lambda: trainyard.report({"agent": os.getppid()}), run_config=config).fit().metrics["agent"]

        first = once("first")
        pid = os.fork()
        if pid == 0:
            files = [open(os.devnull) for _ in range(64)]
            assert once("of the child") != first
            for file in files:
                os.fstat(file.fileno())
            sys.exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
        assert once("second") == first
        """,
        DRIVER,
    )


def test_a_childs_end_removes_nothing_that_its_parent_made(start, storage, place):
    run(
        start,
        storage,
        """
        from trainyard.as_ray import cluster

        folder = cluster._folder()
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        os.waitpid(pid, 0)
        assert os.path.isdir(folder)
        """,
        DRIVER,
    )
    assert [name for name in os.listdir(place) if name.startswith("trainyard-nodes-")] == []
