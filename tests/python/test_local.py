"""num_workers=0: in this very process."""

import pytest
import trainyard
from trainyard import Checkpoint, DataParallelTrainer, ScalingConfig, UserCallback, collective
from trainyard.trainer import BackendConfig

LOCAL = ScalingConfig(num_workers=0)
TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "1",
}


def fit(function, **more):
    return DataParallelTrainer(function, scaling_config=LOCAL, **more).fit()


def test_runs_here(tmp_path):
    checkpoint = Checkpoint.from_directory(tmp_path)
    seen = {}

    def train(config):
        context = trainyard.get_context()
        seen.update(
            config,
            ranks=(
                context.get_world_size(),
                context.get_world_rank(),
                context.get_local_rank(),
                context.get_local_world_size(),
                context.get_node_rank(),
            ),
        )
        assert trainyard.get_checkpoint() is None and trainyard.get_all_reported_checkpoints() == []
        collective.barrier()
        assert collective.broadcast_from_rank_zero({"a": 1}) == {"a": 1}
        with pytest.raises(NotImplementedError):
            context.get_storage()
        trainyard.report({"test": 1}, checkpoint=checkpoint)
        assert trainyard.get_checkpoint() == checkpoint
        return "value"

    result = fit(train, train_loop_config={"lr": 1})
    assert seen == {"lr": 1, "ranks": (1, 0, 0, 1, 0)}
    assert (result.metrics, result.checkpoint, result.error, result.path) == (
        {"test": 1},
        checkpoint,
        None,
        None,
    )
    assert (
        result.best_checkpoints == [] and result.metrics_dataframe is None and result.return_value == "value"
    )


def test_the_last_report_counts_even_without_a_checkpoint(tmp_path):
    def train():
        trainyard.report({"a": 1}, checkpoint=Checkpoint(tmp_path))
        trainyard.report({"a": 2})

    result = fit(train)
    assert result.metrics == {"a": 2} and result.checkpoint is None
    assert fit(lambda: None).metrics is None


def test_exceptions_come_as_they_are():
    error = KeyError("mine")

    def train():
        raise error

    with pytest.raises(KeyError) as caught:
        fit(train)
    assert caught.value is error
    with pytest.raises(RuntimeError, match="cannot be used outside of a Trainyard training function"):
        trainyard.report({})


def test_callbacks_do_not_apply():
    class Callback(UserCallback):
        def after_report(self, **arguments):
            raise AssertionError

    fit(lambda: trainyard.report({"a": 1}), run_config=trainyard.RunConfig(callbacks=[Callback()]))


class Torchrun(BackendConfig):
    reads_torchrun = True
    calls = []

    def on_start(self, session):
        self.calls.append("start")

    def on_shutdown(self, session):
        self.calls.append("shutdown")


def ranks(config):
    context = trainyard.get_context()
    config["ranks"] = [
        context.get_world_size(),
        context.get_world_rank(),
        context.get_local_rank(),
        context.get_local_world_size(),
        context.get_node_rank(),
    ]
    config["heard"] = collective.broadcast_from_rank_zero("mine")
    collective.barrier()


def test_an_outer_torchrun_gives_the_ranks(monkeypatch):
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    config = {}
    fit(ranks, train_loop_config=config, backend_config=Torchrun())
    assert config["ranks"] == [4, 3, 1, 2, 1] and Torchrun.calls == ["start", "shutdown"]
    assert config["heard"] == "mine", "nobody is asked"
    fit(ranks, train_loop_config=config)
    assert config["ranks"] == [1, 0, 0, 1, 0], "another framework does not look"
    monkeypatch.delenv("MASTER_PORT")
    fit(ranks, train_loop_config=config, backend_config=Torchrun())
    assert config["ranks"] == [1, 0, 0, 1, 0], "one is missing: a single process"
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv("RANK", "three")
    with pytest.raises(ValueError, match="RANK"):
        fit(ranks, train_loop_config=config, backend_config=Torchrun())


def test_inside_of_a_training_function():
    def train():
        with pytest.raises(RuntimeError, match="inside of a training function"):
            fit(lambda: None)
        assert trainyard.get_context().get_world_size() == 1

    fit(train)


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"checkpoint": "model"}, "`checkpoint` must be a Checkpoint or None, not str"),
        ({"checkpoint_dir_name": 3}, "`checkpoint_dir_name` must be text or None, not int"),
        ({"checkpoint": Checkpoint("model"), "checkpoint_upload_mode": "SYNC"}, "must be one of CheckpointUploadMode.SYNC, "),
        ({"checkpoint": Checkpoint("model"), "checkpoint_upload_fn": 3}, "`checkpoint_upload_fn` must be a function"),
        ({"checkpoint": Checkpoint("model"), "delete_local_checkpoint_after_upload": 3}, "must be True, False or None, not 3"),
    ],
)
def test_a_report_is_refused_as_in_a_run(wrong, words):
    def train():
        trainyard.report({"a": 1}, **wrong)

    with pytest.raises(ValueError, match=words):
        fit(train)


def test_a_mode_of_a_list_of_checkpoints_is_checked_as_in_a_run():
    with pytest.raises(ValueError, match="must be one of CheckpointConsistencyMode.COMMITTED, .*VALIDATED, not 'SOMETIMES'"):
        fit(lambda: trainyard.get_all_reported_checkpoints("SOMETIMES"))
