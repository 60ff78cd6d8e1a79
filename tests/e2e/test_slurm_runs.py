"""Runs on a real Slurm: one agent on each node of an allocation, by one srun; what was granted is planned on; faults; batch jobs that
go on where they were (docs/spec/slurm.md 4.4, 4.8, 4.9)."""

import os
import signal

from harness import COMMAND, Case, main
from hosts import Slurm

SHOW = 'echo "$RANK $TRAINYARD_NODE ${CUDA_VISIBLE_DEVICES-none} ${TRAINYARD_DEVICES:-none} $SLURM_PROCID"'
# Ends as soon as it was told to, with a word for the next attempt; the next one ends well.
SAVES = """
[ -e "$PLACE/saved-$RANK" ] && exec echo "rank $RANK goes on"
trap 'echo saved >"$PLACE/saved-$RANK"; exit 0' TERM USR1
: >"$PLACE/began-$RANK"
while :; do sleep 0.05; done
"""


class SlurmRuns(Case):
    def allocated(self, options, *args, **more):
        """`trainyard run` in an allocation with these options of salloc."""
        return self.slurm.start("head", "salloc", "--quiet", *options, COMMAND, "run", "--storage-path", self.storage, "--progress", "none", *args, **more)

    def run_in(self, options, *args, **more):
        return self.finish(self.allocated(options, *args, **more))

    def lines(self, finished):
        return [line.split("] ", 1)[1].split() for line in sorted(finished.out.splitlines())]

    def agents(self):
        """Of all nodes, by their command lines; the test's place is in the environment of each."""
        found = []
        for name in os.listdir("/proc"):
            try:
                with open("/proc/%s/cmdline" % name, "rb") as file:
                    words = file.read().split(b"\0")
                with open("/proc/%s/environ" % name, "rb") as file:
                    ours = self.place.encode() in file.read()
            except OSError:
                continue
            if ours and len(words) > 2 and words[1] == b"agent":
                found.append((int(name), words[words.index(b"--node-name") + 1].decode()))
        return found

    def nothing_left(self):
        self.wait_for(lambda: not self.agents(), "the end of all agents")
        self.wait_for(lambda: not self.slurm.run("head", "squeue", "--noheader").out.strip(), "an empty queue")

    def test_runs(self):
        self.slurm = Slurm(self)
        with self.subTest("GPUs by task, unevenly; slurm is chosen by itself"):
            finished = self.run_in(["-n6", "--gpus-per-task=a100:1", "--gpu-bind=per_task:1"], "-n", "6", "--use-gpu", "--accelerator-type", "A100",
                                   "--", "sh", "-c", SHOW)
            self.assert_status(0, finished)
            self.assertEqual([[str(rank), "h1", "0,1,2,3", str(rank), str(rank)] for rank in range(4)] +
                             [[str(4 + i), "h2", "0,1", str(i), str(4 + i)] for i in range(2)], self.lines(finished))
        with self.subTest("GPUs by node, of which a worker holds two"):
            finished = self.run_in(["-N2", "--ntasks-per-node=1", "--gpus-per-node=h100:4"], "-n", "4", "--use-gpu", "--resources", "GPU=2", "--isolate-devices",
                                   "--", "sh", "-c", SHOW)
            self.assertEqual([["0", "h5", "0,1", "0,1", "0"], ["1", "h5", "2,3", "0,1", "1"], ["2", "h6", "0,1", "0,1", "2"],
                              ["3", "h6", "2,3", "0,1", "3"]], self.lines(finished), finished)
        with self.subTest("shards of a GPU"):
            finished = self.run_in(["-N2", "--ntasks-per-node=1", "--gres=shard:2"], "-n", "2", "--use-gpu", "--resources", "GPU=0.5", "--", "sh", "-c", SHOW)
            self.assertEqual([["0", "h1", "0", "0", "0"], ["1", "h2", "0", "0", "1"]], self.lines(finished), finished)
        with self.subTest("features are labels"):
            finished = self.run_in(["-N3", "-C", "[rack1*2&rack2*1]"], "-n", "1", "--label-selector", "rack=rack2", "--", "sh", "-c", SHOW)
            self.assertEqual("h5", self.lines(finished)[0][1], finished)
        with self.subTest("more than was granted is refused"):
            finished = self.run_in(["-N2", "--ntasks-per-node=1"], "-n", "2", "--use-gpu", "--", "true")
            self.assert_status(3, finished)
            self.assert_line(finished, "run", "GPU")
        with self.subTest("a step that sees other devices than were granted is refused, with both"):
            bin_ = os.path.join(self.place, "bin")
            os.mkdir(bin_)
            with open(os.path.join(bin_, "scontrol"), "w") as file:
                file.write("#!/bin/sh\nPATH=${PATH#*:} scontrol \"$@\" | sed 's/GRES=gpu:h100:2(IDX:0-1)/GRES=gpu:h100:3(IDX:0-2)/'\n")
            os.chmod(os.path.join(bin_, "scontrol"), 0o755)
            finished = self.run_in(["-N2", "--ntasks-per-node=1", "--gpus-per-node=h100:2"], "-n", "2", "--use-gpu", "--", "true",
                                   env={"PATH": bin_ + ":" + os.environ["PATH"]})
            self.assert_status(4, finished)
            self.assert_line(finished, "run", "node h5", "granted this job 3 GPUs", "sees 2 (0,1)")
        with self.subTest("it is told which nodes"):
            finished = self.finish(self.slurm.start("head", "salloc", "--quiet", "-N2", COMMAND, "run", "--storage-path", self.storage, "-n", "2", "--", "true"))
            self.assertIn("engine slurm: on the nodes of job", finished.err)
            self.assertIn("h[1-2]", finished.err)
        with self.subTest("a worker fails, and is started again"):
            script = '[ $TRAINYARD_ATTEMPT = 2 ] || [ $RANK = 0 ] || exit 7; [ $TRAINYARD_ATTEMPT = 2 ] || sleep 30; echo "$RANK $TRAINYARD_ATTEMPT"'
            finished = self.run_in(["-N2"], "-n", "2", "--placement", "SPREAD", "--max-failures", "1", "--", "sh", "-c", script)
            self.assertEqual([["0", "2"], ["1", "2"]], self.lines(finished), finished)
            finished = self.run_in(["-N2"], "-n", "2", "--placement", "SPREAD", "--", "sh", "-c", "[ $RANK = 0 ] || exit 7; sleep 30")
            self.assert_status(7, finished)
        self.nothing_left()
        with self.subTest("scancel leaves nothing"):
            process = self.allocated(["-N3"], "-n", "3", "--placement", "SPREAD", "--", "sh", "-c", ': >"$PLACE/on-$RANK"; exec sleep 1000', env={"PLACE": self.place})
            for rank in range(3):
                self.wait_for(lambda: os.path.exists(os.path.join(self.place, "on-%d" % rank)), "rank %d" % rank, process)
            self.assertEqual(3, len({node for _, node in self.agents()}))
            self.slurm.run("head", "scancel", "--user", str(os.getuid()))
            self.assertNotEqual(0, self.finish(process).status)
            self.nothing_left()
        with self.subTest("an agent that is killed is a node that is lost"):
            process = self.allocated(["-N2"], "-n", "2", "--placement", "SPREAD", "--", "sh", "-c", ': >"$PLACE/in-$RANK"; exec sleep 1000', env={"PLACE": self.place})
            for rank in range(2):
                self.wait_for(lambda: os.path.exists(os.path.join(self.place, "in-%d" % rank)), "rank %d" % rank, process)
            for pid, node in self.agents():
                if node == "h2":
                    os.kill(pid, signal.SIGKILL)
            finished = self.assert_status(5, self.finish(process))
            self.assertIn("h2", finished.err)
            self.nothing_left()

    def test_batch_jobs(self):
        self.slurm = Slurm(self)
        submit = ["submit", "--storage-path", self.storage, "-n", "2", "--placement", "SPREAD"]
        with self.subTest("a job that ends well"):
            finished = self.assert_status(0, self.slurm.trainyard("head", *submit, "--name", "one", "--", "sh", "-c", "echo on $TRAINYARD_NODE"))
            self.assertRegex(finished.out, r"^job \d+, run one\n$")
            self.nothing_left()
            logs = self.slurm.trainyard("head", "logs", "--storage-path", self.storage, "one").out
            self.assertIn("on h1", logs)
            self.assertIn("on h2", logs)
            again = self.slurm.trainyard("head", *submit, "--name", "one", "--", "true")
            self.assert_status(2, again)
            self.assert_line(again, "submit", "one", "--resume")
        with self.subTest("why it waits is told in words"):
            holder = self.slurm.start("head", "srun", "-N6", "--exclusive", "sh", "-c", "echo on; exec sleep 1000")
            for _ in range(6):
                self.assertEqual("on\n", holder.stdout.readline())
            finished = self.slurm.trainyard("head", *submit, "--name", "two", "--", "true")
            self.assertRegex(finished.err, r"job \d+ waits: (other jobs hold what it needs|jobs before it|Slurm has not looked)")
            self.slurm.run("head", "scancel", "--user", str(os.getuid()))
            holder.communicate()
            self.nothing_left()
        with self.subTest("the time is over: workers save, the job goes back, the run goes on"):
            env = {"PLACE": self.place}
            self.slurm.trainyard("head", *submit, "--name", "three", "--", "sh", "-c", SAVES, env=env)
            for rank in range(2):
                self.wait_for(lambda: os.path.exists(os.path.join(self.place, "began-%d" % rank)), "rank %d" % rank)
            job = self.slurm.run("head", "squeue", "--noheader", "--format=%i").out.strip()
            self.slurm.run("head", "scancel", "--batch", "--signal=USR1", job)  # as --signal=B:USR1 does before the end of its time
            for rank in range(2):
                self.wait_for(lambda: os.path.exists(os.path.join(self.place, "saved-%d" % rank)), "rank %d to save" % rank)
            self.wait_for(lambda: "Restarts=1" in self.slurm.run("head", "scontrol", "show", "job", job).out, "the requeue")

            # In place of two minutes; but not in the second in which it was ended, which is how far a node tells its starts apart.
            self.slurm.run("head", "scontrol", "update", "JobId=" + job, "StartTime=now+3")
            self.wait_for(lambda: "rank 1 goes on" in self.slurm.trainyard("head", "logs", "--storage-path", self.storage, "three").out,
                          "the run to go on")
            self.nothing_left()
            status = self.slurm.trainyard("head", "status", "--storage-path", self.storage, "three", "--format", "json").json
            self.assertIn("succeeded", repr(status))


if __name__ == "__main__":
    main()
