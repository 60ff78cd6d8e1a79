"""`fit` in a Jupyter kernel: functions of cells, output where `print` goes, the table, and an interrupt."""

import sys

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

SETUP = """
import os, time, trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig
trainyard.init(num_cpus=8)
def fit(function, **run):
    run_config = RunConfig(storage_path="runs", **run)
    return DataParallelTrainer(function, scaling_config=ScalingConfig(num_workers=2), run_config=run_config).fit()
"""


@pytest.fixture
def run(place, monkeypatch):
    """run(*cells): executes them in a kernel of their own; the cells with what they gave."""
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(place / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(place / "jupyter"))
    kernel = place / "kernels" / "here"
    kernel.mkdir(parents=True)
    argv = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (kernel / "kernel.json").write_text(f'{{"argv": {argv}, "display_name": "here", "language": "python"}}')
    monkeypatch.setenv("JUPYTER_PATH", str(place))

    def run(*cells, **options):
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in (SETUP, *cells)]
        )
        client = nbclient.NotebookClient(
            notebook,
            timeout=300,
            startup_timeout=180,
            kernel_name="here",
            resources={"metadata": {"path": str(place)}},
            **options,
        )
        client.execute()
        return notebook.cells[1:]

    return run


def text_of(cell, name):
    return "".join(
        output["text"] for output in cell.outputs if output.output_type == "stream" and output.name == name
    )


def test_a_function_of_a_cell(run):
    train = """
def train():
    print("hello from", trainyard.get_context().get_world_rank())
    trainyard.report({"loss": 0.25})
result = fit(train, name="mine")
"""
    first, second, third = run(train, "print(result.metrics)", "result.plot()")
    assert "[rank 0] hello from 0\n" in text_of(first, "stdout")
    assert "[rank 1] hello from 1\n" in text_of(first, "stdout")
    [table] = [output for output in first.outputs if output.output_type == "display_data"]
    assert "finished" in table.data["text/plain"] and "loss=0.25" in table.data["text/plain"]
    assert "<table>" in table.data["text/html"] and "mine" in table.data["text/html"]
    assert "<svg" in table.data["text/html"] and "loss" in table.data["text/html"].split("<svg")[1]
    assert text_of(second, "stdout") == "{'loss': 0.25}\n"
    assert "<svg" in third.outputs[0].data["image/svg+xml"]


def test_a_failure_is_the_exception(run):
    cells = run(
        "def train():\n    raise ValueError('boo')\nfit(train, progress='none')",
        "print('goes on')",
        allow_errors=True,
    )
    [error] = [output for output in cells[0].outputs if output.output_type == "error"]
    assert error.ename == "WorkerGroupError" and "boo" in error.evalue
    assert not [output for output in cells[0].outputs if output.output_type == "display_data"]
    assert text_of(cells[1], "stdout") == "goes on\n"


def test_an_interrupt_ends_the_run(run):
    train = """
import signal, threading
def train():
    open(f"started-{trainyard.get_context().get_world_rank()}", "w").close()
    time.sleep(600)
def interrupt():
    while not (os.path.exists("started-0") and os.path.exists("started-1")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
fit(train)
"""
    interrupted, again = run(
        train, "print(fit(lambda: trainyard.report({'a': 1})).metrics)", allow_errors=True
    )
    [error] = [output for output in interrupted.outputs if output.output_type == "error"]
    assert error.ename == "KeyboardInterrupt"
    assert "{'a': 1}\n" in text_of(again, "stdout")


def test_a_notebook_has_no_standard_input(run):
    cells = run("fit(print, debug=0)", "fit(print, stdin='all')", "print(os.path.exists('runs'))", allow_errors=True)
    for cell, name in zip(cells, ("debug", "stdin")):
        [error] = [output for output in cell.outputs if output.output_type == "error"]
        assert error.ename == "ValueError" and f"`RunConfig.{name}`" in error.evalue and "trainyard attach" in error.evalue
    assert text_of(cells[2], "stdout") == "False\n"


def test_a_picture_in_the_table_leaves_the_rest_of_the_page_alone():
    notebook, plot = pytest.importorskip("trainyard.notebook"), pytest.importorskip("trainyard.plot")
    series = [{"metric": "loss", "x": [1, 2], "min": [1, 2], "mean": [1, 2], "max": [1, 2]}]
    whole = plot.Plot([{"series": series, "marks": [], "x": "step"}])._repr_svg_()
    inside = notebook._inline(whole)
    assert inside.startswith("<svg") and inside.endswith(whole[-20:]) and "<style" not in inside
    assert "stroke-linejoin: round" in inside.partition(">")[0]


def test_the_table_of_many_ranks_shows_the_odd_ones_and_counts_the_rest():
    from types import SimpleNamespace

    from trainyard.notebook import Display

    display = Display(SimpleNamespace(quiet=False, progress="none"), lambda: "")
    display.take({"event": "run", "name": "large"})
    display.take({"event": "attempt", "workers": 10_000})
    for rank in range(10_000):
        display.take({"event": "ready", "rank": rank})
    display.take({"event": "exited", "rank": 7777, "code": 3})
    head, names, *rows = repr(display).split("\n")
    assert head == "large: 10000 ranks, 9999 running, 1 failed with 3"
    assert len(rows) == 64 and rows[0].split()[:2] == ["0", "running"] and rows[-1].startswith("7777  failed with 3")
    assert display._repr_html_().count("<tr>") == 65 and len(display._repr_html_()) < 10_000
    display.take({"event": "attempt", "workers": 2})
    assert repr(display).split("\n") == ["large", names, "0  starting", "1  starting"]
