"""`trainyard trace`: slices of a track nest, counts are right, and what went wrong is there."""

import gzip
import json
import os

import harness
import seen
from harness import Case


class Trace(Case):
    def trace(self, name, *args, file="t.json"):
        path = os.path.join(self.place, file)
        self.assert_status(0, self.trainyard("trace", "--storage-path", self.storage, name, "-o", path, *args))
        with (gzip.open if file.endswith(".gz") else open)(path, "rt") as text:
            trace = json.load(text)
        self.assert_whole(trace)
        return trace["traceEvents"]

    def assert_whole(self, trace):
        """As the format demands: known phases, names and times, and slices of one track that nest."""
        self.assertEqual({"displayTimeUnit", "otherData", "traceEvents"}, set(trace))
        tracks = {}
        for event in trace["traceEvents"]:
            self.assertIn(event["ph"], "MXisfC")
            self.assertGreaterEqual(event["ts"], 0)
            if event["ph"] == "X":
                tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], -event["dur"]))
        for slices in tracks.values():
            ends = []
            for begin, minus in sorted(slices):
                while ends and ends[-1] <= begin + 1e-6:
                    ends.pop()
                self.assertTrue(not ends or begin - minus <= ends[-1] + 1e-6, (begin, -minus, ends))
                ends.append(begin - minus)

    def test_b(self):
        seen.write_b(self.storage)
        events = self.trace("b")
        attempts = [event for event in events if event.get("cat") == "attempt"]
        self.assertEqual([("failed", "rank 1 exited with code 3"), ("succeeded", None)],
                         [(event["args"]["outcome"], event["args"]["cause"]) for event in attempts])
        for rank in range(2):
            reports = [event for event in events if event.get("cat") == "report" and event["tid"] == rank + 1]
            self.assertEqual(248, len(reports))
            self.assertEqual({2}, {event["pid"] for event in reports})
            self.assertEqual(("report 2", 1_000_000 + 1000 * rank, 1_000_000),
                             (reports[0]["name"], reports[0]["ts"], reports[0]["dur"]))
        names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual({"run b", "node n1"}, names)
        self.assertEqual(["checkpoint", "exited"], [event["name"] for event in events if event["ph"] == "i"])
        self.assertEqual({"loss", "step"}, {event["name"] for event in events if event["ph"] == "C"})
        self.assertEqual(4, sum(event["name"] == "first report" for event in events))

    def test_a_part_of_it_compressed(self):
        seen.write_a(self.storage)
        events = self.trace("a", "--ranks", "3", "--from", "10", "--to", "19", file="t.json.gz")
        reports = [event for event in events if event.get("cat") == "report"]
        self.assertEqual(["report %d" % n for n in range(10, 20)], [event["name"] for event in reports])
        self.assertEqual({4}, {event["tid"] for event in reports})

    def test_who_was_stopped_for_whom(self):
        journal = seen.Journal(self.storage, "flow", 3)
        journal.begin(0, 1, 3)
        journal.event(seen.SECOND, "exited", {"code": 7}, 1, 1, 0)
        for rank in (0, 2):
            journal.event(2 * seen.SECOND, "exited", {"signal": 15, "stopped": True}, 1, rank, 0)
        journal.end(3 * seen.SECOND, 1, "failed", 7, rank=1, cause="rank 1 exited with code 7")
        events = self.trace("flow")
        self.assertEqual([2, 2], [event["tid"] for event in events if event["ph"] == "s"])
        self.assertEqual([1, 3], [event["tid"] for event in events if event["ph"] == "f"])
        self.assertEqual(["rank 1 exited with code 7"], [event["args"]["cause"] for event in events if event["ph"] == "i"])

    def test_each_end_tells_its_cause(self):
        journal = seen.Journal(self.storage, "ends", 2)
        journal.begin(0, 1, 2)
        journal.event(seen.SECOND, "exited", {"signal": 9}, 1, 0, 0)
        journal.event(seen.SECOND, "exited", {"code": 1, "cause": "out of memory"}, 1, 1, 0)
        journal.event(seen.SECOND, "node_lost", {"reason": "its \"agent\" died"}, 1, -1, 0)
        journal.event(seen.SECOND, "exited", {}, 1, 0, 0)
        journal.end(3 * seen.SECOND, 1, "failed", 1)
        self.assertEqual(["rank 0 was killed by signal 9 (SIGKILL)", "out of memory", 'its "agent" died', None],
                         [event["args"].get("cause") for event in self.trace("ends") if event["ph"] == "i"])

    def test_ranks_that_move(self):
        """Each attempt has nodes of its own: a rank's reports are on the node that it was on."""
        journal = seen.Journal(self.storage, "moves", 4)
        plans = [(["n1", "n2"], [0, 0, 1, 1]), (["n2"], [0, 0]), (["n3", "n2"], [0, 0, 1, 1])]
        for attempt, (nodes, ranks) in enumerate(plans, 1):
            at = attempt * 100 * seen.SECOND
            journal.event(at, "plan", {"nodes": nodes, "ranks": ranks, "devices": [""] * len(ranks)}, attempt)
            journal.event(at, "attempt", {"workers": len(ranks), "nodes": len(nodes)}, attempt)
            for rank, node in enumerate(ranks):
                journal.event(at, "started", {"pid": 1000 + rank}, attempt, rank, node)
                journal.event(at + seen.SECOND, "ready", None, attempt, rank, node)
                journal.reports((at + n * seen.SECOND, attempt, rank, n, {}) for n in range(2, 5))
        journal.end(900 * seen.SECOND, 3)
        events = self.trace("moves")
        nodes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        tracks = [(nodes[event["pid"]], event["args"]["name"]) for event in events if event["name"] == "thread_name"]
        self.assertEqual({"run moves", "node n1", "node n2", "node n3"}, set(nodes.values()))
        for attempt, (names, ranks) in enumerate(plans, 1):
            reports = [event for event in events if event.get("cat") in ("report", "start") and event["ts"] // 100_000_000 == attempt]
            self.assertEqual({("node " + names[node], rank + 1) for rank, node in enumerate(ranks)},
                             {(nodes[event["pid"]], event["tid"]) for event in reports})
            for rank, node in enumerate(ranks):
                self.assertIn(("node " + names[node], "rank %d" % rank), tracks)

    def attempts(self, events):
        """Name, outcome, begin and duration in seconds."""
        return [(event["name"], event["args"]["outcome"], event["ts"] / 1e6, event["dur"] / 1e6) for event in events if event.get("cat") == "attempt"]

    def test_an_attempt_that_died_ends_with_its_last_report(self):
        journal = seen.Journal(self.storage, "resumed", 2)
        journal.begin(0, 1, 2)
        journal.reports((n * seen.SECOND, 1, n % 2, (n + 1) // 2, {}) for n in range(1, 11))
        journal.event(60 * seen.SECOND, "run", {"name": "resumed", "num_workers": 2})
        journal.begin(61 * seen.SECOND, 2, 2)
        journal.reports((n * seen.SECOND, 2, n % 2, 6 + (n - 62) // 2, {}) for n in range(62, 66))
        journal.event(90 * seen.SECOND, "run", {"name": "resumed", "num_workers": 2})
        journal.close()
        events = self.trace("resumed")
        self.assertEqual([("attempt 1", "died", 0, 10), ("attempt 2", "died", 61, 4)], self.attempts(events))
        self.assertEqual({"its controller died"}, {event["args"]["cause"] for event in events if event.get("cat") == "attempt"})

    def test_an_attempt_that_goes_on_ends_with_its_last_report(self):
        journal = seen.Journal(self.storage, "on", 1)
        journal.begin(0, 1, 1)
        journal.reports((n * seen.SECOND, 1, 0, n, {}) for n in range(1, 8))
        journal.close()
        self.assertEqual([("attempt 1", None, 0, 7)], self.attempts(self.trace("on")))
        self.assertEqual([("attempt 1", None, 0, 7)], self.attempts(self.trace("on", "--to", "3")))

    def test_an_attempt_that_was_adopted_is_one(self):
        journal = seen.Journal(self.storage, "adopted", 1)
        journal.begin(0, 1, 1)
        journal.reports((n * seen.SECOND, 1, 0, n, {}) for n in range(1, 8))
        journal.event(8 * seen.SECOND, "run", {"name": "adopted", "num_workers": 1})
        journal.event(9 * seen.SECOND, "adopted", None, 1)
        journal.end(20 * seen.SECOND, 1)
        self.assertEqual([("attempt 1", "succeeded", 0, 20)], self.attempts(self.trace("adopted")))

    def test_a_clock_that_went_back(self):
        seen.write_back(self.storage)
        events = self.trace("back")
        self.assertEqual([("attempt 1", "died", 1, 103.5), ("attempt 2", "succeeded", 104.5, 25.5)], self.attempts(events))
        names = [event["name"] for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == (2, 1)]
        self.assertEqual([*["first report"] * 2, "loader", "loader", "spawn", "spawn"], sorted(name for name in names if name[:7] != "report "))
        self.assertEqual(99 + 74, sum(name[:7] == "report " for name in names))
        self.assertEqual([("plan", 500_000, 500_000), ("agent", 1_000_000, 250_000)],
                         [(event["name"], event["ts"], event["dur"]) for event in events if event.get("cat") == "start" and event["pid"] == 1])

    def test_profiles_beside_the_reports_of_their_rank(self):
        path = seen.write_b(self.storage)
        seen.write_profile(path, 0, 3 * seen.SECOND)
        seen.write_profile(path, 1, 3 * seen.SECOND + 1_000_500, base=False)
        self.assertEqual([], [event for event in self.trace("b") if event["name"] == "gemm"])
        events = self.trace("b", "--with-profile")
        steps = [event for event in events if event["name"] == "ProfilerStep#2"]
        self.assertEqual([3_000_000, 2000.5, "]},{\\\""], [steps[0]["ts"], steps[0]["dur"], steps[0]["args"]["a"]])
        self.assertAlmostEqual(3_001_000.5, steps[1]["ts"], delta=0.5)  # of so large a number a float tells no less
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        ours = sorted(name for pid, name in names.items() if pid > 2)
        self.assertEqual([f"rank {rank} profile: {name}" for rank in range(2) for name in ("CPU", "GPU 0", "Spans")], ours)
        self.assertEqual(["rank 0 profile: CPU", "rank 1 profile: CPU"], [names[event["pid"]] for event in steps])
        self.assertEqual(2, len({event["id"] for event in events if event["ph"] in "sf" and event["name"] == "ac2g"}))
        only = self.trace("b", "--with-profile", "--ranks", "1")
        self.assertEqual(1, sum(event["name"] == "gemm" for event in only))

    def test_profiles_that_are_none(self):
        path = seen.write_b(self.storage)
        place = os.path.join(path, "logs", "profile", "rank-0.pt.trace.json.gz")

        def refused(word):
            words = ("trace", "--storage-path", self.storage, "b", "-o", os.path.join(self.place, "t.json"), "--with-profile")
            self.assert_line(self.assert_status(2, self.trainyard(*words)), "trace", word)

        refused("no profile")
        seen.write_profile(path, 0, 0)
        with open(place, "rb") as file:
            whole = file.read()
        for text, word in ((whole[:-40], "rank-0.pt.trace.json.gz"), (gzip.compress(b'{"traceEvents": [{"ph": "X"'), "in the middle"),
                           (b'{"traceEvents": [{"ph" "X"}]}', "expected"), (b"]", "no JSON"), (b"{" * 100, "in the middle")):
            with open(place, "wb") as file:
                file.write(text)
            refused(word)
        os.unlink(place)
        os.symlink("/etc/passwd", place)
        os.mkfifo(place.replace("rank-0", "rank-1"))
        refused("no profile")
        self.assertEqual(["runs"], os.listdir(self.place))

    def test_what_is_no_file_is_written_to_and_stays(self):
        seen.write_b(self.storage)
        link = os.path.join(self.place, "t.json")
        os.symlink("/dev/stdout", link)
        told = self.assert_status(0, self.trainyard("trace", "--storage-path", self.storage, "b", "-o", link))
        self.assertIn("traceEvents", json.loads(told.out))
        self.assertTrue(os.path.islink(link))

    def test_wrong_use(self):
        seen.write_b(self.storage)
        for args, word in (((), "--output"), (("-o", "/no/such/t.json"), "/no/such"), (("-o", "t", "--from", "0"), "--from"),
                           (("-o", "t", "--from", "9", "--to", "8"), "--to")):
            self.assert_line(self.assert_status(2, self.trainyard("trace", "--storage-path", self.storage, "b", *args)), "trace", word)
        self.assertEqual(["runs"], os.listdir(self.place))


if __name__ == "__main__":
    harness.main()
