"""The programs of examples/, and the shell worker of docs/worker-protocol.md, as a reader would run them."""

import os
import re
import subprocess

import harness

EXAMPLES = os.path.join(harness.BUILD, "examples")
PROTOCOL = os.path.join(harness.HERE, "..", "..", "docs", "worker-protocol.md")


class Examples(harness.Case):
    def example(self, name, *args):
        process = subprocess.run([os.path.join(EXAMPLES, name), *map(str, args)], cwd=self.place, env=self.environment,
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        return harness.Finished(process.returncode, process.stdout, process.stderr, process.args)

    def test_hello_says_ranks(self):
        finished = self.assert_status(0, self.example("hello", 3))
        for rank in range(3):
            self.assertIn("[rank %d] hello from worker %d of 3: local rank %d of 3 on node 0, devices: none" %
                          (rank, rank, rank), finished.out)
        self.assertIn("all 3 workers are done", finished.out)

    def test_hello_without_the_devices_it_asks_for(self):
        finished = self.example("hello", 2, 1000)
        self.assertEqual(3, finished.status, repr(finished))
        self.assertIn("GPU", finished.err)

    def test_digits_learns(self):
        finished = self.assert_status(0, self.example("digits"))
        last = finished.out.splitlines()[-1]
        self.assertTrue(last.startswith("4 workers, 30 epochs:"), repr(finished))
        self.assertGreaterEqual(float(re.search(r"test accuracy ([0-9.]+)%", last).group(1)), 96, last)
        checkpoint = re.search(r"checkpoint: (.*)", last).group(1)
        self.assertEqual((64 * 64 + 64 + 64 * 10 + 10) * 4, os.path.getsize(os.path.join(checkpoint, "network.f32")))
        self.assertEqual(last.split(";")[0], self.example("digits").out.splitlines()[-1].split(";")[0], "not repeatable")

    def test_digits_without_its_data(self):
        finished = self.example("digits", "nowhere.csv")
        self.assertEqual(1, finished.status, repr(finished))
        self.assertIn("nowhere.csv does not hold the 1797 images", finished.err + finished.out)

    def test_resume_goes_on_behind_its_checkpoint(self):
        finished = self.assert_status(0, self.example("resume", "counter", 10, 7))
        self.assertIn("trainyard: nothing to resume under %s: a new run begins\n" % os.path.join(self.place, "trainyard_runs", "counter"),
                      finished.err)
        self.assertIn("attempt 1 begins behind step 0", finished.out)
        self.assertIn("attempt 2 begins behind step 6", finished.out)
        self.assertIn("counted to 10 in 2 attempts", finished.out)
        finished = self.assert_status(0, self.example("resume", "counter", 14))
        self.assertNotIn("nothing to resume", finished.err)
        self.assertIn("begins behind step 10", finished.out)
        self.assertIn("counted to 14", finished.out)

    def test_resume_says_how_it_is_called(self):
        finished = self.example("resume")
        self.assertEqual(2, finished.status)
        self.assertIn("usage: resume", finished.err)

    def test_worker_by_hand_in_a_shell(self):
        with open(PROTOCOL) as file:
            script = self.write("train.sh", re.search(r"```bash\n(.*?)```", file.read(), re.DOTALL).group(1))
        finished = self.assert_status(0, self.run_workers("-n", 2, "--name", "by-hand", "--", "bash", script))
        came = re.findall(r"rank \d came as number (\d)", finished.out)
        self.assertEqual(["1", "2"], sorted(came), repr(finished))
        status = self.trainyard("status", "by-hand", "--storage-path", self.storage)
        self.assertIn("loss 0.6", status.out, repr(status))


if __name__ == "__main__":
    harness.main()
