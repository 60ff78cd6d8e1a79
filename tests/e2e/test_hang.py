"""Workers that hang: seen, their stacks saved before anything is killed, told as the first cause, started again."""

import os
import shutil
import signal
import sys
import textwrap
import unittest

import harness
from runs import PYTHON, RunCase, main

PROGRAM = os.path.join(harness.BUILD, "tests", "e2e", "hang_program")
YAMA = "/proc/sys/kernel/yama/ptrace_scope"
DEBUGGER = shutil.which("gdb") or shutil.which("eu-stack")


class Hangs(RunCase):
    def hang(self, n, *words, options=(), timeout="1s"):
        return self.start_run("--name", "run", "-n", n, "--hang-timeout", timeout, *options, "--", PROGRAM, *words)

    def stack(self, rank):
        with open(os.path.join(self.storage, "run", "logs", "rank-%d.stack" % rank)) as file:
            return file.read()

    def assert_hung(self, finished, rank, *words):
        self.assert_status(1, finished)
        self.assertIn("first cause: rank %d hung: no report or heartbeat for 1 s" % rank, finished.err)
        self.assertIn("stacks of all ranks: logs/rank-*.stack", finished.err)
        for word in words:
            self.assertIn(word, finished.err, repr(finished))
        one = self.status("run")
        self.assertEqual(("failed", 1, rank), (one["state"], one["exit_status"], one["cause_rank"]))

    def test_a_worker_that_sleeps(self):
        finished = self.finish(self.hang(3, "sleep", 1))
        self.assert_hung(finished, 1, "where rank 1 stands", "ranks 0,2 stopped when told to", "nothing is left of the run")
        for rank in range(3):
            self.assertIn("rank %d%s" % (rank, ", which hangs" if rank == 1 else ""), self.stack(rank).splitlines()[0])
            self.assertIn("== process", self.stack(rank))
            self.assertIn(PROGRAM, self.stack(rank))

    @unittest.skipUnless(DEBUGGER, "neither gdb nor eu-stack is installed")
    def test_the_function_is_named(self):
        finished = self.finish(self.hang(2, "sleep", 0))
        self.assert_hung(finished, 0, "sleep_for_ever")
        self.assertIn("sleep_for_ever", self.stack(0))
        self.assertIn("live", self.stack(1))
        self.assertNotIn("sleep_for_ever", self.stack(1))

    def test_a_worker_that_spins(self):
        finished = self.finish(self.hang(2, "spin", 1))
        self.assert_hung(finished, 1)
        self.assertIn("running (R)", self.stack(1))

    def test_a_stopped_worker_is_told_as_such(self):
        process = self.hang(2, "none", 0)
        self.wait_for_files(process, "there.0", "there.1")
        os.kill(int(self.wait_for(lambda: self.read("there.1"), "its pid")), signal.SIGSTOP)
        finished = self.finish(process)
        self.assert_hung(finished, 1, "its process is stopped (T)")
        self.assertIn("stopped (T)", self.stack(1))

    def test_a_worker_that_goes_on_in_time(self):
        process = self.hang(2, "live", 0, timeout="2s")
        self.assert_status(0, self.finish(process))
        self.assertFalse([name for name in os.listdir(os.path.join(self.storage, "run", "logs")) if name.endswith(".stack")])

    def test_whoever_waits_for_others_does_not_hang(self):
        self.assert_status(0, self.finish(self.hang(2, "wait", 0)))

    def test_all_wait_for_each_other(self):
        finished = self.assert_status(1, self.finish(self.hang(3, "stuck", 0)))
        self.assertIn("first cause: rank 2 hung: all ranks have waited for each other in the store for 1 s: ", finished.err)
        self.assertIn('ranks 0-1 wait for "', finished.err)
        self.assertIn('rank 2 waits for "never"', finished.err)
        self.assertIn("ty_store_wait" if DEBUGGER else "== process", self.stack(2))
        self.assertEqual(2, self.status("run")["cause_rank"])

    def test_some_wait_in_the_store_and_others_for_a_checkpoint(self):
        script = "if [ $RANK != 0 ]; then exec '%s' store wait never --timeout 100s; fi; mkdir d; exec '%s' report i=1 --checkpoint d"
        finished = self.assert_status(1, self.finish(self.shell(script % (harness.COMMAND, harness.COMMAND), "--name", "run", "-n", 3,
                                                                "--hang-timeout", "1s")))
        self.assertIn("first cause: rank 1 hung: all ranks have waited for each other in the store and for checkpoints for 1 s: "
                      'ranks 1-2 wait for "never", rank 0 waits for checkpoint 1', finished.err)

    def test_a_checkpoint_that_waits_while_its_rank_trains_on(self):
        """Heartbeats say that it does, though it waits for the others as well, and they for it."""
        os.mkdir(os.path.join(self.work, "d"))
        self.assert_status(0, self.finish(self.hang(2, "async", 0)))
        self.assertTrue(os.path.exists(os.path.join(self.storage, "run", "checkpoint_000001")))

    def test_who_ends_early_is_not_waited_for(self):
        """Rank 1 ends well, and never sets what the others wait for; no word of theirs said that they are up."""
        script = "[ $RANK = 1 ] || '%s' store wait late --timeout 100s" % harness.COMMAND
        finished = self.assert_status(1, self.finish(self.shell(script, "--name", "run", "-n", 3, "--hang-timeout", "1s")))
        self.assertIn("first cause: rank 0 hung: all ranks have waited for each other in the store for 1 s: "
                      'ranks 0,2 wait for "late", rank 1 has ended', finished.err)
        self.assertIn("rank 1 had finished", finished.err)

    def test_the_one_that_computes_is_named_not_those_who_wait_for_it(self):
        finished = self.finish(self.hang(3, "keep", 1))
        self.assert_hung(finished, 1, "ranks 0,2 stopped when told to")

    def test_another_attempt_follows(self):
        finished = self.assert_status(0, self.finish(self.hang(2, "sleep", 1, 1, options=("--max-failures", 1))))
        self.assertIn("rank 1 hung", finished.err)
        self.assertIn("attempt 2 begins", finished.err)
        self.assertEqual(2, self.status("run")["attempts"])

    SILENT = "rank 0 hung: no output, no processor time used and no process that came or went for %s (it never reported)"

    def test_a_program_that_never_reports_and_sleeps_hangs(self):
        for script, told in (("exec sleep 100000", self.SILENT), ("echo begins; sleep 100000", self.SILENT),
                             ("kill -STOP $$", self.SILENT + "; its process is stopped (T)")):
            with self.subTest(script=script):
                finished = self.assert_status(1, self.finish(self.silent(script, "--hang-timeout", "600ms")))
                self.assertIn(told % "600 ms", finished.err, repr(finished))

    def test_who_reported_by_the_command_is_not_said_to_have_never(self):
        finished = self.assert_status(1, self.finish(self.shell("'%s' report x=1; exec sleep 100000" % harness.COMMAND, "--hang-timeout", "1s")))
        self.assertIn("rank 0 hung: no output", finished.err)
        self.assertNotIn("never reported", finished.err)

    def test_signs_of_life_of_a_program_that_never_reports(self):
        """It works; or a child of its does; or it prints; or its processes come and go. Each far more often than it must."""
        spin = "%s -S -E -c 'import time; end = time.monotonic() + 15\nwhile time.monotonic() < end: pass'" % PYTHON
        says = "%s -S -E -u -c 'import time\nfor i in range(30): print(i); time.sleep(0.5)'" % PYTHON
        comes = "i=0; while [ $((i += 1)) -le 30 ]; do sleep 0.5; done"
        for process in [self.silent(script, "--hang-timeout", "10s") for script in ("exec " + spin, "(%s) & wait" % spin, "exec " + says, comes)]:
            with self.subTest(process.args[-1]):
                self.assert_status(0, self.finish(process))

    def silent(self, script, *options):
        return self.start_run(*options, "--", "sh", "-c", script)

    def test_a_shell_beats_by_hand(self):
        script = ("say() { echo \"$*\" >&$TRAINYARD_FD; }; say ready; "
                  "i=0; while [ $((i += 1)) -le 24 ]; do sleep 0.5; say heartbeat; done")
        self.assert_status(0, self.finish(self.shell(script, "--hang-timeout", "10s")))

    def test_a_worker_that_closed_its_channel_is_told_as_such(self):
        script = "echo ready >&$TRAINYARD_FD; exec 0<&- 1>&- 2>&- 3>&-; sleep 100000"
        finished = self.assert_status(1, self.finish(self.shell(script, "--hang-timeout", "1s")))
        self.assertIn("rank 0 hung: no report or heartbeat for 1 s; it has closed its report channel", finished.err)

    def test_an_interrupt_while_stacks_are_saved(self):
        process = self.hang(2, "sleep", -1)
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "run", "logs", "rank-0.stack")), "a stack", process)
        process.send_signal(signal.SIGINT)
        self.assertIn(self.finish(process).status, (1, 130))

    TRAINS = """
        import os, sys, time
        def all_reduce(): time.sleep(100000)
        def load_batch():
            while True: sum(range(100))
        open("there." + os.environ["RANK"], "w").close()
        load_batch() if os.environ["RANK"] == "2" else all_reduce()
    """

    @unittest.skipUnless((3, 11) <= sys.version_info < (3, 14), "no version whose memory is read")
    @unittest.skipIf(os.getuid() != 0 and os.path.exists(YAMA), "who looks may have to be root")
    def test_lines_of_a_python_that_registered_nothing(self):
        train = self.write("train.py", textwrap.dedent(self.TRAINS))
        process = self.start_run("--name", "run", "-n", 4, "--", PYTHON, train)
        self.wait_for_files(process, *("there.%d" % rank for rank in range(4)))
        asked = lambda *options: self.trainyard("stacks", "--storage-path", self.storage, "run", *options)
        stacks = lambda *options: self.assert_status(0, asked(*options)).out
        self.wait_for(lambda: asked().status == 0, "workers on record", process)
        first, then = "1 rank (2): load_batch train.py:5\n", "\n3 ranks (0-1,3): all_reduce train.py:3\n"
        self.wait_for(lambda: (text := stacks()).startswith(first) and then in text, "the lines", process)
        folded = stacks("--seconds", "1", "--format", "folded").splitlines()
        self.assertTrue(any(line.startswith("rank 2;<module> (train.py:7);load_batch (train.py:5) ") for line in folded), folded)
        self.assertTrue(any(line.startswith("rank 3;<module> (train.py:7);all_reduce (train.py:3) ") for line in folded), folded)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assert_status(130, self.finish(process))

    def test_words_of_the_options(self):
        self.assert_usage(self.shell_words("--hang-timeout", "soon"), "run", "hang-timeout")
        self.assert_usage(self.shell_words("--preempt-signal", "KILL"), "run", "preempt-signal", "KILL", "USR1")
        self.assert_usage(self.shell_words("--preempt-signal", "SIGNOTHING"), "run", "preempt-signal")

    def shell_words(self, *options):
        return self.trainyard("run", "--storage-path", self.storage, *options, "--", "true")


if __name__ == "__main__":
    main()
