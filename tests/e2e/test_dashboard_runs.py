"""`trainyard dashboard` over HTTP: what it tells of runs, their reports, hardware and logs; the page as one file."""

import base64
import contextlib
import http.client
import json
import os
import re
import sqlite3
import time
import unittest

import seen
from dashboards import DashboardCase
from journals import Journal, make_a, make_b, make_usage


class Runs(DashboardCase):
    def test_runs_that_cannot_be_read_are_told_beside_the_others(self):
        for i in range(197):
            Journal(self.storage, f"run-{i:03}").done(1)
        for name in ("later", "damaged", "closed"):
            Journal(self.storage, name).done(1)
        with sqlite3.connect(os.path.join(self.storage, "later", "run.db")) as database:
            database.execute("PRAGMA user_version = 9")
        with open(os.path.join(self.storage, "damaged", "run.db"), "r+b") as file:
            file.write(b"\0" * 8192)
        os.chmod(os.path.join(self.storage, "closed", "run.db"), 0)
        server = self.serve()
        told = server.json("/api/runs")
        unreadable = {run["name"]: run["error"] for run in told["unreadable"]}
        closed = ["closed"] if os.getuid() != 0 else []  # root reads it
        self.assertEqual(sorted(["damaged", "later", *closed]), sorted(unreadable))
        self.assertEqual(200 - len(unreadable), len(told["runs"]))
        self.assertIn("version 9", unreadable["later"])

    def test_runs_of_others_are_told_as_unreadable(self):
        Journal(self.storage, "open").done(1)
        other = Journal(self.storage, "other")
        other.done(1)
        os.mkdir(os.path.join(self.storage, "no run"))
        more = {}
        if os.getuid() == 0:  # who may enter each directory
            more = {"user": 61234, "group": 61234, "executable": self.command_for_all()}
            for path in (self.place, self.storage):
                os.chmod(path, 0o777)
        server = self.serve(**more)
        run = server.ids()["other"]
        os.chmod(other.path, 0)
        self.addCleanup(os.chmod, other.path, 0o777)
        told = server.json("/api/runs")
        self.assertEqual(["open"], [run["name"] for run in told["runs"]])
        self.assertEqual([{"id": run, "name": "other", "error": f"cannot look into {other.path}: Permission denied"}], told["unreadable"])
        for part in ("", "/metrics", "/logs", "/metrics.csv", "/logs/rank-0/whole"):
            self.assertEqual(403, server.ask(f"/api/runs/{run}{part}")[0], part)
        os.chmod(other.path, 0o777)
        self.assertEqual({"open", "other"}, set(server.ids()))

    def test_a_run_that_was_deleted(self):
        make_a(self.storage, numbers=3)
        server = self.serve()
        run = server.ids()["a"]
        self.trainyard("rm", "--storage-path", self.storage, "a")
        self.assertEqual(410, server.ask("/api/runs/" + run)[0])
        for part in ("metrics", "usage", "usage?what=device_power", "profiles", "logs", "stacks", "events", "ranks"):
            self.assertEqual(410, server.ask(f"/api/runs/{run}/{part}")[0], part)
        self.assertEqual([], server.json("/api/runs")["runs"])

    # -- reports

    def test_what_a_restart_took_back_is_lost_and_nothing_else(self):
        make_b(self.storage)
        server = self.serve()
        run = server.ids()["b"]
        counts = server.json(f"/api/series?run={run}&metric=loss")["series"]
        self.assertEqual([[2] * 200], [line["n"] for line in counts])
        lost = [line for line in server.json(f"/api/series?run={run}&metric=loss&history=all")["series"] if line["lost"]]
        self.assertEqual([list(range(101, 151))], [line["x"] for line in lost])

    def test_metrics_of_several_runs_in_one_answer(self):
        make_a(self.storage)
        make_b(self.storage)
        server = self.serve()
        ids = server.ids()
        runs, names = [ids["a"], ids["b"]], ["loss", "epoch", "none"]
        told = server.json("/api/series?history=all&" + "&".join([*("run=" + run for run in runs), *("metric=" + name for name in names)]))
        self.assertEqual(names, [metric["metric"] for metric in told["metrics"]])
        self.assertEqual(8500, told["reports"])
        for i, name in enumerate(names):
            alone = server.json(f"/api/series?history=all&metric={name}&" + "&".join("run=" + run for run in runs))
            self.assertEqual({"metric": name, **{key: alone[key] for key in ("exact", "scanned", "x", "ranks")}}, told["metrics"][i])
            for part in ("series", "marks"):
                self.assertEqual(alone[part], [one for one in told[part] if one["metric"] == name])
        self.assertEqual(400, server.ask(f"/api/series?run={runs[0]}&metric=&metric=loss")[0])

    def test_all_of_a_large_run_is_drawn_in_the_end(self):
        journal = Journal(self.storage, "large")
        journal.begin(8)
        for n in range(1, 8001):
            for rank in range(8):
                journal.report(n, 1, rank, n, '{"loss": %s, "step": %d}' % (99 if (rank, n) == (5, 4321) else 1, n))
        journal.done(9000)
        server = self.serve()
        run = server.ids()["large"]
        first = server.json(f"/api/series?run={run}&metric=loss")
        if not first["exact"]:
            self.assertTrue(0 < first["scanned"] < 1)
        reply = self.open_stream(server, run)
        while self.next_event(reply, "index")["scanned"] < 1:
            pass
        told = server.json(f"/api/series?run={run}&metric=loss")
        self.assertTrue(told["exact"])
        self.assertEqual((64000, 99), (sum(told["series"][0]["n"]), max(told["series"][0]["max"])))
        path = os.path.join(self.place, "large.html")
        self.assert_status(0, self.trainyard("dashboard", "--storage-path", self.storage, "large", "-o", path))
        with open(path) as file:
            page = file.read()
        self.assertIn("max 99 @5", page)
        marks = [float(mark) for mark in re.findall(r'text-anchor="end">([-+.e\d]+)</text>', page)]
        self.assertLess({0, 20, 40, 60, 80, 100}, set(marks))

    def drawn(self, server, run, path):
        """What the path answers once all reports are in it; before that it is of a sample, which is told."""
        reply = self.open_stream(server, run)
        told = server.json(path)
        self.assertEqual((False, True), (told["exact"], 0 < told["scanned"] < 1))
        while not told["exact"]:
            if self.next_event(reply, "index")["scanned"] >= 1:
                told = server.json(path)
        reply.close()
        return told

    def test_last_values_of_a_large_run_are_those_of_rank_0(self):
        """Also where a sample is all that is read."""
        seen.write_c(self.storage, "c", 1000)
        server = self.serve()
        run = server.ids()["c"]
        last = {metric["name"]: metric["last"] for metric in server.json(f"/api/runs/{run}/metrics")}
        self.assertEqual({"loss": 2 / 1001, "step": 1000}, {name: last[name] for name in ("loss", "step")})
        self.assertAlmostEqual(last["loss"], server.json(f"/api/runs/{run}")["metrics"]["loss"], 12)

    def test_many_ranks_are_seen_in_a_sample(self):
        """Each of them, at the beginning and at the end, as far as two blocks of it go."""
        seen.write_d(self.storage, ranks=10_000, numbers=6, metrics=1)
        server = self.serve()
        run = server.ids()["d"]
        heat = server.json(f"/api/runs/{run}/heat?metric=@interval&x=number&rows=100&columns=5")
        cells = base64.b64decode(heat["cells"])
        self.assertEqual((10_000, 100, 2, 6), (heat["ranks"], heat["rows"], heat["from"], heat["to"]))
        self.assertEqual([True, True], [all(cells[row * 5 + column] for row in range(100)) for column in (0, 4)])

    def test_lines_of_a_large_run_are_drawn_in_the_end(self):
        seen.write_c(self.storage, "c", 2000)
        server = self.serve()
        run = server.ids()["c"]
        for query, n in (("metric=loss&what=ranks&ranks=3,9", 2 * 2000), ("metric=lr&x=metric:step", 64 * 2000), ("metric=@interval&ranks=5", 1999),
                         ("metric=@lag", 64 * 2000)):
            told = self.drawn(server, run, f"/api/series?run={run}&buckets=300&{query}")
            self.assertEqual((1, n), (told["scanned"], sum(sum(line["n"]) for line in told["series"])))
        told = self.drawn(server, run, f"/api/runs/{run}/heat?metric=loss&x=number&columns=100")
        self.assertEqual((1, 64, 64, 1, 2000), (told["scanned"], told["ranks"], told["rows"], told["from"], told["to"]))

    def test_an_index_goes_on_once_its_run_is_back(self):
        seen.write_c(self.storage, "c", 10_000)  # more than thirty steps
        server = self.serve()
        run, away = server.ids()["c"], os.path.join(self.place, "away")
        path = os.path.join(self.storage, "c")
        reply = self.open_stream(server, run)
        self.next_event(reply, "index")
        os.rename(path, away)
        self.next_event(reply, "gone")
        os.rename(away, path)
        self.wait_for(lambda: server.json(f"/api/series?run={run}&metric=loss")["exact"], "the whole index")

    def test_ranks_that_are_far_ahead_of_a_slow_one(self):
        journal = Journal(self.storage, "apart")
        journal.begin(4)
        for rank in range(3):
            for n in range(1, 301):
                journal.report(n, 1, rank, n, {"step": n})
        for n in range(1, 301):
            journal.report(1000 + n, 1, 3, n, {"step": n})
        journal.done(2000)
        server = self.serve()
        reply = server.json(f"/api/runs/{server.ids()['apart']}/ranks")
        self.assertEqual({0: 300, 1: 300, 2: 300, 3: 300}, {item["rank"]: item["number"] for item in reply["items"]})
        self.assertEqual([], [item for item in reply["items"] if item["interval"] is None or item["last_report"] is None])
        lag = {item["rank"]: item["lag"] for item in reply["items"]}
        self.assertGreater(lag[3], max(lag[rank] for rank in range(3)))

    def test_the_index_is_told_of_four_times_a_second_at_most(self):
        seen.write_c(self.storage, "c", 10_000)  # more than thirty steps
        server = self.serve()
        run, told, begun = server.ids()["c"], [0], time.monotonic()
        reply = self.open_stream(server, run)
        while told[-1] < 1:
            told.append(self.next_event(reply, "index")["scanned"])
        self.assertEqual(sorted(told), told)
        self.assertLessEqual(len(told) - 1, 2 + 4 * (time.monotonic() - begun))  # the first, and that it is whole

    # -- samples of the hardware

    def test_samples_of_the_hardware(self):
        make_usage(make_a(self.storage, numbers=3),
                   [(i * 10, "<b>", what, number, value) for i in range(100)
                    for what, number, value in [("device_power", 1, 400 + i), ("device_power", 0, 70), ("node_receive", -1, 1e9 + i * 5000), ("of_another_version", -1, 1)]])
        server = self.serve()
        route = "/api/runs/%s/usage" % server.ids()["a"]
        node, = server.json(route)["nodes"]
        self.assertEqual("<b>", node["node"])
        self.assertEqual({("device_power", 0): (70, "70 W"), ("device_power", 1): (499, "499 W"), ("node_receive", None): (500, "500 B/s")},
                         {(one["what"], one["number"]): (one["value"], one["text"]) for one in node["last"]})
        reply = server.json(route + "?what=device_power&buckets=10&node=%3Cb%3E")
        idle, series = reply["series"]
        self.assertEqual((2, 0, 1, 70), (reply["lines"], idle["number"], series["number"], max(idle["max"])))
        self.assertEqual(([10] * 10, 400, 499), (series["n"], min(series["min"]), max(series["max"])))
        for over, node in [("node", "<b>"), ("all", None)]:
            band, = server.json(route + "?what=device_power&buckets=10&over=" + over)["series"]
            self.assertEqual((node, None, 200, 70, 499), (band["node"], band["number"], sum(band["n"]), min(band["min"]), max(band["max"])))
        with contextlib.closing(sqlite3.connect(os.path.join(self.storage, "a", "usage.db"))) as database, database:
            database.executemany("INSERT INTO samples VALUES(0, ?, '<b>', 'device_power', 0, ?, 0, 0, 0)",
                                 [(5000, 2**63 - 1), (5001, 2**63 - 1), (5002, -1), (5003, 0), (5004, "many")])  # which nobody sampled
        self.assertEqual(200, sum(server.json(route + "?what=device_power&buckets=10&over=all")["series"][0]["n"]))
        self.assertEqual([], server.json(route + "?what=device_power&node=other")["series"])
        for wrong in ("?what=loss", "?what=device_power&buckets=0", "?from=x", "?what=device_power&over=none", "?metric=loss"):
            self.assertEqual(400, server.ask(route + wrong)[0], wrong)
        page, trace = os.path.join(self.place, "a.html"), os.path.join(self.place, "a.json")
        self.assert_status(0, self.trainyard("dashboard", "a", "-o", page, "--storage-path", self.storage))
        self.assert_status(0, self.trainyard("trace", "a", "-o", trace, "--storage-path", self.storage))
        with open(page, encoding="utf-8") as file:
            shown = file.read()
        figures = {re.search(r"</span>([^<]*)</figcaption>", one)[1]: one for one in re.findall(r"<figure>.*?</figure>", shown, re.S)}
        self.assertIn("</span>&#60;b&#62; GPU 1 ", figures["device power"])
        self.assertIn("watts", figures["device power"])
        self.assertNotIn("device memory", figures)
        with open(trace, encoding="utf-8") as file:
            points = [one for one in json.load(file)["traceEvents"] if one["ph"] == "C" and one["name"] == "power GPU 1"]
        self.assertEqual([400 + i for i in range(100)], [one["args"]["watts"] for one in points])
        self.assertEqual(10_000_000, points[1]["ts"] - points[0]["ts"])

    # -- TPU slices

    def test_slices_are_grids_of_chips(self):
        hosts = [{"name": "%s-%d" % (name, host), "resources": {"CPU": 8, "TPU": 4}, "accelerator_type": "TPU-V6E",
                  "labels": {"ray.io/tpu-slice-name": name, "ray.io/tpu-worker-id": str(host), "ray.io/tpu-pod-type": "v6e-16", "ray.io/tpu-topology": "4x4"}}
                 for name in ("a", "b") for host in range(4)]
        cluster = self.write("cluster.json", json.dumps({"nodes": hosts}))
        for name, n, chips in [("whole", 8, 4), ("halves", 8, 2)]:
            self.assert_status(0, self.run_workers("--name", name, "--cluster", cluster, "-n", n, "--use-tpu", "--topology", "4x4", "--accelerator-type", "TPU-V6E",
                                                   "--resources", "TPU=%d" % chips, "--", "true"))
        server = self.serve()
        one, other = server.json("/api/runs/%s/placement" % server.ids()["whole"])["grids"]
        self.assertEqual(("a", "v6e-16", "4x4", 4), tuple(one[key] for key in ("name", "type", "topology", "columns")))
        self.assertEqual([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]], one["ranks"])
        self.assertEqual([[4, 4, 5, 5], [4, 4, 5, 5], [6, 6, 7, 7], [6, 6, 7, 7]], other["ranks"])
        half, = server.json("/api/runs/%s/placement" % server.ids()["halves"])["grids"]
        self.assertEqual([[0, 0, 2, 2], [1, 1, 3, 3], [4, 4, 6, 6], [5, 5, 7, 7]], half["ranks"])

    # -- logs

    def test_logs_are_files_of_the_run_alone(self):
        run = Journal(self.storage, "a")
        run.log(0, b"caf\xc3\xa9 \xff\xfe broken\x00\n" + b"x" * 100 + b"\xe2\x82")
        logs = os.path.join(run.path, "logs")
        seen.write_profile(run.path, 3, seen.SECOND)
        os.symlink("/etc/passwd", os.path.join(logs, "profile", "rank-4.pt.trace.json.gz"))
        os.symlink("/etc/passwd", os.path.join(logs, "rank-1.log"))
        os.mkfifo(os.path.join(logs, "rank-2.log"))
        os.mkdir(os.path.join(logs, "rank-3.log"))
        run.done(1)
        server = self.serve()
        base = f"/api/runs/{server.ids()['a']}/logs"
        told = {**server.json(base.removesuffix("logs") + "profiles"), **server.json(base)}
        self.assertEqual([0, 1, 2, 3], [one["rank"] for one in told["ranks"]])
        profile = os.path.join(logs, "profile", "rank-3.pt.trace.json.gz")
        self.assertEqual([{"rank": 3, "name": os.path.basename(profile), "size": os.path.getsize(profile)}], told["profiles"])
        self.assertNotIn("profiles", server.json(base))  # a page that shows these alone does not list the logs of all ranks
        self.assertEqual([None] * 3, [one["size"] for one in told["ranks"][1:]])
        for rank in (1, 2, 3):
            status, data, _ = server.ask(f"{base}/rank-{rank}")
            self.assertEqual(400, status)
            self.assertIn("refused", json.loads(data)["error"])
        self.assertEqual(404, server.ask(base + "/rank-9")[0])
        text = server.json(base + "/rank-0")
        self.assertTrue(text["text"].startswith("café \ufffd\ufffd broken\x00\nx"), text)
        self.assertEqual(text["size"] - 2, text["next"])  # the character may yet be finished
        self.assertEqual("xx", server.json(f"{base}/rank-0?from={text['next'] - 2}&bytes=2")["text"])
        self.assertEqual(400, server.ask(base + "/rank-0?bytes=1048577")[0])
        whole = server.ask(base + "/rank-0/whole")
        self.assertEqual((200, text["size"]), (whole[0], len(whole[1])))
        run_base = base.removesuffix("logs")
        with open(profile, "rb") as file:
            self.assertEqual(file.read(), server.ask(run_base + "profile/rank-3")[1])
        with_profile = json.loads(server.ask(run_base + "trace.json?with_profile=1")[1])["traceEvents"]
        self.assertIn("gemm", [event["name"] for event in with_profile])
        with self.assertRaises(http.client.IncompleteRead):
            server.ask(run_base + "profile/rank-4")

    def test_what_is_not_there_is_not_downloaded(self):
        run = Journal(self.storage, "a")
        run.log(0, b"")
        seen.write_profile(run.path, 3, seen.SECOND)
        run.done(1)
        Journal(self.storage, "b").done(1)
        server = self.serve()
        ids = server.ids()
        for path in (f"{ids['a']}/profile/rank-4", f"{ids['b']}/profile/rank-0", f"{ids['a']}/logs/rank-9/whole"):
            status, data, reply = server.ask("/api/runs/" + path)
            self.assertEqual((404, "application/json", None), (status, reply.getheader("Content-Type"), reply.getheader("Content-Disposition")), path)
            self.assertRegex(json.loads(data)["error"], r"\A[^\n]+\Z", path)
        status, data, reply = server.ask(f"/api/runs/{ids['a']}/logs/rank-0/whole")  # is there, and empty
        self.assertEqual((200, b"", 'attachment; filename="a.log"'), (status, data, reply.getheader("Content-Disposition")))
        self.trainyard("rm", "--storage-path", self.storage, "a")
        for name in ("metrics.csv", "metrics.jsonl", "trace.json"):
            self.assertEqual(410, server.ask(f"/api/runs/{ids['a']}/{name}")[0], name)

    def test_a_download_of_a_run_with_a_long_name(self):
        run = Journal(self.storage, "n" * 200)
        seen.write_profile(run.path, 0, seen.SECOND)
        run.done(1)
        server = self.serve()
        base = f"/api/runs/{server.ids()[run.path.rpartition('/')[2]]}/"
        for path, ending in (("metrics.csv", ".csv"), ("profile/rank-0", ".pt.trace.json.gz")):
            status, _, reply = server.ask(base + path)
            self.assertEqual(200, status)
            self.assertRegex(reply.getheader("Content-Disposition"), r'\Aattachment; filename="n{80,}%s"\Z' % re.escape(ending))

    def test_logs_are_searched_in_slices(self):
        run = Journal(self.storage, "a")
        for rank in range(3):
            run.log(rank, "".join(f"line {n} {'CUDA Error' if n % 100 == 0 else 'fine'}\n" for n in range(1, 30001)))
        run.done(1)
        server = self.serve()
        base = f"/api/runs/{server.ids()['a']}/logs/search?q=cuda%20error"
        hits, counts, cursor, calls = [], {}, "", 0
        while cursor is not None:
            told = server.json(base + (f"&cursor={cursor}" if cursor else ""))
            self.assertLessEqual(len(told["hits"]), 200)
            hits += told["hits"]
            for one in told["counts"]:
                counts[one["rank"]] = counts.get(one["rank"], 0) + one["hits"]
            cursor = told["cursor"]
            calls += 1
        self.assertEqual({0: 300, 1: 300, 2: 300}, counts)
        self.assertEqual([(rank, f"line {n * 100} CUDA Error") for rank in range(3) for n in range(1, 301)], [(hit["rank"], hit["line"]) for hit in hits])
        self.assertGreaterEqual(calls, 5)
        self.assertEqual({1}, {hit["rank"] for hit in server.json(base + "&ranks=1")["hits"]})
        for wrong in ("cursor=x", "cursor=1:-1", "ranks=b"):
            self.assertEqual(400, server.ask(f"{base}&{wrong}")[0])
        self.assertEqual(400, server.ask(base.split("?")[0] + "?q=")[0])

    def test_output_before_a_worker_has_begun(self):
        run = Journal(self.storage, "a")
        run.done(1)
        os.rmdir(os.path.join(run.path, "logs"))
        server = self.serve()
        base = f"/api/runs/{server.ids()['a']}"
        self.assertEqual({"ranks": []}, server.json(base + "/logs"))
        self.assertEqual({"hits": [], "counts": [], "cursor": None}, server.json(base + "/logs/search?q=x"))
        self.assertEqual({"actions": False, "groups": []}, server.json(base + "/stacks"))
        self.assertEqual(404, server.ask(base + "/logs/rank-0")[0])

    def test_what_is_kept_of_a_run_goes_with_it(self):
        for name in ("a", "b"):
            seen.write_c(self.storage, name, 1000)
        server = self.serve()
        ids = server.ids()
        kept = {name: os.path.join(self.place, "cache", "trainyard", "index", id + ".db") for name, id in ids.items()}
        for name, id in ids.items():
            server.json(f"/api/series?run={id}&metric=loss")
            self.wait_for(lambda: os.path.exists(kept[name]), "its index is kept", server.process)
        os.rename(os.path.join(self.storage, "a"), os.path.join(self.place, "away"))
        self.assertEqual(410, server.ask("/api/runs/" + ids["a"])[0])
        self.wait_for(lambda: not os.path.exists(kept["a"]), "its index goes", server.process)
        self.assert_status(0, self.trainyard("rm", "--storage-path", self.storage, "b", env={"XDG_CACHE_HOME": os.path.join(self.place, "cache")}))
        self.assertFalse(os.path.exists(kept["b"]))

    # -- one file

    def test_a_run_as_one_file(self):
        make_a(self.storage)
        make_b(self.storage)
        path = os.path.join(self.place, "page.html")
        for names in (["a"], ["b"], ["a", "b"]):
            self.assert_status(0, self.trainyard("dashboard", "--storage-path", self.storage, *names, "-o", path))
            with open(path) as file:
                page = file.read()
            self.assertLess(len(page), 1 << 20)
            self.assertNotRegex(page, r"<script|src=|href=|javascript:|url\(")
            self.assertIn("default-src 'none'", page)
            self.assertGreaterEqual(page.count("<figure>"), 2)
            if names == ["a"]:
                self.assertIn("max 99 @5", page)
                self.assertIn("1 not finite", page)
            if names == ["b"]:  # nothing scores its checkpoint
                self.assertIn('checkpoint_000100<td class="n">100<td class="n">-<td class="n">-<td>', page)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o666 & ~current_umask())
        done = self.trainyard("dashboard", "--storage-path", self.storage, "a", "-o", os.path.join(self.place, "no", "page.html"))
        self.assertNotEqual(0, done.status)
        self.assert_line(done, "dashboard", "cannot write")
        self.assert_status(2, self.trainyard("dashboard", "--storage-path", self.storage, "none", "-o", path))
        self.assert_status(2, self.trainyard("dashboard", "-o", path))

    def test_any_double_in_the_file(self):
        """A range, and the sum of a step, that are beyond a double."""
        journal = seen.Journal(self.storage, "ends", 2)
        journal.begin(0, 1, 2)
        journal.reports((n * seen.SECOND, 1, rank, n, {"loss": (n - 3) * 8e307, "same": 2.0**70, "step": n}) for n in range(1, 6) for rank in range(2))
        journal.end(9 * seen.SECOND, 1)
        path = os.path.join(self.place, "page.html")
        self.assert_status(0, self.trainyard("dashboard", "--storage-path", self.storage, "ends", "-o", path))
        with open(path) as file:
            page = file.read()
        self.assertEqual(3, page.count("<figure>"))
        self.assertNotRegex(page, r"(?:nan|inf)[ LMZ\"<]")

    def test_a_clock_that_was_put_back_in_the_file(self):
        """No attempt takes less than nothing."""
        seen.write_put_back(self.storage, "back")
        path = os.path.join(self.place, "page.html")
        self.assert_status(0, self.trainyard("dashboard", "--storage-path", self.storage, "back", "-o", path))
        with open(path) as file:
            attempts = re.search("<h2>Attempts</h2><table>(.*?)</table>", file.read(), re.S)[1]
        self.assertEqual(["0 s", "3 s"], [row.split('<td class="n">')[3].split("<td>")[0] for row in attempts.split("<tr>")[2:]])

    def test_hostile_names_in_the_file(self):
        name = "<img src=x onerror=alert(1)>"
        run = Journal(self.storage, name)
        run.begin(1)
        run.report(1, 1, 0, 1, {"</script><b>": 1, "x\u202e\x1b[31m": 2})
        run.event(2, "exited", 1, 0, 0, code=3)
        run.log(0, "</pre><script>alert(1)</script>\n")
        run.done(2, "failed", 3, rank=0, cause="<svg onload=alert(1)>")
        path = os.path.join(self.place, "page.html")
        self.assert_status(0, self.trainyard("dashboard", "--storage-path", self.storage, name, "-o", path))
        with open(path) as file:
            page = file.read()
        self.assertNotRegex(page, r"<(img|script|b>|svg on)|\x1b|\u202e")
        self.assertEqual(1, page.count("</pre>"))


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


if __name__ == "__main__":
    unittest.main()
