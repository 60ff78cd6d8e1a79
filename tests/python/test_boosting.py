"""`ray.train.xgboost` and `ray.train.lightgbm`: one model of what all ranks bring, and its reports."""

import hashlib
import inspect
import os
import textwrap

import numpy
import pytest
from trainyard import Checkpoint, RunConfig, ScalingConfig, get_context, runtime
from trainyard.as_ray import lightgbm as with_lightgbm
from trainyard.as_ray import xgboost as with_xgboost

RANKS = 2


def part():
    """What a rank trains on: the labels of no two ranks are alike."""
    rank = get_context().get_world_rank()
    x = numpy.arange(64, dtype="float64").reshape(-1, 1) + 64 * rank
    return x, 3 * x[:, 0]


def all_digests(model):
    """Of the model as each rank has it."""
    return [piece.hex() for piece in runtime.session().gather("digest", hashlib.sha256(model).digest())]


def fit(kind, train, storage):
    run = RunConfig(storage_path=storage, progress="none", quiet=True)
    return kind(train, scaling_config=ScalingConfig(num_workers=RANKS), run_config=run).fit()


def check(result, reports, error):
    assert len(set(result.return_value)) == 1 and len(result.return_value) == RANKS
    assert set(result.metrics) == {"validation-" + error, "better"}
    kept = [os.path.basename(one.path) for one, _ in result.best_checkpoints]
    assert kept == [f"checkpoint_{number:06}" for number in reports]


def add(metrics):
    return {**metrics, "better": 1}


def test_xgboost_trains_one_model(storage, tmp_path):
    def train():
        import xgboost

        assert xgboost.collective.get_world_size() == RANKS
        assert xgboost.collective.get_rank() == get_context().get_world_rank()
        x, y = part()
        data = xgboost.DMatrix(x, label=y)
        callback = with_xgboost.RayTrainReportCallback(
            {"validation-error": "validation-mae"}, frequency=2, results_postprocessing_fn=add
        )
        parameters = {"max_depth": 3, "nthread": 1, "eval_metric": ["rmse", "mae"]}
        model = xgboost.train(
            parameters,
            data,
            num_boost_round=3,
            evals=[(data, "validation")],
            callbacks=[callback],
            verbose_eval=False,
        )
        return all_digests(model.save_raw())

    result = fit(with_xgboost.XGBoostTrainer, train, storage)
    check(result, [2, 4], "error")  # the third iteration, and then the end
    model = with_xgboost.RayTrainReportCallback.get_model(result.checkpoint)
    assert model.num_boosted_rounds() == 3
    made = with_xgboost.XGBoostCheckpoint.from_model(model, path=str(tmp_path))
    assert (tmp_path / "model.json").exists()
    assert isinstance(made, Checkpoint) and made.get_model().num_boosted_rounds() == 3


def test_lightgbm_trains_one_model(storage, tmp_path):
    def train():
        import lightgbm

        network = with_lightgbm.get_network_params()
        assert network["local_listen_port"] == int(os.environ["TRAINYARD_PORT"])  # given to nobody else before it is bound
        assert network["num_machines"] == RANKS and len(set(network["machines"].split(","))) == RANKS
        x, y = part()
        data = lightgbm.Dataset(x, label=y)
        callback = with_lightgbm.RayTrainReportCallback("validation-l2", results_postprocessing_fn=add)
        parameters = {
            "objective": "regression",
            "num_threads": 1,
            "min_data_in_leaf": 5,
            "verbose": -1,
            "tree_learner": "data",
        }
        model = lightgbm.train(
            {**parameters, **network, "pre_partition": True},
            data,
            num_boost_round=3,
            valid_sets=[data.create_valid(x, label=y)],
            valid_names=["validation"],
            callbacks=[callback],
        )
        return all_digests(model.model_to_string().partition("\nparameters:")[0].encode())

    result = fit(with_lightgbm.LightGBMTrainer, train, storage)
    check(result, [3], "l2")
    model = with_lightgbm.RayTrainReportCallback.get_model(result.checkpoint)
    made = with_lightgbm.LightGBMCheckpoint.from_model(model, path=str(tmp_path))
    assert made.get_model().num_trees() == 3


def test_what_is_refused():
    for kind, config in (
        (with_xgboost.XGBoostTrainer, "xgboost_config"),
        (with_lightgbm.LightGBMTrainer, "lightgbm_config"),
    ):
        with pytest.raises(DeprecationWarning, match="`num_boost_round` is deprecated"):
            kind(lambda: None, num_boost_round=10)
        with pytest.raises(ValueError, match=f"`{config}` must be a"):
            kind(lambda: None, **{config: 3})
        with pytest.raises(DeprecationWarning, match="RayTrainReportCallback.get_model"):
            kind.get_model(Checkpoint("/nowhere"))
    with pytest.raises(NotImplementedError, match="Unsupported backend: federated"):
        with_xgboost.XGBoostConfig("federated")
    assert with_lightgbm.get_network_params() == {}


def test_columns_of_pyarrow_become_those_of_pandas():
    import pandas
    import pyarrow

    columns = {
        "i": ("int32", "Int32"),
        "u": ("uint8", "UInt8"),
        "f": ("float32", "Float32"),
        "b": ("bool", "boolean"),
    }
    frame = pandas.DataFrame(
        {name: pandas.array([1, 0, None], dtype=f"{kind}[pyarrow]") for name, (kind, _) in columns.items()}
    )
    frame["text"] = pandas.array(["a", "b", None], dtype=pandas.ArrowDtype(pyarrow.string()))
    made = with_lightgbm.normalize_pandas_for_lightgbm(frame)
    assert {name: str(made.dtypes[name]) for name in columns} == {
        name: to for name, (_, to) in columns.items()
    }
    assert made.dtypes["text"] == frame.dtypes["text"]
    plain = pandas.DataFrame({"x": [1]})
    assert with_lightgbm.normalize_pandas_for_lightgbm(plain) is plain


@pytest.mark.parametrize("name, value", [("params", {}), ("label_column", "y"), ("num_boost_round", 10)])
@pytest.mark.parametrize("kind", [with_xgboost.XGBoostTrainer, with_lightgbm.LightGBMTrainer])
def test_the_legacy_interface_is_told_of_in_ray_s_words(kind, name, value):
    assert inspect.signature(kind).parameters[name].default is None
    with pytest.raises(DeprecationWarning, match=f"The legacy {kind.__name__} API is deprecated. Please switch to"):
        kind(lambda: None, **{name: value})
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        kind(lambda: None, nothing=1)


def test_what_can_be_shown_of_the_configs():
    assert with_xgboost.XGBoostConfig().to_dict() == {"xgboost_communicator": "rabit"}
    assert with_lightgbm.LightGBMConfig().to_dict() == {}


@pytest.mark.parametrize("metrics", [None, {}, []])
def test_without_metrics_that_are_named_all_are_reported(monkeypatch, metrics):
    told = []
    monkeypatch.setattr("trainyard.as_ray.boosting.report", told.append)
    callback = with_xgboost.RayTrainReportCallback(metrics)
    callback.after_iteration(None, 0, {"validation": {"rmse": [3, 2]}})
    assert told == [{"validation-rmse": 2}]


LEGACY = """
    import pandas, ray.data, sys
    library = sys.modules["ray.train." + {library!r}]
    trainer = getattr(library, {trainer!r})
    frame = pandas.DataFrame({{"x": range(64), "kind": pandas.Series(["a", "b"] * 32).astype("category")}})
    frame = frame[{columns!r}]
    datasets = {{name: ray.data.from_pandas(frame.assign(y=3.0 * frame["x"])) for name in ("valid", "train")}}
    def fit(rounds, frequency, at_end=None, **more):
        checkpoints = ray.train.CheckpointConfig(checkpoint_frequency=frequency, checkpoint_at_end=at_end)
        return trainer(
            label_column="y", params={params!r}, num_boost_round=rounds, datasets=datasets,
            scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(checkpoint_config=checkpoints), **more,
        ).fit()
    def refusal(**given):
        try:
            trainer(**given)
        except ValueError as error:
            return str(error).split(" ")[0]
    first = fit(5, 2)
    again = fit(6, 0, resume_from_checkpoint=first.checkpoint, {more})
    refused = refusal(label_column="y", datasets={{"valid": 1}}), refusal(datasets=datasets)
    rounds = [trainer.get_model(one.checkpoint).{rounds} for one in (first, again)]
    counts = [len(one.best_checkpoints) for one in (first, again, fit(4, 2, False))]
    print(json.dumps([rounds, counts, sorted(first.metrics), refused]))
"""


@pytest.mark.parametrize(
    "values, metrics",
    [
        (
            {
                "library": "xgboost",
                "trainer": "XGBoostTrainer",
                "columns": ["x"],
                "params": {"eval_metric": "mae", "nthread": 1},
                "more": "verbose_eval=False",
                "rounds": "num_boosted_rounds()",
            },
            ["train-mae", "valid-mae"],
        ),
        (
            {
                "library": "lightgbm",
                "trainer": "LightGBMTrainer",
                "columns": ["x", "kind"],
                "params": {"objective": "regression", "num_threads": 1, "min_data_in_leaf": 5, "verbose": -1},
                "more": "keep_training_booster=True",
                "rounds": "current_iteration()",
            },
            ["train-l2", "valid-l2"],
        ),
    ],
)
def test_a_model_is_trained_without_a_function_in_programs_of_the_first_ray_train(ray, monkeypatch, values, metrics):
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    program = f"import ray.train.{values['library']}\n" + textwrap.dedent(LEGACY.format(**values))
    assert ray(program) == [[5, 6], [3, 1, 2], metrics, ["`datasets`", "`label_column`"]]


@pytest.mark.parametrize("kind", [with_xgboost.XGBoostTrainer, with_lightgbm.LightGBMTrainer])
def test_a_function_is_needed(kind):
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'train_loop_per_worker'"):
        kind()
