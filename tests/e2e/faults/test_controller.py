"""C rows of docs/faults.md that no other test shows: a controller that stands still, and the locks of a run's directory."""

import errno
import os
import shutil
import signal
import time

from place import REPORT, FaultCase, Hosts, failing, main


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

    def test_one_that_stood_still_while_another_took_the_run(self):
        """As on storage that knows no locks: who comes puts a lock of his own in place of one that was not touched for so long."""
        script = "trap '' TERM; " + REPORT + "i=1; echo $$ > ready.$RANK; until [ -e go ]; do sleep 0.01; done; while " + REPORT + \
            "i=2; do : > there.$RANK; sleep 0.02; done"
        process = self.shell(script, "--name", "r", "-n", 2, "--max-failures", 3)
        self.ready(process, 2)
        # All that has happened is on record then, and nothing is on its way.
        self.wait_for(lambda: self.rows("SELECT count(*) FROM reports") == [(2,)], "the reports", process)
        self.stand_still(process.pid)
        self.write("work/go", "")
        self.wait_for_files(process, "there.0", "there.1")
        path = os.path.join(self.storage, "r")
        with open(os.path.join(path, "another"), "w") as file:
            file.write("another's")
        os.rename(os.path.join(path, "another"), os.path.join(path, "run.lock"))
        before = self.rows("SELECT max(sequence) FROM events"), self.rows("SELECT count(*) FROM reports")
        process.send_signal(signal.SIGCONT)
        ended = self.assert_status(2, self.finish(process))
        self.assertIn("another controller has taken it over", ended.err)
        self.assertEqual(1, ended.err.count("\n"), repr(ended))
        self.assertEqual(before, (self.rows("SELECT max(sequence) FROM events"), self.rows("SELECT count(*) FROM reports")))
        with open(os.path.join(path, "run.lock")) as file:
            self.assertEqual("another's", file.read())
        self.assert_clean()

    def test_one_that_stood_still_while_another_machine_ended_the_run(self):
        """On storage without locks. Of what its workers had done meanwhile nothing is committed: the run is another's."""
        hosts = Hosts(self, 2)
        words = ("run", "--storage-path", self.storage, "--name", "r", "-n", 2, "--progress", "none", "--")
        report = "mkdir -p d.$RANK; echo $RANK > d.$RANK/part-$RANK; " + REPORT + "i=%d --checkpoint d.$RANK"
        more = {"cwd": self.work, "env": failing("lock", errno.ENOLCK, os.path.join(self.storage, "r"))}
        path = os.path.join(self.storage, "r")
        commits = lambda: sorted(name for name in os.listdir(path) if name.startswith("checkpoint_"))
        process = hosts.start_trainyard("h1", *words, "sh", "-c", "while " + report % 1 + "; do :; done", **more)
        self.wait_for(lambda: os.path.isdir(path) and commits(), "a checkpoint", process)
        controller = hosts.pid_of(process)
        self.stand_still(controller)
        os.utime(os.path.join(path, "run.lock"), (time.time() - 100,) * 2)
        log = os.stat(os.path.join(path, "run.db-wal")).st_ino
        script = report % 2 + " && stat -c '%i' \"$TRAINYARD_RUN_PATH/run.db-wal\""
        other = hosts.trainyard("h2", *words[:-1], "--no-prefix", "--resume", "--", "sh", "-c", script, **more)
        self.assertEqual(0, other.status, repr(other))
        self.assertNotIn(str(log), other.out.split(), "it goes on in the log that the first one has open")
        self.assertEqual(2, len(other.out.split()), repr(other))
        before = [self.rows("SELECT * FROM %s" % table) for table in ("events", "reports", "checkpoints")], commits()
        self.assertEqual([(2,), (2,)], self.rows("SELECT metrics->>'i' FROM reports ORDER BY id DESC LIMIT 2"))
        os.kill(controller, signal.SIGCONT)
        process.send_signal(signal.SIGCONT)  # who waits for it in this host stood still with it
        ended = self.finish(process)
        self.assertEqual(2, ended.status, repr(ended))
        self.assertIn("another controller has taken it over while this one stood still", ended.err)
        self.assertEqual(1, ended.err.count("\n"), repr(ended))
        after = [self.rows("SELECT * FROM %s" % table) for table in ("events", "reports", "checkpoints")], commits()
        self.assertEqual(before, after)
        self.assertEqual([("ok",)], self.rows("PRAGMA integrity_check"))

    # Makes one checkpoint of as many MiB as SIZE says; a later attempt tells where it begins.
    SAVER = "unset LD_PRELOAD; [ -n \"$TRAINYARD_CHECKPOINT\" ] && { echo from ${TRAINYARD_CHECKPOINT##*/}; exit 0; }; mkdir d; " \
        "dd if=/dev/urandom of=d/part bs=1M count=$SIZE 2>/dev/null; " + REPORT + "i=1 --checkpoint d"

    def resume_beside_deaf_workers(self, fault=None):
        """Of another attempt, which begins behind their end; what it told."""
        script = "trap '' TERM; echo $PPID > agent; while ! test -e enough; do echo $TRAINYARD_ATTEMPT >> order; sleep 0.01; done"
        process = self.shell(script, "--name", "r", "-n", 2)
        self.wait_for(lambda: "1" in self.lines("order"), "the workers", process)
        if fault is not None:
            os.kill(int(self.wait_for(lambda: self.lines("agent"), "the agent", process)[0]), fault)
        process.kill()
        process.wait()
        again = self.shell(script, "--name", "r", "-n", 2, "--resume")
        self.wait_for(lambda: "2" in self.lines("order"), "another attempt", again)
        time.sleep(1)
        self.write("work/enough", "")
        finished = self.assert_status(0, self.finish(again))
        self.finish(process)
        attempts = self.lines("order")
        self.assertEqual(sorted(attempts), attempts, "the attempts overlapped")
        return finished

    def lines(self, name):
        try:
            with open(os.path.join(self.work, name)) as file:
                return file.read().split()
        except FileNotFoundError:
            return []

    def test_c1_resume_while_the_workers_still_end(self):
        """C1 on one machine: deaf ones have a moment."""
        self.assertNotIn("the agent of node", self.resume_beside_deaf_workers().err)

    def test_c1_resume_beside_an_agent_that_stands_still(self):
        """C1 on one machine: it would never end, nor its workers."""
        self.assertIn("did not end, and was killed", self.resume_beside_deaf_workers(signal.SIGSTOP).err)

    def resumed(self, size, fault, *options):
        """A run with a checkpoint, and another controller of it whose storage is at fault."""
        self.assert_status(0, self.finish(self.shell(self.SAVER, "--name", "r", env={"SIZE": str(size)})))
        process = self.shell(self.SAVER, "--name", "r", "--resume", *options, env=failing(*fault))
        self.wait_for(lambda: self.rows("SELECT COUNT(*) FROM events WHERE kind = 'run'") == [(2,)], "the resumed run", process)
        return process

    def interrupted(self, process):
        """Ctrl-C is heard and told; the run stays as it was, and goes on."""
        process.send_signal(signal.SIGINT)
        finished = self.assert_status(130, self.finish(process))
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
            self.assert_status(130, self.finish(process))
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

    def test_c6_a_directory_that_goes_is_told_whatever_the_run_came_to(self):
        """C6: removed or moved away while a checkpoint commits, for which nobody waits for ever; then the run is interrupted, or fails."""
        path = os.path.join(self.storage, "r")
        for move, told in ((shutil.rmtree, "was removed while the run went on: run.db, logs and checkpoints are lost"),
                           (lambda path: os.rename(path, path + "-moved"), "was moved away while the run went on")):
            for interrupt in (True, False):
                with self.subTest(told=told, interrupt=interrupt):
                    process = self.shell("echo $$ > ready.0; " + self.SAVER, "--name", "r", "--grace", "300ms",
                                         env=dict(failing("rename", -1, ".checkpoint_000001"), SIZE="1",
                                                  TRAINYARD_FAIL_MARK=os.path.join(self.work, "there")))
                    staging = os.path.join(path, ".checkpoint_000001.attempt-1")
                    self.wait_for_files(process, "there")
                    _, (worker,) = self.pids_of(process, 1)
                    move(path)
                    if not interrupt:
                        os.kill(worker, signal.SIGKILL)
                        time.sleep(0.1)
                    process.send_signal(signal.SIGINT)
                    finished = self.assert_status(130, self.finish(process))
                    self.assertIn("%s %s" % (path, told), finished.err)
                    self.assertIn("the storage hangs: committing " + staging, finished.err)
                    self.assertFalse(os.path.exists(path), "made again")
                    shutil.rmtree(path + "-moved", ignore_errors=True)
                    shutil.rmtree(os.path.join(self.work, "d"))
                    self.forget()
        self.assert_clean()

    def test_a_resume_on_a_full_disk(self):
        """D2: where the journal cannot be opened nothing begins; where it fills up that is told and is the status. Nothing is lost."""
        script = "unset LD_PRELOAD; echo from ${TRAINYARD_CHECKPOINT##*/}; mkdir -p d; echo x > d/part; " + REPORT + "i=1 --checkpoint d"
        self.assert_status(0, self.finish(self.shell(script, "--name", "r")))
        refused = self.assert_status(1, self.finish(self.shell(script, "--name", "r", "--resume", env=failing("write", errno.ENOSPC, "run.db"))))
        self.assert_line(refused, "run", "cannot open %s/r/run.db: No space left on device" % self.storage)
        self.assertEqual("", refused.out)
        for call, error in (("write", errno.ENOSPC), ("sync", errno.EIO)):
            full = self.assert_status(1, self.finish(self.shell(script, "--name", "r", "--resume", env=failing(call, error, "run.db-wal"))))
            self.assertIn("[rank 0] from checkpoint_000001\n", full.out)
            self.assertIn("cannot write %s/r/run.db: " % self.storage, full.err)
        again = self.assert_status(0, self.finish(self.shell(script, "--name", "r", "--resume")))
        self.assertIn(again.out, ("[rank 0] from checkpoint_000001\n", "[rank 0] from checkpoint_000002\n"))  # a sync may fail behind its write
        self.assertIn("checkpoint_000001", self.committed())
        self.assert_clean()

    def test_a_resume_with_other_workers(self):
        """More or fewer workers than before: all begin from the latest checkpoint, which holds the files of those before."""
        script = "echo $RANK of $WORLD_SIZE from ${TRAINYARD_CHECKPOINT##*/} `cd $TRAINYARD_CHECKPOINT && echo part-*`; mkdir -p d.$RANK; " \
            "echo x > d.$RANK/part-$RANK; " + REPORT + "n=$WORLD_SIZE --checkpoint d.$RANK"
        before = "from  part-*"
        for number, workers in enumerate((2, 4, 1), 1):
            finished = self.assert_status(0, self.finish(self.shell(script, "--name", "r", "-n", workers, *(["--resume"] if number > 1 else []),
                                                                    env={"TRAINYARD_CHECKPOINT": None})))
            if number > 1:
                self.assertEqual(["[rank %d] %d of %d %s" % (rank, rank, workers, before) for rank in range(workers)],
                                 sorted(finished.out.splitlines()))
            before = "from checkpoint_%06d %s" % (number, " ".join("part-%d" % rank for rank in range(workers)))
        self.assertEqual(["checkpoint_000001", "checkpoint_000002", "checkpoint_000003"], self.committed())
        self.assertEqual([[2, 4, 1], [2, 4], [4], [4]], [[value for value, in self.rows(
            "SELECT metrics->>'n' FROM reports WHERE rank = %d ORDER BY id" % rank)] for rank in range(4)])
        self.assert_clean()

    def test_c8_killed_while_it_removes_a_checkpoint(self):
        """C8, D8: the one that goes has lost its row and its name; the resumed run goes on from the latest and finishes the removal."""
        script = "unset LD_PRELOAD; [ -n \"$TRAINYARD_CHECKPOINT\" ] && { echo from ${TRAINYARD_CHECKPOINT##*/}; exit 0; }; mkdir d; " \
            "echo 1 > d/part; " + REPORT + "i=1 --checkpoint d && " + REPORT + "i=2 --checkpoint d; exec sleep 100000"
        process = self.shell(script, "--name", "r", "--keep-checkpoints", 1, env=failing("unlink", -1, "part"))
        trash = os.path.join(self.storage, "r", ".checkpoint_000001.removed")
        self.wait_for(lambda: os.path.exists(trash), "a removal", process)
        process.kill()
        self.assert_status(137, self.finish(process))
        self.assertTrue(os.path.exists(os.path.join(trash, "part")))
        self.assertEqual([("checkpoint_000002",)], self.rows("SELECT name FROM checkpoints"))
        again = self.assert_status(0, self.finish(self.shell(script, "--name", "r", "--resume")))
        self.assertEqual("[rank 0] from checkpoint_000002\n", again.out)
        self.assertEqual(["checkpoint_000002"], self.committed())
        self.assert_clean()

    def test_nothing_to_resume(self):
        """Scripts that are started again and again always resume; a slip in the name must be seen, and loses nothing."""
        told = "warning: nothing to resume under %s/%s: a new run begins"
        first = self.assert_status(0, self.finish(self.shell("true", "--progress", "none", "--name", "nightly", "--resume")))
        self.assert_line(first, "run", told % (self.storage, "nightly"))
        self.assertNotIn("did you mean", first.err)
        self.assertEqual("", self.assert_status(0, self.finish(self.shell("true", "--progress", "none", "--name", "nightly", "--resume"))).err)
        slip = self.assert_status(0, self.finish(self.shell("true", "--progress", "none", "--name", "nigthly", "--resume")))
        self.assert_line(slip, "run", told % (self.storage, "nigthly"), "; did you mean nightly?")
        os.mkdir(os.path.join(self.storage, "bare"))  # a directory without a journal is no run
        self.assert_line(self.assert_status(0, self.finish(self.shell("true", "--progress", "none", "--name", "bare", "--resume"))), "run", told % (self.storage, "bare"))
        self.assertEqual("", self.assert_status(0, self.finish(self.shell("true", "--progress", "none", "--name", "asked-for-nothing"))).err)
        self.assertEqual([2, 1, 1], [self.status(name)["attempts"] for name in ("nightly", "nigthly", "bare")])
        self.assert_clean()


if __name__ == "__main__":
    main()
