"""What a program is told in words: the end of a run, how to go on, a name that exists, a name that is none."""

import ast
import builtins
import importlib
import os
import pathlib
import re
import signal

import pytest
import trainyard
from conftest import wait_until
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"

PROGRAM = """
    import os, time
    from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, report

    def train():
        report({"loss": 0.25, "step": 7})
        if "HANG" in os.environ and not os.path.exists(os.environ["PLACE"] + "/up"):
            open(os.environ["PLACE"] + "/up", "w").close()
            time.sleep(600)

    config = dict(run_config)
    DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=1), run_config=RunConfig(**config)).fit()
"""


def test_the_program_of_the_readme_runs_twice(start):
    [program] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    for _ in range(2):
        finished = start(program).finish()
        assert finished.status == 0, finished
        assert re.search(r"trainyard: run-\S+ succeeded in [0-9.]+ \w+: loss [0-9.e+-]+; /", finished.err), (
            finished
        )
        assert 0 <= float(finished.out.splitlines()[-1]) < 100


PAGES = [README, *sorted((README.parent / "docs").glob("*.md"))]
PROGRAMS = [
    pytest.param(program, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), start=1)
]
THE_READER_S = {"batches", "train", "normalize", "filesystem", "loss", "directory"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_of_the_pages_work_as_they_stand(program):
    """All names in them are imported, or the reader's own, and what they ask of the package is there."""
    nodes = list(ast.walk(ast.parse(program)))
    imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    made |= {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    assert used - made - THE_READER_S - set(dir(builtins)) == set()
    for node in imports:
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "trainyard":
            for alias in node.names:
                assert getattr(importlib.import_module(node.module), alias.name)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "trainyard":
            assert getattr(trainyard, node.attr)


def test_a_run_that_succeeded_is_told(start, storage):
    text = PROGRAM.replace("dict(run_config)", repr({"name": "mine", "storage_path": storage}))
    finished = start(text).finish()
    assert re.search(
        rf"^trainyard: mine succeeded in [0-9.]+ \w+: loss 0.25  step 7; {storage}/mine$", finished.err, re.M
    ), finished
    for name, silent in (("a", {"quiet": True}), ("b", {"progress": "none"})):
        text = PROGRAM.replace("dict(run_config)", repr({"name": name, "storage_path": storage, **silent}))
        finished = start(text).finish()
        assert finished.status == 0 and finished.err == "", finished


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_goes_on_is_told(start, place, storage, number):
    config = {"name": "it's", "storage_path": storage, "grace_s": 1}
    script = start(PROGRAM.replace("dict(run_config)", repr(config)), HANG="1")
    assert wait_until(lambda: (place / "up").exists() or script.process.poll() is not None)
    assert script.process.poll() is None
    script.process.send_signal(number)
    finished = script.finish()
    told = re.search(r"^trainyard: to go on: fit again with (RunConfig\(.*\))$", finished.err, re.M)
    assert told is not None and finished.status != 0, finished
    again = eval(told[1], {"RunConfig": RunConfig})
    assert (again.name, again.storage_path, again.resume) == ("it's", storage, True)
    text = PROGRAM.replace("RunConfig(**config)", told[1])
    assert "it's succeeded in " in start(text.replace("dict(run_config)", "{}")).finish().err


def test_a_name_that_exists(storage):
    def train():
        pass

    def fit(**more):
        config = RunConfig(name="first", storage_path=storage, progress="none", **more)
        return DataParallelTrainer(
            train, scaling_config=ScalingConfig(num_workers=1), run_config=config
        ).fit()

    fit()
    with pytest.raises(FileExistsError) as caught:
        fit()
    assert "exists already" in str(caught.value) and "--" not in str(caught.value)
    assert 'resume=True beside name="first"' in str(caught.value) and "another name" in str(caught.value)
    assert fit(resume=True).path == os.path.join(storage, "first")


@pytest.mark.parametrize(
    "module, name, near",
    [
        ("trainyard", "Scalingconfig", "ScalingConfig"),
        ("trainyard", "get_contxt", "get_context"),
        ("trainyard", "pytorch", None),
        ("trainyard", "Torch", "torch"),
        ("trainyard.torch", "TorchTrianer", "TorchTrainer"),
        ("trainyard.jax", "JaxTrain", "JaxTrainer"),
        ("trainyard", "TorchTrainer", "torch.TorchTrainer"),
        ("trainyard", "prepare_modl", "torch.prepare_model"),
        ("trainyard", "frobnicate", None),
    ],
)
def test_a_name_that_is_none(module, name, near):
    with pytest.raises(AttributeError) as caught:
        getattr(__import__(module, fromlist=["x"]), name)
    assert str(caught.value).startswith(f"module {module!r} has no attribute {name!r}")
    if near is None:
        assert "TorchTrainer" not in str(caught.value)
    else:
        assert f"did you mean {near!r}?" in str(caught.value)
        module, _, last = f"{module}.{near}".rpartition(".")
        assert hasattr(__import__(module, fromlist=["x"]), last)
    assert not hasattr(trainyard, "__frobnicate__")


def test_a_working_directory_that_was_deleted(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError, match="the working directory, and that was deleted: change to another"):
        DataParallelTrainer(print, run_config=RunConfig(name="r", storage_path=str(tmp_path / "runs"))).fit()
    assert not (tmp_path / "runs").exists()


def test_outside_of_a_training_function():
    with pytest.raises(RuntimeError, match="outside of a Trainyard training function"):
        trainyard.report({"loss": 1})
