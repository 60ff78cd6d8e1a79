"""The controller, the agent or every worker is killed at its k-th write, sync, rename, message ..., some writes half done, for k all
over a run of three workers that report and make checkpoints: what was acknowledged is there, once, and the run goes on to its end.
"""

import concurrent.futures
import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from harness import BUILD, COMMAND, processes_with
from runs import soak

HERE = os.path.join(BUILD, "tests", "e2e", "faults")
LIBRARY = harness.preloadable(os.path.join(HERE, "crash_point.so"))
PROGRAM = os.path.join(HERE, "crash_program")
WORKERS, STEPS = 3, 4
OTHERS = {"logs"} | {name + suffix for name in ("run.db", "usage.db") for suffix in ("", "-wal", "-shm")}
# Each role by the first word that its program is called with, and how a run may end then; 0: the point came when all was done.
ENDS = {"run": {0, 137}, "agent": {0, 4, 5}, str(STEPS): {0, 137}}


class Point:
    """One run that is killed at one point, and what became of it."""

    def __init__(self, environment, place, role, k, half):
        self.place, self.role, self.k, self.half = place, role, k, half
        self.recovery = 0.0  # seconds that the run took to go on, to its end
        self.storage, self.work = os.path.join(place, "runs"), os.path.join(place, "work")
        self.environment = dict(environment, HOME=place, TMPDIR=place, TRAINYARD_LEASE_DIR=os.path.join(place, "leases"))
        os.makedirs(self.work)

    def __str__(self):
        role = "workers" if self.role == str(STEPS) else self.role
        return "%s killed at call %d%s" % (role, self.k, ", half written" if self.half else "")

    def call(self, *words, **more):
        finished = subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL,
                                  cwd=self.work, env=dict(self.environment, **more))
        return harness.Finished(finished.returncode, finished.stdout, finished.stderr, words)

    def run(self, *options, **more):
        return self.call("run", "--storage-path", self.storage, "--name", "r", "-n", str(WORKERS), "--num-cpus", "8", "--grace", "1s",
                         "--quiet", *options, "--", PROGRAM, str(STEPS), self.work, **more)

    def crash(self, count=""):
        crash = "%s %d %d" % (self.role, self.k, self.half)
        sanitizer = self.environment.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return self.run(ASAN_OPTIONS=sanitizer, LD_PRELOAD=LIBRARY, TRAINYARD_CRASH=crash, TRAINYARD_CRASH_COUNT=count)

    def rows(self, query):
        """Rows of the journal, which must be whole; None where the run had not come to have one."""
        path = os.path.join(self.storage, "r", "run.db")
        if not os.path.exists(path):
            return None
        with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % path, uri=True)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "the journal is damaged"
            return database.execute(query).fetchall()

    def acknowledged(self):
        """(attempt, rank, step) of every checkpoint that a worker was told to be committed."""
        found = []
        for rank in range(WORKERS):
            path = os.path.join(self.work, "acknowledged.%d" % rank)
            if os.path.exists(path):
                with open(path) as file:
                    found += [(int(attempt), rank, int(step)) for attempt, step in map(str.split, file)]
        return found

    def left(self):
        deadline = time.monotonic() + 60
        while processes_with(self.place) and time.monotonic() < deadline:
            time.sleep(0.005)
        return processes_with(self.place)

    def problem(self):
        """What is wrong after the kill and after the run went on; None if nothing."""
        finished = self.crash()
        if finished.status not in ENDS[self.role]:
            return repr(finished)
        if self.left():
            return "processes outlived it: %s" % self.left()
        wrong = self.wrong_with_records()
        if wrong:
            return "%s; %r" % (wrong, finished)
        began = time.monotonic()
        again = self.run("--resume")
        self.recovery = time.monotonic() - began
        if again.status != 0:
            return "it does not go on: %r" % again
        return self.wrong_with_records() or self.wrong_at_the_end()

    def wrong_with_records(self):
        steps = self.rows("SELECT attempt, rank, number, metrics->>'step', metrics->>'half' FROM reports ORDER BY id")
        if steps is None:
            return "a checkpoint of a run without a journal" if self.acknowledged() else None
        told = self.acknowledged()
        for attempt, rank, step in told:
            if [row[3] for row in steps if row[:2] == (attempt, rank)].count(step) != 1:
                return "report %d of rank %d in attempt %d was acknowledged: %s" % (step, rank, attempt, steps)
            if [row[4] for row in steps if row[:2] == (attempt, rank)].count(step) != 1:
                return "the report before it is not there once"
        for key in {row[:2] for row in steps}:
            numbers = [row[2] for row in steps if row[:2] == key]
            if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
                return "reports of attempt %d, rank %d: %s" % (*key, numbers)
        committed = [row[0] for row in self.rows("SELECT metrics->>'step' FROM checkpoints ORDER BY number")]
        if committed != sorted(set(committed)) or not {step for _, _, step in told} <= set(committed):
            return "checkpoints of the steps %s; acknowledged: %s" % (committed, told)
        verified = self.call("checkpoints", "verify", "r", "--storage-path", self.storage)
        return None if verified.status == 0 else repr(verified)

    def wrong_at_the_end(self):
        committed = self.rows("SELECT name FROM checkpoints ORDER BY number")
        there = sorted(name for name in os.listdir(os.path.join(self.storage, "r")) if name not in OTHERS)
        if sorted(name for name, in committed) != there:
            return "committed: %s, there: %s" % (committed, there)
        last = self.rows("SELECT metrics->>'step' FROM checkpoints ORDER BY number DESC LIMIT 1")
        if last != [(STEPS,)]:
            return "it went on to step %s" % last
        return "processes outlived it" if self.left() else None


class CrashPoints(harness.Case):
    def point(self, name, *what):
        return Point(self.environment, os.path.join(self.place, name), *what)

    def count(self, role):
        """How many calls the role makes in a run that nobody kills."""
        path = os.path.join(self.place, "count")
        point = self.point("count-" + role, role, 0, False)
        self.assert_status(0, point.crash(path))
        self.assertIsNone(point.wrong_with_records())
        with open(path) as file:
            return int(file.read())

    def test_every_point(self):
        points = soak("CRASH_POINTS", 200)
        seed = int(os.environ.get("TRAINYARD_TEST_SEED", 1))
        choose = random.Random(seed)
        told, recoveries = [], []

        def look(number, role, k, half):
            point = self.point("p-" + number, role, k, half)
            try:
                wrong = point.problem()
            except Exception as error:  # it is told with its point
                wrong = repr(error)
            shutil.rmtree(point.place, True)
            recoveries.append(point.recovery)
            if wrong:
                told.append("%s: %s" % (point, wrong))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for role in ENDS:
                count = self.count(role)
                self.assertGreater(count, 20)
                for number in range(points // len(ENDS)):
                    k = 1 + int((number + choose.random()) * count / (points // len(ENDS)))
                    pool.submit(look, "%s-%d" % (role, number), role, k, choose.random() < 0.5)
        recoveries.sort()
        print("whole runs that went on took %.0f ms (median), %.0f ms (99th percentile), %.0f ms at most" % tuple(
            1000 * recoveries[int(part * (len(recoveries) - 1))] for part in (0.5, 0.99, 1)))
        if "TRAINYARD_TEST_RECOVERIES" in os.environ:  # for the bench, which judges them
            with open(os.environ["TRAINYARD_TEST_RECOVERIES"], "w") as file:
                file.writelines("%f\n" % seconds for seconds in recoveries)
        self.assertEqual([], told[:3], "%d of %d points, seed %d" % (len(told), points, seed))


if __name__ == "__main__":
    if not os.path.exists(LIBRARY):
        sys.exit("no %s: build first, or set TRAINYARD_BUILD" % LIBRARY)
    unittest.main()
