"""P rows of docs/faults.md that no other test shows: clocks, interruptions, limits of the machine."""

import errno
import os
import signal
import subprocess
import threading
import time

from place import REPORT, FaultCase, failing, harness, main, process_state
from runs import children, try_kill

HANG_PROGRAM = os.path.join(harness.BUILD, "tests", "e2e", "hang_program")
WITHOUT = os.path.join(harness.BUILD, "tests", "e2e", "faults", "without_calls")
NEWER_CALLS = "clone3,close_range,inotify_init1,memfd_create,pidfd_open,pidfd_send_signal,renameat2"

STEPS = "i=0; mkdir d.$RANK; while [ $i -lt 10 ]; do i=$((i + 1)); echo line $i; echo $i > d.$RANK/part-$RANK; " + \
    REPORT + "i=$i --checkpoint d.$RANK || exit 1; done"


class Processes(FaultCase):
    def assert_all_steps(self, finished, n):
        self.assert_status(0, finished)
        for rank in range(n):
            lines = [line for line in finished.out.splitlines() if line.startswith("[rank %d]" % rank)]
            self.assertEqual(["[rank %d] line %d" % (rank, i) for i in range(1, 11)], lines)
            self.assertEqual(list(range(1, 11)), self.metrics(rank, "i"))
        self.assertEqual(["checkpoint_%06d" % number for number in range(1, 11)], self.committed())
        self.assert_clean()

    def test_p1_clocks_that_jump(self):
        """P1: every look at the wall clock is an hour off, either way; limits and deadlines are those of the other clock."""
        clock = dict(failing("none", 1, "none"), TRAINYARD_CLOCK_JUMPS="1")
        process = self.shell(STEPS, "--name", "r", "-n", 2, "--time-limit", "30m", "--hang-timeout", "30m", env=clock)
        self.assert_all_steps(self.finish(process), 2)

    def clock(self):
        """Environment in which the wall clock is ahead by what is written into the file of this path."""
        path = os.path.join(self.work, "go.clock")
        return path, dict(failing("none", 1, "none"), TRAINYARD_CLOCK_SET=path)

    def test_p1_a_clock_that_is_set_back_under_an_error_file(self):
        """P1: the file that a rank has written of its failure is dated before the rank began, and is its own all the same."""
        path, env = self.clock()
        self.write("work/go.clock", "3600")
        source = 'import json, os, sys\nos.unlink(%r)\nopen(os.environ["TORCHELASTIC_ERROR_FILE"], "w").write(json.dumps({"message": "mine"}))\nsys.exit(1)'
        finished = self.finish(self.python(source % path, "--name", "r", "-n", 1, env=env))
        self.assertIn("first cause: rank 0 exited with code 1, mine", self.assert_status(1, finished).err)

    def test_p1_a_clock_that_is_set_ahead_under_workers(self):
        """P1: `stacks` knows them as those of the run, whose pids nobody else was given."""
        path, env = self.clock()
        process = self.shell("echo > ready.0; until [ -e go ]; do sleep 0.01; done", "--name", "r", "-n", 1)
        self.ready(process, 1)
        self.await_event("started", process)  # which is on record later than the worker begins
        self.write("work/go.clock", "3600")
        shown = self.assert_status(0, self.trainyard("stacks", "r", "--storage-path", self.storage, env=env))
        self.assertIn("== process", shown.out)
        self.write("work/go", "")
        self.assert_status(0, self.finish(process))

    def test_p1_a_clock_that_is_set_ahead_under_who_waits(self):
        """P1: a run that reports does not stand still because the date has changed."""
        path, env = self.clock()
        process = self.shell(REPORT + "i=1; echo > ready.0; until [ -e go ]; do sleep 0.01; done; " + REPORT + "i=2; sleep 0.5",
                             "--name", "r", "-n", 1)
        self.ready(process, 1)
        self.wait_for(lambda: self.metrics(0, "i"), "the report", process)
        waits = self.start("wait", "--storage-path", self.storage, "r", "--for", "stall", env=env)
        self.wait_for(lambda: process_state(waits.pid) == "S" and any("inotify" in link for link in harness.open_files(waits.pid)), "a look", waits)
        self.write("work/go.clock", "3600")
        self.write("work/go", "")
        self.assert_status(0, self.finish(process))
        self.assertEqual("", self.assert_status(1, self.finish(waits)).out)

    def test_p1_a_run_that_ended_in_the_future(self):
        """P1: the clock was ahead then: it has ended all the same."""
        _, env = self.clock()
        self.write("work/go.clock", "3600")
        self.assert_status(0, self.finish(self.shell("true", "--name", "r", env=env)))
        self.assertIn("removed 1 run", self.assert_status(0, self.trainyard("prune", "--yes", "--storage-path", self.storage)).out)

    def test_a_name_that_another_run_draws_at_the_same_moment(self):
        """Between the look at whether it is taken and the making of its directory: another name is drawn."""
        taken = self.write("work/go.taken", "")
        process = self.start_run("-n", 1, "--", "true", env=dict(failing("mkdir", errno.EEXIST, "runs/run-"), TRAINYARD_FAIL_WHEN=taken))
        self.wait_for(lambda: os.path.exists(self.storage), "the storage path", process)
        time.sleep(0.2)  # it draws names that are all taken by then
        os.unlink(taken)
        self.assert_status(0, self.finish(process))
        [name] = os.listdir(self.storage)
        self.assertRegex(name, r"^run-\d{8}-\d{6}-[0-9a-f]{4}$")

    def test_p2_all_is_suspended(self):
        """P2: all processes stand still for longer than the hang timeout, and the workers are the last to go on: nobody is blamed."""
        process = self.start_run("--name", "r", "-n", 3, "--hang-timeout", "3s", "--", HANG_PROGRAM, "none", 0)
        self.wait_for_files(process, "there.0", "there.1", "there.2")
        agent = self.agents(process)[0]
        workers = children(agent)
        self.signal_all(signal.SIGSTOP, *workers)
        time.sleep(0.1)  # what they said before is read
        self.signal_all(signal.SIGSTOP, agent, process.pid)
        time.sleep(4)
        self.signal_all(signal.SIGCONT, process.pid, agent)
        time.sleep(0.2)
        self.signal_all(signal.SIGCONT, *workers)
        time.sleep(4)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertNotIn("hung", self.assert_status(130, self.finish(process)).err)
        self.assert_clean()

    def signal_all(self, number, *pids):
        for pid in pids:
            os.kill(pid, number)

    def test_p3_interruptions(self):
        """P3: the controller and the agent are stopped and continued all the time, which interrupts their calls."""
        process = self.shell("echo $$ > ready.$RANK; while [ ! -e go ]; do sleep 0.01; done; " + STEPS, "--name", "r", "-n", 2)
        agent, _ = self.pids_of(process, 2)
        over = threading.Event()

        def interrupt():
            while not over.is_set():
                for pid in (process.pid, agent):
                    for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGCHLD, signal.SIGWINCH):
                        try_kill(pid, number)
                time.sleep(0.0005)
        storm = threading.Thread(target=interrupt)
        storm.start()
        try:
            self.write("work/go", "")
            finished = self.finish(process)
        finally:
            over.set()
            storm.join()
        self.assert_all_steps(finished, 2)

    def test_p6_no_more_processes(self):
        """P6: the limit of processes is reached at some worker: those that are up are ended, and the limit is named."""
        # More than the tests beside this one can make room for, where they are of the same user.
        process = self.shell("exec sleep 100000", "--name", "r", "-n", 400, **self.few_processes(20))
        finished = self.assert_status(4, self.finish(process))
        self.assertRegex(finished.err, "rank [0-9]+ could not be started")
        self.assertRegex(finished.err.lower(), "resource temporarily unavailable|processes")
        self.assert_clean()

    def inside(self, place, *args):
        """A run that is started by another command, which makes its world poorer."""
        words = [*place, harness.COMMAND, "run", "--storage-path", self.storage, "--num-cpus", "8", "--name", "r"]
        process = subprocess.Popen([*words, *map(str, args)], cwd=self.work, env=self.environment_with(None), text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def without_calls(self, *args):
        """On a kernel, or in a container, that lacks what newer ones have."""
        return self.inside((WITHOUT, NEWER_CALLS), *args)

    def test_p7_without_hard_links(self):
        """P7: nor on a file system that has no hard links, and no rename without replacing, as object stores when they are mounted."""
        self.assert_all_steps(self.finish(self.inside((WITHOUT, "linkat,renameat2"), "-n", 2, "--", "sh", "-c", STEPS)), 2)

    def test_p7_without_syncs_of_directories(self):
        process = self.shell(STEPS, "--name", "r", "-n", 2, env=failing("sync_directory", errno.EINVAL, "runs"))
        self.assert_all_steps(self.finish(process), 2)

    def test_p7_without_newer_calls(self):
        """P7: nothing of a run needs them."""
        self.assert_all_steps(self.finish(self.without_calls("-n", 2, "--", "sh", "-c", STEPS)), 2)

    def test_p7_hangs_without_newer_calls(self):
        finished = self.finish(self.without_calls("-n", 2, "--hang-timeout", "1s", "--", HANG_PROGRAM, "sleep", 1))
        self.assertIn("first cause: rank 1 hung", self.assert_status(1, finished).err)
        self.assertNotIn("did not end within", self.read(self.storage, "r", "logs", "rank-1.stack"))
        self.assert_clean()

    def test_p7_nothing_is_left_without_newer_calls(self):
        """The agent is killed: what it leaves behind is found and ended by number."""
        script = "env -i setsid sleep 100000 & setsid sleep 100000 & trap '' TERM; echo $$ > ready.$RANK; while :; do sleep 0.05; done"
        process = self.without_calls("-n", 2, "--", "sh", "-c", script)
        agent, _ = self.pids_of(process, 2)
        os.kill(agent, signal.SIGKILL)
        finished = self.assert_status(5, self.finish(process))
        self.assertIn("nothing is left of the run", finished.err)
        self.assert_clean()

    def test_p7_logs_are_followed_without_inotify(self):
        """As on a machine that has no more of it, or storage that other machines write."""
        process = self.shell("echo begun; until [ -e go ]; do sleep 0.01; done; echo more; until [ -e end ]; do sleep 0.01; done", "--name", "r")
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "r", "logs", "rank-0.log")), "the log", process)
        follower = self.start("inotify_init1", harness.COMMAND, "logs", "r", "-f", "--storage-path", self.storage, command=WITHOUT)
        self.assertEqual("[rank 0] begun\n", follower.stdout.readline())
        self.write("work/go", "")
        self.assertEqual("[rank 0] more\n", follower.stdout.readline())
        self.write("work/end", "")
        self.assert_status(0, self.finish(process))
        self.assertEqual("", self.assert_status(0, self.finish(follower)).out)

    def test_p7_without_proc(self):
        """What outlives its worker could not be found: that is told before anything is made."""
        bare = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
        if subprocess.run([*bare, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no mount may be made here")
        finished = self.assert_status(1, self.finish(self.inside(bare, "--", "true")))
        told = [line for line in finished.err.splitlines() if line.startswith("trainyard")]  # a sanitizer says much more
        self.assertEqual(["trainyard run: cannot read /proc: mount it, since what outlives its worker is found there"], told)
        self.assert_nothing_made()

    def test_p1_a_controller_with_another_clock(self):
        """In a time namespace of its own it has begun at another time than whoever looks is told; it lives all the same."""
        apart = ("unshare", "--time", "--boottime", "1000000", "--fork", "--kill-child")
        if subprocess.run([*apart, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no time namespace may be made here")
        process = self.inside(apart, "--", "sh", "-c", "echo > ready.0; exec sleep 100000")
        self.wait_for_files(process, "ready.0")
        self.assert_status(0, self.trainyard("stop", "r", "--storage-path", self.storage))
        self.assertIn("interrupted", self.finish(process).err)
        self.assert_ended("r", "interrupted")

    def test_p7_with_a_proc_of_processes_alone(self):
        """As services may have it (ProcSubset=pid): who drives a run is known there as well, and can be stopped."""
        bare = ("unshare", "-m", "sh", "-c", 'mount -t proc -o subset=pid proc /proc && exec "$@"', "sh")
        if subprocess.run([*bare, "test", "!", "-e", "/proc/sys"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no such /proc may be mounted here")
        script = '"$@" & until [ -e ready.0 ]; do sleep 0.01; done; "$1" stop r --storage-path %s; wait' % self.storage
        finished = self.assert_status(0, self.finish(self.inside((*bare, "sh", "-c", script, "sh"), "--", "sh", "-c", "echo > ready.0; exec sleep 100000")))
        self.assertNotIn("goes on", finished.err)
        self.assert_ended("r", "interrupted", "preempted")  # in the background SIGINT is ignored

    def test_p7_without_devices(self):
        """Not even /dev/null: it is named, and not the program that could not be started for want of it."""
        bare = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev && exec "$@"', "sh")
        if subprocess.run([*bare, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no mount may be made here")
        finished = self.assert_status(1, self.finish(self.inside(bare, "--", "true")))
        self.assertIn("trainyard run: cannot open /dev/null: No such file or directory: mount /dev", finished.err)
        self.assert_nothing_made()

    def test_p7_with_the_proc_of_others(self):
        """In a space of processes of its own that mounted no /proc for it, strangers have the numbers of the run's processes."""
        apart = ("unshare", "--pid", "--fork")
        if subprocess.run([*apart, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no PID namespace may be made here")
        finished = self.assert_status(1, self.finish(self.inside(apart, "--", "true")))
        self.assertIn("trainyard run: /proc tells of other processes than those that this one sees", finished.err)
        self.assert_nothing_made()
        self.assertEqual("[rank 0] well\n", self.assert_status(0, self.finish(self.inside((*apart, "--mount-proc"), "--", "echo", "well"))).out)

    def test_a_host_of_the_longest_name(self):
        """Two of them would be one node, were it cut off or left out."""
        name = "n" * 64
        host = ("unshare", "-u", "sh", "-c", 'hostname %s && exec "$@"' % name, "sh")
        if subprocess.run([*host, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no name may be given here")
        finished = self.assert_status(3, self.finish(self.inside(host, "--", "sh", "-c", "exit 3")))
        self.assertIn("on node %s, " % name, finished.err)

    def test_p9_overload(self):
        """P9: all processes share one core with 20 that never rest: no worker that lives is taken for one that hangs."""
        core = {min(os.sched_getaffinity(0))}
        busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"], cwd=self.place, preexec_fn=lambda: os.sched_setaffinity(0, core))
                for _ in range(20)]
        try:
            process = self.start_run("--progress", "none", "--name", "r", "-n", 4, "--hang-timeout", "2s", "--", HANG_PROGRAM, "live", 0,
                                     preexec_fn=lambda: os.sched_setaffinity(0, core))
            self.assertEqual("", self.assert_status(0, self.finish(process)).err)
        finally:
            for one in busy:
                one.kill()
                one.wait()
        self.assert_clean()


if __name__ == "__main__":
    main()
