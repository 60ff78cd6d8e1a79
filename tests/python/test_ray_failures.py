"""Failures of programs for Ray Train: as what they come to the program, and what of the reports before them is kept."""

import os

import pytest
import trainyard
from conftest import fit
from trainyard import Checkpoint, Result, WorkerGroupError


def test_a_checkpoint_s_directory_that_is_missing_is_not_found(storage):
    def train():
        trainyard.report({}, checkpoint=Checkpoint("/nowhere/model"))

    with pytest.raises(WorkerGroupError) as caught:
        fit(storage, train, 1)
    assert isinstance(caught.value.worker_failures[0], FileNotFoundError)
    assert "/nowhere/model" in str(caught.value.worker_failures[0])


def test_a_system_exit_of_a_program_for_ray_is_the_worker_s_failure(ray):
    assert ray("""
        import sys

        def train(config):
            sys.exit(config["code"])

        told = []
        for code in (0, 3, "over"):
            trainer = DataParallelTrainer(train, train_loop_config={"code": code},
                                          run_config=RunConfig(storage_path=os.path.abspath("runs")))
            try:
                trainer.fit()
            except ray.train.WorkerGroupError as error:
                failure = error.worker_failures[0]
                told.append([type(failure).__name__, failure.code, "sys.exit" in str(error)])
        print(json.dumps(told))
    """) == [["SystemExit", 0, True], ["SystemExit", 3, True], ["SystemExit", "over", True]]


def test_what_a_program_for_ray_catches_tells_the_traceback_and_its_cause(ray):
    text, cause, remote = ray("""
        def deep():
            raise ValueError("boom")

        try:
            DataParallelTrainer(lambda: deep(), run_config=RunConfig(storage_path=os.path.abspath("runs"))).fit()
        except ray.train.trainer.TrainingFailedError as error:
            print(json.dumps([str(error), repr(error.__cause__), str(error.__cause__.__cause__)]))
    """)
    assert text.startswith("Training failed due to worker errors:\n[Rank 0]:\nTraceback (most recent call last):")
    assert "in deep" in text and text.endswith("ValueError: boom")
    assert cause == "ValueError('boom')" and "in deep" in remote


@pytest.mark.parametrize("mode", ["SYNC", "ASYNC"])
def test_what_was_reported_before_a_rank_failed_is_kept(storage, mode):
    def train(config):
        import time

        rank = trainyard.get_context().get_world_rank()
        for step in range(3):
            if rank == 1:
                trainyard.report({"step": step})
                continue
            time.sleep(0.2)  # behind the other rank, which does not wait
            place = os.path.join(config["place"], str(step))
            os.makedirs(place)
            with open(os.path.join(place, "model"), "w") as file:
                file.write(str(step))
            upload = trainyard.CheckpointUploadMode[config["mode"]]
            trainyard.report({"step": step}, checkpoint=Checkpoint(place), checkpoint_upload_mode=upload)
        if rank == 1:
            raise ValueError("right after its third report")
        trainyard.collective.barrier()

    with pytest.raises(WorkerGroupError) as caught:
        fit(storage, train, config={"mode": mode, "place": storage})
    assert [str(failure) for failure in caught.value.worker_failures.values()] == ["right after its third report"]
    kept = Result.from_path(f"{storage}/run").best_checkpoints
    assert [metrics["step"] for _, metrics in kept] == [0, 1, 2]


def test_a_rank_that_failed_does_not_wait_for_one_that_reports_nothing(storage):
    def train():
        import time

        if trainyard.get_context().get_world_rank() == 1:
            time.sleep(100000)
        trainyard.report({"a": 1})
        raise ValueError

    with pytest.raises(WorkerGroupError) as caught:
        fit(storage, train)
    assert list(caught.value.worker_failures) == [0]


@pytest.mark.parametrize("puts_away", [False, True])
def test_nor_for_its_part_of_a_checkpoint(storage, puts_away):
    def train(config):
        import time

        if trainyard.get_context().get_world_rank() == 1:
            time.sleep(100000)
        options = {"checkpoint_upload_mode": trainyard.CheckpointUploadMode.ASYNC}
        if config["puts_away"]:
            options["checkpoint_upload_fn"] = lambda checkpoint, name: checkpoint
        os.makedirs(f"{storage}/made/model")
        trainyard.report({"a": 1}, checkpoint=Checkpoint(f"{storage}/made"), **options)
        raise ValueError

    with pytest.raises(WorkerGroupError) as caught:
        fit(storage, train, config={"puts_away": puts_away})
    assert list(caught.value.worker_failures) == [0]


def test_but_it_writes_what_it_has_begun(storage):
    def train():
        import time

        def writes(checkpoint, name):
            time.sleep(4)
            return checkpoint

        if trainyard.get_context().get_world_rank() == 1:
            trainyard.report({"a": 1})
            time.sleep(100000)
        options = {"checkpoint_upload_mode": trainyard.CheckpointUploadMode.ASYNC, "checkpoint_upload_fn": writes}
        os.makedirs(f"{storage}/made/model")
        trainyard.report({"a": 1}, checkpoint=Checkpoint(f"{storage}/made"), **options)
        trainyard.report({"a": 2})
        raise ValueError

    with pytest.raises(WorkerGroupError):
        fit(storage, train)
    assert [metrics["a"] for _, metrics in Result.from_path(f"{storage}/run").best_checkpoints] == [1]


def test_a_rank_that_failed_does_not_wait_for_one_that_has_returned(storage):
    def train():
        if trainyard.get_context().get_world_rank() == 1:
            return
        trainyard.report({"a": 1})
        raise ValueError

    with pytest.raises(WorkerGroupError):
        fit(storage, train)
