"""A rows of docs/faults.md that no other test shows: agents that are stopped, starved, or killed while there is something to lose."""

import json
import os
import resource
import signal

from place import REPORT, FaultCase, main

UP = "echo $$ > ready.$RANK; "


class Agents(FaultCase):
    def test_a1_what_was_acknowledged_outlives_the_agent(self):
        """A1: a checkpoint is committed, then a node's agent is killed; the next attempt begins behind it, with the same reports."""
        cluster = self.write("work/cluster.json", json.dumps({"nodes": [{"name": "n[1-2]", "resources": {"CPU": 1}}]}))
        script = "if [ $TRAINYARD_ATTEMPT = 2 ]; then cat $TRAINYARD_CHECKPOINT/part-$RANK; exit 0; fi; mkdir d.$RANK; " \
            "echo rank $RANK > d.$RANK/part-$RANK; " + REPORT + "step=1 --checkpoint d.$RANK || exit 1; " + \
            UP + "exec sleep 100000"
        process = self.shell(script, "--name", "r", "--cluster", cluster, "-n", 2, "--max-failures", 1)
        self.ready(process, 2)
        os.kill(self.agent_of("n2", self.agents(process)), signal.SIGKILL)
        finished = self.assert_status(0, self.finish(process))
        self.assertIn("the agent of node n2 was killed by signal 9 (SIGKILL)", finished.err)
        self.assertEqual(["[rank 0] rank 0", "[rank 1] rank 1"], sorted(finished.out.splitlines()))
        self.assertEqual(["checkpoint_000001"], self.committed())
        self.assertEqual([[1], [1]], [self.metrics(rank, "step") for rank in range(2)])
        self.assert_clean()

    def test_a3_an_agent_that_is_stopped_for_ever(self):
        """A3 on one machine: nobody takes it for lost while the run goes on, but no end waits for it."""
        process = self.shell(UP + "exec sleep 100000", "--name", "r", "-n", 2, "--time-limit", "1s", "--grace", "100ms")
        agent, _ = self.pids_of(process, 2)
        os.kill(agent, signal.SIGSTOP)
        finished = self.finish(process)
        self.assertIn(finished.status, (5, 124), repr(finished))
        self.assert_clean()

    def test_a4_an_agent_without_descriptors(self):
        """A4: the limit is named, no worker stays behind."""
        process = self.shell("exec sleep 100000", "--name", "r", "-n", 60,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48)))
        finished = self.assert_status(4, self.finish(process))
        self.assertRegex(finished.err.lower(), "no descriptor left for another worker .limit 48")
        self.assert_clean()


if __name__ == "__main__":
    main()
