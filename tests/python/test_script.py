"""The package in a Python program that `trainyard run` starts by itself: no trainer, no training function."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from conftest import BUILD

COMMAND = os.path.join(os.path.abspath(BUILD), "trainyard")


@pytest.fixture
def run(place):
    """run(text, *options, kind=): the program's workers, and how they ended."""

    def run(text, *options, kind="run"):
        (place / "train.py").write_text(textwrap.dedent(text))
        words = [COMMAND, kind, *options]
        words += [place / "train.py"] if kind == "torchrun" else ["--", sys.executable, place / "train.py"]
        finished = subprocess.run(
            [*map(str, words)],
            cwd=place,
            env={**os.environ, "TRAINYARD_STORAGE": str(place / "runs")},
            capture_output=True,
            text=True,
            timeout=180,
        )
        finished.runs = place / "runs"
        return finished

    return run


def metrics(finished, name, *columns):
    """Rows of (rank, values), as `trainyard metrics` exports them."""
    told = subprocess.run(
        [COMMAND, "metrics", name, "--storage-path", finished.runs, "--format", "jsonl"],
        capture_output=True,
        text=True,
    )
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    return sorted((row["rank"], *(row["metrics"][column] for column in columns)) for row in rows)


SAVES = """
    import os, tempfile, trainyard
    from trainyard import Checkpoint

    here = trainyard.get_context()
    saved = trainyard.get_checkpoint()
    first = 0
    if saved is not None:
        with saved.as_directory() as directory:
            first = int(open(os.path.join(directory, "step")).read()) + 1
    for step in range(first, 4):
        with tempfile.TemporaryDirectory() as directory:
            open(os.path.join(directory, "step"), "w").write(str(step))
            trainyard.report({"step": step, "world": here.get_world_size()}, checkpoint=Checkpoint(directory))
        if here.get_attempt() == 1 and step == 1 and here.get_world_rank() == 1:
            os._exit(3)
    print(f"rank {here.get_world_rank()} began at {first}")
"""


@pytest.mark.parametrize(
    "kind, options",
    [
        ("run", ["-n", "2", "--name", "saves", "--max-failures", "1"]),
        ("torchrun", ["--nproc-per-node", "2", "--rdzv-id", "saves", "--max-restarts", "1"]),
    ],
)
def test_reports_and_goes_on_from_its_checkpoint(run, kind, options):
    finished = run(SAVES, *options, kind=kind)
    assert finished.returncode == 0, finished
    assert "rank 0 began at 2" in finished.stdout and "rank 1 began at 2" in finished.stdout, finished
    if kind == "run":
        assert metrics(finished, "saves", "step", "world") == [
            (rank, step, 2) for rank in (0, 1) for step in range(4)
        ]


def test_what_is_on_its_way_at_the_end_is_kept(run):
    finished = run(
        """
        import os, trainyard
        from trainyard import Checkpoint, CheckpointUploadMode

        os.mkdir("made")
        open("made/state", "wb").write(b"x" * 30_000_000)
        trainyard.report({"i": 1}, checkpoint=Checkpoint("made"), checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
        """,
        "--name",
        "last",
    )
    assert finished.returncode == 0, finished
    kept = finished.runs / "last" / "checkpoint_000001" / "state"
    assert kept.stat().st_size == 30_000_000


def test_a_checkpoint_that_is_lost_at_the_end_is_a_failure(run):
    finished = run(
        """
        import os, trainyard
        from trainyard import Checkpoint, CheckpointUploadMode

        def refuses(checkpoint, name):
            raise OSError("the other side is full")

        os.mkdir("made")
        options = {"checkpoint_upload_mode": CheckpointUploadMode.ASYNC, "checkpoint_upload_fn": refuses}
        trainyard.report({"i": 1}, checkpoint=Checkpoint("made"), **options)
        print("the program's own end")
        """
    )
    assert finished.returncode == 1, finished
    assert "the program's own end" in finished.stdout
    assert "the other side is full" in finished.stderr, finished


@pytest.mark.parametrize("end", ["", "raise ValueError('mine')"])
@pytest.mark.parametrize(
    "report",
    [
        "trainyard.report({'i': 1})",
        "import atexit; atexit.register(trainyard.report, {'i': 1})",
        "import threading; threading.Thread(target=lambda: time.sleep(0.2) or trainyard.report({'i': 1})).start()",
    ],
)
def test_the_shortest_program_has_its_own_end_alone(run, report, end):
    """It imports nothing else; what the end needs, or a report at the end, must not be what an interpreter that ends refuses."""
    finished = run(f"import time, trainyard\n{report}\n{end}\n", "--name", "r")
    tracebacks = [line for line in finished.stderr.splitlines() if line.startswith("[rank 0] Traceback")]
    assert (finished.returncode, len(tracebacks)) == ((1, 1) if end else (0, 0)), finished
    assert "RuntimeError" not in finished.stderr, finished
    assert metrics(finished, "r", "i") == [(0, 1)]


def test_children_of_a_worker(run):
    finished = run(
        """
        import multiprocessing, os, subprocess, sys, trainyard

        def child():
            trainyard.report({"of": "child"})

        if __name__ == "__main__":
            trainyard.report({"of": "worker"})
            forked = multiprocessing.get_context("fork").Process(target=child)
            forked.start()
            forked.join()
            assert forked.exitcode == 0
            line = "import trainyard; trainyard.report({'of': 'program'})"
            subprocess.run([sys.executable, "-c", line], check=True, close_fds=False)
            closed = subprocess.run([sys.executable, "-c", line], stderr=subprocess.PIPE, text=True)
            assert "RuntimeError: `report`: TRAINYARD_FD is 3, which is not the socket" in closed.stderr, closed
        """,
        "--name",
        "children",
    )
    assert finished.returncode == 0, finished
    assert [of for _, of in metrics(finished, "children", "of")] == ["child", "program", "worker"]


def test_it_hears_that_it_is_to_stop(run):
    finished = run(
        """
        import time, trainyard

        while not trainyard.stop_requested():
            trainyard.report({"i": 0})
            time.sleep(0.1)
        print("stops by itself", flush=True)
        """,
        "--time-limit",
        "10",
        "--grace",
        "60",
    )
    assert "stops by itself" in finished.stdout, finished


def test_where_it_stands(run):
    finished = run(
        f"""
        import subprocess, threading, trainyard

        trainyard.report({{"i": 0}})
        done = threading.Event()

        def waits_for_the_end():
            done.wait()

        threads = [threading.Thread(target=waits_for_the_end) for _ in range(6)]
        for thread in threads:
            thread.start()
        print(subprocess.run(["{COMMAND}", "stacks", "here"], capture_output=True, text=True).stdout)
        done.set()
        """,
        "--name",
        "here",
    )
    assert finished.returncode == 0, finished
    assert finished.stdout.count(" in waits_for_the_end") == 6, finished
    assert "5 more stand there: " in finished.stdout, finished


def test_no_worker_says_so(place):
    finished = subprocess.run(
        [sys.executable, "-c", "import trainyard; trainyard.report({})"], capture_output=True, text=True
    )
    assert finished.returncode == 1
    assert "cannot be used outside of a Trainyard training function" in finished.stderr


def test_the_first_calls_of_two_threads_begin_one_session(run):
    finished = run(
        """
        import threading, time
        from trainyard import _core, runtime

        worker = _core.worker

        def slow():
            time.sleep(0.2)
            return worker()

        _core.worker = slow
        sessions = []
        threads = [threading.Thread(target=lambda: sessions.append(runtime.session())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(sessions) == 4 and len(set(map(id, sessions))) == 1, sessions
        """
    )
    assert finished.returncode == 0, finished


def test_a_child_that_is_forked_while_a_thread_begins(run):
    finished = run(
        """
        import os, signal, threading, trainyard
        from trainyard import _core

        worker, begins, forked = _core.worker, threading.Event(), threading.Event()

        def slow():
            begins.set()
            forked.wait()
            return worker()

        _core.worker = slow
        thread = threading.Thread(target=trainyard.report, args=({"of": "worker"},))
        thread.start()
        begins.wait()
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            _core.worker = worker
            trainyard.report({"of": "child"})
            raise SystemExit
        forked.set()
        thread.join()
        assert os.waitpid(pid, 0)[1] == 0
        """,
        "--name",
        "forked",
    )
    assert finished.returncode == 0, finished
    assert [of for _, of in metrics(finished, "forked", "of")] == ["child", "worker"]


FITS = """
    import os, trainyard
    from trainyard import DataParallelTrainer, RunConfig, ScalingConfig

    def train():
        here = trainyard.get_context()
        trainyard.report({"size": here.get_world_size(), "rank": here.get_world_rank(), "of": here.get_experiment_name()})

    trainyard.init(num_cpus=16)
    rank = trainyard.get_context().get_world_rank()
    options = {"scaling_config": ScalingConfig(num_workers=%d), "run_config": RunConfig(name=f"inner-{rank}"%s)}
    if %d == 0 or rank == 1:
        print("inner", rank, DataParallelTrainer(train, **options).fit().metrics)
    trainyard.report({"size": trainyard.get_context().get_world_size(), "rank": rank})
"""


def test_workers_forked_from_a_worker_have_ranks_of_their_own(run):
    finished = run(FITS % (1, ", start_method='fork'", 1), "-n", "2", "--name", "outer")
    assert finished.returncode == 0, finished
    assert "inner 1 {'size': 1, 'rank': 0, 'of': 'inner-1'}" in finished.stdout, finished
    assert metrics(finished, "outer", "size", "rank") == [(0, 2, 0), (1, 2, 1)]


def test_a_function_runs_in_the_program_itself(run):
    finished = run(FITS % (0, "", 0), "-n", "2", "--name", "outer")
    assert finished.returncode == 0, finished
    for rank in (0, 1):
        assert f"inner {rank} {{'size': 1, 'rank': 0, 'of': 'inner-{rank}'}}" in finished.stdout, finished
    assert metrics(finished, "outer", "size", "rank") == [(0, 2, 0), (1, 2, 1)]


LATER = """
    import multiprocessing, os, sys, time, trainyard
    from trainyard import Checkpoint, CheckpointUploadMode

    def refuses(checkpoint, name):
        raise OSError("the other side is full")

    def report_later(i, **options):
        os.mkdir(f"made-{os.getpid()}")
        open(f"made-{os.getpid()}/state", "wb").write(b"x" * 30_000_000)
        mode = CheckpointUploadMode.ASYNC
        trainyard.report({"i": i}, checkpoint=Checkpoint(f"made-{os.getpid()}"), checkpoint_upload_mode=mode, **options)

    def forks(function, *arguments):
        # The exit status of a child that returns from it to its own end.
        if sys.argv[1] == "multiprocessing":
            child = multiprocessing.get_context("fork").Process(target=function, args=arguments)
            child.start()
            child.join()
            return child.exitcode
        pid = os.fork()
        if pid == 0:
            function(*arguments)
            sys.exit()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@pytest.mark.parametrize("how", ["multiprocessing", "os"])
@pytest.mark.parametrize("first", ["the worker's", "the child's"])
def test_what_is_on_its_way_at_the_end_of_a_child_is_kept(run, how, first):
    finished = run(
        LATER
        + f"""
    sys.argv[1:] = [{how!r}]
    if {first == "the worker's"}:
        trainyard.report({{"i": 0}})
    assert forks(report_later, 1) == 0
    """,
        "--name",
        "child",
    )
    assert finished.returncode == 0, finished
    [kept] = finished.runs.glob("child/checkpoint_*/state")
    assert kept.stat().st_size == 30_000_000


@pytest.mark.parametrize("how", ["multiprocessing", "os"])
@pytest.mark.parametrize("first", ["the worker's", "the child's"])
def test_a_checkpoint_that_a_child_loses_is_the_child_s_failure(run, how, first):
    finished = run(
        LATER
        + f"""
    def loses():
        report_later(1, checkpoint_upload_fn=refuses)

    sys.argv[1:] = [{how!r}]
    if {first == "the worker's"}:
        trainyard.report({{"i": 0}})
    assert forks(loses) == 1
    print("the worker goes on")
    """
    )
    assert finished.returncode == 0, finished
    assert "the worker goes on" in finished.stdout, finished
    assert finished.stderr.count("OSError: the other side is full") == 1, finished


@pytest.mark.parametrize("how", ["multiprocessing", "os"])
def test_a_child_that_reports_nothing_needs_no_channel(run, how):
    finished = run(
        LATER
        + f"""
    def looks():
        assert trainyard.get_context().get_world_size() == 1
        os.close(int(os.environ["TRAINYARD_FD"]))

    sys.argv[1:] = [{how!r}]
    trainyard.report({{"i": 0}})
    assert forks(looks) == 0
    """
    )
    assert finished.returncode == 0, finished
    assert "Traceback" not in finished.stderr, finished


@pytest.mark.parametrize("options", ["", "checkpoint_upload_fn=lambda checkpoint, name: checkpoint"])
@pytest.mark.parametrize("where", ["worker", "multiprocessing", "os"])
def test_who_fails_does_not_wait_for_a_rank_that_reports_nothing(run, options, where):
    finished = run(
        LATER
        + f"""
    def fails():
        report_later(1, {options})
        raise ValueError("right after its report")

    sys.argv[1:] = [{where!r}]
    if trainyard.get_context().get_world_rank() == 1:
        time.sleep(100000)
    sys.exit(forks(fails) if {where != "worker"} else fails())
    """,
        "-n",
        "2",
    )
    assert finished.returncode == 1, finished
    assert finished.stderr.count("ValueError: right after its report") >= 1, finished


GERMAN = """
    import json, locale, os, tempfile, trainyard
    from trainyard import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig

    locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    assert locale.localeconv()["decimal_point"] == ","

    def train():
        with tempfile.TemporaryDirectory() as directory:
            open(os.path.join(directory, "model"), "w").close()
            checkpoint = Checkpoint(directory)
            checkpoint.set_metadata({"lr": 0.001})
            trainyard.report({"loss": 0.5}, checkpoint=checkpoint)

    trainer = DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(name="r", storage_path="runs", sample=0.1),
    )
    result = trainer.fit()
    print(json.dumps([result.metrics["loss"], result.checkpoint.get_metadata()]))
"""


def test_a_locale_with_a_decimal_comma(place):
    """What a driver writes for programs, its own journal among them, is the same as ever."""
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", place / "de_DE.UTF-8"], capture_output=True)
    if not (place / "de_DE.UTF-8" / "LC_NUMERIC").exists():
        pytest.skip(f"no locale can be made here: {made.stderr.decode(errors='replace')[-200:]}")
    program = place / "german.py"
    program.write_text(textwrap.dedent(GERMAN))
    told = subprocess.run(
        [sys.executable, program], cwd=place, env={**os.environ, "LOCPATH": str(place)}, capture_output=True, text=True, timeout=180
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout.splitlines()[-1]) == [0.5, {"lr": 0.001}]
    words = [COMMAND, "status", "r", "--storage-path", place / "runs", "--format", "json"]
    status = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert (status["state"], status["metrics"]["loss"]) == ("succeeded", 0.5)
