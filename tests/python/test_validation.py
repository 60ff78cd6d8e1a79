"""Checkpoints that are validated beside the training: `validation_config`, `report(validation=)`, and what becomes of it."""

import json
import os
import signal
import threading
import time

import pytest
import trainyard
from conftest import BUILD, processes_with, wait_until
from trainyard import CheckpointConfig, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig
from trainyard.reported import CheckpointConsistencyMode as Mode
from trainyard.result import read
from trainyard.validation import ValidationConfig, ValidationTaskConfig


def trainer(train, fn, storage, workers=1, task=None, options=None, **run):
    return DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name="a", storage_path=storage, progress="none", **run),
        validation_config=ValidationConfig(fn, task, options),
    )


def rows(result):
    return [(os.path.basename(one.path), metrics) for one, metrics in result.best_checkpoints]


def report(number, validation=True, **metrics):
    """In a worker: a report with a checkpoint that holds its number. Each rank has a directory of its own: what one copies no other
    writes meanwhile."""
    directory = os.path.join(os.environ["PLACE"], f"checkpoint-{number}-{trainyard.get_context().get_world_rank()}")
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "number"), "w") as file:
        file.write(str(number))
    trainyard.report(metrics, checkpoint=trainyard.Checkpoint(directory), validation=validation)


def test_what_the_function_finds_ranks_the_checkpoint(storage):
    def validate(checkpoint, add=0, pair=None):
        with checkpoint.as_directory() as directory:
            number = int(open(os.path.join(directory, "number")).read())
        assert pair in (None, (1, 2))
        return {"score": number + add, "pid": os.getpid()}

    def train():
        import trainyard

        with pytest.raises(ValueError, match="Validation requires a checkpoint"):
            trainyard.report({}, validation=True)
        with pytest.raises(ValueError, match="True, False or a ValidationTaskConfig, not 'yes'"):
            report(0, "yes")
        report(1, ValidationTaskConfig(fn_kwargs={"add": 5, "pair": (1, 2)}), score=0)
        report(2, True, score=0)
        report(3, False, score=1)
        committed = trainyard.get_all_reported_checkpoints(consistency_mode=Mode.COMMITTED)
        assert {one.status.name for one in committed} <= {"PENDING_VALIDATION", "VALIDATED", "COMMITTED"}
        done = trainyard.get_all_reported_checkpoints()
        assert [one.status.name for one in done] == ["COMMITTED", "VALIDATED", "VALIDATED"]
        assert [one.metrics["score"] for one in done] == [1, 6, 102] and done[1].metrics["pid"] != os.getpid()
        report(
            4, ValidationTaskConfig({"add": -4}), score=50
        )  # ranked first until it is validated, when nobody trains any more

    keep = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    task = ValidationTaskConfig(fn_kwargs={"add": 100})
    result = trainer(train, validate, storage, workers=2, task=task, checkpoint_config=keep).fit()
    assert [(name, metrics["score"]) for name, metrics in rows(result)] == [
        ("checkpoint_000004", 0),
        ("checkpoint_000002", 102),
    ]
    assert rows(read(result.path)) == rows(result)
    left = [name for name in os.listdir(result.path) if name.startswith("checkpoint_")]
    assert sorted(left) == ["checkpoint_000002", "checkpoint_000004"]


def test_what_fails_is_told_and_nothing_else_fails(storage, capfd, tmp_path):
    def validate(checkpoint, way):
        if way == "raise":
            raise KeyError("no data")
        if way == "list":
            return [1]
        if way == "die":
            open(tmp_path / "deaths", "a").write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "sleep":
            time.sleep(100)
        if way == "again" and not os.path.exists(tmp_path / "again"):
            open(tmp_path / "again", "w").close()
            raise OSError("not yet")
        return {"found": way}

    def train():
        for i, way in enumerate(["raise", "list", "die", "sleep", "again", "well"]):
            timeout = 0.5 if way == "sleep" else None
            report(i, ValidationTaskConfig({"way": way}, timeout_s=timeout), loss=i)
        found = trainyard.get_all_reported_checkpoints()
        return [(one.status.name, one.metrics) for one in found]

    options = {"max_retries": 1, "retry_exceptions": [OSError], "num_cpus": 1}
    result = trainer(train, validate, storage, options=options).fit()
    failed = "VALIDATION_FAILED"
    states = [failed, failed, failed, "VALIDATION_TIMEOUT", "VALIDATED", "VALIDATED"]
    assert [state for state, _ in result.return_value] == states
    assert [metrics.get("found") for _, metrics in result.return_value] == [None] * 4 + ["again", "well"]
    assert (tmp_path / "deaths").read_text() == "xx"
    told = capfd.readouterr().err
    assert "KeyError: 'no data'" in told and "must return a dictionary of metrics. Got <class 'list'>" in told
    assert "ended with status -9" in told and "took longer than its timeout_s" in told


def test_a_score_beyond_64_bits_ranks(storage):
    def train():
        for number, score in enumerate([2**64, 2**65, 3], 1):
            report(number, False, score=score)

    keep = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score")
    result = trainer(train, lambda checkpoint: {}, storage, checkpoint_config=keep).fit()
    left = [name for name in os.listdir(result.path) if name.startswith("checkpoint_")]
    assert sorted(left) == ["checkpoint_000002", "checkpoint_000003"]
    assert rows(result) == [("checkpoint_000002", {"score": 2**65})]


def test_what_is_no_finite_number_is_found_as_well(storage):
    def validate(checkpoint):
        return {"found": float("nan"), "seed": 2**64}

    def train():
        report(1, loss=float("inf"))
        [one] = trainyard.get_all_reported_checkpoints()
        return one.status.name, one.metrics

    result = trainer(train, validate, storage).fit()
    for status, metrics in (result.return_value, ("VALIDATED", read(result.path).best_checkpoints[0][1])):
        assert status == "VALIDATED" and metrics["loss"] == float("inf") and metrics["seed"] == 2**64
        assert metrics["found"] != metrics["found"]


def validations(mark):
    """Processes of validations; who was killed may take a moment to be gone."""
    found = []
    for pid in processes_with(mark):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                found += [pid] if b"_validate" in file.read() else []
        except OSError:
            pass
    return found


def test_an_attempt_that_fails_does_not_end_it_and_a_resume_goes_on_with_it(storage, tmp_path):
    gate = tmp_path / "gate"

    def validate(checkpoint):
        while not os.path.exists(gate):
            time.sleep(0.02)
        return {"validated": 1}

    def train():
        if trainyard.get_context().get_attempt() == 1:
            report(1, loss=1)
            raise RuntimeError("once")
        if trainyard.get_context().get_attempt() == 2:
            left = trainyard.get_all_reported_checkpoints(timeout_s=0.2)
            assert [one.status.name for one in left] == ["PENDING_VALIDATION"]
            report(2, loss=2)
            open(tmp_path / "trained", "w").close()
            time.sleep(100)

    fit = trainer(train, validate, storage, failure_config=FailureConfig(max_failures=1))

    def stop():
        wait_until((tmp_path / "trained").exists)
        fit.shutdown()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(Exception, match="interrupted"):
        fit.fit()
    stopper.join()
    assert wait_until(lambda: not validations(str(tmp_path)))
    gate.touch()
    assert [set(metrics) for _, metrics in rows(read(os.path.join(storage, "a")))] == [{"loss"}, {"loss"}]
    result = trainer(lambda: None, validate, storage, resume=True).fit()
    assert [metrics for _, metrics in rows(result)] == [
        {"loss": 1, "validated": 1},
        {"loss": 2, "validated": 1},
    ]


def test_nothing_outlives_a_driver_that_is_killed(start, place):
    script = start(
        """
        import os, subprocess, time, trainyard
        from trainyard.validation import ValidationConfig

        def validate(checkpoint):
            subprocess.Popen(["sleep", "1000"])
            open("validating", "w").close()
            time.sleep(1000)

        def train():
            os.mkdir("made")
            trainyard.report({}, checkpoint=trainyard.Checkpoint("made"), validation=True)

        trainyard.DataParallelTrainer(train, validation_config=ValidationConfig(validate)).fit()
        """
    )
    assert wait_until((place / "validating").exists)
    script.process.kill()
    script.finish()


def test_another_fit_inside_and_the_wish_of_another_rank(storage):
    def validate(checkpoint):
        import trainyard

        inner = trainyard.DataParallelTrainer(
            lambda: 7, run_config=trainyard.RunConfig(name="inner", storage_path=storage, progress="none")
        )
        return {"seven": inner.fit().return_value}

    def train():
        if trainyard.get_context().get_world_rank() == 1:
            report(1)
        else:
            trainyard.report({"loss": 1.5})

    result = trainer(train, validate, storage, workers=2).fit()
    assert [metrics for _, metrics in rows(result)] == [{"loss": 1.5, "seven": 7}]


def test_what_is_refused(storage):
    for config, words in (
        (dict(fn=3), "`ValidationConfig.fn` must be a function, not int"),
        (dict(fn=len, task_config={}), "must be a ValidationTaskConfig, not dict"),
    ):
        with pytest.raises(ValueError, match=words):
            ValidationConfig(**config)
    with pytest.raises(AssertionError, match="None or greater than zero"):
        ValidationTaskConfig(timeout_s=0)
    with pytest.raises(ValueError, match="`fn_kwargs` must be a dict, not list"):
        ValidationTaskConfig(fn_kwargs=[1])
    with pytest.raises(ValueError, match="`validation_config` must be a trainyard.ValidationConfig"):
        DataParallelTrainer(lambda: None, validation_config=len)
    lock = threading.Lock()
    with pytest.raises(TypeError, match="`ValidationConfig.fn`.*non-serializable.*lock"):
        trainer(lambda: None, lambda checkpoint: lock, storage).fit()
    assert not os.path.exists(os.path.join(storage, "a"))


def test_a_trainer_without_it(storage):
    def train():
        with pytest.raises(ValueError, match="`validation_config` was not set on the trainer"):
            report(1)

    DataParallelTrainer(train, run_config=RunConfig(storage_path=storage, progress="none")).fit()


def test_the_journal_is_plain_json(storage):
    import sqlite3

    def train():
        report(1, ValidationTaskConfig({"a": (1, 2)}), loss=1)

    result = trainer(train, lambda checkpoint, a: {"a": a}, storage).fit()
    ((metrics,),) = (
        sqlite3.connect(os.path.join(result.path, "run.db"))
        .execute("SELECT metrics FROM checkpoints")
        .fetchall()
    )
    assert json.loads(metrics) == {
        "loss": 1,
        "a": [1, 2],
        "$validation": "VALIDATED",
        "$types": {"/a": "tuple"},
    }
    assert rows(result) == [("checkpoint_000001", {"loss": 1, "a": (1, 2)})]


def test_the_last_report_has_what_was_found_of_its_checkpoint(storage):
    def train(config):
        report(1, loss=1)
        report(2, ValidationTaskConfig({"found": 7}) if config["validates"] else False, loss=2)

    def last(validates, name):
        made = trainer(train, lambda checkpoint, found=3: {"found": found}, storage)
        made.train_loop_config, made.run_config.name = {"validates": validates}, name
        result = made.fit()
        assert read(result.path).metrics == result.metrics
        return result.metrics

    assert last(True, "validated") == {"loss": 2, "found": 7}
    assert last(False, "not") == {"loss": 2}


@pytest.mark.parametrize(
    "options, words",
    [
        (3, "ray_remote_kwargs` must be a dict, not int"),
        ({"max_retries": "x"}, r"\['max_retries'\]` must be a whole number from 0 on, or -1 for any, not 'x'"),
        ({"max_retries": -2}, "max_retries.*-2"),
        ({"max_retries": True}, "max_retries.*True"),
        ({"retry_exceptions": [3]}, r"\['retry_exceptions'\]` must be True, False or a list of classes of exceptions, not \[3\]"),
        ({"retry_exceptions": OSError}, "retry_exceptions"),
        ({"runtime_env": 3}, r"\['runtime_env'\]` must be a dict"),
    ],
)
def test_options_that_would_only_be_found_wrong_in_the_midst_of_a_run(options, words):
    with pytest.raises(ValueError, match=words):
        ValidationConfig(len, ray_remote_kwargs=options)


def test_a_timeout_that_is_no_number():
    for wrong in ("10", True, [1]):
        with pytest.raises(ValueError, match="`timeout_s` must be a number of seconds or None"):
            ValidationTaskConfig(timeout_s=wrong)


@pytest.mark.parametrize("ends", [True, False])
def test_on_a_kernel_that_does_not_tell_ends(storage, start, ends):
    """Without pidfd_open: a process that ends, and one that takes longer than its time."""
    program = os.path.abspath(os.path.join(BUILD, "tests", "e2e", "faults", "without_calls"))
    finished = start(
        """
        import os, sys, time
        if "again" not in sys.argv:
            os.execv(sys.argv[1], [sys.argv[1], "pidfd_open", sys.executable, *sys.argv, "again"])
        import trainyard
        from trainyard import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig, defaults
        from trainyard.validation import ValidationConfig, ValidationTaskConfig
        defaults.current = defaults.Defaults(num_cpus=4)
        ends = sys.argv[3] == "True"

        def validate(checkpoint):
            if not ends:
                time.sleep(1000)
            return {"score": 7}

        def train():
            os.mkdir("saved")
            trainyard.report({"score": 1}, checkpoint=Checkpoint("saved"), validation=True)

        validation = ValidationConfig(validate, ValidationTaskConfig(timeout_s=None if ends else 0.5))
        run_config = RunConfig(storage_path=sys.argv[2])
        scaling_config = ScalingConfig(num_workers=1)
        result = DataParallelTrainer(
            train, scaling_config=scaling_config, run_config=run_config, validation_config=validation
        ).fit()
        print([metrics["score"] for _, metrics in result.best_checkpoints])
        """,
        program,
        storage,
        str(ends),
    ).finish()
    assert finished.status == 0, finished
    assert (finished.out, "took longer" in finished.err) == (f"[{7 if ends else 1}]\n", not ends), finished
