"""Collectives among the workers of real runs: they find each other through the run's store, and no mistake hangs."""

import os

import harness

PROGRAM = os.path.join(harness.BUILD, "tests", "e2e", "collective_program")
LONG = 1000  # seconds: a test that waits for that fails


class Collectives(harness.Case):
    def collective(self, n, mode, timeout_s, *args):
        return self.run_workers("-n", n, "--env", "TRAINYARD_COLLECTIVE_TIMEOUT_S=%s" % timeout_s, *args, "--", PROGRAM, mode)

    def test_sums_on_any_number_of_workers(self):
        for n in (1, 2, 3, 16):
            finished = self.assert_status(0, self.collective(n, "sum", 60))
            total = n * (n + 1) // 2
            self.assertEqual(["[rank %d] sum %d of %d" % (rank, total, total) for rank in range(n)],
                             sorted(finished.out.splitlines(), key=lambda line: int(line[6:line.index("]")])))

    def test_sums_over_logical_nodes(self):
        cluster = self.write("cluster.yaml", "nodes:\n  - name: n[1-4]\n    resources: {CPU: 2}\n")
        finished = self.assert_status(0, self.collective(8, "sum", 60, "--cluster", cluster))
        self.assertEqual(8, finished.out.count("sum 36 of 36"))

    def test_messages_and_groups(self):
        finished = self.assert_status(0, self.collective(8, "ring", 60))
        self.assertEqual(sorted(["[rank %d] ring 0: %d" % (rank, (rank + 7) % 8) for rank in range(8)] +
                                ["[rank %d] ring 1: %d" % (rank, (rank + 6) % 8) for rank in range(8)]),
                         sorted(finished.out.splitlines()))

    def test_killed_rank_is_no_hang_and_leaves_no_memory(self):
        before = set(os.listdir("/dev/shm"))
        finished = self.collective(4, "lose", LONG)
        self.assert_status(137, finished)
        self.assertIn("rank 1 was killed by signal 9", finished.err)
        self.assertEqual([], [name for name in set(os.listdir("/dev/shm")) - before if "trainyard" in name])

    def test_mismatch_names_rank_and_calls(self):
        finished = self.collective(4, "mismatch", LONG)
        self.assert_status(1, finished)
        self.assertIn("TY_EMISMATCH", finished.out)
        self.assertIn("rank 1", finished.out)
        self.assertIn("all_reduce(count 3, float64, sum)", finished.out)
        self.assertIn("all_reduce(count 4, float64, sum)", finished.out)

    def test_late_rank_is_named(self):
        finished = self.collective(4, "late", 1)
        self.assert_status(1, finished)
        self.assertIn("TY_ETIMEOUT", finished.out)
        self.assertIn("rank 1 did not come", finished.out)
        self.assertIn("barrier()", finished.out)

    def test_rank_that_leaves_is_no_hang(self):
        finished = self.collective(3, "leave", LONG)
        self.assert_status(1, finished)
        self.assertIn("TY_ECOMM", finished.out)

    def test_absent_rank_is_named_at_the_rendezvous(self):
        finished = self.collective(3, "absent", 1)
        self.assert_status(1, finished)
        self.assertIn("TY_ETIMEOUT", finished.out)
        self.assertIn("rank 1 did not come", finished.out)


if __name__ == "__main__":
    harness.main()
