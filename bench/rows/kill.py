"""E4: one of 64 workers is killed by SIGKILL. How soon do the others learn of it, how soon are they gone, what is said."""
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import time

from common import Summary, close_all, milliseconds, open_pidfds, wait_pidfds
from subjects import Subjects

WORKERS = 64
REPEATS = 20
PEER_REPEATS = 5
DEADLINE = 5


def _noticed(bench, name, rank, wall_ns):
    """Seconds from the kill to the time of the journal's event for the victim's end."""
    path = os.path.join(bench.storage(), name, "run.db")
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        row = db.execute("SELECT time FROM events WHERE kind = 'exited' AND rank = ?", (rank,)).fetchone()
    return (row[0] - wall_ns) / 1e9 if row else None


def _trial(bench, command, subjects):
    """What one kill led to; None when the workers never came up."""
    with open(os.path.join(bench.directory, "said"), "w+b") as said:
        child = bench.start(command, stdout=said, stderr=subprocess.STDOUT)
        entries = subjects.wait_ready(child)
        if entries is None:
            bench.end(child)
            return None
        rank = random.randrange(subjects.n)
        others = open_pidfds(entry.pid for i, entry in enumerate(entries) if i != rank)
        wall, start = time.time_ns(), time.monotonic_ns()
        os.kill(entries[rank].pid, signal.SIGKILL)
        gone = wait_pidfds(others, DEADLINE)
        close_all(others)
        try:
            status = child.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            status = None
        bench.end(child)
        told = [entry.told_ns - start for entry in subjects.entries() if entry.told_ns]
        said.seek(0)
        text = said.read().decode(errors="replace")
    return {"rank": rank, "wall_ns": wall, "status": status, "gone": gone - start / 1e9 if gone else None, "said": text,
            "first_told": min(told) / 1e9 if told else None}


def _trials(bench, make, repeats, look=lambda trial, i: None):
    trials = []
    for i in range(repeats):
        subjects = Subjects(bench, WORKERS, "obey")
        command = make(i, subjects.argv)
        try:
            trial = _trial(bench, command, subjects) if command else None
        finally:
            subjects.close()
        if command is None:
            return []
        if trial:
            look(trial, i)
        trials.append(trial)
    return trials


def _summary(trials, key):
    values = [trial[key] for trial in trials if trial and trial[key] is not None]
    return Summary(values, len(trials) - len(values))


def _peer(name, trials):
    if not trials:
        return None
    gone, told = _summary(trials, "gone"), _summary(trials, "first_told")
    statuses = sorted({trial["status"] for trial in trials if trial and trial["status"] is not None})
    text = f"{name} gone {milliseconds(gone.median)}" if gone.values else f"{name} gone never"
    return text + (f" told {milliseconds(told.median)}" if told.values else "") + f" status {statuses}"


def run(bench):
    def ours(i, argv):
        return bench.trainyard(WORKERS, *argv, options=("--name", f"kill-{i}"))

    def look(trial, i):
        trial["noticed"] = _noticed(bench, f"kill-{i}", trial["rank"], trial["wall_ns"])
        trial["cause_told"] = f"rank {trial['rank']} " in trial["said"] and "SIGKILL" in trial["said"]

    trials = _trials(bench, ours, REPEATS, look)
    srun = _trials(bench, lambda i, argv: bench.srun(WORKERS, *argv, options=("-K",)), PEER_REPEATS)
    mpirun = _trials(bench, lambda i, argv: bench.mpirun(WORKERS, *argv), PEER_REPEATS)
    peers = ", ".join(filter(None, (_peer("srun -K", srun), _peer("mpirun", mpirun))))
    _tell(bench, trials, peers, {"srun": srun, "mpirun": mpirun})


def _tell(bench, trials, peers, raw):
    good = [trial for trial in trials if trial]
    noticed, gone, told = (_summary(trials, key) for key in ("noticed", "gone", "first_told"))
    bench.row("E4", f"one of {WORKERS} killed: noticed", f"{milliseconds(noticed.median)} (p99 {milliseconds(noticed.quantile(.99))})",
              "", "<= 2 ms", noticed.median <= 0.002 and not noticed.hangs, trials=trials, told=told.as_dict())
    bench.row("E4", "all others gone", f"{milliseconds(gone.median)} (p99 {milliseconds(gone.quantile(.99))})", peers, "<= 20 ms",
              gone.median <= 0.020 and not gone.hangs, peers_raw=raw)
    right = sum(trial["cause_told"] and trial["status"] == 137 for trial in good)
    bench.row("E4", "first cause told, status 137", f"{right} of {len(trials)}", "", "all", right == len(trials))
