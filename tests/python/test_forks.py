"""Children that are forked where it hurts: in a worker beside its threads, and in the driver in the midst of a run.

A child is never the run's: what belongs to the process that forked it is neither used nor ended by the child's end.
"""

import textwrap

import pytest

# -- in workers

WORKERS = """
import multiprocessing, os, signal, subprocess, sys, threading, time, trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig

def wait_for(pid, seconds=20):
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
        assert result.metrics == {{"ends": [3, 1, 0]}}
        assert [attempt.outcome for attempt in result.history] == ["succeeded"]
        import sqlite3
        rows = sqlite3.connect(result.path + "/run.db").execute(
            "SELECT metrics FROM reports WHERE rank = 0 ORDER BY id").fetchall()
        ways = ["exit", "failure", "return"]
        assert [eval(text) for text, in rows] == [{{"way": way}} for way in ways] + [{{"ends": [3, 1, 0]}}]
        """,
    )
    assert "KeyError: 'of the child'" in finished.out + finished.err
