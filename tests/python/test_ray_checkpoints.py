"""Checkpoints of programs for Ray Train: what is in them, where they are, what they are called, and models in them."""

import inspect
import os
import pathlib
import pickle

import pytest
import trainyard
from conftest import fit
from trainyard import (
    Checkpoint,
    CheckpointConfig,
    Result,
    WorkerGroupError,
)
from trainyard.context import Storage


def test_a_checkpoint_holds_what_was_saved_and_nothing_else(ray):
    """Before and after more files come under its name, on another file system, and in the run that goes on there."""
    program = """
        import pyarrow.fs
        os.mkdir("bucket")
        there = pyarrow.fs.SubTreeFileSystem(os.path.abspath("bucket"), pyarrow.fs.LocalFileSystem())
        def train():
            told = ray.train.get_checkpoint()
            seen = sorted(os.listdir(told.path)) if told else None
            for i in range(3):
                with tempfile.TemporaryDirectory() as d:
                    open(os.path.join(d, f"f{i}"), "w").write("x")
                    made = Checkpoint.from_directory(d)
                    if i == 2: made.set_metadata({"a": 1})
                    ray.train.report({"i": i, "seen": seen}, checkpoint=made, checkpoint_dir_name="x" if i < 2 else None)
        def fit(**more):
            config = RunConfig(name="run", **more)
            return DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=config).fit()
        here = fit(storage_path=os.path.abspath("here"))
        told = [sorted(os.listdir(c.path)) for c, m in here.best_checkpoints], here.checkpoint.get_metadata()
        away = fit(storage_path="runs", storage_filesystem=there)
        first = away.best_checkpoints[0][0]
        files = sorted(i.base_name for i in there.get_file_info(pyarrow.fs.FileSelector(first.path)))
        first.set_metadata({"b": 2})
        keep = ray.train.CheckpointConfig(num_to_keep=1)
        again = fit(storage_path=os.path.abspath("here"), checkpoint_config=keep)
        left = sorted(name for name in os.listdir(again.path) if "check" in name or "x" in name)
        print(json.dumps([*told, files, first.get_metadata(), again.metrics["seen"], left]))
    """
    both = ["f0", "f1"]
    assert ray(program) == [
        [both, both, [".metadata.json", "f2"]],
        {"a": 1},
        both,
        {"b": 2},
        [".metadata.json", "f2"],
        ["checkpoint_000006"],
    ]


def saved(rank, step, **report):
    with trainyard_directory() as place:
        with open(os.path.join(place, f"rank-{rank}"), "w") as file:
            file.write(str(step))
        trainyard.report({"step": step}, checkpoint=Checkpoint(place), **report)


def trainyard_directory():
    import tempfile

    return tempfile.TemporaryDirectory()


def test_the_name_that_rank_0_gives_counts_where_only_others_bring_files(storage):
    def train():
        rank = trainyard.get_context().get_world_rank()
        for step in range(2):
            if rank == 0:
                trainyard.report({"step": step}, checkpoint_dir_name=f"step-{step}")
            else:
                saved(rank, step, checkpoint_dir_name=f"step-{step}")

    result = fit(storage, train)
    assert [os.path.basename(kept.path) for kept, _ in result.best_checkpoints] == ["step-0", "step-1"]


@pytest.mark.parametrize("mode", ["SYNC", "ASYNC"])
def test_of_a_link_that_leads_out_a_report_has_the_file(ray, mode):
    told = ray(f"""
        def train():
            os.makedirs(f"{{place}}/blobs")
            open(f"{{place}}/blobs/1", "w").write("weights")
            for deletes in (False, True):
                os.makedirs(f"{{place}}/made")
                open(f"{{place}}/made/plain", "w").write("plain")
                for name, target in dict(out="../blobs/1", absolute=f"{{place}}/blobs/1", inside="plain").items():
                    os.symlink(target, f"{{place}}/made/{{name}}")
                ray.train.report({{}}, checkpoint=Checkpoint(f"{{place}}/made"), delete_local_checkpoint_after_upload=deletes,
                                 checkpoint_upload_mode=ray.train.CheckpointUploadMode.{mode})
                kept = [one.checkpoint.path for one in ray.train.get_all_reported_checkpoints()][-1]
                files = {{name: open(f"{{kept}}/{{name}}").read() for name in os.listdir(kept)}}
                told.append([files, os.path.exists(f"{{place}}/made")])
                shutil.rmtree(f"{{place}}/made", ignore_errors=True)
            return told

        import shutil
        place, told = os.getcwd(), []
        os.mkdir("temporary")
        os.environ["TMPDIR"] = f"{{place}}/temporary"
        run = RunConfig(storage_path=os.path.abspath("runs"))
        print(json.dumps([DataParallelTrainer(train, run_config=run).fit().return_value, os.listdir("temporary")]))
    """)
    files = {"out": "weights", "absolute": "weights", "inside": "plain", "plain": "plain"}
    assert told == [[[files, True], [files, False]], []]


def test_a_name_that_is_empty_is_none(storage):
    def train():
        saved(0, 0, checkpoint_dir_name="")
        trainyard.report({"step": 1}, checkpoint_dir_name="")

    result = fit(storage, train, workers=1)
    assert os.path.basename(result.checkpoint.path) == "checkpoint_000001" and result.metrics == {"step": 1}


def test_a_second_report_under_one_name_adds_to_the_first(storage):
    def train():
        for step in range(2):
            with trainyard_directory() as place:
                for name in ("same", f"of-{step}"):
                    with open(os.path.join(place, name), "w") as file:
                        file.write(str(step))
                trainyard.report({"step": step}, checkpoint=Checkpoint(place), checkpoint_dir_name="last")

    result = fit(storage, train, workers=1)
    assert [metrics for _, metrics in result.best_checkpoints] == [{"step": 0}, {"step": 1}]
    assert {checkpoint.path for checkpoint, _ in result.best_checkpoints} == {result.checkpoint.path}
    with result.checkpoint.as_directory() as place:
        files = {name: open(os.path.join(place, name)).read() for name in ("same", "of-0", "of-1")}
    assert files == {"same": "1", "of-0": "0", "of-1": "1"}


def test_a_latest_that_is_not_among_the_best_is_not_listed_with_them(storage):
    def train():
        for loss in (3, 1, 2, 5):
            with trainyard_directory() as place:
                trainyard.report({"eval": {"loss": loss}}, checkpoint=Checkpoint(place))
        return [row.metrics["eval"]["loss"] for row in trainyard.get_all_reported_checkpoints()]

    best = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="eval/loss", checkpoint_score_order="min")
    result = fit(storage, train, 1, checkpoint_config=best)
    for found in (result, Result.from_path(result.path)):
        assert [metrics["eval"]["loss"] for _, metrics in found.best_checkpoints] == [2, 1]
        assert found.metrics == {"eval": {"loss": 5}} and found.checkpoint.path.endswith("checkpoint_000004")
    assert result.return_value == [5, 2, 1], "worst first; to go on from, the latest is kept"


def test_a_metric_inside_of_another_is_found_by_its_path():
    kept = [(Checkpoint(f"/{i}"), {"eval": {"loss": loss}}) for i, loss in enumerate((2, 1, 3))]
    result = Result(None, None, None, None, [*kept, (Checkpoint("/none"), {"eval": {}})])
    assert result.get_best_checkpoint("eval/loss", "min").path == "/1"
    assert result.get_best_checkpoint("eval/loss", "max").path == "/2"
    with pytest.raises(RuntimeError, match="Invalid metric name 'eval/acc'"):
        result.get_best_checkpoint("eval/acc", "max")


def test_a_metric_inside_of_a_list_is_found_by_its_place():
    kept = [(Checkpoint(f"/{i}"), {"eval": {"loss": losses}}) for i, losses in enumerate([[1, 5], (2, 4), [0]])]
    result = Result(None, None, None, None, kept)
    assert result.get_best_checkpoint("eval/loss/1", "min").path == "/1"
    assert result.get_best_checkpoint("eval/loss/0", "min").path == "/2"
    for name in ("eval/loss/2", "eval/loss/-1", "eval/loss/x", "eval/loss/1/1"):
        with pytest.raises(RuntimeError, match=f"Invalid metric name '{name}'"):
            result.get_best_checkpoint(name, "max")


def test_of_equal_checkpoints_the_first_is_the_best_and_none_without_a_number():
    numpy = pytest.importorskip("numpy")
    nan = float("nan")
    kept = [(Checkpoint(f"/{i}"), {"loss": loss}) for i, loss in enumerate([nan, 2, 1, None, 1, 2, nan])]
    result = Result({}, kept[-1][0], None, "/run", kept)
    assert [result.get_best_checkpoint("loss", mode).path for mode in ("min", "max")] == ["/2", "/1"]
    kept = [(Checkpoint(f"/{i}"), {"good": numpy.float32(good)}) for i, good in enumerate([2, 0, 1])]
    kept += [(Checkpoint("/3"), {"good": True}), (Checkpoint("/4"), {}), (Checkpoint("/5"), {"good": nan})]
    ranked = trainyard.result.rank(kept, CheckpointConfig(checkpoint_score_attribute="good"))
    assert [checkpoint.path for checkpoint, _ in ranked] == ["/4", "/5", "/1", "/2", "/3", "/0"]


def test_results_name_their_file_system():
    result = Result({"a": 1}, Checkpoint("/x"), None, "/run")
    told = "Result(metrics={'a': 1}, checkpoint=Checkpoint(filesystem=local, path=/x), error=None, path='/run', filesystem="
    assert repr(result).startswith(told + "<pyarrow._fs.LocalFileSystem") and repr(result).endswith(", return_value=None)")


def test_a_result_may_be_made_with_its_data_frame():
    frame = object()
    given = Result(metrics=None, checkpoint=None, error=None, path="/run", metrics_dataframe=frame, best_checkpoints=[])
    assert given.metrics_dataframe is frame and given == Result(None, None, None, "/run", [])
    assert pickle.loads(pickle.dumps(Result({"a": 1}, None, None, "/run"))).metrics_dataframe is None
    assert "metrics_dataframe" in dict(inspect.getmembers(Result)), "as help() asks for it"


def test_the_storage_of_a_run_says_where_checkpoints_go(storage):
    def train():
        place = trainyard.get_context().get_storage()
        path = place.build_checkpoint_path_from_name("mine")
        assert place.extract_checkpoint_dir_name_from_path(path) == "mine"
        assert place.make_default_checkpoint_dir_name() != place.make_default_checkpoint_dir_name()
        return [path, place.make_default_checkpoint_dir_name()]

    path, name = fit(storage, train, 1).return_value
    assert path == f"{storage}/run/mine" and name.startswith("checkpoint_20")


@pytest.mark.parametrize(
    "name, place", [("a/b/", "/runs/run/a/b"), ("", "/runs/run"), ("../x/./y", "/runs/run/../x/y"), ("/elsewhere", "/elsewhere")]
)
def test_the_place_of_a_checkpoint_is_joined_as_paths_are(name, place):
    assert Storage("/runs/run").build_checkpoint_path_from_name(name) == place


def test_a_checkpoint_elsewhere_has_no_name_in_the_run():
    with pytest.raises(ValueError, match="Checkpoint path /else/x is not under the experiment directory /runs/run."):
        Storage("/runs/run").extract_checkpoint_dir_name_from_path("/else/x")


@pytest.mark.parametrize(
    "given, path",
    [("/a/b/", "/a/b"), ("~/x", "HOME/x"), (pathlib.Path("r/s"), "HERE/r/s"), ("/", "/"), ("/a/../b", "/a/../b")],
)
def test_the_path_of_a_checkpoint(given, path):
    assert Checkpoint(given).path == path.replace("HOME", os.path.expanduser("~")).replace("HERE", os.getcwd())


@pytest.mark.parametrize("name, told", [("from_dict", "from_directory"), ("to_uri", "address"), ("get_preprocessor", "metadata")])
def test_what_checkpoints_had_once_is_told_with_what_to_do_instead(name, told):
    with pytest.raises(AttributeError, match=rf"`Checkpoint` does not support `{name}\(\)`: .*{told}"):
        getattr(Checkpoint, name)
    assert not hasattr(Checkpoint, "nothing") and not hasattr(Checkpoint("/x"), name)


def test_to_directory_gives_the_path_that_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.makedirs("made/sub")
    assert Checkpoint("made").to_directory("rel/../to/") == "to" and os.listdir("to") == ["sub"]


def test_of_a_link_that_leads_out_the_file_is_copied(tmp_path):
    made, copy, blob = tmp_path / "made", tmp_path / "copy", tmp_path / "blobs" / "1"
    for directory in (made, blob.parent):
        directory.mkdir()
    blob.write_text("weights")
    (made / "plain").write_text("plain")
    links = {"out": "../blobs/1", "absolute": str(blob), "own": str(made / "plain"), "inside": "plain", "no": "nowhere"}
    for name, target in links.items():
        (made / name).symlink_to(target)
    for _ in range(2):
        Checkpoint(made).to_directory(copy)
        assert {path.name for path in copy.iterdir() if path.is_symlink()} == {"inside", "no"}
        assert [(copy / name).read_text() for name in list(links)[:4]] == ["weights", "weights", "plain", "plain"]


def test_an_upload_function_that_gives_no_checkpoint_is_told_in_the_words_of_ray(ray):
    text = """
        from ray.train import WorkerGroupError

        def train():
            with tempfile.TemporaryDirectory() as place:
                ray.train.report({}, Checkpoint(place), checkpoint_upload_fn=lambda checkpoint, name: None)

        try:
            DataParallelTrainer(train).fit()
        except WorkerGroupError as error:
            print(json.dumps(str(error)))
    """
    assert "checkpoint_upload_fn must return a `ray.train.Checkpoint`" in ray(text)


@pytest.mark.parametrize("above", ["", ".."])
def test_a_checkpoint_that_holds_the_run_is_refused(storage, above):
    def train(config):
        trainyard.report({}, checkpoint=Checkpoint(config["place"]), delete_local_checkpoint_after_upload=True)

    with pytest.raises(WorkerGroupError, match="experiment directory .* is contained within the checkpoint path"):
        fit(storage, train, config={"place": os.path.join(storage, "run", above)}, workers=1)
    assert Result.from_path(f"{storage}/run").best_checkpoints == []


# -- models


def test_a_torch_checkpoint_holds_a_model_and_a_predictor_asks_it():
    numpy, torch = __import__("numpy"), __import__("torch")
    from trainyard.as_ray.torch_checkpoint import TorchCheckpoint, TorchPredictor

    model = torch.nn.Linear(2, 1)
    wrapped = {f"module.{name}": value for name, value in model.state_dict().items()}
    by_state, whole = TorchCheckpoint.from_state_dict(wrapped), TorchCheckpoint.from_model(model)
    with pytest.raises(ValueError, match="state dict"):
        by_state.get_model()
    rows = numpy.ones((3, 2), dtype="float32")
    expected = model(torch.as_tensor(rows)).detach().numpy()
    for predictor in (
        TorchPredictor.from_checkpoint(by_state, torch.nn.Linear(2, 1)),
        TorchPredictor.from_checkpoint(Checkpoint(whole.path)),
    ):
        answer = predictor.predict(rows)
        assert list(answer) == ["predictions"] and (answer["predictions"] == expected).all()
        assert (predictor.predict({"x": rows.astype("float64")}, dtype=torch.float32)["predictions"] == expected).all()
    with pytest.raises(ValueError, match="preprocessor"):
        TorchCheckpoint.from_model(model, preprocessor=object())

    class Odd(TorchPredictor):
        def call_model(self, inputs):
            return [super().call_model(inputs)]

    with pytest.raises(ValueError, match="gives a list as 'predictions'"):
        Odd(model).predict(rows)


def test_a_model_s_preprocessor_is_in_its_checkpoint(tmp_path):
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    from trainyard import data
    from trainyard.as_ray.torch_checkpoint import TorchCheckpoint, TorchPredictor
    from trainyard.as_ray.xgboost import XGBoostCheckpoint, xgboost
    from trainyard.data.preprocessors import MaxAbsScaler

    model, rows = torch.nn.Linear(1, 1), {"x": numpy.array([[1.0], [3.0]], dtype="float32")}
    halves = MaxAbsScaler(["x"])
    halves.fit(data.from_items([{"x": 2.0}]))
    with_it, without = TorchCheckpoint.from_model(model, preprocessor=halves), TorchCheckpoint.from_model(model)
    assert without.get_preprocessor() is None and with_it.get_preprocessor().stats_ == halves.stats_
    answer = TorchPredictor.from_checkpoint(with_it).predict(rows)["predictions"]
    assert numpy.allclose(answer, TorchPredictor(model).predict({"x": rows["x"] / 2})["predictions"])
    booster = xgboost.train({}, xgboost.DMatrix(rows["x"], label=[0, 1]), num_boost_round=1)
    made = XGBoostCheckpoint.from_model(booster, preprocessor=halves, path=str(tmp_path))
    assert XGBoostCheckpoint(made.path).get_preprocessor().stats_ == halves.stats_
