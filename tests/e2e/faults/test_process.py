"""P rows of docs/faults.md that no other test shows: clocks, interruptions, limits of the machine."""

import os
import resource
import signal
import threading
import time

from place import REPORT, FaultCase, failing, main
from runs import try_kill

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
        process = self.shell(STEPS, "--name", "r", "-n", 2, "--time-limit", "50s", "--hang-timeout", "50s", env=clock)
        self.assert_all_steps(self.finish(process), 2)

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
        user = 61234 if os.geteuid() == 0 else None  # the limit does not hold for root
        if user is not None:
            os.makedirs(self.storage)
            for path in (self.place, self.work, self.storage):
                os.chmod(path, 0o777)
        used = 0 if user is not None else sum(len(os.listdir("/proc/%s/task" % pid)) for pid in self.own_processes())
        limit = (used + 20, used + 20)
        process = self.shell("exec sleep 100000", "--name", "r", "-n", 60, user=user,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, limit))
        finished = self.assert_status(4, self.finish(process))
        self.assertRegex(finished.err, "rank [0-9]+ could not be started")
        self.assertRegex(finished.err.lower(), "resource temporarily unavailable|processes")
        self.assert_clean()

    def own_processes(self):
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and os.stat("/proc/" + pid).st_uid == os.getuid()]


if __name__ == "__main__":
    main()
