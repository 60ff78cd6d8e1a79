"""Runs that are kept on another file system: what is there afterwards, what a resume elsewhere finds, and what becomes of it when
that file system fails. One that is a directory stands for most of them; S3 is spoken to a server of moto."""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import trainyard
from trainyard import (
    Checkpoint,
    CheckpointConfig,
    ControllerError,
    DataParallelTrainer,
    Result,
    RunConfig,
    ScalingConfig,
    data,
    defaults,
    manifest,
    remote,
)
from trainyard import filesystem as filesystems

pyarrow_fs = pytest.importorskip("pyarrow.fs")
pytestmark = pytest.mark.usefixtures("common_directory")


def train(config):
    """Three steps from where the last checkpoint ends."""
    import tempfile

    start = 0
    if (checkpoint := trainyard.get_checkpoint()) is not None:
        with checkpoint.as_directory() as directory:
            with open(directory + "/step") as file:
                start = int(file.read()) + 1
    for step in range(start, start + 3):
        with tempfile.TemporaryDirectory() as directory:
            os.mkdir(directory + "/part")
            with open(directory + "/step", "w") as file:
                file.write(str(step))
            with open(directory + "/part/weights", "wb") as file:
                file.write(bytes([step]) * config.get("size", 1000))
            trainyard.report({"step": step, "start": start}, checkpoint=Checkpoint.from_directory(directory))


def fit(filesystem, path="bucket/runs", name="run", workers=1, config=None, **run):
    trainer = DataParallelTrainer(
        train,
        train_loop_config=config or {},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name=name, storage_path=path, storage_filesystem=filesystem, progress="none", **run),
    )
    return trainer.fit()


@pytest.fixture
def there(tmp_path):
    """A directory that stands for another file system, and what pyarrow calls it."""
    place = tmp_path / "there"
    place.mkdir()
    return place, pyarrow_fs.SubTreeFileSystem(str(place), pyarrow_fs.LocalFileSystem())


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """From here on this is another machine: nothing of the run is here."""

    def move():
        home = tmp_path / f"home-{len(os.listdir(tmp_path))}"
        home.mkdir()
        monkeypatch.setenv("TRAINYARD_STORAGE", str(home))
        return home

    move()
    return move


def names(place):
    return sorted(name for name in os.listdir(place / "bucket/runs/run") if name.startswith("checkpoint_"))


def test_all_of_it_is_there(there, elsewhere):
    place, filesystem = there
    result = fit(filesystem, workers=2)
    assert (result.path, result.filesystem) == ("bucket/runs/run", filesystem)
    assert result.checkpoint.path == "bucket/runs/run/checkpoint_000003"
    assert names(place) == [f"checkpoint_{number:06}" for number in (1, 2, 3)]
    with result.checkpoint.as_directory() as directory:
        with open(directory + "/part/weights", "rb") as file:
            assert file.read() == b"\2" * 1000
    assert os.path.exists(place / "bucket/runs/run/logs")
    elsewhere()
    again = Result.from_path("bucket/runs/run", storage_filesystem=filesystem)
    assert (again.metrics, again.checkpoint, again.best_checkpoints) == (result.metrics, result.checkpoint, result.best_checkpoints)


def test_what_is_no_longer_kept_goes_there_too(there, elsewhere):
    place, filesystem = there
    fit(filesystem, checkpoint_config=CheckpointConfig(num_to_keep=1))
    assert names(place) == ["checkpoint_000003"]


def test_a_name_that_is_reported_again(there, elsewhere):
    def train():
        import tempfile

        for word in ("one", "other"):
            with tempfile.TemporaryDirectory() as folder:
                for name in ("same", word):
                    with open(os.path.join(folder, name), "w") as file:
                        file.write(word)
                trainyard.report({}, Checkpoint(folder), checkpoint_dir_name="last")

    run = RunConfig(storage_path="bucket/runs", storage_filesystem=there[1], name="run", progress="none")
    result = DataParallelTrainer(train, run_config=run).fit()
    with result.checkpoint.as_directory() as folder:
        read = {name: open(os.path.join(folder, name)).read() for name in ("same", "one", "other")}
    assert read == {"same": "other", "one": "one", "other": "other"}


def test_what_a_program_puts_into_the_run_s_directory_itself(there, elsewhere):
    def train():
        storage, start = trainyard.get_context().get_storage(), 0
        if (last := trainyard.get_checkpoint()) is not None:
            with last.as_directory() as folder:
                start = len(os.listdir(folder + "/part"))
        for step in range(start, start + 2):
            place = storage.build_checkpoint_path_from_name(f"mine-{step}")
            for part in range(step + 1):
                os.makedirs(place + "/part", exist_ok=True)
                with open(f"{place}/part/{part}", "w") as file:
                    file.write("x")
            mode = trainyard.CheckpointUploadMode.NO_UPLOAD
            trainyard.report({"step": step}, Checkpoint(place), checkpoint_upload_mode=mode)

    run = dict(storage_path="bucket/runs", storage_filesystem=there[1], name="run", progress="none")
    for first in (0, 2):
        result = DataParallelTrainer(train, run_config=RunConfig(**run, resume=first > 0)).fit()
        elsewhere()
        again = Result.from_path("bucket/runs/run", storage_filesystem=there[1])
        assert again.best_checkpoints == result.best_checkpoints
        assert [one.path for one, _ in again.best_checkpoints] == [f"bucket/runs/run/mine-{step}" for step in range(first + 2)]
        with again.checkpoint.as_directory() as folder:
            assert sorted(os.listdir(folder + "/part")) == [str(part) for part in range(first + 2)]


def bring(config):
    """Two steps from where the last checkpoint ends, whose files the function itself brings to the other side."""
    import tempfile

    context = trainyard.get_context()
    storage, start = context.get_storage(), 0
    if (last := trainyard.get_checkpoint()) is not None:
        with last.as_directory() as folder:
            start = len(os.listdir(folder + "/part"))
    for step in range(start, start + 2):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/part")
            for part in range(step + 1):
                with open(f"{folder}/part/{part}", "w") as file:
                    file.write("x")
            name, given = f"mine-{step}", Checkpoint(folder)
            if config["mode"] == "NO_UPLOAD":
                given = storage.persist_current_checkpoint(given, name)
                options = {}
            else:
                options = {
                    "checkpoint_dir_name": name,
                    "checkpoint_upload_fn": storage.persist_current_checkpoint,
                    "delete_local_checkpoint_after_upload": False,
                }
            mode = trainyard.CheckpointUploadMode[config["mode"]]
            trainyard.report({"step": step}, given, checkpoint_upload_mode=mode, **options)
            told = [one.checkpoint for one in trainyard.get_all_reported_checkpoints()]
            assert [one.path for one in told][-1] == storage.build_checkpoint_path_from_name(name)
            assert told[-1].filesystem == storage.storage_filesystem
            assert config["mode"] == "ASYNC" or told[-1] == trainyard.get_checkpoint()
    return storage.experiment_fs_path


class Seen(trainyard.UserCallback):
    def __init__(self):
        self.checkpoints = []

    def after_report(self, run_context, metrics, checkpoint):
        self.checkpoints.append(checkpoint)


@pytest.mark.parametrize("mode", ["NO_UPLOAD", "SYNC", "ASYNC"])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_program_brings_there_itself(there, elsewhere, monkeypatch, mode, workers):
    monkeypatch.setattr(defaults.policy, "storage_there", True)
    place, filesystem = there
    for first in (0, 2):
        seen = Seen()
        run = RunConfig(
            name="run",
            storage_path="bucket/runs",
            storage_filesystem=filesystem,
            progress="none",
            resume=first > 0,
            callbacks=[seen],
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        )
        trainer = DataParallelTrainer(
            bring, train_loop_config={"mode": mode}, scaling_config=ScalingConfig(num_workers=workers), run_config=run
        )
        result = trainer.fit()
        paths = [f"bucket/runs/run/mine-{step}" for step in (first, first + 1)]
        assert result.return_value == "bucket/runs/run"
        assert [one.path for one in seen.checkpoints] == [one.path for one, _ in result.best_checkpoints] == paths
        assert all(one.filesystem == filesystem for one in [result.checkpoint, *seen.checkpoints])
        assert sorted(os.listdir(place / "bucket/runs/run" / f"mine-{first + 1}")) == ["part"]
        assert not os.path.exists(place / "bucket/runs/run/mine-0") or first == 0
        elsewhere()
        again = Result.from_path("bucket/runs/run", storage_filesystem=filesystem)
        assert again.best_checkpoints == result.best_checkpoints


def test_what_a_user_says_of_a_checkpoint_there_stays_and_a_resume_elsewhere_has_it(there, elsewhere, monkeypatch):
    """Under one name again and again; the second machine removes, and reports again, what the first one had."""
    monkeypatch.setattr(defaults.policy, "storage_there", True)
    place, filesystem = there

    def train(names):
        import tempfile

        storage = trainyard.get_context().get_storage()
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                with open(folder + "/part", "w") as file:
                    file.write(name)
                given = storage.persist_current_checkpoint(Checkpoint(folder), name)
                if name == "mine":
                    given.set_metadata({"by": "the user"})
                trainyard.report({}, given, checkpoint_upload_mode=trainyard.CheckpointUploadMode.NO_UPLOAD)

    home = elsewhere()
    for words, kept in ((["mine", "mine"], "mine"), (["mine", "yours"], "yours")):
        run = RunConfig(
            name="run",
            storage_path="bucket/runs",
            storage_filesystem=filesystem,
            progress="none",
            resume=kept == "yours",
            checkpoint_config=CheckpointConfig(num_to_keep=1),
        )
        result = DataParallelTrainer(train, train_loop_config=words, run_config=run).fit()
        assert result.checkpoint.path == f"bucket/runs/run/{kept}"
        if kept == "mine":
            assert result.checkpoint.get_metadata() == {"by": "the user"}
            result.checkpoint.set_metadata({"by": "the user", "more": "x" * 1000})
            home = elsewhere()
    there_now = [name for name in os.listdir(place / "bucket/runs/run") if not name.startswith(".")]
    here_now = [name for _, names, _ in os.walk(home) for name in names]
    assert "yours" in there_now and "mine" not in there_now
    assert "yours" in here_now and "mine" not in here_now


def test_what_was_put_nowhere_is_told(there, monkeypatch):
    monkeypatch.setattr(defaults.policy, "storage_there", True)

    def train(how):
        import tempfile

        storage = trainyard.get_context().get_storage()

        def put(checkpoint, name):
            return storage.persist_current_checkpoint(checkpoint, "other")

        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/part", "w") as file:
                file.write("x")
            if how == "other name":
                with pytest.raises(ValueError, match="put 'mine' under another name, 'other'"):
                    trainyard.report({}, Checkpoint(folder), checkpoint_dir_name="mine", checkpoint_upload_fn=put)
            else:
                nothing = Checkpoint(storage.build_checkpoint_path_from_name("typo"), storage.storage_filesystem)
                trainyard.report({}, nothing, checkpoint_upload_mode=trainyard.CheckpointUploadMode.NO_UPLOAD)

    monkeypatch.setattr(remote, "TRIES", 1)
    for how in "other name", "nothing":
        run = RunConfig(name=how.replace(" ", "-"), storage_path="bucket/runs", storage_filesystem=there[1], progress="none")
        trainer = DataParallelTrainer(train, train_loop_config=how, run_config=run)
        if how == "nothing":
            with pytest.raises(ControllerError, match="nothing was put into bucket/runs/nothing/typo"):
                trainer.fit()
        else:
            trainer.fit()


def test_one_rank_brings_its_files_there_and_another_reports_them(there, elsewhere, monkeypatch):
    monkeypatch.setattr(defaults.policy, "storage_there", True)

    def train():
        import tempfile

        context = trainyard.get_context()
        rank = context.get_world_rank()
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/part-{rank}", "w") as file:
                file.write("x")
            given, options = Checkpoint(folder), {}
            if rank == 1:
                given = context.get_storage().persist_current_checkpoint(given, "both")
                options = {"checkpoint_upload_mode": trainyard.CheckpointUploadMode.NO_UPLOAD}
            trainyard.report({}, given, checkpoint_dir_name="both", **options)

    run = RunConfig(name="run", storage_path="bucket/runs", storage_filesystem=there[1], progress="none")
    result = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
    assert result.checkpoint.path == "bucket/runs/run/both"
    assert sorted(os.listdir(there[0] / "bucket/runs/run/both")) == ["part-0", "part-1"]


def test_a_checkpoint_on_another_file_system_is_outside_of_the_run_or_copied(there, tmp_path, monkeypatch):
    monkeypatch.setattr(defaults.policy, "storage_there", True)
    place, filesystem = there
    os.makedirs(place / "other/model")
    (place / "other/model/weights").write_text("x")

    def train(mode):
        with pytest.raises(ValueError, match="is outside the experiment directory"):
            trainyard.report(
                {}, Checkpoint("other/model", filesystem), checkpoint_upload_mode=trainyard.CheckpointUploadMode.NO_UPLOAD
            )
        trainyard.report({}, Checkpoint("other/model", filesystem), checkpoint_upload_mode=trainyard.CheckpointUploadMode[mode])

    places = {"here": dict(storage_path=str(tmp_path)), "there": dict(storage_path="runs", storage_filesystem=filesystem)}
    for mode in ("SYNC", "ASYNC"):
        for name, storage in places.items():
            run = RunConfig(name=f"{name}-{mode}", progress="none", **storage)
            result = DataParallelTrainer(train, train_loop_config=mode, run_config=run).fit()
            with result.checkpoint.as_directory() as folder:
                assert "weights" in os.listdir(folder)
    assert (place / "other/model/weights").read_text() == "x"


def test_what_an_attempt_that_died_brought_there_is_not_part_of_the_next_one_s(there, elsewhere, monkeypatch):
    """Under the name that a checkpoint has when none is given. Here a directory only stands for it, which is no checkpoint."""
    monkeypatch.setattr(defaults.policy, "storage_there", True)

    def train():
        import tempfile

        context = trainyard.get_context()
        storage = context.get_storage()

        def put(checkpoint, name):
            made = storage.persist_current_checkpoint(checkpoint, name)
            if context.get_attempt() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return made

        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/of-attempt-{context.get_attempt()}", "w") as file:
                file.write("x")
            trainyard.report({}, Checkpoint(folder), checkpoint_upload_fn=put)
            trainyard.report({}, Checkpoint(folder), checkpoint_dir_name="slot-0", checkpoint_upload_fn=put)
            trainyard.report({}, Checkpoint(folder), checkpoint_upload_fn=put)
            with pytest.raises(ValueError, match="'slot-0' of this run is no longer kept.* a name of its own"):
                trainyard.report({}, Checkpoint(folder), checkpoint_dir_name="slot-0", checkpoint_upload_fn=put)

    home = elsewhere()
    run = RunConfig(
        name="run",
        storage_path="bucket/runs",
        storage_filesystem=there[1],
        progress="none",
        checkpoint_config=CheckpointConfig(num_to_keep=1),
        failure_config=trainyard.FailureConfig(max_failures=1),
    )
    result = DataParallelTrainer(train, run_config=run).fit()
    assert os.listdir(there[0] / "bucket/runs/run/checkpoint_000001") == ["of-attempt-1"]
    with result.checkpoint.as_directory() as folder:
        assert os.listdir(folder) == ["of-attempt-2"]
    with pytest.warns(RuntimeWarning, match="left out of the result: .* only stands for a checkpoint"):
        assert Result.from_path(home / "run").checkpoint is None


def test_a_checkpoint_elsewhere_is_copied_behind_the_training(there, tmp_path, monkeypatch):
    """With ASYNC: what fails then fails the run, and nothing is left of it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def train():
        nothing = Checkpoint("nothing", there[1])
        with pytest.raises(ValueError, match="is outside the experiment directory, .*, which is on this machine"):
            trainyard.report({}, nothing, checkpoint_upload_mode=trainyard.CheckpointUploadMode.NO_UPLOAD)
        trainyard.report({}, nothing, checkpoint_upload_mode=trainyard.CheckpointUploadMode.ASYNC)
        (tmp_path / "behind").touch()

    with pytest.raises(trainyard.TrainingFailedError, match="nothing is no directory"):
        DataParallelTrainer(train, run_config=RunConfig(storage_path=str(tmp_path / "runs"), progress="none")).fit()
    assert (tmp_path / "behind").exists()
    assert not list(tmp_path.glob("trainyard-report-*"))


def test_it_goes_on_on_another_machine_and_back(there, elsewhere):
    place, filesystem = there
    keep = CheckpointConfig(num_to_keep=2)
    first = elsewhere()
    assert fit(filesystem, checkpoint_config=keep).metrics == {"step": 2, "start": 0}
    elsewhere()
    assert fit(filesystem, checkpoint_config=keep, resume=True).metrics == {"step": 5, "start": 3}
    os.environ["TRAINYARD_STORAGE"] = str(first)  # where an older state of it lies
    result = fit(filesystem, checkpoint_config=keep, resume=True)
    assert result.metrics == {"step": 8, "start": 6}
    assert [checkpoint.path[-6:] for checkpoint, _ in result.best_checkpoints] == ["000008", "000009"]
    assert names(place) == ["checkpoint_000008", "checkpoint_000009"]
    assert [attempt.num_workers for attempt in result.history] == [1, 1, 1]
    assert len([name for name in os.listdir(first) if name.startswith("run.before-")]) == 1


def test_a_run_of_the_name_that_is_kept_elsewhere_is_another(there, elsewhere, monkeypatch):
    place, filesystem = there
    here = elsewhere()
    fit(filesystem)
    lock = here / "run" / "run.lock"
    lock.touch()
    with open(lock, "r+b") as file:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, asked)  # as its controller does
        with pytest.raises(FileExistsError, match="goes on: choose another name"):
            fit(filesystem, path="bucket/other", resume=True)
    assert fit(filesystem, path="bucket/other", resume=True).metrics == {"step": 2, "start": 0}
    assert fit(filesystem, resume=True).metrics == {"step": 5, "start": 3}
    assert len([name for name in os.listdir(here) if name.startswith("run.before-")]) == 2
    shutil.rmtree(place / "bucket/runs/run")
    monkeypatch.setattr(defaults.policy, "resume", True)
    assert fit(filesystem).metrics == {"step": 2, "start": 0}


def test_a_name_that_is_taken_there(there, elsewhere):
    _, filesystem = there
    fit(filesystem)
    elsewhere()
    with pytest.raises(FileExistsError, match="resume=True beside name='run'"):
        fit(filesystem)
    assert os.listdir(os.environ["TRAINYARD_STORAGE"]) == []


def test_names_there_that_lead_out_of_the_run(there, elsewhere):
    """Whoever may write there says what is fetched, and what is removed: nothing beside the run is."""
    place, filesystem = there
    fit(filesystem)
    state = place / "bucket/runs/run" / remote.STATE
    before = json.loads(state.read_text())
    (place / "bucket/beside").mkdir()
    (place / "bucket/beside" / manifest.INSIDE).write_text("{}")
    elsewhere()
    for wrong in ("../../home/x", "..", "", "/etc", "a/b", "run.db", "logs", 3):
        state.write_text(json.dumps(dict(before, checkpoints=[wrong])))
        with pytest.raises(OSError, match="is damaged"):
            fit(filesystem, resume=True)
    assert os.listdir(os.environ["TRAINYARD_STORAGE"]) == []
    assert (place / "bucket/beside" / manifest.INSIDE).exists()


def test_keys_that_lead_out_of_a_checkpoint(tmp_path):
    """A store of objects knows no "..": a key may hold it."""
    assert filesystems.place_of("bucket/run/a/b", "bucket/run", "/here") == "/here/a/b"
    assert filesystems.place_of("bucket/run/..a", "bucket/run", "/here") == "/here/..a"
    for key in ("bucket/run/../x", "bucket/run/a/../../x", "bucket/other", "/etc/x", "bucket/run/.."):
        with pytest.raises(OSError, match="leads out"):
            filesystems.place_of(key, "bucket/run", "/here")


class Faulty(pyarrow_fs.FSSpecHandler):
    """Of fsspec's local file system, whose writes `fail` may refuse, by their path."""

    def __init__(self, place, fail):
        import fsspec

        super().__init__(fsspec.filesystem("dir", path=str(place), fs=fsspec.filesystem("file", auto_mkdir=True)))
        self.fail = fail

    def open_output_stream(self, path, metadata):
        self.fail(path)
        return super().open_output_stream(path, metadata)


def faulty(there, fail):
    return pyarrow_fs.PyFileSystem(Faulty(there[0], fail))


def test_a_state_that_cannot_be_written_leaves_nothing_beside(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        remote._write_file(str(tmp_path / "taken"), {"count": 1})
    assert os.listdir(tmp_path) == ["taken"]


def test_a_failure_that_passes_is_told_once_and_tried_again(there, elsewhere, monkeypatch, capfd):
    monkeypatch.setattr(remote, "PAUSE_S", 0.01)
    failures = []

    def fail(path):
        if path.endswith("checkpoint_000002/part/weights") and len(failures) < 4:
            failures.append(path)
            raise OSError("503 Slow Down")

    assert fit(faulty(there, fail)).checkpoint.path.endswith("checkpoint_000003")
    assert len(failures) == 4 and names(there[0]) == [f"checkpoint_{number:06}" for number in (1, 2, 3)]
    told = [line for line in capfd.readouterr().err.splitlines() if "503" in line]
    assert len(told) == 1 and "checkpoint_000002 could not be brought to bucket/runs/run yet" in told[0]


def test_one_that_is_kept_no_longer_while_it_is_brought_there(there, elsewhere):
    """With num_to_keep=1, and a file system that is slower than the run."""
    here = pathlib.Path(os.environ["TRAINYARD_STORAGE"])

    def wait(path):
        if path.endswith("checkpoint_000001/step"):
            deadline = time.monotonic() + 60
            while list(here.glob("**/checkpoint_000001")):
                assert time.monotonic() < deadline, "it is kept for ever"
                time.sleep(0.01)

    fit(faulty(there, wait), checkpoint_config=CheckpointConfig(num_to_keep=1))
    assert names(there[0]) == ["checkpoint_000003"]


def test_one_that_stays_fails_the_run_and_says_where_it_lies(there, elsewhere, monkeypatch):
    monkeypatch.setattr(remote, "PAUSE_S", 0.001)
    filesystem = faulty(there, lambda path: None)

    def fail(path):
        if "checkpoint_000003" in path:
            raise OSError("No space left")

    filesystem.handler.fail = fail
    with pytest.raises(ControllerError, match="checkpoint_000003 .No space left.*resume=True on this machine"):
        fit(filesystem)
    result = Result.from_path("bucket/runs/run", storage_filesystem=filesystem)
    assert result.checkpoint.path.endswith("checkpoint_000002")  # what is not whole is not there
    filesystem.handler.fail = lambda path: None
    assert fit(filesystem, resume=True).metrics == {"step": 5, "start": 3}


@pytest.mark.parametrize("is_back", [False, True])
def test_what_comes_behind_one_that_was_given_up_is_tried_once_and_brought_later(there, elsewhere, monkeypatch, is_back):
    """So that a run whose other side is gone ends, however many checkpoints it has made."""
    monkeypatch.setattr(remote, "PAUSE_S", 0.001)
    monkeypatch.setattr(remote, "TRIES", 4)
    tried = []

    def fail(path):
        name = path.split("/")[3] if path.count("/") > 3 else ""
        if name.startswith("checkpoint") and path.endswith("step") and not (is_back and name == "checkpoint_000003"):
            tried.append(name)
            if not is_back or len(tried) <= 5:
                raise OSError("No space left")

    filesystem = faulty(there, fail)
    if is_back:
        fit(filesystem)
        assert names(there[0]) == [f"checkpoint_{number:06}" for number in (1, 2, 3)]
        assert tried == ["checkpoint_000001"] * 4 + ["checkpoint_000002", "checkpoint_000001", "checkpoint_000002"]
    else:
        with pytest.raises(ControllerError, match="checkpoint_000001 .*; checkpoint_000002 .*; checkpoint_000003 "):
            fit(filesystem)
        assert tried[:6] == ["checkpoint_000001"] * 4 + ["checkpoint_000002", "checkpoint_000003"]
        assert len(tried) <= 4 + 2 + 4 + 2  # once more behind the end, which is got through


def test_a_list_of_files_comes_last(there, elsewhere):
    order = []
    fit(faulty(there, order.append))
    for name in names(there[0]):
        assert [path.rsplit("/", 1)[1] for path in order if f"/{name}/" in path][-1] == ".metadata.json"


def test_a_place_that_cannot_be_written_starts_nothing(there, elsewhere):
    def fail(path):
        raise PermissionError("AccessDenied: no")

    with pytest.raises(OSError, match="the storage path bucket/runs cannot be written: AccessDenied"):
        fit(faulty(there, fail))
    assert os.listdir(os.environ["TRAINYARD_STORAGE"]) == []


@pytest.mark.parametrize("said", [KeyboardInterrupt, None])
def test_a_place_that_gives_no_answer_is_told_and_does_not_keep_ctrl_c(there, monkeypatch, said):
    monkeypatch.setattr(remote, "SLOW_S", 0.01)
    answers, told = threading.Event(), []

    def warn(text):
        told.append(text)
        if said is not None:  # in the thread that hears it
            raise said
        answers.set()

    place = remote.Remote("bucket/runs", faulty(there, lambda path: answers.wait()), warn)
    if said is None:
        place.prepare(None, str(there[0]), False)
    else:
        with pytest.raises(said):
            place.prepare(None, str(there[0]), False)
        answers.set()
    assert told == ["the storage path bucket/runs gives no answer yet: it is waited for"]


def kill_in_an_upload(place, tmp_path):
    """A driver that is killed when all files of its second checkpoint are there, and their list is not."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import os, signal, sys
            sys.path[:0] = [{os.path.dirname(__file__)!r}]
            import test_remote
            from pathlib import Path
            def fail(path):
                if path.endswith("checkpoint_000002/.metadata.json"):
                    os.kill(os.getpid(), signal.SIGKILL)
            test_remote.fit(test_remote.faulty((Path({str(place)!r}), None), fail))
            """
        )
    )
    assert subprocess.run([sys.executable, program], capture_output=True).returncode == -signal.SIGKILL
    assert os.path.exists(place / "bucket/runs/run/checkpoint_000002/part/weights")


def test_a_driver_that_is_killed_leaves_nothing_half(there, elsewhere, tmp_path):
    """Killed in the middle of an upload: what is not whole is no checkpoint, and the next one begins from the last that is."""
    place, filesystem = there
    kill_in_an_upload(place, tmp_path)
    elsewhere()
    assert Result.from_path("bucket/runs/run", storage_filesystem=filesystem).checkpoint.path.endswith("checkpoint_000001")
    assert fit(filesystem, resume=True).metrics == {"step": 3, "start": 1}


def test_what_a_driver_that_was_killed_left_here_is_brought_there(there, elsewhere, tmp_path):
    place, filesystem = there
    kill_in_an_upload(place, tmp_path)
    assert fit(filesystem, resume=True).metrics["start"] >= 2
    assert os.path.exists(place / "bucket/runs/run/checkpoint_000002/.metadata.json")
    state = json.loads((place / "bucket/runs/run" / remote.STATE).read_text())
    assert "checkpoint_000002" in state["checkpoints"]


def test_what_is_no_file_system(there):
    with pytest.raises(ValueError, match="one of pyarrow.fs or fsspec, not builtins.object"):
        RunConfig(storage_path="a", storage_filesystem=object())
    with pytest.raises(ValueError, match="needs `storage_path`"):
        RunConfig(storage_filesystem=there[1])
    with pytest.raises(ValueError, match="nosuch"):
        DataParallelTrainer(train, run_config=RunConfig(storage_path="nosuch://a/b")).fit()


# -- S3


class Proxy(threading.Thread):
    """Between a client and the server; cuts the connections of which `cut` says so, after some bytes."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.to = port
        self.cut = lambda count: False
        self.count = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.count += 1
            server = socket.create_connection(("127.0.0.1", self.to))
            most = 3000 if self.cut(self.count) else None
            for one, other, limit in ((client, server, most), (server, client, None)):
                threading.Thread(target=self.carry, args=(one, other, limit), daemon=True).start()

    @staticmethod
    def carry(one, other, limit):
        carried = 0
        try:
            while data := one.recv(1 << 16):
                carried += len(data)
                if limit is not None and carried > limit:
                    break
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@pytest.fixture(scope="module")
def s3():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    proxy = Proxy(server.get_host_and_port()[1])
    address = f"http://127.0.0.1:{proxy.port}"
    filesystem = pyarrow_fs.S3FileSystem(
        access_key="a",
        secret_key="b",
        region="us-east-1",
        endpoint_override=address,
        allow_bucket_creation=True,
        request_timeout=60,  # however busy the machine is
        connect_timeout=60,
    )
    filesystem.create_dir("bucket")
    yield filesystem, proxy
    proxy.listener.close()
    server.stop()


def test_an_address_with_blanks_and_any_letters(s3, elsewhere, monkeypatch):
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    options = f"endpoint_override=http%3A%2F%2F127.0.0.1%3A{s3[1].port}&region=us-east-1"
    result = fit(None, path=f"s3://bucket/my rüns/?{options}", name="first run")
    assert result.checkpoint.path == "bucket/my rüns/first run/checkpoint_000003"
    steps = [f"s3://bucket/my rüns/first run/checkpoint_00000{number}/step?{options}" for number in (1, 2)]
    assert [row["text"] for row in data.read_text(steps).iter_rows()] == ["0", "1"]
    elsewhere()
    resumed = fit(None, path=f"s3://bucket/my rüns?{options}", name="first run", resume=True)
    assert resumed.metrics == {"step": 5, "start": 3}


def test_s3(s3, elsewhere):
    filesystem, _ = s3
    result = fit(filesystem, name="plain")
    assert result.checkpoint.path == "bucket/runs/plain/checkpoint_000003"
    elsewhere()
    assert fit(filesystem, name="plain", resume=True).metrics == {"step": 5, "start": 3}
    assert "s3" in repr(Result.from_path("bucket/runs/plain", storage_filesystem=filesystem))


def test_s3_whose_connections_are_cut(s3, elsewhere, monkeypatch):
    monkeypatch.setattr(remote, "PAUSE_S", 0.01)
    filesystem, proxy = s3
    cut = []
    proxy.cut = lambda count: len(cut) < 12 and (cut.append(count) or True)
    result = fit(filesystem, name="cut", config={"size": 300000})
    proxy.cut = lambda count: False
    assert cut
    with result.checkpoint.as_directory() as directory:
        with open(directory + "/part/weights", "rb") as file:
            assert file.read() == b"\2" * 300000


def test_s3_that_has_no_such_bucket(s3, elsewhere):
    address = f"http://127.0.0.1:{s3[1].port}"
    filesystem = pyarrow_fs.S3FileSystem(access_key="a", secret_key="b", region="us-east-1", endpoint_override=address)
    with pytest.raises(OSError, match="the storage path nothing/runs cannot be written"):
        fit(filesystem, path="nothing/runs")
    assert json.dumps(os.listdir(os.environ["TRAINYARD_STORAGE"])) == "[]"
