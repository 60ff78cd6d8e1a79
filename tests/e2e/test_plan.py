"""`trainyard plan`: who goes where, in both formats, and why not (docs/design.md 5.3; docs/spec/placement.md 6.5, 6.6;
docs/spec/train-api.md 8)."""

import json
import os
import shlex
import subprocess

from harness import COMMAND, Case, main


def nodes(*kinds):
    """nodes({"CPU": 4}, {"CPU": 2, "GPU": 1}): n0 and n1 with these resources."""
    return {"nodes": [{"name": "n%d" % i, "resources": kind} for i, kind in enumerate(kinds)]}


class PlanCase(Case):
    def plan(self, cluster, *args, env=None):
        path = self.write("cluster.json", json.dumps(cluster))
        finished = self.trainyard("plan", "--cluster", path, "--format", "json", *args, env=env)
        for line in finished.err.splitlines():
            self.assertTrue(line.startswith("trainyard plan: warning: "), repr(finished))
        self.assertIn(finished.status, (0, 3), repr(finished))
        self.assertEqual(finished.json["feasible"], finished.status == 0, repr(finished))
        return finished.json

    def fits(self, cluster, *args, env=None):
        plan = self.plan(cluster, *args, env=env)
        self.assertTrue(plan["feasible"], plan)
        self.assertIsNone(plan["reason"])
        self.assertEqual([], plan["short"])
        self.assertEqual(list(range(len(plan["workers"]))), [worker["rank"] for worker in plan["workers"]])
        return plan

    def refused(self, verdict, cluster, *args):
        plan = self.plan(cluster, *args)
        self.assertFalse(plan["feasible"], plan)
        self.assertEqual(verdict, plan["verdict"])
        self.assertEqual([], plan["workers"])
        self.assertTrue(plan["reason"])
        self.assertNotIn("\n", plan["reason"])
        return plan


class Hints(Case):
    """What is short on this machine is told with the options that would help."""

    def reason(self, *args):
        finished = self.assert_status(3, self.trainyard("plan", "--num-cpus", "2", "--format", "json", *args))
        return finished.json["reason"]

    def test_more_of_it_or_less_for_each(self):
        self.assertIn("add 2 CPU (--num-cpus 4), or ask for less (--resources CPU=0.5)", self.reason("-n", "4"))
        self.assertIn("add 1 fast (--node-resources fast=2), or ask for less (--resources fast=0.5)",
                      self.reason("-n", "2", "--resources", "fast=1", "--node-resources", "fast=1"))

    def test_what_is_told_fits(self):
        for words in (["-n", "3"], ["-n", "7", "--resources", "CPU=1.5"], ["-n", "5", "--use-gpu", "--num-gpus", "2"]):
            with self.subTest(words):
                less = self.reason(*words).partition("or ask for less (--resources ")[2].rstrip(")")
                words = [word for word in words if not word.startswith(("--resources", "CPU="))]
                self.assert_status(0, self.trainyard("plan", "--num-cpus", "2", *words, "--resources", less))

    def test_amounts_are_amounts(self):
        self.assertTrue(self.reason("-n", "4").startswith("4 workers of 1 CPU need 4 CPU, the cluster has 2: "))
        self.assertIn("each 1 CPU", self.assert_status(0, self.trainyard("plan", "-n", "2", "--num-cpus", "2")).out)


class WholeEnvironment(Case):
    HOST = ("{name: s%d-%d, resources: {CPU: 8, TPU: 4}, accelerator_type: TPU-V6E, labels: {ray.io/tpu-slice-name: s%d, "
            "ray.io/tpu-worker-id: '%d', ray.io/tpu-topology: 4x4, ray.io/tpu-pod-type: v6e-16}}")

    def test_of_slices(self):
        hosts = [self.HOST % (s, h, s, h) for s in range(2) for h in range(4)]
        cluster = self.write("cluster.yaml", "nodes: [%s]\n" % ", ".join(hosts))
        words = ["plan", "--cluster", cluster, "-n", "8", "--use-tpu", "--topology", "4x4", "--accelerator-type", "TPU-V6E",
                 "--framework", "jax"]
        workers = self.assert_status(0, self.trainyard(*words, "--format", "json")).json["workers"]
        self.assertEqual([0] * 4 + [1] * 4, [worker["slice"] for worker in workers])
        for rank, worker in enumerate(workers):
            self.assertEqual((str(rank), "8"), (worker["env"]["RANK"], worker["env"]["WORLD_SIZE"]))
            self.assertEqual(("2", str(rank // 4)), (worker["env"]["MEGASCALE_NUM_SLICES"], worker["env"]["MEGASCALE_SLICE_ID"]))
            self.assertIn("TPU_NAME", worker["env"])
        text = self.assert_status(0, self.trainyard(*words)).out
        for rank, worker in enumerate(workers):
            part = text.partition("\nrank %d on %s, slice %d: s" % (rank, worker["node"], worker["slice"]))[2].partition("\nrank ")[0]
            self.assertEqual(sorted("%s=%s" % item for item in worker["env"].items()),
                             sorted(line.strip() for line in part.splitlines()[1:]))

    def test_is_what_a_worker_finds(self):
        for framework in ("plain", "torch", "tensorflow", "jax"):
            planned = self.assert_status(0, self.trainyard("plan", "-n", "2", "--num-cpus", "4", "--framework", framework, "--format",
                                                           "json")).json["workers"][1]["env"]
            finished = self.run_workers("-n", "2", "--framework", framework, "--no-prefix", "--", "sh", "-c", "[ $RANK = 0 ] || env")
            found = dict(line.split("=", 1) for line in self.assert_status(0, finished).out.splitlines() if "=" in line)
            for name, value in planned.items():
                if "(" in value:
                    self.assertIn(name, found)
                else:
                    self.assertEqual(value, found.get(name), name)

    def test_one_that_is_unknown(self):
        self.assert_usage(self.trainyard("plan", "--framework", "nope"), "plan", "--framework nope", "torch")


class Shape(PlanCase):
    def test_the_object(self):
        cluster = {"nodes": [{"name": "n1", "resources": {"CPU": 8, "GPU": 4}}, {"name": "n2", "resources": {"CPU": 8, "GPU": 4}}]}
        plan = self.fits(cluster, "-n", "4", "--use-gpu", "--resources", "CPU=4,GPU=2")
        self.assertEqual({"CPU": 4, "GPU": 2}, plan["per_worker"])
        self.assertEqual({"CPU": 16, "GPU": 8}, plan["total"])
        self.assertEqual({}, plan["trainer"])
        self.assertEqual([], plan["slices"])
        expected = [
            {"rank": 2 * node + local, "node": "n%d" % (node + 1), "node_rank": node, "local_rank": local, "local_world_size": 2,
             "devices": {"GPU": [2 * local, 2 * local + 1]}, "env": {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}}
            for node in range(2) for local in range(2)]
        self.assertEqual(expected, plan["workers"])

    def test_refusal(self):
        plan = self.refused("infeasible", nodes({"CPU": 8}), "--resources", "CPU=9")
        self.assertEqual([{"resource": "CPU", "need": 9, "have": 8}], plan["short"])
        self.assertIn("CPU", plan["reason"])

    def test_busy(self):
        cluster = {"nodes": [{"name": "a", "resources": {"CPU": 10}, "available": {"CPU": 4}}]}
        plan = self.refused("busy", cluster, "-n", "2", "--resources", "CPU=4")
        self.assertEqual("CPU", plan["short"][0]["resource"])

    def test_defaults(self):
        cluster = nodes({"CPU": 16, "GPU": 16})
        for args, per_worker, total in (
                ([], {"CPU": 1}, {"CPU": 1}),
                (["-n", "8"], {"CPU": 1}, {"CPU": 8}),
                (["-n", "8", "--use-gpu"], {"GPU": 1}, {"GPU": 8}),
                (["-n", "2", "--use-gpu", "--resources", "CPU=1"], {"CPU": 1, "GPU": 1}, {"CPU": 2, "GPU": 2}),
                (["-n", "4", "--use-gpu", "--resources", "CPU=4,GPU=0.5"], {"CPU": 4, "GPU": 0.5}, {"CPU": 16, "GPU": 2}),
                (["--use-gpu", "--resources", "CPU=0,GPU=1"], {"GPU": 1}, {"GPU": 1})):
            with self.subTest(args):
                plan = self.fits(cluster, *args)
                self.assertEqual(per_worker, plan["per_worker"])
                self.assertEqual(total, plan["total"])

    def test_one_domain(self):
        racks = [{"name": "%s-[01-%02d]" % (rack, n), "resources": {"CPU": 8, "GPU": 4}, "labels": {"gpu-domain": rack}}
                 for rack, n in (("small", 2), ("large", 18))]
        cluster = {"nodes": racks + [{"name": "alone", "resources": {"CPU": 800, "GPU": 400}}]}
        gang = ["--use-gpu", "--resources", "GPU=4,CPU=2"]
        for strategy in ("gpu-domain=STRICT_PACK", "gpu-domain=STRICT_PACK,node-id=SPREAD"):
            plan = self.fits(cluster, "-n", "15", *gang, "--topology-strategy", strategy)
            self.assertEqual(15, len({worker["node"] for worker in plan["workers"] if worker["node"].startswith("large-")}))
        plan = self.refused("infeasible", cluster, "-n", "19", *gang, "--topology-strategy", "gpu-domain=STRICT_PACK")
        self.assertIn("the most that one holds is 18", plan["reason"])
        path = self.write("cluster.json", json.dumps(cluster))
        elastic = self.trainyard("plan", "--cluster", path, "-n", "1:40", *gang, "--topology-strategy", "gpu-domain=STRICT_PACK")
        self.assertIn("18 workers on 18 nodes (PACK in one gpu-domain)", self.assert_status(0, elastic).out)
        for words, told in ((["gpu-domain"], "LABEL=STRICT_PACK"), (["gpu-domain=PACK"], "must be STRICT_PACK"),
                            (["node-id=PACK", "--placement", "SPREAD"], "--placement and --topology-strategy")):
            self.assert_usage(self.trainyard("plan", "--topology-strategy", *words), "plan", told)

    def test_trainer_resources_count(self):
        path = self.write("cluster.json", json.dumps(nodes({"CPU": 8})))
        finished = self.trainyard("plan", "--cluster", path, "--format", "json", "-n", "2", "--trainer-resources", "CPU=3")
        self.assert_status(0, finished)
        self.assertEqual({"CPU": 3}, finished.json["trainer"])
        self.assertEqual({"CPU": 5}, finished.json["total"])
        self.assert_line(finished, "plan", "warning", "--trainer-resources")

    def test_ranks_that_share_a_gpu_are_warned_of_where_nccl_may_be_used(self):
        for backend, warned in ((None, True), ("auto", True), ("nccl", True), ("gloo", False)):
            with self.subTest(backend=backend):
                config = {"scaling_config": {"num_workers": 2, "use_gpu": True, "resources_per_worker": {"GPU": 0.5}},
                          "run_config": {} if backend is None else {"backend": backend}}
                path = self.write("config.json", json.dumps(config))
                for command, *rest in (("plan",), ("run", "--storage-path", self.storage, "--", "true")):
                    finished = self.trainyard(command, "--config", path, "--num-gpus", 1, "--num-cpus", 1, *rest)
                    self.assert_status(0, finished)
                    self.assertEqual(int(warned), finished.err.count("warning: workers that hold less than one GPU share it"))

    def test_first_version_reserves_a_cpu(self):
        plan = self.fits(nodes({"CPU": 9}), "-n", "8", env={"RAY_TRAIN_V2_ENABLED": "0"})
        self.assertEqual({"CPU": 9}, plan["total"])
        self.assertEqual({"CPU": 1}, plan["trainer"])

    def test_elastic_takes_what_fits(self):
        for cpus, expected in ((2, 2), (5, 5), (8, 8), (20, 8)):
            with self.subTest(cpus):
                self.assertEqual(expected, len(self.fits(nodes({"CPU": cpus}), "-n", "2:8")["workers"]))
        self.refused("infeasible", nodes({"CPU": 1}), "-n", "2:8")

    def test_text_is_plain_off_a_terminal(self):
        path = self.write("cluster.json", json.dumps(nodes({"CPU": 4, "GPU": 2}, {"CPU": 4, "GPU": 2})))
        finished = self.assert_status(0, self.trainyard("plan", "--cluster", path, "-n", "4", "--use-gpu"))
        self.assertNotIn("\x1b", finished.out)
        self.assertIn("n0", finished.out)
        self.assertIn("n1", finished.out)
        refused = self.assert_status(3, self.trainyard("plan", "--cluster", path, "-n", "5", "--use-gpu"))
        self.assertIn("GPU", refused.out)

    def test_colour_on_a_terminal_only_where_wanted(self):
        path = self.write("cluster.json", json.dumps(nodes({"CPU": 4, "GPU": 2})))
        command = shlex.join([COMMAND, "plan", "--cluster", path, "-n", "2", "--use-gpu"])
        for changes, coloured in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            with self.subTest(changes):
                finished = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, text=True, check=True,
                                          env=self.environment_with(changes), stdin=subprocess.DEVNULL)
                self.assertEqual(coloured, "\x1b[" in finished.stdout, finished.stdout)

    def test_same_input_same_plan(self):
        cluster = nodes(*[{"CPU": 8 + i % 3, "GPU": i % 5} for i in range(40)])
        args = ["-n", "30", "--use-gpu", "--placement", "SPREAD"]
        self.assertEqual(self.plan(cluster, *args), self.plan(cluster, *args))


F, I = "busy", "infeasible"  # noqa: E741 (as the vectors of the specification write them)
STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")

# name: cluster, arguments, and for each strategy the workers per node, or the verdict: busy only where it fits once others finish,
# which is narrower than the "failed" of the specification
PLACEMENTS = {
    "P4": (nodes(*[{"CPU": 8, "GPU": 4}] * 3), ["-n", "6", "--use-gpu", "--resources", "CPU=1,GPU=2"], [2, 2, 2], [2, 2, 2], I, I),
    "P5": (nodes({"CPU": 8, "GPU": 4}, {"CPU": 8, "GPU": 8}), ["-n", "4", "--use-gpu", "--resources", "CPU=1,GPU=2"], [0, 4], [1, 3],
           [0, 4], I),
    "P8": (nodes({"CPU": 8}, {"CPU": 2}, {"CPU": 4}), ["-n", "2", "--resources", "CPU=2"], [2, 0, 0], [1, 0, 1], [2, 0, 0], [1, 0, 1]),
    "P10": (nodes({"CPU": 10}, {"CPU": 10}), ["-n", "15"], [10, 5], [8, 7], I, I),
    "P11": (nodes(*[{"CPU": 4}] * 3), ["--resources", "CPU=5"], I, I, I, I),
    "P14": (nodes({"CPU": 4, "GPU": 1}, {"CPU": 4, "GPU": 1}), ["-n", "4", "--use-gpu", "--resources", "CPU=1,GPU=0.5"], [2, 2], [2, 2],
            I, I),
    "P16": ({"nodes": [{"name": "n0", "resources": {"CPU": 10}, "available": {"CPU": 4}}]}, ["-n", "2", "--resources", "CPU=4"], F, F, F, I),
    "P17": ({"nodes": [{"name": "n0", "resources": {"CPU": 8, "GPU": 4}, "available": {"GPU": 2}},
                       {"name": "n1", "resources": {"CPU": 8, "GPU": 4}}]}, ["-n", "3", "--use-gpu"], [0, 3], [1, 2], [0, 3], I),
    "P26a": (nodes({"CPU": 2}), ["-n", "2", "--resources", "CPU=2"], I, I, I, I),
    "P26c": (nodes({"CPU": 2}, {"CPU": 1}, {"CPU": 10}), ["-n", "2", "--resources", "CPU=2"], None, None, None, [1, 0, 1]),
    "L10": (nodes({"CPU": 2}), ["--resources", "CPU=1,object_store_memory=1"], I, I, I, I),
    "L11": (nodes({"CPU": 2, "GPU": 1}), ["--use-gpu", "--accelerator-type", "A100"], I, I, I, I),
}


class Placement(PlanCase):
    def test_vectors(self):
        for name, (cluster, args, *expected) in PLACEMENTS.items():
            for strategy, one in zip(STRATEGIES, expected):
                with self.subTest(name=name, strategy=strategy):
                    if one is None:
                        continue
                    if isinstance(one, str):
                        self.refused(one, cluster, "--placement", strategy, *args)
                        continue
                    plan = self.fits(cluster, "--placement", strategy, *args)
                    counts = [sum(worker["node"] == node["name"] for worker in plan["workers"]) for node in cluster["nodes"]]
                    self.assertEqual(one, counts)

    def test_labels(self):
        cluster = {"nodes": [{"name": "a", "resources": {"CPU": 4}, "labels": {"zone": "a", "type": "T4"}},
                             {"name": "b", "resources": {"CPU": 4}, "labels": {"zone": "b", "type": "A100"}},
                             {"name": "c", "resources": {"CPU": 4}}]}
        for selector, expected in (("zone=a", {"a"}), ("zone=in(a,b)", {"a", "b"}), ("zone=!a", {"b", "c"}), ("zone=!in(a,b)", {"c"}),
                                   ("zone=in(a,b),type=!T4", {"b"})):
            with self.subTest(selector):
                workers = self.fits(cluster, "-n", str(len(expected)), "--placement", "SPREAD", "--label-selector", selector)["workers"]
                self.assertEqual(expected, {worker["node"] for worker in workers})
        self.refused("infeasible", cluster, "--label-selector", "zone=z")

    def test_ten_tenths_fill_one_device(self):
        plan = self.fits(nodes({"CPU": 16, "GPU": 2}), "-n", "10", "--use-gpu", "--resources", "GPU=0.1")
        self.assertEqual([[0]] * 10, [worker["devices"]["GPU"] for worker in plan["workers"]])

    def test_fractions_of_two_nodes(self):
        plan = self.fits(nodes(*[{"CPU": 8, "GPU": 2}] * 2), "-n", "8", "--use-gpu", "--resources", "GPU=0.5")
        self.assertEqual([[0], [0], [1], [1]] * 2, [worker["devices"]["GPU"] for worker in plan["workers"]])

    def test_visible_devices_are_those_of_the_run_on_the_node(self):
        plan = self.fits(nodes({"CPU": 8, "GPU": 4}, {"CPU": 8, "GPU": 1}, {"CPU": 8, "GPU": 1}), "-n", "6", "--use-gpu")
        self.assertEqual(["0,1,2,3"] * 4 + ["0"] * 2, [worker["env"]["CUDA_VISIBLE_DEVICES"] for worker in plan["workers"]])

    def test_host_lists(self):
        cluster = {"nodes": [{"name": "gpu[01-04]", "resources": {"CPU": 4, "GPU": 8}, "accelerator_type": "A100"}]}
        plan = self.fits(cluster, "-n", "32", "--use-gpu", "--accelerator-type", "A100")
        self.assertEqual(["gpu01", "gpu02", "gpu03", "gpu04"], sorted({worker["node"] for worker in plan["workers"]}))
        self.assertEqual(0.032, plan["total"]["accelerator_type:A100"])


def slice_hosts(name, pod, topology, hosts, chips, kind="TPU-V6E"):
    return [{"name": "%s-%d" % (name, i), "resources": {"CPU": 8, "TPU": chips}, "accelerator_type": kind,
             "labels": {"ray.io/tpu-slice-name": name, "ray.io/tpu-worker-id": str(i), "ray.io/tpu-topology": topology,
                        "ray.io/tpu-pod-type": pod}} for i in range(hosts)]


class Slices(PlanCase):
    ARGS = ["--use-tpu", "--topology", "4x4", "--accelerator-type", "TPU-V6E"]

    def test_one_slice(self):
        plan = self.fits({"nodes": slice_hosts("s", "v6e-16", "4x4", 4, 4)}, "-n", "4", *self.ARGS)
        self.assertEqual(["s-%d" % i for i in range(4)], [worker["node"] for worker in plan["workers"]])
        self.assertEqual(1, len(plan["slices"]))
        self.assertEqual({"CPU": 1, "TPU": 4, "accelerator_type:TPU-V6E": 0.001}, plan["per_worker"])

    def test_two_slices_in_name_order(self):
        cluster = {"nodes": slice_hosts("y", "v6e-16", "4x4", 4, 4) + slice_hosts("x", "v6e-16", "4x4", 4, 4)}
        plan = self.fits(cluster, "-n", "8", *self.ARGS)
        self.assertEqual(2, len(plan["slices"]))
        self.assertEqual({"x"}, {worker["node"].split("-")[0] for worker in plan["workers"][:4]})

    def test_broken_slice_is_refused(self):
        self.refused("infeasible", {"nodes": slice_hosts("s", "v6e-16", "4x4", 3, 4)}, "-n", "4", *self.ARGS)

    def test_workers_never_span_slices_in_part(self):
        cluster = {"nodes": slice_hosts("a", "v6e-16", "4x4", 2, 4) + slice_hosts("b", "v6e-16", "4x4", 2, 4)}
        self.refused("infeasible", cluster, "-n", "4", *self.ARGS)


class ThisMachine(PlanCase):
    def test_one_worker(self):
        finished = self.assert_status(0, self.trainyard("plan", "--format", "json"))
        self.assertEqual(os.uname().nodename, finished.json["workers"][0]["node"])

    def test_overrides(self):
        finished = self.trainyard("plan", "--num-gpus", "8", "--num-cpus", "64", "--node-resources", "disk=2", "-n", "8", "--use-gpu",
                                  "--resources", "CPU=8,disk=0.25", "--format", "json")
        workers = self.assert_status(0, finished).json["workers"]
        self.assertEqual([[i] for i in range(8)], [worker["devices"]["GPU"] for worker in workers])

    def test_no_gpu_here(self):
        finished = self.trainyard("plan", "--num-gpus", "0", "--use-gpu", "--format", "json")
        self.assert_status(3, finished)
        self.assertEqual([{"resource": "GPU", "need": 1, "have": 0}], finished.json["short"])

    def test_more_than_the_mask_names(self):
        finished = self.trainyard("plan", "--num-gpus", "3", env={"CUDA_VISIBLE_DEVICES": "0,1"})
        self.assert_usage(finished, "plan", "CUDA_VISIBLE_DEVICES")

    def test_nothing_is_made(self):
        self.trainyard("plan", "-n", "2", "--use-gpu", "--num-gpus", "2")
        self.assert_nothing_made()


class Config(PlanCase):
    def test_fields_and_sections_and_options_on_top(self):
        cluster = nodes({"CPU": 64, "GPU": 8})
        fields = {"num_workers": 2, "use_gpu": True, "resources_per_worker": {"CPU": 2, "GPU": 2}, "placement_strategy": "SPREAD"}
        flat = self.write("flat.json", json.dumps(fields))
        parts = self.write("parts.yaml", "scaling_config: %s\nrun_config: {name: x, failure_config: {max_failures: 1}}\n" % json.dumps(fields))
        for path in (flat, parts):
            with self.subTest(path):
                plan = self.fits(cluster, "--config", path)
                self.assertEqual({"CPU": 2, "GPU": 2}, plan["per_worker"])
                self.assertEqual({"CPU": 4, "GPU": 4}, plan["total"])
                plan = self.fits(cluster, "-n", "3", "--config", path, "--resources", "GPU=1")
                self.assertEqual({"GPU": 1}, plan["per_worker"])
                self.assertEqual({"GPU": 3}, plan["total"])

    def test_elastic(self):
        path = self.write("c.yaml", "num_workers: [2, 8]\n")
        self.assertEqual(5, len(self.fits(nodes({"CPU": 5}), "--config", path)["workers"]))

    def test_selector_for_each_worker(self):
        path = self.write("c.yaml", "num_workers: 2\nlabel_selector: [{zone: b}, {zone: a}]\n")
        cluster = {"nodes": [{"name": z, "resources": {"CPU": 4}, "labels": {"zone": z}} for z in "ab"]}
        self.assertEqual({"a", "b"}, {worker["node"] for worker in self.fits(cluster, "--config", path)["workers"]})


if __name__ == "__main__":
    main()
