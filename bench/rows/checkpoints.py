"""E12: how long handing over a checkpoint holds the training function, and how long until it is committed, beside shutil.copytree
(which Ray Train copies with), rsync and cp of the same tree. What is committed is checked against its manifest."""
import os
import random
import shutil
import statistics
import subprocess
import time

from common import Skip, Summary, milliseconds

MIB = 1 << 20
# what, files, bytes of each, repeats, hand-overs of a run
TREES = (("1 MiB", 1, MIB, 20, 3), ("10000 files of 1 KiB", 10_000, 1024, 7, 1), ("1 GiB", 1, 1024 * MIB, 3, 1),
         ("4 GiB", 4, 1024 * MIB, 1, 1))
LARGE = 2048 * MIB  # from here on only those take part on whom a limit depends: a gibibyte takes everybody seconds
LONGEST_HAND_OFF = 1e-3  # seconds
HAND_OFF_TO_COPYTREE = 0.05
LEAST_RATE_TO_CP = 0.85
SMALL = 256 * MIB


class Trees:
    """A tree to hand over, and places for copies of it, each in a directory of its own as ours is in its run's: a file system chooses by
    that where inodes and blocks lie. All is on the disk before anything is timed. Small trees stay until the last row: ext4 searches
    long for a free inode while many were deleted in the minutes before, which would be counted for whoever comes next."""

    def __init__(self, bench, n, size):
        self.n, self.size = n, size
        self.stays = n * max(size, 4096) < SMALL
        self.made = 0
        self.top = os.path.join(bench.storage(), f"{n}-of-{size}")
        os.makedirs(self.top)
        if shutil.disk_usage(self.top).free < 6 * n * size:
            raise Skip(f"there is no room for six times {n * size >> 20} MiB in {self.top}")
        self.piece = random.Random(n).randbytes(min(size, 16 * MIB))
        self.source = self.make()

    def make(self):
        path = self.place()
        os.mkdir(path)
        for i in range(self.n):
            with open(os.path.join(path, f"shard-{i}"), "wb") as f:
                for _ in range(self.size // len(self.piece)):
                    f.write(self.piece)
        return path

    def place(self):
        self.made += 1
        holder = os.path.join(self.top, str(self.made))
        os.mkdir(holder)
        return os.path.join(holder, "tree")

    def clear(self, path):
        if not self.stays:
            shutil.rmtree(path)
        os.sync()


def _hand_over(bench, trees, mode, k):
    """k times (seconds of the call, seconds until it is committed), in one run."""
    holder = os.path.dirname(trees.place())
    sources = [trees.make() if mode == "give" else trees.source for _ in range(k)]
    os.sync()
    options = ("--no-prefix", "--storage-path", holder, "--name", "run")
    child = bench.start(bench.trainyard(1, bench.program("checkpoints"), mode, *sources, options=options), stdout=subprocess.PIPE)
    output, _ = child.communicate(timeout=120)
    if child.returncode != 0:
        raise RuntimeError(f"checkpoints {mode}: status {child.returncode}")
    verify = [os.path.join(bench.build, "trainyard"), "checkpoints", "verify", "run", "--storage-path", holder]
    subprocess.run(verify, check=True, stdout=subprocess.DEVNULL)
    trees.clear(holder)
    return [[int(ns) / 1e9 for ns in line.split()] for line in output.splitlines()]


def _copy(trees, function):
    to = trees.place()
    begin = time.monotonic()
    function(trees.source, to)
    took = time.monotonic() - begin
    trees.clear(to)
    return took


def _shell(words):
    return lambda source, to: subprocess.run(words.format(source=source, to=to), shell=True, check=True)


def _contestants(trees):
    found = {"copytree": shutil.copytree, "cp": _shell("cp -r --reflink=auto {source} {to}"),
             "cp, synced": _shell("cp -r --reflink=auto {source} {to} && sync -f {to}")}
    if trees.n * trees.size >= LARGE:
        return {who: found[who] for who in ("copytree", "cp, synced")}
    if shutil.which("rsync"):
        found["rsync"] = _shell("rsync -a {source}/ {to}")
    return found


def _measure(bench, trees, repeats, k):
    """{who: Summary of seconds}, in turns whose order changes; "rate": of each turn, since the state of the file system, and with it
    the time of all, changes from turn to turn. What is given away is deleted behind it, and comes last."""
    copiers = _contestants(trees)
    times = {who: [] for who in (*copiers, "ours", "rate", "call", "committed")}
    order, dice = [*copiers, "ours"], random.Random(12)
    for _ in range(repeats):
        dice.shuffle(order)
        for who in order:
            if who in copiers:
                times[who].append(_copy(trees, copiers[who]))
            else:
                times[who] += [committed for _, committed in _hand_over(bench, trees, "sync", k)]
        times["rate"].append(times["cp, synced"][-1] / statistics.median(times["ours"][-k:]))
    for _ in range(repeats):
        for call, committed in _hand_over(bench, trees, "give", k):
            times["call"].append(call)
            times["committed"].append(committed)
    return {who: Summary(taken) for who, taken in times.items() if taken}


def _tell(bench, what, times):
    raw = {who: summary.as_dict() for who, summary in times.items()}
    call, copytree, ours = (times[who].median for who in ("call", "copytree", "ours"))
    bench.row("E12", f"{what}: hand-off holds for", f"{milliseconds(call)} (p99 {milliseconds(times['call'].quantile(0.99))})",
              f"copytree {milliseconds(copytree)} {call / copytree:.4f}x", "< 1 ms, <= 0.05x copytree",
              call < LONGEST_HAND_OFF and call <= HAND_OFF_TO_COPYTREE * copytree, times=raw)
    bench.row("E12", f"{what}: given away, to committed", milliseconds(times["committed"].median), "", "told", None)
    others = "".join(f", {who} {times[who].median / ours:.2f}x" for who in ("cp", "rsync") if who in times)
    rate = times["rate"].median
    bench.row("E12", f"{what}: copied, to committed", milliseconds(ours), f"rate to cp, synced {rate:.2f}x{others}",
              ">= 0.85x cp, synced", rate >= LEAST_RATE_TO_CP)


def run(bench):
    try:
        for what, n, size, repeats, k in TREES:
            _tell(bench, what, _measure(bench, Trees(bench, n, size), repeats, k))
    finally:
        bench.clear_storage()
