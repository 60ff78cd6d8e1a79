"""Living with runs: `trainyard stop`, `rm` and `prune`, what a run takes on disk, and the run that was begun last."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest

from harness import COMMAND, Case, main, open_files


def shell(script):
    """A worker that runs a script, in which @ is the command."""
    return ["--", "/bin/sh", "-c", script.replace("@ ", "'%s' " % COMMAND)]


CHECKPOINT = "mkdir c$RANK && echo w > c$RANK/w && @ report --checkpoint c$RANK loss=1"


class KeepingCase(Case):
    def call(self, *args, **kwargs):
        return self.trainyard(*args, "--storage-path", self.storage, **kwargs)

    def path(self, *parts):
        return os.path.join(self.storage, *parts)

    def run_one(self, name, script="true", status=0):
        self.assert_status(status, self.run_workers("--name", name, "-n", "1", *shell(script)))

    def start_one(self, name, script="sleep 600", before=""):
        """A run whose worker has done what is to come before the script."""
        process = self.start("run", "--storage-path", self.storage, "--name", name, *shell(before + "@ report up=1; " + script))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.until(lambda: "reports      1" in self.call("status", name).out)
        return process

    @contextlib.contextmanager
    def held_on(self, name):
        """The run of a controller that was killed, whose lock is held longer: on a busy machine by what it was writing with, here by a
        descriptor."""
        process = self.start_one(name)
        process.kill()
        process.wait()
        with open(self.path(name, "run.lock"), "r+b") as lock:
            # F_OFD_SETLKW, as it may be held by the other still.
            fcntl.fcntl(lock, 38, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            yield

    @contextlib.contextmanager
    def removed_by_another(self, name):
        """A run that a process is about to remove, which is this test; the lock names another one, which no signal may reach."""
        other = subprocess.Popen(["sleep", "600"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        with open("/proc/%d/stat" % other.pid) as stat, open("/proc/sys/kernel/random/boot_id") as boot:
            holder = {"pid": other.pid, "start": int(stat.read().rpartition(")")[2].split()[19]), "boot": boot.read().strip(),
                      "processes": os.readlink("/proc/self/ns/pid"), "clock": os.readlink("/proc/self/ns/time"),
                      "host": os.uname().nodename, "since": time.time(), "removes": True}
        with open(self.path(name, "run.lock"), "w") as lock:
            fcntl.fcntl(lock, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))  # F_OFD_SETLK
            json.dump(holder, lock)
            lock.flush()
            yield
            self.assertIsNone(other.poll())

    def until_it_waits(self, process):
        self.wait_for(lambda: "run.lock" in "".join(open_files(process.pid)) or process.poll() is not None, "a look at the lock")

    def until(self, condition):
        limit = time.monotonic() + 180
        while not condition():
            self.assertLess(time.monotonic(), limit, "what was waited for did not come")
            time.sleep(0.02)


class Stop(KeepingCase):
    def test_a_run_is_stopped_and_can_be_resumed(self):
        process = self.start_one("a long one")
        out = self.assert_status(0, self.call("stop", "a long one")).out
        self.assertEqual("a long one has ended; it goes on when its command is given --resume 'a long one'\n", out)
        self.assertEqual(130, process.wait())
        self.assertIn("interrupted", self.call("status", "a long one").out)
        self.assertEqual("a long one is not running\n", self.assert_status(0, self.call("stop", "a long one")).out)

    def test_workers_that_ignore_it_are_ended_by_force(self):
        self.start_one("deaf", "while :; do sleep 1; done", before="trap '' TERM INT; ")
        error = self.call("stop", "deaf", "--timeout", "0.3s")
        self.assert_status(124, error)
        self.assertIn("--now", error.err)
        self.assert_status(0, self.call("stop", "deaf", "--now"))

    def test_a_controller_that_is_stopped_itself_is_waited_for(self):
        process = self.start_one("paused")
        os.kill(process.pid, signal.SIGSTOP)
        self.assert_status(124, self.call("stop", "paused", "--timeout", "0.2s"))
        os.kill(process.pid, signal.SIGCONT)
        self.assertEqual(130, process.wait())

    def test_a_killed_controller_is_not_mistaken_for_who_has_its_number(self):
        process = self.start_one("killed")
        process.kill()
        process.wait()
        self.assertIn("killed is not running", self.assert_status(0, self.call("stop", "killed")).out)

    def test_one_that_ignores_interrupts_is_terminated(self):
        words = ["run", "--storage-path", self.storage, "--name", "back", *shell("@ report up=1; sleep 600")]
        process = self.start(*words, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        self.addCleanup(process.kill)
        self.until(lambda: "reports      1" in self.call("status", "back").out)
        self.assert_status(0, self.call("stop", "back"))
        self.assertEqual(143, process.wait())

    def test_an_unknown_name_gets_the_nearest(self):
        self.run_one("alpha")
        self.assertIn("did you mean alpha?", self.assert_status(2, self.call("stop", "alhpa")).err)


class Remove(KeepingCase):
    def test_a_run_is_removed_with_all_its_files(self):
        self.run_one("old", "echo hello")
        self.run_one("other")
        self.assertIn("removed old: ", self.assert_status(0, self.call("rm", "old")).out)
        self.assertEqual(["other"], os.listdir(self.storage))

    def test_one_that_goes_on_is_never_removed(self):
        self.start_one("live")
        for options in [], ["--force"]:
            self.assertIn("goes on", self.assert_status(2, self.call("rm", "live", *options)).err)
        self.assertIn("0 runs to remove", self.assert_status(0, self.call("prune", "--yes", "--force")).out)
        self.assertTrue(os.path.exists(self.path("live", "run.db")))

    def test_one_with_a_checkpoint_only_by_force(self):
        self.run_one("model", CHECKPOINT)
        error = self.assert_status(2, self.call("rm", "model")).err
        self.assertIn("checkpoint_000001", error)
        self.assertIn("--force", error)
        self.assertIn("1 kept, as it holds a checkpoint", self.assert_status(0, self.call("prune", "--yes")).out)
        self.assertTrue(os.path.exists(self.path("model", "checkpoint_000001", "w")))
        self.assert_status(0, self.call("rm", "model", "--force"))
        self.assertEqual([], os.listdir(self.storage))

    def test_all_that_are_named_or_none(self):
        self.run_one("old")
        self.run_one("model", CHECKPOINT)
        for other in "model", "nosuch":
            self.assert_status(2, self.call("rm", "old", other))
            self.assertTrue(os.path.exists(self.path("old", "run.db")))
        self.assertEqual(2, self.assert_status(0, self.call("rm", "old", "model", "--force")).out.count("removed "))

    def test_links_are_not_followed(self):
        self.run_one("linked")
        kept = os.path.join(self.place, "kept")
        os.makedirs(kept)
        open(os.path.join(kept, "file"), "w").close()
        os.symlink(kept, self.path("linked", "elsewhere"))
        self.assert_status(0, self.call("rm", "linked"))
        self.assertEqual(["file"], os.listdir(kept))

    def test_a_run_that_is_a_link_is_refused(self):
        self.run_one("moved")
        os.rename(self.path("moved"), os.path.join(self.place, "moved"))
        os.symlink(os.path.join(self.place, "moved"), self.path("moved"))
        self.assertIn("is a link", self.assert_status(2, self.call("rm", "moved", "--force")).err)
        self.assertTrue(os.path.exists(os.path.join(self.place, "moved", "run.db")))

    def test_an_unreadable_journal_only_by_force(self):
        self.run_one("torn")
        with open(self.path("torn", "run.db"), "wb") as file:
            file.write(b"no journal")
        self.assertNotEqual(0, self.call("rm", "torn").status)
        self.assertTrue(os.path.exists(self.path("torn")))
        self.assert_status(0, self.call("rm", "torn", "--force"))
        self.assertFalse(os.path.exists(self.path("torn")))


    def test_the_run_of_a_controller_that_is_on_its_way_out(self):
        with self.held_on("killed"):
            self.assertEqual("died", self.call("status", "killed", "--format", "json").json["state"])
            self.assertIn("exists already", self.assert_status(2, self.run_workers("--name", "killed", "--", "true")).err)
            remove = self.start("rm", "killed", "--force", "--storage-path", self.storage)
            self.until_it_waits(remove)
        self.assert_status(0, self.finish(remove))
        self.assertEqual([], os.listdir(self.storage))


    def test_what_another_removes_at_the_same_time(self):
        """It is waited for, and then the run is gone; a name beside it is removed all the same."""
        for name in "twice", "other":
            self.run_one(name)
        with self.removed_by_another("twice"):
            self.assertEqual("twice is not running\n", self.assert_status(0, self.call("stop", "twice")).out)
            remove = self.start("rm", "twice", "other", "--storage-path", self.storage)
            self.until_it_waits(remove)
            os.rename(self.path("twice"), self.path(".removed-1-twice"))
            finished = self.assert_status(2, self.finish(remove))
            self.assertIn("the run twice is gone: it was removed meanwhile\n", finished.err)
            self.assertIn("removed other: ", finished.out)
            told = self.assert_status(0, self.call("prune", "--yes")).out
            self.assertNotIn("killed", told)
            self.assertTrue(os.path.exists(self.path(".removed-1-twice")))
        self.assertIn("killed left: .removed-1-twice", self.assert_status(0, self.call("prune", "--yes")).out)

    def test_a_removal_that_does_not_end_is_named(self):
        self.run_one("long")
        with self.removed_by_another("long"):
            self.assertIn("is being removed by process ", self.assert_status(2, self.call("rm", "long")).err)


class Prune(KeepingCase):
    def test_says_first_and_removes_nothing_unasked(self):
        self.run_one("one")
        finished = self.call("prune", stdin=subprocess.DEVNULL)
        self.assert_status(2, finished)
        self.assertIn("one", finished.out)
        self.assertIn("1 run to remove", finished.out)
        self.assertIn("--yes", finished.err)
        self.assert_status(0, self.call("prune", "--dry-run"))
        self.assertEqual(["one"], os.listdir(self.storage))
        self.assertIn("removed 1 run: ", self.assert_status(0, self.call("prune", "--yes")).out)
        self.assertEqual([], os.listdir(self.storage))

    def test_what_another_removes_meanwhile(self):
        self.run_one("mine")
        self.run_one("theirs")
        terminal, stdin = os.openpty()
        prune = self.start("prune", "--storage-path", self.storage, stdin=stdin)
        os.close(stdin)
        self.wait_for(lambda: prune.stderr.read(1) == "[", "the question", prune)
        self.assert_status(0, self.call("rm", "theirs"))
        os.write(terminal, b"y\n")
        self.assertIn("removed 1 run: ", self.assert_status(0, self.finish(prune)).out)
        os.close(terminal)
        self.assertEqual([], os.listdir(self.storage))

    def test_two_at_once(self):
        """Each run is removed by one of them, and neither has anything to complain of."""
        self.run_one("run-0")
        for i in range(1, 60):
            shutil.copytree(self.path("run-0"), self.path(f"run-{i}"))
        both = [self.start("prune", "--yes", "--storage-path", self.storage) for _ in range(2)]
        finished = [self.assert_status(0, self.finish(prune)) for prune in both]
        for one in finished:
            self.assertEqual("", one.err)
            self.assertNotIn("killed", one.out)
        self.assertEqual(60, sum(int(n) for one in finished for n in re.findall("removed ([0-9]+) run", one.out)))
        self.assertEqual([], os.listdir(self.storage))

    def test_what_another_removes_at_the_same_time(self):
        self.run_one("twice")
        with self.removed_by_another("twice"):
            prune = self.start("prune", "--yes", "--storage-path", self.storage)
            self.until_it_waits(prune)
            os.rename(self.path("twice"), self.path(".removed-1-twice"))
            self.assertEqual("", self.assert_status(0, self.finish(prune)).err)

    def test_the_run_of_a_controller_that_is_on_its_way_out(self):
        with self.held_on("killed"):
            prune = self.start("prune", "--yes", "--storage-path", self.storage)
            self.until_it_waits(prune)
        self.assertIn("removed 1 run: ", self.assert_status(0, self.finish(prune)).out)
        self.assertEqual([], os.listdir(self.storage))

    def test_what_failed_is_kept_when_asked(self):
        self.run_one("good")
        self.run_one("bad", "exit 3", status=3)
        self.assert_status(0, self.call("prune", "--yes", "--keep-failed"))
        self.assertEqual(["bad"], os.listdir(self.storage))

    def test_what_is_younger_is_kept(self):
        self.run_one("young")
        self.assertIn("0 runs to remove", self.assert_status(0, self.call("prune", "--yes", "--older-than", "30d")).out)
        self.assertEqual(["young"], os.listdir(self.storage))

    def test_a_removal_that_was_killed_is_finished(self):
        mine = [".removed-notes", ".removed-1", ".removed-1x-y", ".removed-", ".removed"]  # nobody but the user gives such names
        for name in (*mine, ".removed-1-x"):
            os.makedirs(self.path(name, "logs"))
        told = self.assert_status(0, self.call("prune", "--yes")).out
        self.assertIn("removed what a removal that was killed left: .removed-1-x\n", told)
        self.assertEqual(sorted(mine), sorted(os.listdir(self.storage)))


    def test_many_at_once_past_what_cannot_be_removed(self):
        """40 runs in several threads: one goes on, one was left locked by a killed controller, one cannot be locked, and one is
        a link."""
        self.run_one("run-0")
        for i in range(1, 40):
            shutil.copytree(self.path("run-0"), self.path(f"run-{i}"))
        for name in os.listdir(self.storage):
            for i in range(20):
                open(self.path(name, "logs", f"file-{i}"), "w").close()
        self.start_one("live")
        open(self.path("run-7", "run.lock"), "w").close()
        os.mkdir(self.path("run-8", "run.lock"))
        os.rename(self.path("run-9"), os.path.join(self.place, "elsewhere"))
        os.symlink(os.path.join(self.place, "elsewhere"), self.path("run-9"))
        finished = self.assert_status(2, self.call("prune", "--yes"))
        self.assertIn("40 runs to remove", finished.out)
        self.assertIn("removed 38 runs: ", finished.out)
        self.assertIn("run-9 is a link", finished.err)
        self.assertIn("cannot lock the run: " + self.path("run-8", "run.lock"), finished.err)
        self.assertEqual(["live", "run-8", "run-9"], sorted(os.listdir(self.storage)))
        self.assertTrue(os.path.exists(os.path.join(self.place, "elsewhere", "run.db")))
        self.assertIn("running", self.call("status", "live").out)


@unittest.skipUnless(os.getuid() == 0, "only root can become another user")
class SeveralUsers(KeepingCase):
    """A storage path where all may make runs, each their own."""

    def test_others_runs_are_theirs(self):
        command = self.command_for_all()
        os.makedirs(self.storage)
        os.chmod(self.storage, 0o2777)

        def as_other(name, *words):
            return self.trainyard(name, "--storage-path", self.storage, *words, command=command, user=65534, group=65534, extra_groups=[])

        self.run_one("mine")
        self.start_one("live")
        os.makedirs(self.path(".removed-1-mine", "logs"))
        self.assert_status(0, as_other("run", "--name", "theirs", "--", "true"))
        for name in "stop", "rm":
            self.assertIn("a process of another user, uid 0, drives it", self.assert_status(2, as_other(name, "live")).err)
        told = self.assert_status(2, as_other("stacks", "live")).err
        self.assertIn("belongs to user 0, and only that user can save its stacks\n", told)
        told = self.assert_status(0, as_other("prune", "--yes")).out
        self.assertIn("1 run to remove", told)
        self.assertIn("; 1 kept, as this user may not remove it\n", told)
        self.assertIn("removed 1 run: ", told)
        self.assertNotIn(".removed-1-mine", told)
        self.assertEqual([".removed-1-mine", "live", "mine"], sorted(os.listdir(self.storage)))
        self.assertIn("running", self.call("status", "live").out)
        os.chmod(self.storage, 0o555)
        self.assertIn("0 runs to remove", self.assert_status(0, as_other("prune", "--yes")).out)

    def test_a_run_that_others_may_write_to_is_its_owners(self):
        """A storage path of a group: whoever may rename a run, and could remove a part of it, is refused, and the run stays whole."""
        command = self.command_for_all()
        self.run_one("mine")
        for directory in self.storage, self.path("mine"):
            os.chmod(directory, 0o2777)
        before = sorted(os.listdir(self.path("mine")))

        def as_other(*words):
            return self.trainyard(*words, "--storage-path", self.storage, command=command, user=65534, group=65534, extra_groups=[])

        error = self.assert_status(2, as_other("rm", "mine", "--force")).err
        self.assertIn("belongs to root (uid 0), mode 2777: only its owner or root can remove it", error)
        self.assertIn("; 1 kept, as this user may not remove it\n", self.assert_status(0, as_other("prune", "--yes")).out)
        self.assertEqual(["mine"], os.listdir(self.storage))
        self.assertEqual(before, sorted(os.listdir(self.path("mine"))))
        self.assert_status(0, self.call("rm", "mine", "--force"))


class Storage(KeepingCase):
    def test_the_environment_names_another_place_for_runs(self):
        place = os.path.join(self.place, "site")
        env = {"TRAINYARD_STORAGE": place}
        self.assert_status(0, self.trainyard("run", "--name", "here", "--", "true", env=env))
        self.assertTrue(os.path.exists(os.path.join(place, "here", "run.db")))
        self.assertIn("here", self.assert_status(0, self.trainyard("status", env=env)).out)

    def test_other_file_systems_are_refused_and_nothing_is_made(self):
        for words in ["run", "--storage-path", "s3://bucket/runs", "--", "true"], ["status", "--storage-path", "s3://bucket/runs"]:
            error = self.assert_status(2, self.trainyard(*words)).err
            self.assertIn("s3://bucket/runs: must be a directory", error)
        config = os.path.join(self.place, "c.yaml")
        with open(config, "w") as file:
            file.write("run_config: {storage_path: 's3://b/r'}\n")
        for words in ["run", "--config", config, "--", "true"], ["plan", "--config", config]:
            error = self.assert_status(2, self.trainyard(*words)).err
            self.assertIn('c.yaml:1:28: storage_path: "s3://b/r": must be a directory', error)
        self.assertEqual([], [name for name in os.listdir(self.place) if ":" in name])

    def test_the_address_of_a_directory_is_its_path(self):
        for words in ["--storage-path", "file://" + self.storage], []:
            env = {"TRAINYARD_STORAGE": "file://" + self.storage}
            self.assert_status(0, self.trainyard("run", *words, "--name", "run%d" % len(words), "--", "true", env=env))
        self.assertIn("run2", self.assert_status(0, self.trainyard("status", "--storage-path", "file://" + self.storage)).out)
        self.assertEqual(["run0", "run2"], sorted(os.listdir(self.storage)))


class Disk(KeepingCase):
    def test_status_tells_what_lies_on_disk(self):
        self.run_one("big", "head -c 300000 /dev/zero; " + CHECKPOINT)
        self.assertIn("disk ", self.call("status", "big").out)
        disk = self.call("status", "big", "--format", "json").json["disk"]
        self.assertGreaterEqual(disk["logs"], 300000)
        self.assertGreater(disk["checkpoints"], 0)
        self.assertGreaterEqual(disk["bytes"], disk["logs"] + disk["checkpoints"])

    def test_logs_without_a_name_are_those_of_the_latest_run(self):
        self.run_one("z-first", "echo first")
        self.run_one("a-second", "echo second")
        self.assertIn("second", self.assert_status(0, self.call("logs")).out)

    def test_logs_without_any_run_say_where_there_is_none(self):
        self.assertIn(self.storage, self.assert_status(2, self.call("logs")).err)


main()
