"""`trainyard stacks --seconds` of workers on other machines: by the run's controller and the agents there."""

import contextlib
import json
import os
import re
import secrets
import signal

import harness
from hosts import Hosts
from runs import command_line, state_of


class Elsewhere(harness.Case):
    """Two hosts with two workers each, which sleep."""

    def setUp(self):
        super().setUp()
        self.hosts = Hosts(self, 2)
        key = secrets.token_hex(32)
        self.started = [self.hosts.start_trainyard(
            "h%d" % (rank + 1), "run", "--storage-path", self.storage, "--name", "run", "--nnodes", 2, "--node-rank", rank, "--rendezvous",
            "h1:29400", "--num-cpus", 2, "--progress", "none", "--placement", "SPREAD", "-n", 4, "--", "sh", "-c",
            ": > ready.$RANK; exec sleep 3091", env={"TRAINYARD_RUN_KEY": key}) for rank in (0, 1)]
        for rank in range(4):
            self.wait_for_file("ready.%d" % rank)
        self.addCleanup(self.stop)
        self.wait_for(lambda: 4 == sum(command_line(pid)[:1] == [b"sleep"] and state_of(pid) == "S" for pid in harness.processes_with(self.place)), "sleep")
        # Where workers are is read in the journal, in which they come a little later than to life.
        self.wait_for(lambda: "4 started" in self.hosts.trainyard("h1", "status", "--storage-path", self.storage, "run").out)

    def wait_for_file(self, name):
        self.wait_for(lambda: os.path.exists(os.path.join(self.place, name)), name, self.started[0])

    def stop(self):
        self.hosts.trainyard("h1", "stop", "--storage-path", self.storage, "run")
        return [self.finish(process) for process in self.started]

    def stacks(self, *words, host="h1"):
        return self.hosts.trainyard(host, "stacks", "--storage-path", self.storage, "run", "--seconds", "500ms", *words)

    def children_on_h2(self, words):
        """Of the command on h2, those with these words, as this machine numbers them."""
        agents = self.children_of(self.hosts.pid_of(self.started[1]))
        found = {*agents, *(child for agent in agents for child in self.children_of(agent))}
        return {child for child in found if words in b" ".join(command_line(child)).decode()}

    def children_of(self, pid):
        """Those of its first thread; none of one that has ended meanwhile."""
        with contextlib.suppress(OSError), open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            return list(map(int, file.read().split()))
        return []

    def ranks_in(self, folded):
        return {int(rank) for rank in re.findall(r"^rank (\d+);\S.* \d+$", folded, re.M)}

    def test_as_on_one_machine(self):
        shown = self.assert_status(0, self.stacks())
        self.assertRegex(shown.out, r"^run: \d+ looks at 4 workers in 500 ms\non h2: ranks 2-3\n *100\.0 %  4 ranks \(0-3\): ")
        self.assertEqual("", shown.err)
        self.assertEqual({0, 1, 2, 3}, self.ranks_in(self.stacks("--format", "folded").out))
        one = json.loads(self.stacks("--format", "json", "--rank", "3").out)
        self.assertEqual([3], [rank["rank"] for rank in one["ranks"]])
        self.assertLess(0, one["ranks"][0]["samples"])
        self.assertEqual({0, 1, 2, 3}, self.ranks_in(self.stacks("--format", "folded").out))

    def test_a_node_that_does_not_answer_is_named(self):
        agents = self.children_on_h2("trainyard run")
        self.assertEqual(1, len(agents))
        for pid in agents:
            os.kill(pid, signal.SIGSTOP)
        shown = self.stacks("--format", "folded")
        for pid in agents:
            os.kill(pid, signal.SIGCONT)
        self.assert_status(0, shown)
        self.assertEqual("trainyard stacks: warning: run: node h2, ranks 2-3: no answer\n", shown.err)
        self.assertEqual({0, 1}, self.ranks_in(shown.out))

    def test_where_the_controller_is_not(self):
        shown = self.assert_status(0, self.stacks("--format", "folded", host="h2"))
        self.assertEqual({2, 3}, self.ranks_in(shown.out))
        self.assertIn("run: ranks 0-1 on other machines: their agents can be asked where the run's controller is, on h1\n", shown.err)

    def test_a_run_that_ends_meanwhile(self):
        looks = self.hosts.start_trainyard("h1", "stacks", "--storage-path", self.storage, "run", "--seconds", "1h", "--rank", "2")
        self.wait_for(lambda: self.children_on_h2("agent --looks"), "a look at rank 2", looks)
        ended = self.stop()
        self.assertEqual([130, 130], [finished.status for finished in ended], repr(ended))
        self.assertNotIn("left", ended[0].err.replace("nothing is left of the run", ""))
        self.assert_status(0, self.finish(looks))


if __name__ == "__main__":
    harness.main()
