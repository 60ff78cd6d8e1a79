"""Barrier and broadcast among workers."""

import os

import pytest
import trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, WorkerGroupError, collective
from trainyard.errors import BroadcastCollectiveTimeoutError

pytestmark = pytest.mark.usefixtures("common_directory")


@pytest.fixture
def fit(storage):
    def fit(function, workers=2, **run):
        scaling = ScalingConfig(num_workers=workers)
        return DataParallelTrainer(
            function, scaling_config=scaling, run_config=RunConfig(storage_path=storage, **run)
        ).fit()

    return fit


def test_broadcast_gives_what_rank_zero_has(fit):
    def train():
        rank = trainyard.get_context().get_world_rank()
        data = collective.broadcast_from_rank_zero(
            {"from": rank, "big": os.urandom(3 << 20) if rank == 0 else None}
        )
        small = [collective.broadcast_from_rank_zero(f"data-{rank}-{i}") for i in range(20)]
        collective.barrier()
        assert data["from"] == 0 and len(data["big"]) == 3 << 20, rank
        assert small == [f"data-0-{i}" for i in range(20)], rank
        trainyard.report({"good": True})

    assert fit(train, 4).metrics == {"good": True}


def test_a_barrier_waits_for_all(fit, place):
    def train():
        rank = trainyard.get_context().get_world_rank()
        if rank == 1:
            __import__("time").sleep(0.3)
        open(os.path.join(os.environ["PLACE"], f"came-{rank}"), "w").close()
        collective.barrier()
        trainyard.report({"n": sum(name.startswith("came-") for name in os.listdir(os.environ["PLACE"]))})

    assert fit(train).metrics == {"n": 2}


@pytest.mark.parametrize("leave", [lambda: None, lambda: os._exit(0)])
def test_a_rank_that_has_ended_is_not_waited_for(fit, leave):
    def train():
        if trainyard.get_context().get_world_rank() == 1:
            leave()
        else:
            collective.barrier()

    with pytest.raises(WorkerGroupError, match="rank 1 has ended without this call") as caught:
        fit(train)
    assert list(caught.value.worker_failures) == [0]
    assert isinstance(caught.value.worker_failures[0], RuntimeError)


def test_who_does_not_come_is_named(fit, capfd):
    limits = {"RAY_TRAIN_COLLECTIVE_TIMEOUT_S": "4", "RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S": "0.2"}

    def train():
        collective.barrier()  # however long it takes until all are there
        os.environ.update(limits)
        if trainyard.get_context().get_world_rank() != 2:
            collective.barrier()
        else:
            __import__("time").sleep(60)

    with pytest.raises(WorkerGroupError) as caught:
        fit(train, 3)
    failure = next(iter(caught.value.worker_failures.values()))
    assert isinstance(failure, BroadcastCollectiveTimeoutError) and isinstance(failure, TimeoutError)
    assert "barrier" in str(failure) and "rank 2" in str(failure)
    assert "rank 2 did not come" in capfd.readouterr().err, "a warning came before"


@pytest.mark.parametrize("value", ["nan", "inf", "soon"])
def test_a_limit_is_a_number_of_seconds(value, monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_COLLECTIVE_TIMEOUT_S", value)
    with pytest.raises(ValueError, match="RAY_TRAIN_COLLECTIVE_TIMEOUT_S='.*' must be a number of seconds"):
        collective.patience()


def is_told(text):
    """In a worker: rank 0 has said it."""
    log = os.path.join(trainyard.get_context().get_storage().experiment_fs_path, "logs", "rank-0.log")
    return os.path.exists(log) and text in open(log).read()


def test_a_warning_does_not_end_the_wait(fit, capfd):
    def train():
        while trainyard.get_context().get_world_rank() == 1 and not is_told("rank 1 did not come"):
            __import__("time").sleep(0.01)
        trainyard.report({"data": collective.broadcast_from_rank_zero("kept")})

    limits = {"RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S": "0.2"}
    assert fit(train, worker_runtime_env={"env_vars": limits}).metrics == {"data": "kept"}
    assert "rank 1 did not come" in capfd.readouterr().err


def test_what_cannot_be_pickled(fit):
    def train():
        with pytest.raises(ValueError, match="lock"):
            collective.broadcast_from_rank_zero(__import__("threading").Lock())
        trainyard.report({"good": True})

    assert fit(train, 1).metrics == {"good": True}
