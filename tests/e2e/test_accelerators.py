"""`trainyard accelerators`: this machine's devices, known types, device names, TPU arithmetic
(docs/spec/accelerators.md 6.1, 6.3)."""

from harness import Case, main

NAMES = {
    "Tesla V100-SXM2-16GB": "V100", "Tesla P100-PCIE-16GB": "P100", "Tesla P4": "P4", "Tesla K80": "K80", "Tesla T4": "T4",
    "NVIDIA L4": "L4", "NVIDIA L40S": "L40S", "Ampere A100-SXM4-40GB": "A100", "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H20": "H20", "NVIDIA B200": "B200", "NVIDIA GB300": "GB300", "NVIDIA GeForce RTX 5090": "GeForce-RTX-5090",
    "NVIDIA GeForce RTX 4090": "GeForce-RTX-4090", "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX-PRO-6000",
    "Intel(R) Data Center GPU Max 1550": "Intel-GPU-Max-1550", "GAUDI2": "Intel-GAUDI2", "Intel-GAUDI2": "Intel-GAUDI2",
    "Apple M2 Pro": "M2-Pro", "rngd+": "FURIOSA_RNGDPLUS", "0x740f": "AMD-Instinct-MI210", "v5litepod-16": "TPU-V5LITEPOD",
    "TPU-V6E": "TPU-V6E",
}

# (type, topology): chips, chips per host, hosts, pod type
SLICES = {
    ("TPU-V4", "2x2x1"): (4, 4, 1, "v4-8"), ("TPU-V4", "2x2x2"): (8, 4, 2, "v4-16"), ("TPU-V4", "2x2x4"): (16, 4, 4, "v4-32"),
    ("v4", "12x12x16"): (2304, 4, 576, "v4-4608"), ("v5p", "16x16x24"): (6144, 4, 1536, "v5p-12288"),
    ("v5litepod", "2x4"): (8, 8, 1, "v5litepod-8"), ("v5litepod", "16x16"): (256, 4, 64, "v5litepod-256"),
    ("TPU-V6E", "1x1"): (1, 1, 1, "v6e-1"), ("TPU-V6E", "2x2"): (4, 4, 1, "v6e-4"), ("TPU-V6E", "2x4"): (8, 8, 1, "v6e-8"),
    ("TPU-V6E", "4x4"): (16, 4, 4, "v6e-16"), ("v6e", "8x16"): (128, 4, 32, "v6e-128"), ("v3", "32x32"): (1024, 4, 256, "v3-2048"),
    ("v2", "4x4"): (16, 4, 4, "v2-32"), ("tpu7x", "2x2x4"): (16, 4, 4, "v7x-32"), ("TPU-V7X", "8x16x16"): (2048, 4, 512, "v7x-4096"),
}
NO_SLICES = [
    ("v4", "16x16x16"), ("v5p", "24x24x24"), ("v3", "4x16"), ("v2", "2x2"), ("v7x", "4x4"), ("v6e", "4x2"), ("v6e", "4x"),
    ("v6e", "x4"), ("v6e", ""), ("v6e", "axb"), ("v9", "4x4"), ("A100", "4x4"), ("", "4x4"),
]


class Accelerators(Case):
    def test_no_driver_is_said_in_a_line(self):
        finished = self.assert_status(0, self.trainyard("accelerators", env={"CUDA_VISIBLE_DEVICES": ""}))
        self.assertEqual(1, len(finished.out.splitlines()), repr(finished))
        self.assertEqual("", finished.err)
        data = self.trainyard("accelerators", "--format", "json", env={"CUDA_VISIBLE_DEVICES": ""}).json
        self.assertEqual([], data["devices"])

    def test_types(self):
        data = self.assert_status(0, self.trainyard("accelerators", "types", "--format", "json")).json
        types = {one["type"]: one for one in data["types"]}
        for name, resource in (("A100", "GPU"), ("A100-80G", "GPU"), ("TPU-V6E", "TPU"), ("aws-neuron-core", "neuron_cores"),
                               ("Intel-GAUDI", "HPU"), ("Ascend910B", "NPU"), ("AMD-Instinct-MI300X-OAM", "GPU")):
            self.assertEqual(resource, types[name]["resource"])
        self.assertNotEqual("", types["A100-80G"]["note"])
        text = self.assert_status(0, self.trainyard("accelerators", "types")).out
        self.assertEqual(len(data["types"]) + 1, len(text.splitlines()))

    def test_classify(self):
        for name, expected in NAMES.items():
            with self.subTest(name):
                self.assertEqual(expected + "\n", self.assert_status(0, self.trainyard("accelerators", "classify", name)).out)
                data = self.trainyard("accelerators", "classify", name, "--format", "json").json
                self.assertEqual({"name": name, "type": expected}, data)

    def test_classify_nothing(self):
        self.assertEqual("none\n", self.trainyard("accelerators", "classify", "").out)
        self.assertIsNone(self.trainyard("accelerators", "classify", "", "--format", "json").json["type"])

    def test_tpu(self):
        for (kind, topology), (chips, per_host, hosts, pod) in SLICES.items():
            with self.subTest(kind=kind, topology=topology):
                expected = '{"chips":%d,"chips_per_host":%d,"hosts":%d,"pod_type":"%s"}\n' % (chips, per_host, hosts, pod)
                self.assertEqual(expected, self.assert_status(0, self.trainyard("accelerators", "tpu", kind, topology)).out)

    def test_pod_types(self):
        pods = {"v6e-16": (16, 4, 4), "v7x-16": (8, 4, 2), "tpu7x-16": (8, 4, 2), "v4-8": (4, 4, 1), "v6e-8": (8, 8, 1),
                "v6e-4": (4, 4, 1), "v6e-1": (1, 1, 1), "v5litepod-32": (32, 4, 8), "TPU-V5P-16": (8, 4, 2)}
        for pod, expected in pods.items():
            with self.subTest(pod):
                data = self.assert_status(0, self.trainyard("accelerators", "tpu", pod)).json
                self.assertEqual(expected, (data["chips"], data["chips_per_host"], data["hosts"]))
        hosts = {("8", "v5litepod-4"): 1, ("8", "v5litepod-8"): 1, ("8", "v5litepod-16"): 2, ("8", "v5litepod-32"): 4,
                 ("4", "v5p-4"): 1, ("4", "v5p-8"): 1, ("4", "v5p-16"): 2}
        for (chips, pod), expected in hosts.items():
            with self.subTest(pod=pod, chips=chips):
                self.assertEqual(expected, self.trainyard("accelerators", "tpu", pod, "--chips-per-vm", chips).json["hosts"])
        for pod in ("v-8", "8", "tpu-8", "v2", "v2-", "random-string", "v6e-0", "v6e-x"):
            with self.subTest(pod):
                self.assert_usage(self.trainyard("accelerators", "tpu", pod), "accelerators", pod, "TOPOLOGY")

    def test_chips_per_vm(self):
        finished = self.trainyard("accelerators", "tpu", "v6e", "2x4", "--chips-per-vm", "4")
        self.assertEqual({"chips": 8, "chips_per_host": 4, "hosts": 2, "pod_type": "v6e-8"}, finished.json)
        for value in ("0", "-1", "x", "1.5", ""):
            with self.subTest(value):
                self.assert_usage(self.trainyard("accelerators", "tpu", "v6e", "2x4", "--chips-per-vm=" + value),
                                  "accelerators", "--chips-per-vm", "must be positive")
        self.assert_usage(self.trainyard("accelerators", "--chips-per-vm", "4"), "accelerators", "--chips-per-vm", "tpu")

    def test_no_tpu(self):
        for kind, topology in NO_SLICES:
            with self.subTest(kind=kind, topology=topology):
                self.assert_usage(self.trainyard("accelerators", "tpu", kind, topology), "accelerators")

    def test_wrong_words(self):
        self.assert_usage(self.trainyard("accelerators", "type"), "accelerators", "did you mean types")
        self.assert_usage(self.trainyard("accelerators", "classify"), "accelerators", "classify NAME")
        self.assert_usage(self.trainyard("accelerators", "tpu", "v6e"), "accelerators", "TOPOLOGY")
        self.assert_usage(self.trainyard("accelerators", "types", "x"), "accelerators", "types")


if __name__ == "__main__":
    main()
