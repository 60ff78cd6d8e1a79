"""When something fails: the first cause on one screen, the others folded, every process gone, whatever it did to stay."""

import contextlib
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid

from harness import COMMAND, Case, main, processes_with
from runs import children, command_line, state_of

PYTHON = sys.executable
NEVER = "100000"


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read().decode(errors="surrogateescape")


class FailureCase(Case):
    def ranks(self, n, script, *args, status=None, **more):
        """A run of n shells, named r."""
        shutil.rmtree(os.path.join(self.storage, "r"), True)
        finished = self.run_workers("--name", "r", "-n", n, "--num-cpus", n, *args, "--", "sh", "-c", script, **more)
        return finished if status is None else self.assert_status(status, finished)

    def begin(self, n, script, *args, **more):
        """The same, on its way; each rank must make the file ready.RANK first."""
        process = self.start("run", "--storage-path", self.storage, "--name", "r", "-n", n, "--num-cpus", n, *args, "--", "sh", "-c", script,
                             **more)
        self.wait_for(lambda: all(os.path.exists(self.at("ready.%d" % rank)) for rank in range(n)), process=process)
        return process

    def at(self, name):
        return os.path.join(self.place, name)

    def pid_of(self, rank):
        """Of a worker that wrote it into its ready file."""
        self.wait_for(lambda: read(self.at("ready.%d" % rank)).endswith("\n"))
        return int(read(self.at("ready.%d" % rank)))

    def cause(self, finished):
        """The lines of the screen. The headline's time is left out."""
        lines = finished.err.splitlines()
        first = [i for i, line in enumerate(lines) if "first cause: " in line]
        self.assertEqual(1, len(first), repr(finished))
        lines = lines[first[0]:]
        lines[0] = re.sub(r", [0-9.]+ (ns|us|ms|s|min) after the launch$", "", lines[0].split("first cause: ")[1])
        return lines


class FirstCause(FailureCase):
    def test_the_whole_screen(self):
        cluster = self.write("cluster.yaml", "nodes: [{name: 'n[1-2]', resources: {CPU: 2}}]\n")
        script = ("echo hello $RANK; echo $$ > ready.$RANK; [ $RANK = 1 ] && exit 0; [ $RANK = 2 ] || sleep %s; "
                  "while [ ! -s ready.0 -o ! -s ready.1 -o ! -s ready.3 ] || kill -0 $(cat ready.1); do sleep 0.01; done 2> /dev/null; "
                  "echo 'the reason'; exit 7" % NEVER)
        finished = self.run_workers("--name", "r", "-n", 4, "--cluster", cluster, "--", "sh", "-c", script)
        lines = self.cause(self.assert_status(7, finished))
        self.assertEqual("rank 2 exited with code 7, on node n2", lines[0])
        self.assertEqual(["  last lines of rank 2:", "    | hello 2", "    | the reason", "  ranks 0,3 stopped when told to",
                          "  rank 1 had finished"], lines[1:6])
        self.assertTrue(lines[6].startswith("  nothing is left of the run"), lines[6])
        self.assertEqual("  all of its output: %s" % os.path.join(self.storage, "r", "logs", "rank-2.log"), lines[7])

    def test_only_the_last_lines(self):
        lines = self.cause(self.ranks(1, "seq 1 100000; exit 1", status=1))
        shown = [line for line in lines if line.startswith("    | ")]
        self.assertTrue(5 <= len(shown) <= 50, shown)
        self.assertEqual(["    | %d" % i for i in range(100001 - len(shown), 100001)], shown)

    def test_a_last_line_without_its_end_and_a_long_one(self):
        self.assertIn("    | no end", self.cause(self.ranks(1, "printf 'no end'; exit 1", status=1)))
        lines = self.cause(self.ranks(1, "head -c 1000000 /dev/zero | tr '\\0' x; exit 1", status=1))
        self.assertLess(sum(map(len, lines)), 10000)

    def test_both_streams_are_in_it(self):
        lines = self.cause(self.ranks(1, "echo out; echo err >&2; exit 1", status=1))
        self.assertIn("    | out", lines)
        self.assertIn("    | err", lines)

    def test_it_is_told_without_output_too(self):
        lines = self.cause(self.ranks(1, "exit 1", "--quiet", status=1))
        self.assertNotIn("  last lines of rank 0:", lines)

    def test_escapes_in_the_output_are_harmless(self):
        finished = self.ranks(1, r"printf '\033[31mred\n'; exit 1", status=1)
        self.assertNotIn("\x1b", finished.err)
        self.assertIn(r"    | \x1b[31mred", finished.err)

    def test_a_traceback_is_shown_once(self):
        script = self.write("fail.py", "import os, time\nif os.environ['RANK'] != '1':\n    time.sleep(%s)\nraise ValueError('no such thing')\n" % NEVER)
        finished = self.run_workers("-n", 3, "--num-cpus", 3, "--quiet", "--", PYTHON, script)
        self.assert_status(1, finished)
        self.assertEqual(1, finished.err.count("ValueError: no such thing"), finished.err)
        self.assertIn("    | Traceback (most recent call last):", finished.err)

    def test_many_ranks_are_folded(self):
        lines = self.cause(self.ranks(32, "[ $RANK = 9 ] && exit 4; sleep " + NEVER, status=4))
        self.assertIn("  ranks 0-8,10-31 stopped when told to", lines)
        self.assertLess(len(lines), 8)

    def test_all_fail_at_once(self):
        """One of them is the cause, and only one."""
        script = ": > ready.$RANK; while [ ! -e go ]; do sleep 0.001; done; exit $((RANK + 10))"
        process = self.begin(8, script)
        self.write("go", "")
        finished = self.finish(process)
        lines = self.cause(finished)
        rank = int(re.match(r"rank (\d+) exited with code (\d+)", lines[0]).group(1))
        self.assert_status(10 + rank, finished)

    def test_the_echo_of_a_death_is_not_the_cause(self):
        """Rank 1 is killed; the others see their connection to it closed, and fail for that."""
        script = self.write("echo.py", r"""
import os, signal, socket, sys
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
path = os.path.join(os.environ["TRAINYARD_RUN_PATH"], "socket")
if rank == 1:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path + ".new")
    server.listen(size)
    os.rename(path + ".new", path)
    peers = [server.accept()[0] for _ in range(size - 1)]
    os.kill(os.getpid(), signal.SIGKILL)
while not os.path.exists(path):
    pass
peer = socket.socket(socket.AF_UNIX)
peer.connect(path)
peer.recv(1)
os._exit(1)
""")
        for i in range(5):
            finished = self.run_workers("--name", "echo%d" % i, "-n", 4, "--num-cpus", 4, "--", PYTHON, "-S", "-E", script)
            self.assert_status(137, finished)
            self.assertIn("rank 1 was killed by signal 9 (SIGKILL)", self.cause(finished)[0])

    def test_the_cause_of_every_attempt_is_told(self):
        finished = self.ranks(1, "exit $((TRAINYARD_ATTEMPT + 4))", "--max-failures", 2, status=7)
        for attempt, code in (2, 5), (3, 6):
            line = "rank 0 exited with code %d, on node %s: attempt %d begins" % (code, os.uname().nodename, attempt)
            self.assertIn(line, finished.err)
        self.assertEqual("rank 0 exited with code 7, on node " + os.uname().nodename.split(".")[0],
                         self.cause(finished)[0].split(".")[0])

    def test_sigterm_in_the_pause_before_another_attempt(self):
        """Nothing runs then: the run ends at once, resumable, and tells how long its workers took to end, not how long it paused."""
        process = self.start("run", "--storage-path", self.storage, "--name", "r", "--max-failures", 9, "--", "sh", "-c", "exit 7")
        journal = os.path.join(self.storage, "r", "run.db")
        pauses = "SELECT count(*) FROM events WHERE kind = 'attempt_end' AND data->>'retry' > 2.5"

        def pausing():
            try:
                with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % journal, uri=True)) as database:
                    return database.execute(pauses).fetchone()[0] > 0
            except sqlite3.OperationalError:
                return False
        self.wait_for(pausing, process=process)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        finished = self.assert_status(143, self.finish(process))
        self.assertIn("no further attempt begins", finished.err)
        self.assertEqual(1, finished.err.count("first cause: rank 0 exited with code 7"), finished.err)
        took = re.search(r"all were gone ([0-9.]+) (\S+) after the failure", finished.err)
        if took is not None:
            self.assertIn(took.group(2), ("ns", "us", "ms"), finished.err)
        one = self.assert_status(0, self.trainyard("status", "r", "--storage-path", self.storage, "--format", "json")).json
        self.assertEqual("preempted", one["state"])

    def test_a_start_failure_in_a_later_attempt(self):
        """It cannot succeed the next time: no attempt is spent on it."""
        program = self.write("program.sh", "#!/bin/sh\nrm \"$0\"\nexit 9\n")
        os.chmod(program, 0o755)
        finished = self.run_workers("--name", "r", "--max-failures", 3, "--", program)
        self.assert_status(4, finished)
        self.assertIn("rank 0 exited with code 9, on node", finished.err)
        self.assertIn("attempt 2 begins", finished.err)
        self.assertIn("first cause: rank 0 could not be started: cannot execute", finished.err)
        self.assertNotIn("attempt 3", finished.err)

    def test_success_after_a_failure_shows_no_screen(self):
        finished = self.ranks(1, "[ $TRAINYARD_ATTEMPT = 2 ] || exit 5", "--max-failures", 1, status=0)
        self.assertNotIn("first cause", finished.err)


class Killed(FailureCase):
    def test_from_outside(self):
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGTERM):
            with self.subTest(number):
                for rank in range(3):
                    if os.path.exists(self.at("ready.%d" % rank)):
                        os.remove(self.at("ready.%d" % rank))
                process = self.begin(3, "ulimit -c 0; echo $$ > ready.$RANK; exec sleep " + NEVER)
                os.kill(self.pid_of(1), number)
                finished = self.assert_status(128 + number, self.finish(process))
                lines = self.cause(finished)
                self.assertTrue(lines[0].startswith("rank 1 was killed by signal %d (%s)" % (number, number.name)), lines[0])
                self.assertIn("  ranks 0,2 stopped when told to", lines)
                shutil.rmtree(os.path.join(self.storage, "r"))

    def test_dumped_core(self):
        def allow():
            resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
        plain = subprocess.Popen(["sh", "-c", "kill -SEGV $$"], cwd=self.place, preexec_fn=allow)
        _, status = os.waitpid(plain.pid, 0)
        plain.returncode = 0
        process = self.start("run", "--storage-path", self.storage, "--", "sh", "-c", "kill -SEGV $$", preexec_fn=allow,
                             env={"ASAN_OPTIONS": "disable_coredump=0"})
        line = self.cause(self.assert_status(139, self.finish(process)))[0]
        self.assertEqual(os.WCOREDUMP(status), "core dumped" in line, line)
        with open("/proc/sys/kernel/core_pattern") as file:
            where = "core dumped (core_pattern: %s)" % file.read().partition(" ")[0].strip()
        self.assertEqual(os.WCOREDUMP(status), where in line, line)

    def test_what_a_worker_started_is_out_of_memory(self):
        """A shell's program, or a loader's process: the worker that fails for it says so; in the next attempt nobody does."""
        group = MemoryGroup(96 << 20)
        self.addCleanup(group.remove)
        if group.path is None:
            self.skipTest("no memory cgroup may be made here")
        script = "[ $TRAINYARD_ATTEMPT = 1 ] || exit 4; '%s' -S -c 'bytearray(400 << 20)'; exit 3" % PYTHON
        process = self.start("run", "--storage-path", self.storage, "--max-failures", 1, "--", "sh", "-c", script, preexec_fn=group.enter)
        finished = self.assert_status(4, self.finish(process))
        self.assertRegex(finished.err, r"rank 0 exited with code 3, .*one that it had started, had been killed: "
                         r"out of memory: limit 96 MiB, peak \d+ MiB")
        self.assertNotIn("memory", self.cause(finished)[0])

    def test_out_of_memory(self):
        """In a memory cgroup of its own where one can be made; else a plain kill says nothing of memory."""
        group = MemoryGroup(96 << 20)
        self.addCleanup(group.remove)
        script = "import mmap, os\nif os.environ['RANK'] == '1':\n    x = bytearray(400 << 20) if %r else os.kill(os.getpid(), 9)\nimport time\ntime.sleep(%s)\n" % (
            group.path is not None, NEVER)
        process = self.start("run", "--storage-path", self.storage, "-n", 2, "--num-cpus", 2, "--", PYTHON, "-S", "-c", script,
                             preexec_fn=group.enter)
        finished = self.assert_status(137, self.finish(process))
        line = self.cause(finished)[0]
        self.assertIn("rank 1 was killed by signal 9 (SIGKILL)", line)
        if group.path is None:
            self.assertNotIn("memory", line)
        else:
            self.assertRegex(line, r"out of memory: limit 96 MiB, peak \d+ MiB")


class MemoryGroup:
    """A memory cgroup of version 1 or 2; path None where this user may not make one."""

    def __init__(self, limit):
        name = "trainyard-test-" + uuid.uuid4().hex[:8]
        self.path = None
        for parent, files in (("/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
                              ("/sys/fs/cgroup", ["memory.max", "memory.swap.max"])):
            path = os.path.join(parent, name)
            try:
                os.mkdir(path)
                self.set(path, files[0], limit)
            except OSError:
                if os.path.isdir(path):
                    os.rmdir(path)
                continue
            try:
                self.set(path, files[1], limit if "memsw" in files[1] else 0)
            except OSError:
                pass  # no swap accounting: then no swap either, on the machines that matter
            self.path = path
            return

    @staticmethod
    def set(path, name, value):
        with open(os.path.join(path, name), "w") as file:
            file.write(str(value))

    def enter(self):
        if self.path is not None:
            self.set(self.path, "cgroup.procs", os.getpid())

    def remove(self):
        if self.path is None:
            return
        deadline = time.monotonic() + 60
        while True:
            try:
                os.rmdir(self.path)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


class NothingIsLeft(FailureCase):
    """The harness looks for every process that carries the test's mark; here they try hard to stay."""

    def ends_clean(self, process, status):
        finished = self.assert_status(status, self.finish(process))
        self.assertEqual([], processes_with(self.place), "left at the command's own end")
        return finished

    def fail_with(self, script, n=2, *args):
        """Rank 0 fails when all are ready; `script` is what the others do."""
        all_ready = " -o ".join("! -e ready.%d" % rank for rank in range(1, n))
        whole = "if [ $RANK = 0 ]; then : > ready.0; while [ %s ]; do sleep 0.005; done; exit 3; fi; %s" % (all_ready, script)
        return self.ends_clean(self.begin(n, whole, "--grace", "50ms", *args), 3)

    def test_who_ignores_signals(self):
        self.fail_with("trap '' TERM INT HUP QUIT; : > ready.$RANK; while :; do sleep 0.01; done", 4)

    def test_who_is_stopped(self):
        self.fail_with(": > ready.$RANK; kill -STOP $$")

    def test_who_starts_others(self):
        self.fail_with("sleep %s & sleep %s & (sleep %s & sleep %s) & : > ready.$RANK; wait" % ((NEVER,) * 4))

    def test_daemons_in_sessions_of_their_own(self):
        finished = self.fail_with("setsid sh -c '(setsid sh -c \"trap \\\"\\\" TERM HUP; : > ready.$RANK; while :; do sleep 0.01; done\" &)'; exit 0")
        self.assertRegex(finished.err, r"nothing is left of the run; \d+ leftover process(es were| was) ended")

    def test_who_changes_its_group(self):
        script = self.write("leave.py", r"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0: # the worker itself leads its session, and cannot
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        time.sleep(100000)
    while os.getpgid(child) != child:
        pass
    os.setpgid(0, child)
    open("ready." + os.environ["RANK"], "w").close()
time.sleep(100000)
""")
        self.fail_with("exec '%s' -S -E %s" % (PYTHON, script))

    def test_daemons_with_an_empty_environment(self):
        """Nothing marks them but that they descend from the run."""
        script = "env -i setsid sleep %s < /dev/null > /dev/null 2>&1 & echo $! > daemon.$RANK; : > ready.$RANK; wait" % NEVER
        self.fail_with(script)
        pid = int(read(self.at("daemon.1")))
        self.assertNotIn(b"sleep", command_line(pid))

    def test_daemons_of_a_run_that_succeeds(self):
        process = self.start("run", "--storage-path", self.storage, "--", "sh", "-c", "setsid sleep %s & setsid sleep %s & exit 0" % (NEVER, NEVER))
        self.ends_clean(process, 0)

    def test_between_attempts(self):
        script = "[ $TRAINYARD_ATTEMPT = 2 ] && exec sh -c '! kill -0 $(cat daemon)'; setsid sleep %s & echo $! > daemon; exit 1" % NEVER
        self.ranks(1, script, "--max-failures", 1, status=0)

    def test_zombies_are_reaped_while_the_run_goes_on(self):
        script = "for i in 1 2 3 4 5 6 7 8; do (sh -c 'exit 3' &) ; done; echo $$ > ready.$RANK; while [ ! -e go ]; do sleep 0.01; done"
        process = self.begin(1, script)
        agent = children(process.pid)[0]

        worker = self.pid_of(0)
        self.wait_for(lambda: children(agent) == [worker], process=process)
        self.write("go", "")
        self.ends_clean(process, 0)

    def test_who_closes_all_its_descriptors(self):
        self.ranks(2, "[ $RANK = 1 ] && exec 0<&- 1>&- 2>&- 3>&- && exit 6; sleep " + NEVER, status=6)

    def test_who_floods_while_it_is_stopped(self):
        self.fail_with("trap '' TERM; : > ready.$RANK; while :; do seq 1 100000; done", 3, "--quiet")

    def test_killed_command(self):
        process = self.begin(4, "trap '' TERM HUP; echo $$ > ready.$RANK; setsid sleep %s & while :; do sleep 0.01; done" % NEVER)
        process.kill()
        self.assert_status(137, self.finish(process))
        self.wait_for(lambda: not processes_with(self.place))
        # Its name is free for another try, and goes on.
        finished = self.run_workers("--name", "r", "--resume", "--", "sh", "-c", "echo attempt $TRAINYARD_ATTEMPT")
        self.assertEqual("[rank 0] attempt 2\n", self.assert_status(0, finished).out)

    def test_killed_command_leaves_no_lease(self):
        process = self.begin(1, ": > ready.0; sleep " + NEVER, "--num-gpus", 1, "--use-gpu")
        process.kill()
        self.assert_status(137, self.finish(process))
        finished = self.run_workers("--num-gpus", 1, "--use-gpu", "--", "sh", "-c", "echo mine")
        self.assertEqual("[rank 0] mine\n", self.assert_status(0, finished).out)

    def test_killed_agent(self):
        process = self.begin(4, "trap '' TERM HUP; : > ready.$RANK; setsid sleep %s & while :; do sleep 0.01; done" % NEVER)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        self.ends_clean(process, 5)

    def test_killed_agent_of_one_of_several_nodes(self):
        cluster = self.write("cluster.yaml", "nodes: [{name: 'n[1-3]', resources: {CPU: 2}}]\n")
        process = self.start("run", "--storage-path", self.storage, "--cluster", cluster, "-n", 6, "--grace", "50ms", "--", "sh", "-c",
                             "echo $PPID > ready.$RANK; sleep " + NEVER)
        self.wait_for(lambda: all(os.path.exists(self.at("ready.%d" % rank)) for rank in range(6)), process=process)
        os.kill(self.pid_of(2), signal.SIGKILL)  # what it wrote is its agent's
        finished = self.ends_clean(process, 5)
        self.assertIn("the agent of node n2 was killed by signal 9 (SIGKILL)", self.cause(finished)[0])

    def test_killed_command_and_agent_at_once(self):
        """The kernel ends the workers themselves."""
        process = self.begin(2, "trap '' TERM HUP; : > ready.$RANK; exec sleep " + NEVER)
        agent = children(process.pid)[0]
        process.send_signal(signal.SIGSTOP)
        os.kill(agent, signal.SIGKILL)
        process.kill()
        self.assert_status(137, self.finish(process))
        self.wait_for(lambda: not processes_with(self.place))


class Pauses(FailureCase):
    SCRIPT = ": > ready.$RANK; while [ ! -e go ]; do sleep 0.005; done; echo $RANK"

    def test_a_stopped_agent_goes_on(self):
        process = self.begin(2, self.SCRIPT)
        agent = children(process.pid)[0]
        os.kill(agent, signal.SIGSTOP)
        self.write("go", "")
        time.sleep(0.3)
        self.assertIsNone(process.poll())
        os.kill(agent, signal.SIGCONT)
        finished = self.assert_status(0, self.finish(process))
        self.assertEqual(["[rank 0] 0", "[rank 1] 1"], sorted(finished.out.splitlines()))

    def test_a_stopped_worker_goes_on(self):
        process = self.begin(2, "echo $$ > ready.$RANK; while [ ! -e go ]; do sleep 0.005; done; echo $RANK")
        pid = self.pid_of(1)
        os.kill(pid, signal.SIGSTOP)
        self.write("go", "")
        time.sleep(0.1)
        self.assertIsNone(process.poll())
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(2, len(self.assert_status(0, self.finish(process)).out.splitlines()))

    def test_what_a_failed_worker_wrote_last_is_told_though_nobody_had_read_it(self):
        """The command is stopped, so the agent reads no output any more, and the worker's last line lies in its pipe when it ends."""
        program = self.write("fail.py", r"""
import os, select, time
with open("ready.0", "w") as file: print(os.getpid(), file=file)
while not os.path.exists("go"): time.sleep(0.01)
os.set_blocking(1, False)
while select.select([], [1], [], 1)[1]:
    try: os.write(1, b"older\n" * 10000)
    except BlockingIOError: pass
os.read(os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK), 1 << 16) # room for the last line
os.write(1, b"\nthe reason\n")
os._exit(7)
""")
        process = self.start_run("--name", "r", "-n", 1, "--", PYTHON, program, stdout=subprocess.DEVNULL)
        self.wait_for(lambda: os.path.exists(self.at("ready.0")), process=process)
        pid = self.pid_of(0)
        process.send_signal(signal.SIGSTOP)
        self.wait_for(lambda: state_of(process.pid) == "T")
        self.write("go", "")
        self.wait_for(lambda: not state_of(pid), "the agent to have seen its end")
        process.send_signal(signal.SIGCONT)
        shown = [line for line in self.cause(self.assert_status(7, self.finish(process))) if line.startswith("    | ")]
        self.assertEqual("    | the reason", shown[-1])


class Disks(FailureCase):
    def remove(self):
        """The run's directory, at once: whoever writes between two files that go tells of the one."""
        gone = os.path.join(self.place, "gone")
        os.rename(os.path.join(self.storage, "r"), gone)
        shutil.rmtree(gone)

    def test_the_run_directory_is_deleted_under_it(self):
        process = self.begin(2, ": > ready.$RANK; while [ ! -e go ]; do sleep 0.005; done; echo still $RANK")
        self.remove()
        self.write("go", "")
        finished = self.finish(process)
        self.assertEqual(["[rank 0] still 0", "[rank 1] still 1"], sorted(finished.out.splitlines()), repr(finished))
        self.assert_status(1, finished)
        self.assert_line(finished, "run", "removed", "run.db", os.path.join(self.storage, "r"))
        self.assertFalse(os.path.exists(os.path.join(self.storage, "r")), "made again")

    def test_the_run_directory_is_deleted_under_a_checkpoint(self):
        """Rank 0 has written its files and waits for rank 1: it hears that nothing came of them, and of the next ones neither."""
        report = "'%s' report i=%%d --checkpoint d.$RANK; echo $RANK: $?" % COMMAND
        process = self.begin(2, "mkdir d.$RANK; echo $RANK > d.$RANK/part-$RANK; : > ready.$RANK; "
                             "[ $RANK = 0 ] || while [ ! -e go ]; do sleep 0.005; done; %s; %s" % (report % 1, report % 2))
        staging = os.path.join(self.storage, "r", ".checkpoint_000001.attempt-1")
        self.wait_for(lambda: os.path.isdir(staging) and any("part-0" in name for name in os.listdir(staging)), process=process)
        self.remove()
        self.write("go", "")
        finished = self.assert_status(1, self.finish(process))
        self.assertEqual(["0: 1"] * 2 + ["1: 1"] * 2, sorted(line[9:] for line in finished.out.splitlines() if line.endswith(": 1")), repr(finished))
        self.assertIn("was removed while the run went on", finished.err)
        self.assertFalse(os.path.exists(os.path.join(self.storage, "r")), "made again")

    def test_what_a_killed_agent_did_not_tell_goes(self):
        """A rank has begun to write a checkpoint, of which its agent could not tell any more."""
        script = "[ $TRAINYARD_ATTEMPT = 2 ] || { mkdir \"$TRAINYARD_RUN_PATH/.checkpoint_000001.attempt-1\"; kill -9 $PPID; exec sleep %s; }"
        self.assert_status(0, self.run_workers("--name", "r", "--max-failures", "1", "--", "sh", "-c", script % NEVER))
        self.assertFalse(os.path.exists(os.path.join(self.storage, "r", ".checkpoint_000001.attempt-1")))

    def test_a_failure_is_told_before_the_loss_of_the_records(self):
        process = self.begin(1, ": > ready.$RANK; while [ ! -e go ]; do sleep 0.005; done; exit 7")
        self.remove()
        self.write("go", "")
        self.assertIn("rank 0 exited with code 7", self.assert_status(7, self.finish(process)).err)

    def full_disk(self, script, limit):
        def limit_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return self.finish(self.start("run", "--storage-path", self.storage, "--name", "r", "-n", 2, "--num-cpus", 2, "--", "sh", "-c", script,
                                      preexec_fn=limit_files))

    def test_no_room_for_logs(self):
        finished = self.assert_status(0, self.full_disk("seq 1 100000", 300000))
        self.assertEqual(200000, finished.out.count("\n"))
        for rank in (0, 1):
            self.assertIn("logs/rank-%d.log: File too large" % rank, finished.err)
        self.assertRegex(finished.err, r"\d+ bytes of the output of rank 1 are not in its log")

    def test_no_room_for_the_journal(self):
        report = "i=0; while [ $i -lt 60 ]; do i=$((i + 1)); '%s' report a=$i%s; done; echo done" % (
            COMMAND, "".join(" m%d=1" % i for i in range(100)))
        finished = self.full_disk(report, 60000)
        self.assertEqual(2, finished.out.count("done"), repr(finished))
        self.assert_status(1, finished)
        self.assertIn("run.db", finished.err)


if __name__ == "__main__":
    main()
