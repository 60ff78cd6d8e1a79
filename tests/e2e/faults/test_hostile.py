"""X rows of docs/faults.md that no other test shows: names and files that somebody planted."""

import json
import os

from place import REPORT, FaultCase, main


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


if __name__ == "__main__":
    main()
