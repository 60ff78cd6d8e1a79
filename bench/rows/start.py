"""E1: the whole command, no-op workers. The floor is a C program that forks, execs and waits for as many."""
from common import Command, milliseconds

REPEATS = {1: 100, 8: 50, 64: 20, 256: 10, 512: 10}
LAUNCHES = 1000
HUNG_AFTER = 6  # seconds, beyond the slowest start by far


def _verdict(n, times):
    ours = times["ours"]
    slower = [name for name in ("mpirun", "srun") if name in times and times[name].values and ours.median >= times[name].median]
    if n == 1:
        return ours.median <= 0.015 and not slower and not ours.hangs, "<= 15 ms, below peers"
    if n < 64:
        return not slower and not ours.hangs, "below peers"
    return ours.median <= 2 * times["floor"].median and not slower and not ours.hangs, "<= 2 x fork+exec, below peers"


def _peers(times):
    told = []
    for name, summary in times.items():
        if name == "ours":
            continue
        value = milliseconds(summary.median) if summary.values else "-"
        ratio = f" {times['ours'].median / summary.median:.2f}x" if summary.values else ""
        told.append(f"{name} {value}{ratio}" + (f" {summary.hangs} hung" if summary.hangs else ""))
    return ", ".join(told)


def _measure(bench, n, program, what):
    path = bench.program(program)
    foreign = program == "noop"  # the other asks the library for its rank, which only our workers have
    contestants = {"ours": bench.trainyard(n, path)}
    if foreign:
        contestants["floor"] = Command([bench.program("forkexec"), str(n), path], bench.environment)
        contestants["mpirun"] = bench.mpirun(n, path)
        contestants["srun"] = bench.srun(n, path)
    times = bench.race(contestants, REPEATS[n], HUNG_AFTER if n <= 64 else 2 * HUNG_AFTER)
    ours = times["ours"]
    passed, limit = _verdict(n, times) if foreign else (None if not ours.hangs else False, "-")
    bench.row("E1", f"{what}, n={n}", f"{milliseconds(ours.median)} (p99 {milliseconds(ours.quantile(0.99))})", _peers(times),
              limit, passed, times={name: summary.as_dict() for name, summary in times.items()})


def run(bench):
    for n in REPEATS:
        _measure(bench, n, "noop", "start to end, no-op worker")
    for n in (1, 64):
        _measure(bench, n, "rank", "worker that reads its rank")


def run_many(bench):
    times = bench.race({"ours": bench.trainyard(64, bench.program("noop"))}, LAUNCHES, HUNG_AFTER)["ours"]
    bench.row("E1", f"{LAUNCHES} launches of 64", f"{times.hangs} hung, p99 {milliseconds(times.quantile(0.99))}", "", "0 hung",
              times.hangs == 0, times=times.as_dict())
