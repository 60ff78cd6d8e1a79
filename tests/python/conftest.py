"""What all tests of the package use: a place of their own, and the proof that nothing is left of a run.

Each test gets a directory with its own HOME, storage path and leases. The path is in the environment of every process that the
test starts, so that a process which outlives the test is found by it.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest

BUILD = os.environ.get("TRAINYARD_BUILD", os.path.join(os.path.dirname(__file__), "..", "..", "build"))
PACKAGE = os.path.join(os.path.abspath(BUILD), "python")
sys.path.insert(0, PACKAGE)
os.environ["PYTHONPATH"] = PACKAGE

# Tests under nohup, or behind a shell's "&", hear neither of these, and neither would the programs that they start.
for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)

DROPPED = ("TRAINYARD_", "CUDA_", "HIP_", "RAY_", "TPU_", "JAX_", "MASTER_")
RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "OMP_NUM_THREADS")


def processes_with(mark):
    """Pids of other processes whose environment holds `mark`, those aside that rest for the next run of this process."""
    found, mark = [], mark.encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark not in file.read():
                    continue
            with open(f"/proc/{name}/stat") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.append(int(name))
    return found


def tpu_hosts(slices):
    """Nodes of a cluster file: v6e slices of 4x4 chips, four hosts of four chips each."""
    return [
        {
            "name": f"{name}-{host}",
            "resources": {"CPU": 8, "TPU": 4},
            "accelerator_type": "TPU-V6E",
            "labels": {
                "ray.io/tpu-slice-name": name,
                "ray.io/tpu-worker-id": str(host),
                "ray.io/tpu-pod-type": "v6e-16",
                "ray.io/tpu-topology": "4x4",
            },
        }
        for name in slices
        for host in range(4)
    ]


def wait_until(condition, seconds=180):
    """What the condition gives as soon as it is true, or after the time."""
    deadline = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        if (value := condition()) or asked > deadline:
            return value
        time.sleep(max(0.01, min(3 * (time.monotonic() - asked), 0.5)))  # what is waited for has most of the processor


def join_readers():
    """Waits for the threads of iterations that were left: what they have read ahead is let go of by them, a moment later."""
    for thread in threading.enumerate():
        if thread.name == "trainyard-data":
            thread.join(60)


def free_port():
    """Which the kernel gives to nobody else before the end of this program; who sets SO_REUSEADDR may listen there."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))
    atexit.register(one.close)
    return one.getsockname()[1]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The directory of this test."""
    for name in list(os.environ):
        if name.startswith(DROPPED) or name in RANKS:
            monkeypatch.delenv(name)
    for name, value in {
        "HOME": tmp_path,
        "TMPDIR": tmp_path,
        "TRAINYARD_CONFIG": "",
        "TRAINYARD_LEASE_DIR": tmp_path / "leases",
        "PLACE": tmp_path,
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    from trainyard import defaults

    monkeypatch.setattr(defaults, "current", defaults.Defaults(num_cpus=64))
    yield tmp_path


@pytest.fixture
def common_directory(place, tmp_path_factory, monkeypatch):
    """A working directory for all tests that use it: a zygote, and what it has imported, serves the runs from one directory."""
    monkeypatch.chdir(tmp_path_factory.getbasetemp())


def fit(storage, train, workers=2, config=None, **run):
    """The result of a run of this name, "run"."""
    from trainyard import DataParallelTrainer, RunConfig, ScalingConfig

    return DataParallelTrainer(
        train,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=storage, name="run", **run),
    ).fit()


@pytest.fixture
def storage(place):
    return str(place / "runs")


class Finished:
    """A script that ended."""

    def __init__(self, process, out, err):
        self.status, self.out, self.err = process.returncode, out, err

    def __repr__(self):
        return f"exit status {self.status}\n--- stdout\n{self.out[-4000:]}--- stderr\n{self.err[-4000:]}"


class Script:
    """A program of a user in a process of its own."""

    def __init__(self, place, text, *arguments, **environment):
        self._place = place
        path = place / "script.py"
        path.write_text(textwrap.dedent(text))
        self.process = subprocess.Popen(
            [sys.executable, str(path), *arguments],
            cwd=place,
            env={**os.environ, **environment},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
        )

    def finish(self, timeout=300):
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            for pid in [self.process.pid, *processes_with(str(self._place))]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            out, err = self.process.communicate()
            pytest.fail(f"did not end in {timeout} s: {Finished(self.process, out, err)!r}")
        return Finished(self.process, out, err)


@pytest.fixture
def start(place):
    """start(text, *arguments, **environment): a script on its way; nothing of it is left after the test."""
    yield lambda text, *arguments, **environment: Script(place, text, *arguments, **environment)
    left = lambda: [pid for pid in processes_with(str(place)) if f"PLACE={place}" in _environ(pid)]
    wait_until(lambda: not left(), 60)
    outlived = left()
    for pid in outlived:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert outlived == [], "processes outlived the test"


@pytest.fixture
def ray(place):
    """ray(text): what a program for Ray prints as its last line, as JSON."""

    def run(text):
        (place / "program.py").write_text(
            "import ray, ray.train, json, os, tempfile\n"
            "from ray.train import Checkpoint, RunConfig, ScalingConfig\n"
            "from ray.train.data_parallel_trainer import DataParallelTrainer\n" + textwrap.dedent(text)
        )
        words = [sys.executable, "-m", "trainyard.as_ray", "--num-cpus", "8", "program.py"]
        finished = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=300)
        assert finished.returncode == 0, finished.stderr
        return json.loads(finished.stdout.splitlines()[-1])

    return run


def _environ(pid):
    try:
        with open(f"/proc/{pid}/environ", errors="replace") as file:
            return file.read().split("\0")
    except OSError:
        return []
