"""Memory and idle CPU of controller and agent while workers wait."""
import os
import subprocess
import time

from common import Skip, children
from subjects import Subjects

FEW, MANY = 64, 512
LIMIT_MIB = 16
SLOPE_KIB = 64
IDLE_SECONDS = 3


def _memory(pid):
    """(resident, proportional) KiB."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        fields = {line.split(":")[0]: line.split()[1] for line in f if line.startswith(("Rss", "Pss:"))}
    return int(fields["Rss"]), int(fields["Pss"])


def _switches(pid):
    """Context switches of all threads, wanted or not."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as f:
            total += sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
    return total


def _look(bench, n):
    """(resident KiB, proportional KiB, switches while idle) of controller and agents."""
    subjects = Subjects(bench, n, "obey")
    child = bench.start(bench.trainyard(n, *subjects.argv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if subjects.wait_ready(child) is None:
            raise Skip(f"{n} workers did not come up")
        time.sleep(1)
        pids = [child.pid, *children(child.pid)]
        before = sum(map(_switches, pids))
        time.sleep(IDLE_SECONDS)
        switches = sum(map(_switches, pids)) - before
        resident, proportional = map(sum, zip(*map(_memory, pids)))
        return resident, proportional, switches
    finally:
        bench.end(child)
        subjects.close()


def run(bench):
    few, many = _look(bench, FEW), _look(bench, MANY)
    slope = (many[0] - few[0]) / (MANY - FEW)
    bench.row("mem", f"controller and agent, {FEW} workers", f"{few[0] / 1024:.1f} MiB", f"proportional {few[1] / 1024:.1f} MiB",
              f"< {LIMIT_MIB} MiB", few[0] < LIMIT_MIB * 1024, few=few, many=many)
    bench.row("mem", "each further worker", f"{slope:.1f} KiB", "", f"< {SLOPE_KIB} KiB", slope < SLOPE_KIB)
    bench.row("mem", f"wake-ups in {IDLE_SECONDS} s of idling", str(few[2]), f"{many[2]} with {MANY} workers", "0",
              few[2] == 0 and many[2] == 0)
