"""E13: one of N C workers is killed; how soon all N are in their training function again, in the next attempt of the same run. And the
controller, the agent or all workers of a run are killed at one of their calls; how soon it has gone on to its end, by --resume."""
import os
import random
import signal
import subprocess
import sys
import time

from common import Summary, milliseconds
from subjects import Subjects

SIZES = (1, 8, 64)
REPEATS = 20
DEADLINE = 10
MOST = 0.050  # seconds
CRASH_POINTS = 200  # TRAINYARD_TEST_CRASH_POINTS: more
MOST_RECOVERY = 2.0


def _wait_again(subjects, child, before):
    """When all were in their training function with other pids than before (monotonic); None when that takes too long."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end and child.poll() is None:
        if before.isdisjoint(subjects.pids()):
            return time.monotonic()
        time.sleep(0.0005)
    return None


def _restart(bench, workers):
    """Seconds from the SIGKILL of one to all in their training function again; None: they did not come."""
    subjects = Subjects(bench, workers, "obey")
    command = bench.trainyard(workers, *subjects.argv, options=("--max-failures", "1"))
    child = bench.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        entries = subjects.wait_ready(child)
        if entries is None:
            return None
        killed = time.monotonic()
        os.kill(random.choice(entries).pid, signal.SIGKILL)
        again = _wait_again(subjects, child, {entry.pid for entry in entries})
        return again - killed if again else None
    finally:
        bench.end(child)
        subjects.close()


def run(bench):
    for workers in SIZES:
        times = [_restart(bench, workers) for _ in range(REPEATS)]
        came = Summary([t for t in times if t is not None], times.count(None))
        who = f"one of {workers} C workers" if workers > 1 else "the C worker"
        bench.row("E13", f"{who} killed, all in again", f"{milliseconds(came.median)} (p99 {milliseconds(came.quantile(.99))})",
                  "", f"<= {milliseconds(MOST)}", came.median <= MOST and not came.hangs, times=came.as_dict())


def run_crashes(bench):
    """The test of crash points does it; what it must never lose is its own affair, and then it fails."""
    test = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "e2e", "faults", "test_crash_points.py")
    path = os.path.join(bench.directory, "recoveries")
    points = os.environ.get("TRAINYARD_TEST_CRASH_POINTS", str(CRASH_POINTS))
    done = subprocess.run([sys.executable, test], capture_output=True, text=True,
                          env={**bench.environment, "TRAINYARD_BUILD": bench.build, "TRAINYARD_TEST_CRASH_POINTS": points,
                               "TRAINYARD_TEST_RECOVERIES": path})
    if not os.path.exists(path):
        raise RuntimeError(done.stderr[-500:])
    lost = "nothing lost" if done.returncode == 0 else done.stderr[-500:]
    with open(path) as file:
        took = Summary([float(line) for line in file])
    bench.row("E13", f"killed at {points} calls, gone on to the end", f"{milliseconds(took.median)} (p99 {milliseconds(took.quantile(.99))})",
              lost, f"p99 <= {MOST_RECOVERY:.0f} s", took.quantile(.99) <= MOST_RECOVERY and done.returncode == 0, times=took.as_dict())
