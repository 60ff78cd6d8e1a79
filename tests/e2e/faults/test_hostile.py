"""X rows of docs/faults.md that no other test shows: names and files that somebody planted."""

import json
import os
import subprocess
import unittest

from place import REPORT, FaultCase, harness, main
from runs import NEVER


class Hostile(FaultCase):
    def test_x2_names_without_end(self):
        """X2: names of runs of 4 KiB are refused; metrics and their names of any language are kept as they are."""
        refused = self.finish(self.shell("true", "--name", "x" * 4096))
        self.assert_usage(refused, "run", "name")
        finished = self.finish(self.shell(REPORT + "'потеря 損失 é'=0.5 " + "k" * 200 + "=1", "--name", "r"))
        self.assert_status(0, finished)
        metrics, = self.rows("SELECT metrics FROM reports")
        self.assertEqual({"потеря 損失 é": 0.5, "k" * 200: 1}, json.loads(metrics[0]))

    def test_x7_planted_where_the_run_is_to_be(self):
        """X7: a file, a link to nowhere, a link to another directory: none becomes a run, and nothing is written through them."""
        os.makedirs(self.storage)
        elsewhere = os.path.join(self.work, "elsewhere")
        os.mkdir(elsewhere)
        for name, plant in (("file", lambda path: open(path, "w").close()), ("nowhere", lambda path: os.symlink("/nonexistent/x", path)),
                            ("link", lambda path: os.symlink(elsewhere, path))):
            with self.subTest(name):
                plant(os.path.join(self.storage, name))
                finished = self.assert_status(2, self.finish(self.shell("true", "--name", name)))
                self.assertIn("exists already", finished.err)
        self.assertEqual([], os.listdir(elsewhere))

    def test_x7_planted_where_a_checkpoint_is_to_be(self):
        """X7: the staging directory is there before, as a link that leads out: nothing is written through it."""
        elsewhere = os.path.join(self.work, "elsewhere")
        os.mkdir(elsewhere)
        script = "mkdir d; echo 1 > d/part; ln -s '%s' \"$TRAINYARD_RUN_PATH/.checkpoint_000001.attempt-1\"; " % elsewhere + \
            REPORT + "step=1 --checkpoint d; echo came to $?; rm -f \"$TRAINYARD_RUN_PATH/.checkpoint_000001.attempt-1\""
        finished = self.finish(self.shell(script, "--name", "r"))
        self.assertIn("came to 1\n", finished.out, repr(finished))
        self.assertEqual([], os.listdir(elsewhere))
        self.assertEqual([], self.committed())

    def sleeping(self):
        """A run that goes on, and its directory."""
        process = self.start_run("--name", "r", "-n", 1, "--grace", "1s", "--", "sleep", NEVER)
        path = os.path.join(self.storage, "r")
        self.wait_for(lambda: os.path.exists(os.path.join(path, "run.lock")) and "running" in self.told("status", "r"), "the run", process)
        return process, path

    def told(self, *words):
        return self.trainyard(*words, "--storage-path", self.storage).out

    @unittest.skipUnless(os.geteuid() == 0, "others can signal their own processes alone")
    def test_a_process_that_is_not_the_owners_is_not_signalled(self):
        """X7: whoever owns run.lock may name any process in it; who stops the run for them ends none but theirs."""
        process, path = self.sleeping()
        os.chown(os.path.join(path, "run.lock"), 65534, -1)
        refused = self.assert_status(2, self.trainyard("stop", "r", "--timeout", "5s", "--storage-path", self.storage))
        self.assertIn("user 65534, names process %d, which is not that user's" % process.pid, refused.err)
        self.assertIsNone(process.poll())
        os.chown(os.path.join(path, "run.lock"), 0, -1)
        with open(os.path.join(path, "run.lock"), "r+") as file:
            lock = json.load(file)
            for pid in (2**32 + process.pid, 2**32, -1, 0):  # numbers that are no process's
                file.seek(0)
                file.truncate()
                file.write(json.dumps(dict(lock, pid=pid)))
                file.flush()
                self.assertNotEqual(0, self.trainyard("stop", "r", "--timeout", "5s", "--storage-path", self.storage).status)
            file.seek(0)
            file.truncate()
            file.write(json.dumps(lock))
        self.assertIsNone(process.poll())
        self.assert_status(0, self.trainyard("stop", "r", "--storage-path", self.storage))
        self.assert_status(130, self.finish(process))
        self.assert_clean()

    @unittest.skipUnless(os.geteuid() == 0, "others cannot give a directory away")
    def test_stacks_are_for_the_owner_to_save(self):
        """X7: the journal of another user says whose stacks are saved, and a link where: neither is obeyed."""
        process, path = self.sleeping()
        elsewhere = os.path.join(self.work, "elsewhere")
        os.mkdir(elsewhere)
        os.rename(os.path.join(path, "logs"), os.path.join(path, "were"))
        os.symlink(elsewhere, os.path.join(path, "logs"))
        os.chown(path, 65534, -1)
        refused = self.assert_status(2, self.trainyard("stacks", "r", "--storage-path", self.storage))
        self.assertIn("belongs to user 65534", refused.err)
        self.assertEqual([], os.listdir(elsewhere))
        os.chown(path, 0, -1)
        os.unlink(os.path.join(path, "logs"))
        os.rename(os.path.join(path, "were"), os.path.join(path, "logs"))
        self.wait_for(lambda: "== process" in self.told("stacks", "r"), "stacks of a worker that has begun", process)
        process.terminate()
        self.assert_status(143, self.finish(process))

    def test_a_link_in_place_of_a_log(self):
        """X7: it may lead to what whoever looks may read, and the run's owner may not."""
        self.assert_status(0, self.finish(self.shell("echo hello", "--name", "r")))
        log = os.path.join(self.storage, "r", "logs", "rank-0.log")
        self.assertIn("hello", self.told("logs", "r"))
        os.unlink(log)
        os.symlink(self.write("work/secret", "precious\n"), log)
        refused = self.trainyard("logs", "r", "--storage-path", self.storage)
        self.assertNotEqual(0, refused.status)
        self.assertNotIn("precious", refused.out)
        self.assertIn("rank-0.log: it is no regular file, but a link", refused.err)

    def test_links_in_the_way_of_what_is_written_beside_a_file(self):
        """X7: a file appears whole under its name; what others planted beside it is not written through."""
        self.assert_status(0, self.finish(self.shell(REPORT + "loss=1", "--name", "r")))
        victim = self.write("work/victim", "precious")
        for words in (["trace", "r", "-o", "out.json"], ["metrics", "r", "-o", "out.csv", "--format", "csv"], ["dashboard", "r", "-o", "out.html"]):
            with self.subTest(words[0]):
                file = words[3]
                script = 'ln -s "$1" %s.part; ln -s "$1" %s.part-$$; shift; exec "$@"' % (file, file)
                done = subprocess.run(["sh", "-c", script, "sh", victim, harness.COMMAND, *words, "--storage-path", self.storage],
                                      env=self.environment, cwd=self.work, capture_output=True, text=True)
                self.assertEqual(0, done.returncode, done.stderr)
                self.assertEqual("precious", self.read("victim"))
                self.assertFalse(os.path.islink(os.path.join(self.work, file)))
                self.assertGreater(os.path.getsize(os.path.join(self.work, file)), 0)


if __name__ == "__main__":
    main()
