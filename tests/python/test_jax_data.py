"""Data sets as batches of JAX's arrays: in one process, and in a world whose processes have rows of their own."""

import json

import jax
import numpy
import pytest
import trainyard.data
from trainyard import RunConfig, ScalingConfig, WorkerGroupError, runtime
from trainyard.data import DataConfig
from trainyard.data.tensors import ArrowBatchCollateFn, NumpyBatchCollateFn, PandasBatchCollateFn
from trainyard.jax import JaxTrainer

pytestmark = pytest.mark.usefixtures("common_directory")

# -- in one process


def rows(count):
    return trainyard.data.from_items([{"x": float(i), "y": [i, -i]} for i in range(count)]).iterator()


def test_arrays_of_each_column():
    first, second = rows(6).iter_jax_batches(batch_size=4)
    assert isinstance(first["x"], jax.Array) and first["x"].tolist() == [0, 1, 2, 3]
    assert second["y"].tolist() == [[4, -4], [5, -5]]
    assert [len(batch["x"]) for batch in rows(6).iter_jax_batches(batch_size=4, drop_last=True)] == [4]


def test_types_of_all_columns_or_of_some():
    (batch,) = rows(2).iter_jax_batches(dtypes="float16")
    assert {array.dtype.name for array in batch.values()} == {"float16"}
    (batch,) = rows(2).iter_jax_batches(dtypes={"y": "int8"})
    assert batch["y"].dtype.name == "int8" and batch["x"].dtype.name == "float32"


def test_a_smaller_batch_is_padded():
    *_, last = rows(3).iter_jax_batches(batch_size=2, paddings={"x": 7, "y": -1})
    assert last["x"].tolist() == [2, 7] and last["y"].tolist() == [[2, -2], [-1, -1]]
    with pytest.raises(ValueError, match="`paddings`.* has none for column 'y'"):
        list(rows(3).iter_jax_batches(batch_size=2, paddings={"x": 7}))


class Stacked(NumpyBatchCollateFn):
    def __call__(self, batch):
        return numpy.stack([batch["x"], batch["x"]], axis=1)


class OfTable(ArrowBatchCollateFn):
    def __call__(self, batch):
        return {"z": batch.column("x").to_numpy()}


class OfFrame(PandasBatchCollateFn):
    def __call__(self, batch):
        return {"z": batch["x"].to_numpy()}


def test_what_collate_functions_make():
    *_, last = rows(3).iter_jax_batches(batch_size=2, collate_fn=Stacked(), paddings={"only": 5}, dtypes="int32")
    assert last.tolist() == [[2, 2], [5, 5]] and last.dtype.name == "int32"
    for made in (OfTable(), OfFrame()):
        (batch,) = rows(2).iter_jax_batches(collate_fn=made)
        assert batch["z"].tolist() == [0, 1]
    with pytest.raises(ValueError, match="Unsupported collate function: <class 'function'>"):
        rows(2).iter_jax_batches(collate_fn=lambda batch: batch)
    with pytest.raises(ValueError, match="only a single padding should be given"):
        list(rows(3).iter_jax_batches(batch_size=2, collate_fn=Stacked(), paddings={"a": 1, "b": 2}))


def test_what_is_refused():
    for wrong in (0, -2, None, 2.5):
        with pytest.raises(ValueError, match="must be a positive integer evenly divisible by"):
            rows(2).iter_jax_batches(batch_size=wrong)
    text = trainyard.data.from_items([{"name": "a"}]).iterator()
    with pytest.raises(ValueError, match="JAX Array Conversion Error for column 'name'"):
        list(text.iter_jax_batches())


def test_what_was_handed_out_is_counted():
    data = rows(6)
    passing = iter(data.iter_jax_batches(batch_size=2, prefetch_batches=3))
    assert next(passing)["x"].tolist() == [0, 1]
    again = rows(6)
    again.load_state_dict(data.state_dict())
    assert [batch["x"].tolist() for batch in again.iter_jax_batches(batch_size=2)] == [[2, 3], [4, 5]]


# -- in a world


class Uneven(DataConfig):
    """Ranks get 8 and 3 rows, in batches of 2 that are 4 and 2."""

    def configure(self, datasets, world_size, worker_handles=None, worker_node_ids=None, **kwargs):
        first, second = datasets["train"].split_at_indices([8])
        return [{"train": first.iterator()}, {"train": second.iterator()}]


@pytest.fixture
def fit(storage):
    """fit(rows, config, data): what `seen` tells on 2 workers of 2 devices each."""

    def fit(count, config, data=None):
        flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
        result = JaxTrainer(
            seen,
            train_loop_config=config,
            datasets={"train": trainyard.data.range(count)},
            dataset_config=data,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                storage_path=storage, progress="none", quiet=True, worker_runtime_env={"env_vars": flags}
            ),
        ).fit()
        return result.return_value

    return fit


def seen(config):
    """Of each rank, for each batch: its length, the rows on this process's devices, and what of the data the state counts."""
    data = trainyard.get_dataset_shard("train")
    told = []
    for batch in data.iter_jax_batches(batch_size=2, **config):
        own = [row for shard in batch["id"].addressable_shards for row in shard.data.tolist()]
        told.append((batch["id"].shape[0], own, data.state_dict()["given"]))
    return [json.loads(piece) for piece in runtime.session().gather("seen", json.dumps(told).encode())]


@pytest.mark.parametrize("synchronize", [False, True])
def test_an_array_lies_over_the_devices_of_all(fit, synchronize):
    given = fit(8, {"synchronize_batches": synchronize, "prefetch_batches": 4})
    assert given == [
        [[4, [0, 1], [[2, 2]]], [4, [2, 3], [[2, 4]]]],
        [[4, [4, 5], [[2, 2]]], [4, [6, 7], [[2, 4]]]],
    ]


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_uneven_shards_are_padded(fit, ahead):
    config = {"synchronize_batches": True, "prefetch_batches": ahead, "paddings": -1}
    first, second = fit(11, config, Uneven())
    assert [own for _, own, _ in first] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [own for _, own, _ in second] == [[8, 9], [10, -1], [-1, -1], [-1, -1]]
    assert [given[-1][-1] for _, _, given in second] == [2, 3, 3, 3]  # what was added is no row


def test_the_first_shard_that_ends_ends_all(fit):
    first, second = fit(11, {"synchronize_batches": True, "drop_last": True}, Uneven())
    assert [own for _, own, _ in first] == [[0, 1]] and [own for _, own, _ in second] == [[8, 9]]


@pytest.mark.parametrize(
    "count, text", [(11, "Uneven batch sizes .* range from 1 to 2"), (12, "Uneven number of batches detected")]
)
def test_uneven_shards_are_an_error(fit, count, text):
    with pytest.raises(WorkerGroupError, match=text):
        fit(count, {"synchronize_batches": True}, Uneven())


def test_rows_that_the_devices_cannot_share(fit):
    with pytest.raises(WorkerGroupError, match="local batch size \\(1\\) must be evenly divisible by .* JAX devices \\(2\\)"):
        fit(6, {})
