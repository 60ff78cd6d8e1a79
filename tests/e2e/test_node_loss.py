"""Logical nodes that are lost, stopped or told to end: the node is named, the others end politely or start again, nothing is left."""

import json
import os
import signal
import time

from runs import NEVER, RunCase, children, main

POLITE = "trap 'echo $RANK > told.$RANK; exit 0' TERM; : > ready.$RANK; while :; do sleep 0.01; done"


class NodeCase(RunCase):
    def nodes(self, n, script, *args, workers=None, name="run", cpus=2):
        """A run on nodes n01, n02, ... with two workers each."""
        self.forget()
        workers = n * cpus if workers is None else workers
        cluster = self.write("work/cluster.json", json.dumps({"nodes": [{"name": "n[01-%02d]" % n, "resources": {"CPU": cpus}}]}))
        process = self.shell(script, "--cluster", cluster, "--name", name, "-n", workers, *args)
        self.ready(process, workers)
        return process

    def agent_of(self, process, node):
        return super().agent_of(node, self.agents(process))

    def told(self):
        return sorted(int(name[5:]) for name in os.listdir(self.work) if name.startswith("told."))


class Losses(NodeCase):
    def test_the_others_end_politely(self):
        process = self.nodes(4, POLITE)
        os.kill(self.agent_of(process, "n03"), signal.SIGKILL)
        finished = self.assert_status(5, self.finish(process))
        self.assertIn("first cause: the agent of node n03 was killed by signal 9 (SIGKILL)", finished.err)
        self.assertIn("ranks 0-3,6-7 stopped when told to", finished.err)
        self.assertEqual([0, 1, 2, 3, 6, 7], self.told())
        self.assert_clean()
        one = self.assert_ended("run", "failed")
        self.assertEqual(5, one["exit_status"])
        self.assertIn("n03", one["cause"])

    def test_how_it_goes_on_is_told(self):
        """The program has not failed: as after an interruption, a line does it."""
        process = self.nodes(2, "[ $TRAINYARD_ATTEMPT = 2 ] && exit; " + POLITE)
        os.kill(self.agent_of(process, "n02"), signal.SIGKILL)
        finished = self.assert_status(5, self.finish(process))
        (line,) = [line.partition("to go on: ")[2] for line in finished.err.splitlines() if "to go on: " in line]
        again = self.finish(self.start("-c", line, command="sh", cwd=self.work))
        self.assertIn("run succeeded in ", self.assert_status(0, again).err)
        self.assert_clean()

    def test_several_at_once(self):
        process = self.nodes(4, POLITE)
        for pid in [self.agent_of(process, node) for node in ("n01", "n02", "n04")]:
            os.kill(pid, signal.SIGKILL)
        self.assertIn("killed by signal 9", self.assert_status(5, self.finish(process)).err)
        self.assert_clean()
        self.assert_ended("run", "failed")

    def test_all_at_once(self):
        process = self.nodes(3, "env -i setsid sleep %s & %s" % (NEVER, POLITE))
        for pid in self.agents(process):
            os.kill(pid, signal.SIGKILL)
        self.assert_status(5, self.finish(process))
        self.assert_clean()

    def test_daemons_of_the_lost_node_and_of_the_others(self):
        process = self.nodes(3, "setsid sleep %s & env -i setsid sleep %s & %s" % (NEVER, NEVER, POLITE), "--grace", "60s")
        os.kill(self.agent_of(process, "n01"), signal.SIGKILL)
        self.assert_status(5, self.finish(process))
        self.assertEqual([2, 3, 4, 5], self.told())
        self.assert_clean()

    def test_another_attempt_has_a_new_agent_there(self):
        script = "[ $TRAINYARD_ATTEMPT = 2 ] && echo again $NODE_RANK && exit 0; " + POLITE
        process = self.nodes(3, script, "--max-failures", "1")
        os.kill(self.agent_of(process, "n02"), signal.SIGKILL)
        finished = self.assert_status(0, self.finish(process))
        self.assertEqual([2, 2, 2], [finished.out.count("again %d" % node) for node in range(3)])
        self.assertIn("n02", finished.err)
        self.assert_clean()
        one = self.assert_ended("run", "succeeded")
        self.assertEqual(2, one["attempts"])

    def test_told_to_end(self):
        process = self.nodes(3, POLITE)
        os.kill(self.agent_of(process, "n02"), signal.SIGTERM)
        finished = self.assert_status(143, self.finish(process))
        self.assertIn("was told to end, on node n02", finished.err)
        self.assertEqual(list(range(6)), self.told())
        self.assert_clean()

    def test_stopped(self):
        """An agent that does not answer is ended by force when the grace is over."""
        process = self.nodes(3, POLITE, "--grace", "100ms")
        os.kill(self.agent_of(process, "n03"), signal.SIGSTOP)
        self.signal(process, signal.SIGINT, 2)
        self.assert_status(130, self.finish(process))
        self.assert_clean()
        self.assert_ended("run", "interrupted")

    def test_stopped_for_a_while(self):
        process = self.nodes(3, "echo up; " + POLITE)
        agent = self.agent_of(process, "n02")
        os.kill(agent, signal.SIGSTOP)
        time.sleep(0.3)
        self.assertIsNone(process.poll())
        os.kill(agent, signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        self.assert_status(143, self.finish(process))
        self.assertEqual(list(range(6)), self.told())
        self.assert_clean()

    def test_killed_worker_of_one_node(self):
        process = self.nodes(4, POLITE)
        os.kill(children(self.agent_of(process, "n04"))[1], signal.SIGKILL)
        finished = self.assert_status(137, self.finish(process))
        self.assertRegex(finished.err, r"first cause: rank [67] was killed by signal 9 \(SIGKILL\), on node n04")
        self.assertEqual(7, len(self.told()))
        self.assert_clean()

    def test_killed_controller_of_many_nodes(self):
        process = self.nodes(64, "env -i setsid sleep %s & : > ready.$RANK; exec sleep %s" % (NEVER, NEVER), cpus=1)
        self.assertEqual(64, len(self.agents(process)))
        process.kill()
        self.assert_status(137, self.finish(process))
        self.assert_clean()
        self.assert_ended("run", "died")
        logs = os.path.join(self.storage, "run", "logs")
        for node in (1, 33, 64):
            with open(os.path.join(logs, "agent-n%02d.log" % node)) as file:
                self.assertIn("the controller is gone", file.read())


if __name__ == "__main__":
    main()
