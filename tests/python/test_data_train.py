"""Data sets of a trainer: what its workers get, in runs and without one."""

import collections
import threading

import numpy as np
import pytest
import trainyard
from trainyard import Checkpoint, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, data

pytestmark = pytest.mark.usefixtures("common_directory")


@pytest.fixture
def fit(storage):
    def fit(function, workers=2, datasets=None, dataset_config=None, **run):
        return DataParallelTrainer(
            function,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(storage_path=storage, **run),
            datasets=datasets,
            dataset_config=dataset_config,
        ).fit()

    return fit


def gathered(rows):
    """Of all ranks, in the worker."""
    import json

    from trainyard import runtime

    return [json.loads(piece) for piece in runtime.session().gather("rows", json.dumps(rows).encode())]


def test_ranks_get_their_shards_of_each_data_set(fit):
    def train():
        import pytest
        import trainyard

        shard = trainyard.get_dataset_shard("train")
        assert shard is trainyard.get_dataset_shard()
        rows = [[row["id"] for row in shard.iter_rows()] for _ in range(2)]
        sizes = {
            name: sum(len(batch["id"]) for batch in trainyard.get_dataset_shard(name).iter_batches())
            for name in ("filtered", "cut", "whole")
        }
        with pytest.raises(KeyError, match="'val' not found.*'train', 'filtered'"):
            trainyard.get_dataset_shard("val")
        return gathered(rows), gathered(sizes)

    def later(batch):  # not what the first batch makes one believe
        return {"id": batch["id"][: 3 if batch["id"][0] in (900, 3400) else None]}

    datasets = {
        "train": data.range(101).random_shuffle(),
        "filtered": data.range(1000, override_num_blocks=7).filter(lambda row: row["id"] % 3 == 0),
        "cut": lambda: data.range(5000, override_num_blocks=50).map_batches(later),
        "whole": data.range(10),
    }
    config = data.DataConfig(datasets_to_split=["train", "filtered", "cut"])
    rows, sizes = fit(train, 2, datasets, config).return_value
    (first_0, first_1), (second_0, second_1) = rows
    for one, other in ((first_0, second_0), (first_1, second_1)):
        assert len(one) == len(other) == 50 and len(set(one + other)) == 100
    assert first_0 != first_1
    assert sizes == [{"filtered": 167, "cut": 2500, "whole": 10}] * 2


def test_large_arrays_are_shared_by_the_workers(fit):
    def train():
        import trainyard

        batch = next(iter(trainyard.get_dataset_shard("train").iter_batches(batch_size=1000)))["data"]
        last = batch
        while last.base is not None and hasattr(last.base, "base"):
            last = last.base
        with open("/proc/self/maps") as file:
            places = [line.split("-")[0] for line in file if "trainyard-payload" in line]
        return bool(places), batch[0].item(), batch.flags.writeable

    array = np.arange(1 << 20, dtype=np.float64)
    shared, first, writeable = fit(train, 2, {"train": array}).return_value
    assert shared and first == 0 and not writeable


def test_a_run_goes_on_where_its_checkpoint_was(fit, place):
    def train():
        import json
        import pathlib
        import tempfile

        import trainyard

        shard = trainyard.get_dataset_shard("train")
        checkpoint = trainyard.get_checkpoint()
        rows = []
        if checkpoint is not None:
            with checkpoint.as_directory() as directory:
                saved = json.loads(pathlib.Path(directory, "state.json").read_text())
            shard.load_state_dict(saved["data"])
            rows = saved["rows"]
        for i, batch in enumerate(shard.iter_batches(batch_size=10)):
            rows += batch["id"].tolist()
            if checkpoint is None and i == 2:
                with tempfile.TemporaryDirectory() as directory:
                    state = {"data": shard.state_dict(), "rows": rows}
                    pathlib.Path(directory, "state.json").write_text(json.dumps(state))
                    trainyard.report({"i": i}, checkpoint=Checkpoint.from_directory(directory))
                raise RuntimeError("again")
        trainyard.report({"rows": rows})
        return rows

    datasets = {"train": data.range(100).random_shuffle()}
    failure = FailureConfig(max_failures=1)
    rows = fit(train, 1, datasets, failure_config=failure).return_value
    assert sorted(rows) == list(range(100))


@pytest.mark.parametrize(
    "gone, rows, most",
    [
        (range(25), 374, 1),  # which the first batch of the epoch shows: the ranks count
        (range(50, 75), 400, 2),  # which the first batch after the restart shows: a rank has its own rows again
    ],
)
def test_rows_are_counted_after_a_restart_if_they_were_before(fit, gone, rows, most):
    def train():
        import json
        import pathlib
        import tempfile

        import trainyard

        shard, checkpoint = trainyard.get_dataset_shard("train"), trainyard.get_checkpoint()
        name = f"{trainyard.get_context().get_world_rank()}.json"
        rows = []
        if checkpoint is not None:
            with checkpoint.as_directory() as directory:
                state, rows = json.loads(pathlib.Path(directory, name).read_text())
            shard.load_state_dict(state)
        for i, batch in enumerate(shard.iter_batches(batch_size=10)):
            rows += batch["id"].tolist()
            if checkpoint is None and i == 4:
                with tempfile.TemporaryDirectory() as directory:
                    pathlib.Path(directory, name).write_text(json.dumps([shard.state_dict(), rows]))
                    trainyard.report({}, checkpoint=Checkpoint.from_directory(directory))
                raise RuntimeError("again")
        return gathered(rows)

    def lose(batch):
        import numpy as np

        return {"id": batch["id"][~np.isin(batch["id"], gone)]}

    dataset = data.range(400, override_num_blocks=8).map_batches(lose)
    shares = fit(train, 2, {"train": dataset}, failure_config=FailureConfig(max_failures=1)).return_value
    times = collections.Counter(shares[0] + shares[1])
    assert len(shares[0]) == len(shares[1]) == rows // 2 and max(times.values()) == most
    assert len(times) >= 374 and not set(gone) & set(times)


def test_what_a_user_s_config_gives(fit):
    class Reversed(data.DataConfig):
        def configure(self, datasets, world_size, **options):
            split = datasets["train"].streaming_split(world_size)
            return [{"mine": one} for one in split[::-1]]

    def train():
        import trainyard

        return gathered([row["id"] for row in trainyard.get_dataset_shard("mine").iter_rows()])

    assert fit(train, 2, {"train": data.range(5)}, Reversed()).return_value == [[2, 3, 4], [0, 1]]


def test_settings_of_the_driver_are_the_workers(fit, monkeypatch):
    monkeypatch.setattr(data.DataContext, "_current", None)
    data.DataContext.get_current().set_config("foo", "bar")

    def train():
        import trainyard
        from trainyard.data import DataContext

        shard = trainyard.get_dataset_shard("train")
        options = shard.get_context().execution_options
        assert options.is_resource_limits_default()
        options.resource_limits = data.ExecutionResources.for_limits(cpu=2)
        assert not options.is_resource_limits_default()
        return DataContext.get_current().get_config("foo"), options.preserve_order

    config = data.DataConfig(execution_options=data.ExecutionOptions(preserve_order=True))
    assert fit(train, 1, {"train": data.range(2)}, config).return_value == ("bar", True)


def test_without_workers(fit):
    def train():
        return [row["id"] for row in trainyard.get_dataset_shard("train").iter_rows()]

    assert fit(train, 0, {"train": data.range(3)}).return_value == [0, 1, 2]
    with pytest.raises(KeyError, match="it was given none"):
        fit(train, 0)


def test_workers_that_are_forked_have_the_data_sets(start):
    script = start(
        """
        import trainyard
        from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, data

        def train():
            return sum(row["item"] for row in trainyard.get_dataset_shard("train").iter_rows())

        trainer = DataParallelTrainer(
            train, scaling_config=ScalingConfig(num_workers=2), datasets={"train": [1, 2, 3, 4]},
            run_config=RunConfig(storage_path="runs", start_method="fork", progress="none"),
        )
        print(trainer.fit().return_value)
        """,
        OPENBLAS_NUM_THREADS="1",
    ).finish()
    assert (script.status, script.out) == (0, "3\n"), script


@pytest.mark.parametrize(
    "arguments, kind, text",
    [
        ({"datasets": {"train": 3}}, ValueError, r"`datasets\['train'\]` must be a data set"),
        ({"datasets": {"train": [1]}, "dataset_config": {}}, ValueError, "Invalid `DataConfig` type"),
        (
            {"datasets": {"train": data.from_items([threading.Lock()])}},
            TypeError,
            r"`datasets`\['train'\].*was found to be non-serializable",
        ),
    ],
)
def test_what_cannot_be_given_is_refused_before_anything_starts(fit, arguments, kind, text):
    with pytest.raises(kind, match=text):
        fit(lambda: None, 2, **arguments)
    with pytest.raises(TypeError, match="datasets_to_split"):
        data.DataConfig(datasets_to_split="train")
