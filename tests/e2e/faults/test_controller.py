"""C rows of docs/faults.md that no other test shows: a controller that stands still, and the locks of a run's directory."""

import os
import signal

from place import REPORT, FaultCase, main


class Controllers(FaultCase):
    def test_c5_a_stopped_controller_misses_nothing(self):
        """C5: workers report, make output and go on; all of it is on record in order when the controller does."""
        script = "echo $$ > ready.$RANK; while [ ! -e go ]; do sleep 0.01; done; i=0; " \
            "while [ $i -lt 40 ]; do i=$((i + 1)); echo line $i; " + REPORT + "i=$i || exit 1; done; : > there.$RANK"
        process = self.shell(script, "--name", "r", "-n", 3)
        self.pids_of(process, 3)
        process.send_signal(signal.SIGSTOP)
        self.write("work/go", "")
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.work, "there.%d" % rank)) for rank in range(3)),
                      "the workers, which nobody holds up")
        process.send_signal(signal.SIGCONT)
        finished = self.assert_status(0, self.finish(process))
        for rank in range(3):
            self.assertEqual(list(range(1, 41)), self.metrics(rank, "i"))
            lines = [line for line in finished.out.splitlines() if line.startswith("[rank %d]" % rank)]
            self.assertEqual(["[rank %d] line %d" % (rank, i) for i in range(1, 41)], lines)
        self.assert_clean()

    def test_c1_resume_behind_a_killed_controller(self):
        """C1 on one machine: the workers are gone, what was acknowledged is there, and the run goes on by name."""
        script = "echo came behind ${TRAINYARD_CHECKPOINT##*/}; [ -n \"$TRAINYARD_CHECKPOINT\" ] && exit 0; mkdir d.$RANK; " \
            "echo x > d.$RANK/part-$RANK; " + REPORT + "step=1 --checkpoint d.$RANK || exit 1; echo $$ > ready.$RANK; exec sleep 100000"
        process = self.shell(script, "--name", "r", "-n", 2)
        self.ready(process, 2)
        process.kill()
        self.assert_status(137, self.finish(process))
        self.assert_clean()
        self.assertEqual("died", self.status("r")["state"])
        finished = self.assert_status(0, self.finish(self.shell(script, "--name", "r", "-n", 2, "--resume")))
        self.assertEqual(2, finished.out.count("came behind checkpoint_000001\n"), repr(finished))
        self.assertEqual(["checkpoint_000001"], self.committed())
        self.assertEqual([[1], [1]], [self.metrics(rank, "step") for rank in range(2)])
        self.assert_clean()

    def test_c7_the_lock_of_the_dead_holds_nobody(self):
        """C7: the second is refused while the first lives, stopped or not, and goes on once it is dead."""
        process = self.shell("echo $$ > ready.$RANK; exec sleep 100000", "--name", "r", "-n", 1)
        self.ready(process, 1)
        process.send_signal(signal.SIGSTOP)
        refused = self.assert_status(2, self.finish(self.shell("true", "--name", "r", "--resume")))
        self.assertIn("goes on: its controller is process %d on %s" % (process.pid, os.uname().nodename), refused.err)
        self.assertEqual(refused.err, self.assert_status(2, self.finish(self.shell("true", "--name", "r"))).err)
        process.kill()
        self.assert_status(137, self.finish(process))
        self.assert_status(0, self.finish(self.shell("true", "--name", "r", "--resume")))
        self.assert_clean()

    def test_nothing_to_resume(self):
        """Scripts that are started again and again always resume; a slip in the name must be seen, and loses nothing."""
        told = "warning: nothing to resume under %s/%s: a new run begins"
        first = self.assert_status(0, self.finish(self.shell("true", "--name", "nightly", "--resume")))
        self.assert_line(first, "run", told % (self.storage, "nightly"))
        self.assertNotIn("did you mean", first.err)
        self.assertEqual("", self.assert_status(0, self.finish(self.shell("true", "--name", "nightly", "--resume"))).err)
        slip = self.assert_status(0, self.finish(self.shell("true", "--name", "nigthly", "--resume")))
        self.assert_line(slip, "run", told % (self.storage, "nigthly"), "; did you mean nightly?")
        os.mkdir(os.path.join(self.storage, "bare"))  # a directory without a journal is no run
        self.assert_line(self.assert_status(0, self.finish(self.shell("true", "--name", "bare", "--resume"))), "run", told % (self.storage, "bare"))
        self.assertEqual("", self.assert_status(0, self.finish(self.shell("true", "--name", "asked-for-nothing"))).err)
        self.assertEqual([2, 1, 1], [self.status(name)["attempts"] for name in ("nightly", "nigthly", "bare")])
        self.assert_clean()


if __name__ == "__main__":
    main()
