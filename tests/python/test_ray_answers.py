"""What Ray Train's users ask of a run and its result, answered as Ray answers; in a program of theirs, or of Trainyard's own."""

import inspect
import os
import pathlib
import pickle
import threading

import pytest
import trainyard
from trainyard import (
    Checkpoint,
    CheckpointConfig,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    WorkerGroupError,
)
from trainyard.context import Storage


def fit(storage, train, workers=2, config=None, **run):
    return DataParallelTrainer(
        train,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=storage, name="run", **run),
    ).fit()


# -- what rank 0 returns


@pytest.mark.parametrize("start_method", ["spawn", "template", "fork"])
def test_the_result_has_what_rank_0_returned(storage, start_method):
    def train():
        return {"rank": trainyard.get_context().get_world_rank(), "large": b"x" * (40 << 20)}

    value = fit(storage, train, start_method=start_method).return_value
    assert value["rank"] == 0 and len(value["large"]) == 40 << 20


def test_the_result_of_a_later_attempt_is_that_one_s(storage):
    def train():
        if trainyard.get_context().get_attempt() == 2:
            return "short"
        if trainyard.get_context().get_world_rank() == 1:
            trainyard.collective.barrier()
            raise ValueError
        trainyard.collective.barrier()
        return "long" * 1000

    assert fit(storage, train, failure_config=FailureConfig(max_failures=1)).return_value == "short"
    assert Result.from_path(f"{storage}/run").return_value is None


def test_what_cannot_be_pickled_of_what_is_returned_is_named(storage):
    def train():
        return {"model": [1, threading.Lock()]}

    with pytest.raises(WorkerGroupError, match="returned.*was found to be non-serializable") as caught:
        fit(storage, train)
    assert list(caught.value.worker_failures) == [0]
    assert isinstance(caught.value.worker_failures[0], TypeError)
    assert "returned['model'][1]" in str(caught.value.worker_failures[0])


def test_tensors_are_not_returned(ray):
    pytest.importorskip("torch")
    program = """
        import torch
        def told(value):
            try:
                return DataParallelTrainer(lambda: value).fit().return_value
            except ray.train.WorkerGroupError as error:
                return type(error.worker_failures[0]).__name__, str(error.worker_failures[0]).partition(". ")[0]
        print(json.dumps([told(value) for value in ({"a": [1.5]}, {"a": (torch.ones(1),)}, [torch.nn.Linear(1, 1)])]))
    """
    told = "Returning objects containing Torch tensors from the training function is not supported as it will throw an exception on"
    refusal = ["ValueError", f"{told} deserialization"]
    assert ray(program) == [{"a": [1.5]}, refusal, refusal]


def test_a_checkpoint_of_which_nothing_is_there_is_a_placeholder(ray):
    program = """
        def train():
            mode = ray.train.CheckpointUploadMode.NO_UPLOAD
            place = ray.train.get_context().get_storage().build_checkpoint_path_from_name("placeholder")
            ray.train.report({"a": 1}, checkpoint=Checkpoint(place), checkpoint_upload_mode=mode)
            os.mkdir(place)
            open(place + "/model", "w").write("x")
            ray.train.report({"a": 2}, checkpoint=Checkpoint(place), checkpoint_upload_mode=mode)
        result = DataParallelTrainer(train, run_config=RunConfig(storage_path=os.getcwd())).fit()
        print(json.dumps([result.metrics, [(os.path.basename(c.path), m) for c, m in result.best_checkpoints]]))
    """
    assert ray(program) == [{"a": 2}, [["placeholder", {"a": 2}]]]


def test_a_type_of_accelerator_among_the_resources_of_this_machine(ray):
    program = """
        ray.init(num_cpus=4, num_gpus=2, resources={"accelerator_type:A100": 2, "special": 1})
        def train():
            return ray.get_runtime_context().get_assigned_resources()
        scale = ScalingConfig(num_workers=2, use_gpu=True, accelerator_type="A100")
        held = DataParallelTrainer(train, scaling_config=scale).fit().return_value
        there = ray.cluster_resources()
        print(json.dumps([held, [there[name] for name in ("GPU", "special")]]))
    """
    assert ray(program) == [{"GPU": 1, "accelerator_type:A100": 0.001}, [2.0, 1.0]]


# -- the first Ray Train


def test_what_the_second_refuses_works_in_programs_of_the_first(ray, monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    program = """
        import warnings
        from ray import air
        from ray.air import session
        def train():
            told = session.get_checkpoint()
            before = json.load(open(told.path + "/a"))["step"] if told else -1
            for step in range(before + 1, before + 3):
                with tempfile.TemporaryDirectory() as d:
                    json.dump({"step": step}, open(d + "/a", "w"))
                    session.report({"step": step, "of": session.get_metadata()}, checkpoint=Checkpoint(d))
            return lambda: None, open("a", "w")
        def config(name):
            return air.RunConfig(
                name=name, storage_path=os.getcwd(), verbose=1, log_to_file=True, sync_config=ray.train.SyncConfig(), stop=None,
                failure_config=air.FailureConfig(0, fail_fast=True),
                checkpoint_config=air.CheckpointConfig(num_to_keep=1, checkpoint_frequency=0, checkpoint_at_end=False),
            )
        with warnings.catch_warnings(record=True) as caught:
            first = DataParallelTrainer(train, run_config=config("first")).fit()
            again = dict(resume_from_checkpoint=first.checkpoint, metadata={"of": 1})
            second = DataParallelTrainer(train, run_config=config("second"), **again).fit()
            third = DataParallelTrainer(train, run_config=config("second"), **again).fit()
            assert not DataParallelTrainer.can_restore("second")
        from ray.util.annotations import RayDeprecationWarning
        told = {str(one.message).split("`")[1] for one in caught if one.category is RayDeprecationWarning}
        assert all(one.filename == __file__ for one in caught)
        try:
            air.RunConfig(stop={"step": 1})
        except DeprecationWarning as error:
            told.add(str(error).split(":")[0])
        kept = [one.checkpoint.get_metadata() for one in (first, third)]
        print(json.dumps([first.metrics, second.metrics, third.metrics, first.return_value, kept, sorted(told)]))
    """
    assert ray(program) == [
        {"step": 1, "of": {}},
        {"step": 3, "of": {"of": 1}},
        {"step": 5, "of": {"of": 1}},
        None,
        [{}, {"of": 1}],
        sorted(
            [
                "CheckpointConfig(checkpoint_at_end=...)",
                "CheckpointConfig(checkpoint_frequency=...)",
                "FailureConfig(fail_fast=...)",
                "RunConfig(log_to_file=...)",
                "RunConfig(stop=...)",
                "RunConfig(sync_config=...)",
                "RunConfig(verbose=...)",
                "`RunConfig(stop=...)` is deprecated",
                "can_restore",
                "metadata",
                "resume_from_checkpoint",
            ]
        ),
    ]


def test_checkpoints_that_nobody_makes_are_not_asked_for(ray, monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    program = """
        def told(**asked):
            run = RunConfig(checkpoint_config=ray.train.CheckpointConfig(**asked))
            try:
                DataParallelTrainer(lambda: None, run_config=run).fit()
            except ValueError as error:
                return str(error).split(":")[0]
        print(json.dumps([told(checkpoint_frequency=2), told(checkpoint_at_end=True)]))
    """
    assert ray(program) == ["`CheckpointConfig.checkpoint_frequency`", "`CheckpointConfig.checkpoint_at_end`"]


def test_mixed_precision_of_the_first_ray_train_is_full_precision(ray, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    program = """
        import ray.train.torch, torch
        def train():
            ray.train.torch.accelerate(amp=True)
            model = ray.train.torch.prepare_model(torch.nn.Linear(1, 1, bias=False))
            before = float(model.weight)
            optimizer = ray.train.torch.prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.5))
            ray.train.torch.backward(model(torch.ones(1, 1)).sum())
            optimizer.step()
            ray.train.report({"moved": round(before - float(model.weight), 3)})
        print(json.dumps(ray.train.torch.TorchTrainer(train).fit().metrics))
    """
    assert ray(program) == {"moved": 0.5}


def test_contexts_of_the_first_ray_train(ray, monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    monkeypatch.setenv("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "0")
    program = """
        import warnings
        def train():
            warnings.simplefilter("error")
            context = ray.train.get_context()
            names = "trial_name", "trial_id", "trial_dir"
            told = [getattr(context, f"get_{name}")() for name in names]
            ray.train.report({"told": told, "bundles": context.get_trial_resources().bundles})
        run = RunConfig(name="run", storage_path=os.getcwd())
        result = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
        assert result.metrics["told"][2] == result.path
        print(json.dumps(result.metrics["told"][:2] + result.metrics["bundles"]))
    """
    assert ray(program) == ["run", "run", {"CPU": 1.0}, {"CPU": 1.0}]


# -- checkpoints


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


# -- callbacks


def test_hooks_are_called_by_keyword(storage):
    seen = []

    class Callback(trainyard.UserCallback):
        def after_report(self, *, checkpoint, metrics, run_context):
            seen.append(metrics)

        def after_exception(self, *, worker_exceptions, **others):
            seen.append((list(worker_exceptions), sorted(others)))

    def train():
        trainyard.report({"a": 1})
        raise ValueError

    with pytest.raises(WorkerGroupError):
        fit(storage, train, 1, callbacks=[Callback()])
    assert seen == [[{"a": 1}], ([0], ["run_context"])]


# -- configs


def test_the_run_config_of_a_program_for_ray_has_its_name_and_place_from_the_start(ray):
    one, other, place, given = ray("""
        configs = [RunConfig(), RunConfig(name=""), RunConfig(name="mine", storage_path="here")]
        print(json.dumps([configs[0].name, configs[1].name, configs[0].storage_path, configs[2].name + configs[2].storage_path]))
    """)
    assert other.startswith("ray_train_run-20"), "no name is none"
    assert one.startswith("ray_train_run-20") and one != other
    assert place == os.path.expanduser("~/ray_results") and given == "minehere"


def test_a_run_config_says_where_its_run_is(storage):
    def train():
        return trainyard.get_context().get_storage().experiment_fs_path

    config = RunConfig(storage_path=storage, name="run")
    place = config.storage_context
    assert DataParallelTrainer(train, run_config=config).fit().return_value == place.experiment_fs_path == f"{storage}/run"
    assert place.build_checkpoint_path_from_name("mine") == f"{storage}/run/mine"
    with pytest.raises(ValueError, match="RunConfig.storage_context.*no name"):
        RunConfig(storage_path=storage).storage_context  # noqa: B018


def test_a_run_config_of_another_file_system_says_where_its_run_is():
    pytest.importorskip("pyarrow")
    place = RunConfig(storage_path="mock://bucket/runs", name="run").storage_context
    assert place.experiment_fs_path == "runs/run" and place.storage_filesystem.type_name == "mock"


def test_a_trainer_says_how_its_data_sets_are_divided():
    from trainyard.data import DataConfig

    given = DataConfig(datasets_to_split=["train"])
    assert DataParallelTrainer(print, dataset_config=given).data_config is given
    trainer = DataParallelTrainer(print)
    assert isinstance(trainer.data_config, DataConfig) and trainer.data_config is trainer.data_config


@pytest.mark.parametrize("workers", [0, 1])
def test_a_trainer_says_whether_its_function_runs_here(workers):
    trainer = DataParallelTrainer(os.getpid, scaling_config=ScalingConfig(num_workers=workers))
    assert trainer.running_in_local_mode == (workers == 0)


def test_a_run_config_used_twice_names_one_run(ray):
    assert ray("""
        def train():
            found = ray.train.get_checkpoint()
            with tempfile.TemporaryDirectory() as place:
                ray.train.report({"from": found and os.path.basename(found.path)}, checkpoint=Checkpoint(place))

        config = RunConfig(storage_path=os.path.abspath("runs"))
        paths = [DataParallelTrainer(train, run_config=config).fit() for _ in range(2)]
        print(json.dumps([result.metrics["from"] for result in paths] + [paths[0].path == paths[1].path]))
    """) == [None, "checkpoint_000001", True]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_may_be_in_a_group(ray, elsewhere):
    """Its name then is that of a directory below the storage path, and goes on as any other does."""
    start, name, storage, end = ray(f"""
        def train():
            found, context = ray.train.get_checkpoint(), ray.train.get_context()
            with tempfile.TemporaryDirectory() as place:
                ray.train.report({{"from": found and os.path.basename(found.path)}}, checkpoint=Checkpoint(place))
            storage = context.get_storage()
            above = os.path.relpath(storage.storage_fs_path, place_of_all)
            return context.get_experiment_name(), storage.experiment_dir_name, above

        class Seen(ray.train.UserCallback):
            def after_report(self, run_context, metrics, checkpoint):
                names.append(run_context.run_config.name)

        place_of_all, names = os.getcwd(), []
        where = dict(storage_path=os.path.abspath("runs"))
        if {elsewhere}:
            import pyarrow.fs
            there = pyarrow.fs.SubTreeFileSystem(place_of_all, pyarrow.fs.LocalFileSystem())
            where = dict(storage_path="runs", storage_filesystem=there)
            place_of_all = "."
        config = RunConfig(name="a/b/mine", callbacks=[Seen()], **where)
        results = [DataParallelTrainer(train, run_config=config).fit() for _ in range(2)]
        print(json.dumps([[result.metrics["from"] for result in results], results[1].return_value[:2],
                          results[1].return_value[2], [*names, os.path.relpath(results[0].path, place_of_all)]]))
    """)
    assert start == [None, "checkpoint_000001"]
    assert name == ["a/b/mine"] * 2 and storage == "runs" and end == ["a/b/mine"] * 2 + ["runs/a/b/mine"]


@pytest.mark.parametrize(
    "field, value", [("preemption_grace_s", -1), ("preemption_grace_s", True), ("relax_collectives_on_preemption", 1)]
)
def test_what_preemption_may_cost_is_checked(field, value):
    with pytest.raises(ValueError, match=f"FailureConfig.{field}"):
        FailureConfig(**{field: value})
    FailureConfig(preemption_grace_s=30, relax_collectives_on_preemption=True)


def test_the_grace_of_a_preemption_is_added_to_that_of_the_run(storage, monkeypatch):
    from trainyard.driver import Driver

    def asked(**run):
        config = RunConfig(storage_path=storage, failure_config=FailureConfig(preemption_grace_s=7), **run)
        return Driver(DataParallelTrainer(print, run_config=config)).request()["grace_s"]

    assert (asked(), asked(grace_s=1)) == (12, 8)


@pytest.mark.parametrize("field", ["checkpoint_config", "failure_config"])
def test_a_config_of_another_class_is_named(field):
    with pytest.raises(ValueError, match="Invalid `(Checkpoint|Failure)Config` type"):
        RunConfig(**{field: {}})


# -- nodes


def test_workers_know_their_node_s_labels_and_its_address(ray):
    workers = ray("""
        from ray.cluster_utils import Cluster

        cluster = Cluster()
        for zone in "ab":
            cluster.add_node(num_cpus=1, labels={"zone": zone})
        ray.init(address=cluster.address)

        def train():
            context = ray.get_runtime_context()
            mine = [os.environ["MASTER_ADDR"], ray.util.get_node_ip_address()]
            ray.train.report({"labels": context.get_node_labels(), "id": context.get_node_id(), "mine": mine,
                              "all": ray.cluster_resources()["CPU"]})

        class Seen(ray.train.UserCallback):
            def after_report(self, run_context, metrics, checkpoint):
                print(json.dumps(metrics))

        config = RunConfig(storage_path=os.path.abspath("runs"), callbacks=[Seen()])
        DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=config).fit()
    """)
    assert sorted(worker["labels"]["zone"] for worker in workers) == ["a", "b"]
    for worker in workers:
        assert worker["labels"]["ray.io/node-id"] == worker["id"]
        assert worker["mine"][0] == worker["mine"][1] and worker["all"] == 2


def test_what_a_worker_holds_are_floats_as_all_amounts_are(ray):
    assert ray("""
        def train():
            return str(ray.get_runtime_context().get_assigned_resources())
        print(json.dumps(DataParallelTrainer(train).fit().return_value))
    """) == "{'CPU': 1.0}"


def test_the_driver_is_on_the_first_node_of_a_cluster(ray):
    assert ray("""
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "labels": {"zone": "head"}})
        cluster.add_node(num_cpus=1, labels={"zone": "other"})
        ray.init(address=cluster.address)
        here = ray.get_runtime_context()
        mine = [node["Labels"] for node in ray.nodes() if node["NodeID"] == here.get_node_id()]
        print(json.dumps([here.get_node_labels()["zone"], mine == [here.get_node_labels()]]))
    """) == ["head", True]


def test_options_of_ray_s_daemons_have_no_effect_on_nodes(ray):
    assert ray("""
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "dashboard_port": 1})
        cluster.add_node(num_cpus=2, include_log_monitor=False, object_spilling_directory="/nowhere", _system_config={})
        ray.init(address=cluster.address)
        try:
            cluster.add_node(num_cpu=1)
        except ValueError as error:
            print(json.dumps([ray.cluster_resources()["CPU"], str(error).partition(";")[0]]))
    """) == [3.0, "a node has no option 'num_cpu'"]


def test_a_worker_s_address_is_that_of_its_node(monkeypatch):
    from trainyard import backend
    from trainyard.as_ray.context import get_node_ip_address

    monkeypatch.setenv("TRAINYARD_ADDRESS", "10.0.0.2")
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    assert get_node_ip_address() == "127.0.0.1"  # of the driver
    monkeypatch.setenv("TRAINYARD_FD", "99")
    assert get_node_ip_address() == "10.0.0.2" and backend._metadata().node_ip == "10.0.0.2"
    monkeypatch.delenv("TRAINYARD_ADDRESS")  # on one machine alone
    assert get_node_ip_address() == "10.0.0.1"


@pytest.mark.parametrize("version", ["1", "0"])
@pytest.mark.parametrize("on_a_cluster", [False, True])
def test_what_a_run_holds_is_not_available_in_its_workers_nor_its_driver(ray, monkeypatch, on_a_cluster, version):
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", version)
    told = ray(f"""
        import threading, time
        from ray.cluster_utils import Cluster

        if {on_a_cluster}:
            cluster = Cluster()
            for _ in range(2):
                cluster.add_node(num_cpus=4, num_gpus=1, resources={{"special": 2}})
            ray.init(address=cluster.address)
        else:
            ray.init(num_gpus=2, resources={{"special": 4}})
        names = ("CPU", "GPU", "special")
        def left():
            free = ray.available_resources()
            return [free.get(name, 0) for name in names]
        def all_of_it():
            return [ray.cluster_resources()[name] for name in names]

        def train(folder):
            with open(f"{{folder}}/worker.{{ray.train.get_context().get_world_rank()}}.new", "w") as file:
                json.dump([left(), all_of_it()], file)
            os.rename(file.name, file.name[:-4])
            while not os.path.exists(f"{{folder}}/seen"):
                time.sleep(0.01)
        def look():
            while len([name for name in os.listdir(folder) if name[-1].isdigit()]) < 2:
                time.sleep(0.01)
            during.extend(left())
            open(f"{{folder}}/seen", "w").close()

        folder, during = tempfile.mkdtemp(), []
        before = left()
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        scale = ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={{"CPU": 1, "GPU": 0.5, "special": 1.5}})
        DataParallelTrainer(train, train_loop_config=folder, scaling_config=scale).fit()
        thread.join()
        workers = [json.load(open(f"{{folder}}/worker.{{rank}}")) for rank in range(2)]
        print(json.dumps({{"before": before, "during": during, "after": left(), "workers": workers}}))
    """)
    everything = [8.0, 2.0, 4.0]
    assert told["before"] == everything and told["after"] == everything
    rest = [6.0 if version == "1" else 5.0, 1.0, 1.0]  # the trainer of the first Ray Train holds a CPU
    assert told["during"] == rest and told["workers"] == [[rest, everything]] * 2


# -- failures


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


# -- models


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


@pytest.mark.parametrize("above", ["", ".."])
def test_a_checkpoint_that_holds_the_run_is_refused(storage, above):
    def train(config):
        trainyard.report({}, checkpoint=Checkpoint(config["place"]), delete_local_checkpoint_after_upload=True)

    with pytest.raises(WorkerGroupError, match="experiment directory .* is contained within the checkpoint path"):
        fit(storage, train, config={"place": os.path.join(storage, "run", above)}, workers=1)
    assert Result.from_path(f"{storage}/run").best_checkpoints == []


def test_a_tensor_is_no_metric(storage):
    torch = pytest.importorskip("torch")

    def train(config):
        trainyard.report({"at": {"loss": config["tensor"]}})

    with pytest.raises(WorkerGroupError) as caught:
        fit(storage, train, config={"tensor": torch.ones(2)}, workers=1)
    why = str(caught.value.worker_failures[0])
    assert why.startswith("Passing objects containing Torch tensors as metrics is not supported") and "at/loss" in why


@pytest.mark.parametrize("workers", [0, 2])
def test_a_validation_may_fit_a_trainer(ray, workers):
    text = """
        from ray.train.v2.api.context import DistributedTrainContext, LocalTrainContext

        def evaluate():
            kind = LocalTrainContext if WORKERS == 0 else DistributedTrainContext
            return {"found": ray.train.get_context().get_world_size(), "kind": isinstance(ray.train.get_context(), kind)}

        def validate(checkpoint):
            return DataParallelTrainer(evaluate, scaling_config=ScalingConfig(num_workers=WORKERS)).fit().return_value

        def train():
            with tempfile.TemporaryDirectory() as place:
                ray.train.report({"loss": 1}, checkpoint=Checkpoint.from_directory(place), validation=True)

        config = ray.train.ValidationConfig(fn=validate)
        trainer = DataParallelTrainer(train, validation_config=config, run_config=RunConfig(storage_path=os.getcwd()))
        print(json.dumps(trainer.fit().metrics))
    """
    assert ray(text.replace("WORKERS", str(workers))) == {"loss": 1, "found": max(workers, 1), "kind": True}
