"""W rows of docs/faults.md that no other test shows: what a worker does to itself and to those beside it."""

import os
import resource
import signal
import sqlite3
import sys

from place import REPORT, FaultCase, failing, main

UP = "echo $$ > ready.$RANK; "


class Workers(FaultCase):
    def test_w1_a_killed_worker_begins_another_attempt(self):
        """W1: named with its signal; the gang is stopped as one, and all ranks are in the next attempt."""
        script = UP + REPORT + "attempt=$TRAINYARD_ATTEMPT; [ $TRAINYARD_ATTEMPT = 1 ] && exec sleep 100000; exit 0"
        process = self.shell(script, "--name", "r", "-n", 3, "--max-failures", 1)
        _, pids = self.pids_of(process, 3)
        self.wait_for(lambda: len(self.reported()) == 3, "reports", process)
        os.kill(pids[1], signal.SIGKILL)
        finished = self.assert_status(0, self.finish(process))
        self.assertIn("rank 1 was killed by signal 9 (SIGKILL)", finished.err)
        self.assertEqual([(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)], sorted(self.reported()))
        self.assert_clean()

    def reported(self):
        try:
            return self.rows("SELECT attempt, rank FROM reports")
        except sqlite3.OperationalError:  # the journal is not there yet
            return []

    def test_w2_crashes_of_every_kind(self):
        """W2: the signal is the first cause, told once; what it brings the other ranks to do is folded under it."""
        for name, number in (("SEGV", 11), ("BUS", 7), ("ABRT", 6)):
            with self.subTest(name):
                script = UP + "while [ ! -e ready.0 -o ! -e ready.1 -o ! -e ready.2 ]; do sleep 0.01; done; " \
                    "[ $RANK = 2 ] && kill -%s $$; trap 'exit 9' TERM; while :; do sleep 0.01; done" % name
                finished = self.finish(self.shell(script, "--name", name, "-n", 3))
                self.assert_status(128 + number, finished)
                self.assertEqual(1, finished.err.count("first cause"), repr(finished))
                self.assertIn("rank 2 was killed by signal %d (SIG%s)" % (number, name), finished.err)
                self.forget()
        self.assert_clean()

    def test_a_worker_that_asks_to_be_traced(self):
        """By its parent, the agent, which is no debugger: its signals reach it, also behind an exec, and its end is its own."""
        source = "import ctypes, os, signal, sys\n" \
            "assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0\n" \
            "if len(sys.argv) > 1:\n" \
            "    os.execvp('sh', ['sh', '-c', 'kill -USR1 $$'])\n" \
            "signal.signal(signal.SIGUSR1, lambda *_: print('heard', flush=True))\n" \
            "os.kill(os.getpid(), signal.SIGUSR1)\n" \
            "sys.exit(7)\n"
        path = self.write("work/traced.py", source)
        finished = self.assert_status(7, self.run_workers("--name", "a", "--", sys.executable, "-S", "-E", path))
        self.assertEqual("[rank 0] heard\n", finished.out)
        self.assert_status(128 + signal.SIGUSR1, self.run_workers("--name", "b", "--", sys.executable, "-S", "-E", path, "exec"))
        self.assert_clean()

    def test_a_worker_at_the_limit_of_processor_time(self):
        """The kernel's SIGKILL says nothing of it; a login node may have such a limit."""
        finished = self.finish(self.shell("while :; do :; done", "--name", "r", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (2, 2))))
        self.assert_status(137, finished)
        self.assertRegex(finished.err, r"it had used [12]\.\d s of processor time, and the limit is 2 s \(ulimit -t\)")

    def test_w8_a_worker_that_cannot_be_killed(self):
        """W8: it is waited for no longer than a limit, and nobody says that nothing is left of the run."""
        # One that forks nothing: a child that it has as it freezes would freeze with it.
        script = UP + "[ $RANK = 1 ] && exec sleep 100000; while [ ! -e go ]; do sleep 0.01; done; exit 3"
        freezer = self.make_freezer()
        process = self.shell(script, "--name", "r", "-n", 2, "--grace", "200ms")
        _, pids = self.pids_of(process, 2)
        self.freeze(pids[1], freezer)
        self.write("work/go", "")
        finished = self.assert_status(3, self.finish(process))
        self.assertIn("first cause: rank 0 exited with code 3", finished.err)
        self.assertRegex(finished.err, r"node \S+: process %d does not end after SIGKILL" % pids[1])
        self.assertIn("rank 1 did not run to the end", finished.err)
        self.assertIn("not every node could prove that nothing is left", finished.err)

    @staticmethod
    def limit_files():
        """So that the flood is no flood on the disk: rank 0's log ends at 16 MiB."""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 24, 1 << 24))

    def test_w11_a_flood_does_not_hold_up_reports(self):
        """W11: output without a line end from one rank; another's reports and an interrupt come through."""
        script = UP + "if [ $RANK = 0 ]; then exec cat /dev/zero; fi; " \
            "for i in 1 2 3 4 5 6 7 8; do " + REPORT + "i=$i; done; : > there; exec sleep 100000"
        with open(os.devnull, "w") as nowhere:
            process = self.shell(script, "--name", "r", "-n", 2, "--grace", "200ms", "--quiet", stdout=nowhere,
                                 preexec_fn=self.limit_files)
            self.wait_for_files(process, "there")
            process.send_signal(signal.SIGINT)
            self.assert_status(130, self.finish(process))
        self.assertEqual(list(range(1, 9)), self.metrics(1, "i"))
        self.assertLessEqual(os.path.getsize(os.path.join(self.storage, "r", "logs", "rank-0.log")), 1 << 24)
        self.assert_clean()

    def test_w17_a_daemon_that_writes_faster_than_its_log(self):
        """W17: the end of a worker does not wait for what it left behind to fall silent, nor does the agent of a controller that was killed."""
        script = UP + "unset LD_PRELOAD; (setsid sh -c 'cat /dev/zero & cat /dev/zero >&2' &); " \
            "until [ -s \"$TRAINYARD_RUN_PATH/logs/rank-0.log\" ]; do sleep 0.01; done; : > go.$RANK; %s"
        slow = failing("write", -2, "rank-0.log")
        self.assert_status(0, self.finish(self.shell(script % "exit 0", "--quiet", "--name", "r", "-n", 1, env=slow)))
        self.assert_clean()
        os.unlink(os.path.join(self.work, "go.0"))
        process = self.shell(script % "exec sleep 100000", "--quiet", "--name", "s", "-n", 1, "--grace", "300ms", env=slow)
        self.wait_for(lambda: os.path.exists(os.path.join(self.work, "go.0")), "output", process)
        process.kill()
        self.finish(process)
        self.assert_clean()

    def test_w14_a_fork_storm(self):
        """W14: one rank takes all processes that there may be: it is named, another's reports come through, all is swept."""
        storm = "b() { sleep 100000 & b; }; (b); : > full; while [ ! -e told ]; do :; done; exit 5"
        script = "if [ $RANK = 1 ]; then " + storm + "; fi; while [ ! -e full ]; do :; done; " \
            "echo 'report {\"i\": 1}' >&$TRAINYARD_FD; : > told; while :; do :; done"
        process = self.shell(script, "--name", "r", "-n", 2, **self.few_processes(60))
        finished = self.assert_status(5, self.finish(process))
        self.assertIn("first cause: rank 1 exited with code 5", finished.err)
        self.assertRegex(finished.err, "(?i)cannot fork|resource temporarily unavailable")
        self.assertIn("nothing is left of the run", finished.err)
        self.assertEqual([1], self.metrics(0, "i"))
        self.assert_clean()

    def test_w20_a_worker_without_room_of_its_own(self):
        """W20: what fills up is told by the worker that met it; the run beside it does not notice."""
        beside = self.shell("echo $$ > beside; while [ ! -e go ]; do sleep 0.01; done; " + REPORT + "done=1", "--name", "beside")
        self.wait_for_files(beside, "beside")
        finished = self.finish(self.shell("ulimit -f 8; trap '' XFSZ; exec head -c 100000 /dev/zero > full", "--name", "r", "-n", 1))
        self.assertNotEqual(0, finished.status)
        self.assertIn("rank 0 exited with code", finished.err)
        self.assertIn("File too large", finished.err)
        self.write("work/go", "")
        self.assert_status(0, self.finish(beside))
        self.assertEqual([1], self.metrics(0, "done", "beside"))
        self.assert_clean()

    def test_w24_dead_between_copy_and_report(self):
        """W24: the files of one rank are there, the other died before its report: nothing is latest but what was before."""
        script = UP + "mkdir d.$RANK; echo 1 > d.$RANK/part-$RANK; " + REPORT + "step=1 --checkpoint d.$RANK || exit 1; " \
            "if [ $RANK = 1 ]; then exec sleep 100000; fi; : > begun; " + REPORT + "step=2 --checkpoint d.$RANK"
        process = self.shell(script, "--name", "r", "-n", 2, "--grace", "200ms")
        _, pids = self.pids_of(process, 2)
        staging = os.path.join(self.storage, "r", ".checkpoint_000002.attempt-1")
        self.wait_for(lambda: os.path.isdir(staging) and os.listdir(staging), "the files of rank 0", process)
        os.kill(pids[1], signal.SIGKILL)
        finished = self.assert_status(137, self.finish(process))
        self.assertIn("rank 1 was killed by signal 9", finished.err)
        self.assertEqual(["checkpoint_000001"], self.committed())
        self.assert_clean()

    def test_w25_an_end_before_the_commit(self):
        """W25: a worker ends well though its checkpoint is not whole: nobody waits for it any more, so the run itself says so."""
        script = "echo 'checkpoint {\"i\": 1}' >&$TRAINYARD_FD; read answer <&$TRAINYARD_FD; exit 0"
        finished = self.assert_status(0, self.finish(self.shell(script, "--progress", "none", "--name", "r")))
        self.assertEqual("trainyard run: warning: checkpoint 1 is lost: rank 0: its channel was closed before the commit\n", finished.err)
        self.assertEqual([], self.committed())
        self.assertEqual([1], self.metrics(0, "i"))
        self.assert_clean()


if __name__ == "__main__":
    main()
