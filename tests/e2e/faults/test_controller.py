"""C rows of docs/faults.md that no other test shows: a controller that stands still, and the locks of a run's directory."""

import os
import signal

from place import REPORT, FaultCase, failing, main


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

    # Makes one checkpoint of as many MiB as SIZE says; a later attempt tells where it begins.
    SAVER = "unset LD_PRELOAD; [ -n \"$TRAINYARD_CHECKPOINT\" ] && { echo from ${TRAINYARD_CHECKPOINT##*/}; exit 0; }; mkdir d; " \
        "dd if=/dev/urandom of=d/part bs=1M count=$SIZE 2>/dev/null; " + REPORT + "i=1 --checkpoint d"

    def resumed(self, size, fault, *options):
        """A run with a checkpoint, and another controller of it whose storage is at fault."""
        self.assert_status(0, self.finish(self.shell(self.SAVER, "--name", "r", env={"SIZE": str(size)})))
        process = self.shell(self.SAVER, "--name", "r", "--resume", *options, env=failing(*fault))
        self.wait_for(lambda: self.rows("SELECT COUNT(*) FROM events WHERE kind = 'run'") == [(2,)], "the resumed run", process)
        return process

    def interrupted(self, process):
        """Ctrl-C is heard and told; the run stays as it was, and goes on."""
        process.send_signal(signal.SIGINT)
        finished = self.assert_status(130, self.finish(process, 20))
        self.assertIn("signal 2 (SIGINT): the run is not resumed", finished.err)
        self.assertEqual([("interrupted", "interrupted while its checkpoints were looked at")],
                         self.rows("SELECT data->>'outcome', data->>'cause' FROM events ORDER BY sequence DESC LIMIT 1"))
        self.assertEqual([(1,)], self.rows("SELECT COUNT(*) FROM events WHERE kind = 'attempt'"))
        again = self.assert_status(0, self.finish(self.shell(self.SAVER, "--name", "r", "--resume")))
        self.assertEqual("[rank 0] from checkpoint_000001\n", again.out)
        self.assertEqual(["checkpoint_000001"], self.committed())
        self.assert_clean()
        return finished

    def test_a_resume_whose_storage_hangs(self):
        """C3, C7, D6: what is read is told after 5 s, nobody else takes the run meanwhile, and Ctrl-C ends it within the grace."""
        with open(os.path.join(self.work, "err"), "w") as err:
            process = self.resumed(1, ("read", -1, "checkpoint_000001/part"), "--grace", "300ms")
            process.kill()
            self.assert_status(137, self.finish(process))
            self.assert_clean()
            process = self.shell(self.SAVER, "--name", "r", "--resume", "--grace", "300ms", stderr=err,
                                 env=failing("read", -1, "checkpoint_000001/part"))
            self.wait_for(lambda: "verifying %s/r/checkpoint_000001 takes long: " % self.storage in self.read("err"), "word of it", process)
            refused = self.assert_status(2, self.finish(self.shell("true", "--name", "r", "--resume")))
            self.assertIn("goes on: its controller is process %d on " % process.pid, refused.err)
            process.send_signal(signal.SIGINT)
            self.assert_status(130, self.finish(process, 20))
        told = self.read("err")
        self.assertIn("signal 2 (SIGINT): the run is not resumed", told)
        self.assertIn("it is not waited for any longer", told)
        again = self.assert_status(0, self.finish(self.shell(self.SAVER, "--name", "r", "--resume")))
        self.assertEqual("[rank 0] from checkpoint_000001\n", again.out)
        self.assert_clean()

    def test_a_resume_that_reads_a_large_checkpoint(self):
        """C3: Ctrl-C ends the reading, however much there is still to read."""
        finished = self.interrupted(self.resumed(30, ("read", -2, "checkpoint_000001/part"), "--grace", "1h"))
        self.assertNotIn("not waited for", finished.err)

    def test_a_resume_whose_clear_up_hangs(self):
        """C3, C8: files of an attempt that was cut off cannot be removed."""
        self.assert_status(0, self.finish(self.shell(self.SAVER, "--name", "r", env={"SIZE": "1"})))
        os.makedirs(os.path.join(self.storage, "r", ".checkpoint_000002.attempt-1"))
        self.write("runs/r/.checkpoint_000002.attempt-1/half", "")
        process = self.shell(self.SAVER, "--name", "r", "--resume", "--grace", "300ms", env=failing("unlink", -1, "half"))
        self.wait_for(lambda: self.rows("SELECT COUNT(*) FROM events WHERE kind = 'run'") == [(2,)], "the resumed run", process)
        self.assertIn("the storage hangs: clearing up %s/r has not returned for " % self.storage, self.interrupted(process).err)

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
