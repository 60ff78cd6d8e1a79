"""What type checkers say of programs that use the package: nothing, at their strictest; and of a wrong one, what is wrong."""

import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


WRONG = {
    "trainyard.ScalingConfig(num_workers='four')": "num_workers",
    "trainyard.RunConfig(failure_config=3)": "failure_config",
    "trainyard.report(loss=3)": "loss",
    "a: int = trainyard.DataParallelTrainer(print).fit()": "Result",
    "b: int = trainyard.get_checkpoint()": "Checkpoint | None",
    "trainyard.get_context().get_rank()": "get_rank",
    "trainyard.ScalingConfig(resources_per_worker={'CPU': 'two'})": 'expected "str": "float"',
    "c: str = trainyard.Result.from_path('a').history[0].seconds": "float | None",
    "trainyard.init(num_cpus='4')": "num_cpus",
    "trainyard.DataParallelTrainer(print, train_loop_config=3)": "train_loop_config",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """mypy's lines by the program's name. The package is seen as an installed one is: its own insides are not judged."""
    place = tmp_path_factory.mktemp("typing")
    config, wrong = place / "mypy.ini", place / "wrong.py"
    config.write_text("[mypy]\nstrict = True\n[mypy-trainyard.*]\nignore_errors = True\n[mypy-torch.*]\nfollow_imports = skip\n")
    wrong.write_text("\n".join(["import trainyard", *WRONG]))
    words = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", "/dev/null", "--no-error-summary"]
    programs = [HERE / "typed_program.py", wrong]
    finished = subprocess.run([*words, *programs], capture_output=True, text=True)
    assert finished.returncode == 1, finished.stderr
    lines = finished.stdout.splitlines()
    return {path.name: [line for line in lines if path.name in line.partition(":")[0]] for path in programs} | {"all": lines}


def test_a_typical_program_is_without_reproach(told):
    assert told["typed_program.py"] == []


def test_what_is_wrong_is_told(told):
    errors = [text for text in told["wrong.py"] if "error:" in text]
    assert len(errors) == len(WRONG)
    assert all("wrong.py" in line.partition(":")[0] for line in told["all"])
    for number, (text, what) in enumerate(zip(errors, WRONG.values()), start=2):
        assert f"wrong.py:{number}: error:" in text and what in text
