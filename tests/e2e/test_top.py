"""`trainyard top`: it fits its terminal, obeys its keys, and leaves the terminal as it was."""

import json
import os
import shlex
import signal
import subprocess
import time

import harness
import seen
from harness import Case
from journals import Journal, hold


class Top(Case):
    def setUp(self):
        super().setUp()
        seen.write_a(self.storage)
        seen.write_b(self.storage, "b" * 60)
        self.socket = os.path.join(self.place, "tmux")

    def tmux(self, *args):
        return subprocess.run(["tmux", "-S", self.socket, *args], capture_output=True, text=True, check=True,
                              env=dict(self.environment, LC_ALL="C.UTF-8")).stdout

    def begin(self, columns, rows, *args):
        """A shell in a terminal of that size, with `top` in it."""
        self.addCleanup(subprocess.run, ["tmux", "-S", self.socket, "kill-server"], capture_output=True)
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", self.place, "sh")
        self.tmux("send-keys", "stty -a > before; %s top --storage-path %s %s; echo status $?; stty -a > after" % (
            shlex.quote(harness.COMMAND), shlex.quote(self.storage), " ".join(args)), "Enter")

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def see(self, *words):
        self.wait_for(lambda: all(word in self.screen() for word in words), "%r on the screen" % (words,))
        return self.screen()

    def pid(self):
        for pid in harness.processes_with(self.place):
            with open("/proc/%d/comm" % pid) as name:
                if name.read() == "trainyard\n":
                    return pid
        return self.fail("there is none")

    def check_restored(self):
        after = os.path.join(self.place, "after")
        self.wait_for(lambda: os.path.exists(after) and os.path.getsize(after) > 0, "the end")
        with open(os.path.join(self.place, "before")) as before, open(after) as text:
            self.assertEqual(before.read().splitlines()[1:], text.read().splitlines()[1:])  # the first tells its size

    def test_list_run_and_back(self):
        self.begin(80, 24)
        shown = self.see("2 runs", "NAME", "succeeded")
        self.assertTrue(all(len(line) <= 80 for line in shown.splitlines()))
        self.tmux("send-keys", "/", "a", "Enter", "Enter")
        self.see("run a", "8000 reports", "*INTERVAL")
        self.tmux("send-keys", "s")
        self.see("*LAG")
        self.tmux("send-keys", "Escape")
        self.see("1 run ", "filter: a")
        self.tmux("send-keys", "q")
        self.see("status 0")
        self.check_restored()

    def test_a_filter_that_leaves_none(self):
        self.begin(80, 24)
        self.see("2 runs", "NAME")
        self.tmux("send-keys", "/", "z", "z")
        shown = self.see("0 runs", "filter: zz", "No run's name has that in it")
        self.assertNotIn("No runs here", shown)
        self.tmux("send-keys", "Escape")
        self.see("2 runs", "NAME")
        self.tmux("send-keys", "q")
        self.see("status 0")
        self.check_restored()

    def test_a_small_terminal_and_a_signal(self):
        self.begin(40, 10, "a")
        shown = self.see("run a", "loss")
        self.assertLessEqual(len(shown.splitlines()), 10)
        self.see(" 0.001998\n", "RANK  STATE       REPORTS *INTERVAL\n", "  1000      0.1\n")  # nothing that counts is cut off
        self.tmux("resize-window", "-x", "100", "-y", "30")
        self.see("RANK  NODE")
        os.kill(self.pid(), signal.SIGTERM)
        self.see("status 143")
        self.check_restored()

    def test_killed(self):
        self.begin(80, 24, "a")
        self.see("run a")
        os.kill(self.pid(), signal.SIGKILL)
        self.see("status 137")

    def test_once_and_without_a_terminal(self):
        for args in (("--once",), ()):
            shown = self.assert_status(0, self.trainyard("top", "--storage-path", self.storage, *args))
            self.assertIn("trainyard top   2 runs", shown.out)
            self.assertNotIn("\x1b", shown.out)
        one = self.assert_status(0, self.trainyard("top", "--storage-path", self.storage, "a"))
        rows = [line.split() for line in one.out.splitlines() if line.strip()[:1].isdigit() and "n1" in line]
        self.assertEqual(8, len(rows))
        self.assertEqual({"n1"}, {row[1] for row in rows})
        many = json.loads(self.trainyard("top", "--storage-path", self.storage, "--format", "json").out)
        self.assertEqual({"a", "b" * 60}, {run["name"] for run in many["runs"]})
        one = json.loads(self.trainyard("top", "--storage-path", self.storage, "a", "--format", "json").out)
        self.assertEqual(("succeeded", 8), (one["run"]["state"], one["ranks"]["ranks"]))

    def test_one_that_cannot_be_read(self):
        """Nothing is told of it but why."""
        os.makedirs(os.path.join(self.storage, "bad"))
        with open(os.path.join(self.storage, "bad", "run.db"), "w") as file:
            file.write("no journal" * 1000)
        shown = self.assert_status(0, self.trainyard("top", "--storage-path", self.storage)).out
        [row] = [line.split() for line in shown.splitlines() if line.startswith("bad ")]
        self.assertEqual(["bad", "unreadable", "-", "-", "-", "cannot"], row[:6])

    def top(self, name, **more):
        return self.assert_status(0, self.trainyard("top", "--storage-path", self.storage, name, "--once", **more)).out

    def test_names_of_others_are_shown_and_not_obeyed(self):
        hostile = "\x1b]0;title\x07\n\u202eab"
        journal = seen.Journal(self.storage, "hostile", 1)
        journal.event(0, "plan", {"nodes": [hostile], "ranks": [0], "devices": [""]}, 1)
        journal.event(0, "attempt", {"workers": 1, "nodes": 1}, 1)
        journal.event(0, "started", {"pid": 1000}, 1, 0, 0)
        journal.reports((n * seen.SECOND, 1, 0, n, {hostile: n, "e\u0301t\u00e9": 2 * n}) for n in range(1, 9))
        journal.end(9 * seen.SECOND, 1)
        shown = self.top("hostile", env={"LC_ALL": "C.UTF-8"})
        self.assertFalse([character for character in shown if ord(character) in (7, 27, 0x202e)], shown)
        [metric] = [line for line in shown.splitlines() if line.startswith("  \\x1b]0;title")]
        self.assertIn("\\x07\\x0a\\u20 ", metric)  # 24 columns of it
        [rank] = [line for line in shown.splitlines() if line.startswith("       0  ")]
        self.assertTrue(rank.startswith("       0  \\x1b]0;title\\x07 "), rank)
        self.assertIn("\n  e\u0301t\u00e9" + " " * 21, shown)

    def test_the_last_lines_of_a_rank(self):
        def write(name, rank, text):
            with open(os.path.join(self.storage, name, "logs", "rank-%d.log" % rank), "wb") as file:
                file.write(text)
        self.assertNotIn("log of", self.top("a"))
        write("a", 0, b"1\n2\n3\n\x1b[32mgreen\x1b[0m \x1b]0;title\x07\n10%\r 50%\r100%\r\n\xffend")
        write("a", 5, b"of rank 5\n")
        lines = self.top("a").splitlines()
        at = lines.index("  log of rank 0:")
        self.assertEqual(["    3", "    green \\x1b]0;title\\x07", "    100%", "    \\xffend"], lines[at + 1:at + 5])
        self.assertIn("RANK", lines[at + 5])
        journal = seen.Journal(self.storage, "failed", 2)
        journal.begin(0, 1, 2)
        journal.end(seen.SECOND, 1, "failed", 7, rank=1, cause="rank 1 exited with code 7")
        write("failed", 0, b"well\n")
        write("failed", 1, b"x" * 10000 + b"\nthe reason\n")
        self.assertRegex(self.top("failed"), r"\n  log of rank 1:\n    x{900,1000}\n    the reason\n +RANK")
        os.unlink(os.path.join(self.storage, "failed", "logs", "rank-1.log"))
        os.symlink("/etc/passwd", os.path.join(self.storage, "failed", "logs", "rank-1.log"))
        self.assertNotIn("log of", self.top("failed"))

    def test_metrics_by_name(self):
        self.begin(80, 24, "a")
        self.see("  loss ", "  step ", "  epoch ")
        self.tmux("send-keys", "/", "o", "s", "Enter")
        self.see("filter: os\n", "  loss ", "RANK")
        self.wait_for(lambda: "  step " not in self.screen() and "  epoch " not in self.screen(), "the others to go")
        self.tmux("send-keys", "/", "Escape")
        self.see("  loss ", "  step ", "  epoch ")
        self.tmux("send-keys", "q")
        self.see("status 0")

    def test_rests_between_looks(self):
        self.begin(80, 24, "a")
        self.see("run a")
        pid = self.pid()

        def switches():
            with open("/proc/%d/status" % pid) as file:
                return int([line for line in file if line.startswith("voluntary")][0].split()[1])
        before, began = switches(), time.monotonic()
        time.sleep(3)
        self.assertLess(switches() - before, 20 * (time.monotonic() - began))

    def test_what_is_kept_between_looks(self):
        """A run of many reports is not read again each second; what comes is seen all the same."""
        run = Journal(self.storage, "live", live=True)
        run.begin(1)
        for n in range(1, 40_001):
            run.report(n, 1, 0, n, {"loss": 1 / n, "of": {"val": n}, "step": n})
        run.commit()
        with hold(run.path):
            self.begin(80, 24, "live")
            self.see("40000 reports", "running")
            pid = self.pid()

            def used():
                with open("/proc/%d/schedstat" % pid) as file:
                    return int(file.read().split()[0])
            first, began = used(), time.monotonic_ns()
            for n in range(40_001, 40_011):
                run.report(n, 1, 0, n, {"loss": n, "of": {"val": -n}, "step": n})
                run.commit()
                self.assertIn("of/val", self.see("%d reports" % n, " %d\n" % n, " -%d\n" % n))
            self.assertLess(used() - first, 2 * first + (time.monotonic_ns() - began) // 50)
        run.done(50_000)

    def test_a_run_that_is_not_there(self):
        self.assert_line(self.assert_status(2, self.trainyard("top", "--storage-path", self.storage, "nothing")), "top", "nothing")


if __name__ == "__main__":
    harness.main()
