"""The Python face: how soon 8 torch workers train, a second fit, a restart, the memory of an idle worker, what a report and the
import cost. Beside it torchrun of the same PyTorch, and Ray Train's TorchTrainer."""
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import time

from common import Command, Skip, Summary, milliseconds

WORKERS = 8
REPEATS = 5
RAY_REPEATS = 2  # half a minute each
FLOOR_SLACK = 0.3  # seconds beyond 1.5 imports of torch
REPORTS = 20000
DEADLINE = 120
THIRD_PARTY = {"cloudpickle"}


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEERS_PYTHON = os.path.join(ROOT, ".venv-peers", "bin", "python")


def missing_ray():
    """Why Ray Train cannot be measured; None when it can."""
    return None if os.access(PEERS_PYTHON, os.X_OK) else "not installed, make bench-peers"


def program_path(name):
    return os.path.join(ROOT, "bench", "programs", name + ".py")


def interpreter():
    """The project's Python: $PYTHON, else the virtual environment of the set-up."""
    return os.environ.get("PYTHON") or os.path.join(ROOT, ".venv", "bin", "python")


def _environment(bench):
    return {**bench.environment, "PYTHONPATH": os.path.join(bench.build, "python")}


@contextlib.contextmanager
def marks_directory(bench):
    path = os.path.join(bench.directory, f"marks-{time.monotonic_ns()}")
    os.mkdir(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _contestants(bench, marks, fits=1, mode=""):
    """{name: Command} of whoever is installed; ours always."""
    program, python = program_path("torch_workers"), interpreter()
    commands = {"ours": Command([python, program, "ours", marks, str(fits), mode], _environment(bench)),
                "torchrun": Command([python, "-m", "torch.distributed.run", f"--nproc-per-node={WORKERS}", program, "torchrun", marks],
                                    bench.environment)}
    if not bench.peers["ray"]:
        commands["ray"] = Command([PEERS_PYTHON, program, "ray", marks, str(fits)],
                                  {**bench.environment, "RAY_TRAIN_V2_ENABLED": "1"})
    return commands


def _read(marks, fit):
    """[(entered, reduced, pid)] by rank once all ranks wrote theirs."""
    found = []
    for rank in range(WORKERS):
        with open(os.path.join(marks, f"{fit}-{rank}")) as f:
            entered, reduced, pid = f.read().split()
        found.append((float(entered), float(reduced), int(pid)))
    return found


def _asked(marks, fit):
    with open(os.path.join(marks, f"{fit}-asked")) as f:
        return float(f.read())


def _run(bench, name, fits=1, mode=""):
    """Of one whole run: (its begin, [what each rank told, by fit], [when each fit was asked for])."""
    with marks_directory(bench) as marks:
        command = _contestants(bench, marks, fits, mode).get(name)
        if command is None:
            return None
        begin = time.monotonic()
        if bench.time(command, DEADLINE) is None:
            raise RuntimeError(f"{name} hung")
        asked = [] if name == "torchrun" else [_asked(marks, fit) for fit in range(fits)]
        return begin, [_read(marks, fit) for fit in range(fits)], asked


def _last(told, field):
    return max(entry[field] for entry in told)


def _import_time(bench):
    return bench.time(Command([interpreter(), "-c", "import torch"], bench.environment), DEADLINE)


def _first_start(bench):
    """From the command line to the first all-reduce done on all ranks, each contestant in turn."""
    times = {}
    for repeat in range(REPEATS):
        times.setdefault("import", []).append(_import_time(bench))
        for name in ("ours", "torchrun", "ray"):
            run = _run(bench, name) if name != "ray" or repeat < RAY_REPEATS else None
            if run is None:
                continue
            begin, fits, asked = run
            times.setdefault(name, []).append(_last(fits[0], 1) - begin)
            if name == "ray":
                times.setdefault("ray without init", []).append(_last(fits[0], 1) - asked[0])
    return {name: Summary(taken) for name, taken in times.items()}


def _ratios(ours, times, names):
    return ", ".join(f"{name} {milliseconds(times[name].median)} {ours / times[name].median:.2f}x" for name in names if name in times)


def run_start(bench):
    times = _first_start(bench)
    ours = times["ours"].median
    medians = {name: summary.median for name, summary in times.items()}
    limit = 1.5 * medians["import"] + FLOOR_SLACK
    raw = {name: summary.as_dict() for name, summary in times.items()}
    bench.row("E3", f"{WORKERS} torch workers, first all-reduce done", milliseconds(ours),
              _ratios(ours, times, ["import", "torchrun", "ray", "ray without init"]),
              f"<= {milliseconds(limit)}, torchrun / 3, Ray / 5",
              ours <= limit and 3 * ours <= medians["torchrun"] and 5 * ours <= medians.get("ray without init", float("inf")), times=raw)


def _second_fits(bench, name):
    run = _run(bench, name, fits=4)
    if run is None:
        return None
    _, fits, asked = run
    return Summary([_last(fits[i], 0) - asked[i] for i in range(1, len(fits))])


def run_second_fit(bench):
    times = {name: summary for name in ("ours", "ray") if (summary := _second_fits(bench, name))}
    ours = times["ours"].median
    bench.row("E3", "a further fit, function entered on all 8", milliseconds(ours), _ratios(ours, times, ["ray"]), "<= 300 ms",
              ours <= 0.3, times={name: summary.as_dict() for name, summary in times.items()})


def _pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Pss:")) / 1024


def _wait_told(marks, child, fit=0, than=()):
    """What each rank told, once all did, with other pids than those of `than`."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end and child.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            told = _read(marks, fit)
            if not {entry[2] for entry in told} & set(than):
                return told
        time.sleep(0.005)
    raise RuntimeError("the workers did not come up")


@contextlib.contextmanager
def _idle(bench, mode):
    """Workers that wait to be looked at: (marks, what each rank told, the driver)."""
    with marks_directory(bench) as marks:
        child = bench.start(_contestants(bench, marks, 1, mode + "+idle")["ours"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield marks, _wait_told(marks, child), child
        finally:
            open(os.path.join(marks, "done"), "w").close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            bench.end(child)


def run_memory(bench):
    sizes = {}
    for mode in ("template", "spawn"):
        with _idle(bench, mode) as (_, told, _child):
            time.sleep(0.5)
            sizes[mode] = statistics.median(_pss(entry[2]) for entry in told)
    ratio = sizes["template"] / sizes["spawn"]
    bench.row("mem", "an idle torch worker, proportional (PSS)", f"{sizes['template']:.0f} MiB",
              f"spawned {sizes['spawn']:.0f} MiB {ratio:.2f}x", "<= 0.33x of a spawned one", ratio <= 1 / 3, sizes=sizes)


def _restart(bench):
    """Seconds from the SIGKILL of one of 8 to the training function on all 8 again."""
    with _idle(bench, "template") as (marks, told, child):
        victim = random.choice(told)[2]
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        return _last(_wait_told(marks, child, than=[entry[2] for entry in told]), 0) - killed


def run_restart(bench):
    times = Summary([_restart(bench) for _ in range(REPEATS)])
    bench.row("E13", f"one of {WORKERS} torch workers killed, all in again", milliseconds(times.median), "", "<= 200 ms",
              times.median <= 0.2, times=times.as_dict())


def run_report(bench):
    out = os.path.join(bench.directory, "report-calls")
    if bench.time(Command([interpreter(), program_path("report_calls"), out, str(REPORTS)], _environment(bench)), DEADLINE) is None:
        raise RuntimeError("it hung")
    with open(out) as f:
        median, p99 = map(float, f.read().split())
    bench.row("E8", f"report() in Python, {REPORTS} calls", f"p50 {median:.1f} us, p99 {p99:.1f} us", "", "p50 <= 30 us", median <= 30)


def _modules(bench):
    """Names of top-level modules that `import trainyard` brings from outside the standard library."""
    code = ("import sys; before = set(sys.modules); import trainyard; "
            "print(*{m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names) - {'trainyard'})")
    done = subprocess.run([interpreter(), "-c", code], env=_environment(bench), capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def run_import(bench):
    environment = _environment(bench)
    plain, ours = (Summary([bench.time(Command([interpreter(), "-c", code], environment)) for _ in range(20)])
                   for code in ("pass", "import trainyard"))
    foreign = _modules(bench)
    took = ours.median - plain.median
    bench.row("E3", "import trainyard", milliseconds(took), f"python itself {milliseconds(plain.median)}", "<= 30 ms, no third party",
              took <= 0.03 and foreign <= THIRD_PARTY, foreign=sorted(foreign))


def run(bench):
    if not os.access(interpreter(), os.X_OK):
        raise Skip(f"no interpreter at {interpreter()}: make setup")
    for row in (run_import, run_report, run_start, run_second_fit, run_restart, run_memory):
        row(bench)
