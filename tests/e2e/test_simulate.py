"""`trainyard simulate`: goodput on a virtual cluster, beside what arithmetic expects."""

from harness import Case, main

USUAL = {"--nodes": "1000", "--mtbf": "1000d", "--checkpoint-every": "1h", "--checkpoint-cost": "1m", "--restart-cost": "5m"}


class Simulate(Case):
    def simulate(self, *more, **changes):
        options = dict(USUAL)
        options.update({"--" + name.replace("_", "-"): value for name, value in changes.items()})
        words = [word for name, value in options.items() if value is not None for word in (name, value)]
        return self.trainyard("simulate", *words, *more)

    def data(self, **changes):
        return self.assert_status(0, self.simulate("--format", "json", **changes)).json

    def test_goodput_is_what_arithmetic_expects(self):
        data = self.data(nodes="20", mtbf="20d", days="2000")  # two thousand failures
        expected = (1 - 1000 / 1000 * (5 / 1440 + 60 / 1440 / 2)) / (1 + 1 / 60)
        self.assertAlmostEqual(expected, data["expected"], 5)
        self.assertLess(abs(data["goodput"] / expected - 1), 0.01)
        for trial in data["trials"]:
            self.assertLess(abs(trial["goodput"] / trial["expected"] - 1), 0.01)

    def test_the_parts_are_the_whole(self):
        data = self.data()
        parts = data["useful_s"] + data["lost_s"] + data["checkpointing_s"] + data["restarting_s"]
        self.assertAlmostEqual(30 * 86400, parts, 1)
        self.assertEqual(30 * 86400, data["length_s"])
        self.assertAlmostEqual(data["useful_s"] / parts, data["goodput"], 5)
        self.assertEqual(data["failures"] + 1, data["attempts"])

    def test_the_best_interval(self):
        data = self.data()
        best = data["best_checkpoint_every_s"]
        self.assertTrue(3000 < best < 3300, best)  # a failure a day, a minute each: about sqrt(2 * 60 * 86400)
        asked, half, top, double = data["trials"]
        for factor, trial in ((0.5, half), (1, top), (2, double), (3600 / best, asked)):
            self.assertAlmostEqual(best * factor, trial["checkpoint_every_s"], 2)
        self.assertGreater(top["goodput"], half["goodput"])
        self.assertGreater(top["goodput"], double["goodput"])

    def test_a_seed_gives_the_same_answer(self):
        self.assertEqual(self.data(seed="5"), self.data(seed="5"))
        self.assertNotEqual(self.data(seed="5")["useful_s"], self.data(seed="6")["useful_s"])

    def test_ten_thousand_nodes_for_a_month(self):
        data = self.data(nodes="10000")
        self.assertEqual(10000, data["nodes"])
        self.assertTrue(250 < data["failures"] < 350, data)

    def test_workers_make_no_difference(self):
        self.assertEqual(self.data(nodes="50", mtbf="50d")["goodput"],
                         self.data(nodes="50", mtbf="50d", workers_per_node="8")["goodput"])

    def test_text(self):
        finished = self.assert_status(0, self.simulate())
        self.assertEqual("", finished.err)
        for word in ("goodput", "lost work", "checkpoints", "restarts", "attempts:", "best by arithmetic", "asked for"):
            self.assertIn(word, finished.out)

    def test_a_node_that_fails_once_in_a_century(self):
        data = self.data(nodes="1", mtbf="36500d", days="36500", checkpoint_every="30d", checkpoint_cost="1h")
        for trial in data["trials"]:
            self.assertLess(abs(trial["goodput"] / trial["expected"] - 1), 0.05, trial)

    def test_what_costs_nothing(self):
        data = self.data(checkpoint_cost="0", restart_cost="0")
        self.assertEqual(0, data["checkpointing_s"])
        self.assertGreater(data["goodput"], 0.95)

    def test_a_cluster_on_which_nothing_can_be_trained(self):
        data = self.data(nodes="5", mtbf="5m", days="1")
        self.assertLess(data["goodput"], 0.01)
        self.assertLess(data["expected"], 0)
        self.assertIn("-", self.assert_status(0, self.simulate(nodes="5", mtbf="5m", days="1")).out)

    def test_what_is_refused(self):
        for changes, words in (
            ({"nodes": None}, ("--nodes", "needed")), ({"mtbf": None}, ("--mtbf", "needed")),
            ({"restart_cost": None}, ("--restart-cost", "needed")),
            ({"nodes": "0"}, ("--nodes 0", "from 1 to 1000000")), ({"nodes": "1e3"}, ("whole number",)),
            ({"mtbf": "0"}, ("--mtbf", "at least a second")), ({"mtbf": "often"}, ("--mtbf often", "duration")),
            ({"checkpoint_every": "0"}, ("--checkpoint-every", "at least a second")),
            ({"checkpoint_cost": "-1s"}, ("--checkpoint-cost", "duration")), ({"days": "0"}, ("--days", "above 0")),
            ({"days": "nan"}, ("--days",)), ({"days": "1e-30"}, ("--days 1e-30", "at least a second")), ({"seed": "-1"}, ("--seed", "whole number")),
            ({"workers_per_node": "0"}, ("--workers-per-node", "from 1")),
            ({"mtbf": "1s", "nodes": "100000"}, ("--mtbf", "too many")),
            ({"checkpoint_every": "1s", "days": "36500"}, ("--checkpoint-every", "too many")),
            ({"nodes": "1000000", "workers_per_node": "8"}, ("--workers-per-node", "at most")),
        ):
            with self.subTest(changes):
                self.assert_usage(self.simulate(**changes), "simulate", *words)
        self.assert_usage(self.simulate("more"), "simulate", "unexpected")


if __name__ == "__main__":
    main()
