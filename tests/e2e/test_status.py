"""`trainyard status` and `logs` of runs that go on and that ended, and what workers tell with `report` and `store`."""

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import time

import seen
from harness import COMMAND, Case, main, open_files


def shell(script):
    """A worker that runs a script, in which @ is the command."""
    return ["--", "/bin/sh", "-c", script.replace("@ ", "'%s' " % COMMAND)]


class RunCase(Case):
    def status(self, *names):
        return self.assert_status(0, self.trainyard("status", *names, "--storage-path", self.storage, "--format", "json")).json

    def status_text(self, *names):
        return self.assert_status(0, self.trainyard("status", *names, "--storage-path", self.storage)).out

    def logs(self, *args):
        return self.assert_status(0, self.trainyard("logs", "--storage-path", self.storage, *args)).out


class FirstCause(Case):
    def test_names_its_rank_once(self):
        self.assert_status(7, self.run_workers("-n", "2", "--name", "mine", "--", "sh", "-c", "[ $RANK = 0 ] || exit 7; sleep 60"))
        out = self.assert_status(0, self.trainyard("status", "--storage-path", self.storage, "mine")).out
        [line] = [line for line in out.splitlines() if "first cause" in line]
        self.assertIn("rank 1 exited with code 7", line)
        self.assertEqual(1, line.count("rank 1"), line)


class Status(RunCase):
    def test_succeeded(self):
        self.assert_status(0, self.run_workers("--name", "good", "-n", "3", *shell("@ report loss=0.5 step=$RANK; echo done")))
        one = self.status("good")
        self.assertEqual("succeeded", one["state"])
        self.assertEqual(0, one["exit_status"])
        self.assertEqual((3, 1, 1), (one["workers"], one["nodes"], one["attempts"]))
        self.assertEqual(3, one["workers_by_state"]["succeeded"])
        self.assertEqual(3, one["reports"])
        self.assertEqual({"loss": 0.5, "step": 0}, one["metrics"])
        self.assertIsNone(one["cause"])
        self.assertEqual(["good"], [run["name"] for run in self.status()["runs"]])
        text = self.status_text("good")
        self.assertIn("succeeded, exit status 0", text)
        self.assertIn("loss 0.5, step 0", text)
        self.assertIn("loss 0.5, step 0", self.status_text())

    def test_words_that_are_no_text(self):
        self.assert_status(0, self.run_workers("--name", "odd", "--", "true", os.fsdecode(b"\xff\xfe"), "caf\u00e9"))
        self.assertEqual("true '\\xff\\xfe' 'caf\u00e9'", self.status("odd")["command"])

    def test_where_the_start_went(self):
        self.run_workers("--name", "good", "-n", "4", *shell("@ report a=1"))
        phases = {part["phase"]: part for part in self.status("good")["start_up"]}
        for name in ("plan", "agent", "spawn", "first report"):
            self.assertIn(name, phases)
            self.assertGreaterEqual(phases[name]["seconds"], 0)
        self.assertIn(phases["spawn"]["slowest_rank"], range(4))
        self.assertEqual(os.uname().nodename, phases["agent"]["slowest_node"])
        self.assertIn("Where the start went", self.status_text("good"))

    def test_where_the_start_of_the_last_attempt_went(self):
        self.assert_status(0, self.run_workers("--name", "again", "-n", "2", "--max-failures", "1",
                                               *shell('if [ "$RANK" = 0 ] && ! [ -e begun ]; then touch begun; exit 3; fi; sleep 0.4; @ report a=1')))
        self.assertIn("Where the start of attempt 2 went:", self.status_text("again"))
        phases = {part["phase"]: part for part in self.status("again")["start_up"]}
        self.assertGreaterEqual(phases["first report"]["seconds"], 0.4)
        self.assertIn(phases["first report"]["slowest_rank"], range(2))

    def test_failed_names_the_first_cause(self):
        finished = self.run_workers("--name", "bad", "-n", "3", *shell('if [ "$RANK" = 1 ]; then exit 7; fi; sleep 60'))
        self.assert_status(7, finished)
        one = self.status("bad")
        self.assertEqual(("failed", 7, 1), (one["state"], one["exit_status"], one["cause_rank"]))
        self.assertIn("7", one["cause"])
        self.assertEqual((1, 2), (one["workers_by_state"]["failed"], one["workers_by_state"]["stopped"]))
        self.assertIn("first cause  rank 1 exited with code 7", self.status_text("bad"))

    def test_running_then_interrupted(self):
        run = self.start_run("--name", "long", "-n", "2", *shell("@ report step=1; sleep 60"))
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "long", "run.db")), "the journal")
        self.wait_for(lambda: self.status("long")["reports"] == 2, "both reports")
        one = self.status("long")
        self.assertEqual(("running", run.pid, None), (one["state"], one["pid"], one["exit_status"]))
        self.assertIn("running, process %d" % run.pid, self.status_text("long"))
        run.send_signal(signal.SIGINT)
        self.assert_status(130, self.finish(run))
        self.assertEqual("interrupted", self.status("long")["state"])

    def test_died(self):
        run = self.start_run("--name", "long", "-n", "2", *shell("@ report step=1; sleep 60"))
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "long", "run.db")), "the journal")
        self.wait_for(lambda: self.status("long")["reports"] == 2, "both reports")
        run.kill()
        self.finish(run)
        self.assertEqual("died", self.status("long")["state"])
        self.assertIn("died", self.status_text())

    def test_history(self):
        """Each attempt with how it ended and why; what was killed with its controller has died."""
        script = """case $TRAINYARD_ATTEMPT$RANK in
            11) sleep 0.3; exit 7;; 1*) mkdir c; @ report --checkpoint c step=1; sleep 60;; 2*) echo up; sleep 60;; esac"""
        run = self.start_run("--name", "long", "-n", "2", "--max-failures", "1", *shell(script))
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "long", "run.db")), "the journal")
        self.wait_for(lambda: self.status("long")["attempts"] == 2, "the second attempt")
        going = self.status("long")["history"][1]
        self.assertEqual((None, None), (going["outcome"], going["ended"]))
        self.assertIn("goes on", self.status_text("long"))
        self.wait_for(lambda: "up" in self.logs("long"), "the second attempt's output")
        run.kill()
        self.finish(run)
        died = self.status("long")["history"][1]
        self.assert_status(0, self.run_workers("--name", "long", "-n", "1", "--resume", "--", "/bin/true"))
        history = self.status("long")["history"]
        self.assertEqual(died, history[1])
        self.assertEqual(["failed", "died", "succeeded"], [one["outcome"] for one in history])
        self.assertEqual([(1, 2), (2, 2), (3, 1)], [(one["attempt"], one["num_workers"]) for one in history])
        host = os.uname().nodename
        self.assertEqual([(1, host), (None, None), (None, None)], [(one["rank"], one["node"]) for one in history])
        self.assertIn("rank 1 exited with code 7", history[0]["cause"])
        self.assertEqual("its controller died", died["cause"])
        for one in history:
            self.assertLessEqual(one["began"], one["ended"])
        text = self.status_text("long")
        self.assertIn("failed: rank 1 exited with code 7, on node " + host, text)
        self.assertIn("died: its controller died", text)

    def test_a_clock_that_went_back_makes_no_time_negative(self):
        journal = seen.Journal(self.storage, "back", 1)
        journal.begin(0, 1, 1)
        journal.end(-5 * seen.SECOND, 1)
        one = self.status("back")
        self.assertEqual((0, [0]), (one["seconds"], [attempt["seconds"] for attempt in one["history"]]))
        text = self.status_text("back") + self.status_text() + self.trainyard("top", "--storage-path", self.storage, "back").out
        self.assertNotRegex(text, r"\s-[0-9.]+ *(ms|s)")

    def test_the_checkpoint_that_an_attempt_began_from(self):
        script = "mkdir c; @ report --checkpoint c step=1 && [ $TRAINYARD_ATTEMPT = 2 ]"
        finished = self.run_workers("--name", "saved", "-n", "1", "--max-failures", "1", *shell(script))
        self.assert_status(0, finished)
        self.assertIn("rank 0 exited with code 1, on node %s: attempt 2 begins" % os.uname().nodename, finished.err)
        first, second = self.status("saved")["history"]
        self.assertIsNone(first["checkpoint"])
        self.assertEqual(os.path.join(self.storage, "saved", "checkpoint_000001"), second["checkpoint"])

    def test_died_before_its_first_record(self):
        self.run_workers("--name", "early", "-n", "1", "--", "/bin/true")
        database = sqlite3.connect(os.path.join(self.storage, "early", "run.db"))
        with database:
            database.execute("DELETE FROM events")
        database.close()
        one = self.status("early")
        self.assertEqual(("died", 0, []), (one["state"], one["seconds"], one["history"]))
        self.assertLess(abs(one["began"] - time.time()), 3600)
        self.assertNotIn("1970", self.status_text("early"))

    def test_newest_first(self):
        for name in ("b", "a", "c"):
            self.run_workers("--name", name, "-n", "1", "--", "/bin/true")
        self.assertEqual(["c", "a", "b"], [run["name"] for run in self.status()["runs"]])

    def test_a_damaged_journal_hides_no_other_run(self):
        self.run_workers("--name", "good", "-n", "1", "--", "/bin/true")
        os.mkdir(os.path.join(self.storage, "damaged"))
        with open(os.path.join(self.storage, "damaged", "run.db"), "w") as file:
            file.write("not a database" * 100)
        finished = self.assert_status(0, self.trainyard("status", "--storage-path", self.storage))
        self.assertIn("good", finished.out)
        self.assert_line(finished, "status", "warning", "damaged")
        self.assertNotEqual(0, self.trainyard("status", "damaged", "--storage-path", self.storage).status)

    def test_nearest_name(self):
        self.run_workers("--name", "digits", "-n", "1", "--", "/bin/true")
        finished = self.assert_status(2, self.trainyard("status", "digit", "--storage-path", self.storage))
        self.assert_line(finished, "status", "digit", "did you mean digits?")

    def test_escapes_are_shown(self):
        self.run_workers("--name", "x", "-n", "1", *shell('@ report "$(printf "a\\033[31m")=1"'))
        self.assertNotIn("\x1b", self.status_text("x") + self.status_text())

    def test_of_many_the_newest_and_those_that_go_on(self):
        gate = os.path.join(self.place, "gate")
        os.mkfifo(gate)
        oldest = self.start_run("--name", "oldest", *shell("read line < %s" % gate))
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "oldest", "run.db")), "the run")
        self.run_workers("--name", "run-0", "--", "/bin/true")
        for i in range(1, 120):
            shutil.copytree(os.path.join(self.storage, "run-0"), os.path.join(self.storage, "run-%d" % i))
        lines = self.assert_status(0, self.trainyard("status", "--storage-path", self.storage)).out.splitlines()
        names = [line.split()[0] for line in lines[1:-1]]
        self.assertEqual({"oldest"} | {"run-%d" % i for i in range(20, 120)}, set(names))
        self.assertEqual("20 older ones are not shown: --all", lines[-1])
        self.assertEqual(122, len(self.assert_status(0, self.trainyard("status", "--all", "--storage-path", self.storage)).out.splitlines()))
        listed = self.assert_status(0, self.trainyard("status", "--format", "json", "--storage-path", self.storage)).out
        self.assertEqual(121, len(json.loads(listed)["runs"]))
        with open(gate, "w") as file:
            file.write("go\n")
        self.assert_status(0, self.finish(oldest))


class Logs(RunCase):
    def test_rank_order_and_prefix(self):
        self.run_workers("--name", "a", "-n", "3", *shell('echo "one $RANK"; echo "two $RANK" >&2'))
        expected = "".join("[rank %d] one %d\n[rank %d] two %d\n" % ((rank,) * 4) for rank in range(3))
        self.assertEqual(expected, self.logs("a"))
        self.assertEqual("one 1\ntwo 1\n", self.logs("a", "--rank", "1", "--no-prefix"))
        self.assertEqual("[rank 0] two 0\n[rank 2] two 2\n", self.logs("a", "--rank", "0,2", "--tail", "1"))
        self.assertEqual("", self.logs("a", "--tail", "0"))

    def test_tail_counts_lines(self):
        self.run_workers("--name", "a", "-n", "1", *shell("seq 1 20000; printf end"))
        self.assertEqual("19999\n20000\nend\n", self.logs("a", "--no-prefix", "--tail", "3"))
        self.assertEqual(20001, len(self.logs("a", "--tail", "99999").splitlines()))

    def test_bytes_as_written_off_a_terminal_and_harmless_on_one(self):
        self.run_workers("--name", "a", "-n", "1", *shell("printf '\\033[31mred\\n'"))
        self.assertIn("\x1b[31mred", self.logs("a"))
        command = "'%s' logs a --storage-path %s" % (COMMAND, self.storage)
        shown = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, text=True, check=True,
                               env=self.environment, stdin=subprocess.DEVNULL).stdout
        self.assertIn("\\x1b[31mred", shown)
        self.assertNotIn("\x1b[31m", shown)

    def test_more_ranks_than_files_that_may_be_open(self):
        """Up to as many as the user may allow; where there are more, the limit is named."""
        def logs(*limits):
            return self.trainyard("logs", "a", "--storage-path", self.storage,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits))

        self.run_workers("--name", "a", "-n", "16", "--num-cpus", "16", *shell("echo $RANK"))
        shown = self.assert_status(0, logs(12, 64)).out
        self.assertEqual(["[rank %d] %d" % (rank, rank) for rank in range(16)], shown.splitlines())
        self.assert_line(self.assert_status(1, logs(12, 12)), "logs", "Too many open files (limit 12: ulimit -n)")

    def test_no_such_rank(self):
        self.run_workers("--name", "a", "-n", "1", "--", "/bin/true")
        finished = self.assert_status(2, self.trainyard("logs", "a", "--rank", "5", "--storage-path", self.storage))
        self.assert_line(finished, "logs", "--rank 5")

    def test_follow_until_the_end(self):
        gate = os.path.join(self.place, "gate")
        os.mkfifo(gate)
        run = self.start_run("--name", "a", "-n", "2", *shell('echo "before $RANK"; [ $RANK = 1 ] || read line < %s; echo "after $RANK"' % gate))
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "a", "logs", "rank-1.log")), "the logs")
        follower = self.start("logs", "a", "--follow", "--storage-path", self.storage)
        with open(gate, "w") as file:
            file.write("go\n")
        self.assert_status(0, self.finish(run))
        finished = self.assert_status(0, self.finish(follower))
        self.assertEqual(sorted("[rank %d] %s %d" % (rank, word, rank) for rank in range(2) for word in ("before", "after")),
                         sorted(finished.out.splitlines()))

    def test_log_limit_keeps_head_and_tail_and_followers_lose_nothing(self):
        gate = os.path.join(self.place, "gate")
        os.mkfifo(gate)
        script = "n=0; while read line; do for i in $(seq 100); do n=$((n + 1)); printf '%0100d\\n' $n; done; done < " + gate
        run = self.start_run("--name", "a", "-n", "1", "--log-limit", "64KiB", "--quiet", *shell(script))
        log = os.path.join(self.storage, "a", "logs", "rank-0.log")
        follower, shown = None, []
        with open(gate, "w", buffering=1) as file:
            for _ in range(25):
                file.write("go\n")
                self.wait_for(lambda: os.path.exists(log) and os.path.getsize(log) > 0, "the log")
                follower = follower or self.start("logs", "a", "--follow", "--no-prefix", "--storage-path", self.storage)
                shown += [follower.stdout.readline() for _ in range(100)]
        self.assert_status(0, self.finish(run))
        self.assertEqual("", self.assert_status(0, self.finish(follower)).out)
        self.assertEqual(["%0100d\n" % (i + 1) for i in range(2500)], shown)
        with open(log) as file:
            lines = file.readlines()
        mark = [i for i, line in enumerate(lines) if "bytes are left out here, by --log-limit" in line]
        self.assertEqual(1, len(mark))
        self.assertEqual(shown[: mark[0]], lines[: mark[0]])
        self.assertEqual(shown[mark[0] + 1 - len(lines):], lines[mark[0] + 1:])
        self.assertEqual(101 * (2500 - len(lines) + 1), int(lines[mark[0]].split()[1]))
        self.assertEqual(["rank-0.log"], os.listdir(os.path.dirname(log)))

    def test_follow_ends_when_the_controller_is_killed(self):
        run = self.start_run("--name", "a", "-n", "1", *shell("echo begun; sleep 60"))
        log = os.path.join(self.storage, "a", "logs", "rank-0.log")
        self.wait_for(lambda: os.path.exists(log) and os.path.getsize(log) > 0, "the log")
        follower = self.start("logs", "a", "-f", "--storage-path", self.storage)
        self.assertEqual("[rank 0] begun\n", follower.stdout.readline())
        run.kill()
        self.finish(run)
        self.assert_status(0, self.finish(follower))

    def test_follow_goes_on_in_a_new_directory(self):
        """Somebody removed that of the logs, and the run made another."""
        process = self.start("run", "--storage-path", self.storage, "--name", "a", "--quiet", "--", "sh", "-c",
                             "n=0; until [ -e stop ]; do n=$((n + 1)); echo $n; sleep 0.05; done; echo last")
        logs = os.path.join(self.storage, "a", "logs")
        log = os.path.join(logs, "rank-0.log")
        self.wait_for(lambda: os.path.exists(log), "the log", process)
        follower = self.start("logs", "a", "-f", "--storage-path", self.storage)
        self.assertEqual("[rank 0] 1\n", follower.stdout.readline())
        os.rename(logs, os.path.join(self.place, "removed"))  # in one go: the log is begun anew while the files are removed
        shutil.rmtree(os.path.join(self.place, "removed"))
        self.wait_for(lambda: os.path.exists(log) and os.path.getsize(log) > 0, "the log anew", process)
        with open(log) as file:
            newest = int(file.read().split()[-1])
        while int(follower.stdout.readline().split()[-1]) <= newest:
            pass
        self.write("stop", "")
        self.assert_status(0, self.finish(process))
        self.assertEqual("[rank 0] last", self.assert_status(0, self.finish(follower)).out.splitlines()[-1])

    def test_follow_goes_on_behind_a_cut(self):
        """Somebody took the room of a log away while it was written and followed."""
        process = self.start("run", "--storage-path", self.storage, "--name", "a", "--quiet", "--", "sh", "-c",
                             "echo a line that is longer than the next; until [ -e go ]; do sleep 0.01; done; echo next")
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "a", "logs", "rank-0.log")), "the log", process)
        follower = self.start("logs", "a", "-f", "--storage-path", self.storage)
        self.assertEqual("[rank 0] a line that is longer than the next\n", follower.stdout.readline())
        os.truncate(os.path.join(self.storage, "a", "logs", "rank-0.log"), 0)
        self.write("go", "")
        self.assert_status(0, self.finish(process))
        self.assertEqual("[rank 0] next\n", self.assert_status(0, self.finish(follower)).out)

    def test_follow_reads_only_what_is_new(self):
        """Of a run with thousands of ranks each line would else cost a look at all of their files."""
        process = self.start_run("--name", "a", "-n", "1", "--quiet", *shell("echo first; until [ -e go ]; do sleep 0.01; done; echo next; "
                                                                             "until [ -e enough ]; do sleep 0.01; done"))
        log = os.path.join(self.storage, "a", "logs", "rank-%d.log")
        self.wait_for(lambda: os.path.exists(log % 0) and os.path.getsize(log % 0) > 0, "the log", process)
        for rank in range(1, 1000):
            with open(log % rank, "w") as file:
                file.write("the last of those that are there\n" if rank == 999 else "")
        follower = self.start("logs", "a", "-f", "--storage-path", self.storage)
        self.assertEqual(["[rank 0] first\n", "[rank 999] the last of those that are there\n"], [follower.stdout.readline() for _ in range(2)])

        def reads():
            with open("/proc/%d/io" % follower.pid) as file:
                return next(int(line.split()[1]) for line in file if line.startswith("syscr:"))
        before = reads()
        self.write("go", "")
        self.assertEqual("[rank 0] next\n", follower.stdout.readline())
        with open(log % 1000, "w") as file:
            file.write("another one\n")
        self.assertEqual("[rank 1000] another one\n", follower.stdout.readline())
        self.assertLess(reads() - before, 500)
        self.write("enough", "")
        self.assert_status(0, self.finish(process))
        self.assertEqual("", self.assert_status(0, self.finish(follower)).out)

    def test_a_log_that_is_removed_is_told_and_begun_anew(self):
        """Once, whoever's logs they are; followers and the file have what comes then."""
        script = "echo of old; until [ -e again ]; do sleep 0.2; echo waits; done; echo next; until [ -e go ]; do sleep 0.05; done; echo last"
        process = self.start("run", "--storage-path", self.storage, "--name", "a", "-n", "2", "--num-cpus", "2", "--quiet", "--", "sh", "-c", script)
        logs = [os.path.join(self.storage, "a", "logs", "rank-%d.log" % rank) for rank in range(2)]
        self.wait_for(lambda: all(os.path.exists(log) and os.path.getsize(log) > 7 for log in logs), "the logs", process)
        follower = self.start("logs", "a", "-f", "--rank", "1", "--no-prefix", "--storage-path", self.storage)
        self.assertEqual("of old\n", follower.stdout.readline())
        for log in logs:
            os.unlink(log)
        self.wait_for(lambda: all(os.path.exists(log) for log in logs), "the logs", process)
        self.write("again", "")
        self.wait_for(lambda: follower.stdout.readline() == "next\n", "what comes then", process)
        self.write("go", "")
        finished = self.assert_status(0, self.finish(process))
        self.assertEqual("last\n", self.assert_status(0, self.finish(follower)).out)
        told = [line for line in finished.err.splitlines() if "was removed while the run goes on" in line]
        self.assertEqual(1, len(told), finished.err)
        for log in logs:
            with open(log) as file:
                lines = file.read().splitlines()
            self.assertEqual((["waits"], ["next", "last"]), (sorted(set(lines[:-2])), lines[-2:]))

    def test_follow_of_an_ended_run(self):
        self.run_workers("--name", "a", "-n", "1", *shell("echo x"))
        self.assertEqual("[rank 0] x\n", self.logs("a", "--follow"))

    def test_follow_of_a_rank_that_there_is_not(self):
        """While the run goes on the rank may still come; at the end it is said that it has not."""
        run = self.start_run("--name", "a", "-n", "1", "--quiet", *shell("echo x; until [ -e go ]; do sleep 0.01; done"))
        log = os.path.join(self.storage, "a", "logs", "rank-0.log")
        self.wait_for(lambda: os.path.exists(log) and os.path.getsize(log) > 0, "the log", run)
        follower = self.start("logs", "a", "-f", "--rank", "0,5", "--storage-path", self.storage)
        self.assertEqual("[rank 0] x\n", follower.stdout.readline())
        self.write("go", "")
        self.assert_status(0, self.finish(run))
        told = "trainyard logs: --rank 5: run a has no log of that rank\n"
        self.assertEqual(told, self.assert_status(2, self.finish(follower)).err)
        self.assertEqual(told, self.assert_status(2, self.trainyard("logs", "a", "-f", "--rank", "5", "--storage-path", self.storage)).err)

    def test_reader_that_goes_away(self):
        self.run_workers("--name", "a", "-n", "1", "--quiet", *shell("seq 1 100000"))
        out = subprocess.run("'%s' logs a --storage-path %s | head -n 1" % (COMMAND, self.storage), shell=True, capture_output=True,
                             text=True, env=self.environment, timeout=180)
        self.assertEqual(("[rank 0] 1\n", ""), (out.stdout, out.stderr))


class Anew(Case):
    """Whoever looks at a run on and on, and is too slow to see it end, removed, and another one begun under its name."""

    def looking(self, *words):
        """A command that has looked once, and is stopped."""
        process = self.start(words[0], "--storage-path", self.storage, "a", *words[1:])

        def waits():
            with open("/proc/%d/stat" % process.pid) as file:
                sleeps = file.read().rsplit(")", 1)[1].split()[0] == "S"
            return sleeps and any("inotify" in link for link in open_files(process.pid))
        self.wait_for(waits, "a look", process)
        process.send_signal(signal.SIGSTOP)
        return process

    def begin(self, word):
        run = self.start_run("--name", "a", "-n", "1", "--quiet", *shell("echo %s; until [ -e go ]; do sleep 0.01; done; rm go" % word))
        log = os.path.join(self.storage, "a", "logs", "rank-0.log")
        self.wait_for(lambda: os.path.exists(log) and os.path.getsize(log) > 0, "the log", run)
        return run

    def test_a_run_that_is_removed_and_made_anew(self):
        run = self.begin("old")
        looking = {words: self.looking(*words) for words in (("logs", "-f"), ("wait",), ("metrics", "--format", "csv", "--follow"))}
        self.write("go", "")
        self.assert_status(0, self.finish(run))
        self.assert_status(0, self.trainyard("rm", "a", "--storage-path", self.storage))
        run = self.begin("new")
        for words, process in looking.items():
            with self.subTest(words[0]):
                process.send_signal(signal.SIGCONT)
                finished = self.finish(process)
                self.assertEqual(words[0] == "wait", finished.status == 1, repr(finished))
                self.assertNotIn("new", finished.out)
                if words[0] == "wait":
                    self.assert_line(finished, "wait", "a was removed, and is another run by now")
                if words[0] == "logs":
                    self.assertEqual("trainyard logs: warning: a was removed while it was followed\n", finished.err)
        self.write("go", "")
        self.assert_status(0, self.finish(run))


class FromInside(RunCase):
    def test_store(self):
        script = """
            @ store set "from-$RANK" "value $RANK" || exit 20
            other=$(( (RANK + 1) % WORLD_SIZE ))
            [ "$(@ store wait from-$other)" = "value $other" ] || exit 21
            [ "$(@ store get from-$other)" = "value $other" ] || exit 22
            @ store get nothing; [ $? = 1 ] || exit 23
            @ store wait nothing --timeout 20ms 2>error.$RANK; [ $? = 124 ] || exit 24
            [ "$(wc -l < error.$RANK)" = 1 ] || exit 25
            @ store add count 5 > /dev/null || exit 26
            while [ "$(@ store get count)" != 15 ]; do :; done
            [ "$(@ store add down-$RANK -- -15)" = -15 ] || exit 27
        """
        self.assert_status(0, self.run_workers("-n", "3", *shell(script)))

    def test_metrics_that_are_no_numbers(self):
        self.run_workers("--name", "a", "-n", "1", *shell("@ report loss=nan up=inf down=-inf tiny=1e-300"))
        metrics = self.status("a")["metrics"]
        self.assertEqual(["loss", "up", "down", "tiny"], list(metrics))
        self.assertEqual(("NaN", "Infinity", "-Infinity"), (metrics["loss"], metrics["up"], metrics["down"]))
        self.assertEqual(1e-300, metrics["tiny"])
        self.assertIn("loss NaN, up Infinity", self.status_text("a"))

    def test_checkpoint(self):
        script = 'mkdir "d$RANK"; echo "part $RANK" > "d$RANK/part-$RANK"; @ report step=1 --checkpoint "d$RANK"'
        self.assert_status(0, self.run_workers("--name", "a", "-n", "2", *shell(script)))
        one = self.status("a")
        self.assertEqual((1, "checkpoint_000001"), (one["checkpoints"], one["last_checkpoint"]))
        for rank in range(2):
            with open(os.path.join(self.storage, "a", "checkpoint_000001", "part-%d" % rank)) as file:
                self.assertEqual("part %d\n" % rank, file.read())

    def test_checkpoint_that_is_no_directory(self):
        finished = self.run_workers("-n", "1", *shell("@ report a=1 --checkpoint /nonexistent/x"))
        self.assert_status(2, finished)
        self.assertIn("/nonexistent/x", finished.err + finished.out)

    def test_a_run_inside_a_worker_is_a_run_of_its_own(self):
        inner = "echo inner $RANK of $WORLD_SIZE in $TRAINYARD_RUN"
        script = "'%s' run --storage-path %s/inner --num-cpus 2 --name inner -n 2 -- /bin/sh -c '%s'" % (COMMAND, self.place, inner)
        finished = self.run_workers("--name", "outer", "-n", "1", "--", "/bin/sh", "-c", script)
        self.assert_status(0, finished)
        for rank in range(2):
            self.assertIn("[rank %d] inner %d of 2 in inner" % (rank, rank), finished.out)


if __name__ == "__main__":
    main()
