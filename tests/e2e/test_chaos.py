"""`run --chaos`: workers are killed, stopped and starved by a schedule that a seed gives; what a run does with it is as ever."""

import json
import re
import signal
import sqlite3

from harness import Case, main
from runs import state_of

FAULT = re.compile(r"chaos at ([0-9.]+) s: rank (\d+) (?:\(pid \d+\) )?is (killed|stopped for|starved for)(?: ([0-9.]+ \w+))?")
BUSY = ["sh", "-c", "while :; do :; done"]
# Goes on where its rank was when it was killed; a step is 20 ms.
STEPS = """
import os, time
path = "progress-" + os.environ["RANK"]
done = os.path.getsize(path) if os.path.exists(path) else 0
for step in range(done, 80):
    time.sleep(0.02)
    with open(path, "a") as file:
        file.write(".")
"""


def faults(text):
    return [match.groups() for match in FAULT.finditer(text)]


class Chaos(Case):
    def events(self, kind, name):
        database = sqlite3.connect("%s/%s/run.db" % (self.storage, name))
        rows = database.execute("SELECT rank, data FROM events WHERE kind = ? ORDER BY sequence", (kind,)).fetchall()
        database.close()
        return rows

    def told_of(self, name, seed, n):
        """By a run that is interrupted after `n` faults."""
        process = self.start_run("--name", name, "-n", 3, "--max-failures", -1, "--chaos", "%d:100ms" % seed, "-q", "--", *BUSY)
        told = ""
        while len(faults(told)) < n:
            line = process.stderr.readline()
            self.assertNotEqual("", line, told)
            told += line
        process.send_signal(signal.SIGINT)
        return told + self.assert_status(130, self.finish(process)).err

    def test_a_seed_gives_the_same_schedule(self):
        n = 6
        first, again, other = (self.told_of(name, seed, n) for name, seed in (("a", 7), ("b", 7), ("c", 8)))
        schedules = [[fault[1:] for fault in faults(told)][:n] for told in (first, again, other)]
        self.assertEqual(schedules[0], schedules[1])
        self.assertNotEqual(schedules[0], schedules[2])
        self.assertIn("killed", {kind for _, kind, _ in schedules[0]})
        words = {"kill": "killed", "pause": "stopped for", "starve": "starved for"}
        recorded = [(str(rank), words[json.loads(data)["fault"]]) for rank, data in self.events("chaos", "a")]
        happened = [match[1:3] for match in re.findall(r"at ([0-9.]+) s: rank (\d+) \(pid \d+\) is (killed|stopped for|starved for)", first)]
        self.assertEqual(happened, recorded)

    def test_a_program_that_goes_on_comes_through(self):
        script = self.write("steps.py", STEPS)
        finished = self.run_workers("-n", 2, "--max-failures", -1, "--chaos", "19:1s", "--", "python3", script)
        self.assert_status(0, finished)
        self.assertTrue(faults(finished.err), repr(finished))
        for rank in range(2):
            with open("%s/progress-%d" % (self.place, rank)) as file:
                self.assertGreaterEqual(len(file.read()), 80)

    def test_a_killed_worker_is_a_failure_like_any(self):
        """Seed 2460 kills rank 1 of 2 at 0.5 s, and again at 6.3 s."""
        finished = self.run_workers("-n", 2, "--chaos", "2460:1s", "-q", "--", *BUSY)
        self.assert_status(137, finished)
        killed = re.findall(r"rank (\d+) \(pid \d+\) is killed", finished.err)  # not one that did not run yet
        self.assertIn("first cause: rank %s was killed by signal 9 (SIGKILL)" % killed[0], finished.err)

    def test_a_worker_that_was_stopped_ends_when_told_to(self):
        """Seed 889 stops rank 0 of 2 for 18 s, four seconds after the start."""
        process = self.start_run("-n", 2, "--grace", "60s", "--chaos", "889:20s", "--", *BUSY)
        line = process.stderr.readline()
        self.assertRegex(line, r"rank 0 \(pid \d+\) is stopped for 17.9 s")
        pid = int(re.search(r"pid (\d+)", line).group(1))
        self.wait_for(lambda: state_of(pid) == "T", "a stop", process)
        process.send_signal(signal.SIGINT)
        finished = self.assert_status(130, self.finish(process))
        self.assertNotIn("SIGKILL", finished.err)  # which one that is still stopped after the grace gets

    def test_values_that_are_none(self):
        for value, words in (("x", "whole number"), ("-1", "whole number"), ("", "whole number"), ("1:", "duration"),
                             ("1:1ms", "10ms"), ("1:-1s", "duration"), ("9223372036854775808", "whole number")):
            with self.subTest(value):
                self.assert_usage(self.run_workers("-n", 1, "--chaos=" + value, "--", "true"), "run", "--chaos", words)


if __name__ == "__main__":
    main()
