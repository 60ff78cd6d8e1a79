"""Collectives among the workers of real runs: they find each other through the run's store, and no mistake hangs."""

import os
import secrets
import signal

import harness
from hosts import Hosts
from runs import held_elsewhere

PROGRAM = os.path.join(harness.BUILD, "tests", "e2e", "collective_program")
LONG = 1000  # seconds: a test that waits for that fails
SHORT = 8  # in which all come but the one that does not


class Collectives(harness.Case):
    def collective(self, n, mode, timeout_s, *args):
        return self.run_workers("-n", n, "--env", "TRAINYARD_COLLECTIVE_TIMEOUT_S=%s" % timeout_s, *args, "--", PROGRAM, mode)

    def test_sums_on_any_number_of_workers(self):
        for n in (1, 2, 3, 16):
            finished = self.assert_status(0, self.collective(n, "sum", LONG))
            total = n * (n + 1) // 2
            self.assertEqual(["[rank %d] sum %d of %d" % (rank, total, total) for rank in range(n)],
                             sorted(finished.out.splitlines(), key=lambda line: int(line[6:line.index("]")])))

    def test_sums_over_logical_nodes(self):
        cluster = self.write("cluster.yaml", "nodes:\n  - name: n[1-4]\n    resources: {CPU: 2}\n")
        finished = self.assert_status(0, self.collective(8, "sum", LONG, "--cluster", cluster))
        self.assertEqual(8, finished.out.count("sum 36 of 36"))
        self.assert_rings(8, self.collective(8, "ring", LONG, "--cluster", cluster))

    def test_messages_and_groups(self):
        self.assert_rings(8, self.collective(8, "ring", LONG))

    def assert_rings(self, n, finished):
        self.assert_status(0, finished)
        self.assertEqual(sorted(["[rank %d] ring 0: %d" % (rank, (rank - 1) % n) for rank in range(n)] +
                                ["[rank %d] ring 1: %d" % (rank, (rank - 2) % n) for rank in range(n)] +
                                ["[rank %d] meanwhile %d of %d" % (rank, n, n) for rank in range(n)]),
                         sorted(finished.out.splitlines()))

    def on_two_hosts(self, mode):
        """Four ranks on two hosts, and what the command on each of those came to."""
        hosts = Hosts(self, 2)
        env = {"TRAINYARD_RUN_KEY": secrets.token_hex(32)}
        nodes = [hosts.start_trainyard(host, "run", "--storage-path", self.storage, "--nnodes", "2", "--node-rank", rank, "--rendezvous",
                                       "h1:7000", "-n", "4", "--num-cpus", "2", "--env", "TRAINYARD_COLLECTIVE_TIMEOUT_S=%s" % LONG, "--",
                                       PROGRAM, mode, env=env)
                 for rank, host in enumerate(("h1", "h2"))]
        return [self.finish(node) for node in nodes]

    def test_messages_and_groups_between_hosts(self):
        first, second = self.on_two_hosts("ring")
        self.assert_rings(4, first)
        self.assert_status(0, second)

    def test_killed_rank_between_hosts(self):
        first, second = self.on_two_hosts("orphan")
        self.assertIn("rank 3 was killed by signal 9", first.err)
        for finished in (first, second):
            self.assert_status(128 + signal.SIGKILL, finished)

    def test_killed_rank_is_no_hang_and_leaves_no_memory(self):
        before = set(os.listdir("/dev/shm"))
        finished = self.collective(4, "lose", LONG)
        self.assert_status(137, finished)
        self.assertIn("rank 1 was killed by signal 9", finished.err)

        def left():
            new = {name for name in set(os.listdir("/dev/shm")) - before if "trainyard" in name}
            return new - held_elsewhere(new)

        self.wait_for(lambda: not left(), "the end of what other tests have in memory")

    def test_mismatch_names_rank_and_calls(self):
        finished = self.collective(4, "mismatch", LONG)
        self.assert_status(1, finished)
        self.assertIn("TY_EMISMATCH", finished.out)
        self.assertIn("rank 1", finished.out)
        self.assertIn("all_reduce(count 3, float64, sum)", finished.out)
        self.assertIn("all_reduce(count 4, float64, sum)", finished.out)

    def test_late_rank_is_named(self):
        finished = self.collective(4, "late", SHORT)
        self.assert_status(1, finished)
        self.assertIn("TY_ETIMEOUT", finished.out)
        self.assertIn("rank 1 did not come", finished.out)
        self.assertIn("barrier()", finished.out)

    def test_rank_that_leaves_is_no_hang(self):
        finished = self.collective(3, "leave", LONG)
        self.assert_status(1, finished)
        self.assertIn("TY_ECOMM", finished.out)

    def test_absent_rank_is_named_at_the_rendezvous(self):
        finished = self.collective(3, "absent", SHORT)
        self.assert_status(1, finished)
        self.assertIn("TY_ETIMEOUT", finished.out)
        self.assertIn("rank 1 did not come", finished.out)


if __name__ == "__main__":
    harness.main()
