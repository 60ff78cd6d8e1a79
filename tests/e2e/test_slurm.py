"""Slurm: what a demand is asked for with is granted, and what can never be is refused before; on a real Slurm of six nodes
(scripts/slurm; docs/spec/slurm.md 4.1 and 6.8)."""

import os
import re
import shlex
import shutil

from harness import BUILD, COMMAND, Case, main
from hosts import Slurm

SHOW = 'echo "$SLURM_PROCID $SLURMD_NODENAME ${CUDA_VISIBLE_DEVICES-unset}"'


class Requests(Case):
    def request(self, *args, status=0):
        """The options that `plan` says Slurm is asked for."""
        finished = self.slurm.trainyard("head", "plan", "--engine", "slurm", "--format", "json", *args)
        self.assert_status(status, finished)
        lines = finished.json["request"]
        self.assertTrue(all(line["why"] or line["option"] == "time" for line in lines), lines)
        return ["--" + line["option"] + ("=" + line["value"] if line["value"] is not None else "") for line in lines], finished.json

    def granted(self, *args):
        """What the tasks of such a request see: {rank: (node, devices)}."""
        words, plan = self.request(*args)
        finished = self.assert_status(0, self.slurm.run("head", "srun", "--quiet", *words, "sh", "-c", SHOW))
        tasks = {int(rank): (node, devices) for rank, node, devices in map(str.split, finished.out.splitlines())}
        self.assertEqual(len(plan["workers"]), len(tasks), finished)
        return tasks

    def assert_nodes(self, numbers, names, of=("h1", "h2", "h3", "h4")):
        """The tasks are on as many nodes of those as there are numbers, alike. Which ones is Slurm's choice: where a node has not yet
        let go of the job before, another rack is taken."""
        numbered = {name: i for i, name in enumerate(dict.fromkeys(names))}
        self.assertEqual(numbers, [numbered[name] for name in names], names)
        self.assertLessEqual(set(names), set(of))

    def test_slurm_grants_what_is_asked_for(self):
        self.slurm = Slurm(self)
        with self.subTest("typed GPUs, several tasks on a node: S4, S5"):
            tasks = self.granted("-n", "2", "--use-gpu", "--resources", "GPU=2", "--accelerator-type", "A100", "--placement", "STRICT_PACK")
            self.assert_nodes([0, 0], [tasks[rank][0] for rank in range(2)])
            self.assertEqual(["0,1", "2,3"], [tasks[rank][1] for rank in range(2)])
        with self.subTest("PACK fills a node, then the next: S7"):
            tasks = self.granted("-n", "6", "--use-gpu", "--accelerator-type", "A100")
            self.assert_nodes([0] * 4 + [1] * 2, [tasks[rank][0] for rank in range(6)])
        with self.subTest("SPREAD with GPUs, which --spread-job does not do: S9"):
            tasks = self.granted("-n", "4", "--use-gpu", "--placement", "SPREAD")
            self.assertEqual(4, len({node for node, _ in tasks.values()}))
        with self.subTest("a part of a GPU is shards"):
            tasks = self.granted("-n", "2", "--use-gpu", "--resources", "GPU=0.5")
            self.assert_nodes([0, 0], [tasks[rank][0] for rank in range(2)])
            self.assertEqual(["0", "0"], [tasks[rank][1] for rank in range(2)])
        with self.subTest("features, one of several, and none of them"):
            for selector, nodes in (("rack=rack2", "h5 h6"), ("rack=!rack1", "h5 h6"), ("rack=in(rack1,rack2),kind=a100", "h1 h2 h3 h4")):
                tasks = self.granted("-n", "2", "--label-selector", selector, "--placement", "SPREAD")
                self.assertLessEqual({node for node, _ in tasks.values()}, set(nodes.split()))
        with self.subTest("licences are the cluster's: S17, S18"):
            self.granted("-n", "2", "--resources", "CPU=1,tpuslice=1")
            finished = self.slurm.trainyard("head", "plan", "--engine", "slurm", "-n", "3", "--resources", "CPU=1,tpuslice=1")
            self.assert_status(3, finished)
            self.assert_line(finished, "plan", "licence tpuslice", "3", "2")
        with self.subTest("memory of a worker by its CPUs"):
            self.granted("-n", "3", "--resources", "CPU=2,memory=3GiB")
        with self.subTest("what can never be is refused with what is short: S11-S14"):
            for args, word in ((["-n", "17", "--use-gpu", "--accelerator-type", "A100"], "GPU"), (["-n", "49"], "CPU"),
                               (["-n", "5", "--placement", "STRICT_SPREAD", "--use-gpu", "--accelerator-type", "A100"], None),
                               (["-n", "1", "--use-gpu", "--accelerator-type", "V100"], None)):
                _, plan = self.request(*args, status=3)
                self.assertEqual(("infeasible", []), (plan["verdict"], plan["request"]))
                if word:
                    self.assertIn(word, [short["resource"] for short in plan["short"]])
        with self.subTest("what others hold is busy"):
            holder = self.slurm.start("head", "srun", "-N6", "-n6", "--ntasks-per-node=1", "--exclusive", "sh", "-c", "echo on; read x", stdin=-1)
            for _ in range(6):
                self.assertEqual("on\n", holder.stdout.readline())
            words, plan = self.request("-n", "2", "--use-gpu", status=3)
            self.assertEqual("busy", plan["verdict"])
            self.assertIn("--ntasks=2", words)
            self.slurm.run("head", "scancel", "--user=root")
            holder.communicate()
        with self.subTest("an allocation is read: its nodes, and what of them"):
            plan = self.slurm.run("head", "salloc", "--quiet", "-N2", "--ntasks-per-node=2", "--gpus-per-node=a100:2", COMMAND, "plan", "--engine",
                                  "slurm", "-n", "4", "--use-gpu", "--format", "json").json
            self.assert_nodes([0, 0, 1, 1], [worker["node"] for worker in plan["workers"]])
            self.assertEqual([["0"], ["1"], ["0"], ["1"]], [[str(i) for i in worker["devices"]["GPU"]] for worker in plan["workers"]])
            self.assertEqual([], plan["request"])
        with self.subTest("a batch script that Slurm takes"):
            script = self.slurm.trainyard("head", "submit", "--print-script", "-n", "2", "--name", "a b", "--storage-path", self.storage,
                                          "--slurm-option", 'comment=say "a b"', "--slurm-option", "time=5", "--", "prog", "it's").out
            self.assertTrue(script.startswith("#!/bin/sh\n#SBATCH "))
            path = self.write("job.sh", script)
            job = self.assert_status(0, self.slurm.run("head", "sbatch", "--parsable", "--hold", path)).out.strip()
            shown = self.slurm.run("head", "scontrol", "show", "job", job).out
            for field in ("JobName=a b", 'Comment=say "a b"', "TimeLimit=00:05:00", "NumTasks=2", "Requeue=1"):
                self.assertIn(field, shown)
            self.assertEqual(self.storage + "/a b.slurm-" + job + ".out", re.search("StdOut=(.*)", shown)[1])
            self.assertFalse(os.path.exists(self.storage), "printing made something")
            self.slurm.run("head", "scancel", job)
        with self.subTest("a run is no job array"):
            refused = self.slurm.trainyard("head", "submit", "--print-script", "--storage-path", self.storage, "--slurm-option", "a=0-3", "--", "prog")
            self.assert_status(2, refused)
            self.assert_line(refused, "submit", "--slurm-option array", "--name")
        with self.subTest("a batch script of a program with fit()"):
            fit = ("submit", "--print-script", "-n", "2", "--storage-path", self.storage, "--fit")
            script = self.slurm.trainyard("head", *fit, "--env", "A=it's $B", "--", "prog", "it's").out
            line = next(line for line in script.splitlines() if line.endswith(" &"))
            self.assertEqual(["TRAINYARD_ENGINE=slurm", "TRAINYARD_STORAGE=" + self.storage, "A=it's $B", "prog", "it's", "&"], shlex.split(line))
            refused = self.slurm.trainyard("head", *fit, "--max-failures", "3", "--", "prog")
            self.assert_status(2, refused)
            self.assert_line(refused, "submit", "--max-failures", "RunConfig")
        with self.subTest("a command whose path has a quote"):
            copy = os.path.join(self.place, "it's")
            os.mkdir(copy)
            shutil.copy(COMMAND, copy)
            copy = os.path.join(copy, "trainyard")
            script = self.slurm.run("head", copy, "submit", "--print-script", "--storage-path", self.storage, "--", "prog", "it's",
                                    env={"LD_LIBRARY_PATH": BUILD}).out
            words = shlex.split(script, comments=True)
            self.assertEqual([copy, "run"], words[words.index(copy):][:2])
            self.assertIn("it's", words)


class Without(Case):
    def test_there_is_no_slurm(self):
        for command in ("plan", "submit"):
            tail = ["--", "true"] if command == "submit" else ["--engine", "slurm"]
            finished = self.trainyard(command, *tail, env={"PATH": self.place})
            self.assertEqual(1, finished.status, finished)
            self.assert_line(finished, command, "slurm", "scontrol")
        self.assert_nothing_made()

    def test_an_allocation_of_which_scontrol_tells_nothing_is_known_by_the_environment(self):
        env = {"PATH": self.place, "SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "rack[1-2]-n[09-10],x", "SLURM_JOB_CPUS_PER_NODE": "1(x3),2,4", "SLURM_GPUS_PER_NODE": "a100:1"}
        plan = self.assert_status(0, self.trainyard("plan", "--engine", "slurm", "-n", "5", "--use-gpu", "--placement", "SPREAD", "--format", "json", env=env)).json
        self.assertEqual({"rack1-n09", "rack1-n10", "rack2-n09", "rack2-n10", "x"}, {worker["node"] for worker in plan["workers"]})
        refused = self.trainyard("submit", "--", "true", env=env)
        self.assert_status(2, refused)
        self.assert_line(refused, "submit", "job 9", "unset SLURM_JOB_ID")


if __name__ == "__main__":
    main()
