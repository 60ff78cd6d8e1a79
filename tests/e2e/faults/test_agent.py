"""A rows of docs/faults.md that no other test shows: agents that are stopped, starved, or killed while there is something to lose."""

import json
import os
import resource
import signal
import subprocess

from place import BUILD, REPORT, FaultCase, main, process_state

UP = "echo $$ > ready.$RANK; "
LIMIT = "8s"  # in which the workers begin, and the agent is stopped


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

    def test_a2_reports_that_waited_for_a_stopped_agent_keep_their_order(self):
        """A2: each was made by a command of its own, and the rank has ended when the agent goes on."""
        process = self.shell(UP + "while [ ! -e go ]; do sleep 0.01; done; for i in 1 2 3 4 5 6 7 8; do " + REPORT + "i=$i || exit 1; done",
                             "--name", "r", "-n", 1)
        agent, (worker,) = self.pids_of(process, 1)
        os.kill(agent, signal.SIGSTOP)
        self.write("work/go", "")
        self.wait_for(lambda: self.has_ended(worker), "the end of the rank", process)
        os.kill(agent, signal.SIGCONT)
        self.assert_status(0, self.finish(process))
        self.assertEqual(list(range(1, 9)), self.metrics(0, "i"))
        self.assert_clean()

    def has_ended(self, pid):
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"

    def test_a3_an_agent_that_is_stopped_for_ever(self):
        """A3 on one machine: nobody takes it for lost while the run goes on, but no end waits for it."""
        process = self.shell(UP + "exec sleep 100000", "--name", "r", "-n", 2, "--time-limit", LIMIT, "--grace", "100ms")
        agent, _ = self.pids_of(process, 2)
        os.kill(agent, signal.SIGSTOP)
        finished = self.finish(process)
        self.assertIn(finished.status, (5, 124), repr(finished))
        self.assert_clean()

    def test_a3_an_agent_that_cannot_be_killed(self):
        """A3: it is named and left behind, its workers end, and so does the run; also when it is interrupted twice."""
        script = UP + "exec sleep 100000"
        for name, options, status in (("limit", ["--time-limit", LIMIT], (5, 124)), ("twice", [], (130,))):
            with self.subTest(name):
                freezer = self.make_freezer()
                process = self.shell(script, "--name", name, "-n", 2, "--grace", "100ms", *options)
                agent, pids = self.pids_of(process, 2)
                self.freeze(agent, freezer)
                if not options:
                    self.signal(process, signal.SIGINT, 2)
                finished = self.finish(process)
                self.assertIn(finished.status, status, repr(finished))
                self.assertRegex(finished.err, r"node \S+: process %d does not end after SIGKILL" % agent)
                self.assertEqual(1, finished.err.count("after SIGKILL"), repr(finished))
                self.assertEqual([], [pid for pid in pids if process_state(pid) not in "ZX"])
                self.forget()

    def test_a4_an_agent_without_descriptors(self):
        """A4: the limit is named, no worker stays behind."""
        process = self.shell("exec sleep 100000", "--name", "r", "-n", 60,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48)))
        finished = self.assert_status(4, self.finish(process))
        self.assertRegex(finished.err.lower(), "no descriptor left for another worker .limit 48")
        self.assert_clean()

    def test_a4_too_few_descriptors_for_the_driver(self):
        """A4: whichever call is the first that gets none, the command says so, and nothing stays; with enough it runs."""
        last = None
        for number in range(5, 40):
            with self.subTest(number):
                limit = lambda number=number: resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
                last = self.finish(self.shell("true", "--name", "r%d" % number, "--max-start-failures", 0, preexec_fn=limit))
                self.assertIn(last.status, (0, 1, 4, 127), repr(last))
                if last.status in (1, 4):
                    self.assertIn("too many open files", last.err.lower(), repr(last))
                self.assert_clean()
        self.assert_status(0, last)

    def of_another_build(self, *parts):
        """The command and its parts in a place of their own; `parts` name another build. Its path, and both builds."""
        place = os.path.join(self.place, "work", "mixed")
        own = self.assert_status(0, self.trainyard("version", "--format", "json")).json["build"]
        other = own.rpartition("+")[0] + "+" + "0" * 12
        os.makedirs(os.path.join(place, "trainyard-modules"))
        names = ["trainyard", "libtrainyard.so.0"]
        names += [os.path.join("trainyard-modules", name) for name in os.listdir(os.path.join(BUILD, "trainyard-modules")) if name.endswith(".so")]
        for name in names:
            with open(os.path.join(BUILD, name), "rb") as file:
                content = file.read()
            self.assertIn(own.encode(), content, name)
            if name in parts:
                content = content.replace(own.encode(), other.encode())
            with open(os.path.join(place, name), "wb") as file:
                file.write(content)
            os.chmod(os.path.join(place, name), 0o755)
        return place, own, other

    def test_a7_a_module_of_another_build(self):
        """A7: it is refused by name before anything is made, with both builds, though their version is the same."""
        place, own, other = self.of_another_build(os.path.join("trainyard-modules", "journal.so"))
        finished = subprocess.run([os.path.join(place, "trainyard"), "run", "--storage-path", self.storage, "--", "touch", "started"],
                                  cwd=self.work, env=self.environment, capture_output=True, text=True)
        self.assertNotEqual(0, finished.returncode)
        self.assertIn("%s/trainyard-modules/journal.so is of build %s, but this is trainyard %s: install both from one build" % (place, other, own),
                      finished.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.work, "started")))

    def test_a7_an_agent_of_another_build(self):
        """A7: a program whose library finds the command of another build: its agents are refused, with both builds."""
        place, own, other = self.of_another_build("trainyard")
        finished = subprocess.run([os.path.join(BUILD, "examples", "hello"), "2"], cwd=self.work, capture_output=True, text=True,
                                  env=self.environment_with({"LD_LIBRARY_PATH": place}))
        self.assertIn("is of build %s, but this is trainyard %s: install both from one build" % (other, own), finished.stderr)
        self.assertEqual(4, finished.returncode)
        self.assertNotIn("hello from worker", finished.stdout)
        self.assertEqual([], self.lease_files())


if __name__ == "__main__":
    main()
