"""Checkpoints that lie where their owner put them are used as they are, found again, never removed; and what a resume leaves."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import trainyard
from conftest import PACKAGE
from trainyard import (
    Checkpoint,
    CheckpointConfig,
    CheckpointUploadMode,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    WorkerGroupError,
)

NO_UPLOAD = CheckpointUploadMode.NO_UPLOAD
pytestmark = pytest.mark.usefixtures("common_directory")


@pytest.fixture
def fit(storage):
    def fit(function, workers=1, **run):
        return DataParallelTrainer(
            function,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(storage_path=storage, **run),
        ).fit()

    return fit


def made(path, text="weights"):
    """A directory with a model in it."""
    os.makedirs(path, exist_ok=True)
    pathlib.Path(path, "model").write_text(text)
    return Checkpoint(path)


def inside(*names):
    """A path in the run's directory; runs in a worker."""
    return os.path.join(trainyard.get_context().get_storage().experiment_fs_path, *names)


def once(number=2):
    """True in the attempts from this one on."""
    return int(os.environ["TRAINYARD_ATTEMPT"]) >= number


@pytest.mark.parametrize("names", [("mine",), ("deep", "er", "mine"), ("checkpoint_000001",), (".mine",)])
@pytest.mark.parametrize("way", ["stay", "upload"])
def test_a_place_in_the_run_is_found_by_the_next_attempt_and_the_result(fit, capfd, names, way, tmp_path):
    def train():
        if once():
            assert trainyard.get_checkpoint().path == inside(*names)
            trainyard.report({"found": pathlib.Path(inside(*names), "model").read_text()})
            return
        if way == "stay":
            trainyard.report({}, made(inside(*names)), checkpoint_upload_mode=NO_UPLOAD)
        else:
            source = made(tmp_path / "source")
            trainyard.report({}, source, checkpoint_upload_fn=lambda given, name: made(inside(*names)))
        raise RuntimeError("once more")

    result = fit(train, name="r", failure_config=FailureConfig(max_failures=1))
    assert result.metrics == {"found": "weights"}
    assert "damaged" not in capfd.readouterr().err
    place = os.path.join(result.path, *names)
    assert result.checkpoint.path == place
    assert Result.from_path(result.path).checkpoint.path == place
    fit(train, name="r", resume=True)
    assert pathlib.Path(place, "model").read_text() == "weights"
    moved = shutil.move(result.path, tmp_path / "moved")
    assert Result.from_path(moved).checkpoint.path == os.path.join(moved, *names), "it moves with its run"


@pytest.mark.parametrize("mode", [CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC])
def test_ranks_that_hand_over_files_join_those_that_wrote_to_their_place(fit, tmp_path, mode):
    """Where that is the one that the checkpoint has by its name; of a file that is there already that one stays."""

    def train():
        rank = trainyard.get_context().get_world_rank()
        for step in range(2):
            own = made(inside("mine") if rank == step else tmp_path / f"{rank}-{step}", f"{rank} {step}")
            os.makedirs(os.path.join(own.path, "part"), exist_ok=True)
            pathlib.Path(own.path, "part", f"{rank}-{step}").touch()
            trainyard.collective.barrier()
            uploaded = NO_UPLOAD if rank == step else mode
            trainyard.report({}, own, checkpoint_dir_name="mine", checkpoint_upload_mode=uploaded)
        try:
            where = inside("other") if rank == 0 else tmp_path / "more"
            mode_of = NO_UPLOAD if rank == 0 else CheckpointUploadMode.SYNC
            trainyard.report({}, made(where), checkpoint_dir_name="mine", checkpoint_upload_mode=mode_of)
        except trainyard._core.Error as error:
            assert "the ranks name different places of checkpoint 3" in str(error)

    result = fit(train, workers=2, name="r")
    assert [checkpoint.path for checkpoint, _ in result.best_checkpoints] == [f"{result.path}/mine"] * 2
    assert sorted(os.listdir(f"{result.path}/mine")) == ["model", "part"]
    assert sorted(os.listdir(f"{result.path}/mine/part")) == ["0-0", "0-1", "1-0", "1-1"]
    assert pathlib.Path(result.path, "mine", "model").read_text() == "1 1"
    assert not [name for name in os.listdir(result.path) if name.startswith(".")]


def test_a_place_is_never_removed(fit):
    """Not when it is reported again, not when others are newer, not by a resume."""

    def train():
        for _ in range(3):
            trainyard.report({}, made(inside("mine")), checkpoint_upload_mode=NO_UPLOAD)
        trainyard.report({}, made(inside("checkpoint_000004")), checkpoint_upload_mode=NO_UPLOAD)
        trainyard.report({}, made(inside("last")), checkpoint_upload_mode=NO_UPLOAD)

    keep = CheckpointConfig(num_to_keep=1)
    for resume in (False, True):
        path = fit(train, name="r", resume=resume, checkpoint_config=keep).path
    for name in ("mine", "checkpoint_000004", "last"):
        assert os.path.exists(os.path.join(path, name, "model")), name


@pytest.mark.parametrize(
    "where, word",
    [
        ("{run}", "the run's own directory"),
        ("{run}/", "the run's own directory"),
        ("{run}/mine/..", "the run's own directory"),
        ("{run}/..", "holds the run's directory"),
        ("/", "holds the run's directory"),
        ("{run}/logs", "{run}/logs"),
        ("{run}/logs/deeper", "{run}/logs"),
        ("{run}/link-to-logs", "{run}/logs"),
        ("{run}/./mine/..//logs", "{run}/logs"),
        ("{run}/link-to-run/logs", "{run}/logs"),
        ("{run}/run.db", "is no directory"),
        ("{run}/checkpoint_000001", "{run}/checkpoint_000001"),
        ("{run}/checkpoint_000001/deeper", "{run}/checkpoint_000001"),
        ("{run}/link-to-checkpoint", "{run}/checkpoint_000001"),
        ("{run}/.checkpoint_000001.attempt-9", "{run}/.checkpoint_000001.attempt-9"),
        ("{run}/empty", "is empty"),
        ("{run}/nothing", "No such file or directory"),
        ("{run}/dangling", "No such file or directory"),
    ],
)
def test_what_is_no_place_is_refused(fit, where, word):
    def train():
        run = inside()
        trainyard.report({}, made(os.path.join(run, "source")))  # checkpoint_000001, which is Trainyard's
        os.makedirs(inside("checkpoint_000001", "deeper"))
        for path in (inside("mine"), inside("logs", "deeper"), inside(".checkpoint_000001.attempt-9")):
            made(path)
        made(inside("checkpoint_000001", "deeper"))
        os.mkdir(inside("empty"))
        for name, target in (
            ("link-to-logs", "logs"),
            ("link-to-run", run),
            ("link-to-checkpoint", "checkpoint_000001"),
            ("dangling", "nothing"),
        ):
            os.symlink(target, inside(name))
        with pytest.raises(Exception) as caught:
            trainyard.report({}, Checkpoint(where.format(run=run)), checkpoint_upload_mode=NO_UPLOAD)
        text = str(caught.value)
        assert word.format(run=run) in text and "\n" not in text, text
        trainyard.report({"done": True})

    result = fit(train)
    assert result.metrics == {"done": True}
    assert os.path.basename(result.checkpoint.path) == "checkpoint_000001"


MOUNTED = """
import os, subprocess
import trainyard
from trainyard import *

def train():
    logs = os.path.join(trainyard.get_context().get_storage().experiment_fs_path, "logs")
    subprocess.run(["mount", "--bind", logs, {mount!r}], check=True)
    open({mount!r} + "/model", "w").close()
    try:
        trainyard.report({{}}, Checkpoint({mount!r}), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
    except Exception as error:
        print("refused:", error)

run = RunConfig(storage_path={storage!r}, name="r")
DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=1), run_config=run).fit()
"""


def test_the_runs_own_is_known_behind_a_mount(storage, tmp_path):
    mount, program = tmp_path / "mount", tmp_path / "program.py"
    mount.mkdir()
    program.write_text(MOUNTED.format(mount=str(mount), storage=storage))
    alone = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-r", "-m"]
    environment = {**os.environ, "PYTHONPATH": PACKAGE}
    done = subprocess.run([*alone, sys.executable, program], capture_output=True, text=True, env=environment)
    assert f"refused: the place {mount} is in {storage}/r/logs" in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["logs", "run.db", "run.db-wal", "run.db-shm"])
def test_names_of_the_runs_own_files_name_no_checkpoint(fit, tmp_path, name):
    def train():
        with pytest.raises(ValueError, match="not usable"):
            trainyard.report({}, made(tmp_path / "model"), checkpoint_dir_name=name)
        trainyard.report({"done": True})

    assert fit(train).metrics == {"done": True}


def test_a_place_that_was_emptied_is_passed_over(fit, capfd, tmp_path):
    def train():
        if once():
            assert trainyard.get_checkpoint().path == str(tmp_path / "first")
            trainyard.report({"done": True})
            return
        for name in ("first", "second"):
            trainyard.report({}, made(tmp_path / name), checkpoint_upload_mode=NO_UPLOAD)
        os.unlink(tmp_path / "second" / "model")
        raise RuntimeError("once more")

    result = fit(train, name="r", failure_config=FailureConfig(max_failures=1))
    assert result.metrics == {"done": True}
    assert f"{tmp_path}/second is empty" in capfd.readouterr().err
    with pytest.warns(RuntimeWarning, match="second is damaged and left out of the result: it is empty"):
        assert [kept.path for kept, _ in Result.from_path(result.path).best_checkpoints] == [
            str(tmp_path / "first")
        ]


def test_what_is_reported_where_it_lies_is_not_deleted_behind_it(fit, tmp_path):
    """An upload that leaves the files in the directory that it was given, or puts them there, and is told to delete that."""

    def train():
        for number, place in enumerate((".", "inner", None)):
            source = made(tmp_path / f"source-{number}")
            given = source if place == "." else None
            trainyard.report(
                {},
                source,
                checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
                checkpoint_upload_fn=lambda source, name, given=given, place=place, number=number: (
                    given or made(os.path.join(source.path, place) if place else tmp_path / "elsewhere")
                ),
            )

    fit(train)
    assert (tmp_path / "source-0" / "model").exists()
    assert (tmp_path / "source-1" / "inner" / "model").exists()
    assert not (tmp_path / "source-2").exists()


def test_a_committed_checkpoint_cannot_be_given_away(fit, tmp_path):
    """Nor a part of it: it is copied, or put away, and stays."""

    def train():
        made(tmp_path / "model" / "part")
        trainyard.report({}, made(tmp_path / "model"))
        committed = trainyard.get_checkpoint().path
        mode = CheckpointUploadMode.ASYNC
        for path in (committed, os.path.join(committed, "part")):
            trainyard.report({}, Checkpoint(path), checkpoint_upload_mode=mode)
            trainyard.report(
                {},
                Checkpoint(path),
                checkpoint_upload_mode=mode,
                checkpoint_upload_fn=lambda given, name: made(tmp_path / "away"),
            )

    result = fit(train)
    assert os.path.exists(os.path.join(result.path, "checkpoint_000001", "part", "model"))
    assert os.path.exists(os.path.join(result.path, "checkpoint_000001", "model"))


def test_a_resume_leaves_what_it_did_not_make(fit, capfd, tmp_path):
    def train():
        if not once():
            for step in range(6):
                trainyard.report({"step": step}, made(tmp_path / "model"))
            return
        trainyard.report({"step": 6}, made(tmp_path / "model", "again"))

    fit(train, name="other")
    path = fit(train, name="r").path
    other = os.path.join(os.path.dirname(path), "other")
    theirs = {
        "pretrained": f"{other}/checkpoint_000006",
        "checkpoint_000099": f"{path}/checkpoint_000005",
        "checkpoint_000007": f"{other}/checkpoint_000006",
        "checkpoint_000008": tmp_path / "model",
        ".old.removed": tmp_path / "model",
        ".checkpoint_notes.attempt-1": tmp_path / "model",
        ".checkpoint_000001.attempt-1.backup": tmp_path / "model",
    }
    for name, source in theirs.items():
        shutil.copytree(source, os.path.join(path, name))
    os.rename(f"{other}/checkpoint_000006", f"{path}/checkpoint_000012")  # of another run, and no copy
    os.mkdir(f"{path}/.checkpoint_000007.attempt-1")
    os.mkdir(f"{path}/.checkpoint_000003.removed")
    result = fit(train, name="r", resume=True)
    told = capfd.readouterr().err
    for name in (*theirs, "checkpoint_000012"):
        assert os.path.exists(os.path.join(path, name, "model")), name
    for name in (".checkpoint_000007.attempt-1", ".checkpoint_000003.removed"):
        assert not os.path.exists(os.path.join(path, name))
        assert name in told
    for name in ("checkpoint_000007", "checkpoint_000008", "checkpoint_000099", "checkpoint_000012"):
        assert name in told, "what might be ours and stays is told"
    assert os.path.basename(result.checkpoint.path) == "checkpoint_000007-2", (
        "a name that is taken costs no checkpoint"
    )
    assert pathlib.Path(result.checkpoint.path, "model").read_text() == "again"
    assert result.metrics == {"step": 6}


def test_a_name_that_was_put_to_another_use_is_not_removed(fit, capfd, tmp_path):
    """A checkpoint that gives way to newer ones, but is another directory by then."""

    def train():
        trainyard.report({}, made(tmp_path / "model"))
        first = trainyard.get_checkpoint().path
        shutil.rmtree(first)
        made(first, "precious")
        trainyard.report({}, made(tmp_path / "model"))

    result = fit(train, checkpoint_config=CheckpointConfig(num_to_keep=1))
    assert pathlib.Path(result.path, "checkpoint_000001", "model").read_text() == "precious"
    assert "checkpoint_000001" in capfd.readouterr().err


def test_after_report_goes_on_past_a_checkpoint_that_was_lost(fit, tmp_path):
    seen = []

    class Watch(trainyard.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            seen.append((metrics[0]["step"], checkpoint is not None))

    def train():
        trainyard.report({"step": 1}, made(tmp_path / "model"))
        with pytest.raises(Exception, match="nowhere"):
            trainyard.report({"step": 2}, Checkpoint(tmp_path / "nowhere"), checkpoint_upload_mode=NO_UPLOAD)
        trainyard.report({"step": 3}, made(tmp_path / "model"))
        trainyard.report({"step": 4})

    fit(train, callbacks=[Watch()])
    assert seen == [(1, True), (2, False), (3, True), (4, False)]


def test_a_worker_group_that_fails_is_told(fit, tmp_path):
    def train():
        trainyard.report({}, Checkpoint(tmp_path / "nowhere"), checkpoint_upload_mode=NO_UPLOAD)

    with pytest.raises(WorkerGroupError, match="nowhere"):
        fit(train)
