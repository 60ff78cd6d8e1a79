"""How workers are told to stop: what a key or a signal of the command becomes for the worker, for what it has started, and for
programs behind a shell."""

import os
import re
import signal
import sys

from runs import NEVER, RunCase, children, main

# Says what reaches it. `saves`: it handles SIGTERM, and needs its helper, which handles nothing, to save.
PROGRAM = """
import atexit, os, signal, subprocess, sys, time
words = sys.argv[1:]
rank = os.environ["RANK"]
def say(text):
    os.write(1, (text + "\\n").encode())
helper = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) if "saves" in words else None
def save(number, frame):
    time.sleep(0.3)
    helper.stdin.write(b"saved by the helper\\n"); helper.stdin.flush()
    say(helper.stdout.readline().decode().strip() or "the helper is gone")
    sys.exit(0)
if "saves" in words: signal.signal(signal.SIGTERM, save)
if "deaf" in words:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: say("got " + signal.Signals(number).name))
atexit.register(say, "atexit ran")
try:
    open("ready." + rank, "w").close()
    while True: time.sleep(0.01)
except KeyboardInterrupt:
    say("interrupted")
    if "raises" in words: raise
finally:
    say("finally ran")
"""


class Signals(RunCase):
    def started(self, *args, n=1, **more):
        """A run in which PROGRAM is ready."""
        self.forget()
        process = self.start_run("-n", n, *args, **more)
        self.ready(process, n)
        return process

    def stack(self, rank):
        with open(os.path.join(self.storage, "run", "logs", "rank-%d.stack" % rank)) as file:
            return file.read()

    def program(self, *words):
        return (sys.executable, self.write("work/program.py", PROGRAM), *words)

    def test_signals_that_were_held_when_it_was_started(self):
        """As by a thread that leaves all signals to others, and starts the command."""
        hold = lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.started("--", *self.program(), preexec_fn=hold)
            process.send_signal(number)
            self.assert_status(status, self.finish(process))
            self.assert_clean()

    # -- Ctrl-C

    def test_ctrl_c_is_an_interrupt(self):
        process = self.started("--grace", "1h", "--", *self.program(), n=2)
        process.send_signal(signal.SIGINT)
        finished = self.assert_status(130, self.finish(process))
        for rank in range(2):
            for word in ("interrupted", "finally ran", "atexit ran"):
                self.assertIn("[rank %d] %s\n" % (rank, word), finished.out, repr(finished))
        self.assertNotIn("failed", finished.err, repr(finished))

    def test_ctrl_c_reaches_the_whole_group(self):
        """As at a terminal: here a shell that waits, and ends by itself when its program has."""
        script = self.write("work/run.sh", "trap 'echo the shell heard' INT\n%s %s\necho the program ended\n"
                            % (sys.executable, self.program()[1]))
        process = self.started("--grace", "1h", "--", "sh", script)
        process.send_signal(signal.SIGINT)
        finished = self.assert_status(130, self.finish(process))
        for word in ("interrupted", "finally ran", "the shell heard", "the program ended"):
            self.assertIn("[rank 0] %s\n" % word, finished.out, repr(finished))

    def test_ctrl_c_goes_on_to_the_harder_ones_within_the_grace(self):
        process = self.started("--grace", "6s", "--", *self.program("deaf"))
        process.send_signal(signal.SIGINT)
        finished = self.assert_status(130, self.finish(process))
        self.assertIn("[rank 0] got SIGINT\n[rank 0] got SIGTERM\n", finished.out, repr(finished))
        self.assertNotIn("finally", finished.out)

    def test_a_worker_made_for_sigterm_has_it_at_once(self):
        """It would die of SIGINT, which it does not handle; what it has started is not told either."""
        script = "trap 'echo saved; exit 0' TERM; : > ready.0; while :; do sleep 0.01; done"
        inner = self.write("work/inner.sh", script)
        for words in (("sh", "-c", script), ("bash", "-c", script), ("bash", "-c", "sh %s; echo the shell went on" % inner)):
            with self.subTest(words=words):
                process = self.started("--grace", "1h", "--", *words)
                process.send_signal(signal.SIGINT)
                finished = self.assert_status(130, self.finish(process))
                self.assertIn("[rank 0] saved\n", finished.out, repr(finished))

    def test_ctrl_c_twice_is_the_end(self):
        process = self.started("--grace", "1h", "--", *self.program("deaf"))
        self.signal(process, signal.SIGINT, 2)
        finished = self.assert_status(130, self.finish(process))
        self.assertNotIn("SIGTERM", finished.out, repr(finished))

    # -- Ctrl-\\

    def test_quit_saves_the_stacks_of_all_ranks(self):
        """Also of programs that handle every signal, and know nothing of the run."""
        process = self.started("--name", "run", "--grace", "1h", "--", *self.program("deaf"), n=2)
        process.send_signal(signal.SIGQUIT)
        finished = self.assert_status(128 + signal.SIGQUIT, self.finish(process))
        self.assertIn("SIGQUIT): the stacks of all ranks go to %s/logs/rank-*.stack" % os.path.join(self.storage, "run"), finished.err, repr(finished))
        self.assertEqual("", finished.out, repr(finished))  # killed
        for rank in range(2):
            self.assertIn("program.py deaf", self.stack(rank))

    def test_stacks_of_a_run_that_goes_on(self):
        process = self.started("--name", "run", "--", *self.program(), n=2)
        # Workers are on record a moment after they have begun.
        self.wait_for(lambda: self.trainyard("stacks", "--storage-path", self.storage, "run").out.count("/program.py") >= 2, "both ranks", process)
        shown = self.assert_status(0, self.trainyard("stacks", "--storage-path", self.storage, "run", "--rank", "1"))
        self.assertRegex(shown.out, r"attempt 1: rank 1\n== process \d+\n")
        self.assertIn("program.py", shown.out)
        self.assertNotIn("rank 0", shown.out)
        self.assertEqual(shown.out, self.stack(1)[-len(shown.out):])  # behind those of the wait
        both = self.assert_status(0, self.trainyard("stacks", "--storage-path", self.storage, "run"))
        self.assertEqual(2, len(re.findall(r"(?m)^  command: .*/program\.py", both.out)), repr(both))
        none = self.assert_status(2, self.trainyard("stacks", "--storage-path", self.storage, "run", "--rank", "7"))
        self.assertIn("run: no such worker runs on this machine now", none.err)
        process.send_signal(signal.SIGTERM)
        self.assert_status(143, self.finish(process))
        late = self.assert_status(2, self.trainyard("stacks", "--storage-path", self.storage, "run"))
        self.assertIn("run is not running", late.err)

    # -- SIGTERM

    def test_a_worker_that_saves_keeps_what_it_started(self):
        process = self.started("--grace", "1h", "--", *self.program("saves"), n=2)
        process.send_signal(signal.SIGTERM)
        finished = self.assert_status(143, self.finish(process))
        self.assertEqual(2, finished.out.count("saved by the helper"), repr(finished))

    def test_wrappers_pass_it_on(self):
        """To the program that handles it, whatever waits for it; the shell goes on behind it."""
        python, program, saves = self.program("saves")
        line = "%s %s %s" % (python, program, saves)
        script = self.write("work/train.sh", "#!/bin/sh\n%s\necho the shell went on\n" % line)
        os.chmod(script, 0o755)
        outer = "import subprocess, sys; subprocess.run(sys.argv[1:]); print('the shell went on')"
        for words in (("bash", "-c", line + "; echo the shell went on"), ("sh", script), (script,),
                      ("sh", "-c", "sh -c '%s; true'; echo the shell went on" % line),
                      ("bash", "-c", line + " | cat; echo the shell went on"),
                      ("bash", "-c", "echo $(%s); echo the shell went on" % line),
                      ("sh", "-c", "trap 'echo trapped' TERM; %s; echo the shell went on" % line),
                      (sys.executable, "-c", outer, python, program, saves)):
            with self.subTest(words=words):
                process = self.started("--grace", "1h", "--", *words)
                process.send_signal(signal.SIGTERM)
                finished = self.assert_status(143, self.finish(process))
                self.assertIn("saved by the helper", finished.out, repr(finished))
                self.assertIn("[rank 0] the shell went on\n", finished.out, repr(finished))

    def test_without_a_handler_it_is_the_end(self):
        """Also of what is behind a shell, which would go on with its next command."""
        line = "%s %s" % self.program()
        for words in ((self.program()), ("bash", "-c", line + "; sleep " + NEVER), ("sh", "-c", line + " | cat; sleep " + NEVER)):
            with self.subTest(words=words):
                process = self.started("--grace", "1h", "--", *words)
                process.send_signal(signal.SIGTERM)
                finished = self.assert_status(143, self.finish(process))
                self.assertNotIn("finally", finished.out, repr(finished))

    def test_what_a_worker_leaves_is_told_when_it_has_ended(self):
        """Its children hear of it then, not at the end of the grace."""
        script = "sh -c 'trap \"echo the child heard; exit\" TERM; : > child; while :; do sleep 0.01; done' & trap 'echo heard; exit 0' TERM; " \
                 "while [ ! -e child ]; do sleep 0.01; done; : > ready.0; while :; do sleep 0.01; done"
        process = self.started("--grace", "1h", "--", "bash", "-c", script)
        process.send_signal(signal.SIGTERM)
        finished = self.assert_status(143, self.finish(process))
        self.assertIn("[rank 0] heard\n", finished.out, repr(finished))
        self.assertIn("[rank 0] the child heard\n", finished.out, repr(finished))

    def test_the_group_is_told_before_the_grace_is_over(self):
        """A worker that is told and goes on, with a child that is not told."""
        script = "sh -c 'trap \"echo the child heard\" TERM; : > child; while :; do sleep 0.01; done' & while [ ! -e child ]; do sleep 0.01; done; exec %s %s deaf" % self.program("deaf")[:2]
        process = self.started("--grace", "8s", "--", "sh", "-c", script)
        process.send_signal(signal.SIGTERM)
        finished = self.assert_status(143, self.finish(process))
        self.assertEqual(2, finished.out.count("got SIGTERM"), repr(finished))
        self.assertEqual(1, finished.out.count("the child heard"), repr(finished))

    # -- what a worker leaves behind

    # A process that uploads until the gate is opened, and a part of it, both there when the worker goes on.
    UPLOADS = "sh -c 'cat gate & : > away.$RANK; wait; echo uploaded' & %s while [ ! -e away.$RANK ]; do sleep 0.01; done; "
    LEAVES = UPLOADS % ("sleep %s &" % NEVER) + ": > ready.0; echo done"

    def make_gate(self):
        os.mkfifo(os.path.join(self.work, "gate"))

    def open_gate(self, process):
        """Once somebody waits at it."""
        def opened():
            try:
                os.close(os.open(os.path.join(self.work, "gate"), os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False
            return True
        self.wait_for(opened, "who waits at the gate", process)

    def test_background_jobs_are_counted(self):
        self.make_gate()
        finished = self.assert_status(0, self.run_workers("--", "sh", "-c", self.LEAVES))
        self.assertIn("rank 0 ended and left 3 processes: ", finished.err, repr(finished))
        for word in ("sh -c cat gate & ", "sleep " + NEVER, "--linger"):
            self.assertIn(word, finished.err, repr(finished))
        self.assertEqual("[rank 0] done\n", finished.out)

    def test_background_jobs_may_linger(self):
        self.make_gate()
        process = self.start_run("--linger", "1h", "--", "sh", "-c", self.UPLOADS % "" + "echo done")
        told = process.stderr.readline()
        self.assertIn("rank 0 ended and left 2 processes: ", told)
        self.assertIn("they have 1 h to end", told)
        self.open_gate(process)
        self.assertEqual("[rank 0] done\n[rank 0] uploaded\n", self.assert_status(0, self.finish(process)).out)

    def test_the_time_to_linger_ends(self):
        self.make_gate()
        process = self.start_run("--linger", "5s", "--", "sh", "-c", self.LEAVES)
        self.assertIn("left 3 processes", process.stderr.readline())
        self.open_gate(process)
        finished = self.assert_status(0, self.finish(process))
        self.assertEqual("[rank 0] done\n[rank 0] uploaded\n", finished.out, repr(finished))

    def test_ctrl_c_ends_the_lingering(self):
        self.make_gate()
        process = self.started("--linger", "1h", "--", "sh", "-c", self.LEAVES)
        self.assertIn("left 3 processes", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        self.assertNotIn("uploaded", self.finish(process).out)

    def test_helpers_that_end_are_nobodys_concern(self):
        for job in ("sleep 0.02 & ", "setsid sleep 0.02 & "):
            for _ in range(5):  # a busy machine may take them longer than that
                finished = self.assert_status(0, self.run_workers("--progress", "none", "--", "sh", "-c", job + "echo done"))
                if finished.err == "":
                    break
            self.assertEqual("", finished.err)

    # The same of what has a session of its own; the worker ends when that is so.

    DAEMONS = "setsid " + UPLOADS % ("setsid sleep %s &" % NEVER) + "echo done"

    def test_daemons_are_counted(self):
        self.make_gate()
        for n, who in ((1, "rank 0"), (2, "workers")):
            finished = self.assert_status(0, self.run_workers("-n", n, "--", "sh", "-c", self.DAEMONS))
            self.assertIn("%s ended and left %d processes: " % (who, 3 * n), finished.err, repr(finished))
            self.assertIn("they are told to end; --linger DURATION gives them time", finished.err, repr(finished))
            self.assertNotIn("uploaded", finished.out.splitlines())

    def test_daemons_may_linger(self):
        """Their output is still the worker's, also where another worker has ended long before."""
        script = "[ $RANK = 0 ] || sleep 0.5; setsid sh -c ': > away.$RANK; until [ -e go ]; do sleep 0.01; done; echo uploaded $RANK' & " \
                 "while [ ! -e away.$RANK ]; do sleep 0.01; done; echo done"
        process = self.start_run("-n", 2, "--linger", "1h", "--", "sh", "-c", script)
        self.assertIn("they have 1 h to end", process.stderr.readline())
        self.write("work/go", "")
        finished = self.assert_status(0, self.finish(process))
        for rank in (0, 1):
            self.assertIn("[rank %d] uploaded %d" % (rank, rank), finished.out.splitlines(), repr(finished))

    def test_the_time_of_daemons_ends(self):
        self.make_gate()
        process = self.start_run("--linger", "5s", "--", "sh", "-c", self.DAEMONS)
        self.assertIn("left 3 processes", process.stderr.readline())
        self.open_gate(process)
        finished = self.assert_status(0, self.finish(process))
        self.assertEqual("[rank 0] done\n[rank 0] uploaded\n", finished.out, repr(finished))

    def test_ctrl_c_ends_the_lingering_of_daemons(self):
        self.make_gate()
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            process = self.started("--linger", "1h", "--", "sh", "-c", "rm -f away.0; : > ready.0; " + self.DAEMONS)
            self.assertIn("left 3 processes", process.stderr.readline())
            process.send_signal(signal_number)
            self.assertNotIn("uploaded", self.finish(process).out.splitlines())

    def test_daemons_that_begin_in_the_group(self):
        """Of which no event tells that they have left it."""
        told = "rank 0 ended and left 1 process: sleep %s: they have 1 s to end" % NEVER
        for _ in range(10):  # a busy machine may take them longer than the moment after which they are told of
            finished = self.assert_status(0, self.run_workers("--linger", "1s", "--", "sh", "-c", "(sleep 0.03; exec setsid sleep %s) & echo done" % NEVER))
            if told in finished.err:
                break
        self.assertIn(told, finished.err, repr(finished))

    def test_a_failure_elsewhere_ends_the_lingering(self):
        script = "if [ $RANK = 0 ]; then setsid sleep %s & echo done; else sleep 1; exit 3; fi" % NEVER
        self.assert_status(3, self.run_workers("-n", 2, "--linger", "1h", "--", "sh", "-c", script))

    # -- sessions

    def test_each_worker_has_a_session(self):
        """Processes that the scheduler groups by session have a worker's share of the machine each."""
        process = self.started("--", *self.program(), n=3)
        agent = children(process.pid)[0]
        workers = children(agent)
        self.assertEqual(3, len(workers))
        for pid in workers:
            self.assertEqual(pid, os.getsid(pid))
        process.send_signal(signal.SIGTERM)
        self.assert_status(143, self.finish(process))


if __name__ == "__main__":
    main()
