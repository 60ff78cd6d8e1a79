"""Journals made by hand, of runs with known numbers: what a page, a plot or an export of them must show is known too."""

import contextlib
import fcntl
import json
import os
import sqlite3
import struct

SECOND = 1_000_000_000
BEGAN = 1_700_000_000 * SECOND
F_OFD_SETLK = 37  # of <fcntl.h>; Python has no name for it

SCHEMA = """
PRAGMA application_id = 1415146094;
PRAGMA user_version = 1;
CREATE TABLE events(sequence INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, attempt INTEGER NOT NULL,
                    rank INTEGER NOT NULL, node INTEGER NOT NULL, data TEXT);
CREATE TABLE reports(id INTEGER PRIMARY KEY, time INTEGER NOT NULL, attempt INTEGER NOT NULL, rank INTEGER NOT NULL,
                     number INTEGER NOT NULL, metrics TEXT NOT NULL);
CREATE TABLE checkpoints(number INTEGER PRIMARY KEY, time INTEGER NOT NULL, attempt INTEGER NOT NULL, name TEXT NOT NULL, metrics TEXT);
"""


class Journal:
    """A run's directory with its journal, below a storage path."""

    def __init__(self, storage, name, live=False):
        self.path = os.path.join(storage, name)
        os.makedirs(os.path.join(self.path, "logs"))
        self.database = sqlite3.connect(os.path.join(self.path, "run.db"), isolation_level=None)
        if live:
            self.database.execute("PRAGMA journal_mode = WAL")
        self.database.executescript(SCHEMA)
        self.last = 0
        self.database.execute("BEGIN")

    def reopen(self):
        """Goes on with one that had ended."""
        self.database = sqlite3.connect(os.path.join(self.path, "run.db"), isolation_level=None)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("BEGIN")

    def event(self, time, kind, attempt=0, rank=-1, node=-1, facts=None, **data):
        data.update(facts or {})
        self.database.execute("INSERT INTO events(time, kind, attempt, rank, node, data) VALUES (?, ?, ?, ?, ?, ?)",
                              (BEGAN + int(time * SECOND), kind, attempt, rank, node, json.dumps(data)))

    def report(self, time, attempt, rank, number, metrics):
        self.last += 1
        text = metrics if isinstance(metrics, str) else json.dumps(metrics)
        self.database.execute("INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?)",
                              (self.last, BEGAN + round(time * SECOND), attempt, rank, number, text))

    def begin(self, ranks):
        self.event(0, "run", command=["python", "train.py"], host="n1", pid=1, version="0.1.0")
        self.event(0, "attempt", 1, workers=ranks, nodes=1, reason="start")
        self.event(0, "node", 1, node=0, name="n1", pid=1)
        for rank in range(ranks):
            self.event(0.001, "started", 1, rank, 0, pid=1000 + rank)

    def commit(self):
        self.database.execute("COMMIT")
        self.database.execute("BEGIN")

    def done(self, time=None, outcome="succeeded", status=0, attempt=1, **more):
        if time is not None:
            self.event(time, "attempt_end", attempt, outcome=outcome, status=status, facts=more)
            self.event(time, "run_end", attempt, outcome=outcome, status=status, facts=more)
        self.database.execute("COMMIT")
        self.database.close()

    def log(self, rank, text):
        with open(os.path.join(self.path, "logs", f"rank-{rank}.log"), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())


def hold(path):
    """The lock of the run there, as a controller that lives has it; until the file is closed."""
    lock = open(os.path.join(path, "run.lock"), "w")
    fcntl.fcntl(lock, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    return lock


USAGE_SCHEMA = """
PRAGMA application_id = 1415148915;
PRAGMA user_version = 1;
CREATE TABLE samples(span INTEGER NOT NULL, time INTEGER NOT NULL, node TEXT NOT NULL, what TEXT NOT NULL, number INTEGER NOT NULL,
                     n INTEGER NOT NULL, min REAL NOT NULL, mean REAL NOT NULL, max REAL NOT NULL,
                     PRIMARY KEY(span DESC, time, node, what, number)) WITHOUT ROWID;
"""


def make_usage(path, samples):
    """usage.db of a run: (seconds since it began, node, what, number, value) each."""
    with contextlib.closing(sqlite3.connect(os.path.join(path, "usage.db"))) as database:
        database.executescript(USAGE_SCHEMA)
        database.executemany("INSERT INTO samples VALUES(0, ?, ?, ?, ?, 1, ?, ?, ?)",
                             [(BEGAN // 1_000_000 + round(time * 1000), node, what, number, value, value, value) for time, node, what, number, value in samples])
        database.commit()


def make_a(storage, name="a", numbers=1000, ranks=8):
    """One attempt; loss 99 at rank 5 in step 500, NaN at rank 2 in step 700; rank 3 is 40 ms late from 600 on."""
    run = Journal(storage, name)
    run.begin(ranks)
    for n in range(1, numbers + 1):
        for r in range(ranks):
            loss = 99 if (r, n) == (5, 500) else "NaN" if (r, n) == (2, 700) else 2 / (1 + n) + r / 1000
            late = 0.04 if r == 3 and n >= 600 else 0
            run.report(n * 0.1 + r / 1000 + late, 1, r, n, {"loss": loss, "step": n, "epoch": (n - 1) // 100})
    for r in range(ranks):
        run.log(r, "".join(f"rank {r} step {n}\n" for n in range(1, 200)))
    run.done(numbers * 0.1 + 1)
    return run.path


def make_b(storage, name="b"):
    """Two ranks, two attempts: 150 reports, checkpoint 100, then 100 more from it."""
    run = Journal(storage, name)
    run.begin(2)
    for n in range(1, 151):
        for r in range(2):
            run.report(n * 0.1 + r / 1000, 1, r, n, {"loss": 1 / n, "step": n})
        if n == 100:
            run.database.execute("INSERT INTO checkpoints VALUES (100, ?, 1, 'checkpoint_000100', '{\"loss\": 0.01}')", (BEGAN + 10 * SECOND,))
            run.event(10, "checkpoint", 1, number=100, path="checkpoint_000100")
    run.event(15.1, "exited", 1, 1, 0, code=7)
    run.event(15.1, "attempt_end", 1, outcome="failed", status=7,
              facts={"rank": 1, "node": 0, "cause": "rank 1 exited with code 7"})
    run.event(15.2, "attempt", 2, workers=2, nodes=1, reason="rank 1 exited with code 7", checkpoint=os.path.join(run.path, "checkpoint_000100"))
    for n in range(151, 251):
        for r in range(2):
            run.report(n * 0.1 + 1 + r / 1000, 2, r, n, {"loss": 1 / n, "step": n - 50})
    run.done(27, attempt=2)
    return run.path
