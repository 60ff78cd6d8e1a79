"""Samples of the hardware: what a run keeps of its node, workers and devices, who shows it, devices that break, and what becomes of a
sampler that dies or hangs."""

import contextlib
import json
import os
import signal
import sqlite3

import harness
from harness import BUILD

NVML = os.path.join(BUILD, "tests", "unit", "fake_nvml.so")
WORK = "while [ ! -e %s ]; do :; done"


class Usage(harness.Case):
    def setUp(self):
        super().setUp()
        self.over = os.path.join(self.place, "over")
        self.environment.update(FAKE_NVML="2:NVIDIA H100", TRAINYARD_NVML_LIBRARY=NVML)

    def start_sampled(self, *args, env=None):
        return self.start_run("--name", "a", "-n", "2", "--sample", "0.2", "--num-gpus", "2", *args, "--", "sh", "-c", WORK % self.over, env=env)

    def rows(self, what):
        path = os.path.join(self.storage, "a", "usage.db")
        if not os.path.exists(path):
            return []
        with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % path, uri=True, timeout=30)) as database:
            return database.execute("SELECT node, number, mean FROM samples WHERE what = ? ORDER BY time", (what,)).fetchall()

    def sampler(self):
        for pid in harness.processes_with(self.place):
            with contextlib.suppress(OSError):
                with open("/proc/%d/cmdline" % pid, "rb") as file:
                    if file.read().split(b"\0")[1:3] == [b"agent", b"--sample"]:
                        return pid
        return None

    def end(self, process):
        self.write("over", "")
        return self.finish(process)

    def test_node_workers_and_devices_are_kept_and_shown(self):
        process = self.start_sampled()
        self.wait_for(lambda: len(self.rows("worker_cpu")) >= 4 and len(self.rows("device_power")) >= 4, "samples", process, seconds=180)
        shown = self.trainyard("top", "a", "--once", "--storage-path", self.storage)
        told = self.trainyard("metrics", "a", "--format", "openmetrics", "--storage-path", self.storage)
        as_json = self.trainyard("top", "a", "--once", "--format", "json", "--storage-path", self.storage)
        self.assert_status(0, self.end(process))
        self.assertEqual({"logs", "run.db", "usage.db"}, set(os.listdir(os.path.join(self.storage, "a"))))
        self.assertEqual({0, 1}, {number for _, number, _ in self.rows("worker_memory")})
        self.assertEqual({(0, 0.0), (1, 0.37)}, {(number, mean) for _, number, mean in self.rows("device_utilization")})
        self.assertEqual({(1, 0.125)}, {(number, mean) for _, number, mean in self.rows("device_activity")})
        self.assertEqual({1 << 30}, {mean for _, _, mean in self.rows("device_memory")})
        self.assertTrue(all(0 <= mean <= 1 for _, _, mean in self.rows("node_cpu")))
        self.assertGreater(max(mean for _, _, mean in self.rows("worker_cpu")), 0)
        self.assertTrue(all(0 < mean < 1e15 for _, _, mean in self.rows("node_memory")))
        self.assertRegex(shown.out, r"GPU 1 +37 % +1 GiB +412 W +thermal limit")
        node = json.loads(as_json.out)["usage"]["nodes"][0]
        values = {(one["what"], one["number"]): one["value"] for one in node["last"]}
        self.assertEqual((0.37, 1 << 30, 412), tuple(values["device_" + what, 1] for what in ("utilization", "memory", "power")))
        name = node["node"]
        for family, value in [("device_utilization_ratio", "0.37"), ("device_memory_used_bytes", "1073741824"), ("device_power_watts", "412")]:
            self.assertIn('trainyard_%s{run="a",node="%s",device="1"} %s\n' % (family, name, value), told.out)
        self.assertRegex(told.out, r'trainyard_node_cpu_used_ratio\{run="a",node="[^"]*"\} [01]')

    def test_a_device_that_breaks_is_an_event_and_the_first_cause(self):
        faults = self.write("faults", "")
        work = "while [ ! -e %s ]; do sleep 0.05; done; [ $RANK = 1 ] && exec sleep 60; exit 7" % self.over
        process = self.start_run("--name", "a", "-n", "2", "--use-gpu", "--num-gpus", "2", "--sample", "0.2", "--", "sh", "-c", work, env={"FAKE_NVML_FAULTS": faults})

        def told(*kinds):
            with contextlib.closing(sqlite3.connect("file:%s/a/run.db?mode=ro" % self.storage, uri=True, timeout=30)) as database:
                events = [json.loads(data) for (data,) in database.execute("SELECT data FROM events WHERE kind = 'hardware' ORDER BY sequence")]
            return [event for event in events if event["fault"] in kinds]

        self.wait_for(lambda: self.rows("device_power") and told("throttled"), "samples", process, seconds=180)
        with open(faults, "a") as file:
            file.write("xid 63 0\nxid 79 1\nxid 79 1\nlost 1 1\n")
        self.wait_for(lambda: told("lost"), "faults", process, seconds=180)
        finished = self.end(process)
        self.assert_status(7, finished)
        name = self.rows("node_memory")[0][0]
        text = "GPU 1 of node %s (rank 1): Xid 79, it has fallen off the bus" % name
        self.assertEqual([(0, "0", 63), (1, "1", 79)], [(one["device"], one["ranks"], one["code"]) for one in told("xid")])
        self.assertIn("warning: " + text, finished.err)
        self.assertIn("first cause: %s; then rank 0 exited with code 7, on node" % text, finished.err)
        told_out = self.trainyard("metrics", "a", "--format", "openmetrics", "--storage-path", self.storage).out
        self.assertIn('trainyard_device_info{run="a",node="%s",device="1",uuid="GPU-00000001-1111-2222-3333-444444444444",type="H100",ranks="1"} 1\n' % name, told_out)
        self.assertIn('trainyard_device_errors_total{run="a",node="%s",device="1",kind="xid"} ' % name, told_out)
        status = self.trainyard("status", "a", "--storage-path", self.storage)
        self.assertRegex(status.out, r"hardware +4 faults of devices; the last: GPU 1 of node \S+ \(rank 1\): the driver has lost it")
        trace = os.path.join(self.place, "trace.json")
        self.assert_status(0, self.trainyard("trace", "a", "-o", trace, "--storage-path", self.storage))
        with open(trace) as file:
            marks = [one for one in json.load(file)["traceEvents"] if one["name"] == "hardware"]
        self.assertEqual({("i", "g")}, {(one["ph"], one["s"]) for one in marks})
        self.assertIn(text, [one["args"]["cause"] for one in marks])

    def test_nothing_is_sampled_when_it_is_off_or_the_run_is_short(self):
        for wrong in ("0", "0.05", "61", "nan", "-1", "often", "1e300"):
            self.assert_usage(self.run_workers("-n", "1", "--sample", wrong, "--", "true"), "run", "--sample")
        self.assert_status(0, self.run_workers("--name", "b", "-n", "1", "--sample", "off", "--", "sleep", "1"))
        self.assert_status(0, self.run_workers("--name", "c", "-n", "1", "--", "true"))
        for name in "bc":
            self.assertFalse(os.path.exists(os.path.join(self.storage, name, "usage.db")))

    def test_a_sampler_that_dies_is_told_and_the_run_goes_on(self):
        process = self.start_sampled("--progress", "plain")
        self.wait_for(lambda: self.rows("node_memory"), "samples", process, seconds=180)
        os.kill(self.wait_for(self.sampler, "the sampler"), signal.SIGKILL)
        told = "no samples of its hardware for a while"
        while told not in (line := process.stderr.readline()):
            self.assertNotEqual("", line, "it ended without a word of it")
        finished = self.assert_status(0, self.end(process))
        self.assertNotIn(told, finished.err)

    def test_the_end_of_a_run_does_not_wait_for_a_sampler_that_is_stopped(self):
        process = self.start_sampled()
        self.wait_for(lambda: self.rows("node_memory"), "samples", process, seconds=180)
        os.kill(self.wait_for(self.sampler, "the sampler"), signal.SIGSTOP)
        self.assert_status(0, self.end(process))
        self.wait_for(lambda: self.sampler() is None, "its end")

    def test_a_driver_that_hangs_costs_samples_and_nothing_else(self):
        hangs = self.write("hangs", "")
        process = self.start_sampled(env={"FAKE_NVML_HANGS": hangs})
        self.wait_for(self.sampler, "the sampler", process, seconds=180)
        finished = self.wait_for_warning(process)
        self.assertIn("as when a driver hangs", finished.err)
        self.assertEqual([], self.rows("node_memory"))

    def wait_for_warning(self, process):
        gone = self.sampler()
        self.wait_for(lambda: self.sampler() != gone, "the sampler's end", process, seconds=180)
        finished = self.end(process)
        self.assert_status(0, finished)
        return finished

    def test_a_file_that_cannot_be_written_loses_samples_alone(self):
        self.assert_status(0, self.run_workers("--name", "a", "--", "true"))
        os.makedirs(os.path.join(self.storage, "a", "usage.db", "x"))
        process = self.start_sampled("--resume")
        lost = "samples of the hardware are lost"
        while lost not in (line := process.stderr.readline()):
            self.assertNotEqual("", line, "it ended without a word of it")
        finished = self.assert_status(0, self.end(process))
        self.assertNotIn(lost, finished.err)


harness.main()
