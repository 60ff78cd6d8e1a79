"""Runs for the tests of what is seen of them: journals written by their documented tables (docs/journal.md), without a controller."""

import contextlib
import gzip
import json
import os
import sqlite3

from journals import SCHEMA

BEGAN = 1_700_000_000 * 10**9
SECOND = 10**9
BASE = 1_699_000_000 * 10**9  # from which the profiler of torch counts


class Journal:
    """A run that is written; times are nanoseconds since its beginning."""

    def __init__(self, storage, name, workers):
        self.path = os.path.join(storage, name)
        os.makedirs(os.path.join(self.path, "logs"))
        self.database = sqlite3.connect(os.path.join(self.path, "run.db"))
        self.database.executescript(SCHEMA)
        self.event(0, "run", {"name": name, "num_workers": workers, "host": "h", "engine": "local", "argv": ["train"]})

    def event(self, after, kind, data=None, attempt=0, rank=-1, node=-1):
        self.database.execute("INSERT INTO events(time, kind, attempt, rank, node, data) VALUES(?, ?, ?, ?, ?, ?)",
                              (BEGAN + after, kind, attempt, rank, node, None if data is None else json.dumps(data)))

    def reports(self, rows):
        """(time, attempt, rank, number, metrics) each, the metrics a dict or text."""
        self.database.executemany("INSERT INTO reports(time, attempt, rank, number, metrics) VALUES(?, ?, ?, ?, ?)", (
            (BEGAN + after, attempt, rank, number, metrics if isinstance(metrics, str) else json.dumps(metrics))
            for after, attempt, rank, number, metrics in rows))

    def begin(self, after, attempt, workers, **data):
        """An attempt, planned, started and ready."""
        self.event(after, "plan", {"nodes": ["n1"], "ranks": [0] * workers, "devices": [""] * workers}, attempt)
        self.event(after, "attempt", {"workers": workers, "nodes": 1, **data}, attempt)
        for rank in range(workers):
            self.event(after, "started", {"pid": 1000 + rank}, attempt, rank, 0)
            self.event(after, "ready", None, attempt, rank, 0)

    def end(self, after, attempt, outcome="succeeded", status=0, **data):
        self.event(after, "attempt_end", {"outcome": outcome, "status": status, **data}, attempt)
        self.event(after, "run_end", {"outcome": outcome, "status": status, **data}, attempt)
        self.close()

    def checkpoint(self, after, attempt, number, metrics=None):
        name = "checkpoint_%06d" % number
        os.makedirs(os.path.join(self.path, name), exist_ok=True)
        self.event(after, "checkpoint", {"number": number, "path": os.path.join(self.path, name)}, attempt)
        self.database.execute("INSERT INTO checkpoints VALUES(?, ?, ?, ?, ?)",
                              (number, BEGAN + after, attempt, name, json.dumps(metrics or {})))

    def close(self):
        with contextlib.closing(self.database):
            self.database.commit()


def a_metrics(rank, n):
    loss = 99 if (rank, n) == (5, 500) else "NaN" if (rank, n) == (2, 700) else 2 / (1 + n) + rank / 1000
    return {"loss": loss, "step": n, "epoch": (n - 1) // 100}


def write_a(storage, name="a"):
    """8 ranks x 1,000 reports; 99 at rank 5, number 500, NaN at rank 2, number 700; rank 3 is 40 ms late from number 600 on."""
    journal = Journal(storage, name, 8)
    journal.begin(0, 1, 8)
    journal.reports((n * SECOND // 10 + rank * 10**6 + (40 * 10**6 if rank == 3 and n >= 600 else 0), 1, rank, n, a_metrics(rank, n))
                    for n in range(1, 1001) for rank in range(8))
    journal.end(101 * SECOND, 1)
    return journal.path


def write_b(storage, name="b"):
    """2 ranks; attempt 1 makes 150 reports and fails, attempt 2 goes on from the checkpoint of number 100 with 151 to 250."""
    journal = Journal(storage, name, 2)
    journal.begin(0, 1, 2)

    def rows(attempt, first, last, back):
        return ((n * SECOND + rank * 10**6, attempt, rank, n, {"loss": 1 / (n - back), "step": n - back})
                for n in range(first, last + 1) for rank in range(2))

    journal.reports(rows(1, 1, 150, 0))
    journal.checkpoint(100 * SECOND + 5 * 10**6, 1, 100, {"loss": 0.01, "step": 100})
    journal.event(150 * SECOND + 10**7, "exited", {"code": 3}, 1, 1, 0)
    journal.event(150 * SECOND + 2 * 10**7, "attempt_end",
                  {"outcome": "failed", "status": 3, "rank": 1, "node": 0, "cause": "rank 1 exited with code 3", "lost_seconds": 50.0}, 1)
    journal.begin(150 * SECOND + 3 * 10**7, 2, 2, checkpoint="checkpoint_000100")
    journal.reports(rows(2, 151, 250, 50))
    journal.end(251 * SECOND, 2)
    return journal.path


def write_back(storage, name="back"):
    """1 rank; attempt 1 makes 100 reports in 104.5 s and dies with its controller; the next one's clock is 55 s back, and attempt 2 makes
    75 reports up to second 128.5."""
    journal = Journal(storage, name, 1)
    for attempt, began, first, last in ((1, 1, 1, 100), (2, 50, 101, 175)):
        if attempt > 1:
            journal.event(began * SECOND - SECOND // 2, "run", {"name": name, "num_workers": 1})
        journal.event(began * SECOND, "plan", {"nodes": ["n1"], "ranks": [0], "devices": [""], "seconds": 0.5}, attempt)
        journal.event(began * SECOND, "attempt", {"workers": 1, "nodes": 1}, attempt)
        journal.event(began * SECOND + SECOND // 4, "node", {"name": "n1"}, attempt, -1, 0)
        journal.event((began + 1) * SECOND, "started", {"pid": 1000}, attempt, 0, 0)
        journal.event((began + 3) * SECOND, "ready", None, attempt, 0, 0)
        journal.reports(((began + 4 + n - first) * SECOND - SECOND // 2 + SECOND * (attempt == 1), attempt, 0, n, {"loss": 1 / n})
                        for n in range(first, last + 1))
    journal.end(130 * SECOND, 2)
    return journal.path


def write_put_back(storage, name):
    """Two attempts of 1 rank; the clock is put back by a minute in the first, the second takes 3 s."""
    journal = Journal(storage, name, 1)
    journal.begin(100 * SECOND, 1, 1)
    journal.event(40 * SECOND, "attempt_end", {"outcome": "failed", "status": 3}, 1)
    journal.begin(50 * SECOND, 2, 1)
    journal.end(53 * SECOND, 2)
    return journal.path


def write_c(storage, name="c", numbers=156_250, ranks=64):
    """Ten million reports of 6 metrics where it is not said otherwise: made in SQLite, which takes a minute or two."""
    journal = Journal(storage, name, ranks)
    journal.begin(0, 1, ranks)
    journal.database.execute("""WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1 * ?2),
            made(i, rank, number) AS (SELECT i, i % ?2, i / ?2 + 1 FROM n)
        INSERT INTO reports(time, attempt, rank, number, metrics) SELECT ?3 + number * 100000000 + rank * (64000000 / ?2), 1, rank, number,
        printf('{"loss": %.17g, "step": %d, "epoch": %d, "lr": %.17g, "step_time": %.17g, "tokens_per_second": %.17g}',
            CASE WHEN (i + 1) % 1000003 = 0 THEN 99 ELSE 2.0 / (1 + number) + rank / 1000.0 END, number, (number - 1) / 100,
            0.001 / (1 + (number - 1) / 1000.0), 0.1 + rank / 10000.0, 12345.678 + rank) FROM made""", (numbers, ranks, BEGAN))
    journal.end(numbers * SECOND // 10 + SECOND, 1)
    return journal.path


def write_d(storage, name="d", ranks=10000, numbers=3, metrics=300):
    """Many ranks, many names."""
    journal = Journal(storage, name, ranks)
    journal.begin(0, 1, ranks)
    journal.reports((n * SECOND + rank, 1, rank, n, {"m%d" % i: i + n for i in range(metrics)})
                    for n in range(1, numbers + 1) for rank in range(ranks))
    journal.end((numbers + 1) * SECOND, 1)
    return journal.path


def write_profile(run_path, rank, after, base=True):
    """What torch's profiler wrote of the rank: a step of 2 ms, `after` ns after the run's beginning, and an arrow from it to a kernel of
    GPU 0. Before torch 2.3 times counted from the epoch."""
    start = (BEGAN + after - (BASE if base else 0)) / 1000
    events = [{"ph": "M", "name": "process_name", "ts": start, "pid": 77, "tid": 0, "args": {"name": "python"}},
              {"ph": "M", "name": "process_sort_index", "ts": start, "pid": 77, "tid": 0, "args": {"sort_index": 77}},
              {"ph": "M", "name": "process_labels", "ts": start, "pid": 77, "tid": 0, "args": {"labels": "CPU"}},
              {"ph": "M", "name": "process_labels", "ts": start, "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}},
              {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 77, "tid": 77, "ts": start, "dur": 2000.5, "args": {"a": "]},{\\\""}},
              {"ph": "s", "id": 1, "pid": 77, "tid": 77, "ts": start + 1, "cat": "ac2g", "name": "ac2g"},
              {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": start + 500, "dur": 300, "args": {"stream": 7}},
              {"ph": "f", "bp": "e", "id": 1, "pid": 0, "tid": 7, "ts": start + 500, "cat": "ac2g", "name": "ac2g"},
              {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": start, "dur": 2001, "args": {}}]
    whole = {"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": events, **({"baseTimeNanoseconds": BASE} if base else {})}
    os.makedirs(os.path.join(run_path, "logs", "profile"), exist_ok=True)
    with gzip.open(os.path.join(run_path, "logs", "profile", "rank-%d.pt.trace.json.gz" % rank), "wt") as file:
        json.dump(whole, file, indent=1)
