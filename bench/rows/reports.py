"""E8: what ty_report costs the worker, and how many a second reach the journal. Ray's published figure is for an asynchronous actor
call, the floor is a line a write(2) through a pipe."""
import contextlib
import os
import shutil
import sqlite3
import subprocess
import time

from common import Command, Summary

CALLS = 100_000
RATE_REPEATS = 5
CALL_REPEATS = 10
SPACED_CALLS, PAUSE_US, SPACED_REPEATS = 2000, 1000, 5
WORKERS = 8
RAY_CALLS = 8_664  # a second; docs/spec/limits.md, "Figures of others"
LEAST_RATE = 170_000
LONGEST_CALL_NS = 20_000


def _reports(bench, name, workers, *arguments):
    """(seconds from the first call to the end of the command, rows in the journal, [(p50, p99, p999, max) ns of each worker])."""
    command = bench.trainyard(workers, bench.program("reports"), *map(str, arguments), options=("--no-prefix", "--name", name))
    child = bench.start(command, stdout=subprocess.PIPE)
    output, _ = child.communicate(timeout=120)
    end = time.monotonic_ns()
    if child.returncode != 0:
        raise RuntimeError(f"reports: status {child.returncode}")
    told = [tuple(map(int, line.split())) for line in output.splitlines()]
    path = os.path.join(bench.storage(), name)
    with contextlib.closing(sqlite3.connect(f"file:{path}/run.db?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT count(DISTINCT rank * 10000000 + number) FROM reports").fetchone()[0]
    shutil.rmtree(path)
    return (end - min(line[0] for line in told)) / 1e9, rows, [line[1:] for line in told]


def _flood(bench):
    results = [_reports(bench, f"calls-{i}", 1, CALLS) for i in range(CALL_REPEATS)]
    p50, p99, p999 = (Summary(result[2][0][k] for result in results).median for k in range(3))
    lost = sum(CALLS - rows for _, rows, _ in results)
    bench.row("E8", f"one call of {CALLS}, back to back", f"p50 {p50 / 1e3:.1f} us, p99 {p99 / 1e3:.1f} us",
              f"p999 {p999 / 1e3:.1f} us, {lost} lost", "p99 <= 20 us, 0 lost", p99 <= LONGEST_CALL_NS and lost == 0, results=results)


def _spaced(bench):
    """Each call wakes an agent that sleeps: what that costs is the kernel's, so a bare send(2) stands beside it."""
    ours, bare = [], []
    for i in range(SPACED_REPEATS):
        ours.append(_reports(bench, f"spaced-{i}", 1, SPACED_CALLS, PAUSE_US)[2][0])
        told = subprocess.run([bench.program("send"), str(SPACED_CALLS), str(PAUSE_US)], capture_output=True, check=True).stdout
        bare.append(tuple(map(int, told.split()[1:])))
    (p50, p99), (bare50, bare99) = ([Summary(value[k] for value in values).median for k in (0, 1)] for values in (ours, bare))
    bench.row("E8", f"one call, {PAUSE_US / 1000:.0f} ms apart", f"p50 {p50 / 1e3:.1f} us, p99 {p99 / 1e3:.1f} us",
              f"send(2) p50 {bare50 / 1e3:.1f} us, p99 {bare99 / 1e3:.1f} us", "told", None, ours_ns=ours, send_ns=bare)


def _pipe_floor(bench):
    """Lines a second."""
    size = 1_000_000 * 128
    command = Command(f"{bench.program('lines')} {size} at-once | cat >/dev/null", bench.environment, shell=True)
    return 1_000_000 / Summary(bench.time(command) for _ in range(5)).median


def run(bench):
    _flood(bench)
    _spaced(bench)
    floor = _pipe_floor(bench)
    results = [_reports(bench, f"rate-{i}", WORKERS, CALLS) for i in range(RATE_REPEATS)]
    rate = Summary(WORKERS * CALLS / seconds for seconds, _, _ in results).median
    lost = sum(WORKERS * CALLS - rows for _, rows, _ in results)
    slowest = max(p99 for _, _, workers in results for _, p99, _, _ in workers)
    bench.row("E8", f"{WORKERS} workers, to the journal", f"{rate:.0f}/s, {lost} lost",
              f"Ray {RAY_CALLS} {rate / RAY_CALLS:.0f}x, pipe {floor:.0f} {rate / floor:.2f}x", f">= {LEAST_RATE}/s, 0 lost",
              rate >= LEAST_RATE and lost == 0, results=results, slowest_p99_ns=slowest)
