"""Elastic runs: they go on with fewer workers when a node or a device goes, and grow when one comes, from the last checkpoint on."""

import contextlib
import json
import os
import signal
import sqlite3

from harness import HERE
from runs import PYTHON, RunCase, children, main, try_kill

# Counts steps together with the other ranks, with a checkpoint of each; goes on from the last one. Ends when told to by a file.
TRAIN = r"""
import os, signal, sys, time
sys.path.insert(0, %r)
from worker_client import Channel, RANK, SIZE
here = Channel()
path = os.environ.get("TRAINYARD_CHECKPOINT")
step = int(open(os.path.join(path, "step")).read()) if path else 0
if RANK == 0:
    with open("attempts", "a") as file:
        file.write("%%s %%d %%s %%d\n" %% (os.environ["TRAINYARD_ATTEMPT"], SIZE, os.environ["TORCHELASTIC_RESTART_COUNT"], step))
open("ready.%%s.%%d" %% (os.environ["TRAINYARD_ATTEMPT"], RANK), "w").close()
while here.gather("go.%%d" %% step, b"end" if os.path.exists("done") else b"")[0] != b"end":
    step += 1
    if RANK == 0:
        assert here.checkpoint({"step": str(step)}, step=step).startswith("ok "), step
    else:
        here.report(step=step)
    time.sleep(0.01)
""" % HERE


class ElasticCase(RunCase):
    INTERVAL = 2  # s: an attempt lasts so long at least, and has begun to train by then

    def config(self, least, most, **more):
        return self.write("work/scaling.json", json.dumps({"num_workers": [least, most],
                                                           "elastic_resize_monitor_interval_s": self.INTERVAL, **more}))

    def cluster(self, nodes):
        """A cluster file of these nodes with so many CPUs each, put in place at once."""
        text = json.dumps({"nodes": [{"name": name, "resources": {"CPU": cpus}} for name, cpus in nodes.items()]})
        os.replace(self.write("work/cluster.new", text), os.path.join(self.work, "cluster.json"))
        return os.path.join(self.work, "cluster.json")

    def train(self, *args, name="run"):
        program = self.write("work/train.py", TRAIN)
        return self.start_run("--name", name, *args, "--", PYTHON, "-S", program)

    def elastic(self, nodes, least, most, *args):
        return self.train("--config", self.config(least, most), "--cluster", self.cluster(nodes), *args)

    def attempts(self):
        """(attempt, workers, restarts, first step) of each, as its rank 0 saw them."""
        if not os.path.exists(os.path.join(self.work, "attempts")):
            return []
        return [tuple(map(int, line.split())) for line in self.read("attempts").splitlines()]

    def until(self, process, *sizes):
        """Attempts of these sizes have begun to train."""
        self.wait_for(lambda: [one[1] for one in self.attempts()] == list(sizes), "attempts of %s workers" % (sizes,), process)
        attempt = len(sizes)
        self.wait_for_files(process, *("ready.%d.%d" % (attempt, rank) for rank in range(sizes[-1])))

    def step(self):
        metrics = self.status("run")["metrics"]
        return metrics["step"] if metrics else 0

    def trains(self, process):
        """Some steps have been made."""
        before = self.step()
        self.wait_for(lambda: self.step() > before + 2, "steps", process)

    def end(self, process, status=0):
        self.write("work/done", "")
        return self.assert_status(status, self.finish(process))

    def events(self, kind):
        path = "file:%s?mode=ro" % os.path.join(self.storage, "run", "run.db")
        with contextlib.closing(sqlite3.connect(path, uri=True)) as database:
            rows = database.execute("SELECT attempt, data FROM events WHERE kind = ? ORDER BY sequence", (kind,)).fetchall()
        return [(attempt, json.loads(data)) for attempt, data in rows]

    def assert_went_on(self):
        """Each attempt began where a checkpoint of the one before it stood, and knew which it was."""
        steps = [one[3] for one in self.attempts()]
        self.assertEqual(sorted(steps), steps)
        self.assertEqual(0, steps[0])
        self.assertTrue(all(step > 0 for step in steps[1:]), steps)
        for number, (attempt, _, restarts, _) in enumerate(self.attempts(), 1):
            self.assertEqual((number, number - 1), (attempt, restarts))


class Nodes(ElasticCase):
    def test_a_lost_node_is_done_without_until_it_is_back(self):
        process = self.elastic({"n01": 2, "n02": 2}, 2, 4, "--max-failures", 1)
        self.until(process, 4)
        self.trains(process)
        os.kill(self.agent_of("n01", self.agents(process)), signal.SIGKILL)
        self.until(process, 4, 2, 4)  # the agent could be started again
        self.trains(process)
        finished = self.end(process)
        self.assert_went_on()
        self.assertRegex(finished.err, r"resize: 2 -> 4 workers; [\d.]+ s of work and \d+ reports? since .* lost: attempt 3 begins")
        self.assertIn("attempt 2 has 2 workers, that before had 4", finished.err)
        reasons = [data["reason"] for _, data in self.events("attempt")]
        self.assertEqual("start", reasons[0])
        self.assertRegex(reasons[1], r"^the agent of node n01 was killed by signal 9 \(SIGKILL\); resize: 4 -> 2 workers$")
        self.assertEqual("resize: 2 -> 4 workers", reasons[2])
        self.assertEqual([1, 2, 3], [attempt for attempt, _ in self.events("attempt")])
        self.assertEqual([4, 2, 4], [len(data["ranks"]) for _, data in self.events("plan")])
        end = self.events("attempt_end")[1][1]
        self.assertEqual("resized", end["outcome"])
        self.assertGreaterEqual(end["lost_seconds"], 0)
        self.assertLessEqual(end["lost_reports"], 2)  # it waited for a checkpoint
        self.assertEqual([{"attempt": 1, "workers": 4}, {"attempt": 2, "workers": 2}, {"attempt": 3, "workers": 4}],
                         self.status("run")["sizes"])
        self.assert_clean()

    def test_nodes_that_come_and_go(self):
        process = self.elastic({"n01": 1}, 1, 3)
        self.until(process, 1)
        self.trains(process)
        self.cluster({"n01": 1, "n02": 1})
        self.until(process, 1, 2)
        self.cluster({"n00": 1, "n02": 1, "n03": 1})
        self.until(process, 1, 2, 3)
        self.trains(process)
        self.cluster({"n03": 1})
        self.until(process, 1, 2, 3, 1)
        self.trains(process)
        finished = self.end(process)
        self.assert_went_on()
        self.assertNotIn("first cause", finished.err)
        self.assert_clean()

    def test_a_worker_is_killed_while_the_run_grows(self):
        """While the new node's agent starts, or the run waits for a checkpoint, or stops: whichever comes first counts."""
        process = self.elastic({"n01": 1}, 1, 2, "--max-failures", 9)
        self.until(process, 1)
        self.trains(process)
        agent, = self.agents(process)
        worker, = children(agent)
        self.cluster({"n01": 1, "n02": 1})
        self.wait_for(lambda: len(self.agents(process)) == 2, "the agent of the new node", process)
        try_kill(worker, signal.SIGKILL)
        self.wait_for(lambda: self.attempts()[-1][1] == 2, "an attempt of 2 workers", process)
        self.trains(process)
        finished = self.end(process)
        self.assert_went_on()
        self.assertNotIn("first cause", finished.err)
        self.assertIn(len(self.attempts()), (2, 3))
        self.assert_clean()

    def test_waits_below_the_least(self):
        process = self.elastic({"n01": 2}, 2, 2, "--max-failures", 1)
        self.until(process, 2)
        self.trains(process)
        self.cluster({"n01": 1})
        os.kill(self.workers(process)[0], signal.SIGKILL)
        self.wait_for(lambda: self.status("run")["waits_for"], "a wait", process)
        self.cluster({"n01": 2})
        self.until(process, 2, 2)
        finished = self.end(process)
        self.assertEqual(1, finished.err.count("waiting for room"), finished.err)
        self.assertEqual(1, len(self.events("wait")))
        self.assert_went_on()
        self.assert_clean()

    def test_a_wait_can_be_interrupted(self):
        process = self.elastic({"n01": 2}, 2, 4, "--max-failures", 1)
        self.until(process, 2)
        self.cluster({"n01": 1})
        os.kill(self.workers(process)[0], signal.SIGKILL)
        self.wait_for(lambda: self.status("run")["waits_for"], "a wait", process)
        process.send_signal(signal.SIGINT)
        self.assert_status(130, self.finish(process))
        self.assert_clean()

    def test_a_fixed_size_stays(self):
        cluster = self.cluster({"n01": 2})
        config = self.write("work/scaling.json", json.dumps({"num_workers": 2, "elastic_resize_monitor_interval_s": 0.1}))
        process = self.train("--config", config, "--cluster", cluster)
        self.until(process, 2)
        self.cluster({"n01": 4})
        self.trains(process)
        self.trains(process)
        self.end(process)
        self.assertEqual(1, len(self.attempts()))

    def test_the_option_says_how_often_it_looks(self):
        """Against what the config says: one run looks when the test is long over, the other never before its time."""
        cluster, config = self.cluster({"n01": 1}), self.config(1, 3)
        rare = self.shell(": > ready.rare; while [ ! -e done ]; do sleep 0.01; done", "--name", "rare", "--config", config,
                          "--cluster", cluster, "--elastic-resize-monitor-interval", "1h")
        self.wait_for_files(rare, "ready.rare")
        self.INTERVAL = 3600
        process = self.elastic({"n01": 1}, 1, 3, "--elastic-resize-monitor-interval", "500ms")
        for n in (1, 2, 3):
            self.cluster({"n%02d" % (node + 1): 1 for node in range(n)})
            self.until(process, *range(1, n + 1))
        self.end(process)
        self.assert_status(0, self.finish(rare))
        took = [one["ended"] - one["began"] for one in self.status("run")["history"]]
        self.assertEqual([True] * 2, [seconds >= 0.49 for seconds in took[:2]], took)
        self.assertEqual([{"attempt": 1, "workers": 1}], self.status("rare")["sizes"])
        self.assert_clean()

    def workers(self, process):
        return [worker for agent in self.agents(process) for worker in children(agent)]


class Devices(ElasticCase):
    GPUS = ("--num-cpus", 64, "--num-gpus", 4)

    def test_grows_when_another_run_lets_go(self):
        other = self.shell("echo $CUDA_VISIBLE_DEVICES > other.devices; : > ready.other; while [ ! -e go.other ]; do sleep 0.01; done",
                           "--name", "other", "-n", 1, "--use-gpu", "--resources", "GPU=2", *self.GPUS)
        self.wait_for_files(other, "ready.other")
        process = self.train("--config", self.config(2, 4, use_gpu=True), *self.GPUS)
        self.until(process, 2)
        self.trains(process)
        third = self.assert_status(3, self.run_workers("--name", "third", "--use-gpu", *self.GPUS, "--no-wait", "--", "true"))
        self.assertIn("run other of", third.err)
        self.write("work/go.other", "")
        self.assert_status(0, self.finish(other))
        self.until(process, 2, 4)
        self.trains(process)
        third = self.assert_status(3, self.run_workers("--name", "third", "--use-gpu", *self.GPUS, "--no-wait", "--", "true"))
        self.assertIn("run run of", third.err)  # what it grew by is claimed
        self.end(process)
        self.assert_went_on()
        devices = [sorted(data["devices"]) for _, data in self.events("plan")]
        self.assertEqual([2, 4], [len(one) for one in devices])
        self.assert_clean()
        self.assert_status(0, self.run_workers("--name", "third", "--use-gpu", *self.GPUS, "--no-wait", "--", "true"))


if __name__ == "__main__":
    main()
