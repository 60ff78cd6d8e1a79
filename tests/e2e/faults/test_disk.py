"""D rows of docs/faults.md: the calls of the file system fail as a full, broken or slow disk makes them (failing_calls.c)."""

import errno
import os
import re
import signal
import subprocess
import time
import unittest

from place import COMMAND, REPORT, FaultCase, failing, main

TOGETHER = unittest.skipIf("ASAN_OPTIONS" in os.environ, "nothing is done apart from its process under sanitizers (src/base/storage.c)")

# Two checkpoints; the second meets the fault, because what makes calls fail is loaded for it alone.
STEPS = ("mkdir d; echo 1 > d/part; " + REPORT + "step=1 --checkpoint d || exit 1; echo 2 > d/part; "
         "LD_PRELOAD=$WITH " + REPORT + "step=2 --checkpoint d; echo came to $?; " + REPORT + "step=3 --checkpoint d")


class Disks(FaultCase):
    def steps(self, call, error, name, *options):
        fault = failing(call, error, ".checkpoint_000002")
        return self.finish(self.shell(STEPS, "--name", name, "-n", 1, *options, env=dict(fault, LD_PRELOAD=None, WITH=fault["LD_PRELOAD"])))

    def test_checkpoints_that_cannot_be_written(self):
        """D1, D4, D5: the checkpoint before stays the latest; the caller is told the path and why; the training goes on as it is told."""
        for call, error, words in (("write", errno.ENOSPC, "No space left"), ("write", errno.EDQUOT, "quota"),
                                   ("sync", errno.EIO, "Input/output"), ("sync", errno.ENOSPC, "No space left"),
                                   ("write", errno.ESTALE, "Stale"), ("write", errno.EROFS, "Read-only")):
            for reaction in ("fail", "continue"):
                with self.subTest(call=call, error=words, reaction=reaction):
                    name = "%s-%d-%s" % (call, error, reaction)
                    finished = self.steps(call, error, name, "--on-checkpoint-error", reaction)
                    self.assert_status(0, finished)  # the program goes on, whatever its second report came to
                    self.assertIn("[rank 0] came to %d\n" % (reaction == "fail"), finished.out, repr(finished))
                    self.assertIn(words.lower(), finished.err.lower(), repr(finished))
                    self.assertIn(".checkpoint_000002", finished.err)
                    self.assertEqual(["checkpoint_000001", "checkpoint_000003"], self.committed(name))
                    self.assertEqual([1, 2, 3], self.metrics(0, "step", name))
                    os.rename(os.path.join(self.work, "d"), os.path.join(self.work, "was-" + name))
        self.assert_clean()

    def test_d9_a_directory_that_is_not_ours(self):
        """D9: refused with owner and mode, before anything in it changes."""
        self.assert_status(0, self.finish(self.shell("true", "--name", "r", "-n", 1)))
        path = os.path.join(self.storage, "r")
        os.chmod(path, 0o500)
        refused = self.assert_status(2, self.finish(self.shell("true", "--name", "r", "--resume")))
        self.assertIn(path, refused.err)
        self.assertIn("(uid %d), mode 0500: " % os.geteuid(), refused.err)
        os.chmod(path, 0o755)
        if os.geteuid() == 0:  # others cannot give a directory away
            os.chown(path, 4321, -1)
            refused = self.assert_status(2, self.finish(self.shell("true", "--name", "r", "--resume")))
            self.assertIn("(uid 4321), mode 0755: only its owner", refused.err)
            os.chown(path, 0, -1)
        self.assertEqual(1, self.status("r")["attempts"])
        self.assert_status(0, self.finish(self.shell("true", "--name", "r", "--resume")))
        self.assert_clean()

    def test_d9_a_umask_that_keeps_us_out(self):
        """D9: nothing stays that would be in the way of the next try."""
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        command = self.command_for_all()
        os.mkdir(self.storage)
        os.chown(self.storage, 61234, -1)
        os.chmod(self.work, 0o755)
        refused = self.finish(self.shell("true", "--name", "r", executable=command, user=61234, umask=0o777))
        self.assertIn("Permission denied", self.assert_status(2, refused).err)
        self.assertEqual([], os.listdir(self.storage))

    def test_short_and_interrupted_writes(self):
        """D5: one byte at a time, every second call interrupted: slower, and as correct."""
        finished = self.steps("write", 0, "r")
        self.assert_status(0, finished)
        self.assertIn("[rank 0] came to 0\n", finished.out)
        self.assertEqual(["checkpoint_%06d" % number for number in (1, 2, 3)], self.committed())
        with open(os.path.join(self.storage, "r", "checkpoint_000002", "part")) as file:
            self.assertEqual("2\n", file.read())
        self.assert_clean()

    def test_a_full_disk_under_the_journal(self):
        """D2: the workers go on to their end; that records are lost is told and is the exit status."""
        script = "echo $$ > ready.$RANK; mkdir d.$RANK; " + REPORT + "i=1 --checkpoint d.$RANK; echo done"
        for call, error in (("write", errno.ENOSPC), ("write", errno.EIO), ("sync", errno.EIO)):
            with self.subTest(call=call, error=error):
                name = "%s-%d" % (call, error)
                finished = self.finish(self.shell(script, "--name", name, "-n", 2, env=failing(call, error, "run.db-wal")))
                self.assert_status(1, finished)
                self.assertEqual(2, finished.out.count("done\n"), repr(finished))
                self.assertIn("run.db", finished.err)
                self.assertRegex(finished.err, "disk is full|Input/output error|disk I/O error")

    def test_no_attempt_follows_a_journal_that_failed(self):
        """D2: no checkpoint of it would count."""
        script = "echo began; mkdir d.$$; " + REPORT + "i=1 --checkpoint d.$$ || exit 7"
        finished = self.finish(self.shell(script, "--name", "r", "-n", 1, "--max-failures", -1, "--max-start-failures", -1,
                                          env=failing("write", errno.ENOSPC, "run.db-wal")))
        self.assert_status(7, finished)
        self.assertEqual(1, finished.out.count("began\n"), repr(finished))
        self.assertIn("cannot be put on record", finished.out + finished.err)

    def test_a_sync_that_fails_at_the_very_end(self):
        """D4: nothing of this run is synced before its journal is finished."""
        finished = self.finish(self.shell("echo done", "--name", "r", "-n", 1, env=failing("sync", errno.EIO, "run.db")))
        self.assert_status(1, finished)
        self.assertIn("[rank 0] done\n", finished.out)
        self.assertRegex(finished.err, "cannot write .*run.db: Input/output error")
        self.assertEqual([("run_end",)], self.rows("SELECT kind FROM events ORDER BY sequence DESC LIMIT 1"))

    def test_no_checkpoint_goes_before_its_end_is_on_record(self):
        """D2, D8: the disk is full once a newer checkpoint is in place of the only one that is to be kept, whose files stay then."""
        script = "mkdir d; echo 1 > d/part; " + REPORT + "i=1 --checkpoint d || exit 1; echo 2 > d/part; " + \
            REPORT + "i=2 --checkpoint d; exit 0"
        for call, error in (("write", errno.ENOSPC), ("sync", errno.EIO)):
            with self.subTest(call=call):
                newer = os.path.join(self.storage, call, "checkpoint_000002")
                finished = self.finish(self.shell(script, "--name", call, "--keep-checkpoints", 1,
                                                  env=dict(failing(call, error, "run.db-wal"), TRAINYARD_FAIL_WHEN=newer)))
                self.assert_status(1, finished)
                self.assert_status(0, self.trainyard("checkpoints", "verify", call, "--storage-path", self.storage))
                again = self.finish(self.shell("cat $TRAINYARD_CHECKPOINT/part", "--name", call, "--resume"))
                self.assertEqual("[rank 0] %s\n" % ("1" if call == "write" else "2"), self.assert_status(0, again).out)
                self.committed(call)
                os.rename(os.path.join(self.work, "d"), os.path.join(self.work, "was-" + call))

    def test_no_journal_no_run(self):
        """D2: where not even an empty journal can be made nothing is started."""
        finished = self.finish(self.shell("touch started", "--name", "r", env=failing("write", errno.ENOSPC, "run.db")))
        self.assert_status(1, finished)
        self.assert_line(finished, "run", "run.db", "No space left on device")
        self.assertFalse(os.path.exists(os.path.join(self.work, "started")))
        self.assertEqual([], os.listdir(self.storage))  # the name is free again

    # Rank 0 makes two checkpoints, of which the first goes; the other one writes all the time.
    TALKING = ("unset LD_PRELOAD; if [ $RANK = 0 ]; then mkdir d; echo 1 > d/part; " + REPORT + "i=1 --checkpoint d && " + REPORT +
               "i=2 --checkpoint d; else " + REPORT + "i=1; " + REPORT + "i=2; fi; while sleep 0.1; do echo tick; done")

    def ticks(self):
        return self.read("out").count("tick\n")

    def test_storage_that_hangs(self):
        """D6: a call that never returns is told with its path while the output flows on, and does not keep the run from its end."""
        for call, part, path in (("rename", ".checkpoint_000001", "committing %s/.checkpoint_000001.attempt-1 "),
                                 ("sync", ".checkpoint_000001", "committing %s/.checkpoint_000001.attempt-1 "),
                                 ("unlink", "part", "removing %s/checkpoint_000001 ")):
            with self.subTest(call=call), open(os.path.join(self.work, "out"), "w") as out, open(os.path.join(self.work, "err"), "w") as err:
                told = "the storage hangs: " + path % os.path.join(self.storage, call) + "has not returned for "
                process = self.start_run("--name", call, "-n", 2, "--grace", "500ms", "--keep-checkpoints", 1, "--", "sh", "-c", self.TALKING,
                                         env=failing(call, -1, part), stdout=out, stderr=err)
                self.wait_for(lambda: told in self.read("err"), "word of the storage", process)
                before = self.ticks()
                self.wait_for(lambda: self.ticks() > before + 3, "output", process)
                process.send_signal(signal.SIGINT)
                self.assert_status(130, self.finish(process))
                self.assertEqual([("run_end",)], self.rows("SELECT kind FROM events ORDER BY sequence DESC LIMIT 1", call))
                os.rename(os.path.join(self.work, "d"), os.path.join(self.work, "was-" + call))
                again = self.assert_status(0, self.finish(self.shell("echo from $TRAINYARD_CHECKPOINT", "--name", call, "--resume")))
                latest = os.path.join(self.storage, call, "checkpoint_000002") if call == "unlink" else ""
                self.assertEqual(("[rank 0] from " + latest).rstrip(), again.out.rstrip())
                self.committed(call)
        self.assert_clean()

    def test_a_commit_that_hangs_behind_the_last_worker(self):
        """D6, C3: the end of an attempt waits for it, hears Ctrl-C meanwhile, says so, and waits no longer than the grace; the second ends it."""
        script = "echo $$ > ready.$RANK; unset LD_PRELOAD; mkdir d; echo 1 > d/part; exec " + REPORT + "i=1 --checkpoint d"
        staging = os.path.join(self.storage, "r", ".checkpoint_000001.attempt-1")
        for grace, told, interrupts in (("300ms", "300 ms", 1), ("1h", "1 h", 2)):
            with self.subTest(grace=grace):
                process = self.shell(script, "--name", "r", "-n", 1, "--grace", grace, env=failing("rename", -1, ".checkpoint_000001"))
                self.wait_for(lambda: os.path.exists(os.path.join(staging, ".metadata.json")), "a commit", process)
                os.kill(self.pids_of(process, 1)[1][0], signal.SIGKILL)
                self.await_event("gone", process)
                self.signal(process, signal.SIGINT, interrupts)
                finished = self.assert_status(130, self.finish(process))
                self.assertIn("signal 2 (SIGINT): the last checkpoint has %s to be committed; once more ends the run at once" % told,
                              finished.err)
                self.assertIn("the storage hangs: committing %s has not returned for " % staging, finished.err)
                self.assertEqual([("interrupted",)], self.rows("SELECT data->>'outcome' FROM events WHERE kind = 'run_end'"))
                self.assertEqual([], self.rows("SELECT name FROM checkpoints"))
                again = self.assert_status(0, self.finish(self.shell("echo from $TRAINYARD_CHECKPOINT", "--name", "r", "--resume")))
                self.assertEqual("[rank 0] from\n", again.out)
                self.assertEqual([], self.committed())
                os.rename(os.path.join(self.storage, "r"), os.path.join(self.storage, "was-" + grace))
                os.rename(os.path.join(self.work, "d"), os.path.join(self.work, "was-" + grace))
                self.forget()
        self.assert_clean()

    def test_a_clear_up_that_hangs_between_attempts(self):
        """D6, C3: the next attempt waits for it, and Ctrl-C is heard meanwhile: no further attempt begins."""
        script = "echo $$ > ready.$RANK; unset LD_PRELOAD; mkdir d.$RANK; echo 1 > d.$RANK/part.$RANK; " + REPORT + \
            "i=1 --checkpoint d.$RANK || exit 1; : > there.$RANK; if [ $RANK = 1 ]; then exec sleep 100000; fi; exec " + \
            REPORT + "i=2 --checkpoint d.$RANK"
        process = self.shell(script, "--name", "r", "-n", 2, "--grace", "300ms", "--max-failures", 1,
                             env=failing("unlink", -1, ".checkpoint_000002"))
        staging = os.path.join(self.storage, "r", ".checkpoint_000002.attempt-1")
        self.wait_for_files(process, "there.0", "there.1")
        self.wait_for(lambda: os.path.exists(os.path.join(staging, "part.0")), "files", process)
        os.kill(self.pids_of(process, 2)[1][1], signal.SIGKILL)
        self.await_event("attempt_end", process)
        process.send_signal(signal.SIGINT)
        finished = self.assert_status(130, self.finish(process))
        self.assertIn("signal 2 (SIGINT): no further attempt begins", finished.err)
        self.assertIn("the storage hangs: removing %s has not returned for " % staging, finished.err)
        again = self.assert_status(0, self.finish(self.shell("echo from ${TRAINYARD_CHECKPOINT##*/}", "--name", "r", "-n", 1, "--resume")))
        self.assertEqual("[rank 0] from checkpoint_000001\n", again.out)
        self.assertEqual(["checkpoint_000001"], self.committed())
        self.assert_clean()

    def test_no_haste_gives_up_what_is_only_slow(self):
        """D6, C3: two signals end the wait for storage that hangs, not one that takes less than two seconds: the checkpoint counts, the removal is
        done."""
        script = "echo $$ > ready.$RANK; unset LD_PRELOAD; mkdir d; echo 1 > d/part; " + REPORT + "i=1 --checkpoint d; " + REPORT + \
            "i=2 --checkpoint d"
        for call, part, status, committed in (("rename", ".checkpoint_000001", 130, "checkpoint_000001"),
                                              ("unlink", "part", 0, "checkpoint_000002")):
            with self.subTest(call=call):
                mark = os.path.join(self.work, "slow-" + call)
                process = self.shell(script, "--name", "r", "-n", 1, "--grace", "1h", "--keep-checkpoints", 1,
                                     env=dict(failing(call, -13, part), TRAINYARD_FAIL_MARK=mark))  # in the middle: our signals may be late, and the call
                self.wait_for_files(process, "slow-" + call)
                if status == 0:
                    self.await_event("run_end", process)
                self.signal(process, signal.SIGINT, 2)
                finished = self.assert_status(status, self.finish(process))
                self.assertNotIn("hangs", finished.err)
                self.assertEqual([committed], self.committed())
                os.rename(os.path.join(self.storage, "r"), os.path.join(self.storage, "was-" + call))
                os.rename(os.path.join(self.work, "d"), os.path.join(self.work, "was-" + call))
        self.assert_clean()

    def test_a_removal_that_hangs_behind_the_end(self):
        """D6, C3: the run has ended well and says so, whatever its storage still does; Ctrl-C ends the wait for it."""
        script = "unset LD_PRELOAD; mkdir d; echo 1 > d/part; " + REPORT + "i=1 --checkpoint d && " + REPORT + "i=2 --checkpoint d"
        process = self.shell(script, "--name", "r", "-n", 1, "--keep-checkpoints", 1, env=failing("unlink", -1, "part"))
        self.await_event("run_end", process)
        process.send_signal(signal.SIGINT)
        finished = self.assert_status(0, self.finish(process))
        self.assertIn("the storage hangs: removing %s has not returned for " % os.path.join(self.storage, "r", "checkpoint_000001"),
                      finished.err)
        self.assertIn("it is not waited for any longer", finished.err)
        self.assert_status(0, self.finish(self.shell("true", "--name", "r", "--resume")))
        self.assertEqual(["checkpoint_000002"], self.committed())
        self.assert_clean()

    # Workers write all the time; TERM is answered. The storage of the journal hangs once the file `now` is there.
    # The report is the row that the storage hangs under.
    FRIENDLY = ("unset LD_PRELOAD; trap 'echo polite; exit 0' TERM; if [ $RANK = 0 ]; then : > now; " + REPORT + "i=1; fi; "
                "while :; do sleep 0.02; echo tick; done")

    def hanging_journal(self, name, script, *options, when=None, **more):
        fault = failing("write", -1, "/%s/run.db-wal" % name)
        if when is not None:
            fault["TRAINYARD_FAIL_WHEN"] = when
        return self.start_run("--name", name, "-n", 2, *options, "--", "sh", "-c", script, env=fault, **more)

    def told(self, name):
        return "the storage hangs: writing %s/run.db has not returned for " % os.path.join(self.storage, name)

    def assert_last_line(self, name, words, err):
        """The last but for the command that goes on."""
        self.assertEqual("trainyard run: %scannot write %s/run.db: the storage hangs" % (words, os.path.join(self.storage, name)),
                         [line for line in err.rstrip().splitlines() if not line.startswith("trainyard run: to go on: ")][-1])

    def test_a_journal_that_hangs(self):
        """D6, C3, C4: it is told with its path, output flows on, signals are heard: workers are told, and the run ends within the grace, or
        at once; what is not signalled goes on without it after 30 s."""
        with open(os.path.join(self.work, "alone.out"), "w") as out, open(os.path.join(self.work, "alone.err"), "w") as err:
            unsignalled = self.hanging_journal("alone", "echo worked", stdout=out, stderr=err)
        now = os.path.join(self.work, "now")
        for name, number, grace, times in (("once", signal.SIGINT, "3s", 1), ("twice", signal.SIGINT, "1h", 2),
                                           ("term", signal.SIGTERM, "3s", 1)):
            with self.subTest(name), open(os.path.join(self.work, "out"), "w") as out, open(os.path.join(self.work, "err"), "w") as err:
                process = self.hanging_journal(name, self.FRIENDLY, "--grace", grace, when=now, stdout=out, stderr=err)
                self.wait_for(lambda: self.told(name) in self.read("err"), "word of the storage", process)
                before = self.ticks()
                self.wait_for(lambda: self.ticks() > before + 3, "output", process)
                process.send_signal(number)
                self.wait_for(lambda: self.read("out").count("polite") == 2, "polite ends", process)
                for _ in range(times - 1):
                    process.send_signal(number)
                self.assert_status(128 + number, self.finish(process))
                words = "interrupted by signal 2 (SIGINT); " if number == signal.SIGINT else "preempted by signal 15 (SIGTERM): it can be resumed; "
                self.assert_last_line(name, words, self.read("err"))
                os.unlink(now)
                self.assert_status(0, self.finish(self.shell("true", "--name", name, "--resume")))
                self.assertEqual([(1,), (2,)], self.rows("SELECT DISTINCT attempt FROM events WHERE kind = 'attempt'", name))
        self.assert_status(1, self.finish(unsignalled))
        self.assertEqual(2, self.read("alone.out").count("worked"))
        self.assertIn(self.told("alone"), self.read("alone.err"))
        self.assertIn("the storage hangs; the run goes on without it", self.read("alone.err"))
        self.assert_last_line("alone", "", self.read("alone.err"))
        self.assertEqual([], self.rows("SELECT * FROM events", "alone"))
        self.assert_clean()

    # Each worker says where it is, in its own words at every tenth of a second.
    COUNTING = "trap 'echo polite; exit 0' TERM; i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.1; done"

    def log_lines(self, rank, name):
        with open(os.path.join(self.storage, name, "logs", "rank-%d.log" % rank)) as file:
            return file.read().splitlines()

    def freeze_under_the_logs(self, name, *options):
        freeze, thaw = self.frozen_storage()
        out, err = (open(os.path.join(self.work, name), "w") for name in ("out", "err"))
        self.addCleanup(out.close)
        self.addCleanup(err.close)
        process = self.start_run("--name", name, "-n", 2, *options, "--", "sh", "-c", self.COUNTING, stdout=out, stderr=err)
        self.wait_for(lambda: self.ticks_of(1) > 3, "output", process)
        self.wait_for(lambda: len(self.log_lines(0, name)) > 2, "the log", process)
        freeze()
        told = "the storage hangs: writing %s/logs/rank-" % os.path.join(self.storage, name)
        self.wait_for(lambda: told in self.read("err"), "word of the storage", process)
        before = self.ticks_of(0), self.ticks_of(1)
        self.wait_for(lambda: self.ticks_of(0) > before[0] + 3 and self.ticks_of(1) > before[1] + 3, "output", process)
        return process, thaw

    def ticks_of(self, rank):
        return self.read("out").count("[rank %d] tick" % rank)

    def test_logs_on_storage_that_hangs_for_a_while(self):
        """D6: it is told by path, output is shown meanwhile, and nothing is missing in the logs."""
        process, thaw = self.freeze_under_the_logs("r", "--grace", "10s")
        thaw()
        for rank in range(2):  # a run that is stopped in the same instant does not wait for storage that hung until then
            self.wait_for(lambda: self.ticks_of(rank) - len(self.log_lines(rank, "r")) < 3, "the log", process)  # noqa: B023
        process.send_signal(signal.SIGTERM)
        self.assert_status(143, self.finish(process))
        for rank in range(2):
            lines = self.log_lines(rank, "r")
            ticks = [line for line in lines if line.startswith("tick")]
            self.assertEqual(["tick %d" % (number + 1) for number in range(len(ticks))], ticks)
            self.assertEqual(self.ticks_of(rank), len(ticks))
            self.assertEqual(1, lines.count("polite"))
        self.assertNotIn("not in its log", self.read("err"))
        self.assert_clean()

    def test_more_output_than_may_wait_for_its_log(self):
        """D6: workers wait in their writes until the storage is known to hang; then all is shown, and the log tells what it lacks, and where."""
        freeze, thaw = self.frozen_storage()
        script = "echo first; : > ready.$RANK; until [ -e go ]; do sleep 0.01; done; yes 0123456789abcde | head -n 1500000; echo last; " \
            "until [ -e end ]; do sleep 0.01; done; echo behind"
        with open(os.path.join(self.work, "out"), "w") as out, open(os.path.join(self.work, "err"), "w") as err:
            process = self.start_run("--name", "r", "-n", 1, "--no-prefix", "--", "sh", "-c", script, stdout=out, stderr=err)
            self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "r", "logs", "rank-0.log")) and self.log_lines(0, "r") == ["first"],
                          "the log", process)
            freeze()
            self.write("work/go", "")
            self.wait_for(lambda: self.read("out").endswith("last\n"), "all of the output", process)
            log = os.path.join(self.storage, "r", "logs", "rank-0.log")
            self.assertIn("the storage hangs: writing %s" % log, self.read("err"))
            thaw()
            self.wait_for(lambda: os.path.getsize(log) > 8 << 20, "the log", process)  # there is room in it again
            self.write("work/end", "")
            self.assert_status(0, self.finish(process))
        self.assertEqual(1500003, self.read("out").count("\n"))
        told = re.search(r"(\d+) bytes of the output of rank 0 are not in its log", self.read("err"))
        with open(os.path.join(self.storage, "r", "logs", "rank-0.log")) as file:
            text = file.read()
        gaps = re.findall(r"\n\[trainyard: (\d+) bytes are missing here: the storage did not take them\]\n", text)
        self.assertEqual(int(told.group(1)), sum(map(int, gaps)))
        text = re.sub(r"\n\[trainyard: .*\]\n", "", text)
        self.assertEqual(len(self.read("out")), len(text) + sum(map(int, gaps)))
        self.assertGreater(len(text), 8 << 20)
        self.assertTrue(text.endswith("behind\n"), text[-100:])
        self.assert_clean()

    def test_logs_on_storage_that_hangs_for_ever(self):
        """D6, C3: signals are heard, the workers end, the run tells its end, and its process is gone while the storage still hangs; what
        hangs is named and left behind. Nothing that was on record before is lost, and the run can be resumed."""
        for name, number, times, grace in (("once", signal.SIGTERM, 1, "300ms"), ("twice", signal.SIGTERM, 2, "1h"),
                                           ("keys", signal.SIGINT, 2, "1h"), ("stacks", signal.SIGQUIT, 1, "300ms")):
            with self.subTest(name):
                process, thaw = self.freeze_under_the_logs(name, "--grace", grace)
                self.signal(process, number, times)
                self.assert_status(128 + number, self.finish(process))
                words = "interrupted by signal %d (%s); " % (number, number.name)
                if number == signal.SIGTERM:
                    words = "preempted by signal 15 (SIGTERM): it can be resumed; "
                self.assert_last_line(name, words, self.read("err"))
                thaw()
                self.assert_clean()
                self.assertEqual([(1,)], self.rows("SELECT DISTINCT attempt FROM events WHERE kind = 'attempt'", name))
                self.assert_status(0, self.finish(self.shell("true", "--name", name, "--resume")))
                self.assertEqual([(1,), (2,)], self.rows("SELECT DISTINCT attempt FROM events WHERE kind = 'attempt'", name))

    def run_into_frozen_storage(self, script, *options, before="tick 4"):
        """Output goes to `out` on storage that is frozen once it holds `before`; the run itself lies elsewhere."""
        elsewhere = self.storage
        freeze, thaw = self.frozen_storage()
        path, self.storage = os.path.join(os.path.dirname(self.storage), "out"), elsewhere
        with open(path, "w") as out:
            process = self.start_run("--name", "r", "-n", 2, "--progress", "none", *options, "--", "sh", "-c", script, stdout=out)

        def shown(words):
            with open(path) as file:
                return words in file.read()
        self.wait_for(lambda: all(shown("[rank %d] %s" % (rank, before)) for rank in range(2)), "output", process)
        freeze()
        return process, thaw, shown

    def test_output_into_storage_that_hangs(self):
        """D6, C3: the workers go on, the second Ctrl-C ends the run, and all that was shown is in the file once the storage answers."""
        process, thaw, shown = self.run_into_frozen_storage(self.COUNTING, "--grace", "1h")
        seen = len(self.log_lines(0, "r"))
        self.wait_for(lambda: len(self.log_lines(0, "r")) > seen + 5, "the workers", process)
        self.signal(process, signal.SIGINT, 2)
        finished = self.assert_status(130, self.finish(process))
        self.assertIn("the storage hangs under standard output: the rest is written when it answers", finished.err)
        thaw()
        for rank in range(2):
            for line in self.log_lines(rank, "r"):
                self.wait_for(lambda: shown("[rank %d] %s\n" % (rank, line)), line)  # noqa: B023
        self.assert_clean()

    def test_more_output_than_may_wait_for_its_file(self):
        """D6: workers wait in their writes until the storage answers; nothing is lost, and all is in the file when the command ends."""
        script = "echo first; until [ -e go ]; do sleep 0.01; done; yes 0123456789abcde | head -n 300000; echo last"
        process, thaw, shown = self.run_into_frozen_storage(script, before="first")
        self.write("work/go", "")
        self.wait_for(lambda: len(self.log_lines(0, "r")) > 1000, "the workers", process)
        thaw()
        self.assert_status(0, self.finish(process))
        for rank in range(2):
            self.assertTrue(shown("[rank %d] last\n" % rank))
        self.assert_clean()

    def test_a_terminal_on_storage_that_hangs(self):
        """D6: the path is told; the worker runs, and its run ends."""
        env = failing("mkdir", -1, "/attach")
        process = self.start_run("--name", "r", "-n", 2, "--pty", "--", "sh", "-c", "echo hello from $RANK", env=env)
        finished = self.assert_status(0, self.finish(process))
        self.assertIn("hello from 0", finished.out)
        self.assertIn("hello from 1", finished.out)
        self.assertIn("the storage hangs: making %s/r/attach has not returned for" % self.storage, finished.err)
        self.assert_clean()

    def test_a_terminal_on_storage_that_takes_its_time(self):
        """The worker does not wait for its socket; who attaches finds it when the storage has made it."""
        script = "echo ready; read word; echo got $word"
        env = dict(failing("mkdir", -1, "/attach"), TRAINYARD_FAIL_UNTIL=os.path.join(self.work, "answers"))
        with open(os.path.join(self.work, "out"), "w") as out:
            process = self.start_run("--name", "r", "-n", 1, "--pty", "--", "sh", "-c", script, env=env, stdout=out)
        self.wait_for(lambda: "ready" in self.read("out"), "the worker", process)
        self.assertFalse(os.path.exists(os.path.join(self.storage, "r", "attach")))
        self.write("work/answers", "")
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "r", "attach", "rank-0")), "the socket", process)
        attached = subprocess.run([COMMAND, "attach", "r", "--storage-path", self.storage], input="it\n", capture_output=True, text=True,
                                  timeout=180)
        self.assertEqual("ready\nit\ngot it\n", attached.stdout)
        self.assert_status(0, self.finish(process))
        self.assert_clean()

    @TOGETHER
    def test_a_start_on_storage_that_hangs(self):
        """D6: the path is told, and a signal ends the command at once; nothing was begun."""
        freeze, thaw = self.frozen_storage()
        os.mkdir(self.storage)
        freeze()
        process = self.start_run("--name", "r", "-n", 1, "--", "true")
        told = process.stderr.readline()
        self.assertTrue(told.startswith("trainyard run: warning: the storage hangs: making %s has not returned for" % self.storage), told)
        process.send_signal(signal.SIGINT)
        self.assert_status(130, self.finish(process))
        thaw()
        self.assertEqual([], os.listdir(self.storage))

    def test_a_run_is_stopped_while_its_journal_is_made(self):
        """Before it listens to signals: by the one that Ctrl-C would send, and it can be resumed."""
        process = self.start_run("--name", "r", "-n", 1, "--", "sleep", "100", env=failing("write", -20, "run.db"))
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "r", "run.db")), "the journal", process)
        stopped = subprocess.run([COMMAND, "stop", "r", "--storage-path", self.storage], capture_output=True, text=True, timeout=180)
        self.assertEqual(0, stopped.returncode, stopped.stderr)
        self.assert_status(130, self.finish(process))
        self.assert_status(0, self.finish(self.shell("true", "--name", "r", "--resume")))

    @TOGETHER
    def test_rows_on_storage_that_hangs_for_ever(self):
        """D6, C3: the storage hangs in the midst of a row, since workers report all the time, and in the midst of a checkpoint: the process of
        the run ends all the same, and so does its output, for whoever reads that."""
        report = "i=0; while :; do i=$((i+1)); %si=$i --checkpoint d; done" % REPORT
        for name, script in (("reports", "while :; do %si=1; done" % REPORT), ("checkpoints", "mkdir d; echo 1 > d/part; " + report)):
            with self.subTest(name):
                freeze, thaw = self.frozen_storage()
                process = self.start_run("--name", name, "-n", 1, "--grace", "300ms", "--", "sh", "-c", script)
                self.wait_for(lambda: os.path.exists(os.path.join(self.storage, name, "run.db")), "a journal", process)  # noqa: B023
                self.wait_for(lambda: len(self.rows("SELECT 1 FROM reports", name)) > 20, "reports", process)  # noqa: B023
                freeze()
                time.sleep(0.5)  # a writer that waits for the storage is not told from one that writes
                self.signal(process, signal.SIGTERM, 1)
                try:
                    out, err = process.communicate(timeout=120)
                except subprocess.TimeoutExpired:
                    thaw()
                    self.fail("did not end: %r" % (process.communicate(),))
                self.assertEqual(143, process.returncode, err)
                self.assert_last_line(name, "preempted by signal 15 (SIGTERM): it can be resumed; ", err)
                thaw()
                self.assert_clean()
                self.assert_status(0, self.finish(self.shell("true", "--name", name, "--resume")))

    @TOGETHER
    def test_an_index_that_is_cut_short(self):
        """D2: its owner truncates it while the journal is written: that ends the record, which is told, and nothing else."""
        script = REPORT + "i=1; : > ready; until [ -e go ]; do sleep 0.01; done; " + REPORT + "i=2; echo told $?"
        process = self.start_run("--name", "r", "-n", 1, "--no-prefix", "--", "sh", "-c", script)
        self.wait_for(lambda: os.path.exists(os.path.join(self.work, "ready")) and self.rows("SELECT 1 FROM reports"), "a report", process)
        os.truncate(os.path.join(self.storage, "r", "run.db-shm"), 0)
        self.write("work/go", "")
        finished = self.assert_status(1, self.finish(process))
        self.assertEqual("told 0\n", finished.out)
        path = os.path.join(self.storage, "r", "run.db")
        self.assertIn("cannot write %s: %s-shm was cut short by another program" % (path, path), finished.err)
        self.assert_clean()
        self.assert_status(0, self.finish(self.shell("true", "--name", "r", "--resume")))
        self.assertEqual([(1,)], self.rows("SELECT metrics->>'i' FROM reports"))

    def test_a_journal_that_hangs_before_the_launch(self):
        """D6: no worker starts without its attempt on record, and none when the run is stopped meanwhile."""
        with open(os.path.join(self.work, "err"), "w") as err:
            process = self.hanging_journal("r", ": > started", "--grace", "300ms", stderr=err)
            self.wait_for(lambda: self.told("r") in self.read("err"), "word of the storage", process)
            process.send_signal(signal.SIGINT)
            self.assert_status(130, self.finish(process))
        self.assertFalse(os.path.exists(os.path.join(self.work, "started")))
        self.assert_clean()

    def test_a_journal_that_hangs_under_a_checkpoint(self):
        """D6: nobody is told of a checkpoint that is not on record."""
        script = "unset LD_PRELOAD; if [ $RANK = 0 ]; then mkdir d; echo 1 > d/part; " + REPORT + "i=1 --checkpoint d; else " + REPORT + \
            "i=1; fi; echo told $?"
        place = os.path.join(self.storage, "r", "checkpoint_000001")
        with open(os.path.join(self.work, "err"), "w") as err, open(os.path.join(self.work, "out"), "w") as out:
            process = self.hanging_journal("r", script, "--grace", "300ms", when=place, stdout=out, stderr=err)
            self.wait_for(lambda: self.told("r") in self.read("err"), "word of the storage", process)
            self.wait_for(lambda: self.read("out") == "[rank 1] told 0\n", "the report that carries none", process)
            process.send_signal(signal.SIGINT)
            self.assert_status(130, self.finish(process))
        self.assertNotIn("[rank 0] told 0", self.read("out"))
        self.assertEqual([], self.rows("SELECT name FROM checkpoints"))
        self.assertEqual([], self.rows("SELECT 1 FROM events WHERE kind = 'checkpoint'"))
        again = self.assert_status(0, self.finish(self.shell("echo from $TRAINYARD_CHECKPOINT", "--name", "r", "--resume")))
        self.assertEqual("[rank 0] from", again.out.rstrip())
        self.assertEqual([], self.committed())
        self.assert_clean()

    def test_storage_that_vanishes(self):
        """D5: the run's directory goes while a checkpoint is made: the report fails with the path, the run ends and tells it."""
        script = "mkdir d; echo 1 > d/part; rm -r \"$TRAINYARD_RUN_PATH\"; " + REPORT + "step=1 --checkpoint d; echo came to $?"
        finished = self.finish(self.shell(script, "--name", "r", "-n", 1))
        self.assertEqual(1, finished.status, repr(finished))
        self.assertIn("[rank 0] came to 1\n", finished.out)
        self.assertIn(os.path.join(self.storage, "r"), finished.err)


if __name__ == "__main__":
    main(side_by_side=4)
