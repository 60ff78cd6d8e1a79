"""`ray.train.tensorflow`, and data sets for TensorFlow, of which itself nothing is needed: what is called here is a stand-in."""

import importlib
import json
import os
import sys
import textwrap

import numpy
import pytest
from trainyard import RunConfig, ScalingConfig, data, get_context, runtime
from trainyard.as_ray.tensorflow import TensorflowCheckpoint, TensorflowConfig, TensorflowTrainer

STAND_IN = """
    import collections, os, types
    import numpy

    TensorSpec = collections.namedtuple("TensorSpec", "shape dtype name", defaults=(None,))
    RaggedTensorSpec = collections.namedtuple("RaggedTensorSpec", "shape dtype")
    as_dtype = numpy.dtype
    convert_to_tensor = lambda array, dtype=None: numpy.asarray(array, dtype)
    ragged = types.SimpleNamespace(constant=lambda rows, dtype: [numpy.asarray(row, dtype) for row in rows])

    class Callback:
        pass

    def load_model(path):
        with open(path) as file:
            return file.read()

    callbacks, models = types.SimpleNamespace(Callback=Callback), types.SimpleNamespace(load_model=load_model)
    keras = types.SimpleNamespace(callbacks=callbacks, models=models)

    class Options:
        def __init__(self):
            self.experimental_distribute = types.SimpleNamespace()

    class Dataset:
        def __init__(self, generator, signature, policy=None, ahead=None):
            self.generator, self.element_spec, self.policy, self.ahead = generator, signature, policy, ahead
        from_generator = classmethod(lambda cls, generator, output_signature: cls(generator, output_signature))
        def with_options(self, options):
            return Dataset(self.generator, self.element_spec, options.experimental_distribute.auto_shard_policy)
        def prefetch(self, ahead):
            return Dataset(self.generator, self.element_spec, self.policy, ahead)
        __iter__ = lambda self: self.generator()

    sharing = types.SimpleNamespace(AutoShardPolicy=types.SimpleNamespace(OFF="off"))
    data = types.SimpleNamespace(Dataset=Dataset, Options=Options, AUTOTUNE=-1, experimental=sharing)
"""


@pytest.fixture
def stand_in(place, monkeypatch):
    """The package tensorflow, here and in workers."""
    home = place / "packages"
    (home / "tensorflow").mkdir(parents=True)
    (home / "tensorflow" / "__init__.py").write_text(textwrap.dedent(STAND_IN))
    monkeypatch.setenv("PYTHONPATH", f"{home}:{os.environ['PYTHONPATH']}")
    monkeypatch.syspath_prepend(str(home))
    for name in ("tensorflow", "trainyard.as_ray.keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("tensorflow")
    for name in ("tensorflow", "trainyard.as_ray.keras"):
        sys.modules.pop(name, None)


def fit(train, storage, workers=2):
    run = RunConfig(storage_path=storage, progress="none", quiet=True)
    return TensorflowTrainer(
        train, tensorflow_config=TensorflowConfig(), scaling_config=ScalingConfig(num_workers=workers), run_config=run
    ).fit()


def test_each_rank_knows_all_addresses_and_its_own(storage):
    def train():
        told = os.environ["TF_CONFIG"].encode()
        return [json.loads(one) for one in runtime.session().gather("told", told)]

    found = fit(train, storage, workers=3).return_value
    assert [one["task"] for one in found] == [{"type": "worker", "index": rank} for rank in range(3)]
    addresses = [one["cluster"]["worker"] for one in found]
    assert addresses[0] == addresses[1] == addresses[2] and len(set(addresses[0])) == 3
    assert all(address.startswith("127.0.0.1:") for address in addresses[0])


class Model:
    """As one of Keras: it can be saved."""

    def __init__(self, words):
        self.words = words

    def save(self, path):
        with open(path, "w") as file:
            file.write(self.words)


def test_checkpoints_hold_a_model(stand_in, tmp_path):
    assert TensorflowCheckpoint.from_model(Model("three words here")).get_model() == "three words here"
    (tmp_path / "model.h5").write_text("h5")
    assert TensorflowCheckpoint.from_h5(str(tmp_path / "model.h5")).get_model() == "h5"
    saved = TensorflowCheckpoint.from_saved_model(str(tmp_path / "packages"))
    assert os.listdir(saved.path) != [] and saved.get_metadata() == {"_model_filename": "."}
    for make, part in ((TensorflowCheckpoint.from_h5, ".h5"), (TensorflowCheckpoint.from_saved_model, "directory")):
        with pytest.raises(ValueError, match=part):
            make(str(tmp_path / "nothing"))
    bare = TensorflowCheckpoint.from_directory(str(tmp_path))
    with pytest.raises(ValueError, match="_model_filename"):
        bare.get_model()


def test_keras_reports_what_it_logs_with_a_model_of_rank_0(stand_in, storage):
    def train():
        from trainyard.as_ray.keras import ReportCheckpointCallback

        callback = ReportCheckpointCallback(checkpoint_on="epoch_end", report_metrics_on="train_batch_end", metrics={"l": "loss"})
        callback.model = Model(f"of {get_context().get_world_rank()}")
        for epoch in range(2):
            callback.on_epoch_begin(epoch)
            callback.on_train_batch_end(0, {"loss": 10 + epoch, "other": 1})
            callback.on_epoch_end(epoch, {"loss": epoch, "other": 1})
        callback.on_train_end()

    result = fit(train, storage)
    assert result.metrics == {"l": 1}
    assert [metrics for _, metrics in result.best_checkpoints] == [{"l": 0}, {"l": 1}]
    last = result.checkpoint
    assert TensorflowCheckpoint(last.path, last.filesystem).get_model() == "of 0"
    from trainyard.as_ray.keras import ReportCheckpointCallback

    with pytest.raises(ValueError, match="Invalid trigger time selected: epoch_ended"):
        ReportCheckpointCallback(checkpoint_on="epoch_ended")


def test_a_data_set_of_tensorflow_has_the_rank_s_rows(stand_in, storage):
    rows = data.from_items([{"x": numpy.arange(2.0) + i, "y": i, "tags": list(range(i + 1))} for i in range(5)])
    made = rows.to_tf("x", "y", batch_size=2)
    assert made.policy == "off"
    assert [spec.shape for spec in made.element_spec] == [(None, 2), (None,)]
    pairs = list(made)
    assert [label.tolist() for _, label in pairs] == [[0, 1], [2, 3], [4]] and pairs[1][0].tolist() == [[2, 3], [3, 4]]
    assert len(list(made)) == 3  # and so in every epoch

    named = rows.iterator().to_tf(["x", "y"], "tags", additional_columns="y", batch_size=2, drop_last=True)
    first = next(iter(named))
    assert set(first[0]) == {"x", "y"} and [one.tolist() for one in first[1]] == [[0], [0, 1]] and first[2].tolist() == [0, 1]
    assert isinstance(named.element_spec[1], stand_in.RaggedTensorSpec)
    spec = stand_in.TensorSpec((None,), numpy.float32)
    assert next(iter(rows.to_tf("x", "y", label_type_spec=spec)))[1].dtype == numpy.float32
    with pytest.raises(ValueError, match=r"no column named 'z' in the dataset. Valid column names are: \['tags', 'x', 'y'\]"):
        rows.to_tf("z", "y")
    batches = list(rows.select_columns(["x", "y"]).iter_tf_batches(batch_size=4, dtypes={"y": numpy.float32}))
    assert [len(batch["y"]) for batch in batches] == [4, 1] and batches[0]["y"].dtype == numpy.float32


def test_a_shard_is_not_shared_out_once_more(stand_in):
    from trainyard.as_ray.tensorflow import prepare_dataset_shard

    prepared = prepare_dataset_shard(stand_in.data.Dataset(lambda: iter([1]), None))
    assert (prepared.policy, prepared.ahead, list(prepared)) == ("off", -1, [1])


def test_a_program_for_ray_imports_it_where_it_is_installed(stand_in):
    from trainyard.as_ray import finder

    assert finder.look_up("ray.train.tensorflow", "TensorflowTrainer") is TensorflowTrainer
    assert finder.look_up("ray.train.v2.tensorflow.tensorflow_trainer", "TensorflowTrainer") is TensorflowTrainer
    assert finder.look_up("ray.train.tensorflow.keras", "ReportCheckpointCallback").__mro__[1] is stand_in.Callback
