"""A Backend in the form of Ray Train's: hooks that reach all workers through a worker group."""

import os
import time

import pytest
from trainyard import BackendConfig, DataParallelTrainer, RunConfig, ScalingConfig, WorkerGroupError
from trainyard.backend import Backend, Future, WorkerGroup


def note(path, text):
    with open(path, "a") as file:
        file.write(text + "\n")


def rank():
    import trainyard

    return trainyard.get_context().get_world_rank()


def fit(backend, storage, train=lambda: None, workers=3):
    class Config(BackendConfig):
        word = "of the config"

        @property
        def backend_cls(self):
            return backend

    return DataParallelTrainer(
        train,
        backend_config=Config(),
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=storage, progress="none"),
    ).fit()


def test_hooks_reach_all_workers(storage, place):
    notes = str(place / "notes")

    def train():
        assert os.environ["SET"] == f"by {rank()}"
        note(notes, "train")

    class Hooks(Backend):
        def on_start(self, worker_group, backend_config):
            assert isinstance(worker_group, WorkerGroup) and len(worker_group) == 3
            self.pids = worker_group.execute(os.getpid)
            assert len(set(self.pids)) == 3 and self.pids[0] == os.getpid()
            assert worker_group.execute(lambda a, b: a + b, 1, b=2) == [3, 3, 3]
            assert worker_group.execute_single(2, rank) == 2 and worker_group.execute_single(0, rank) == 0
            assert [worker.metadata.pid for worker in worker_group.workers] == self.pids
            assert worker_group.get_workers()[1].metadata.gpu_ids == []
            with pytest.raises(ValueError, match="worker_index 3 is not valid for 3 workers"):
                worker_group.execute_single(3, rank)
            note(notes, f"start {backend_config.word}")

        def on_training_start(self, worker_group, backend_config):
            # what all of them have to be in at once, asked of rank 0 first
            from trainyard import collective

            futures = [worker_group.execute_single_async(i, collective.barrier) for i in range(3)]
            assert (
                all(isinstance(one, Future) for one in futures)
                and [one.result() for one in futures] == [None] * 3
            )

            def put():
                os.environ["SET"] = f"by {rank()}"

            worker_group.execute_async(put)  # nobody asks what came of it
            with pytest.raises(ZeroDivisionError) as failed:
                worker_group.execute_single(1, lambda: 1 / 0)
            assert "1 / 0" in str(failed.value.__cause__)
            note(notes, "training start")

        def on_shutdown(self, worker_group, backend_config):
            assert worker_group.execute(os.getpid) == self.pids
            note(notes, "shutdown")

    fit(Hooks, storage, train)
    lines = open(notes).read().splitlines()
    assert lines == ["start of the config", "training start", "train", "train", "train", "shutdown"]


def test_what_fails_in_a_worker_fails_the_run(storage):
    class Odd(Exception):
        def __init__(self, a, b):  # cannot be pickled as it is
            super().__init__("odd")

    class Fails(Backend):
        def on_start(self, worker_group, backend_config):
            def fail():
                raise Odd(1, 2)

            worker_group.execute_single(1, fail)

    with pytest.raises(WorkerGroupError, match="RuntimeError: Odd: odd"):
        fit(Fails, storage, workers=2)


def test_a_single_worker_needs_nobody(storage):
    class Alone(Backend):
        def on_start(self, worker_group, backend_config):
            assert worker_group.execute(rank) == [0]
            worker_group.execute_async(lambda: os.environ.update(LEFT="for the end"))

    assert fit(Alone, storage, lambda: os.environ["LEFT"], workers=1).return_value == "for the end"


@pytest.mark.parametrize("failing", [0, 1])
def test_what_was_begun_is_ended_after_a_failure_too(storage, place, failing):
    """In rank 0, whoever failed: once, and with nobody but itself to ask."""
    notes = str(place / "notes")

    def train():
        if rank() == failing:
            while not os.path.exists(notes):
                time.sleep(0.01)
            raise KeyError("of the training")
        if rank() == 0:
            note(notes, "train")
        while True:
            time.sleep(0.01)
            if failing == 0 and not os.path.exists(notes):
                note(notes, "train")

    class Hooks(Backend):
        def on_shutdown(self, worker_group, backend_config):
            assert worker_group.execute_single(0, rank) == 0
            note(notes, f"shutdown {backend_config.word}")
            worker_group.execute(rank)

    with pytest.raises(WorkerGroupError, match="of the training") as caught:
        fit(Hooks, storage, train, workers=2)
    assert list(caught.value.worker_failures) == [failing]
    with open(notes) as file:
        assert file.read().split("\n") == ["train", "shutdown of the config", ""]


def test_a_config_without_hooks_names_the_backend_that_has_none():
    assert BackendConfig().backend_cls is Backend
    assert isinstance(BackendConfig().backend_cls(), Backend)


def test_a_config_may_name_the_backend_of_another(storage):
    """As one that stands around it does."""
    assert fit(BackendConfig().backend_cls, storage, rank).return_value == 0
