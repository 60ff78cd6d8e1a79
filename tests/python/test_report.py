"""Reports from workers: metrics, checkpoints, and what is there afterwards."""

import os
import pathlib
import re

import pytest
import trainyard
from trainyard import (
    Checkpoint,
    CheckpointConfig,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    WorkerGroupError,
)
from trainyard.errors import BroadcastCollectiveTimeoutError

pytestmark = pytest.mark.usefixtures("common_directory")


@pytest.fixture
def fit(storage):
    def fit(function, workers=2, config=None, **run):
        return DataParallelTrainer(
            function,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(storage_path=storage, **run),
        ).fit()

    return fit


def saved(metrics, **files):
    """Reports a checkpoint of these files; runs in a worker."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            pathlib.Path(directory, name).write_text(text)
        trainyard.report(metrics, checkpoint=Checkpoint.from_directory(directory))


def test_files_of_several_ranks_are_in_one_directory(fit):
    def train():
        rank = trainyard.get_context().get_world_rank()
        if rank in (1, 3):
            saved({"rank": rank}, **{f"rank-{rank}": str(rank)})
        else:
            trainyard.report({"rank": rank})

    result = fit(train, 4)
    assert os.path.dirname(result.checkpoint.path) == result.path
    with result.checkpoint.as_directory() as directory:
        assert sorted(os.listdir(directory)) == [".metadata.json", "rank-1", "rank-3"]
        assert pathlib.Path(directory, "rank-3").read_text() == "3"
    assert result.metrics == {"rank": 0}, "of rank 0, which brought no files"
    assert result.best_checkpoints == [(result.checkpoint, {"rank": 0})]


def test_a_file_that_differs_between_ranks_is_kept_once(fit, capfd):
    def train():
        rank = trainyard.get_context().get_world_rank()
        for step in range(3):
            saved({"step": step}, model=f"of rank {rank} at {step}", common="same", **{f"rank-{rank}": "own"})

    result = fit(train, 3)
    with result.checkpoint.as_directory() as directory:
        assert sorted(os.listdir(directory)) == [
            ".metadata.json",
            "common",
            "model",
            "rank-0",
            "rank-1",
            "rank-2",
        ]
        assert pathlib.Path(directory, "model").read_text() in [f"of rank {rank} at 2" for rank in range(3)]
    warning = "RuntimeWarning: model differs between the ranks: the one that came first is kept"
    assert 2 <= capfd.readouterr().err.count(warning) <= 3, "once a rank"


def test_the_last_metrics_count_with_or_without_a_checkpoint(fit):
    def train():
        saved({"step": 1}, model="a") if trainyard.get_context().get_world_rank() == 0 else trainyard.report(
            {}
        )
        trainyard.report({"step": 2})

    result = fit(train)
    assert result.metrics == {"step": 2} and result.best_checkpoints == [(result.checkpoint, {"step": 1})]
    assert Result.from_path(result.path).best_checkpoints == result.best_checkpoints


def test_get_checkpoint_is_the_last_one_also_in_a_new_attempt(fit):
    def train():
        attempt = trainyard.get_context().get_attempt()
        before = trainyard.get_checkpoint()
        assert (before is None) == (attempt == 1)
        start = int(pathlib.Path(before.path, "step").read_text()) + 1 if before else 0
        for step in range(start, 4):
            saved({"step": step, "attempt": attempt, "start": start}, step=str(step))
            assert pathlib.Path(trainyard.get_checkpoint().path, "step").read_text() == str(step)
            if attempt == 1 and step == 1:
                raise ValueError("once")

    result = fit(train, failure_config=FailureConfig(max_failures=1))
    assert result.metrics == {"step": 3, "attempt": 2, "start": 2}
    assert len(result.best_checkpoints) == 4


def test_metadata_travels_with_a_checkpoint(fit, tmp_path):
    def train(config):
        checkpoint = Checkpoint(config["source"])
        trainyard.report({}, checkpoint=checkpoint)

    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "model").write_text("x")
    Checkpoint(tmp_path / "source").set_metadata({"epoch": 3})
    result = fit(train, config={"source": str(tmp_path / "source")})
    assert result.checkpoint.get_metadata() == {"epoch": 3}
    assert (tmp_path / "source" / "model").exists(), "the directory stays the user's"


def test_metadata_with_an_infinity_travels_too(fit, tmp_path):
    (tmp_path / "model").mkdir()

    def train():
        checkpoint = Checkpoint.from_directory(tmp_path / "model")
        checkpoint.set_metadata({"best": float("inf")})
        trainyard.report({}, checkpoint=checkpoint)
        assert trainyard.get_checkpoint().get_metadata() == {"best": float("inf")}

    assert fit(train, 1).checkpoint.get_metadata() == {"best": float("inf")}


def test_how_many_are_kept(fit):
    def train():
        for score in (100, 200, 150, 50):
            saved({"score": score}, score=str(score))

    config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    result = fit(train, 1, checkpoint_config=config)
    kept = [metrics["score"] for _, metrics in result.best_checkpoints]
    assert kept == [150, 200], "the latest is kept, and is not among the best"
    assert result.get_best_checkpoint("score", "max") == result.best_checkpoints[1][0]
    assert Result.from_path(result.path).best_checkpoints == result.best_checkpoints, "the journal has the score"
    there = [name for name in os.listdir(result.path) if name.startswith("checkpoint_")]
    assert len(there) == 3
    with result.checkpoint.as_directory() as directory:
        assert pathlib.Path(directory, "score").read_text() == "50"


@pytest.mark.parametrize(
    "what, kind", [("not a checkpoint", ValueError), ("missing", FileNotFoundError), ("file", ValueError)]
)
def test_what_is_no_checkpoint(fit, tmp_path, what, kind):
    (tmp_path / "plain").write_text("x")
    wrong = {
        "not a checkpoint": "/x",
        "missing": Checkpoint("/nowhere/at/all"),
        "file": Checkpoint(tmp_path / "plain"),
    }[what]

    def train():
        trainyard.report({}, checkpoint=wrong)

    with pytest.raises(WorkerGroupError) as caught:
        fit(train, 1)
    assert type(caught.value.worker_failures[0]) is kind and "checkpoint" in str(
        caught.value.worker_failures[0]
    )


def test_metrics_of_every_kind_come_home(fit):
    import datetime

    metrics = {
        "float": 0.1,
        "big": 2**70,
        "text": "grüß",
        "nested": {"list": [1, None, True]},
        "when": datetime.date(2026, 1, 2),
        "inf": float("-inf"),
        "word": "NaN",
    }
    assert fit(lambda config: trainyard.report(config), 1, metrics).metrics == metrics


def test_refused_metrics_name_what_is_wrong(fit):
    def train():
        import threading

        for wrong, text in (
            ({"a": threading.Lock()}, "lock"),
            ({1: 2}, "name 1"),
            ({"a": "x" * (2 << 20)}, "1 MiB|long"),
        ):
            with pytest.raises(ValueError, match=text):
                trainyard.report(wrong)
        with pytest.raises(TypeError, match="dict"):
            trainyard.report(3)
        trainyard.report({"good": True})

    assert fit(train, 1).metrics == {"good": True}


@pytest.mark.parametrize("method", ["spawn", "auto"])
def test_many_reports_are_all_kept(fit, method):
    def train():
        for i in range(20000):
            trainyard.report({"i": i})

    result = fit(train, 2, start_method=method)
    assert result.metrics == {"i": 19999}
    import sqlite3

    database = sqlite3.connect(f"{result.path}/run.db")
    assert database.execute("SELECT count(*), max(number) FROM reports").fetchone() == (40000, 20000)
    database.close()


def test_reports_from_threads(fit):
    def train():
        import threading

        def work():
            for _ in range(100):
                trainyard.report({"a": 1})

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    result = fit(train, 1)
    import sqlite3

    database = sqlite3.connect(f"{result.path}/run.db")
    assert database.execute("SELECT count(*) FROM reports").fetchone() == (400,)
    database.close()


def test_upload_functions_and_modes_are_checked(fit, tmp_path):
    (tmp_path / "model").mkdir()

    def train():
        checkpoint = Checkpoint.from_directory(tmp_path / "model")
        for wrong, text in (
            ({"checkpoint_upload_fn": lambda checkpoint, name: None}, r"must return a `trainyard.Checkpoint`.*, not NoneType"),
            ({"checkpoint_upload_fn": 3}, "must be a function"),
            ({"checkpoint_upload_mode": "SYNC"}, "CheckpointUploadMode.SYNC"),
        ):
            with pytest.raises(ValueError, match=text):
                trainyard.report({}, checkpoint=checkpoint, **wrong)
        trainyard.report({"good": True})

    assert fit(train, 1).metrics == {"good": True}


def test_an_upload_function_says_where_the_files_are(fit, tmp_path):
    import shutil

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("x")

    def upload(checkpoint, name):
        shutil.copytree(checkpoint.path, tmp_path / "elsewhere")
        return Checkpoint(tmp_path / "elsewhere")

    def train():
        trainyard.report({}, checkpoint=Checkpoint(tmp_path / "model"), checkpoint_upload_fn=upload)
        assert pathlib.Path(trainyard.get_checkpoint().path, "weights").read_text() == "x"

    result = fit(train, 1)
    assert pathlib.Path(result.checkpoint.path, "weights").read_text() == "x"


@pytest.mark.parametrize("delete, there", [(None, False), (True, False), (False, True)])
def test_a_local_checkpoint_is_deleted_after_an_asynchronous_upload(fit, tmp_path, delete, there):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("x")

    def train():
        trainyard.report(
            {"step": 1},
            checkpoint=Checkpoint(tmp_path / "model"),
            checkpoint_upload_mode=trainyard.CheckpointUploadMode.ASYNC,
            delete_local_checkpoint_after_upload=delete,
        )

    result = fit(train, 1)
    assert (tmp_path / "model").exists() == there
    with result.checkpoint.as_directory() as directory:
        assert pathlib.Path(directory, "weights").read_text() == "x"


def test_names_of_checkpoints(fit):
    def train():
        import tempfile

        for name in ("first", None, "third"):
            with tempfile.TemporaryDirectory() as directory:
                pathlib.Path(directory, "model").write_text(str(name))
                trainyard.report({"name": name}, checkpoint=Checkpoint(directory), checkpoint_dir_name=name)
        with tempfile.TemporaryDirectory() as directory:
            with pytest.raises(ValueError, match="name"):
                trainyard.report({}, checkpoint=Checkpoint(directory), checkpoint_dir_name="../out")
            with pytest.raises(ValueError, match="`checkpoint_dir_name`"):
                trainyard.report({}, checkpoint=Checkpoint(directory), checkpoint_dir_name=3)

    result = fit(train)
    names = [os.path.basename(checkpoint.path) for checkpoint, _ in result.best_checkpoints]
    assert names == ["first", "checkpoint_000002", "third"]


def test_all_reported_checkpoints(fit):
    def train():
        rank = trainyard.get_context().get_world_rank()
        assert trainyard.get_all_reported_checkpoints() == []
        trainyard.report({"step": 1, "rank": rank})
        if rank == 0:
            saved({"step": 2, "rank": rank}, model="2")
        else:
            trainyard.report({"step": 2, "rank": rank})
        if rank == 0:
            [first] = trainyard.get_all_reported_checkpoints()
            assert first.metrics == {"step": 2, "rank": 0} and first.status.name == "COMMITTED"
        saved({"step": 3, "rank": rank}, **{f"model-{rank}": "3"})
        found = trainyard.get_all_reported_checkpoints()
        assert [reported.metrics["step"] for reported in found] == [2, 3]
        assert found[1].checkpoint == trainyard.get_checkpoint()
        with pytest.raises(ValueError):
            trainyard.get_all_reported_checkpoints(consistency_mode="SOMETIMES")

    assert fit(train).metrics == {"step": 3, "rank": 0}


def is_told(text):
    """In a worker: rank 0 has said it."""
    log = pathlib.Path(trainyard.get_context().get_storage().experiment_fs_path, "logs", "rank-0.log")
    return log.exists() and text in log.read_text()


@pytest.mark.parametrize("way", ["copy", "upload", "list"])
def test_a_rank_whose_report_is_missing_is_named_and_ends_the_wait(fit, capfd, tmp_path, way):
    limits = {"RAY_TRAIN_COLLECTIVE_TIMEOUT_S": "4", "RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S": "0.2"}

    def train():
        trainyard.collective.barrier()  # however long it takes until all are there
        os.environ.update(limits)
        trainyard.runtime.session().run_path = "/nowhere/at/all"  # which another machine cannot see
        if trainyard.get_context().get_world_rank() != 2:
            waits()
        else:
            __import__("time").sleep(600)

    def waits():
        if way == "upload":
            there = Checkpoint(tmp_path)
            trainyard.report({"a": 1}, there, checkpoint_upload_fn=lambda given, name: there)
        elif way == "list":
            trainyard.report({"a": 1})
            trainyard.get_all_reported_checkpoints()
        else:
            saved({"a": 1}, model="1")

    with pytest.raises(WorkerGroupError) as caught:
        fit(train, 3)
    failure = next(iter(caught.value.worker_failures.values()))
    label = "get_all_reported_checkpoints" if way == "list" else "report"
    assert isinstance(failure, BroadcastCollectiveTimeoutError)
    missing = r"ranks? \S*2 did not come"  # beside it one that a busy machine has kept
    assert re.match(rf"{label}: {missing} within 4 s \(RAY_TRAIN_COLLECTIVE_TIMEOUT_S\)", str(failure))
    assert "in waits" in str(failure.__cause__), "the traceback is that of the call"
    assert re.search(rf"{label}: waiting for 0\.2 s: {missing} yet", capfd.readouterr().err)


def test_who_waits_for_a_report_that_comes_goes_on(fit, capfd):
    def train():
        while trainyard.get_context().get_world_rank() == 1 and not is_told(told):
            __import__("time").sleep(0.01)
        saved({"a": 1}, model="1")

    told = "report: waiting for 0.2 s: rank 1 did not come yet"
    limits = {"RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S": "0.2"}
    assert fit(train, worker_runtime_env={"env_vars": limits}).checkpoint is not None
    assert told in capfd.readouterr().err


def test_a_list_of_checkpoints_is_waited_for_no_longer_than_asked(fit):
    def train():
        if trainyard.get_context().get_world_rank() == 0:
            for wrong in (-1, "1", True, float("nan")):
                with pytest.raises(ValueError, match="timeout_s"):
                    trainyard.get_all_reported_checkpoints(timeout_s=wrong)
            trainyard.report({"step": 1})
            trainyard.runtime.session().run_path = "/nowhere/at/all"  # which another machine cannot see
            for timeout_s in (0, 0.1, 1e-9):
                assert trainyard.get_all_reported_checkpoints(timeout_s=timeout_s) == []
        trainyard.collective.barrier()
        if trainyard.get_context().get_world_rank() == 1:
            trainyard.report({"step": 1})
        saved({"step": 2}, model="2")
        assert len(trainyard.get_all_reported_checkpoints(timeout_s=180)) == 1

    assert fit(train).metrics == {"step": 2}


def test_a_list_of_checkpoints_does_not_wait_longer_for_uploads_either(fit, tmp_path):
    going, model = tmp_path / "going", tmp_path / "model"
    model.mkdir()
    (model / "weights").touch()

    def upload(given, name):
        while not going.exists():
            __import__("time").sleep(0.01)
        return given

    def train():
        saved({"step": 1}, model="1")
        later = {"checkpoint_upload_mode": trainyard.CheckpointUploadMode.ASYNC, "checkpoint_upload_fn": upload}
        trainyard.report({"step": 2}, checkpoint=Checkpoint(model), **later)
        trainyard.collective.barrier()
        [first] = trainyard.get_all_reported_checkpoints(timeout_s=0.1)
        assert first.metrics == {"step": 1}
        trainyard.collective.barrier()
        going.touch()
        for timeout_s in (60, None):
            found = trainyard.get_all_reported_checkpoints(timeout_s=timeout_s)
            assert [one.metrics["step"] for one in found] == [1, 2]

    assert fit(train).metrics == {"step": 2}


def test_asynchronous_checkpoints_keep_their_order(fit, tmp_path):
    def train():
        rank = trainyard.get_context().get_world_rank()
        for step in range(5):
            directory = tmp_path / f"model-{rank}-{step}"
            directory.mkdir()
            (directory / f"rank-{rank}").write_text(str(step))
            trainyard.report(
                {"step": step},
                checkpoint=Checkpoint(directory),
                checkpoint_upload_mode=trainyard.CheckpointUploadMode.ASYNC,
            )
        trainyard.report({"last": True})

    result = fit(train)
    assert result.metrics == {"last": True}
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == list(range(5))
    with result.checkpoint.as_directory() as directory:
        assert pathlib.Path(directory, "rank-1").read_text() == "4"
    assert [name for name in os.listdir(tmp_path) if name.startswith("model-")] == []


def test_what_needs_no_upload_stays_where_it_is(fit, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").touch()

    def train():
        trainyard.report(
            {},
            checkpoint=Checkpoint(tmp_path / "model"),
            checkpoint_upload_mode=trainyard.CheckpointUploadMode.NO_UPLOAD,
        )
        assert trainyard.get_checkpoint().path == str(tmp_path / "model")

    assert fit(train).checkpoint.path == str(tmp_path / "model")
    assert (tmp_path / "model").is_dir()


@pytest.mark.parametrize("mode", ["SYNC", "ASYNC"])
def test_an_upload_that_fails_fails_the_worker(fit, tmp_path, mode):
    (tmp_path / "model").mkdir()

    def upload(checkpoint, name):
        raise ConnectionError("no way")

    def train():
        trainyard.report(
            {},
            checkpoint=Checkpoint(tmp_path / "model"),
            checkpoint_upload_mode=trainyard.CheckpointUploadMode[mode],
            checkpoint_upload_fn=upload,
        )

    with pytest.raises(WorkerGroupError) as caught:
        fit(train, 1)
    assert isinstance(caught.value.worker_failures[0], ConnectionError)


def test_a_checkpoint_that_cannot_be_written_ends_the_run_unless_that_may_be(fit):
    """A file stands where the ranks' directory is to be."""

    def train():
        path = trainyard.get_context().get_storage().experiment_fs_path
        pathlib.Path(path, ".checkpoint_000001.attempt-1").touch()
        saved({"step": 1}, part="1")
        trainyard.report({"step": 2})

    with pytest.raises(WorkerGroupError, match="checkpoint_000001"):
        fit(train, 1)
    result = fit(train, 1, checkpoint_config=CheckpointConfig(on_checkpoint_error="continue"))
    assert (result.metrics, result.checkpoint) == ({"step": 2}, None)


def test_lines_of_workers_without_their_rank(fit, capfd):
    fit(lambda: print("as it is"), 1, no_prefix=True)
    assert capfd.readouterr().out == "as it is\n"
