"""`trainyard kube`: manifests (docs/spec/kubernetes.md 5), against the schemas that Kubernetes publishes; what cannot be; a stand-in
for kubectl."""

import ast
import json
import os
import re
import signal
import stat
import subprocess
import sys
import unittest

import kubernetes_validate
import yaml
from harness import BUILD, COMMAND, Case, main
from hosts import Hosts

GKE = "cloud.google.com/"
KUBECTL = """#!/usr/bin/env python3
import json, os, sys
place = os.environ["STAND_IN"]
words = sys.argv[1:]
with open(os.path.join(place, "calls"), "a") as file:
    file.write(repr(words) + "\\n")
if "apply" in words:
    with open(os.path.join(place, "applied"), "w") as file:
        file.write(sys.stdin.read())
    sys.exit(int(os.environ.get("APPLY_STATUS", "0")) and (print("error: you must be logged in", file=sys.stderr) or 1))
if "get" in words and "pods" not in words:
    sys.stdout.write(open(os.path.join(place, "job" if words[-1].startswith("jsonpath") else "there")).read())
elif "get" in words:
    answers = open(os.path.join(place, "answers")).read().splitlines()
    if answers[0] == "null":  # a server that does not answer
        with open(os.path.join(place, "answers"), "w") as file:
            file.write("\\n".join(answers[1:]))
        sys.exit("Unable to connect to the server")
    pods = [{"metadata": {"name": f"trainyard-0-{i}"}, "status": status} for i, status in enumerate(json.loads(answers[0]))]
    print(json.dumps({"kind": "List", "items": pods}))
    with open(os.path.join(place, "answers"), "w") as file:
        file.write("\\n".join(answers[1:] or answers))
if "logs" in words:
    told = json.load(open(os.path.join(place, "logs")))
    with open(os.path.join(place, "logs"), "w") as file:
        json.dump(told[1:] or told, file)
    status, lines = told[0].get(words[-1], told[0]["any"])
    since = max([word.partition("=")[2][:19] for word in words if word.startswith("--since-time=")], default="")  # it counts in seconds
    if any(word.startswith("--since=") for word in words):
        sys.exit(0)  # the lines are long past
    for line in lines:
        stamp, text = line.split(" ", 1)
        if stamp[:19] >= since:
            print(line if "--timestamps" in words else text)
    sys.exit(status and (print("log forbidden", file=sys.stderr) or status))
"""


FIT = """
import os
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, get_context, report

def train():
    rank, size = get_context().get_world_rank(), get_context().get_world_size()
    with open(f"{os.environ['TOLD']}/told-{rank}", "w") as file:
        print(rank, "of", size, "on", os.uname().nodename, os.environ["DOLLAR"], file=file)
    report({})

DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
                    run_config=RunConfig(name="run", progress="none")).fit()
"""


# Saves a checkpoint, or tells with what it begins.
SAVES = """
if [ -z "$TRAINYARD_CHECKPOINT" ]; then
    cd "$(mktemp -d)" && echo $RANK >part-$RANK && "$0" report step=1 --checkpoint . && : >"$PLACE/saved-$RANK"
    exec sleep 1000
fi
echo $RANK has $(cat "$TRAINYARD_CHECKPOINT/part-$RANK"), worker $TPU_WORKER_ID of slice $MEGASCALE_SLICE_ID of $MEGASCALE_NUM_SLICES
"""


class KubeCase(Case):
    def kube(self, *args, **more):
        """The objects by kind."""
        finished = self.assert_status(0, self.trainyard("kube", "--image", "registry.example/train:1", *args, **more))
        return {found["kind"]: found for found in yaml.safe_load_all(finished.out)}

    def read(self, name):
        with open(os.path.join(self.place, name), encoding="utf-8") as file:
            return file.read()

    def pod(self, *args):
        return self.kube(*args, "--", "prog")["Job"]["spec"]["template"]["spec"]

    def refused(self, args, *words):
        self.assert_usage(self.trainyard("kube", "--image", "i", *args, "--", "prog"), "kube", *words)


class Schemas(KubeCase):
    def check(self, objects):
        for kind, found in objects.items():
            if kind == "JobSet":  # a resource of its own, whose Jobs are Kubernetes'
                (job,) = found["spec"]["replicatedJobs"]
                found = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "child"}, **job["template"]}
            for version in ("1.28", "1.34", "1.37"):
                kubernetes_validate.validate(found, version, strict=True)

    def test_what_is_written_is_valid(self):
        for args in (
            ["-n", "4"],
            ["-n", "2", "--resources", "CPU=0.5,memory=1.5GiB,example.com/dongle=2", "--placement", "SPREAD"],
            ["-n", "16", "--use-gpu", "--accelerator-type", "H100", "--nnodes", "2", "--shared-memory", "64Gi"],
            ["-n", "3", "--placement", "STRICT_SPREAD", "--label-selector", "zone=in(a,b),disk=!slow"],
            ["--use-tpu", "--topology", "4x4", "--accelerator-type", "TPU-V6E", "-n", "4", "--spot", "--host-network"],
            ["--use-tpu", "--topology", "4x4", "--accelerator-type", "TPU-V6E", "-n", "8", "--max-failures", "3"],
            ["-n", "2", "--claim", "data:/data", "--storage-path", "/data/runs", "--queue", "team", "--privileged"],
            ["-n", "2", "--claim", "data:/data", "--storage-path", "/data/runs", "--max-failures", "2"],
            ["-n", "2", "--request", "ephemeral-storage=20Gi", "--toleration", "dedicated=ml", "--toleration", "any"],
        ):
            with self.subTest(args):
                self.check(self.kube(*args, "--", "prog"))

    def test_one_that_is_wrong_is_told(self):
        """The check can fail."""
        objects = self.kube("-n", "1", "--", "prog")
        objects["Job"]["spec"]["completions"] = "two"
        with self.assertRaises(kubernetes_validate.ValidationError):
            self.check(objects)

    def test_json_says_the_same(self):
        args = ["kube", "--image", "i", "-n", "2", "--", "prog"]
        key = {"TRAINYARD_RUN_KEY": "0123456789abcdef" * 4}
        listed = self.assert_status(0, self.trainyard(*args[:-2], "--format", "json", *args[-2:], env=key)).json
        self.assertEqual(list(yaml.safe_load_all(self.trainyard(*args, env=key).out)), listed["items"])

    def test_any_text_arrives_as_it_is(self):
        """YAML's words and numbers, quotes, and what Kubernetes replaces in a command."""
        words = ["yes", "0x1F", "1:30", "~", "", "a: b", "# no", "$(HOME)", "$$", "x$", "\t'\"\\", "gr\u00fc\u00dfe\n2", "-", "*a"]
        container = self.kube("-n", "1", "--name", "off", "--", "prog", *words)["Job"]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(words, [word.replace("$$", "$") for word in container["command"][-len(words):]])
        self.assertIn("$$(HOME)", container["command"])


class Layout(KubeCase):
    def test_a_pod_that_is_taken_away_is_no_failure_of_its_job(self):
        """Which makes another one; any that fails is the Job's failure, and so is each of a slice's."""
        job = self.kube("-n", "2", "--", "prog")["Job"]["spec"]
        (rule,) = job["podFailurePolicy"]["rules"]
        self.assertEqual((0, "Ignore", [{"type": "DisruptionTarget", "status": "True"}]), (job["backoffLimit"], rule["action"], rule["onPodConditions"]))
        objects = self.kube("--use-tpu", "--topology", "4x4", "--accelerator-type", "TPU-V6E", "-n", "8", "--", "prog")
        self.assertNotIn("podFailurePolicy", objects["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"])

    def test_pods_of_a_run_that_is_preempted_are_made_anew(self):
        """So often as another attempt may begin, and where what the run has saved is still there: not for any other failure."""
        kept = ("-n", "4", "--nnodes", "2", "--claim", "data:/data", "--storage-path", "/data/runs")
        job = self.kube(*kept, "--max-failures", "3", "--", "prog")["Job"]["spec"]
        self.assertEqual((6, 3, 0), tuple(job[key] for key in ("backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes")))
        _, rule = job["podFailurePolicy"]["rules"]
        (container,) = job["template"]["spec"]["containers"]
        self.assertEqual({"action": "FailJob", "onPodConditions": [],
                          "onExitCodes": {"containerName": container["name"], "operator": "NotIn", "values": [143]}}, rule)
        self.assertEqual(2**31 - 1, self.kube(*kept, "--max-failures", "-1", "--", "prog")["Job"]["spec"]["backoffLimit"])
        config = self.write("kept.yaml", "scaling_config: {num_workers: 2}\nrun_config: {storage_path: /data/runs, failure_config: {max_failures: 3}}\n")
        for args in (("--config", config, "--claim", "data:/data"),
                     ("-n", "2", "--max-failures", "3", "--claim", "data:/data/", "--storage-path", "/data"),
                     ("-n", "2", "--max-failures", "3", "--claim", "data:/", "--storage-path", "/data")):
            self.assertEqual(3, self.kube(*args, "--", "prog")["Job"]["spec"].get("backoffLimitPerIndex"), args)
        for args in (kept, ("-n", "2", "--max-failures", "3"), ("-n", "2", "--max-failures", "3", "--claim", "data:/data"),
                     ("-n", "2", "--max-failures", "3", "--claim", "data:/data", "--storage-path", "/database")):
            job = self.kube(*args, "--", "prog")["Job"]["spec"]
            self.assertEqual((0, False, 1), (job["backoffLimit"], "backoffLimitPerIndex" in job, len(job["podFailurePolicy"]["rules"])), args)

    def test_pods_and_their_shares(self):
        for args, pods, resources in (
            (["-n", "4"], 4, {"cpu": "1"}),
            (["-n", "4", "--resources", "CPU=1.5", "--nnodes", "2"], 2, {"cpu": "3"}),
            (["-n", "3", "--resources", "CPU=0.25"], 3, {"cpu": "250m"}),
            (["-n", "4", "--use-gpu", "--nnodes", "2"], 2, {"nvidia.com/gpu": "2"}),
            (["-n", "4", "--use-gpu", "--resources", "GPU=0.5", "--nnodes", "2"], 2, {"nvidia.com/gpu": "1"}),
            (["-n", "4", "--placement", "STRICT_PACK"], 1, {"cpu": "4"}),
            (["-n", "2", "--resources", "memory=1GiB,CPU=1"], 2, {"cpu": "1", "memory": str(1 << 30)}),
        ):
            with self.subTest(args):
                spec = self.kube(*args, "--", "prog")["Job"]["spec"]
                self.assertEqual((pods, pods, "Indexed", 0),
                                 tuple(spec[key] for key in ("completions", "parallelism", "completionMode", "backoffLimit")))
                given = spec["template"]["spec"]["containers"][0]["resources"]
                self.assertEqual((resources, resources), (given["limits"], given["requests"]))

    def test_nodes_are_chosen(self):
        pod = self.pod("-n", "1", "--use-gpu", "--accelerator-type", "A100-80G")
        self.assertEqual({GKE + "gke-accelerator": "nvidia-a100-80gb"}, pod["nodeSelector"])
        self.assertEqual([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}], pod["tolerations"])
        both = self.pod("-n", "1", "--use-gpu", "--accelerator-type", "H100")["affinity"]["nodeAffinity"]
        (term,) = both["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        self.assertEqual(["nvidia-h100-80gb", "nvidia-h100-mega-80gb"], term["matchExpressions"][0]["values"])
        own = self.pod("-n", "1", "--use-gpu", "--accelerator-type", "L40S", "--node-selector", "nvidia.com/gpu.product=NVIDIA-L40S")
        self.assertEqual({"nvidia.com/gpu.product": "NVIDIA-L40S"}, own["nodeSelector"])
        labels = self.pod("-n", "1", "--label-selector", "zone=in(a,b),disk=!slow")["affinity"]["nodeAffinity"]
        (term,) = labels["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        self.assertEqual({("zone", "In", ("a", "b")), ("disk", "NotIn", ("slow",))},
                         {(x["key"], x["operator"], tuple(x["values"])) for x in term["matchExpressions"]})

    def test_pods_lie_as_the_placement_says(self):
        for placement, kind, how in (("PACK", "podAffinity", "preferred"), ("SPREAD", "podAntiAffinity", "preferred"),
                                     ("STRICT_SPREAD", "podAntiAffinity", "required")):
            affinity = self.pod("-n", "2", "--placement", placement)["affinity"]
            self.assertEqual([how + "DuringSchedulingIgnoredDuringExecution"], list(affinity[kind]))

    def test_pods_share_a_value_of_a_label(self):
        for strategy, kinds in (("rack=STRICT_PACK", {"podAffinity"}), ("rack=STRICT_PACK,node-id=SPREAD", {"podAffinity", "podAntiAffinity"})):
            pod = self.pod("-n", "2", "--topology-strategy", strategy)
            self.assertEqual(kinds, set(pod["affinity"]))
            (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            self.assertEqual("rack", term["topologyKey"])
            self.assertNotIn("--topology-strategy", pod["containers"][0].get("command", []) + pod["containers"][0].get("args", []))

    def test_the_pods_find_each_other(self):
        objects = self.kube("-n", "2", "--name", "job", "--", "prog", "x")
        pod = objects["Job"]["spec"]["template"]["spec"]
        command = pod["containers"][0]["command"]
        self.assertEqual(["trainyard", "run", "--node-rank", "$(JOB_COMPLETION_INDEX)", "--nnodes", "2", "--rendezvous", "job-0.job:29400"],
                         command[:8])
        self.assertEqual(["--", "prog", "x"], command[-3:])
        self.assertEqual(("None", True), tuple(objects["Service"]["spec"][key] for key in ("clusterIP", "publishNotReadyAddresses")))
        self.assertEqual(objects["Job"]["spec"]["template"]["metadata"]["labels"],
                         {**objects["Job"]["spec"]["template"]["metadata"]["labels"], **objects["Service"]["spec"]["selector"]})
        self.assertEqual("job", pod["subdomain"])
        self.assertEqual([{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}], pod["volumes"])

    def test_a_slice_is_a_job(self):
        spec = self.kube("--use-tpu", "--topology", "4x8", "--accelerator-type", "TPU-V6E", "-n", "8", "--", "prog")["Job"]["spec"]
        pod = spec["template"]["spec"]
        self.assertEqual(8, spec["completions"])
        self.assertEqual({GKE + "gke-tpu-accelerator": "tpu-v6e-slice", GKE + "gke-tpu-topology": "4x8"}, pod["nodeSelector"])
        self.assertEqual("4", pod["containers"][0]["resources"]["limits"]["google.com/tpu"])
        (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(GKE + "gke-nodepool", term["topologyKey"])
        self.assertLessEqual({8471, 8080, 8081, 8476}, {port["containerPort"] for port in pod["containers"][0]["ports"]})

    def test_several_slices_are_a_job_set(self):
        objects = self.kube("--use-tpu", "--topology", "2x2x2", "--accelerator-type", "TPU-V4", "-n", "6", "--max-failures", "2", "--", "p")
        self.assertEqual({"Secret", "JobSet"}, set(objects))
        jobs = objects["JobSet"]
        (job,) = jobs["spec"]["replicatedJobs"]
        self.assertEqual((3, 2), (job["replicas"], job["template"]["spec"]["completions"]))
        self.assertEqual({"maxRestarts": 2}, jobs["spec"]["failurePolicy"])
        self.assertEqual(GKE + "gke-nodepool", jobs["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"])
        script = job["template"]["spec"]["template"]["spec"]["containers"][0]["command"][2].replace("$$", "$")
        for slice_, index in ((0, 0), (0, 1), (2, 1)):
            echo = self.shell(script.replace("exec", "echo"), JOB_SLICE_INDEX=str(slice_), JOB_COMPLETION_INDEX=str(index))
            self.assertIn("--node-rank %d " % (2 * slice_ + index), echo)

    def shell(self, script, **variables):
        return subprocess.run(["/bin/sh", "-c", script, "trainyard", "x"], env={**os.environ, **variables}, check=True,
                              capture_output=True, text=True).stdout


class Refused(KubeCase):
    def test_what_cannot_be(self):
        tpu = ["--use-tpu", "--accelerator-type", "TPU-V6E"]
        for args, words in (
            (["--use-gpu", "--resources", "GPU=0.5", "-n", "2"], ("GPU", "part of one", "--nnodes")),
            (["--use-gpu", "--resources", "GPU=0.5", "-n", "3", "--placement", "STRICT_PACK"], ("GPU", "whole")),
            (["-n", "2:4"], ("--num-workers 2:4", "fixed")),
            (["-n", "0"], ("--num-workers 0",)),
            (["-n", "100001"], ("100001 pods", "100000 at most", "--nnodes")),
            (["--use-gpu", "--accelerator-type", "AMD-Instinct-MI300X-OAM"], ("AMD-Instinct-MI300X-OAM", "--node-selector LABEL=VALUE")),
            (["-n", "3", "--nnodes", "2"], ("--nnodes 2", "evenly")),
            (["-n", "2", "--nnodes", "4"], ("--nnodes 4",)),
            (["-n", "4", "--nnodes", "2", "--placement", "STRICT_SPREAD"], ("STRICT_SPREAD", "--nnodes 4")),
            (["-n", "4", "--nnodes", "2", "--placement", "STRICT_PACK"], ("STRICT_PACK", "--nnodes 1")),
            ([*tpu, "-n", "1"], ("--topology",)),
            ([*tpu, "--topology", "4x5", "-n", "4"], ("4x5",)),
            ([*tpu, "--topology", "2x2", "-n", "2"], ("one host", "--topology")),
            ([*tpu, "--topology", "4x4", "-n", "4", "--nnodes", "2"], ("--nnodes 2", "4 hosts")),
            (["--use-gpu", "--accelerator-type", "L40S"], ("L40S", "--node-selector")),
            (["--resources", "CPU=1,dongle=1"], ("dongle", "DOMAIN/NAME")),
            (["--resources", "CPU=1,accelerator_type:A100=0.001,accelerator_type:T4=0.001"], ("2 accelerator types",)),
            (["--name", "Big_Name"], ("--name Big_Name", "small letters")),
            (["--name", "n" * 62], ("61 at most",)),
            (["--claim", "data"], ("--claim", "CLAIM:PATH")),
            (["--node-selector", "a"], ("--node-selector", "NAME=VALUE")),
            (["--port", "70000"], ("--port", "65535")),
            (["--pty"], ("--pty",)),
        ):
            with self.subTest(args):
                self.refused(args, *words)

    def test_what_the_server_would_refuse(self):
        amount = ("amount", "must be")
        for option, value, words in (
            ("--shared-memory", "x", amount), ("--shared-memory", "64GB", amount), ("--shared-memory", "64GiB", amount),
            ("--shared-memory", "-1", amount), ("--shared-memory", "500m", amount), ("--shared-memory", "1e", amount),
            ("--shared-memory", "0", ("above 0",)), ("--shared-memory", "0.0Gi", ("above 0",)),
            ("--request", "cpu=abc", amount), ("--request", "cpu=1 2", amount), ("--request", "memory=512m", amount),
            ("--request", "nvidia.com/gpu=0.5", (*amount, "whole number")), ("--request", "cpu=", amount),
            ("--request", "CPU=1", ("resource CPU", "ephemeral-storage", "DOMAIN/NAME")), ("--request", "a/b/c=1", ("resource a/b/c", "DOMAIN/NAME")),
            ("--resources", "CPU=1,a b/c=1", ("resource a b/c", "DOMAIN/NAME")),
            ("--namespace", "Team_A", ("small letters", "63 at most")), ("--namespace", "a.b", ("small letters",)), ("--namespace", "n" * 64, ("63 at most",)),
            ("--queue", "A b", ("small letters",)), ("--queue", "q" * 64, ("63 at most",)),
            ("--claim", "A_b:/data", ("the claim", "small letters")), ("--claim", "a..b:/data", ("the claim", "dot")),
            ("--claim", "a:/da:ta", ("no ':'",)), ("--claim", "a:/dev/shm", ("/dev/shm",)),
            ("--node-selector", "a b=c", ("label key",)), ("--node-selector", "a=b c", ("label a", "b c")), ("--node-selector", "A.x/b=c", ("domain",)),
            ("--toleration", "a b", ("label key",)), ("--toleration", "a=b c", ("label a", "b c")),
            ("--label-selector", "Zone.X/abc=1", ("Zone.X/abc", "domain")), ("--topology-strategy", "A..b/c=STRICT_PACK", ("A..b/c", "domain")),
            ("--image", "Team/Train:1", ("[HOST[:PORT]/]NAME",)), ("--image", " a", ("NAME",)), ("--image", "https://r.example/a", ("NAME",)),
            ("--image", "r.example/a:", ("NAME",)), ("--image", "r.example/", ("NAME",)), ("--image", "a:" + "t" * 129, ("NAME",)),
            ("--env", "A=\udcff", ("--env", "UTF-8")), ("--storage-path", "/a\udcff", ("--storage-path", "UTF-8")),
        ):
            with self.subTest(option + " " + value):
                self.refused([option, value], option if option not in ("--resources", "--label-selector", "--topology-strategy") else "", *words)
        self.assert_usage(self.trainyard("kube", "--image", "i", "--", "prog", "\udcff"), "kube", "UTF-8")
        path = os.path.join(self.place, "made.yaml")
        self.refused(["--shared-memory", "x", "-o", path], "--shared-memory")
        self.assertFalse(os.path.exists(path))

    def test_what_it_takes(self):
        for option, value in (
            ("--shared-memory", "64Gi"), ("--shared-memory", "1.5Gi"), ("--shared-memory", "1e9"), ("--shared-memory", "1E"),
            ("--request", "cpu=500m"), ("--request", "cpu=.5"), ("--request", "memory=1000"), ("--request", "hugepages-2Mi=4Mi"),
            ("--request", "example.com/dongle=2"), ("--namespace", "a-1"), ("--queue", "team.a"), ("--claim", "a.b:/data"),
            ("--node-selector", "node-role.kubernetes.io/gpu="), ("--toleration", "Some_key=V.1"), ("--toleration", "key="),
            ("--image", "localhost/a"), ("--image", "REG:5000/a/b_c.d:V1.0_x"), ("--image", "[::1]:5000/a"),
            ("--image", "gcr.example/p/a:1@sha256:" + "0a" * 32),
        ):
            with self.subTest(option + " " + value):
                self.kube(option, value, "--", "prog")

    def test_without_an_image(self):
        self.assert_usage(self.trainyard("kube", "-n", "2", "--", "prog"), "kube", "--image")

    def test_a_selector_for_each_worker(self):
        path = self.write("c.yaml", "num_workers: 2\nlabel_selector: [{zone: a}, {zone: b}]\n")
        self.refused(["--config", path], "alike")


class Key(KubeCase):
    def test_it_is_in_the_secret_alone(self):
        key = "0123456789abcdef" * 4
        objects = self.kube("-n", "2", "--", "prog", env={"TRAINYARD_RUN_KEY": key})
        self.assertEqual({"TRAINYARD_RUN_KEY": key}, objects.pop("Secret")["stringData"])
        self.assertNotIn(key, repr(objects))
        (variable,) = objects["Job"]["spec"]["template"]["spec"]["containers"][0]["env"]
        self.assertEqual({"name": "trainyard", "key": "TRAINYARD_RUN_KEY"}, variable["valueFrom"]["secretKeyRef"])

    def test_each_run_has_its_own(self):
        keys = {self.kube("-n", "1", "--", "p")["Secret"]["stringData"]["TRAINYARD_RUN_KEY"] for _ in range(2)}
        self.assertEqual(2, len(keys))

    def test_a_file_is_for_its_owner(self):
        path = self.write("run.yaml", "old")
        os.chmod(path, 0o644)
        self.assert_status(0, self.trainyard("kube", "--image", "i", "-o", path, "--", "prog"))
        self.assertEqual(0o600, stat.S_IMODE(os.stat(path).st_mode))
        self.assertIn("kind: Job", self.read(path))

    @unittest.skipUnless(os.geteuid() == 0, "others cannot give a file away")
    def test_a_file_of_somebody_else_does_not_get_the_key(self):
        path = self.write("run.yaml", "old")
        os.chown(path, 65534, -1)
        self.assert_usage(self.trainyard("kube", "--image", "i", "-o", path, "--", "prog"), "kube", path, "user 65534")
        self.assertEqual("old", self.read(path))

    @unittest.skipUnless(os.geteuid() == 0, "others cannot give a link away")
    def test_a_link_of_somebody_else_is_not_followed(self):
        """Whoever put it there would choose what is written over."""
        target, path = self.write("precious", "mine"), os.path.join(self.place, "run.yaml")
        os.symlink(target, path)
        os.lchown(path, 65534, -1)
        self.assert_status(0, self.trainyard("kube", "--image", "i", "-o", path, "--", "prog"))
        self.assertEqual("mine", self.read(target))
        self.assertFalse(os.path.islink(path))
        self.assertIn("kind: Job", self.read(path))

    def test_an_own_link_leads_to_the_file(self):
        target, path = self.write("run.yaml", "old"), os.path.join(self.place, "link")
        os.chmod(target, 0o644)
        os.symlink(target, path)
        self.assert_status(0, self.trainyard("kube", "--image", "i", "-o", path, "--", "prog"))
        self.assertTrue(os.path.islink(path))
        self.assertIn("kind: Job", self.read(target))
        self.assertEqual(0o600, stat.S_IMODE(os.stat(target).st_mode))

    def test_a_file_that_cannot_be_written(self):
        self.assert_usage(self.trainyard("kube", "--image", "i", "-o", "/nowhere/x", "--", "prog"), "kube", "/nowhere/x")
        full = self.trainyard("kube", "--image", "i", "-o", "/dev/full", "--", "prog")
        self.assertNotEqual(0, full.status)
        self.assert_line(full, "kube", "/dev/full", "No space")


class Line(KubeCase):
    """What pods are told."""

    def test_options_go_along(self):
        path = self.write("c.yaml", "num_workers: 2\nresources_per_worker: {CPU: 3}\n")
        objects = self.kube("--config", path, "--max-failures", "3", "--env", "A=b c", "--env", "HERE", "--label-selector", "zone=a",
                            "--", "prog", env={"HERE": "there"})
        command = objects["Job"]["spec"]["template"]["spec"]["containers"][0]["command"]
        self.assertEqual({"config.yaml": self.read(path)}, objects["ConfigMap"]["data"])
        pairs = list(zip(command, command[1:], strict=False))
        for pair in (("--config", "/etc/trainyard/config.yaml"), ("--max-failures", "3"), ("--env", "A=b c"), ("--env", "HERE=there"),
                     ("--num-cpus", "3")):
            self.assertIn(pair, pairs)
        self.assertNotIn("--label-selector", command)

    def test_workers_do_not_outlive_the_first_pod(self):
        """A Job ends all of its pods: the next one would wait for what cannot go on."""
        for given, told in (([], "0"), (["--outlive", "5s"], "5s")):
            command = self.pod("-n", "2", *given)["containers"][0]["command"]
            self.assertEqual([told], [value for option, value in zip(command, command[1:], strict=False) if option == "--outlive"])


class Pods(KubeCase):
    """Each pod's command, in a host of its own with the pod's name and the environment that the manifest gives it."""

    def command(self, container, index, secret, slice_=None):
        given = {"JOB_COMPLETION_INDEX": str(index)}
        fields = {"metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index), "metadata.labels['jobset.sigs.k8s.io/job-index']": str(slice_)}

        def replaced(text):  # as the kubelet replaces $(NAME) and $$
            return re.sub(r"\$\$|\$\((\w+)\)", lambda found: "$" if found[1] is None else given[found[1]], text)

        for variable in container["env"]:
            source = variable.get("valueFrom", {})
            if "fieldRef" in source:
                given[variable["name"]] = fields[source["fieldRef"]["fieldPath"]]
            else:
                given[variable["name"]] = secret[source["secretKeyRef"]["key"]] if "secretKeyRef" in source else replaced(variable["value"])
        return [replaced(word) for word in container["command"]], given

    def both(self, container, objects):
        """The second pod's end, and the first's."""
        hosts = Hosts(self, 2, names=["train-0.train", "train-1.train"])
        started = []
        for index in (1, 0):
            words, env = self.command(container, index, objects["Secret"]["stringData"])
            started.append(hosts.start("train-%d.train" % index, *words, env=env))
        return [self.assert_status(0, self.finish(process)) for process in started]

    def test_they_join_and_run(self):
        objects = self.kube("--name", "train", "-n", "4", "--nnodes", "2", "--command", COMMAND, "--storage-path", self.storage, "--progress", "none",
                            "--", "sh", "-c", "echo $RANK of $WORLD_SIZE on $NODE_RANK '$(HOME)' $$x")
        container = objects["Job"]["spec"]["template"]["spec"]["containers"][0]
        other, first = self.both(container, objects)
        lines = sorted(line.split("] ", 1)[1] for line in first.out.splitlines())
        self.assertEqual(["%d of 4 on %d" % (rank, rank // 2) for rank in range(4)], [line.split(" $(HOME)")[0] for line in lines], first)
        self.assertEqual("", other.out)

    def test_labels_of_a_config_file_choose_nodes_and_not_in_the_pods(self):
        """Where nobody knows the labels of their nodes."""
        path = self.write("c.yaml", "num_workers: 1\ntopology_strategy: {rack: STRICT_PACK}\n"
                                    "label_selector: {zone: 'in(a,b)', disk: '!slow'}\n")
        objects = self.kube("--config", path, "--command", COMMAND, "--storage-path", self.storage, "--", "echo", "here")
        pod = objects["Job"]["spec"]["template"]["spec"]
        self.assertEqual(2, len(pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]["matchExpressions"]))
        hosts = Hosts(self, 1, names=["trainyard-0.trainyard"])
        words, env = self.command(pod["containers"][0], 0, objects["Secret"]["stringData"])
        path = self.write("mounted.yaml", objects["ConfigMap"]["data"]["config.yaml"])
        words = [path if word == "/etc/trainyard/config.yaml" else word for word in words]
        self.assertEqual("[rank 0] here\n", self.assert_status(0, hosts.run(1, *words, env=env)).out)

    def wait_for_line(self, process, words):
        told = ""
        while words not in (line := process.stderr.readline()):
            told += line
            self.assertNotEqual("", line, "ended without %r: %s" % (words, told))

    def pods(self, hosts, *args):
        """Starts a pod of two on the host that is named, as a function."""
        objects = self.kube("--name", "train", "--command", COMMAND, "--storage-path", self.storage, "--progress", "none", *args)
        container = objects["Job"]["spec"]["template"]["spec"]["containers"][0]

        def start(host, index):
            words, env = self.command(container, index, objects["Secret"]["stringData"])
            return hosts.start(host, *words, env=env)
        return start

    def test_the_first_pod_begins_before_its_name_is_known_and_the_second_is_late(self):
        """The name of a pod is found some seconds after it has begun."""
        hosts = Hosts(self, 2, names=["train-0.train", "train-1.train"])
        for name, text in (("hosts", "127.0.0.1 localhost\n"), ("resolv.conf", "nameserver 10.77.0.77\noptions timeout:1 attempts:1\n")):
            self.assert_status(0, hosts.run(1, "mount", "--bind", self.write("its-" + name, text), "/etc/" + name))
        start = self.pods(hosts, "-n", "2", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE")
        first = start("train-0.train", 0)
        self.wait_for_line(first, "1 of 2 nodes are here")
        second = start("train-1.train", 1)
        self.assertEqual(["[rank 0] 0 of 2", "[rank 1] 1 of 2"], sorted(self.assert_status(0, self.finish(first)).out.splitlines()))
        self.assert_status(0, self.finish(second))

    def test_a_pod_that_vanishes_is_followed_by_another_with_its_index(self):
        """With another address."""
        hosts = Hosts(self, 3, names=["train-0.train", "train-1.train", "other"])
        self.assert_status(0, hosts.run("other", "hostname", "train-1.train"))
        start = self.pods(hosts, "-n", "2", "--max-failures", "1", "--", "sh", "-c", ': >"$0/began-$RANK"; [ $TRAINYARD_ATTEMPT = 2 ] || exec sleep 1000; '
                          "echo $RANK again", self.place)
        first = start("train-0.train", 0)
        vanished = start("train-1.train", 1)
        for rank in (0, 1):
            self.wait_for(lambda rank=rank: os.path.exists(os.path.join(self.place, "began-%d" % rank)), "worker %d" % rank, first)
        hosts.crash("train-1.train")
        vanished.wait()
        self.wait_for_line(first, "to come back")
        second = start("other", 1)
        self.assertEqual(["[rank 0] 0 again", "[rank 1] 1 again"], sorted(self.assert_status(0, self.finish(first)).out.splitlines()))
        self.assert_status(0, self.finish(second))

    def test_a_job_that_is_deleted_and_made_anew_goes_on_at_once(self):
        """All of its pods are told to end, and each says that nothing is left of it."""
        hosts = Hosts(self, 2, names=["train-0.train", "train-1.train"])
        start = self.pods(hosts, "-n", "2", "--env", "PLACE=" + self.place, "--", "sh", "-c", SAVES, COMMAND)
        started = [start("train-%d.train" % index, index) for index in (0, 1)]
        for rank in (0, 1):
            self.wait_for(lambda rank=rank: os.path.exists(os.path.join(self.place, "saved-%d" % rank)), "the checkpoint of %d" % rank, started[0])
        for process in started:
            os.kill(hosts.pid_of(process), signal.SIGTERM)
        for process in started:
            self.assert_status(143, self.finish(process))
        first, _ = [self.assert_status(0, self.finish(process)) for process in [start("train-%d.train" % index, index) for index in (0, 1)]]
        self.assertEqual(["[rank %d] %d has %d" % (rank, rank, rank) for rank in (0, 1)],
                         sorted(line.split(",")[0] for line in first.out.splitlines()), first)
        self.assertNotIn("waiting", first.err)

    def test_a_first_pod_that_is_evicted_is_followed_by_others_that_go_on(self):
        """The run ends as preempted in all of its pods, which the Job makes anew, with other addresses."""
        args = ("-n", "2", "--max-failures", "1", "--claim", "data:" + self.place, "--env", "PLACE=" + self.place, "--", "sh", "-c", SAVES, COMMAND)
        objects = self.kube("--name", "train", "--command", COMMAND, "--storage-path", self.storage, "--progress", "none", *args)
        rule = objects["Job"]["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]
        container = objects["Job"]["spec"]["template"]["spec"]["containers"][0]

        def make(order):
            hosts = Hosts(self, 2, names=["train-%d.train" % index for index in order])
            started = []
            for index in (0, 1):
                words, env = self.command(container, index, objects["Secret"]["stringData"])
                started.append(hosts.start("train-%d.train" % index, *words, env=env))
            return hosts, started

        hosts, started = make((0, 1))
        for rank in (0, 1):
            self.wait_for(lambda rank=rank: os.path.exists(os.path.join(self.place, "saved-%d" % rank)), "the checkpoint of %d" % rank, started[0])
        os.kill(hosts.pid_of(started[0]), signal.SIGTERM)
        for ended in map(self.finish, started):
            self.assertIn(ended.status, rule["values"], ended)
        hosts.end()
        hosts, started = make((1, 0))
        first, _ = [self.assert_status(0, self.finish(process)) for process in started]
        self.assertEqual(["[rank %d] %d has %d, worker of slice of" % (rank, rank, rank) for rank in (0, 1)],
                         sorted(" ".join(line.split()) for line in first.out.splitlines()), first)

    def test_a_job_set_whose_pod_is_evicted_goes_on_when_it_is_made_anew(self):
        """All of its pods are, and have other addresses."""
        os.makedirs(os.path.join(self.place, "machine", "dev"))
        for chip in range(4):
            self.write("machine/dev/accel%d" % chip, "")
        objects = self.kube("--name", "train", "--use-tpu", "--topology", "2x2x2", "--accelerator-type", "TPU-V4", "-n", "4", "--command", COMMAND,
                            "--storage-path", self.storage, "--progress", "none", "--env", "PLACE=" + self.place, "--", "sh", "-c", SAVES, COMMAND)
        (job,) = objects["JobSet"]["spec"]["replicatedJobs"]
        container = job["template"]["spec"]["template"]["spec"]["containers"][0]
        pods = [(slice_, index) for slice_ in range(2) for index in range(2)]

        def make(order):
            hosts = Hosts(self, 4, names=["train-slice-%d-%d.train" % pod for pod in order])
            started = {}
            for pod in reversed(pods):
                words, env = self.command(container, pod[1], objects["Secret"]["stringData"], pod[0])
                env |= {"TRAINYARD_SYSROOT": os.path.join(self.place, "machine"), "TRAINYARD_LEASE_DIR": "/tmp/leases"}  # chips of each node's own
                started[pod] = hosts.start("train-slice-%d-%d.train" % pod, *words, env=env)
            return hosts, [started[pod] for pod in pods]

        hosts, started = make(pods)
        for rank in range(4):
            self.wait_for(lambda rank=rank: os.path.exists(os.path.join(self.place, "saved-%d" % rank)), "the checkpoint of %d" % rank, started[0])
        os.kill(hosts.pid_of(started[3]), signal.SIGTERM)
        for ended in map(self.finish, started):
            self.assertNotEqual(0, ended.status, ended)
        hosts.end()
        hosts, started = make(pods[::-1])
        ended = [self.assert_status(0, self.finish(process)) for process in started]
        self.assertEqual(["[rank %d] %d has %d, worker %d of slice %d of 2" % (rank, rank, rank, rank % 2, rank // 2) for rank in range(4)],
                         sorted(ended[0].out.splitlines()), ended[0])

    def test_a_program_with_fit_drives_the_run_itself(self):
        program = self.write("fit.py", FIT)
        objects = self.kube("--name", "train", "-n", "2", "--fit", "--storage-path", self.storage, "--env", "TOLD=" + self.place, "--env",
                            "DOLLAR=$(HOME)", "--env", "PYTHONPATH=" + os.path.join(BUILD, "python"), "--", sys.executable, program)
        container = objects["Job"]["spec"]["template"]["spec"]["containers"][0]
        self.both(container, objects)
        self.assertEqual(["0 of 2 on train-0.train $(HOME)\n", "1 of 2 on train-1.train $(HOME)\n"], [self.read("told-%d" % rank) for rank in (0, 1)])
        self.assertEqual(["run"], os.listdir(self.storage))

    def test_slices_of_a_program_with_fit(self):
        objects = self.kube("--use-tpu", "--topology", "2x2x2", "--accelerator-type", "TPU-V4", "-n", "6", "--fit", "--", "prog", "$x")
        (job,) = objects["JobSet"]["spec"]["replicatedJobs"]
        container = job["template"]["spec"]["template"]["spec"]["containers"][0]
        shell, option, script, *words = container["command"]
        self.assertEqual(["prog", "$$x"], words)
        script = script.replace("$$", "$").replace('exec "$0"', "exec env") + "; :"
        told = subprocess.run([shell, option, script, "prog"], env={"PATH": os.environ["PATH"], "JOB_SLICE_INDEX": "2", "JOB_COMPLETION_INDEX": "1"},
                              check=True, capture_output=True, text=True).stdout
        self.assertIn("TRAINYARD_NODE_RANK=5\n", told)
        self.assertEqual({"TRAINYARD_NNODES": "6", "TRAINYARD_RENDEZVOUS": "trainyard-slice-0-0.trainyard:29400"},
                         {one["name"]: one["value"] for one in container["env"] if one["name"] in ("TRAINYARD_NNODES", "TRAINYARD_RENDEZVOUS")})

    def test_what_a_program_with_fit_says_itself(self):
        self.refused(["--fit", "-n", "2", "--max-failures", "3"], "--max-failures", "RunConfig")
        self.refused(["--fit", "-n", "2", "--time-limit", "1h"], "--time-limit", "RunConfig")


def pod(phase, why=None, status=None, reason=None, message=None):
    """The status of one, as Kubernetes tells it, with what a cluster may put beside our container."""
    found = {"phase": phase, "conditions": [{"type": "Initialized", "status": "True"}]}
    if why:
        found["conditions"].append({"type": "PodScheduled", "status": "False", "message": why})
    state = {"waiting": {}} if status is None else {"terminated": {"exitCode": status}}
    if reason or status is not None:
        (inner,) = state.values()
        inner |= {key: value for key, value in (("reason", reason), ("message", message)) if value is not None}
        found["containerStatuses"] = [{"name": "beside", "state": {"terminated": {"exitCode": 99, "reason": "Beside"}}}, {"name": "trainyard", "state": state}]
    return found


RUNS = [pod("Running")]
DONE = [pod("Succeeded", status=0, reason="Completed")]


class Followed(KubeCase):
    HELLO = ({"trainyard-0-0": (0, ["2026-01-01T00:00:00.000000001Z [rank 0] hello"]), "any": (0, ["2026-01-01T00:00:00.000000001Z [rank 0] hello again"])},)

    def follow(self, answers, there="", *args, job="trainyard|", logs=HELLO, **more):
        bin_ = os.path.join(self.place, "bin")
        os.makedirs(bin_, exist_ok=True)
        path = os.path.join(bin_, "kubectl")
        with open(path, "w") as file:
            file.write(KUBECTL)
        os.chmod(path, 0o755)
        self.write("answers", "\n".join(map(json.dumps, answers)))
        self.write("there", there)
        self.write("job", job)
        self.write("logs", json.dumps(logs))
        env = {"PATH": bin_ + ":" + os.environ["PATH"], "STAND_IN": self.place, **more}
        return self.trainyard("kube", "--image", "i", "--namespace", "team", "--apply", *args, "--", "prog", env=env)

    def test_a_run_to_its_end(self):
        waits = [pod("Pending", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")]
        finished = self.assert_status(7, self.follow([[], waits, RUNS, [pod("Failed", status=7)]]))
        self.assertEqual("[rank 0] hello\n", finished.out)
        self.assertIn("Insufficient nvidia.com/gpu", finished.err)
        applied = {found["kind"] for found in yaml.safe_load_all(self.read("applied"))}
        self.assertEqual({"Secret", "Service", "Job"}, applied)
        calls = [ast.literal_eval(line) for line in self.read("calls").splitlines()]
        self.assertTrue(all(call[:2] == ["--namespace", "team"] for call in calls), calls)
        self.assertFalse(any("TRAINYARD_RUN_KEY" in " ".join(call) for call in calls))

    KEPT = ("", "--claim", "data:/data", "--storage-path", "/data/runs", "--max-failures", "1")

    def test_a_first_pod_that_was_taken_away_is_followed_by_another(self):
        """It may still be there, or not."""
        ended = pod("Failed", status=143, reason="Error")
        for away in ([ended], []):
            finished = self.follow([RUNS, away, away, [ended, pod("Pending")], [ended, *RUNS], [ended, pod("Failed", status=7, reason="Error")]], *self.KEPT)
            self.assert_status(7, finished)
            self.assertEqual("[rank 0] hello\n[rank 0] hello again\n", finished.out)
            self.assert_line(finished, "kube", "the first pod was taken away")

    def test_a_first_pod_that_was_taken_away_for_good(self):
        for args, job in ((self.KEPT, "trainyard|True"), (self.KEPT, ""), ((), "trainyard|")):
            finished = self.follow([RUNS, [pod("Failed", status=143, reason="Error")]], *args, job=job)
            self.assert_status(143, finished)

    def test_a_job_that_is_there_is_not_taken_for_this_run(self):
        """Its pods have another key, or ended long ago: their status would be that of another run."""
        finished = self.follow([DONE], there="job.batch/trainyard\n")
        self.assert_status(2, finished)
        self.assert_line(finished, "kube", "job trainyard is there already", "kubectl delete job trainyard", "--name")
        self.assertNotIn("apply", self.read("calls"))

    def test_an_image_that_there_is_not(self):
        unready = "containers with unready status: [trainyard]"
        words = 'no image "i" | @@i|j'
        finished = self.follow([[pod("Pending", unready, reason="ContainerCreating")], [pod("Pending", unready, reason="ErrImagePull", message=words)], RUNS, DONE])
        self.assert_status(0, finished)
        self.assertEqual(["trainyard kube: the first pod starts: ContainerCreating", "trainyard kube: the first pod does not start: ErrImagePull: " + words],
                         finished.err.splitlines())

    def test_an_end_that_the_run_could_not_tell_of(self):
        finished = self.assert_status(128, self.follow([[pod("Failed", "none | 0|1", 128, "StartError", 'exec: "trainyard": executable file not found in $PATH')]]))
        self.assert_line(finished, "kube", "the first pod ended with 128", "StartError", "not found")
        finished = self.assert_status(137, self.follow([RUNS, [pod("Failed", status=137, reason="OOMKilled")]]))
        self.assert_line(finished, "kube", "OOMKilled")
        self.assertEqual("", self.assert_status(7, self.follow([RUNS, [pod("Failed", status=7, reason="Error")]])).err)

    def test_output_is_whole_where_kubectl_fails_at_first(self):
        """The first lines are older by then."""
        lines = ["2026-01-01T00:00:0%d.000000000Z line %d" % (i, i) for i in range(5)]
        finished = self.assert_status(0, self.follow([RUNS, RUNS, DONE], logs=({"any": (1, [])}, {"any": (0, lines)})))
        self.assertEqual(["line %d" % i for i in range(5)], finished.out.splitlines())

    def test_why_there_is_no_output_is_said_once(self):
        finished = self.assert_status(0, self.follow([RUNS, RUNS, RUNS, DONE], logs=({"any": (1, [])},)))
        self.assertEqual(1, finished.err.count("log forbidden"), finished)
        self.assertGreater(self.read("calls").count("'logs'"), 1)

    def test_output_is_whole_where_its_connection_is_cut(self):
        """Lines of one time, of one second, and a server that cannot be asked just then."""
        lines = ["2026-01-01T00:00:0%s.00000000%sZ line %d" % (second, part, i) for i, (second, part) in enumerate(("00", "00", "01", "01", "01", "02", "10"))]
        logs = ({"any": (1, lines[:4])}, {"any": (1, [])}, {"any": (0, lines)})
        finished = self.assert_status(0, self.follow([RUNS, None, RUNS, DONE], logs=logs))
        self.assertEqual(["line %d" % i for i in range(7)], finished.out.splitlines())

    def test_one_that_succeeds(self):
        self.assert_status(0, self.follow([DONE]))

    def test_kubectl_fails(self):
        finished = self.follow([RUNS], APPLY_STATUS="1")
        self.assert_status(4, finished)
        self.assert_line(finished, "kube", "kubectl apply", "you must be logged in")

    def test_there_is_none(self):
        finished = self.trainyard("kube", "--image", "i", "--apply", "--", "prog", env={"PATH": self.place})
        self.assertNotEqual(0, finished.status)
        self.assert_line(finished, "kube", "no kubectl")


if __name__ == "__main__":
    main()
