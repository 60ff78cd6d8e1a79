"""What other tools get of a run: callbacks as it goes on, exports, and all reports as a DataFrame. wandb and mlflow are stand-ins
that note their calls; TensorBoard's files, pandas and Parquet are the real ones."""

import gc
import json
import os
import pathlib
import pickle
import re
import sys
import types
import warnings

import pandas
import pytest
import trainyard
from conftest import wait_until
from trainyard import Result, RunConfig, ScalingConfig, export, integrations

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "e2e"))
import seen  # noqa: E402


class Noted(types.SimpleNamespace):
    """Any call is noted; those in `wrong` raise."""

    def __getattr__(self, name):
        def call(*words, **options):
            self.calls.append((name, words, options))
            if name in self.wrong:
                raise OSError(28, "No space left on device")
            return (
                self
                if name == "init"
                else types.SimpleNamespace(experiment_id="7", info=types.SimpleNamespace(run_id="r"))
            )

        return call


@pytest.fixture
def tools(monkeypatch):
    """Stand-ins of wandb and mlflow, and what was asked of them."""
    wandb, mlflow = Noted(calls=[], wrong=()), Noted(calls=[], wrong=())
    package = types.ModuleType("wandb")
    package.init = wandb.init
    monkeypatch.setitem(sys.modules, "wandb", package)
    for name in ("mlflow", "mlflow.tracking", "mlflow.entities"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["mlflow.tracking"].MlflowClient = lambda tracking_uri: mlflow
    sys.modules["mlflow.entities"].Metric = lambda *words: words
    for name in ("wandb", "mlflow"):
        sys.modules[name].__spec__ = types.SimpleNamespace()
    return types.SimpleNamespace(wandb=wandb.calls, mlflow=mlflow)


def train(config):
    for i in range(5):
        trainyard.report(
            {"loss": 1 / (1 + i), "step": 10 * i, "deep": {"a b!": i}, "text": "x", "bad": float("nan")}
        )


def test_callbacks_of_a_run(tools, storage):
    tools.mlflow.wrong = ("log_param",)
    callbacks = [
        integrations.WandbCallback(project="p"),
        integrations.MLflowCallback(),
        integrations.TensorBoardCallback(),
    ]
    with pytest.warns(
        RuntimeWarning, match="MLflowCallback: .*No space left.* the run goes on without it"
    ) as told:
        result = trainyard.DataParallelTrainer(
            train,
            train_loop_config={"lr": 1},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(name="r", storage_path=storage, callbacks=callbacks),
        ).fit()
    assert len(told) == 1
    head, logged, end = tools.wandb[:3], tools.wandb[3:-1], tools.wandb[-1]
    assert head[0][2] == {"project": "p", "name": "r", "config": {"lr": 1}, "mode": "offline"}
    assert [words[0]["trainyard_step"] for _, words, _ in logged] == [0, 10, 20, 30, 40]
    assert {name: value for name, value in logged[4][1][0].items() if name not in ("bad", "_timestamp")} == {
        "loss": 0.2,
        "step": 40,
        "deep/a b!": 4,
        "trainyard_step": 40,
    }
    assert end == ("finish", (), {"exit_code": 0})
    assert [name for name, _, _ in tools.mlflow.calls][-1] == "log_param"
    made = sorted(
        path.relative_to(result.path).parts[:2] for path in pathlib.Path(result.path).rglob("*tfevents*")
    )
    assert made == [("tensorboard", "mean"), ("tensorboard", "rank-0"), ("tensorboard", "rank-1")]
    reports = result.reports(rank=1)
    assert list(reports["deep/a b!"]) == [0, 1, 2, 3, 4] and set(reports["rank"]) == {1}


def test_tensorboard_leaves_nothing_open(storage, tmp_path, monkeypatch):
    """Neither a file nor a process, whether the command did its work, failed, or could not be started."""
    os.makedirs(storage)
    path = seen.write_b(storage)
    run_context, result = types.SimpleNamespace(path=path), types.SimpleNamespace(error=None)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    gc.collect()  # what earlier tests left open
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for place in ("new", "taken", "none"):
            if place == "none":
                monkeypatch.setattr(integrations._command, "path", lambda: "/nowhere/trainyard")
            before = len(os.listdir("/proc/self/fd"))
            callback = integrations.TensorBoardCallback(tmp_path / place)
            callback.on_run_start(run_context)
            callback.on_run_end(run_context, result, None)
            assert len(os.listdir("/proc/self/fd")) == before, place
            del callback
            gc.collect()
    assert [warning.category for warning in told] == [RuntimeWarning, RuntimeWarning]


def test_a_directory_that_is_no_path():
    with pytest.raises(ValueError, match=r"`TensorBoardCallback\(directory\)` must be a path, not int"):
        integrations.TensorBoardCallback(3)


def test_what_is_not_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for kind, package in ((integrations.WandbCallback, "wandb"), (integrations.MLflowCallback, "mlflow")):
        with pytest.raises(ImportError, match=f"pip install {package}"):
            kind()


def test_reports_of_a_run(storage):
    os.makedirs(storage)
    result = Result(None, None, None, seen.write_b(storage))
    counted, everything = result.reports(), result.reports(rank=None, history="all")
    assert list(counted.columns) == ["id", "time", "attempt", "rank", "number", "loss", "step"]
    assert (len(counted), list(counted.number)) == (200, [*range(1, 101), *range(151, 251)])
    assert (len(everything), everything.lost.sum(), set(everything["rank"])) == (500, 100, {0, 1})
    assert list(result.reports(rank=9).columns) == ["id", "time", "attempt", "rank", "number"]
    for wrong in ({"history": "some"}, {"rank": -1}, {"rank": "0"}):
        with pytest.raises(ValueError, match="`(rank|history)` must be"):
            result.reports(**wrong)
    for path in (None, f"{storage}/none"):
        with pytest.raises(RuntimeError):
            Result(None, None, None, path).reports()


def test_exports(tools, storage, tmp_path):
    os.makedirs(storage)
    journal = seen.Journal(storage, "e", 2)
    journal.begin(0, 1, 2)
    mixed = [
        {"n": 1, "x": 1, "flag": True, "list": [1], "big": 2**70},
        {"n": 2, "x": "NaN", "flag": False, "late": "=1"},
    ]
    journal.reports(
        (n * seen.SECOND, 1, rank, n, json.dumps(mixed[n - 1])) for n in (1, 2) for rank in range(2)
    )
    journal.end(9 * seen.SECOND, 1)

    def run(kind, *words):
        export.main([kind, "e", "--storage-path", str(storage), *words])

    run("parquet", "-o", str(tmp_path / "e.parquet"))
    table = pandas.read_parquet(tmp_path / "e.parquet")
    assert list(table["rank"]) == [0, 1, 0, 1] and list(table["n"]) == [1, 1, 2, 2]
    kinds = {name: str(kind) for name, kind in table.dtypes.items()}
    assert (kinds["n"], kinds["x"], kinds["time"]) == ("int64", "float64", "int64")
    assert (
        list(table["flag"]) == [True, True, False, False]
        and table["list"][0] == "[1]"
        and table["late"][2] == "=1"
    )
    run("wandb", "--rank", "1")
    assert [words[0]["trainyard_step"] for name, words, _ in tools.wandb if name == "log"] == [1, 2]
    run("mlflow")
    (batch,) = [options["metrics"] for name, _, options in tools.mlflow.calls if name == "log_batch"]
    assert ("n", 2.0, seen.BEGAN // 10**6 + 2000, 2) in batch
    with pytest.raises(SystemExit, match="no run 'none'"):
        export.main(["parquet", "none", "--storage-path", str(storage), "-o", str(tmp_path / "none.parquet")])
    assert [name for name in os.listdir(tmp_path) if name.startswith("none")] == []


def test_parquet_is_not_written_through_what_others_put_there(storage, tmp_path):
    """A link under the name of the file that is to take the output's."""
    os.makedirs(storage)
    seen.write_a(storage)
    target, part = tmp_path / "precious", tmp_path / f"a.parquet.part-{os.getpid()}"
    target.write_text("mine")
    part.symlink_to(target)
    export.main(["parquet", "a", "--storage-path", str(storage), "-o", str(tmp_path / "a.parquet")])
    assert target.read_text() == "mine" and not part.is_symlink()
    assert len(pandas.read_parquet(tmp_path / "a.parquet")) > 0


def test_metrics_called_like_parquet_s_own_columns(storage, tmp_path):
    os.makedirs(storage)
    journal = seen.Journal(storage, "e", 1)
    journal.begin(0, 1, 1)
    metrics = {"rank": 7, "time": 1.5, "time_2": "x", "lost": 3}
    journal.reports([(seen.SECOND, 1, 0, 1, json.dumps(metrics))])
    journal.end(9 * seen.SECOND, 1)
    rows = []
    for history in ("effective", "all"):
        export.main(
            ["parquet", "e", "--storage-path", str(storage), "--history", history, "-o", str(tmp_path / "e.parquet")]
        )
        rows.append(pandas.read_parquet(tmp_path / "e.parquet").iloc[0].to_dict())
    own = {"id": 1, "time": seen.BEGAN + seen.SECOND, "attempt": 1, "rank": 0, "number": 1}
    assert rows[0] == {**own, "rank_2": 7, "time_3": 1.5, "time_2": "x", "lost": 3}
    assert rows[1] == {**own, "lost": False, "rank_2": 7, "time_3": 1.5, "time_2": "x", "lost_2": 3}


def test_names_and_times_that_tools_keep_for_themselves(tools, storage):
    os.makedirs(storage)
    journal = seen.Journal(storage, "e", 1)
    journal.begin(0, 1, 1)
    names = [
        "",
        ".",
        "../../etc",
        "/abs",
        "a//b",
        "a/",
        "a?b",
        "a*b",
        "a_b",
        "x" * 600,
        "x" * 601,
        "." * 300,
        "/" * 300,
    ]
    journal.reports([(seen.SECOND, 1, 0, 1, json.dumps({"_timestamp": 11, **dict.fromkeys(names, 1)}))])
    journal.end(9 * seen.SECOND, 1)
    export.main(["wandb", "e", "--storage-path", str(storage)])
    (logged,) = [words[0] for name, words, _ in tools.wandb if name == "log"]
    assert logged["_timestamp"] == seen.BEGAN / 1e9 + 1
    export.main(["mlflow", "e", "--storage-path", str(storage)])
    (batch,) = [options["metrics"] for name, _, options in tools.mlflow.calls if name == "log_batch"]
    made = [metric[0] for metric in batch]
    assert len(set(made)) == len(made) == len(names) + 1
    assert {"a_b", "a_b_2", "a_b_3", "__/__/etc", "_/abs", "a/_/b", "a/_"} <= set(made)
    for name in made:
        assert 0 < len(name) <= 250 and os.path.normpath(name) == name and not name.startswith(("/", ".."))


def test_an_export_that_fails_is_a_line_and_a_failed_run(tools, storage, monkeypatch):
    os.makedirs(storage)
    seen.write_b(storage)
    tools.mlflow.wrong = ("log_batch",)
    with pytest.raises(SystemExit, match=r"^trainyard\.export: MLflow: .*No space left[^\n]*$"):
        export.main(["mlflow", "b", "--storage-path", str(storage)])
    assert tools.mlflow.calls[-1][:2] == ("set_terminated", ("r", "FAILED"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for tool in ("mlflow", "wandb"):
        with pytest.raises(SystemExit, match=rf"needs {tool} \(pip install {tool}\)"):
            export.main([tool, "b", "--storage-path", str(storage)])


def test_a_tool_s_run_that_lacks_something_is_closed_as_failed(tools, storage):
    """Not left as one that still goes on; the next run of the same callback is a new one, and whole."""
    callback = integrations.MLflowCallback()

    def fit(name):
        run_config = RunConfig(name=name, storage_path=storage, callbacks=[callback])
        return trainyard.DataParallelTrainer(train, train_loop_config={}, run_config=run_config).fit()

    tools.mlflow.wrong = ("log_batch",)
    with pytest.warns(RuntimeWarning, match="MLflowCallback: .*No space left") as told:
        fit("first")
    assert len(told) == 1
    ended = [words for name, words, _ in tools.mlflow.calls if name == "set_terminated"]
    assert ended == [("r", "FAILED")]
    tools.mlflow.wrong = ()
    tools.mlflow.calls.clear()
    fit("second")
    logged = [metric for name, _, options in tools.mlflow.calls if name == "log_batch" for metric in options["metrics"]]
    assert [step for name, _, _, step in logged if name == "loss"] == [0, 10, 20, 30, 40]
    assert tools.mlflow.calls[-1][:2] == ("set_terminated", ("r", "FINISHED"))


def test_steps_of_reports_without_one_are_their_numbers(tools, storage):
    """Also in a run that is gone on with, by a callback that was used before: as an export has them."""
    callback = integrations.WandbCallback()

    def report():
        for i in range(3):
            trainyard.report({"loss": i})

    for resume in (False, True):
        run_config = RunConfig(name="n", storage_path=storage, callbacks=[callback], resume=resume)
        result = trainyard.DataParallelTrainer(report, run_config=run_config).fit()
    steps = [words[0]["trainyard_step"] for name, words, _ in tools.wandb if name == "log"]
    assert steps == list(result.reports(history="all")["number"]) == [1, 2, 3, 4, 5, 6]


def test_the_callbacks_of_the_page(tools):
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "seeing.md").read_text()
    [program] = [text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "WandbCallback" in text]
    names = {}
    exec(program, names)
    assert [type(one).__name__ for one in names["config"].callbacks] == ["WandbCallback", "MLflowCallback", "TensorBoardCallback"]


def test_a_parquet_file_that_cannot_be_made_is_named(storage):
    os.makedirs(storage)
    seen.write_b(storage)
    with pytest.raises(SystemExit, match="^trainyard.export: cannot write /proc/none/b.parquet: No such file or directory$"):
        export.main(["parquet", "b", "--storage-path", str(storage), "-o", "/proc/none/b.parquet"])


def test_options_of_another_export_are_refused(storage, capsys):
    for words, told in (
        (["mlflow", "-o", "there"], "-o goes with parquet and wandb"),
        (["parquet", "--tracking-uri", "sqlite:///a"], "--tracking-uri goes with mlflow"),
    ):
        with pytest.raises(SystemExit) as ended:
            export.main([words[0], "none", "--storage-path", str(storage), *words[1:]])
        assert ended.value.code == 2 and told in capsys.readouterr().err


def test_metrics_called_like_a_frame_s_own_columns(storage):
    os.makedirs(storage)
    journal = seen.Journal(storage, "e", 1)
    journal.begin(0, 1, 1)
    said = {1: {"rank": 8}, 2: {"rank": 7, "time": 1.5, "late": 2}}
    journal.reports([(seen.SECOND * n, 1, 0, n, json.dumps(metrics)) for n, metrics in said.items()])
    journal.end(9 * seen.SECOND, 1)
    frame = Result(None, None, None, f"{storage}/e").reports(history="all")
    assert list(frame.columns) == ["id", "time", "attempt", "rank", "number", "lost", "rank_2", "time_2", "late"]
    assert list(frame["rank"]) == [0, 0] and list(frame["rank_2"]) == [8, 7] and list(frame["late"])[1] == 2
    assert list(frame["time"]) == [seen.BEGAN + seen.SECOND, seen.BEGAN + 2 * seen.SECOND]
    assert "lost" in Result(None, None, None, f"{storage}/e").reports(rank=5, history="all").columns


def test_a_tool_that_does_not_answer_holds_no_run_up(tools, storage, place, monkeypatch):
    """It is at the first report until the training is over, for which the run has to commit a checkpoint."""
    answered = []

    def log(*_):
        answered.append(wait_until((place / "over").exists))

    nothing = lambda *_, **__: None
    made = types.SimpleNamespace(define_metric=nothing, log=log, finish=nothing)
    monkeypatch.setattr(sys.modules["wandb"], "init", lambda **_: made)

    def report():
        trainyard.report({"loss": 1})
        (place / "model").mkdir()
        trainyard.report({"loss": 2}, checkpoint=trainyard.Checkpoint(str(place / "model")))
        (place / "over").touch()

    run_config = RunConfig(storage_path=storage, callbacks=[integrations.WandbCallback()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = trainyard.DataParallelTrainer(report, run_config=run_config).fit()
    assert answered == [True, True] and result.checkpoint is not None
    assert pickle.loads(pickle.dumps(run_config)).storage_path == storage


def test_a_tool_that_does_not_keep_up_is_given_up(tools, storage, monkeypatch):
    monkeypatch.setattr(integrations, "_WAITING_MOST", 0)
    run_config = RunConfig(storage_path=storage, callbacks=[integrations.WandbCallback()])
    with pytest.warns(RuntimeWarning, match="WandbCallback: it does not keep up: 0 reports wait"):
        trainyard.DataParallelTrainer(lambda: trainyard.report({"a": 1}), run_config=run_config).fit()
    assert wait_until(lambda: tools.wandb[-1] == ("finish", (), {"exit_code": 1}))
