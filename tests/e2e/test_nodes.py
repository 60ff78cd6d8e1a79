"""`run --cluster FILE`: logical nodes, one agent each, with real processes; what workers find is what the plan says."""

import json
import os
import random
import re
import signal

from harness import Case, main, processes_with

SHOWN = ["RANK", "WORLD_SIZE", "NODE_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "CUDA_VISIBLE_DEVICES",
         "TRAINYARD_DEVICES", "TPU_VISIBLE_CHIPS", "MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_PORT", "MEGASCALE_NUM_SLICES",
         "MEGASCALE_SLICE_ID", "MASTER_ADDR", "MASTER_PORT"]
SHOW = "echo " + " ".join("%s=${%s-unset}" % (name, name) for name in SHOWN)


def cluster_of(nodes):
    return json.dumps({"nodes": nodes})


def tpu_hosts(slices, hosts, chips=4, pod="v6e-16", topology="4x4"):
    """The hosts of slices by name, as a TPU cluster advertises them."""
    return [{"name": "%s-%d" % (name, host), "resources": {"CPU": 8, "TPU": chips}, "accelerator_type": "TPU-V6E",
             "labels": {"ray.io/tpu-slice-name": name, "ray.io/tpu-worker-id": str(host), "ray.io/tpu-pod-type": pod,
                        "ray.io/tpu-topology": topology}}
            for name in slices for host in range(hosts)]


class NodeCase(Case):
    def workers(self, nodes, *args, env=None):
        """What each worker finds, by rank."""
        path = self.write("cluster.json", cluster_of(nodes))
        finished = self.assert_status(0, self.run_workers("--cluster", path, *args, "--", "sh", "-c", SHOW, env=env))
        found = {}
        for line in finished.out.splitlines():
            rank, words = re.fullmatch(r"\[rank (\d+)\] (.*)", line).groups()
            found[int(rank)] = dict(word.split("=", 1) for word in words.split())
        self.assertEqual(sorted(found), list(range(len(found))))
        return [found[rank] for rank in range(len(found))]

    def plan(self, nodes, *args):
        path = self.write("cluster.json", cluster_of(nodes))
        return self.trainyard("plan", "--cluster", path, "--format", "json", *args).json

    def assert_as_planned(self, plan, workers):
        self.assertEqual(len(plan["workers"]), len(workers))
        nodes = {worker["node"] for worker in plan["workers"]}
        for rank, (planned, worker) in enumerate(zip(plan["workers"], workers)):
            self.assertEqual(planned["rank"], rank)
            for key in ("rank", "node_rank", "local_rank", "local_world_size"):
                self.assertEqual(str(planned[key]), worker[key.upper()], (rank, key))
            self.assertEqual(str(len(workers)), worker["WORLD_SIZE"])
            self.assertEqual(str(len(nodes)), worker["GROUP_WORLD_SIZE"])
            self.assertEqual(planned["env"].get("CUDA_VISIBLE_DEVICES", "unset"), worker["CUDA_VISIBLE_DEVICES"])


class Nodes(NodeCase):
    def test_ranks_go_node_by_node(self):
        workers = self.workers([{"name": "a", "resources": {"CPU": 2}}, {"name": "b", "resources": {"CPU": 3}}], "-n", 5)
        places = [(w["NODE_RANK"], w["LOCAL_RANK"], w["LOCAL_WORLD_SIZE"]) for w in workers]
        self.assertEqual([("0", "0", "3"), ("0", "1", "3"), ("0", "2", "3"), ("1", "0", "2"), ("1", "1", "2")], places)
        self.assertEqual(1, len({(w["MASTER_ADDR"], w["MASTER_PORT"]) for w in workers}))

    def test_eight_nodes_share_their_own_devices(self):
        nodes = [{"name": "gpu[1-8]", "resources": {"CPU": 4, "GPU": 4}}]
        workers = self.workers(nodes, "-n", 16, "--use-gpu", "--resources", "GPU=2")
        for rank, worker in enumerate(workers):
            self.assertEqual(str(rank // 2), worker["NODE_RANK"])
            self.assertEqual("0,1,2,3", worker["CUDA_VISIBLE_DEVICES"])
            self.assertEqual("2,3" if rank % 2 else "0,1", worker["TRAINYARD_DEVICES"])

    def test_sixty_four_nodes(self):
        workers = self.workers([{"name": "n[01-64]", "resources": {"CPU": 2}}], "-n", 128)
        self.assertEqual([str(rank // 2) for rank in range(128)], [w["NODE_RANK"] for w in workers])
        logs = os.listdir(os.path.join(self.storage, os.listdir(self.storage)[0], "logs"))
        self.assertEqual(128, len([name for name in logs if name.startswith("rank-")]))

    def test_strategies_and_labels(self):
        nodes = [{"name": "e[1-2]", "resources": {"CPU": 4}, "labels": {"zone": "east"}},
                 {"name": "w[1-2]", "resources": {"CPU": 4}, "labels": {"zone": "west"}}]
        for args, expected in [
                (["-n", 4], ["0"] * 4),
                (["-n", 4, "--placement", "SPREAD"], ["0", "1", "2", "3"]),
                (["-n", 2, "--placement", "STRICT_SPREAD", "--label-selector", "zone=west"], ["0", "1"]),
                (["-n", 4, "--placement", "STRICT_PACK", "--label-selector", "zone=!east"], ["0"] * 4)]:
            plan = self.plan(nodes, *args)
            workers = self.workers(nodes, *args)
            self.assertEqual(expected, [w["NODE_RANK"] for w in workers], args)
            self.assert_as_planned(plan, workers)
            if "--label-selector" in args:
                self.assertTrue(all(w["node"].startswith("w") for w in plan["workers"]))

    def test_what_is_planned_is_what_runs(self):
        dice = random.Random(7)
        for _ in range(12):
            nodes = [{"name": "n%d" % i, "resources": {"CPU": dice.randint(1, 6), "GPU": dice.randint(0, 4)}}
                     for i in range(dice.randint(1, 5))]
            args = ["-n", dice.randint(1, 6), "--use-gpu", "--placement", dice.choice(["PACK", "SPREAD"]), "--resources",
                    "GPU=%s" % dice.choice(["0.25", "0.5", "1", "2"])]
            plan = self.plan(nodes, *args)
            if plan["feasible"]:
                self.assert_as_planned(plan, self.workers(nodes, *args))
            else:
                path = self.write("cluster.json", cluster_of(nodes))
                finished = self.assert_status(3, self.run_workers("--cluster", path, *args, "--", "true"))
                self.assertIn(plan["reason"], finished.err)

    def test_elastic_takes_what_fits(self):
        workers = self.workers([{"name": "n[1-3]", "resources": {"CPU": 2}}], "-n", "2:64")
        self.assertEqual(6, len(workers))

    def test_a_killed_agent_is_named_and_the_rest_ends(self):
        path = self.write("cluster.json", cluster_of([{"name": "n[1-4]", "resources": {"CPU": 1}}]))
        process = self.start_run("--cluster", path, "-n", 4, "--", "sh", "-c", "echo up; exec sleep 1000")
        for _ in range(4):
            process.stdout.readline()
        agents = [pid for pid in processes_with(self.place) if self.words(pid)[:2] == ["trainyard", "agent"]]
        self.assertEqual(4, len(agents))
        os.kill(self.agent_of("n3", agents), signal.SIGKILL)
        finished = self.finish(process)
        self.assert_status(5, finished)
        self.assertIn("n3", finished.err.splitlines()[0])
        self.assertIn("SIGKILL", finished.err.splitlines()[0])

    def words(self, pid):
        try:
            with open("/proc/%d/cmdline" % pid) as file:
                return file.read().split("\0")
        except OSError:
            return []


class Slices(NodeCase):
    def megascale(self, workers):
        return [(w["MEGASCALE_NUM_SLICES"], w["MEGASCALE_SLICE_ID"], w["MEGASCALE_PORT"]) for w in workers]

    def test_one_slice_has_no_megascale(self):
        args = ["-n", 4, "--use-tpu", "--topology", "4x4", "--accelerator-type", "TPU-V6E"]
        workers = self.workers(tpu_hosts(["s"], 4), *args, env={"MEGASCALE_NUM_SLICES": "9", "MEGASCALE_SLICE_ID": "3"})
        self.assertEqual([("unset", "unset", "unset")] * 4, self.megascale(workers))
        self.assertEqual(["0", "1", "2", "3"], [w["NODE_RANK"] for w in workers])

    def test_slices_are_numbered_by_name(self):
        args = ["-n", 8, "--use-tpu", "--topology", "4x4", "--accelerator-type", "TPU-V6E"]
        hosts = tpu_hosts(["beta", "alpha"], 4)
        workers = self.workers(hosts, *args)
        self.assertEqual([("2", str(rank // 4), "8081") for rank in range(8)], self.megascale(workers))
        self.assertEqual({workers[0]["MASTER_ADDR"]}, {w["MEGASCALE_COORDINATOR_ADDRESS"] for w in workers})
        plan = self.plan(hosts, *args)
        self.assertEqual(["alpha-%d" % i for i in range(4)] + ["beta-%d" % i for i in range(4)],
                         [w["node"] for w in plan["workers"]])

    def test_a_port_of_the_user_is_kept(self):
        args = ["-n", 8, "--use-tpu", "--topology", "4x4", "--accelerator-type", "TPU-V6E"]
        env = {"MEGASCALE_PORT": "9999", "MEGASCALE_NUM_SLICES": "7"}
        workers = self.workers(tpu_hosts(["a", "b"], 4), *args, env=env)
        self.assertEqual([("2", str(rank // 4), "9999") for rank in range(8)], self.megascale(workers))

    def test_fewer_chips_a_worker(self):
        hosts = tpu_hosts(["s"], 4)
        args = ["--use-tpu", "--topology", "4x4", "--accelerator-type", "TPU-V6E", "--resources"]
        four_a_host = self.workers(hosts, "-n", 16, *args, "TPU=1")
        self.assertEqual([str(rank % 4) for rank in range(16)], [w["TPU_VISIBLE_CHIPS"] for w in four_a_host])
        one_a_host = self.workers(hosts, "-n", 4, *args, "TPU=2")
        self.assertEqual([("0,1", str(rank)) for rank in range(4)], [(w["TPU_VISIBLE_CHIPS"], w["NODE_RANK"]) for w in one_a_host])

    def test_a_broken_slice_is_not_used(self):
        hosts = [host for host in tpu_hosts(["a", "b"], 4) if host["name"] != "a-2"]
        args = ["--use-tpu", "--topology", "4x4", "--accelerator-type", "TPU-V6E"]
        plan = self.plan(hosts, "-n", 4, *args)
        self.assertEqual({"b"}, {w["node"][0] for w in plan["workers"]})
        self.assertFalse(self.plan(hosts, "-n", 8, *args)["feasible"])


if __name__ == "__main__":
    main()
