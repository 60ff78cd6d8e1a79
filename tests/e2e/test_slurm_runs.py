"""Runs on a real Slurm: one agent on each node of an allocation, by one srun; what was granted is planned on; faults; batch jobs that
go on where they were (docs/spec/slurm.md 4.4, 4.8, 4.9)."""

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import time
import unittest

from harness import BUILD, COMMAND, Case, main, preloadable
from hosts import SCRIPTS, Slurm
from runs import children
from test_adoption import STEPS, Noted

SHOW = 'echo "$RANK $TRAINYARD_NODE ${CUDA_VISIBLE_DEVICES-none} ${TRAINYARD_DEVICES:-none} $SLURM_PROCID"'
# Which GPUs of the node the cgroup lets it open; there is nothing behind any.
OPENS = """
for gpu in 0 1 2 3 4 5 6 7; do
    case $(LC_ALL=C dd if=/dev/shm/gpu$gpu count=0 2>&1) in *"not permitted"*) ;; *) seen=$seen$gpu ;; esac
done
echo "$RANK $TRAINYARD_NODE $CUDA_VISIBLE_DEVICES $seen"
"""
# Saves a checkpoint as soon as it was told to end; ends well when it goes on for the second time.
SAVES = """
step=1
[ -z "$TRAINYARD_CHECKPOINT" ] || step=$(($(cat "$TRAINYARD_CHECKPOINT/step-$RANK") + 1))
[ $step != 3 ] || exec echo "rank $RANK is at 3"
save() { trap '' TERM; mkdir "$PLACE/$step-$RANK" && echo $step >"$PLACE/$step-$RANK/step-$RANK" && "$TRAINYARD" report step=$step --checkpoint "$PLACE/$step-$RANK"; exit 0; }
trap save TERM
: >"$PLACE/began-$step-$RANK"
while :; do sleep 0.05; done
"""

# Tells that it has begun, and ends when it may.
WAITS = ': >"$AT-$RANK"; until [ -e "$AT-ends" ]; do sleep 0.05; done; echo "$RANK $TRAINYARD_NODE"'

# SAVES in Python, with fit().
FIT = """
import os, time
import trainyard
from trainyard import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig

def train():
    rank = trainyard.get_context().get_world_rank()
    place = os.environ["PLACE"]
    checkpoint, step = trainyard.get_checkpoint(), 1
    if checkpoint:
        step = int(open(f"{checkpoint.path}/step-{rank}").read()) + 1
    open(f"{place}/began-{step}-{rank}", "w").close()
    while step < 2 and not trainyard.stop_requested():
        time.sleep(0.05)
    os.mkdir(f"{place}/{step}-{rank}")
    with open(f"{place}/{step}-{rank}/step-{rank}", "w") as file:
        file.write(str(step))
    trainyard.report({"step": step}, checkpoint=Checkpoint(f"{place}/{step}-{rank}"))

DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
                    run_config=RunConfig(name="fitted", resume=True, progress="none")).fit()
"""


class SlurmRuns(Noted, Case):
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

    def rows(self, name, query):
        with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % os.path.join(self.storage, name, "run.db"), uri=True)) as journal:
            return [row[0] for row in journal.execute(query)]

    def kinds(self, name):
        """Of the events on record."""
        return self.rows(name, "SELECT kind FROM events")

    def test_runs(self):
        self.slurm = Slurm(self)
        with self.subTest("GPUs by task, unevenly; slurm is chosen by itself"):
            finished = self.run_in(["-n6", "--gpus-per-task=a100:1", "--gpu-bind=per_task:1"], "-n", "6", "--use-gpu", "--accelerator-type", "A100",
                                   "--", "sh", "-c", SHOW)
            self.assert_status(0, finished)
            self.assertEqual([[str(rank), "h1", "0,1,2,3", str(rank), str(rank)] for rank in range(4)] +
                             [[str(4 + i), "h2", "0,1", str(i), str(4 + i)] for i in range(2)], self.lines(finished))
        with self.subTest("the same from a step of one task, as `srun --pty` gives it"):
            finished = self.finish(self.slurm.start("head", "salloc", "--quiet", "-n6", "--gpus-per-task=a100:1", "--gpu-bind=per_task:1", "srun", "-N1", "-n1", COMMAND,
                                                    "run", "--storage-path", self.storage, "-n", "6", "--use-gpu", "--progress", "none", "--", "sh", "-c", SHOW))
            self.assert_status(0, finished)
            self.assertEqual([["0,1,2,3", str(rank)] for rank in range(4)] + [["0,1", str(rank)] for rank in range(2)],
                             [[line[2], line[3]] for line in self.lines(finished)], finished)
        with self.subTest("steps of a worker's own"):
            step = "srun --overlap -N2 -n2 sh -c 'echo step $SLURM_PROCID of $SLURM_NTASKS' </dev/null"
            finished = self.assert_status(0, self.run_in(["-N2", "--ntasks-per-node=1"], "-n", "2", "--placement", "SPREAD", "--", "sh", "-c", step))
            self.assertEqual(sorted([["step", "0", "of", "2"], ["step", "1", "of", "2"]] * 2), sorted(self.lines(finished)), finished)
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
        with self.subTest("a heterogeneous job is refused"):
            for words in (("run", "--progress", "none", "--storage-path", self.storage, "--", "true"), ("plan", "--engine", "slurm")):
                finished = self.slurm.run("head", "salloc", "--quiet", "-N1", "env", "SLURM_HET_SIZE=2", COMMAND, *words)
                self.assertNotEqual(0, finished.status)
                self.assert_line(finished, words[0], "heterogeneous job of 2 components", "SLURM_HET_SIZE")
        with self.subTest("jobs of an array, one of which has the number of them all, on nodes of whose GPUs nobody asks for any"):
            at = os.path.join(self.place, "array")
            script = self.write("array.sh", "#!/bin/sh\n%s run --engine slurm --storage-path %s --progress none -n 1 -- sh -c 'echo $SLURM_ARRAY_TASK_ID ran on $TRAINYARD_NODE'\n"
                                % (COMMAND, self.storage))
            self.assert_status(0, self.slurm.run("head", "sbatch", "--wait", "--quiet", "--array=0-2", "-N1", "--exclusive", "--output=" + at + "-%a", script))
            for task in range(3):
                with open("%s-%d" % (at, task)) as file:
                    self.assertIn("%d ran on h" % task, file.read())
        with self.subTest("a job that was begun with --export=NONE"):
            finished = self.assert_status(0, self.run_in(["-N2", "--ntasks-per-node=1"], "-n", "2", "--placement", "SPREAD", "--", "sh", "-c", "echo $RANK $HERE",
                                                         env={"SLURM_EXPORT_ENV": "NONE", "HERE": "there"}))
            self.assertEqual([["0", "there"], ["1", "there"]], self.lines(finished), finished)
        with self.subTest("of a step of several tasks each is a run of its own, which is told"):
            step = ["salloc", "--quiet", "-N2", "--ntasks-per-node=1", "srun", COMMAND, "run", "--storage-path", self.storage]
            for args, times in ((["--", "true"], 2), (["--engine", "local", "--", "true"], 0)):
                finished = self.assert_status(0, self.slurm.run("head", *step, *args))
                self.assertEqual(times, finished.err.count("srun starts 2 tasks, and this one is a run of its own"), finished)
        with self.subTest("it is told which nodes"):
            finished = self.finish(self.slurm.start("head", "salloc", "--quiet", "-N2", COMMAND, "run", "--storage-path", self.storage, "-n", "2", "--", "true"))
            self.assertIn("engine slurm: on the nodes of job", finished.err)
            self.assertIn("h[1-2]", finished.err)
        with self.subTest("one node, as the variable says"):
            words = ("salloc", "--quiet", "-N1", "env"), ("run", "--storage-path", self.storage, "--", "sh", "-c", "echo ${TRAINYARD_ENGINE-none} on $TRAINYARD_NODE")
            finished = self.assert_status(0, self.slurm.run("head", *words[0], "TRAINYARD_ENGINE=slurm", COMMAND, *words[1]))
            self.assertIn("engine slurm: on the nodes of job", finished.err)
            self.assertEqual([["none", "on", "h1"]], self.lines(finished))
            refused = self.assert_status(2, self.slurm.run("head", *words[0], "TRAINYARD_ENGINE=slrm", COMMAND, *words[1]))
            self.assert_line(refused, "run", "TRAINYARD_ENGINE", "slrm", "allowed: auto, local")
        with self.subTest("a worker fails, and is started again"):
            script = '[ $TRAINYARD_ATTEMPT = 2 ] || [ $RANK = 0 ] || exit 7; [ $TRAINYARD_ATTEMPT = 2 ] || sleep 30; echo "$RANK $TRAINYARD_ATTEMPT"'
            finished = self.run_in(["-N2"], "-n", "2", "--placement", "SPREAD", "--max-failures", "1", "--", "sh", "-c", script)
            self.assertEqual([["0", "2"], ["1", "2"]], self.lines(finished), finished)
            finished = self.run_in(["-N2"], "-n", "2", "--placement", "SPREAD", "--", "sh", "-c", "[ $RANK = 0 ] || exit 7; sleep 30")
            self.assert_status(7, finished)
        self.nothing_left()
        with self.subTest("scancel leaves nothing"):
            process = self.allocated(["-N3"], "-n", "3", "--name", "drained", "--placement", "SPREAD", "--", "sh", "-c", ': >"$PLACE/on-$RANK"; exec sleep 1000', env={"PLACE": self.place})
            for rank in range(3):
                self.wait_for(lambda: os.path.exists(os.path.join(self.place, "on-%d" % rank)), "rank %d" % rank, process)
            self.assertEqual(3, len({node for _, node in self.agents()}))
            self.slurm.run("head", "scontrol", "update", "NodeName=h3", "State=DRAIN", "Reason=fan | slow")
            self.wait_for(lambda: "node_state" in self.kinds("drained"), "the event", process)
            self.slurm.run("head", "scancel", "--user", str(os.getuid()))
            finished = self.finish(process)
            self.assertNotEqual(0, finished.status)
            self.assertIn("slurm: node h3 is draining: fan | slow\n", finished.err)
            self.nothing_left()
            self.slurm.run("head", "scontrol", "update", "NodeName=h3", "State=RESUME")
        with self.subTest("the signal before the end of the time, which `--signal=USR1@60` gives to steps, leaves time to save"):
            process = self.allocated(["-N2"], "-n", "2", "--name", "told", "--placement", "SPREAD", "--", "sh", "-c", "trap : USR1\n" + SAVES,
                                     env={"PLACE": self.place, "TRAINYARD": COMMAND})
            self.began(1)
            self.slurm.run("head", "scancel", "--signal=USR1", self.slurm.run("head", "squeue", "--noheader", "--format=%i").out.strip())
            self.assert_status(128 + signal.SIGUSR1, self.finish(process))
            status = self.trainyard("status", "told", "--storage-path", self.storage, "--format", "json").json
            self.assertEqual(("preempted", 1), (status["state"], status["checkpoints"]), status)
            self.nothing_left()
        with self.subTest("an agent that is killed is a node that is lost"):
            process = self.allocated(["-N2"], "-n", "2", "--placement", "SPREAD", "--", "sh", "-c", ': >"$PLACE/in-$RANK"; exec sleep 1000', env={"PLACE": self.place})
            for rank in range(2):
                self.wait_for(lambda: os.path.exists(os.path.join(self.place, "in-%d" % rank)), "rank %d" % rank, process)
            for pid, node in self.agents():
                if node == "h2":
                    with contextlib.suppress(ProcessLookupError):  # with its keeper's end
                        os.kill(pid, signal.SIGKILL)
            finished = self.assert_status(5, self.finish(process))
            self.assertIn("h2", finished.err)
            self.nothing_left()
        with self.subTest("a node that Slurm takes down is lost, with Slurm's reason"):
            process = self.allocated(["-N2", "--no-kill"], "-n", "2", "--placement", "SPREAD", "--", "sh", "-c", ': >"$PLACE/down-$RANK"; exec sleep 1000',
                                     env={"PLACE": self.place})
            for rank in range(2):
                self.wait_for(lambda: os.path.exists(os.path.join(self.place, "down-%d" % rank)), "rank %d" % rank, process)
            self.slurm.run("head", "scontrol", "update", "NodeName=h2", "State=DOWN", "Reason=disk bad")
            finished = self.finish(process)
            self.assertIn(finished.status, (5, 137, 143), finished)  # lost, its worker killed, or its agent told to end: what Slurm does there races
            self.assertIn("slurm: node h2 is down: disk bad\n", finished.err)
            self.nothing_left()

    @unittest.skipUnless(os.getuid() == 0 and os.access("/sys/fs/cgroup/devices/cgroup.procs", os.W_OK), "needs root, and the devices of cgroups of version 1")
    def test_devices_that_are_constrained(self):
        """Ids count from 0 among those that the step has, whichever these are."""
        self.slurm = Slurm(self, {"slurm.conf": "TaskPlugin=task/cgroup", "cgroup.conf": "ConstrainDevices=yes"})
        holder = self.slurm.start("head", "srun", "--quiet", "-n1", "-w", "h5", "--gpus-per-node=h100:2", "sh", "-c", "echo on; exec sleep 1000")
        self.assertEqual("on\n", holder.stdout.readline())
        finished = self.run_in(["-N2", "-w", "h5,h6", "--ntasks-per-node=1", "--gpus-per-node=h100:4"], "-n", "4", "--use-gpu", "--resources", "GPU=2,CPU=0.5",
                               "--isolate-devices", "--", "sh", "-c", OPENS)
        self.assertEqual([["0", "h5", "0,1", "2345"], ["1", "h5", "2,3", "2345"], ["2", "h6", "0,1", "0123"], ["3", "h6", "2,3", "0123"]],
                         self.lines(finished), finished)
        finished = self.run_in(["-n3", "-w", "h5", "--gpus-per-task=h100:1", "--gpu-bind=per_task:1"], "--engine", "slurm", "-n", "3", "--use-gpu",
                               "--isolate-devices", "--", "sh", "-c", OPENS)
        self.assertEqual([[str(rank), "h5", str(rank), "234"] for rank in range(3)], self.lines(finished), finished)
        self.slurm.run("head", "scancel", "--user", str(os.getuid()))
        holder.communicate()
        self.nothing_left()

    def begun(self, name, options):
        """A run of two ranks, on a node each, when it has begun; it ends well when there is a file "NAME-ends"."""
        at = os.path.join(self.place, name)
        process = self.allocated(["-N2", *options], "-n", "2", "--name", name, "--placement", "SPREAD", "--", "sh", "-c", WAITS, env={"AT": at})
        for rank in range(2):
            self.wait_for(lambda: os.path.exists("%s-%d" % (at, rank)), "rank %d" % rank, process)
        return process

    def assert_ends_well(self, name, process, nodes):
        self.write(name + "-ends", "")
        finished = self.assert_status(0, self.finish(process))
        self.assertEqual([["0", nodes[0]], ["1", nodes[1]]], self.lines(finished), finished)
        return finished

    def kill_slurmd(self):
        """That of the second node of the run that goes on, and nothing else there: the nodes."""
        nodes = sorted({node for _, node in self.agents()})
        self.assert_status(0, self.slurm.run(nodes[1], "sh", "-c", "kill -KILL $(cat /run/slurmd.pid)"))
        return nodes

    def test_a_node_does_not_come(self):
        """Its agent cannot be executed there, or Slurm takes it down meanwhile."""
        at = os.path.join(self.place, "held")
        prolog = self.write("prolog", '#!/bin/sh\n[ $(hostname)-$SLURM_JOB_NAME != h2-held ] || { : >%s; exec sleep 1000; }\n' % at)
        os.chmod(prolog, 0o755)
        self.slurm = Slurm(self, {"slurm.conf": "TaskProlog=" + prolog})
        run = ["-n", "2", "--placement", "SPREAD", "--", "true"]
        for more in ([], ["--no-kill"]):
            with self.subTest("taken down", more=more):
                process = self.allocated(["-N2", "-w", "h1,h2", "--job-name=held", *more], *run)
                self.wait_for(lambda: os.path.exists(at), "the start of its agent", process)
                self.wait_for_line(process, "1 of 2 nodes are here")
                self.slurm.run("head", "scontrol", "update", "NodeName=h2", "State=DOWN", "Reason=disk bad")
                finished = self.assert_status(4, self.finish(process))
                self.assertIn("slurm: node h2 is down: disk bad\n", finished.err)
                self.assertRegex(finished.err, r"(?m)^trainyard run: h2 cannot take part: ")
                os.unlink(at)
                self.slurm.run("head", "scontrol", "update", "NodeName=h2", "State=RESUME")
                self.nothing_left()
        with self.subTest("no trainyard"):
            self.assert_status(0, self.slurm.run("h2", "mount", "-n", "--bind", "/dev/null", os.path.realpath(COMMAND)))
            finished = self.assert_status(4, self.run_in(["-N2", "-w", "h1,h2"], *run))
            self.assertRegex(finished.err, r"(?m)^trainyard run: h2 cannot take part: .*srun: error: h2: task 1: Exited with exit code 126$")
            self.nothing_left()

    def test_a_slurmd_dies(self):
        self.slurm = Slurm(self)
        with self.subTest("the run does not need it"):
            process = self.begun("one", [])
            nodes = self.kill_slurmd()
            self.assert_ends_well("one", process, nodes)
            self.wait_for(lambda: not self.agents(), "the end of all agents")
            self.mend(nodes[1])
        with self.subTest("nor where Slurm takes its node down, which is told, and leaves the job the others"):
            process = self.begun("two", ["--no-kill"])
            nodes = self.kill_slurmd()
            self.slurm.run("head", "scontrol", "update", "NodeName=" + nodes[1], "State=DOWN", "Reason=no slurmd")
            self.wait_for(lambda: "node_state" in self.kinds("two"), "the event", process)
            finished = self.assert_ends_well("two", process, nodes)
            self.assertIn("slurm: node %s is down: no slurmd\n" % nodes[1], finished.err)
            self.wait_for(lambda: not self.agents(), "the end of all agents")
            self.mend(nodes[1])
        with self.subTest("a job that ends with its node leaves nothing there, though nobody there hears of Slurm"):
            process = self.begun("three", [])
            nodes = self.kill_slurmd()
            self.slurm.run("head", "scontrol", "update", "NodeName=" + nodes[1], "State=DOWN", "Reason=no slurmd")
            self.assertNotEqual(0, self.finish(process).status)
            self.wait_for(lambda: not self.agents(), "the end of all agents")
            self.mend(nodes[1])

        with self.subTest("one that is dead before the run begins is named"):
            at = os.path.join(self.place, "four")
            script = ': >"$AT-in"; until [ -e "$AT-goes" ]; do sleep 0.05; done; exec "$0" run --storage-path "$1" --progress none -n 2 --placement SPREAD -- true'
            process = self.slurm.start("head", "salloc", "--quiet", "-N2", "-w", "h3,h4", "sh", "-c", script, COMMAND, self.storage, env={"AT": at})
            self.wait_for(lambda: os.path.exists(at + "-in"), "the allocation", process)
            self.assert_status(0, self.slurm.run("h4", "sh", "-c", "kill -KILL $(cat /run/slurmd.pid)"))
            self.write("four-goes", "")
            finished = self.assert_status(4, self.finish(process))
            self.assertRegex(finished.err, r"(?m)^trainyard run: h4 cannot take part: srun: error: Task launch for .* failed on node h4: ")
            self.wait_for(lambda: not self.agents(), "the end of all agents")
            self.mend("h4")

    def mend(self, node):
        self.assert_status(0, self.slurm.run(node, "sh", "-c", "exec slurmd -N %s >/dev/null 2>&1" % node))
        self.slurm.run("head", "scontrol", "update", "NodeName=" + node, "State=RESUME")
        self.nothing_left()

    def test_the_controller_is_killed_or_cut_off(self):
        self.slurm = Slurm(self)
        with self.subTest("killed: nothing is left"):
            process = self.begun("killed", [])
            (controller,) = children(self.slurm.pid_of(process))
            os.kill(controller, signal.SIGKILL)
            self.finish(process)
            self.nothing_left()
        with self.subTest("killed, with --outlive: another one of the allocation adopts the workers"):
            again = 'run() { "$0" run --storage-path "$1" --name r --outlive 60s -n 2 --placement SPREAD "$2" -- sh -c "$3"; }; run "$1" --quiet "$2" || run "$1" --resume "$2"'
            process = self.slurm.start("head", "salloc", "--quiet", "-N2", "sh", "-c", again, COMMAND, self.storage, STEPS)
            self.wait_for_steps(process)
            (shell,) = children(self.slurm.pid_of(process))
            (controller,) = children(shell)
            os.kill(controller, signal.SIGKILL)
            self.wait_for_line(process, "attempt 1 goes on")
            self.wait_for_steps(process)
            self.write("enough", "")
            self.assert_status(0, self.finish(process))
            self.assert_one_attempt()
            self.nothing_left()
            self.assertEqual("", self.slurm.run("head", "sh", "-c", "find /tmp/trainyard-* -name 'run-*'").out)
        with self.subTest("cut off from a node: that is lost, and what ran there ends"):
            process = self.begun("cut", ["--no-kill"])
            node = max(node for _, node in self.agents())
            self.slurm.cut(node)
            lost = self.assert_status(5, self.finish(process))
            self.assertIn("node %s was lost: nothing was heard of it" % node, lost.err)
            self.wait_for(lambda: node not in {name for _, name in self.agents()}, "the end of its agent", seconds=120)

    def test_an_agent_is_stopped(self):
        """Its workers end before another attempt begins on the nodes that are left."""
        self.slurm = Slurm(self)
        script = ': >"$PLACE/up-$TRAINYARD_ATTEMPT-$RANK"; [ $TRAINYARD_ATTEMPT = 1 ] || exec sh -c "$ALONE"; while :; do : >"$PLACE/lives"; sleep 0.02; done'
        alone = 'rm -f "$PLACE/lives"; sleep 1; [ ! -e "$PLACE/lives" ] && echo $WORLD_SIZE are alone'
        process = self.allocated(["-N3"], "-n", "2:3", "--placement", "STRICT_SPREAD", "--max-failures", "1", "--", "sh", "-c", script,
                                 env={"PLACE": self.place, "ALONE": alone})
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.place, "up-1-%d" % rank)) for rank in range(3)), "three workers", process)
        agents = self.agents()
        node = max(node for _, node in agents)
        of_node = {pid for pid, name in agents if name == node}
        (agent,) = (pid for pid in of_node if not of_node & set(children(pid)))  # and not its keeper
        os.kill(agent, signal.SIGSTOP)
        finished = self.assert_status(0, self.finish(process))
        self.assertIn("node %s was lost: " % node, finished.err)  # it is killed by its keeper, or nothing was heard of it
        self.assertEqual([["2", "are", "alone"]] * 2, self.lines(finished), finished)
        self.nothing_left()

    def test_one_node_is_slow_has_a_clock_an_hour_ahead_or_a_full_disk(self):
        library = os.path.join(self.place, "ahead.so")
        os.symlink(os.path.realpath(preloadable(os.path.join(BUILD, "tests", "e2e", "faults", "failing_calls.so"))), library)
        prolog = self.write("prolog", "#!/bin/sh\n[ $(hostname)-$SLURM_JOB_NAME != h2-ahead ] || printf 'export LD_PRELOAD=%s\\nexport TRAINYARD_CLOCK_AHEAD=3600\\n'\n" % library)
        os.chmod(prolog, 0o755)
        self.slurm = Slurm(self, {"slurm.conf": "TaskProlog=" + prolog})
        nodes = ["-N2", "-w", "h1,h2", "--ntasks-per-node=1"]
        run = ["-n", "2", "--placement", "SPREAD", "--max-failures", "1"]
        with self.subTest("slow, with losses"):
            self.slurm.change("slow", "h2", "512kbit")
            self.slurm.change("lose", "h2", "3")
            lines = "i=0; while [ $i -lt 2000 ]; do echo line $i of $RANK; i=$((i+1)); done"
            finished = self.assert_status(0, self.run_in(nodes, *run, "--", "sh", "-c", lines))
            for rank in (0, 1):
                self.assertEqual(["[rank %d] line %d of %d" % (rank, i, rank) for i in range(2000)],
                                 [line for line in finished.out.splitlines() if line.startswith("[rank %d]" % rank)])
            self.slurm.mend()
        with self.subTest("a clock an hour ahead"):
            script = ('"$0" report step=$TRAINYARD_ATTEMPT; test $RANK = 0 || exit $((TRAINYARD_ATTEMPT == 1 ? 3 : 0)); '
                      "test $TRAINYARD_ATTEMPT = 2 || exec sleep 60")
            finished = self.assert_status(0, self.run_in([*nodes, "--job-name=ahead"], *run, "--name", "clock", "--", "sh", "-c", script, COMMAND))
            self.assertIn("attempt 2 begins", finished.err)
            status = self.trainyard("status", "clock", "--storage-path", self.storage, "--format", "json").json
            self.assertTrue(status["attempts"] == 2 and 0 <= status["seconds"] < 600, status)
            offsets = sorted(status["clock_offsets"], key=lambda clock: clock["seconds"])
            for clock, ahead in zip(offsets, (0, 3600), strict=True):
                self.assertLess(abs(clock["seconds"] - ahead), clock["uncertainty"] + 1e-6, offsets)
            (first,), (last,) = (self.rows("clock", "SELECT %s(time) / 1e9 FROM (SELECT time FROM events UNION ALL SELECT time FROM reports)" % end) for end in ("min", "max"))
            self.assertLess(last - first, 600, "times of the node are those of the controller's clock")
        with self.subTest("a full disk"):
            self.assert_status(0, self.slurm.run("h2", "sh", "-c", "mkdir /tmp/full && mount -n -t tmpfs -o size=1m tmpfs /tmp/full"))
            script = 'mkdir "$HOME/big"; head -c 3000000 /dev/zero >"$HOME/big/file"; "$0" report step=1 --checkpoint "$HOME/big" || echo rank $RANK has saved nothing'
            finished = self.assert_status(0, self.slurm.run("head", "salloc", "--quiet", *nodes, COMMAND, "run", "--storage-path", "/tmp/full/runs", "--name", "full",
                                                            "--progress", "none", *run, "--", "sh", "-c", script, COMMAND))
            self.assertEqual({"[rank 0] rank 0 has saved nothing", "[rank 1] rank 1 has saved nothing"}, set(finished.out.splitlines()))
            self.assertIn("No space left on device", finished.err)
            self.assertNotIn("checkpoint_", self.slurm.run("head", "ls", "/tmp/full/runs/full").out)
        self.nothing_left()

    def test_batch_jobs(self):
        self.slurm = Slurm(self)
        submit = ["submit", "--storage-path", self.storage, "-n", "2", "--placement", "SPREAD"]
        with self.subTest("a job that ends well"):
            finished = self.assert_status(0, self.slurm.trainyard("head", *submit, "--name", "one", "--", "sh", "-c", "echo on $TRAINYARD_NODE"))
            self.assertRegex(finished.out, r"^job \d+, run one\n$")
            self.assertIn("`trainyard status --storage-path %s one`" % self.storage, finished.err)
            self.nothing_left()
            logs = self.slurm.trainyard("head", "logs", "--storage-path", self.storage, "one").out
            self.assertIn("on h1", logs)
            self.assertIn("on h2", logs)
            again = self.slurm.trainyard("head", *submit, "--name", "one", "--", "true")
            self.assert_status(2, again)
            self.assert_line(again, "submit", "one", "--resume")
        with self.subTest("of a job that is over by then nothing is said to end it"):
            os.mkdir(os.path.join(self.place, "says"))
            squeue = self.write(os.path.join("says", "squeue"), "#!/bin/sh\necho 'FAILED|NonZeroExitCode|N/A'\n")
            os.chmod(squeue, 0o755)
            path = "PATH=%s:%s" % (os.path.dirname(squeue), self.environment["PATH"])
            finished = self.assert_status(0, self.slurm.run("head", "env", path, COMMAND, *submit, "--name", "over", "--", "true"))
            self.assertRegex(finished.err, r"job \d+ is FAILED; `trainyard status .*over` shows it; its own output is in .*\.out\n")
            self.assertNotIn("scancel", finished.err)
            self.nothing_left()
        with self.subTest("why it waits is told in words"):
            holder = self.slurm.start("head", "srun", "-N6", "--exclusive", "sh", "-c", "echo on; exec sleep 1000")
            for _ in range(6):
                self.assertEqual("on\n", holder.stdout.readline())
            finished = self.slurm.trainyard("head", *submit, "--name", "two", "--", "true")
            self.assertRegex(finished.err, r"job \d+ waits: (other jobs hold what it needs|jobs before it|Slurm has not looked)")
            shown = self.slurm.trainyard("head", "status", "--storage-path", self.storage, "two")
            self.assertRegex(self.assert_status(0, shown).out, r"^run +two\nstate +pending\njob +\d+ waits: (other jobs|jobs before|Slurm has not).*\noutput +%s/two" % self.storage)
            logs = self.slurm.trainyard("head", "logs", "--storage-path", self.storage, "two")
            self.assert_status(2, logs)
            self.assert_line(logs, "logs", "two has not begun", "waits: ", "two.slurm-")
            self.slurm.run("head", "scancel", "--user", str(os.getuid()))
            holder.communicate()
            self.nothing_left()
        with self.subTest("and behind a time at which it is to begin, as that it was cancelled"):
            finished = self.slurm.trainyard("head", *submit, "--name", "later", "--slurm-option", "begin=now+1hour", "--", "true")
            job = re.match(r"job (\d+), run later\n", self.assert_status(0, finished).out)[1]
            told = r"waits: it may not begin yet.* \(BeginTime\), not before \d{4}-"
            self.wait_for(lambda: re.search(told, self.slurm.trainyard("head", "status", "--storage-path", self.storage, "later").out), "the time")
            shown = self.slurm.trainyard("head", "status", "--storage-path", self.storage, "later", "--format", "json").json
            self.assertEqual(("later", "pending", int(job), "%s/later.slurm-%s.out" % (self.storage, job)),
                             (shown["name"], shown["state"], shown["job"], shown["output"]))
            self.slurm.run("head", "scancel", job)
            shown = self.slurm.trainyard("head", "status", "--storage-path", self.storage, "later")
            self.assertRegex(self.assert_status(0, shown).out, r"state +not begun\njob +%s is CANCELLED\n" % job)
            self.assert_line(self.slurm.trainyard("head", "status", "--storage-path", self.storage, "earlier"), "status", "no run 'earlier'")
            self.nothing_left()
        with self.subTest("others want the machines, and then the time is over: workers save, the job goes back, the run goes on"):
            self.slurm.trainyard("head", *submit, "--name", "three", "--", "sh", "-c", SAVES, env={"PLACE": self.place, "TRAINYARD": COMMAND})
            self.began(1)
            job = self.slurm.run("head", "squeue", "--noheader", "--format=%i").out.strip()
            self.assert_status(0, self.slurm.run("head", "srun", "--quiet", "--partition=urgent", "-N6", "--exclusive", "true"))
            self.wait_for(lambda: "\njob          %s waits: " % job in self.slurm.trainyard("head", "status", "--storage-path", self.storage, "three").out,
                          "that the job waits")
            self.start_again(job, 1)
            self.began(2)
            self.slurm.run("head", "scancel", "--batch", "--signal=USR1", job)  # as --signal=B:USR1 does before the end of its time
            self.start_again(job, 2)
            self.wait_for(lambda: "rank 1 is at 3" in self.slurm.trainyard("head", "logs", "--storage-path", self.storage, "three").out,
                          "the run to go on")
            self.nothing_left()
            status = self.slurm.trainyard("head", "status", "--storage-path", self.storage, "three", "--format", "json").json
            self.assertEqual(("succeeded", 2), (status["state"], status["checkpoints"]), status)

        with self.subTest("each job of an array is a program of its own"):
            self.assert_status(0, self.slurm.trainyard("head", *submit, "--name", "many", "--slurm-option", "array=0-1", "--fit", "--",
                                                       "sh", "-c", "echo $SLURM_ARRAY_TASK_ID on $SLURM_JOB_NUM_NODES $TRAINYARD_ENGINE"))
            self.nothing_left()
            said = []
            for name in os.listdir(self.storage):
                if name.startswith("many.slurm-"):
                    with open(os.path.join(self.storage, name)) as file:
                        said.append(file.read())
            self.assertEqual(["0 on 2 slurm\n", "1 on 2 slurm\n"], sorted(said))
        with self.subTest("a program with fit() saves when its time is over, and goes on"):
            for name in ("began-1-0", "began-1-1", "began-2-0", "began-2-1"):
                os.unlink(os.path.join(self.place, name))
            for name in ("1-0", "1-1", "2-0", "2-1"):
                shutil.rmtree(os.path.join(self.place, name))
            self.assert_status(0, self.slurm.trainyard("head", *submit, "--env", "PLACE=" + self.place, "--env",
                                                       "PYTHONPATH=" + os.path.join(BUILD, "python"), "--fit", "--", os.path.join(SCRIPTS, "python"), self.write("fit.py", FIT)))
            self.began(1)
            job = self.slurm.run("head", "squeue", "--noheader", "--format=%i").out.strip()
            self.slurm.run("head", "scancel", "--batch", "--signal=USR1", job)
            self.start_again(job, 1)
            self.began(2)
            self.nothing_left()
            status = self.slurm.trainyard("head", "status", "--storage-path", self.storage, "fitted", "--format", "json").json
            self.assertEqual(("succeeded", 2, "slurm"), (status["state"], status["checkpoints"], self.rows("fitted", "SELECT data->>'engine' FROM events WHERE kind = 'run'")[-1]), status)

    def began(self, step):
        for rank in range(2):
            self.wait_for(lambda: os.path.exists(os.path.join(self.place, "began-%d-%d" % (step, rank))), "step %d of rank %d" % (step, rank))

    def start_again(self, job, times):
        """In place of two minutes; but not in the second in which it was ended, which is how far a node tells its starts apart. A job that
        had not quite ended is given the two minutes once more, so this is said again."""
        self.wait_for(lambda: "Restarts=%d" % times in self.slurm.run("head", "scontrol", "show", "job", job).out, "the requeue")
        said = [0]

        def starts():
            state = self.slurm.run("head", "squeue", "--noheader", "--states=all", "--jobs", job, "--format=%T").out
            if state == "PENDING\n" and time.monotonic() > said[0] + 6:
                self.slurm.run("head", "scontrol", "update", "JobId=" + job, "StartTime=now+3")
                said[0] = time.monotonic()
            return state in ("RUNNING\n", "COMPLETED\n")

        self.wait_for(starts, "its start", seconds=180)


if __name__ == "__main__":
    main(side_by_side=2)
