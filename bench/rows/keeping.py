"""Living with runs: `status` and `prune` over 10,000 of them, beside `rm -r` of the same; and from a wheel to the first step that was
trained, in an environment that has nothing yet."""
import glob
import os
import shutil
import subprocess
import sys
import time

from common import Skip, Summary, milliseconds

RUNS = 10000
REPEATS = 10
ROUNDS = 4
STATUS_WITHIN = 0.3
PRUNE_SLACK = 1.25  # of the time of rm, which looks into nothing
INSTALL_WITHIN = 10
WHEEL_WITHIN = 5e6
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEP = """
import trainyard
def train():
    trainyard.report({"loss": 1.0})
if __name__ == "__main__":
    trainer = trainyard.DataParallelTrainer(train, run_config=trainyard.RunConfig(storage_path=%r, progress="none"))
    assert trainer.fit().metrics == {"loss": 1.0}
"""


def _timed(*words):
    begin = time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def _many_runs(bench, place):
    """10,000 directories of real runs: one was run, the others are its copies."""
    command = os.path.join(bench.build, "trainyard")
    subprocess.run([command, "run", "-n", "2", "--name", "run-0", "--storage-path", place, "--progress", "none", "--",
                    "/bin/true"], check=True, env=bench.environment)
    for i in range(1, RUNS):
        shutil.copytree(os.path.join(place, "run-0"), os.path.join(place, f"run-{i}"))


def _parts(place):
    """The runs in so many storage paths as there are rounds, each with a copy."""
    for i in range(ROUNDS):
        part = f"{place}-{i}"
        os.mkdir(part)
        for n in range(i, RUNS, ROUNDS):
            os.rename(os.path.join(place, f"run-{n}"), os.path.join(part, f"run-{n}"))
        shutil.copytree(part, part + "-copy")
        yield part, part + "-copy"


def run(bench):
    """What removes is timed in rounds of runs that lie on the disk: each side first in every other one, and on the copies in
    every other two."""
    command, place = os.path.join(bench.build, "trainyard"), bench.storage() + "/many"
    _many_runs(bench, place)
    status = Summary(_timed(command, "status", "--storage-path", place) for _ in range(REPEATS))
    bench.row("keeping", f"status of {RUNS} runs", milliseconds(status.median), "", f"<= {STATUS_WITHIN} s",
              status.median <= STATUS_WITHIN, status=status.as_dict())
    prune = remove = 0
    parts = list(_parts(place))
    os.sync()
    for i, pair in enumerate(parts):
        pruned, removed = pair if i < ROUNDS // 2 else pair[::-1]
        if i % 2:
            remove += _timed("rm", "-r", removed)
        prune += _timed(command, "prune", "--storage-path", pruned, "--yes")
        if not i % 2:
            remove += _timed("rm", "-r", removed)
    bench.row("keeping", f"prune of {RUNS} runs", milliseconds(prune), f"rm -r {milliseconds(remove)} {prune / remove:.2f}x",
              f"<= {PRUNE_SLACK} x rm", prune <= remove * PRUNE_SLACK, prune=prune, rm=remove)


def run_install(bench):
    wheels = sorted(glob.glob(os.path.join(ROOT, "dist", "trainyard-*manylinux*.whl")))
    if not wheels:
        raise Skip("no wheel in dist/: scripts/wheel makes one")
    place = bench.storage() + "/install"
    os.makedirs(place)
    subprocess.run([sys.executable, "-m", "venv", place + "/venv"], check=True)
    with open(place + "/step.py", "w") as file:
        file.write(STEP % (place + "/runs"))
    took = _timed(place + "/venv/bin/pip", "install", "-q", wheels[-1]) + _timed(place + "/venv/bin/python", place + "/step.py")
    size = os.path.getsize(wheels[-1])
    bench.row("install", "wheel to the first step", milliseconds(took), "", f"<= {INSTALL_WITHIN} s", took <= INSTALL_WITHIN, took=took)
    bench.row("install", "size of the wheel", f"{size / 1e6:.2f} MB", "", "< 5 MB", size < WHEEL_WITHIN, size=size)
