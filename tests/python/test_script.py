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
        "2",
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
