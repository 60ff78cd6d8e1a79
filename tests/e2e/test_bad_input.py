"""Every bad input of every option and of the config and cluster files: one line that names it and what is allowed, exit status 2,
nothing started or created (docs/faults.md X1, X2)."""

import os

from harness import Case, main

NUMBERS = ["", " ", "x", "-1", "1.5", "nan", "inf", "1e3", "0x10", "99999999999999999999", "4,", "+4"]
PROGRAM = ["--", "/bin/true"]

# option: (a value that is good, values that are not, words of the message)
SCALING = {
    "--num-workers": ("2", [*NUMBERS, "4:2", ":", "1:", ":4", "0:4", "1:2:3", "-1:4", "99999999999"], []),
    "--topology": ("4x4", [""], []),
    "--accelerator-type": ("A100", [""], []),
    "--resources": ("CPU=1", [
        "", "CPU", "CPU=", "=1", "CPU=x", "CPU=-1", "CPU=nan", "CPU=inf", "CPU=1e400", "CPU=1,CPU=2", "cpu=1", "Gpu=1",
        "CPU=0.00005", "bundle=1", "CPU=1,,GPU=1", "CPU=99999999999999999999", "memory=8XiB", "a=1=2"], []),
    "--placement": ("PACK", ["", "pack ", "PAKC", "STRICT", "NONE"], ["PACK", "STRICT_SPREAD"]),
    "--label-selector": ("zone=a", [
        "", "zone", "=a", "zone=-spot", "zone=spot_", "zone=in()", "zone=in(spot,", "zone=!!!in(a)",
        "zone=in(H100, TPU!GPU)", "zone=" + "a" * 64, "zone=a b", "zone=in(%s)" % ",".join(map(str, range(1001)))], []),
    "--elastic-resize-monitor-interval": ("1s", ["", "x", "-1", "nan", "inf", "1w"], []),
    "--trainer-resources": ("CPU=1", ["", "CPU", "CPU=-1", "CPU=nan", "CPU=1,CPU=1"], []),
    "--config": (None, ["", "/nonexistent/x.yaml", "/"], []),
    "--engine": ("local", ["", "slurmy", "Local", "kubernetes"], ["local"]),
    "--cluster": (None, ["", "/nonexistent/x.yaml", "/"], []),
    "--num-cpus": ("1", NUMBERS, ["whole number"]),
    "--num-gpus": ("1", NUMBERS, ["whole number"]),
    "--node-resources": ("a=1", ["", "a", "a=-1", "a=x", "a=1,a=2", "a=1.5"], []),
}
RUN = {
    "--name": ("a", ["", ".", "..", "a/b", ".a", "-a", "a\nb", "\x1b[1m", "x" * 201, "x" * 4096], []),
    "--storage-path": (None, [""], []),
    "--env": ("A=1", ["", "=1", "1A=2", "A-B=1", "NOT_SET_ANYWHERE", "RANK=1", "WORLD_SIZE=2", "TRAINYARD_FD=3", "A B=1"], []),
    "--framework": ("plain", ["", "pytorch", "keras"], ["plain|torch|jax|tensorflow|mpi"]),
    "--backend": ("gloo", ["", "mpi", "GLOO"], ["gloo|nccl"]),
    "--max-failures": ("1", ["", "x", "-2", "1.5", "nan", "99999999999999999999"], ["-1"]),
    "--time-limit": ("1h", ["", "x", "-1", "nan", "inf", "1w", "1h30", "1e400", "h"], []),
    "--grace": ("1s", ["", "x", "-1", "nan", "infinity", "5 parsecs"], []),
    "--bind": ("none", ["", "cores"], ["numa|none"]),
    "--progress": ("plain", ["", "fancy", "Auto"], ["auto|plain|none"]),
}
FLAGS = ["--use-gpu", "--use-tpu"]
RUN_FLAGS = ["--no-wait", "--isolate-devices", "--no-prefix", "--quiet"]


class Options(Case):
    def check(self, command, options, tail):
        for option, (_, bad, words) in options.items():
            for value in bad:
                with self.subTest(option=option, value=value[:30]):
                    finished = self.trainyard(command, "%s=%s" % (option, value), *tail)
                    # a file is named by its path, which says more than the option
                    named = value if value and option == "--cluster" else option
                    self.assert_usage(finished, command, named, *words)
                    self.assertLess(len(finished.err), 1100)

    def test_plan(self):
        self.check("plan", SCALING, [])

    def test_run(self):
        self.check("run", {**SCALING, **RUN}, ["--storage-path", self.storage, *PROGRAM])

    def test_missing_value(self):
        for command, options in (("plan", SCALING), ("run", {**SCALING, **RUN})):
            for option in options:
                with self.subTest(command=command, option=option):
                    self.assert_usage(self.trainyard(command, option), command, option, "needs a value")

    def test_unwanted_value(self):
        for command, flags in (("plan", FLAGS), ("run", FLAGS + RUN_FLAGS)):
            for flag in flags:
                with self.subTest(command=command, flag=flag):
                    self.assert_usage(self.trainyard(command, flag + "=yes"), command, flag, "takes no value", "yes")

    def test_unknown_names_the_nearest(self):
        for command, wrong, right in (
                ("plan", "--num-worker", "--num-workers"), ("plan", "--num_workers", "--num-workers"),
                ("plan", "--use-gpus", "--use-gpu"), ("run", "--max-failure", "--max-failures"),
                ("run", "--storage_path", "--storage-path"), ("run", "--isolate-device", "--isolate-devices"),
                ("status", "--fromat", "--format"), ("logs", "--folow", "--follow")):
            with self.subTest(wrong):
                self.assert_usage(self.trainyard(command, wrong, "4"), command, wrong, "did you mean %s?" % right)

    def test_variables_of_the_environment(self):
        """Nothing is begun with one that could not be read later, wherever it is said."""
        for name, bad, good in (("TRAINYARD_TEMPLATE_LIMIT", ["nan", "-1", "soon", "1e999", "0", "5 parsecs", "inf"], ["", "1ms", "2min", "90"]),
                                ("TRAINYARD_COLLECTIVE_TIMEOUT_S", ["nan", "-1", "never", "1e999", "0"], ["", "0.5", "1800", "1h"]),
                                ("TRAINYARD_LOG", ["loud", "ERROR", "3"], ["", "debug", "error"])):
            for value in bad:
                with self.subTest(name, value=value):
                    finished = self.trainyard("run", "--storage-path", self.storage, *PROGRAM, env={name: value})
                    self.assert_usage(finished, "run", name, value)
                    if name != "TRAINYARD_LOG":  # which is the command's own
                        self.assert_usage(self.trainyard("run", "--storage-path", self.storage, "--env", "%s=%s" % (name, value), *PROGRAM),
                                          "run", name, value)
            self.assertFalse(os.path.exists(self.storage))
            for value in good:
                with self.subTest(name, value=value):
                    self.assert_status(0, self.trainyard("run", "--storage-path", os.path.join(self.place, "good"), "-n", 1, "--", "true", env={name: value}))

    def test_unknown_without_a_near_one(self):
        self.assert_usage(self.trainyard("plan", "--frobnicate"), "plan", "--frobnicate", "--help")
        self.assert_usage(self.trainyard("plan", "-Z"), "plan", "-Z")
        self.assert_usage(self.trainyard("plan", "-n4Z"), "plan", "4Z")

    def test_other_launchers_options_name_ours(self):
        hints = {
            "--nproc-per-node=2": "-n N", "--nproc_per_node": "-n N", "--ntasks": "-n N", "-N": "--cluster FILE",
            "--gpus-per-task": "--resources GPU=N", "--gres=gpu:2": "--use-gpu", "--oversubscribe": "--num-cpus N",
            "-hostfile": "--hostfile FILE", "-machinefile": "--hostfile FILE", "--map-by": "--placement",
            "--cpus-per-task": "--resources CPU=N", "-c": "--resources CPU=N", "--mem=8G": "--resources memory=8GiB",
            "--master-port": "not needed", "--master_port=29500": "not needed", "--rdzv-backend": "not needed",
            "--rdzv_endpoint": "not needed", "--standalone": "not needed", "--max-restarts": "--max-failures", "-x": "--env NAME=VALUE",
            "-t": "--time-limit", "--log-dir": "trainyard logs NAME", "-m": "python -m MODULE", "--label": "[rank N]"}
        for word, ours in hints.items():
            for command in ("run", "plan"):
                with self.subTest(command=command, word=word):
                    finished = self.trainyard(command, word, "2", *(PROGRAM if command == "run" else []))
                    self.assert_usage(finished, command, word.partition("=")[0], ours)
        for word in ("--nproc_per_node=2", "--standalone", "--rdzv-id=1", "--tee=3"):
            self.assert_usage(self.trainyard("run", word, *PROGRAM), "run", "which is torchrun's", "`trainyard torchrun` takes its whole command line")
        for command, program in (("run", PROGRAM), ("plan", [])):
            self.assert_usage(self.trainyard(command, "--hostfile", "2", *program), command, "--hostfile", "cannot open 2")
            self.assert_usage(self.trainyard(command, "--nnodes", "2", *program), command, "--nnodes", "--rendezvous")
        self.assert_usage(self.trainyard("run", "--slurm-option", "time=5", *PROGRAM), "run", "--slurm-option time=5", "trainyard submit")
        self.assert_usage(self.trainyard("logs", "--ntasks", "2"), "logs", "--ntasks", "--help")
        self.assert_usage(self.trainyard("run", "-np"), "run", "--num-workers", "needs a value")

    def test_mpirun_counts_with_two_letters(self):
        plan = self.assert_status(0, self.trainyard("plan", "-np", "3", "--num-cpus", "4", "--format", "json")).json
        self.assertEqual(3, len(plan["workers"]))

    def test_no_program(self):
        self.assert_usage(self.trainyard("run", "-n", "2"), "run", "which program")
        self.assert_usage(self.trainyard("run", "-n", "2", "--"), "run", "which program")
        self.assert_usage(self.run_workers("--", ""), "run", "empty")

    def test_unexpected_words(self):
        self.assert_usage(self.trainyard("plan", "-n", "2", "extra"), "plan", "extra")
        self.assert_usage(self.trainyard("version", "x"), "version", "'x'")
        self.assert_usage(self.trainyard("status", "a", "b"), "status", "'b'")
        self.assert_usage(self.trainyard("logs"), "logs", "no runs", "--storage-path")

    def test_contradictions(self):
        cluster = self.write("cluster.yaml", "nodes: [{name: a, resources: {CPU: 1}}]")
        for other in (["--num-gpus", "1"], ["--num-cpus", "1"], ["--node-resources", "x=1"]):
            for command in ("plan", "run"):
                with self.subTest(command=command, other=other):
                    self.assert_usage(self.trainyard(command, "--cluster", cluster, *other, *(PROGRAM if command == "run" else [])),
                                      command, other[0], "--cluster")

    def test_scaling_rules(self):
        rules = [
            (["--use-gpu", "--use-tpu"], "cannot specify both --use-gpu and --use-tpu"),
            (["--resources", "GPU=1"], "--use-gpu is not given but GPU was found in --resources"),
            (["--use-gpu", "--resources", "GPU=0"], "--use-gpu is given but GPU is set to 0 in --resources"),
            (["--resources", "TPU=1"], "--use-tpu is not given but TPU was found in --resources"),
            (["--use-tpu", "--resources", "TPU=0"], "--use-tpu is given but TPU is set to 0 in --resources"),
            (["-n", "2", "--use-tpu"], "--topology must be specified"),
            (["-n", "2", "--use-tpu", "--topology", "4x4"], "--accelerator-type must be specified"),
            (["-n", "3", "--use-tpu", "--topology", "2x2x2", "--accelerator-type", "TPU-V4"], "must be a multiple of"),
            (["-n", "2", "--use-tpu", "--topology", "2x2x2", "--accelerator-type", "TPU-V4", "--label-selector", "a=b"],
             "cannot set --label-selector when --use-tpu and --num-workers > 1"),
            (["--use-gpu", "--resources", "GPU=1.5"], "1.5"),
            (["--use-tpu", "--topology", "3x3", "--accelerator-type", "TPU-V6E", "-n", "2"], "3x3"),
            (["--use-gpu", "--accelerator-type", "A10O"], "--accelerator-type=\"A10O\": the type is not known"),
            (["-n", "2", "--use-tpu", "--topology", "4x4", "--accelerator-type", "A100"], "invalid --accelerator-type"),
            (["--use-gpu", "--resources", "GPU=1.5"], "--resources: "),
            (["--use-gpu", "--trainer-resources", "GPU=1.5"], "--trainer-resources: "),
        ]
        for args, words in rules:
            for command in ("plan", "run"):
                with self.subTest(command=command, args=args):
                    tail = ["--storage-path", self.storage, *PROGRAM] if command == "run" else []
                    finished = self.trainyard(command, *args, *tail)
                    self.assert_usage(finished, command, words)
                    for name in ("use_gpu", "use_tpu", "resources_per_worker", "num_workers", "`accelerator_type", "label_selector"):
                        self.assertNotIn(name, finished.err)

    def test_logs_options(self):
        for args in (["--rank", "x"], ["--rank", "-1"], ["--rank", ""], ["--tail", "-1"], ["--tail", "x"], ["--rank", "3-1"]):
            with self.subTest(args):
                self.assert_usage(self.trainyard("logs", "a", "%s=%s" % tuple(args)), "logs", args[0])

    def test_report_words(self):
        for word in ("loss", "=1", "loss=", "loss=x", "loss=1x", "loss=0x1", "n" * 256 + "=1"):
            with self.subTest(word[:20]):
                self.assert_usage(self.trainyard("report", "--", word), "report", word[:20])
        self.assert_usage(self.trainyard("report", "a=1", "a=2"), "report", "twice")
        self.assert_usage(self.trainyard("report"), "report", "nothing to report")

    def test_store_words(self):
        self.assert_usage(self.trainyard("store"), "store", "get KEY")
        self.assert_usage(self.trainyard("store", "gte", "k"), "store", "did you mean get")
        self.assert_usage(self.trainyard("store", "get"), "store", "get KEY")
        self.assert_usage(self.trainyard("store", "set", "k"), "store", "set KEY VALUE")
        self.assert_usage(self.trainyard("store", "add", "k", "-1"), "store", "--")
        self.assert_usage(self.trainyard("store", "wait", "k", "--timeout", "x"), "store", "--timeout")


# what is in the file, words of the message
CONFIGS = [
    (b"", ["empty"]),
    (b"   \n# nothing\n", ["empty"]),
    (b"5", ["map"]),
    (b"[1, 2]", ["map"]),
    (b"text", ["map"]),
    (b"num_workers: x\n", ["num_workers", ":1"]),
    (b"num_workers: -1\n", ["num_workers", "-1"]),
    (b"num_workers: true\n", ["num_workers"]),
    (b"num_workers: 1.5\n", ["num_workers"]),
    (b"num_workers: 99999999999999999999\n", ["num_workers"]),
    (b"num_workers: [4, 2]\n", ["must be <="]),
    (b"num_workers: [1, 2, 3]\n", ["num_workers"]),
    (b"num_workers: [0, 2]\n", ["num_workers"]),
    (b"num_worker: 2\n", ["num_worker", "num_workers"]),
    (b"num_workers: 1\nnum_workers: 2\n", ["num_workers", ":2"]),
    (b"use_gpu: 1\n", ["use_gpu"]),
    (b"use_gpu: 'yes'\n", ["use_gpu"]),
    (b"resources_per_worker: 4\n", ["resources_per_worker"]),
    (b"resources_per_worker: {CPU: -1}\n", ["CPU", "negative"]),
    (b"resources_per_worker: {CPU: x}\n", ["CPU"]),
    (b"resources_per_worker: {CPU: .nan}\n", [":1"]),
    (b"resources_per_worker: {CPU: .inf}\n", [":1"]),
    (b"resources_per_worker: {CPU: 1e400}\n", [":1"]),
    (b"resources_per_worker: {cpu: 1}\n", ["cpu", "CPU"]),
    (b"resources_per_worker: {CPU: 1, CPU: 2}\n", ["CPU"]),
    (b"resources_per_worker: {'': 1}\n", [":1"]),
    (b"resources_per_worker: {bundle: 1}\n", ["bundle"]),
    (b"resources_per_worker: {CPU: 0.00005}\n", ["0.0001"]),
    (b"resources_per_worker: {CPU: 'NaN'}\n", ["CPU", "NaN"]),
    (b"resources_per_worker: {%s}\n" % b", ".join(b"r%d: 1" % i for i in range(1001)), ["resources_per_worker", "1000"]),
    (b"label_selector: {%s}\n" % b", ".join(b"k%d: v" % i for i in range(1001)), ["label_selector", "1000"]),
    (b"label_selector: {a: 'in(%s)'}\n" % b",".join(b"v%d" % i for i in range(1001)), ["label a", "1000"]),
    (b"placement_strategy: PAKC\n", ["PAKC", "PACK"]),
    (b"placement_strategy: 3\n", ["placement_strategy"]),
    (b"accelerator_type: [A100]\n", ["accelerator_type"]),
    (b"accelerator_type: A10O\nuse_gpu: true\n", ["A10O"]),
    (b"topology: 4\n", ["topology"]),
    (b"label_selector: 3\n", ["label_selector"]),
    (b"label_selector: {zone: 3}\n", ["zone"]),
    (b"label_selector: {zone: in()}\n", ["zone", "in("]),
    (b"num_workers: 2\nlabel_selector: [{zone: a}]\n", ["same length as `num_workers`"]),
    (b"elastic_resize_monitor_interval_s: -1\n", ["non-negative"]),
    (b"use_gpu: true\nuse_tpu: true\n", ["cannot specify both"]),
    (b"a: &x 1\nb: *x\n", []),
    (b"a: !!python/object 1\n", []),
    (b"num_workers: 1\n---\nnum_workers: 2\n", []),
    (b"num_workers: 1\x00\n", []),
    ("num_workers: 1\n".encode("utf-16"), []),
    (b"num_workers: [\n", []),
    (b"{\"num_workers\": 1,", []),
    (b"[" * 100000, []),
    (b"{a: " * 100, []),
    (b"num_workers: 1 # " + b"x" * (1 << 21), []),
    (b"scaling_config: 3\n", ["scaling_config"]),
    (b"scaling_config: {num_workers: 1}\nrun_confg: {}\n", ["run_confg", "run_config"]),
    (b"scaling_config: {num_workers: 1}\nnum_workers: 1\n", ["num_workers"]),
    (b"run_config: 3\n", ["run_config"]),
    (b"run_config: {nam: x}\n", ["nam", "name"]),
    (b"run_config: {name: 3}\n", ["name"]),
    (b"run_config: {name: ''}\n", ["name"]),
    (b"run_config: {storage_path: [x]}\n", ["storage_path"]),
    (b"run_config: {failure_config: 3}\n", ["failure_config"]),
    (b"run_config: {failure_config: {max_failure: 3}}\n", ["max_failure", "max_failures"]),
    (b"run_config: {failure_config: {max_failures: -2}}\n", ["max_failures", "-1"]),
    (b"run_config: {failure_config: {max_failures: x}}\n", ["max_failures"]),
    (b"run_config: {worker_runtime_env: {env_vars: {A: 1}}}\n", ["A must be a text"]),
    (b"run_config: {worker_runtime_env: {env_vars: {RANK: '1'}}}\n", ["RANK"]),
    (b"run_config: {worker_runtime_env: {env_vars: {'A=B': '1'}}}\n", ["A=B"]),
    (b"run_config: {worker_runtime_env: {pip: [x]}}\n", ["pip"]),
    (b"run_config: {checkpoint_config: {checkpoint_score_order: best}}\n", ["checkpoint_score_order", "max|min"]),
    (b"run_config: {checkpoint_config: {on_checkpoint_error: x}}\n", ["on_checkpoint_error", "fail|continue"]),
    (b"run_config: {grace_s: x}\n", ["grace_s", "seconds"]),
    (b"run_config: {hang_timeout_s: -1}\n", ["hang_timeout_s", "seconds"]),
    (b"run_config: {quiet: 1}\n", ["quiet", "true or false"]),
    (b"run_config: {chaos: 7}\n", ["chaos", "a text"]),
]


# Every number that a user can give is taken as it is or refused in one line that tells the range; none is cut to fewer bits.
EDGES = ["0", "1", "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551616", "-1",
         "nan", "1e999"]
DURATIONS = EDGES[:4]  # seconds below a hundred years
RUN_NUMBERS = {
    "--max-failures": ["0", "1", "-1"], "--max-start-failures": ["0", "1", "-1"], "--max-preemptions": ["0", "1", "-1"],
    "--keep-checkpoints": ["1"], "--chaos": EDGES[:6], "--grace": DURATIONS, "--time-limit": ["0", *DURATIONS[2:]],
    "--hang-timeout": ["0", *DURATIONS[2:]], "--elastic-resize-monitor-interval": DURATIONS,
}
PLAN_NUMBERS = {
    "--num-workers": ["1"], "--num-workers=1:": ["1"], "--num-cpus": ["1"], "--num-gpus": ["0", "1"], "--resources=CPU": ["0", "1"],
    "--resources=x": ["0"], "--resources=memory": ["0", "1", *EDGES[2:5]],
    "--node-resources=x": ["0", "1", "2147483647", "2147483648", "4294967296"],
}
UNSOUND = {"--time-limit": ["1"], "--hang-timeout": ["1"], "--num-workers": ["0"]}  # good numbers that are tried elsewhere


class Numbers(Case):
    def each(self, options, command, *tail):
        for option, good in options.items():
            for value in EDGES:
                if value in UNSOUND.get(option, ()):
                    continue
                joined = option + ("" if option.endswith(":") else "=") + value
                with self.subTest(option=joined):
                    finished = self.trainyard(*command, joined, *tail)
                    if value in good:
                        self.assertIn(finished.status, (0, 3), finished)  # 3: more than this machine has
                    elif finished.status != 3:
                        self.assert_status(2, finished)
                        self.assertEqual(1, len(finished.err.splitlines()), finished)
                        self.assertIn(option.split("=")[0], finished.err)

    def test_run(self):
        self.each(RUN_NUMBERS, ("run", "--storage-path", self.storage, "--num-cpus", 1), *PROGRAM)

    def test_plan(self):
        self.each(PLAN_NUMBERS, ("plan",))

    def test_logs(self):
        self.assert_status(0, self.trainyard("run", "--name", "a", "--storage-path", self.storage, *PROGRAM))
        self.each({"--tail": ["0", "1", "2147483647"], "--rank": []}, ("logs", "--storage-path", self.storage), "a")

    def test_accelerators(self):
        self.each({"--chips-per-vm": ["1"]}, ("accelerators",), "tpu", "v6e", "4x4")

    def test_too_long_is_told_as_such(self):
        finished = self.trainyard("run", "--grace", "1e999", *PROGRAM)
        self.assert_usage(finished, "run", "--grace", "longer than 100 years")


class Bytes(Case):
    """What is no UTF-8: refused by name where it is to be a name in JSON, kept as bytes where it is a program's."""

    BAD = b"a\xff"

    def test_names(self):
        for option in ("--name", "--storage-path", "--checkpoint-score-attribute", "--resources", "--node-resources"):
            value = self.BAD + b"=1" if "resources" in option else self.BAD
            with self.subTest(option):
                storage = () if option == "--storage-path" else ("--storage-path", self.storage)
                finished = self.trainyard("run", *storage, os.fsdecode(option.encode() + b"=" + value), *PROGRAM)
                self.assert_usage(finished, "run", "a\\xff", "UTF-8")
                self.assertNotIn(self.BAD, os.listdir(self.place.encode()))
        for command in ("status", "logs"):
            self.assert_usage(self.trainyard(command, "--storage-path", self.storage, os.fsdecode(self.BAD)), command, "UTF-8")

    def test_words_and_variables_are_bytes(self):
        finished = self.trainyard("run", "--storage-path", self.storage, "--no-prefix", "--env", os.fsdecode(b"A=" + self.BAD), "--",
                                  "sh", "-c", 'printf %s "$A$1" | od -An -tx1', "sh", os.fsdecode(b"\xfe"))
        self.assertEqual("61 ff fe", self.assert_status(0, finished).out.strip())


class ConfigFile(Case):
    def test_bad(self):
        for i, (text, words) in enumerate(CONFIGS):
            path = self.write("config-%d.yaml" % i, text)
            for command in ("plan", "run"):
                with self.subTest(command=command, text=text[:60]):
                    tail = ["--storage-path", self.storage, *PROGRAM] if command == "run" else []
                    finished = self.trainyard(command, "--config", path, *tail)
                    self.assert_usage(finished, command, *words)

    def test_names_the_file(self):
        path = self.write("config.yaml", "use_gpu: false\nnum_worker: 2\n")
        self.assert_usage(self.trainyard("plan", "--config", path), "plan", path + ":2:")

    def test_bad_name_in_file(self):
        path = self.write("config.yaml", "run_config: {name: a/b}\n")
        self.assert_usage(self.run_workers("--config", path, *PROGRAM), "run", "name", "a/b")

    def test_huge(self):
        path = os.path.join(self.place, "huge.yaml")
        with open(path, "wb") as file:
            file.truncate(64 << 30)  # more than could be read
        self.assert_usage(self.trainyard("plan", "--config", path), "plan", path)

    def test_not_readable(self):
        self.assert_usage(self.trainyard("plan", "--config", self.place), "plan", self.place)

    def test_byte_order_mark_is_fine(self):
        path = self.write("bom.yaml", b"\xef\xbb\xbfnum_workers: 1\n")
        self.assert_status(0, self.trainyard("plan", "--config", path))

    def test_empty_map_is_the_default(self):
        path = self.write("empty.json", "{}")
        self.assert_status(0, self.trainyard("plan", "--config", path))


CLUSTERS = [
    (b"", []),
    (b"nodes: 3\n", ["nodes"]),
    (b"nodes: []\n", ["nodes"]),
    (b"[]\n", []),
    (b"node: [{name: a}]\n", ["node"]),
    (b"nodes: [3]\n", [":1"]),
    (b"nodes: [{resources: {CPU: 1}}]\n", ["name"]),
    (b"nodes: [{name: 3, resources: {CPU: 1}}]\n", ["name"]),
    (b"nodes: [{name: '', resources: {CPU: 1}}]\n", ["name"]),
    (b"nodes: [{name: a, resources: {CPU: 1}}, {name: a, resources: {CPU: 1}}]\n", ["a"]),
    (b"nodes: [{name: 'a[1-3]', resources: {CPU: 1}}, {name: a2, resources: {CPU: 1}}]\n", ["a2"]),
    (b"nodes: [{name: 'a[3-1]', resources: {CPU: 1}}]\n", ["a[3-1]"]),
    (b"nodes: [{name: 'a[1', resources: {CPU: 1}}]\n", []),
    (b"nodes: [{name: 'a[0-99999999999]', resources: {CPU: 1}}]\n", []),
    (b"nodes: [{name: a, resource: {CPU: 1}}]\n", ["resource", "resources"]),
    (b"nodes: [{name: a, resources: 3}]\n", ["resources"]),
    (b"nodes: [{name: a, resources: {CPU: -1}}]\n", ["CPU"]),
    (b"nodes: [{name: a, resources: {CPU: x}}]\n", ["CPU"]),
    (b"nodes: [{name: a, resources: {CPU: 1.5}}]\n", ["CPU"]),
    (b"nodes: [{name: a, resources: {CPU: .nan}}]\n", []),
    (b"nodes: [{name: a, resources: {cpu: 1}}]\n", ["cpu", "CPU"]),
    (b"nodes: [{name: a, resources: {GPU: 1000000}}]\n", ["GPU"]),
    (b"nodes: [{name: 'a[1-100000]', resources: {GPU: 4096}}]\n", ["devices on all nodes together"]),
    (b"nodes: [{name: a, resources: {%s}}]\n" % b", ".join(b"r%d: 1" % i for i in range(1001)), ["resources", "1000"]),
    (b"nodes: [{name: a, resources: {CPU: 1}, labels: {%s}}]\n" % b", ".join(b"k%d: v" % i for i in range(1001)), ["labels", "1000"]),
    (b"nodes: [{name: a, resources: {CPU: 1, CPU: 2}}]\n", ["CPU"]),
    (b"nodes: [{name: a, resources: {CPU: 1}, available: {CPU: 2}}]\n", ["CPU"]),
    (b"nodes: [{name: a, resources: {CPU: 1}, available: {GPU: 1}}]\n", ["GPU"]),
    (b"nodes: [{name: a, resources: {CPU: 1}, available: {CPU: -1}}]\n", ["CPU"]),
    (b"nodes: [{name: a, resources: {CPU: 1}, labels: 3}]\n", ["labels"]),
    (b"nodes: [{name: a, resources: {CPU: 1}, labels: {zone: [a]}}]\n", ["zone"]),
    (b"nodes: [{name: a, resources: {CPU: 1}, labels: {zone: '-a'}}]\n", ["-a"]),
    (b"nodes: [{name: a, resources: {CPU: 1}, labels: {zone: a, zone: b}}]\n", ["zone"]),
    (b"nodes: [{name: a, resources: {CPU: 1}, accelerator_type: 3}]\n", ["accelerator_type"]),
    (b"nodes: [{name: a, resources: {CPU: 1}, name: b}]\n", ["name"]),
    (b"nodes: [{name: a, resources: {CPU: 1}}\n", []),
    (b"nodes: [{name: \"a\x1b[31m\", resources: {CPU: 1}}]\n", []),
    (b"nodes: [{name: a\x00, resources: {CPU: 1}}]\n", []),
    ("nodes: [{name: a, resources: {CPU: 1}}]\n".encode("utf-16"), []),
]


class ClusterFile(Case):
    def test_bad(self):
        for i, (text, words) in enumerate(CLUSTERS):
            path = self.write("cluster-%d.yaml" % i, text)
            for command in ("plan", "run"):
                with self.subTest(command=command, text=text[:80]):
                    tail = ["--storage-path", self.storage, *PROGRAM] if command == "run" else []
                    finished = self.trainyard(command, "--cluster", path, *tail)
                    self.assert_usage(finished, command, path, *words)
                    self.assertNotIn("\x1b", finished.err)


if __name__ == "__main__":
    main()
