"""What a training function asks, and that it is only asked there; what trainers and callbacks refuse."""

import functools

import pytest
import trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, UserCallback, callbacks, collective
from trainyard.reports import Reports


@pytest.mark.parametrize(
    "call",
    [
        trainyard.get_context,
        trainyard.get_checkpoint,
        trainyard.get_all_reported_checkpoints,
        lambda: trainyard.report({"a": 1}),
        collective.barrier,
        lambda: collective.broadcast_from_rank_zero(1),
    ],
)
def test_only_in_a_training_function(call):
    with pytest.raises(RuntimeError, match="cannot be used outside of a Trainyard training function"):
        call()


def test_what_has_no_meaning():
    def train():
        context = trainyard.get_context()
        for name in (
            "get_metadata",
            "get_trial_name",
            "get_trial_id",
            "get_trial_resources",
            "get_trial_dir",
        ):
            with pytest.raises(DeprecationWarning, match=name):
                getattr(context, name)()
        with pytest.raises(ValueError, match="Validation requires a checkpoint"):
            trainyard.report({}, validation=True)
        assert context.get_experiment_name() == "mine"

    DataParallelTrainer(
        train, scaling_config=ScalingConfig(num_workers=0), run_config=RunConfig(name="mine")
    ).fit()


@pytest.mark.parametrize(
    "arguments, kind, text",
    [
        ({"metadata": {}}, DeprecationWarning, "metadata"),
        ({"resume_from_checkpoint": object()}, DeprecationWarning, "resume_from_checkpoint"),
        ({"scaling_config": {"num_workers": 2}}, ValueError, "Invalid `ScalingConfig` type"),
        ({"run_config": object()}, ValueError, "Invalid `RunConfig` type"),
        ({"backend_config": object()}, ValueError, "backend_config"),
    ],
)
def test_trainers_refuse(arguments, kind, text):
    with pytest.raises(kind, match=text):
        DataParallelTrainer(lambda: None, **arguments)


async def coroutine():
    pass


def generator(config):
    yield 1


async def stream():
    yield 1


class Called:
    async def __call__(self):
        pass


@pytest.mark.parametrize(
    "function, text",
    [
        (coroutine, "async def"),
        (functools.partial(generator, 1), "generator function"),
        (stream, "async generator"),
        (Called(), "async def"),
    ],
)
def test_functions_that_would_run_nothing_are_refused(function, text):
    with pytest.raises(ValueError, match=text):
        DataParallelTrainer(function)


def test_restore_is_gone():
    for call in (DataParallelTrainer.restore, DataParallelTrainer.can_restore):
        with pytest.raises(DeprecationWarning, match="resume=True"):
            call("x")


class Counting(UserCallback):
    pass


def test_callbacks_of_the_environment(monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_CALLBACKS", " test_context.Counting, ,")
    assert [type(callback).__name__ for callback in callbacks.from_environment()] == ["Counting"]
    for wrong in ("nowhere.Callback", "test_context.nothing", "os.path", "plain"):
        monkeypatch.setenv("RAY_TRAIN_CALLBACKS", wrong)
        with pytest.raises(ValueError, match=f"Failed to import callback from '{wrong}'"):
            callbacks.from_environment()


def report(rank, number, checkpoint=False):
    return {
        "event": "report",
        "rank": rank,
        "number": number,
        "metrics": {"rank": rank},
        "checkpoint": checkpoint,
    }


def test_reports_are_put_together():
    reports = Reports(2)
    assert list(reports.take(report(1, 1))) == []
    assert list(reports.take(report(1, 2, checkpoint=True))) == []
    assert list(reports.take(report(0, 1))) == [([{"rank": 0}, {"rank": 1}], None)]
    assert list(reports.take(report(0, 2))) == [], "its checkpoint is still to come"
    [(metrics, checkpoint)] = reports.take({"event": "checkpoint", "number": 2, "path": "/x"})
    assert metrics == [{"rank": 0}, {"rank": 1}] and checkpoint.path == "/x"


def test_ten_reports_of_one_number_are_one():
    reports = Reports(10)
    rows = [row for rank in range(10) for row in reports.take(report(rank, 1, checkpoint=rank == 3))]
    assert rows == []
    rows = list(reports.take({"event": "checkpoint", "number": 1, "path": "/x"}))
    assert len(rows) == 1 and len(rows[0][0]) == 10
    assert [len(list(reports.take(report(rank, 2)))) for rank in range(9)] == [0] * 9
