"""Checkpoints with real processes: how they are handed over, which are kept, what is left when storage fails or somebody dies."""
import json
import os
import shutil
import signal
import unittest

import runs
from harness import BUILD

PROGRAM = os.path.join(BUILD, "tests", "e2e", "report_program")


class Checkpoints(runs.RunCase):
    def setUp(self):
        super().setUp()
        self.files = os.path.join(self.place, "work", "files")
        os.makedirs(self.files)

    def run_workers(self, *arguments):
        return self.trainyard("run", "--storage-path", self.storage, *arguments)

    def report(self, mode, steps, *more, n=2, options=(), name="r", status=0):
        arguments = ("--name", name, "-n", n, "--num-cpus", 64, *options, "--", PROGRAM, mode, steps, self.files, *more)
        return self.assert_status(status, self.run_workers(*arguments))

    def listed(self, name="r"):
        return self.assert_status(0, self.trainyard("checkpoints", "list", name, "--storage-path", self.storage, "--format", "json")).json

    def verify(self, what="r", status=0):
        return self.assert_status(status, self.trainyard("checkpoints", "verify", what, "--storage-path", self.storage))

    def names(self, name="r"):
        kept = [entry["name"] for entry in self.listed(name)]
        there = sorted(e for e in os.listdir(os.path.join(self.storage, name)) if e not in ("logs", "run.db", "usage.db"))
        self.assertEqual(sorted(kept), there)
        return kept

    def expect_whole(self, steps, n=2, name="r"):
        for number in steps:
            path = os.path.join(self.storage, name, "checkpoint_%06d" % number)
            for rank in range(n):
                with open(os.path.join(path, "part-%d" % rank)) as file:
                    self.assertEqual("rank %d step %d\n" % (rank, number), file.read())

    # -- modes

    def test_every_mode_commits_every_step(self):
        for mode in ("sync", "async", "keep", "give"):
            with self.subTest(mode=mode):
                finished = self.report(mode, 12, name=mode)
                self.assertEqual(["checkpoint_%06d" % n for n in range(1, 13)], self.names(mode))
                self.expect_whole(range(1, 13), name=mode)
                self.verify(mode)
                self.assertIn("[rank 0] at the end checkpoint_000012\n", finished.out)
                given = mode in ("async", "give")
                self.assertEqual([] if given else 24, os.listdir(self.files) if given else len(os.listdir(self.files)))

    def test_no_upload_is_recorded_as_it_is(self):
        self.report("stay", 2)
        self.assertEqual([self.files] * 2, [entry["path"] for entry in self.listed()])
        self.assertIn(self.files + ": outside", self.verify().out)

    def test_upload_functions(self):
        self.report("upload", 1, "s3://bucket/model")
        self.assertEqual("s3://bucket/model", self.listed()[0]["path"])
        self.report("upload", 2, "none", name="failed")
        self.assertEqual([], self.listed("failed"))

    def test_names(self):
        self.report("name", 2)
        self.assertEqual(["epoch 1", "epoch 2"], self.names())
        shutil.rmtree(os.path.join(self.storage, "r"))
        for name in ("a/b", ".hidden", "x" * 201, "", "a\nb"):
            finished = self.report("name", 1, name, status=7)
            self.assertIn("not usable", finished.out)
            shutil.rmtree(os.path.join(self.storage, "r"))
        self.report("name", 2, "best")  # the second adds to the first
        self.assertEqual(["best", "best"], [entry["name"] for entry in self.listed()])
        self.verify()
        theirs = os.path.join(self.storage, "r", "theirs")
        os.makedirs(theirs)
        finished = self.report("name", 1, "theirs", options=("--resume",), status=7)
        self.assertIn("exists already", finished.out)
        self.assertEqual([], os.listdir(theirs))
        shutil.rmtree(os.path.join(self.storage, "r"))

    # -- which are kept

    def test_the_newest_are_kept(self):
        self.report("sync", 6, options=("--keep-checkpoints", 2))
        self.assertEqual(["checkpoint_000005", "checkpoint_000006"], self.names())

    def test_the_best_are_kept_and_the_latest(self):
        scores = {step: step * 37 % 11 for step in range(1, 9)}
        for order, reverse in (("max", True), ("min", False)):
            with self.subTest(order=order):
                self.report("async", 8, name=order, options=("--keep-checkpoints", 2, "--checkpoint-score-attribute", "score",
                                                            "--checkpoint-score-order", order))
                best = sorted(scores, key=lambda step: (scores[step], step), reverse=reverse)[:2]
                self.assertEqual(sorted({*best, 8}), [entry["number"] for entry in self.listed(order)])
                self.names(order)
                self.verify(order)
                self.expect_ranked(order, scores, best[0])

    def expect_ranked(self, name, scores, best):
        """The list tells the score of each, which is best and which is the latest."""
        listed = self.listed(name)
        self.assertEqual([scores[entry["number"]] for entry in listed], [entry["score"] for entry in listed])
        self.assertEqual([best], [entry["number"] for entry in listed if entry["best"]])
        self.assertEqual([8], [entry["number"] for entry in listed if entry["latest"]])
        head, *rows = self.assert_status(0, self.trainyard("checkpoints", "list", name, "--storage-path", self.storage)).out.splitlines()
        self.assertIn("SCORE: score, %s" % name, head)
        at = head.index("AMONG THESE")
        told = {int(row[11:17]): row[at:].split("  ")[0] for row in rows}
        self.assertEqual({n: ", ".join(["best"] * (n == best) + ["latest"] * (n == 8)) for n in told}, told)
        self.assertEqual([scores[number] for number in told], [int(row[head.index("SCORE"):].split()[0]) for row in rows])

    def test_without_a_score_the_best_is_the_latest(self):
        self.report("sync", 2)
        listed = self.listed()
        self.assertEqual([(False, False), (True, True)], [(entry["best"], entry["latest"]) for entry in listed])
        self.assertFalse(any("score" in entry for entry in listed))
        self.assertNotIn("SCORE", self.trainyard("checkpoints", "list", "r", "--storage-path", self.storage).out)

    # -- verification

    def test_verify_names_the_first_bad_file(self):
        self.report("sync", 2)
        path = os.path.join(self.storage, "r", "checkpoint_000002", "part-1")
        with open(path, "r+") as file:
            file.write("X")
        finished = self.verify(status=1)
        self.assertIn(path, finished.err)
        self.assertIn("checkpoint_000001: ok", finished.out)
        self.verify(os.path.join(self.storage, "r", "checkpoint_000001"))
        self.verify(os.path.dirname(path), status=1)
        os.unlink(path)
        self.assertIn("missing", self.verify(status=1).err)

    def damage(self, how, name="checkpoint_000003"):
        """Does to part-1 of a checkpoint what storage may do."""
        directory = os.path.join(self.storage, "r", name)
        path = os.path.join(directory, "part-1")
        if how == "bit":
            with open(path, "r+b") as file:
                first = file.read(1)
                file.seek(0)
                file.write(bytes([first[0] ^ 1]))
        elif how == "truncated":
            os.truncate(path, 3)
        elif how == "missing":
            os.unlink(path)
        elif how == "manifest":
            os.truncate(os.path.join(directory, ".metadata.json"), 20)
        else:
            shutil.rmtree(directory)
        return directory

    def test_what_is_damaged_is_not_resumed_from(self):
        """The one before it is used, in one line that says why; row and files stay, and are not taken for a good one later."""
        for how in ("bit", "truncated", "missing", "manifest", "directory"):
            with self.subTest(how=how):
                self.report("sync", 3)
                bad = self.damage(how)
                finished = self.report("sync", 1, options=("--resume",))
                self.assertIn("[rank 0] latest checkpoint_000002\n", finished.out)
                told = [line for line in finished.err.splitlines() if "damaged and not used" in line]
                self.assertEqual(1, len(told), finished.err)
                self.assertIn(bad, told[0])
                self.assertIn("the one before it is " + os.path.join(self.storage, "r", "checkpoint_000002"), told[0])
                self.assertEqual([1, 2, 3, 4], [entry["number"] for entry in self.listed()])
                self.assertIn("[rank 0] latest checkpoint_000004\n", self.report("sync", 1, options=("--resume",)).out)
                shutil.rmtree(os.path.join(self.storage, "r"))

    def test_when_all_are_damaged_a_run_begins_anew(self):
        self.report("sync", 2)
        for name in ("checkpoint_000001", "checkpoint_000002"):
            self.damage("bit", name)
        finished = self.report("sync", 1, options=("--resume",))
        self.assertIn("[rank 0] latest none\n", finished.out)
        self.assertIn("there is none before it", finished.err)
        self.assertIn("[rank 0] latest checkpoint_000003\n", self.report("sync", 1, options=("--resume",)).out)

    def test_what_is_damaged_is_not_restarted_from(self):
        """The same between two attempts of one run: here the worker itself spoils it before it dies."""
        script = ("mkdir -p d; [ $TRAINYARD_ATTEMPT = 1 ] || { basename $TRAINYARD_CHECKPOINT; exit 0; }; "
                  "for i in 1 2; do echo $i > d/part; '%s' report step=$i --checkpoint d; done; "
                  "echo 9 > $TRAINYARD_RUN_PATH/checkpoint_000002/part; exit 1" % os.path.join(BUILD, "trainyard"))
        finished = self.assert_status(0, self.run_workers("--name", "r", "-n", 1, "--max-failures", 1, "--", "sh", "-c", script))
        self.assertIn("[rank 0] checkpoint_000001\n", finished.out)
        self.assertIn("checkpoint_000002/part has other content", finished.err)

    def test_wrong_use(self):
        self.report("sync", 1)
        for arguments in (("lists", "r"), ("list",), ("verify", "other"), ("list", self.place)):
            finished = self.assert_status(2, self.trainyard("checkpoints", *arguments, "--storage-path", self.storage))
            self.assertEqual(1, finished.err.count("\n"), finished.err)

    # -- failures

    def test_storage_that_fails(self):
        """A file stands where the ranks' directory is to be: the one before it stays, and the run fails or goes on, as it is told."""
        script = ("mkdir -p d && echo x > d/part && '%s' report step=1 --checkpoint d || exit 1; "
                  "touch \"$TRAINYARD_RUN_PATH/.checkpoint_000002.attempt-1\"; '%s' report step=2 --checkpoint d; echo came to $?; "
                  "'%s' report step=3 --checkpoint d" % ((os.path.join(BUILD, "trainyard"),) * 3))
        for reaction in ("fail", "continue"):
            with self.subTest(reaction=reaction):
                finished = self.run_workers("--name", reaction, "--on-checkpoint-error", reaction, "--", "sh", "-c", script)
                self.assertIn("[rank 0] came to %d\n" % (0 if reaction == "continue" else 1), finished.out)
                os.unlink(os.path.join(self.storage, reaction, ".checkpoint_000002.attempt-1"))
                self.assertEqual(["checkpoint_000001", "checkpoint_000003"], self.names(reaction))
                self.verify(reaction)
                self.assertEqual(reaction == "continue", "the training goes on" in finished.err, finished.err)

    def test_resume_finishes_what_was_begun(self):
        self.report("sync", 3, options=("--keep-checkpoints", 2))
        path = os.path.join(self.storage, "r")
        shutil.copytree(os.path.join(path, "checkpoint_000003"), os.path.join(path, "named"))
        with open(os.path.join(path, "named", ".metadata.json")) as file:
            manifest = json.load(file)
        for number, name in ((1, "checkpoint_000001"), (9, "named"), (2, ".checkpoint_000002.removed"), (4, ".checkpoint_000004.attempt-1")):
            if not os.path.exists(os.path.join(path, name)):
                shutil.copytree(os.path.join(path, "checkpoint_000003"), os.path.join(path, name))
            manifest["trainyard"].update(number=number, name=name, directory=os.stat(os.path.join(path, name)).st_ino)  # as it was made
            with open(os.path.join(path, name, ".metadata.json"), "w") as file:
                json.dump(manifest, file)
        shutil.copytree(os.path.join(path, "checkpoint_000003"), os.path.join(path, "mine"))
        finished = self.report("sync", 1, options=("--resume",))
        self.assertIn("[rank 0] latest checkpoint_000003\n", finished.out)
        told = next(line for line in finished.err.splitlines() if "cut off" in line)
        for name in ("named", ".checkpoint_000002.removed", ".checkpoint_000004.attempt-1"):
            self.assertIn(name, told)
        self.assertEqual({"checkpoint_000002", "checkpoint_000003", "checkpoint_000004", "mine", "logs", "run.db"}, set(os.listdir(path)) - {"usage.db"})
        shutil.rmtree(os.path.join(path, "mine"))
        self.assertEqual([2, 3, 4], [entry["number"] for entry in self.listed()])

    def test_a_killed_worker_goes_on_from_the_latest(self):
        script = ("mkdir -p d$RANK; echo x > d$RANK/p$RANK; [ $TRAINYARD_ATTEMPT = 1 ] || { basename $TRAINYARD_CHECKPOINT; exit 0; }; "
                  "'%s' report step=1 --checkpoint d$RANK; [ $RANK = 0 ] && kill -KILL $$; sleep 600" % os.path.join(BUILD, "trainyard"))
        finished = self.assert_status(0, self.run_workers("--name", "r", "-n", 2, "--num-cpus", 2, "--max-failures", 1, "--", "sh", "-c", script))
        for rank in range(2):
            self.assertIn("[rank %d] checkpoint_000001\n" % rank, finished.out)
        self.verify()

    def test_a_killed_controller_loses_nothing_that_was_committed(self):
        process = self.start("run", "--storage-path", self.storage, "--name", "r", "-n", 2, "--num-cpus", 2, "--keep-checkpoints", 3,
                             "--", PROGRAM, "async", 100000, self.files)
        def came_to(number):  # each is there for a moment alone
            return max((name for name in os.listdir(os.path.join(self.storage, "r")) if name.startswith("checkpoint_")), default="") >= "checkpoint_%06d" % number
        self.wait_for(lambda: os.path.isdir(os.path.join(self.storage, "r")) and came_to(20), "the twentieth", process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
        self.wait_for(lambda: not runs.processes_with(self.place), "the end of all workers")
        self.verify()
        last = self.listed()[-1]["number"]
        shutil.rmtree(self.files)
        os.makedirs(self.files)
        finished = self.report("sync", 2, options=("--resume", "--keep-checkpoints", 3))
        self.assertIn("[rank 0] latest checkpoint_%06d\n" % last, finished.out)
        self.assertEqual(3, len(self.names()))
        self.verify()


if __name__ == "__main__":
    unittest.main()
