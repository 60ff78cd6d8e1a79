"""`run --chaos`: workers are killed, stopped and starved by a schedule that a seed gives; what a run does with it is as ever."""

import json
import re
import signal
import sqlite3

from harness import Case, main

FAULT = re.compile(r"chaos at ([0-9.]+) s: rank (\d+) (?:\(pid \d+\) )?is (killed|stopped for|starved for)(?: ([0-9.]+ \w+))?")
BUSY = ["sh", "-c", "while :; do :; done"]
# Goes on where its rank was when it was killed; a step is 20 ms.
STEPS = """
import os, time
path = "progress-" + os.environ["RANK"]
done = os.path.getsize(path) if os.path.exists(path) else 0
for step in range(done, 40):
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

    def test_a_seed_gives_the_same_schedule(self):
        told, first = [], None
        for name, seed in (("a", 7), ("b", 7), ("c", 8)):
            finished = self.run_workers("--name", name, "-n", 3, "--max-failures", -1, "--time-limit", "2s", "--chaos",
                                        "%d:100ms" % seed, "-q", "--", *BUSY)
            self.assert_status(124, finished)
            first = first or finished.err
            told.append([fault[1:] for fault in faults(finished.err)])
        n = min(map(len, told))  # a machine that is busy comes to fewer
        self.assertGreaterEqual(n, 4)
        self.assertEqual(told[0][:n], told[1][:n])
        self.assertNotEqual(told[0][:n], told[2][:n])
        self.assertIn("killed", {kind for _, kind, _ in told[0]})
        words = {"kill": "killed", "pause": "stopped for", "starve": "starved for"}
        recorded = [(str(rank), words[json.loads(data)["fault"]]) for rank, data in self.events("chaos", "a")]
        happened = [match[1:3] for match in re.findall(r"at ([0-9.]+) s: rank (\d+) \(pid \d+\) is (killed|stopped for|starved for)", first)]
        self.assertEqual(happened, recorded)

    def test_a_program_that_goes_on_comes_through(self):
        script = self.write("steps.py", STEPS)
        finished = self.run_workers("-n", 2, "--max-failures", -1, "--chaos", "3:300ms", "--", "python3", script, timeout=120)
        self.assert_status(0, finished)
        self.assertTrue(faults(finished.err), repr(finished))
        for rank in range(2):
            with open("%s/progress-%d" % (self.place, rank)) as file:
                self.assertGreaterEqual(len(file.read()), 40)

    def test_a_killed_worker_is_a_failure_like_any(self):
        finished = self.run_workers("-n", 2, "--chaos", "1:50ms", "-q", "--", *BUSY)
        self.assert_status(137, finished)
        killed = re.findall(r"rank (\d+) \(pid \d+\) is killed", finished.err)  # not one that did not run yet
        self.assertIn("first cause: rank %s was killed by signal 9 (SIGKILL)" % killed[0], finished.err)

    def test_a_worker_that_was_stopped_ends_when_told_to(self):
        """Seed 889 stops rank 0 of 2 for 18 s, four seconds after the start."""
        process = self.start_run("-n", 2, "--grace", "10s", "--chaos", "889:20s", "--", *BUSY)
        line = process.stderr.readline()
        self.assertRegex(line, r"rank 0 \(pid \d+\) is stopped for 17.9 s")
        pid = int(re.search(r"pid (\d+)", line).group(1))
        self.wait_for(lambda: self.state_of(pid) == "T", "a stop", process)
        process.send_signal(signal.SIGINT)
        finished = self.assert_status(130, self.finish(process))
        self.assertNotIn("SIGKILL", finished.err)  # which one that is still stopped after the grace gets

    def state_of(self, pid):
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0]

    def test_values_that_are_none(self):
        for value, words in (("x", "whole number"), ("-1", "whole number"), ("", "whole number"), ("1:", "duration"),
                             ("1:1ms", "10ms"), ("1:-1s", "duration"), ("9223372036854775808", "whole number")):
            with self.subTest(value):
                self.assert_usage(self.run_workers("-n", 1, "--chaos=" + value, "--", "true"), "run", "--chaos", words)


if __name__ == "__main__":
    main()
