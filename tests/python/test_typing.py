"""What type checkers say of programs that use the package: nothing, at their strictest; and of a wrong one, what is wrong."""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def check(path, place):
    """mypy's lines about one program. The package is seen as an installed one is: its own insides are not judged."""
    config = place / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\n[mypy-trainyard.*]\nignore_errors = True\n[mypy-torch.*]\nfollow_imports = skip\n")
    words = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", place / "cache", "--no-error-summary", path]
    return subprocess.run(words, capture_output=True, text=True).stdout.splitlines()


def test_a_typical_program_is_without_reproach(tmp_path):
    assert check(HERE / "typed_program.py", tmp_path) == []


WRONG = {
    "trainyard.ScalingConfig(num_workers='four')": "num_workers",
    "trainyard.RunConfig(failure_config=3)": "failure_config",
    "trainyard.report(loss=3)": "loss",
    "a: int = trainyard.DataParallelTrainer(print).fit()": "Result",
    "b: int = trainyard.get_checkpoint()": "Checkpoint | None",
    "trainyard.get_context().get_rank()": "get_rank",
}


def test_what_is_wrong_is_told(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("\n".join(["import trainyard", *WRONG]))
    told = [text for text in check(program, tmp_path) if "error:" in text]
    assert len(told) == len(WRONG)
    for number, (text, what) in enumerate(zip(told, WRONG.values()), start=2):
        assert f"program.py:{number}: error:" in text and what in text
