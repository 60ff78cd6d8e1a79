"""Checkpoints that are given away for good and copied behind the training: whoever dies meanwhile, nothing of them is left, neither
beside the run's files nor where they lay."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest
import trainyard
from conftest import PACKAGE, processes_with, wait_until
from trainyard import (
    Checkpoint,
    CheckpointUploadMode,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    WorkerGroupError,
)


@pytest.fixture(params=["same file system", "memory"])
def heap(request, tmp_path):
    """Where the training writes its models: on the file system of the run, and in memory."""
    path = tempfile.mkdtemp(dir=tmp_path if request.param == "same file system" else "/dev/shm")
    yield pathlib.Path(path)
    shutil.rmtree(path)


def give(directory):
    """Reports a checkpoint that is given away; runs in a worker."""
    os.mkdir(directory)
    pathlib.Path(directory, "model").write_text("weights")
    trainyard.report({}, Checkpoint(directory), checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
    assert not os.path.exists(directory), "it is out of reach at once"


def given(heap, run):
    """What is there of it."""
    return [name for place in (heap, run) for name in os.listdir(place) if "given" in name]


def fit(storage, train, **run):
    return DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=storage, name="r", **run),
    ).fit()


def killed(pid):
    return lambda: os.kill(pid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "end",
    [killed(os.getpid), killed(os.getppid), lambda: os._exit(0), lambda: os._exit(3)],
    ids=["killed", "agent killed", "gone", "failed"],
)
def test_nothing_is_left_of_a_worker_that_dies(storage, heap, end):
    """Rank 1 never makes the report, so that the checkpoint of rank 0 waits for it."""

    def train():
        if trainyard.get_context().get_world_rank() == 0 and os.environ["TRAINYARD_ATTEMPT"] == "1":
            give(heap / "model")
            assert given(heap, trainyard.get_context().get_storage().experiment_fs_path)
            end()

    fit(storage, train, failure_config=FailureConfig(max_failures=1))
    assert given(heap, os.path.join(storage, "r")) == []
    assert os.listdir(heap) == []


PROGRAM = """
import os, sys, time
import trainyard
from trainyard import *
sys.path.insert(0, {tests!r})
from test_given import give

def train():
    if trainyard.get_context().get_world_rank() == 0:
        give({heap!r} + "/model")
        open({mark!r}, "w").close()
    time.sleep(100000)

run = RunConfig(storage_path={storage!r}, name="r")
DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
"""


def send(number, pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.parametrize("who", ["controller", "interrupted", "all"])
def test_nothing_is_left_of_a_run_that_dies(storage, heap, place, tmp_path, who):
    mark, program = tmp_path / "mark", tmp_path / "program.py"
    tests = os.path.dirname(os.path.abspath(__file__))
    program.write_text(PROGRAM.format(tests=tests, heap=str(heap), mark=str(mark), storage=storage))
    run = os.path.join(storage, "r")
    process = subprocess.Popen([sys.executable, program], env={**os.environ, "PYTHONPATH": PACKAGE})
    assert wait_until(mark.exists) and given(heap, run)
    if who == "all":
        stopped = set()  # all of them first, that nobody sees another die; some come and go by themselves meanwhile
        while begun := {process.pid, *processes_with(str(place))} - stopped:
            send(signal.SIGSTOP, begun)
            stopped |= begun
        send(signal.SIGKILL, stopped)
    else:
        process.send_signal(signal.SIGINT if who == "interrupted" else signal.SIGKILL)
    process.wait(180)
    assert wait_until(lambda: not processes_with(str(place)))
    if who == "all":
        assert given(heap, run), "nobody was left who could"
        fit(storage, lambda: None, resume=True)
    assert given(heap, run) == []
    # Who is interrupted ends in order, and has what could not be committed back where it was.
    assert os.listdir(heap) == (["model"] if who == "interrupted" else [])


@pytest.mark.parametrize("again", [False, True])
def test_what_could_not_be_stored_goes_back_unless_its_place_is_taken(storage, heap, again):
    def train():
        trainyard.collective.barrier()
        if trainyard.get_context().get_world_rank() == 1:
            trainyard.report({})
            trainyard.collective.barrier()
            return
        directory = heap / "model"
        os.mkdir(directory)
        os.mkfifo(directory / "pipe")  # which no checkpoint holds
        trainyard.report({}, Checkpoint(directory), checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
        if again:
            os.makedirs(directory, exist_ok=True)
            (directory / "next").write_text("step")
        trainyard.collective.barrier()

    with pytest.raises(WorkerGroupError, match="pipe"):
        fit(storage, train)
    assert given(heap, os.path.join(storage, "r")) == []
    assert os.listdir(heap) == ["model"]
    assert "next" in os.listdir(heap / "model") if again else os.listdir(heap / "model") == ["pipe"]


def test_what_only_looks_like_it_stays(storage, heap, tmp_path):
    """A link that leads to something else, or a directory in memory that no run has given."""
    run = fit(storage, lambda: None).path
    for name in ("precious", ".trainyard-given-00000001"):
        (heap / name).mkdir()
        (heap / name / "model").write_text("mine")
    os.symlink(heap / "precious", f"{run}/.checkpoint_000001.attempt-1.given-00000002")
    os.symlink(heap / ".trainyard-given-00000001", f"{run}/.checkpoint_000001.attempt-1.given-00000003")
    os.symlink(heap / "precious", f"{run}/.checkpoint_000001.attempt-1")
    fit(storage, lambda: None, resume=True)
    for name in ("precious", ".trainyard-given-00000001"):
        assert (heap / name / "model").exists()
