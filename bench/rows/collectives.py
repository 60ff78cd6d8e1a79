"""E15: one all-reduce among workers of this machine, from 4 bytes to 64 MiB, beside Open MPI's and PyTorch's Gloo, in turn."""
import os
import shutil
import statistics
import subprocess

from common import Skip

from rows.python import interpreter

WORKERS = (2, 8)
ITERATIONS = {4: 5000, 1024: 5000, 64 << 10: 500, 1 << 20: 50, 64 << 20: 2}
REPEATS = 3
DEADLINE = 120  # seconds
SMALLEST, LARGEST = min(ITERATIONS), max(ITERATIONS)


def _mpi_program(bench):
    source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "programs", "all_reduce_mpi.c")
    if bench.peers["mpirun"] or not shutil.which("mpicc"):
        return None
    program = os.path.join(bench.directory, "all_reduce_mpi")
    subprocess.run(["mpicc", "-O2", "-o", program, source], check=True)
    return program


def _contestants(bench, n, arguments):
    torch = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "programs", "all_reduce_torch.py")
    mpi = _mpi_program(bench)
    return {"ours": bench.trainyard(n, bench.program("all_reduce"), *arguments, options=("--no-prefix",)),
            "mpirun": bench.mpirun(n, mpi, *arguments) if mpi else None,
            "torch": bench.trainyard(n, interpreter(), torch, *arguments, options=("--no-prefix",))}


def _seconds(bench, command):
    """What rank 0 printed of one all-reduce."""
    done = subprocess.run(command.argv, env=command.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=DEADLINE)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command.argv)}: status {done.returncode}: {done.stderr[-300:]}")
    return float(done.stdout.split()[0])


def _in_words(seconds, size):
    if size < 1 << 20:
        return f"{seconds * 1e6:.2f} us"
    return f"{seconds * 1e3:.2f} ms, {size / seconds / 2**30:.2f} GiB/s"


def _judge(size, ratio):
    if size == SMALLEST:
        return ratio <= 3, "<= 3 x Open MPI"
    if size == LARGEST:
        return 1 / ratio >= 0.8, ">= 0.8 x Open MPI's throughput"
    return None, "told"


def _measure(bench, n, size):
    iterations = ITERATIONS[size] if n <= (os.cpu_count() or 1) else max(ITERATIONS[size] // 10, 1)
    contestants = {name: command for name, command in _contestants(bench, n, (str(size), str(iterations))).items() if command}
    taken = {name: [] for name in contestants}
    for _ in range(REPEATS):
        for name, command in contestants.items():
            taken[name].append(_seconds(bench, command))
    times = {name: statistics.median(values) for name, values in taken.items()}
    ratios = {name: times["ours"] / value for name, value in times.items() if name != "ours"}
    passed, limit = _judge(size, ratios["mpirun"]) if "mpirun" in ratios else (None, "told")
    bench.row("E15", f"all-reduce of {size} bytes, n={n}", _in_words(times["ours"], size),
              ", ".join(f"{name} {_in_words(times[name], size)} {ratio:.2g}x" for name, ratio in ratios.items()), limit, passed,
              times=taken)


def run(bench):
    if not interpreter():
        raise Skip("there is no interpreter with PyTorch")
    for n in WORKERS:
        for size in ITERATIONS:
            _measure(bench, n, size)
