"""Results, from `fit` and from the run's directory."""

import base64
import datetime
import json
import os
import pickle
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import pytest
import trainyard
from conftest import BUILD
from trainyard import (
    Checkpoint,
    CheckpointConfig,
    DataParallelTrainer,
    Result,
    RunConfig,
    ScalingConfig,
    plot,
)
from trainyard.history import Attempt
from trainyard.result import rank

SCHEMA = """PRAGMA application_id = 1415146094; PRAGMA user_version = 1;
CREATE TABLE events(sequence INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, attempt INTEGER NOT NULL,
    rank INTEGER NOT NULL, node INTEGER NOT NULL, data TEXT);
CREATE TABLE reports(id INTEGER PRIMARY KEY, time INTEGER NOT NULL, attempt INTEGER NOT NULL, rank INTEGER NOT NULL,
    number INTEGER NOT NULL, metrics TEXT NOT NULL);
CREATE TABLE checkpoints(number INTEGER PRIMARY KEY, time INTEGER NOT NULL, attempt INTEGER NOT NULL, name TEXT NOT NULL,
    metrics TEXT);"""


def write_run(path, reports, checkpoints, events=()):
    """A run's directory with the tables that a result is read from."""
    path.mkdir()
    database = sqlite3.connect(path / "run.db")
    database.executescript(SCHEMA)
    for time, kind, attempt, data in events:
        database.execute(
            "INSERT INTO events (time, kind, attempt, rank, node, data) VALUES (?, ?, ?, -1, -1, ?)",
            (time * 10**9, kind, attempt, data),
        )
    for i, (number, metrics) in enumerate(reports):
        database.execute("INSERT INTO reports VALUES (?, 1, 1, 0, ?, ?)", (i + 1, number, metrics))
    for number, metrics in checkpoints:
        name = f"checkpoint_{number:06}"
        (path / name).mkdir()
        (path / name / "model").write_text("weights")
        (path / name / "latest").symlink_to("model")
        files = [{"path": "model", "size": 7}, {"path": "latest", "link": "model"}]
        (path / name / ".metadata.json").write_text(json.dumps({"trainyard": {"files": files}}))
        database.execute("INSERT INTO checkpoints VALUES (?, 1, 1, ?, ?)", (number, name, metrics))
    database.commit()
    database.close()
    return str(path)


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return open, (self.mark, "w")


def test_nothing_of_a_run_is_unpickled_by_who_looks_at_it(tmp_path):
    pickled = base64.b64encode(pickle.dumps(Trap(tmp_path / "mark"))).decode()
    for i, trap in enumerate(({"$pickle": pickled}, {"a": {"$pickle": pickled}, "$types": {"/a": "pickle"}})):
        text = json.dumps(trap)
        result = Result.from_path(write_run(tmp_path / f"run-{i}", [(1, text)], [(1, text)]))
        assert pickled in str(result.metrics) and pickled in str(result.best_checkpoints)
    assert not (tmp_path / "mark").exists()


ENDLESS = {"fifo": os.mkfifo, "device": lambda path: os.symlink("/dev/zero", path)}
LOOPS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS number, i AS id, 0 AS rank, 1 AS attempt,"
LOOK = "import sys, trainyard; trainyard.Result.from_path(sys.argv[1])"


def looked_at(path, guard=60):
    """The errors of who looks at the run, by Python and by the command; a look that does not end is none."""
    where = ["--storage-path", os.path.dirname(path), os.path.basename(path)]
    trainyard_command = os.path.join(BUILD, "trainyard")
    looks = [[sys.executable, "-W", "ignore", "-c", LOOK, path]]
    looks += [
        [trainyard_command, *words, *where] for words in (["status"], ["checkpoints", "list"], ["logs"])
    ]
    return [
        subprocess.run(look, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=guard).stderr
        for look in looks
    ]


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    """The directory of a run that ended in order."""

    def train():
        place = os.path.join(trainyard.get_context().get_storage().experiment_fs_path, "..", "source")
        os.makedirs(place)
        trainyard.report({"step": 1}, Checkpoint(place), delete_local_checkpoint_after_upload=True)
        print("said")

    storage = tmp_path_factory.mktemp("run")
    return DataParallelTrainer(train, run_config=RunConfig(storage_path=str(storage), name="r")).fit().path


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize(
    "name", ["run.db", "run.db-wal", "checkpoint_000001/.metadata.json", "logs/rank-0.log"]
)
def test_who_looks_at_a_run_reads_nothing_without_an_end(a_run, tmp_path, name, kind):
    path = tmp_path / "planted"
    shutil.copytree(a_run, path)
    (path / name).unlink(missing_ok=True)
    ENDLESS[kind](path / name)
    by_python, status, listed, logs = looked_at(str(path))
    if name.startswith("run.db"):
        assert "regular file" in by_python and "run.db" in status and "run.db" in listed
    if name.startswith("logs"):
        assert "it is no regular file" in logs


@pytest.mark.parametrize(
    "table, columns", [("reports", "'{}' AS metrics"), ("checkpoints", "'c' AS name, '{}' AS metrics")]
)
def test_a_view_in_place_of_a_table_is_not_read(a_run, tmp_path, table, columns):
    path = tmp_path / "planted"
    shutil.copytree(a_run, path)
    database = sqlite3.connect(path / "run.db")
    database.execute(f"ALTER TABLE {table} RENAME TO kept")
    database.execute(f"CREATE VIEW {table} AS {LOOPS} 0 AS time, {columns} FROM n")
    database.commit()
    database.close()
    by_python, status, listed, _ = looked_at(str(path))
    assert all("not the journal of a run" in said for said in (by_python, status, listed))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE reports SET metrics = '" + "[" * 100000 + "]" * 100000 + "'",
        "UPDATE reports SET metrics = x'80ff'",
        "UPDATE reports SET metrics = '{'",
        "UPDATE events SET data = '[]'",
        "UPDATE events SET data = '{}'",
        "UPDATE events SET time = 'noon'",
        "UPDATE checkpoints SET name = x'00ff'",
        "UPDATE checkpoints SET metrics = '{'",
        """UPDATE events SET data = json_set(data, '$.checkpoint_score_order', 'up') WHERE kind = 'run'""",
    ],
)
def test_a_journal_with_other_values_is_damaged(a_run, tmp_path, change):
    path = tmp_path / "planted"
    shutil.copytree(a_run, path)
    database = sqlite3.connect(path / "run.db")
    database.execute(change)
    database.commit()
    database.close()
    with pytest.raises(RuntimeError, match="run.db is damaged"):
        Result.from_path(path)


def test_metrics_have_the_same_types_in_the_callback_the_result_and_the_journal(storage):
    import numpy

    metrics = {"loss": numpy.float32(0.5), "pair": (1, 2.5), "when": datetime.date(2026, 1, 2)}

    class Recorder(trainyard.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            self.seen = metrics[0]

    callback = Recorder()
    trainer = DataParallelTrainer(
        lambda config: trainyard.report(config),
        train_loop_config=metrics,
        run_config=RunConfig(storage_path=storage, callbacks=[callback]),
    )
    result = trainer.fit()
    for seen in (callback.seen, result.metrics, Result.from_path(result.path).metrics):
        assert repr(seen) == repr(metrics)
    database = sqlite3.connect(f"{result.path}/run.db")
    assert database.execute("SELECT metrics->>'loss' FROM reports").fetchone() == (0.5,)
    database.close()


def test_fit_reads_nothing_back_and_gives_what_the_journal_says(storage, monkeypatch):
    """Also of a run that is resumed and says nothing new."""

    def train(config):
        for step in range(config["steps"]):
            with tempfile.TemporaryDirectory() as place:
                trainyard.report({"step": step, "loss": (1.5, 2)}, Checkpoint(place))

    def fit(steps, resume):
        config = RunConfig(
            name="r",
            storage_path=storage,
            resume=resume,
            checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="step"),
        )
        with monkeypatch.context() as patch:
            patch.setattr("trainyard._core.result_read", None)
            return DataParallelTrainer(train, train_loop_config={"steps": steps}, run_config=config).fit()

    for steps, resume in ((3, False), (0, True)):
        result = fit(steps, resume)
        assert result == Result.from_path(result.path)
        assert result.metrics == {"step": 2, "loss": (1.5, 2)} and len(result.best_checkpoints) == 2
    assert [attempt.outcome for attempt in result.history] == ["succeeded", "succeeded"]


def test_from_path(tmp_path):
    path = write_run(
        tmp_path / "run",
        [(1, '{"loss": 3}'), (2, '{"loss": "NaN"}'), (3, '{"loss": 1}')],
        [(1, '{"loss": 3}'), (3, '{"loss": 1}')],
    )
    result = Result.from_path(path)
    assert result.metrics == {"loss": 1} and result.error is None and result.path == path
    assert result.checkpoint == Checkpoint(f"{path}/checkpoint_000003")
    assert [metrics for _, metrics in result.best_checkpoints] == [{"loss": 3}, {"loss": 1}]
    assert result.get_best_checkpoint("loss", "max").path.endswith("1")
    assert result.get_best_checkpoint("loss", "min").path.endswith("3")
    with pytest.raises(RuntimeError, match="accuracy"):
        result.get_best_checkpoint("accuracy", "max")
    with pytest.raises(ValueError, match="mode"):
        result.get_best_checkpoint("loss", "best")
    with pytest.raises(RuntimeError, match="No checkpoint exists"):
        Result.from_path(write_run(tmp_path / "empty", [(1, "{}")], [])).get_best_checkpoint("loss", "max")


def test_from_path_ranks_as_the_last_run_did(tmp_path):
    score = '{"checkpoint_score_attribute": "loss", "checkpoint_score_order": "min"}'
    for name, rows, expected in (
        ("scored", ["{}", score], [3, 2, 1]),
        ("then by time", [score, "{}"], [2, 1, 3]),
        ("older journal", [None], [2, 1, 3]),
    ):
        events = [(i, "run", 0, data) for i, data in enumerate(rows)]
        checkpoints = [(i + 1, json.dumps({"loss": loss})) for i, loss in enumerate([2, 1, 3])]
        best = Result.from_path(write_run(tmp_path / name, [], checkpoints, events)).best_checkpoints
        assert [metrics["loss"] for _, metrics in best] == expected, name


def test_a_checkpoint_that_was_removed_is_not_there(tmp_path):
    path = write_run(tmp_path / "run", [], [(1, "{}"), (2, "{}")])
    shutil.rmtree(f"{path}/checkpoint_000001")
    result = Result.from_path(path)
    assert [checkpoint.path for checkpoint, _ in result.best_checkpoints] == [f"{path}/checkpoint_000002"]
    assert result.metrics is None


@pytest.mark.parametrize(
    "harm, why",
    [
        (lambda c: (c / "model").write_text("weigh"), "model has 5 bytes instead of 7"),
        (lambda c: (c / "model").unlink(), "model cannot be read: No such file"),
        (lambda c: ((c / "model").unlink(), (c / "model").mkdir()), "model is not the file"),
        (lambda c: ((c / "latest").unlink(), (c / "latest").symlink_to("x")), "latest is not the link"),
        (lambda c: (c / ".metadata.json").unlink(), ".metadata.json cannot be read"),
        (lambda c: (c / ".metadata.json").write_text('{"trainyard": {"fi'), ".metadata.json is damaged"),
        (lambda c: (c / ".metadata.json").write_text("[]"), ".metadata.json is damaged"),
        (lambda c: (c / ".metadata.json").write_bytes(b"\xff\x00"), ".metadata.json is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_told_and_left_out(tmp_path, harm, why):
    path = write_run(tmp_path / "run", [], [(1, '{"a": 1}'), (2, '{"a": 2}')])
    harm(tmp_path / "run" / "checkpoint_000002")
    with pytest.warns(RuntimeWarning, match="checkpoint_000002 is damaged.*" + why):
        result = Result.from_path(path)
    assert result.checkpoint == Checkpoint(f"{path}/checkpoint_000001")
    assert [metrics for _, metrics in result.best_checkpoints] == [{"a": 1}]


def test_a_checkpoint_outside_is_taken_as_it_is(tmp_path):
    path = write_run(tmp_path / "run", [], [])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "model").touch()
    with sqlite3.connect(tmp_path / "run" / "run.db") as database:
        database.execute("INSERT INTO checkpoints VALUES (1, 1, 1, ?, '{}')", (str(tmp_path / "elsewhere"),))
    assert Result.from_path(path).checkpoint == Checkpoint(str(tmp_path / "elsewhere"))


def test_history_from_path(tmp_path):
    events = [
        (1, "run", 0, "{}"),
        (2, "plan", 0, '{"nodes": ["n1", "n2"]}'),
        (3, "attempt", 1, '{"workers": 4, "nodes": 2, "reason": "start"}'),
        (5, "attempt_end", 1, '{"outcome": "failed", "status": 9, "rank": 3, "node": 1, "cause": "why"}'),
        (6, "attempt", 2, '{"workers": 4, "nodes": 2, "reason": "why", "checkpoint": "/c1"}'),
        (8, "launched", 2, None),
        (60, "run", 0, "{}"),
        (61, "plan", 0, '{"nodes": ["n3"]}'),
        (62, "attempt", 3, '{"workers": 2, "nodes": 1, "reason": "start"}'),
    ]
    failed, died, last = Result.from_path(write_run(tmp_path / "run", [], [], events)).history
    assert failed == Attempt(1, 4, 3.0, 5.0, "failed", 3, "n2", "why") and failed.seconds == 2
    assert died == Attempt(2, 4, 6.0, 8.0, "died", cause="its controller died", checkpoint="/c1")
    assert last == Attempt(3, 2, 62.0) and last.seconds is None


def test_from_path_refuses(tmp_path):
    with pytest.raises(RuntimeError, match="doesn't exist"):
        Result.from_path(tmp_path / "none")
    with pytest.raises(RuntimeError, match="run.db"):
        Result.from_path(tmp_path)
    with pytest.raises(RuntimeError, match=f"{tmp_path}/none doesn't exist"):
        Result.from_path("~/none")  # HOME is tmp_path
    with pytest.raises(RuntimeError, match=f"folder {tmp_path} holds no run"):
        Result.from_path(f"file://{tmp_path}")
    with pytest.raises(ValueError, match="is no address of a file system"):
        Result.from_path("nosuch://bucket/run")
    (tmp_path / "run.db").write_text("no database at all, but long enough to be looked at as one")
    with pytest.raises(RuntimeError, match="cannot be read"):
        Result.from_path(tmp_path)


def test_dataframe_needs_pandas_only_when_there_is_something(tmp_path):
    assert Result(None, None, None, None).metrics_dataframe is None
    result = Result(None, None, None, None, [(Checkpoint("/x"), {"loss": 1})])
    try:
        import pandas  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pandas"):
            result.metrics_dataframe  # noqa: B018
    else:
        assert list(result.metrics_dataframe["loss"]) == [1]
    with pytest.raises(DeprecationWarning):
        result.config  # noqa: B018


def test_ranking():
    rows = [(i, {"score": score}) for i, score in enumerate([3, 1, None, 2])]
    order = lambda **fields: [i for i, _ in rank(rows, CheckpointConfig(**fields))]
    assert order() == [0, 1, 2, 3]
    assert order(checkpoint_score_attribute="score") == [2, 1, 3, 0]
    assert order(checkpoint_score_attribute="score", checkpoint_score_order="min") == [2, 0, 3, 1]


def test_ranking_is_that_of_the_controller():
    values = [
        {"a/b": 3},
        {"a": {"b": float("inf")}},
        {"a": 1},
        {"a": {"b": True}},
        {"a": {"b": float("nan")}},
    ]
    ranked = rank(list(enumerate(values)), CheckpointConfig(checkpoint_score_attribute="a/b"))
    assert [i for i, _ in ranked] == [2, 4, 3, 0, 1]  # True is 1, as in Ray Train


def test_of_a_run(storage):
    def train():
        for step in range(3):
            trainyard.report({"loss": 1 / (step + 1), "inf": float("inf")})

    scaling, run = ScalingConfig(num_workers=2), RunConfig(storage_path=storage, name="mine")
    result = DataParallelTrainer(train, scaling_config=scaling, run_config=run).fit()
    assert result.path == f"{storage}/mine" and result.metrics == {"loss": 1 / 3, "inf": float("inf")}
    assert result.checkpoint is None and result.metrics_dataframe is None and result.best_checkpoints == []
    assert Result.from_path(result.path).metrics == result.metrics
    assert "loss" in repr(result)


def write_curves(place):
    reports = [(n, json.dumps({"loss": "NaN" if n == 7 else 2 / n, "a<b": n})) for n in range(1, 21)]
    return write_run(place / "run", reports, [], [(1, "run", 0, json.dumps({"name": "run"}))])


def test_a_curve_of_a_sample_says_so():
    line = {"metric": "loss", "x": [1, 2], "min": [1, 1], "mean": [1, 1], "max": [1, 1], "lost": False}
    for exact, scanned, told in ((False, 0.0041, "loss (sampled 0.41 %)"), (True, 1, "loss")):
        shown = plot.Plot([{"series": [line], "marks": [], "x": "step", "exact": exact, "scanned": scanned}])
        assert next(xml.etree.ElementTree.fromstring(shown.svg).itertext()) == told
        if plot._has_matplotlib():
            assert shown.figure.axes[0].get_title() == told


def curve_of(x, values, over="step"):
    line = {"metric": "loss", "x": x, "min": values, "mean": values, "max": values, "lost": False}
    return plot.Plot([{"series": [line], "marks": [], "x": over, "exact": True, "scanned": 1}])


@pytest.mark.parametrize("values", [[1e300] * 3, [2.0**70] * 3, [-1.7e308, 1, 1.7e308], [5e-324, 0, 5e-324]])
def test_a_curve_of_any_double(values):
    """One that does not rise where a half is nothing; one whose range is no double."""
    shown = curve_of([1, 2, 3], values)
    assert not re.search("nan|inf", shown.svg)
    xml.etree.ElementTree.fromstring(shown._repr_svg_())
    assert curve_of([2**60], [1]).svg


def test_a_name_in_any_script_is_text(place, recwarn):
    """Also where matplotlib has no font for it."""
    shown = curve_of([1, 2], [1, 2])
    shown.curves[0]["series"][0]["metric"] = "größe/内存"
    shown.save(place / "curves.svg")
    for picture in (shown._repr_svg_(), (place / "curves.svg").read_text()):
        assert "größe/内存" in "".join(xml.etree.ElementTree.fromstring(picture).itertext())
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_a_curve_over_the_clock():
    first = 1_764_000_000
    at = lambda seconds, form="%H:%M:%S": datetime.datetime.fromtimestamp(first + seconds).strftime(form)
    for last, ends in ((100, [at(0), at(100)]), (400_000, [at(0, "%m-%d %H:%M"), at(400_000, "%m-%d %H:%M")])):
        shown = curve_of([first, first + last], [1, 2], "time")
        text = list(xml.etree.ElementTree.fromstring(shown.svg).itertext())
        assert [text[2], text[-1]] == ends
        if plot._has_matplotlib():
            axes = shown.figure.axes[0]
            axes.set_xlim(first, first + last)
            assert axes.xaxis.get_major_formatter()(first, 0) == ends[0]


@pytest.mark.parametrize("matplotlib", [True, False])
def test_the_curves(place, monkeypatch, matplotlib):
    """They are those of the page, whoever draws them."""
    if not matplotlib:
        monkeypatch.setattr("trainyard.plot._has_matplotlib", lambda: False)
    plot = Result.from_path(write_curves(place)).plot()
    assert repr(plot) == "Plot(loss, a<b)"
    [loss] = plot.curves[0]["series"]
    assert (loss["n"], loss["nonfinite"], loss["max"][0]) == ([1] * 6 + [0] + [1] * 13, [0] * 6 + [1] + [0] * 13, 2)
    picture = xml.etree.ElementTree.fromstring(plot._repr_svg_())
    assert picture.tag.endswith("svg")
    text = " ".join(picture.itertext())
    assert not re.search("script|href", plot.svg) and "a<b" in " ".join(xml.etree.ElementTree.fromstring(plot.svg).itertext())
    if matplotlib:
        loss, other = plot.figure.axes
        assert (loss.get_title(), other.get_title(), list(loss.lines[0].get_ydata())[:2]) == ("loss", "a<b", [2, 1])
        assert len(loss.collections) == 1 and loss.lines[1].get_marker() == "v"  # the band, and what is not finite
        plot.save(place / "curves.png")
        assert (place / "curves.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert "loss" in text
        plot.save(place / "curves.svg")
        assert (place / "curves.svg").read_text() == plot.svg


def test_chosen_curves(place):
    result = Result.from_path(write_curves(place))
    plot = result.plot("a<b", x="number", history="all")
    assert [(curve["x"], curve["series"][0]["x"][:2]) for curve in plot.curves] == [("number", [1, 2])]
    assert result.plot(["loss", "none"]).curves[1]["series"][0]["x"] == []
    assert result.plot(["loss", "none"]).svg
    for wrong in ({"metrics": 3}, {"metrics": [b"loss"]}, {"history": "some"}):
        with pytest.raises((ValueError, TypeError)):
            result.plot(**wrong)
    with pytest.raises(RuntimeError, match="nowhere"):
        result.plot(x="nowhere")
    os.remove(place / "run" / "run.db")
    with pytest.raises(RuntimeError, match="cannot be read"):
        result.plot()
    with pytest.raises(RuntimeError, match="num_workers=0"):
        Result(None, None, None, None).plot()


def test_what_is_no_name_of_a_metric(place):
    result = Result.from_path(write_curves(place))
    with pytest.raises(ValueError, match="`metrics` must be a name or a list of names, not 3"):
        result.plot(3)
    with pytest.raises(ValueError, match="`metric` must be a name, not 3"):
        result.get_best_checkpoint(3, "max")
    with pytest.raises(ValueError, match=r"`Result.from_path\(path\)` must be a path, not int"):
        Result.from_path(3)


def test_curves_that_do_not_come(place, monkeypatch):
    command = place / "command"
    command.write_text("#!/bin/sh\nexec sleep 600\n")
    command.chmod(0o755)
    monkeypatch.setattr("trainyard.plot._command.path", lambda: str(command))
    monkeypatch.setattr("trainyard.plot._LIMIT_S", 0.2)
    with pytest.raises(RuntimeError, match="the curves cannot be read: .*/run does not answer within 0.2 s"):
        Result.from_path(write_curves(place)).plot()
