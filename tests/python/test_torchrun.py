"""`trainyard torchrun` and `python -m trainyard.torchrun` beside torchrun itself: what workers find, all-reduces, `@record`."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest
from conftest import BUILD, free_port

torch = pytest.importorskip("torch")

COMMAND = os.path.join(os.path.abspath(BUILD), "trainyard")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
TRAINYARD = [COMMAND, "torchrun"]
MODULE = [sys.executable, "-m", "trainyard.torchrun"]

TELL = """
import json, os, sys
with open(os.path.join(sys.argv[1], os.environ["RANK"]), "w") as file:
    json.dump(dict(os.environ), file)
"""

# Their values are ours: each run's own address and files; whose store it is, rank 0's; the threads of BLAS that are imported.
OWN = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID"}


@pytest.fixture
def environment(place):
    dropped = ("PET_", "TORCH", "TRAINYARD_", "OMP_", "MASTER_", "OMPI_", "JAX_")
    mine = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    own = {"HOME": place, "TMPDIR": place, "TRAINYARD_LEASE_DIR": place / "leases", "PYTHON_EXEC": sys.executable}
    return {**mine, **{name: str(value) for name, value in own.items()}}


def execute(words, place, environment):
    return subprocess.run([*map(str, words)], cwd=place, env=environment, capture_output=True, text=True, timeout=300)


def environments(launcher, options, place, environment):
    told = place / f"told-{len(list(place.iterdir()))}"
    told.mkdir()
    (place / "tell.py").write_text(TELL)
    finished = execute([*launcher, *options, place / "tell.py", told], place, environment)
    assert finished.returncode == 0, finished
    return [json.loads((told / name).read_text()) for name in sorted(os.listdir(told), key=int)]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--nproc_per_node=3", "--nnodes=1:1", "--max_restarts=4", "--role=trainer"],
        [
            "--nproc-per-node=2",
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=localhost:0",
            "--rdzv-id=seven",
            "--signals-to-handle=SIGTERM,SIGUSR1",
        ],
    ],
)
def test_what_workers_find_is_what_torchrun_gives(options, place, environment):
    theirs = environments(TORCHRUN, options, place, environment)
    ours = environments(TRAINYARD, options, place, environment)
    assert len(theirs) == len(ours)
    for their, our in zip(theirs, ours):
        set_by_torchrun = {name for name in their if environment.get(name) != their[name]}
        assert OWN <= set_by_torchrun | {"TORCHELASTIC_ERROR_FILE"}
        compared = set_by_torchrun - OWN - {"PYTHONPATH"}
        assert compared >= {"RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME"}
        assert {name: our.get(name) for name in compared} == {name: their[name] for name in compared}
        assert ("OMP_NUM_THREADS" in our) == ("OMP_NUM_THREADS" in their)
        if any(word.startswith("--rdzv-id") for word in options):
            assert our["TORCHELASTIC_RUN_ID"] == their["TORCHELASTIC_RUN_ID"] == "seven"


REDUCE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print("sum", int(total.item()), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("launcher", [TRAINYARD, MODULE], ids=["command", "module"])
def test_a_script_reduces(launcher, place, environment):
    (place / "reduce.py").write_text(REDUCE)
    finished = execute([*launcher, "--standalone", "--nproc_per_node=3", "reduce.py"], place, environment)
    assert finished.returncode == 0, finished
    assert finished.stdout.splitlines() == ["sum 6"] * 3


def two_machines(launcher, backend, script, *args, place, environment):
    """The same line twice on this one; both ends."""
    port = free_port()
    where = {
        "c10d": ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=9"],
        "static": ["--master-addr=127.0.0.1", f"--master-port={port}"],
    }[backend]
    started = []
    for rank in (1, 0):
        itself = [f"--node-rank={rank}"] if backend == "static" else []
        words = [*launcher, "--nnodes=2", "--nproc-per-node=2", *where, *itself, script, *args]
        started.append(
            subprocess.Popen(
                [*map(str, words)],
                cwd=place,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    ended = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0, 0], ended
    return "".join(out for out, _ in ended)


@pytest.mark.parametrize("backend", ["c10d", "static"])
def test_two_machines_find_what_torchrun_gives(backend, place, environment):
    (place / "tell.py").write_text(TELL)
    (place / "reduce.py").write_text(REDUCE)
    found = []
    for launcher in (TORCHRUN, TRAINYARD):
        told = place / f"told-{len(found)}"
        told.mkdir()
        two_machines(launcher, backend, "tell.py", told, place=place, environment=environment)
        assert sorted(os.listdir(told)) == ["0", "1", "2", "3"]
        found.append([json.loads((told / name).read_text()) for name in sorted(os.listdir(told))])
    for their, our in zip(*found):
        compared = {name for name in their if environment.get(name) != their[name]} - OWN - {"PYTHONPATH"}
        assert compared >= {"RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK"}
        assert {name: our.get(name) for name in compared} == {name: their[name] for name in compared}
    out = two_machines(TRAINYARD, backend, "reduce.py", place=place, environment=environment)
    assert out.splitlines() == ["sum 10"] * 4


def test_the_module_takes_its_own_interpreter(place, environment):
    (place / "who.py").write_text("import sys; print(sys.executable)")
    del environment["PYTHON_EXEC"]
    finished = execute([*MODULE, "who.py"], place, {**environment, "PATH": "/usr/bin:/bin"})
    assert (finished.returncode, finished.stdout) == (0, sys.executable + "\n"), finished
    finished = execute([*MODULE, "--nnodes=2", "who.py"], place, environment)
    assert finished.returncode == 2 and "--nnodes 2" in finished.stderr, finished


def test_the_script_of_the_page_goes_on_where_it_was(place, environment):
    """docs/torchrun.md, as it stands there: what an interrupted run says to go on with goes on."""
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "torchrun.md")) as page:
        (script,) = (text for text in re.findall(r"```python\n(.*?)```", page.read(), re.S) if "import torch" in text)
    (place / "train.py").write_text(script)
    command = place / "trainyard"  # as pip writes it
    command.write_text(f"#!{sys.executable}\nimport sys\nfrom trainyard._command import main\nsys.exit(main())\n")
    command.chmod(0o755)
    options, expected = ["--standalone", "--nproc-per-node", "2", "--name", "first", "train.py"], 0
    line = shlex.join([str(command), "torchrun", *options])
    for _ in range(2):
        run = subprocess.Popen(["sh", "-c", "exec env " + line], cwd=place, env=environment, stdout=-1, stderr=-1, text=True)
        epochs = [int(run.stdout.readline().split()[1]) for _ in range(2)]
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=300)
        assert (run.returncode, epochs[0]) == (130, expected), err
        (line,) = (said.partition("to go on: ")[2] for said in err.splitlines() if "to go on: " in said)
        assert f" {command} torchrun " in line
        directory = place / "trainyard_runs" / "first"
        expected = torch.load(sorted(directory.glob("checkpoint_*"))[-1] / "state.pt")["epoch"] + 1


SAVE = """
import os, sys, tempfile, time
import trainyard
saved = trainyard.get_checkpoint()
if saved:
    with saved.as_directory() as place:
        sys.exit(print(sys.argv[1], "from", open(os.path.join(place, "step")).read()))
with tempfile.TemporaryDirectory() as place:
    if os.environ["RANK"] == "0":
        with open(os.path.join(place, "step"), "w") as file:
            file.write("1")
    trainyard.report({"step": 1}, checkpoint=trainyard.Checkpoint(place))
open(os.path.join(os.environ["TELL"], os.environ["RANK"]), "w").close()
time.sleep(100000)
"""


def test_how_an_interrupted_run_goes_on_is_told(place, environment):
    """As a line that does it; without a name of its own the run could hardly be found."""
    script, told = place / "save.py", place / "told"
    script.write_text(SAVE)
    told.mkdir()
    environment["TELL"] = str(told)
    words = [*TRAINYARD, "--storage-path", place / "runs", "--nproc_per_node=2", script, "an argument"]
    process = subprocess.Popen([*map(str, words)], cwd=place, env=environment, stderr=subprocess.PIPE, text=True)
    while len(os.listdir(told)) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    (line,) = [line.partition("to go on: ")[2] for line in err.splitlines() if "to go on: " in line]
    words = shlex.split(line)
    assert words[:3] == ["PYTHON_EXEC=" + sys.executable, *TRAINYARD], line
    assert words[-3:] == ["--", str(script), "an argument"], line
    del environment["PYTHON_EXEC"]
    again = execute(["sh", "-c", line], place, environment)
    assert (again.returncode, again.stdout.splitlines()) == (0, ["an argument from 1"] * 2), again
