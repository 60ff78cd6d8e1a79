"""E7: the output of the ranks, 128-byte lines, with prefix, to a pipe that is drained; and with a reader that is slow. The floor is
cat between the same programs and the same drain."""
import re
import shlex
import subprocess
import threading
import time

from common import Command, Skip, Summary, children, status_field

BYTES = 100_000_000
LINE = 128
REPEATS = 10
PEER_REPEATS = 4  # of a second or more each
RANKS = (1, 4, 64)
SLOW_SECONDS = 4
MEMORY_LIMIT_KIB = 32 * 1024
NUMBERED = re.compile(rb"\[rank (\d+)\] (\d+) x+")


def _time_drained(bench, command, seconds=60):
    """Seconds until the last byte has gone through the drain."""
    begin = time.monotonic()
    child = bench.start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    drain = subprocess.Popen(["cat"], stdin=child.stdout, stdout=subprocess.DEVNULL)
    child.stdout.close()
    try:
        drain.wait(seconds)
        status = child.wait(seconds)
    except subprocess.TimeoutExpired:
        drain.kill()
        bench.end(child)
        drain.wait()
        return None
    took = time.monotonic() - begin
    if status != 0:
        raise RuntimeError(f"{' '.join(command.argv)}: status {status}")
    return took


def _rates(bench, contestants, size):
    """{name: Summary of bytes a second}, the contestants in turn."""
    taken = {name: [] for name, command in contestants.items() if command}
    hangs = dict.fromkeys(taken, 0)
    for i in range(REPEATS):
        for name in taken:
            if hangs[name] >= 2 or i >= (REPEATS if name in ("ours", "cat") else PEER_REPEATS):
                continue
            took = _time_drained(bench, contestants[name])
            bench.clear_storage()
            if took is None:
                hangs[name] += 1
            else:
                taken[name].append(size / took)
    return {name: Summary(rates, hangs[name]) for name, rates in taken.items()}


def _whole(bench, ranks, each):
    """True when every line of every rank arrives, whole and in order."""
    child = bench.start(bench.trainyard(ranks, bench.program("lines"), str(each)), stdout=subprocess.PIPE)
    following = [0] * ranks
    good = True
    limit = threading.Timer(60, child.kill)
    limit.start()
    for line in child.stdout:
        match = NUMBERED.fullmatch(line[:-1])
        good = good and match is not None and int(match[2]) == following[int(match[1])]
        if match:
            following[int(match[1])] += 1
    limit.cancel()
    return child.wait() == 0 and good and all(count == each // LINE for count in following)


def _relay(bench, ranks):
    each = BYTES // ranks // LINE * LINE
    program = [bench.program("lines"), str(each)]
    writers = " & ".join([shlex.join(program)] * ranks)
    rates = _rates(bench, {
        "ours": bench.trainyard(ranks, *program),
        "cat": Command(f"( {writers} & wait ) | cat", bench.environment, shell=True),
        "srun -l": bench.srun(ranks, *program, options=("-l",)),
        "mpirun": bench.mpirun(ranks, *program, options=("--tag-output",)),
    }, each * ranks)
    ours, cat = rates["ours"].median, rates["cat"].median
    peers = ", ".join(f"{name} {s.median / 1e6:.0f} {ours / s.median:.2f}x" + (f" {s.hangs} hung" if s.hangs else "")
                      for name, s in rates.items() if name != "ours" and s.values)
    passed = ours >= 0.4 * cat and ("srun -l" not in rates or ours >= 4 * rates["srun -l"].median) and not rates["ours"].hangs
    bench.row("E7", f"relay, {ranks} ranks, MB/s", f"{ours / 1e6:.0f}", peers, ">= 0.4x cat, >= 4x srun -l", passed,
              rates={name: summary.as_dict() for name, summary in rates.items()})
    return _whole(bench, ranks, each // 10 // LINE * LINE)


def _slow_reader(bench):
    """Peak memory (KiB) of controller and agent together while 64 ranks flood a reader of 64 KiB in 0.1 s."""
    child = bench.start(bench.trainyard(64, bench.program("lines"), str(BYTES)), stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL, bufsize=0)
    end = time.monotonic() + SLOW_SECONDS
    while time.monotonic() < end:
        child.stdout.read(65536)
        time.sleep(0.1)
    agents = children(child.pid)
    if child.poll() is not None or not agents:
        bench.end(child)
        raise Skip("the run ended before its output was read")
    peak = sum(status_field(pid, "VmHWM") for pid in (child.pid, *agents))
    child.kill()
    child.stdout.close()
    bench.end(child)
    return peak


def run(bench):
    whole = [_relay(bench, ranks) for ranks in RANKS]
    bench.row("E7", "every line whole and in order", f"{sum(whole)} of {len(whole)}", "", "all", all(whole))
    peak = _slow_reader(bench)
    bench.row("E7", "peak memory, slow reader, 64 ranks", f"{peak / 1024:.1f} MiB", "", "<= 32 MiB", peak <= MEMORY_LIMIT_KIB)
