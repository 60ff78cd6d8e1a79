"""torchrun: from the command line to the first all-reduce done on all ranks, of `trainyard torchrun` beside torchrun of the same PyTorch,
with 2 and 8 workers, plain and beside two busy processes, each in a session of its own, in turn."""
import os
import subprocess
import sys
import time

from common import Command, Summary, milliseconds

from rows.python import DEADLINE, interpreter, marks_directory, program_path

BUSY, REPEATS, LIMIT = 2, 3, 0.5
BURN = "while True: pass"


def _commands(bench, workers, marks):
    program = [f"--nproc-per-node={workers}", program_path("torch_script"), marks]
    return {"ours": Command([os.path.join(bench.build, "trainyard"), "torchrun", *program],
                            {**bench.environment, "TRAINYARD_STORAGE": bench.storage(),
                             "PATH": os.path.dirname(interpreter()) + ":" + bench.environment["PATH"]}),
            "torchrun": Command([interpreter(), "-m", "torch.distributed.run", *program], bench.environment)}


def _first(bench, workers, name):
    """Seconds to the last rank's first all-reduce."""
    with marks_directory(bench) as marks:
        begin = time.monotonic()
        if bench.time(_commands(bench, workers, marks)[name], DEADLINE) is None:
            raise RuntimeError(f"{name} hung")
        return max(float(open(os.path.join(marks, str(rank))).read()) for rank in range(workers)) - begin


def _measure(bench, workers, busy):
    processes = [subprocess.Popen([sys.executable, "-c", BURN], start_new_session=True) for _ in range(busy)]
    times = {"ours": [], "torchrun": []}
    try:
        for _ in range(REPEATS):
            for name, taken in times.items():
                taken.append(_first(bench, workers, name))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return {name: Summary(taken) for name, taken in times.items()}


def run(bench):
    for workers in (2, 8):
        for busy in (0, BUSY):
            times = _measure(bench, workers, busy)
            ours, peer = times["ours"].median, times["torchrun"].median
            bench.row("torchrun", f"{workers} workers, first all-reduce" + (f", beside {busy} busy" if busy else ""), milliseconds(ours),
                      f"torchrun {milliseconds(peer)} {ours / peer:.2f}x", f"<= {LIMIT}x", ours <= LIMIT * peer,
                      times={name: summary.as_dict() for name, summary in times.items()})
