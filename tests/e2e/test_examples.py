"""The programs of examples/, and the shell worker of docs/worker-protocol.md, as a reader would run them."""

import os
import re
import secrets
import shutil
import subprocess

import harness

EXAMPLES = os.path.join(harness.BUILD, "examples")
PROTOCOL = os.path.join(harness.HERE, "..", "..", "docs", "worker-protocol.md")


class Examples(harness.Case):
    def example(self, name, *args):
        process = subprocess.run([os.path.join(EXAMPLES, name), *map(str, args)], cwd=self.place, env=self.environment,
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180)
        return harness.Finished(process.returncode, process.stdout, process.stderr, process.args)

    def test_hello_says_ranks(self):
        finished = self.assert_status(0, self.example("hello", 3))
        for rank in range(3):
            self.assertIn("[rank %d] hello from worker %d of 3: local rank %d of 3 on node 0, devices: none" %
                          (rank, rank, rank), finished.out)
        self.assertIn("all 3 workers are done", finished.out)

    def on_each_of_two(self, name, *args, **variables):
        """The same program on each of two nodes of one CPU each, which meet as the variables say."""
        one_cpu = [shutil.which("taskset"), "-c", str(min(os.sched_getaffinity(0)))]
        env = {**self.environment, "TRAINYARD_NNODES": "2", "TRAINYARD_RENDEZVOUS": "127.0.0.1:%d" % harness.free_port(),
               "TRAINYARD_RUN_KEY": secrets.token_hex(32), **variables}
        nodes = [subprocess.Popen([*one_cpu, os.path.join(EXAMPLES, name), *map(str, args)], cwd=self.place, env={**env, "TRAINYARD_NODE_RANK": str(rank)},
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
        return [self.finish(node) for node in nodes]

    def test_hello_on_two_nodes(self):
        first, second = self.on_each_of_two("hello", 8)
        self.assert_status(0, first)
        for rank in range(8):
            self.assertIn("hello from worker %d of 8: local rank %d of 4 on node %d, devices: none" % (rank, rank % 4, rank // 4), first.out)
        self.assertIn("all 8 workers are done", first.out)
        self.assertEqual((0, "", []), (second.status, second.out, self.lines_of(second)))

    def test_a_node_ends_as_the_run_of_the_program_on_another_does(self):
        first, second = self.on_each_of_two("digits", os.path.join(self.place, "nowhere.csv"), 8)
        self.assertEqual((1, 1), (first.status, second.status), repr(first))
        self.assertIn("nowhere.csv does not hold the 1797 images", first.err + first.out)

    def test_variables_that_do_not_belong_together(self):
        for variables, words in (({"TRAINYARD_NNODES": "2"}, ("belong together", "TRAINYARD_NODE_RANK is missing")),
                                 ({"TRAINYARD_NODE_RANK": "x"}, ("TRAINYARD_NODE_RANK: \"x\" is not the rank of a node",)),
                                 ({"TRAINYARD_NNODES": "2", "TRAINYARD_NODE_RANK": "2", "TRAINYARD_RENDEZVOUS": "127.0.0.1:1"}, ("of the environment", "0 to 1")),
                                 ({"TRAINYARD_HOSTS": "a:x"}, ("TRAINYARD_HOSTS: ",)),
                                 ({"TRAINYARD_HOSTS": "a", "TRAINYARD_HOSTFILE": "b"}, ("TRAINYARD_HOSTS and TRAINYARD_HOSTFILE", "one of the two"))):
            with self.subTest(variables):
                self.environment = self.environment_with(variables)
                finished = self.example("hello")
                self.environment = self.environment_with(dict.fromkeys(variables))
                self.assertEqual((2, 1), (finished.status, len(finished.err.splitlines())), repr(finished))
                for word in words:
                    self.assertIn(word, finished.err)

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
