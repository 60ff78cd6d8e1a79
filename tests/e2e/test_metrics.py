"""`trainyard metrics` and `wait`: each format is read back by whom it is for."""

import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import unicodedata
import unittest

import harness
import seen
from harness import Case

CHILD = os.environ.get("TRAINYARD_TEST_PYTHON", sys.executable)

READ_BOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util
board = EventAccumulator(sys.argv[1], size_guidance={"tensors": 0})
board.Reload()
events = board.Tensors("loss")
values = [tensor_util.make_ndarray(event.tensor_proto) for event in events]
print(json.dumps({"plugin": board.SummaryMetadata("loss").plugin_data.plugin_name, "types": sorted({str(v.dtype) for v in values}),
                  "events": [[event.step, float(value)] for event, value in zip(events, values)]}))
"""

READ_METRICS = """
import json, sys
import prometheus_client.openmetrics.parser, prometheus_client.parser
older = "# EOF" not in open(sys.argv[1]).read()
parser = prometheus_client.parser if older else prometheus_client.openmetrics.parser
families = list(parser.text_string_to_metric_families(open(sys.argv[1]).read()))
print(json.dumps([[s.name, s.labels, s.value] for f in families for s in f.samples]))
"""


class Metrics(Case):
    def metrics(self, name, *args, status=0):
        return self.assert_status(status, self.trainyard("metrics", "--storage-path", self.storage, name, *args))

    def read(self, program, *args):
        return json.loads(subprocess.run([CHILD, "-c", program, *args], check=True, capture_output=True, text=True).stdout)

    def test_csv_has_every_report(self):
        seen.write_a(self.storage)
        out = self.metrics("a", "--format", "csv").out
        self.assertEqual("id,time,attempt,rank,number,loss,step,epoch", out.splitlines()[0])
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual(8000, len(rows))
        self.assertEqual(["NaN"], [row["loss"] for row in rows if (row["number"], row["rank"]) == ("700", "2")])
        self.assertEqual(["99"], [row["loss"] for row in rows if (row["number"], row["rank"]) == ("500", "5")])
        self.assertEqual([str(i) for i in range(1, 8001)], [row["id"] for row in rows])
        self.assertEqual(str(seen.BEGAN + 10**8), rows[0]["time"])
        one = list(csv.DictReader(io.StringIO(self.metrics("a", "--format", "csv", "--rank", "3").out)))
        self.assertEqual({"3"}, {row["rank"] for row in one})
        self.assertEqual(1000, len(one))

    def test_cells_that_could_be_formulas_or_need_quotes(self):
        journal = seen.Journal(self.storage, "text", 1)
        journal.reports([(1, 1, 0, 1, '{"=x": "=1+1", "a,b": "say \\"hi\\"\\n", "n": {"deep": -1.5, "list": [1, 2]}, "on": true, '
                          '"none": null, "big": 1e999, "low": "-Infinity", "\\u00e9": "@"}')])
        journal.end(2, 1)
        rows = list(csv.reader(io.StringIO(self.metrics("text", "--format", "csv").out, newline="")))
        self.assertEqual(["'=x", "a,b", "n/deep", "n/list", "on", "none", "big", "low", "é"], rows[0][5:])
        self.assertEqual(["'=1+1", 'say "hi"\n', "-1.5", "[1, 2]", "true", "", "inf", "-inf", "'@"], rows[1][5:])

    def test_columns_have_names_of_their_own(self):
        """Metrics that are called like what stands in front, or hold a NUL, which no name of a column can."""
        journal = seen.Journal(self.storage, "names", 1)
        journal.begin(0, 1, 1)
        journal.reports([(1, 1, 0, 1, '{"rank": 7, "time": 8, "lost": 9, "time_2": 10, "a\\u0000 and much more that is behind it": 11, "a": 12}')])
        journal.end(2, 1)
        own = ["id", "time", "attempt", "rank", "number"]
        for history, more, lost in (("effective", [], "lost"), ("all", ["lost"], "lost_2")):
            [head, row] = csv.reader(io.StringIO(self.metrics("names", "--format", "csv", "--history", history).out, newline=""))
            self.assertEqual([*own, *more, "rank_2", "time_3", lost, "time_2", "a"], head)
            self.assertEqual(len(head), len(set(head)))
            self.assertEqual(["7", "8", "9", "10"], row[len(own) + len(more):-1])
        path = os.path.join(self.place, "names.txt")
        for args in ((), ("--per-rank",)):
            self.metrics("names", "--format", "openmetrics", *args, "-o", path)
            found = [labels["metric"] for name, labels, _ in self.read(READ_METRICS, path) if name == "trainyard_metric"]
            self.assertEqual(["rank", "time", "lost", "time_2", "a"], found)

    def test_of_a_name_that_a_report_has_twice_the_last_counts(self):
        journal = seen.Journal(self.storage, "twice", 1)
        journal.begin(0, 1, 1)
        journal.reports([(1, 1, 0, 1, '{"a/b": 1, "a": {"b": 2}, "a_b": "NaN", "a_b": 3}')])
        journal.end(2, 1)
        self.assertEqual([{"id": "1", "time": "1700000000000000001", "attempt": "1", "rank": "0", "number": "1", "a/b": "2", "a_b": "3"}],
                         list(csv.DictReader(io.StringIO(self.metrics("twice", "--format", "csv").out))))
        self.assert_status(0, self.trainyard("wait", "--storage-path", self.storage, "twice", "--for", "a/b==2"))
        self.assert_status(1, self.trainyard("wait", "--storage-path", self.storage, "twice", "--for", "a/b<2"))
        curves = json.loads(self.metrics("twice", "--format", "json").out)
        self.assertEqual([2, 3], sorted(line["mean"][0] for told in curves for line in told["series"]))
        for args in ((), ("--per-rank",)):
            lines = self.metrics("twice", "--format", "openmetrics", *args).out.splitlines()
            for family in ("metric", "metric_mean"):
                told = [line for line in lines if line.startswith('trainyard_%s{run="twice"' % family)]
                self.assertEqual([2.0, 3.0], [float(line.split()[-1]) for line in told], told)
            self.assertIn('trainyard_nonfinite_values_total{run="twice",metric="a_b"} 0', lines)

    def test_metrics_that_are_no_json_spoil_no_export(self):
        good = ['{"a": [1, -0.5e+3, {"b": []}], "c": "\\u00e4\\n", "d": {}, "e": true}', '{"a":\n1 }', "{}", '{"a": %s}' % ("[" * 200 + "]" * 200)]
        corrected = [('{"a": NaN, "b": [-Infinity]}', {"a": "NaN", "b": ["-Infinity"]})]
        bad = ["", "no", "[1]", '{"a": 1,}', '{"a": 01}', '{"a": 1.}', '{"a": "\n"}', '{"a": "\\x"}', '{"a": 1} x', '{"a": 1', '{a: 1}', '{"a" 1}', '{"a": tru}', '{"a": [1}']
        expected = [json.loads(text) for text in good] + [mended for _, mended in corrected] + [{} for _ in bad]
        journal = seen.Journal(self.storage, "spoiled", 1)
        journal.begin(0, 1, 1)
        journal.reports((n, 1, 0, n, text) for n, text in enumerate([*good, *(text for text, _ in corrected), *bad], 1))
        journal.end(99, 1)
        done = self.metrics("spoiled", "--format", "jsonl")
        self.assertEqual(expected, [json.loads(line)["metrics"] for line in done.out.splitlines()])
        self.assertEqual(1, done.err.count("\n"), done.err)
        self.assertIn(f"report {len(good) + len(corrected) + 1}:", done.err)
        path = os.path.join(self.place, "trace.json")
        self.assert_status(0, self.trainyard("trace", "--storage-path", self.storage, "spoiled", "-o", path))
        with open(path) as file:
            slices = [event for event in json.load(file)["traceEvents"] if event.get("cat") == "report"]
        self.assertEqual(expected[1:], [event["args"] for event in slices])

    def test_ranks_name_theirs_in_other_orders(self):
        journal = seen.Journal(self.storage, "orders", 3)
        journal.begin(0, 1, 3)
        journal.reports([(1, 1, 0, 1, {"a": 1, "b": 2, "c": 3}), (2, 1, 1, 1, {"x": 9, "c": 30, "a": 10}), (3, 1, 2, 1, {"b": 200, "x": 9, "a": 100, "c": "NaN"})])
        journal.end(9, 1)
        path = os.path.join(self.place, "orders.txt")
        self.metrics("orders", "--format", "openmetrics", "-o", path)
        found = {(name, labels.get("metric")): value for name, labels, value in self.read(READ_METRICS, path)}
        self.assertEqual([(1, 37, 100), (2, 101, 200), (3, 16.5, 30)],
                         [tuple(found["trainyard_metric_" + of, metric] for of in ("min", "mean", "max")) for metric in "abc"])

    def test_history(self):
        seen.write_b(self.storage)
        rows = list(csv.DictReader(io.StringIO(self.metrics("b", "--format", "csv").out)))
        self.assertEqual(400, len(rows))
        rows = list(csv.DictReader(io.StringIO(self.metrics("b", "--format", "csv", "--history", "all").out)))
        self.assertEqual(500, len(rows))
        self.assertEqual(100, sum(row["lost"] == "1" for row in rows))
        lines = [json.loads(line) for line in self.metrics("b", "--format", "jsonl").out.splitlines()]
        self.assertEqual(400, len(lines))
        self.assertEqual({"id": 1, "time": seen.BEGAN + 10**9, "attempt": 1, "rank": 0, "number": 1, "metrics": {"loss": 1.0, "step": 1}},
                         lines[0])

    def test_table_and_plot(self):
        seen.write_a(self.storage)
        table = self.metrics("a").out.splitlines()
        self.assertEqual(["METRIC", "REPORTS", "NOT", "FINITE", "RANKS", "LAST", "LEAST", "MEAN", "GREATEST"], table[0].split())
        loss = [line.split() for line in table if line.startswith("loss ")][0]
        values = [seen.a_metrics(rank, n)["loss"] for n in range(1, 1001) for rank in range(8) if (rank, n) != (2, 700)]
        self.assertEqual(["loss", "7999", "1", "8", "0.001998", "0.001998", "%.6g" % (sum(values) / 7999), "99"], loss)
        plot = self.metrics("a", "--plot").out
        self.assertIn("loss   7999 values, 1 not finite", plot)
        self.assertIn("        99 ", plot)
        self.assertTrue(all(len(line) <= 80 for line in plot.splitlines()), plot)
        dots = self.trainyard("metrics", "--storage-path", self.storage, "a", "--plot", "--metric", "loss", env={"LC_ALL": "C.UTF-8"}).out
        self.assertTrue(any("\u2800" < c <= "\u28ff" for c in dots), dots)

    def test_names_that_take_two_columns_a_character(self):
        journal = seen.Journal(self.storage, "wide", 1)
        journal.begin(0, 1, 1)
        journal.reports([(seen.SECOND, 1, 0, 1, {"loss": 123, "内存/用": 123, "größe": 123, "e\u0301": 123})])
        journal.end(9 * seen.SECOND, 1)
        columns = lambda text: sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
        for shown in (self.metrics("wide").out, self.trainyard("top", "--storage-path", self.storage, "wide", "--once").out):
            places = {columns(line[: line.index("123")]) for line in shown.splitlines() if "123" in line and "report" not in line}
            self.assertEqual(1, len(places), shown)

    def test_the_clock_along_a_plot(self):
        seen.write_a(self.storage)
        axis = self.metrics("a", "--plot", "--metric", "loss", "--x", "time").out.splitlines()[-1].split()
        told = lambda after: time.strftime("%H:%M:%S", time.localtime(seen.BEGAN // 10**9 + after))
        self.assertEqual([told(0), "time", told(100)], axis)

    def test_a_plot_from_end_to_end_of_a_double(self):
        journal = seen.Journal(self.storage, "ends", 1)
        journal.begin(0, 1, 1)
        journal.reports((n * seen.SECOND, 1, 0, n, {"v": (n - 2) * 1.7e308, "sum": 1.7e308 if n % 2 else 0}) for n in range(1, 4))
        journal.reports((n * seen.SECOND + 1, 1, 0, n, {"sum": 1.7e308}) for n in range(1, 4))
        journal.end(9 * seen.SECOND, 1)
        self.assertIn("1.7e+308", self.metrics("ends", "--plot", "--metric", "sum", "--x", "number").out)
        rows = self.metrics("ends", "--plot", "--metric", "v").out.splitlines()[1:-1]
        dots = ["".join(row[11:].split()) for row in rows]
        self.assertTrue(dots[0] and dots[len(dots) // 2] and dots[-1], rows)
        self.assertLess(rows[-1].find(dots[-1][0], 11), rows[0].rfind(dots[0][-1]))

    def test_curves_are_those_of_the_page(self):
        """E1, and those that are chosen when none is named."""
        seen.write_a(self.storage)
        [loss] = json.loads(self.metrics("a", "--format", "json", "--metric", "loss", "--buckets", "10").out)
        [line] = loss["series"]
        self.assertEqual(("step", True, "a", None, 10), (loss["x"], loss["exact"], line["run"], line["rank"], len(line["x"])))
        self.assertEqual((800, 0, 7, 1.007), (line["n"][0], line["rank_min"][0], line["rank_max"][0], line["max"][0]))
        self.assertEqual(["loss"], [curve["series"][0]["metric"] for curve in json.loads(self.metrics("a", "--format", "json").out)])
        for args, word in ((("--metric", "loss"), "--metric"), (("--x", "time", "--format", "csv"), "--x"), (("--buckets", "0"), "--buckets"),
                           (("--format", "json", "--x", "nowhere"), "nowhere"), (("--plot", "--buckets", "3"), "--buckets")):
            self.assert_line(self.metrics("a", *args, status=2), "metrics", word)

    def test_tensorboard_reads_its_files(self):
        seen.write_a(self.storage)
        board = os.path.join(self.place, "board")
        self.metrics("a", "--format", "tensorboard", "-o", board)
        self.assertEqual(["mean", *sorted("rank-%d" % rank for rank in range(8))], sorted(os.listdir(board)))
        five = self.read(READ_BOARD, os.path.join(board, "rank-5"))
        self.assertEqual("scalars", five["plugin"])
        self.assertEqual(["float64"], five["types"])
        self.assertEqual(1000, len(five["events"]))
        self.assertIn([500, 99.0], five["events"])
        self.assertIn([999, 2 / 1000 + 0.005], five["events"])
        mean = self.read(READ_BOARD, os.path.join(board, "mean"))
        self.assertEqual(list(range(1, 1001)), [step for step, _ in mean["events"]])
        self.assertAlmostEqual(2 / 2 + 0.0035, mean["events"][0][1], 12)
        again = self.metrics("a", "--format", "tensorboard", "-o", board, status=2)
        self.assert_line(again, "metrics", board, "not empty")
        self.assert_line(self.metrics("a", "--format", "tensorboard", status=2), "metrics", "--output")

    def test_prometheus_reads_them(self):
        seen.write_b(self.storage)
        path = os.path.join(self.place, "b.txt")
        self.metrics("b", "--format", "openmetrics", "-o", path)
        samples = {(name, tuple(sorted(labels.items()))): value for name, labels, value in self.read(READ_METRICS, path)}
        self.assertEqual(2, samples["trainyard_run_attempts_total", (("run", "b"),)])
        self.assertEqual(1, samples["trainyard_run_failures_total", (("cause", "worker"), ("run", "b"))])
        self.assertEqual(50, samples["trainyard_run_lost_seconds_total", (("run", "b"),)])
        self.assertEqual(500, samples["trainyard_reports_total", (("run", "b"),)])
        self.assertEqual(1 / 200, samples["trainyard_metric", (("metric", "loss"), ("run", "b"))])
        self.assertEqual(1, samples["trainyard_run_state", (("run", "b"), ("state", "succeeded"))])
        self.assertEqual(1, samples["trainyard_report_interval_seconds", (("run", "b"),)])
        self.metrics("b", "--format", "openmetrics", "--per-rank", "-o", path)
        self.assertIn(["trainyard_metric", {"run": "b", "metric": "step", "rank": "1"}, 200.0], self.read(READ_METRICS, path))

    def test_a_file_for_prometheus_while_a_run_goes_on(self):
        """It is whole whenever it is read, and gone with the run; nothing is begun where it cannot be made."""
        path, go = os.path.join(self.place, "r.prom"), os.path.join(self.place, "go")
        process = self.start_run("--name", "r", "--metrics-file", path, "--", "sh", "-c", "while ! [ -e %s ]; do sleep 0.05; done" % go)
        self.wait_for(lambda: os.path.exists(path), "the file", process)
        found = {(name, labels.get("state")): value for name, labels, value in self.read(READ_METRICS, path)}
        self.assertEqual((1, 0), (found["trainyard_run_state", "running"], found["trainyard_run_state", "failed"]))
        open(go, "w").close()
        self.assert_status(0, self.finish(process))
        self.assertFalse(os.path.exists(path))
        for wrong, why in (("/none/r.prom", "no file can be made in /none"), (self.place, "no regular file")):
            refused = self.assert_status(2, self.finish(self.start_run("--name", "q", "--metrics-file", wrong, "--", "true")))
            self.assertIn("--metrics-file %s: " % wrong, refused.err)
            self.assertIn(why, refused.err)
        self.assertFalse(os.path.exists(os.path.join(self.storage, "q")))

    def test_the_process_that_writes_the_file(self):
        """Told of the end it removes the file; without a word its controller is no more, and the file says what is known."""
        seen.write_a(self.storage)
        path = os.path.join(self.storage, "a.prom")
        for word in (b"end", b""):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs:
                writer = subprocess.Popen([harness.COMMAND, "agent", "--metrics-file", os.path.join(self.storage, "a"), "a", path, "1"], stdin=theirs)
                self.wait_for(lambda: os.path.exists(path), "the file")
                for _ in range(1000):
                    with open(path) as file:
                        text = file.read()
                    self.assertEqual((0, 1), (text.find("# HELP trainyard_build_info"), text.count("# HELP trainyard_node_network_transmit")))
                if word:
                    ours.send(word)
            self.assertEqual(0, writer.wait(180))
            self.assertNotEqual(bool(word), os.path.exists(path))
            self.assertEqual([], [name for name in os.listdir(self.storage) if ".part-" in name])

    def test_the_file_of_another_run_stays(self):
        """Two runs were given one file: the end of one does not take what the other wrote."""
        seen.write_a(self.storage)
        path = os.path.join(self.storage, "a.prom")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            writer = subprocess.Popen([harness.COMMAND, "agent", "--metrics-file", os.path.join(self.storage, "a"), "a", path, "100000"], stdin=theirs)
            self.wait_for(lambda: os.path.exists(path), "the file")
            writer.send_signal(signal.SIGSTOP)
            os.rename(self.write("other", "of another run"), path)
            ours.send(b"end")
            writer.send_signal(signal.SIGCONT)
            self.assertEqual(0, writer.wait(180))
        with open(path) as file:
            self.assertEqual("of another run", file.read())

    def test_many_ranks_and_names_stay_few_series(self):
        seen.write_d(self.storage, ranks=10000, numbers=1, metrics=300)
        out = self.metrics("d", "--format", "openmetrics").out
        self.assertLess(sum(not line.startswith("#") for line in out.splitlines()), 1000)
        self.assertIn('trainyard_metrics_omitted{run="d"} 200\n', out)
        self.assertIn('trainyard_metric_mean{run="d",metric="m7"} 8\n', out)
        lines = [line for line in self.metrics("d", "--format", "openmetrics", "--per-rank").out.splitlines() if not line.startswith("#")]
        self.assertGreater(sum('rank="' in line for line in lines), 8000)
        self.assertLessEqual(len(lines), 10000)

    def test_rows_follow_a_run(self):
        run = self.start_run("--name", "live", "-n", "2", "--progress", "none", "--", "sh", "-c",
                             'for i in 0 1 2; do "$0" report i=$i; done; until [ -e go ]; do sleep 0.01; done; "$0" report i=3', harness.COMMAND)
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "live", "run.db")), "a journal", run)
        follow = self.start("metrics", "--storage-path", self.storage, "live", "--format", "jsonl", "--follow")
        lines = [json.loads(follow.stdout.readline() or self.fail(self.finish(follow))) for _ in range(6)]
        self.assertEqual({0, 1, 2}, {line["metrics"]["i"] for line in lines})
        self.write("go", "")
        self.assert_status(0, self.finish(run))
        rest = self.assert_status(0, self.finish(follow))
        self.assertEqual([3, 3], [json.loads(line)["metrics"]["i"] for line in rest.out.splitlines()])

    def test_a_run_is_not_touched(self):
        path = seen.write_a(self.storage)
        before = {name: os.stat(os.path.join(path, name)).st_mtime_ns for name in sorted(os.listdir(path))}
        for form in ("table", "csv", "jsonl", "openmetrics"):
            self.metrics("a", "--format", form)
        self.assertEqual(before, {name: os.stat(os.path.join(path, name)).st_mtime_ns for name in sorted(os.listdir(path))})

    def test_an_output_that_was_there_stays_when_it_goes_wrong(self):
        path = seen.write_a(self.storage)
        out = self.write("out.csv", "precious")
        with open(os.path.join(path, "run.db"), "r+b") as file:
            file.truncate(20000)
        self.assertNotEqual(0, self.trainyard("metrics", "--storage-path", self.storage, "a", "--format", "csv", "-o", out).status)
        with open(out) as file:
            self.assertEqual("precious", file.read())
        self.assertEqual([], [name for name in os.listdir(self.place) if "part" in name])

    def test_standard_output_by_its_name(self):
        """Where it is a file, /dev/stdout is a link to one, and stays: here one like it."""
        seen.write_a(self.storage)
        link, out = os.path.join(self.place, "stdout"), os.path.join(self.place, "out")
        os.symlink("/proc/self/fd/1", link)
        for words in (("metrics", "a", "--format", "csv"), ("trace", "a"), ("dashboard", "a")):
            with open(out, "w") as file:
                self.assert_status(0, self.trainyard(words[0], "--storage-path", self.storage, *words[1:], "-o", link, stdout=file))
            self.assertTrue(os.path.islink(link), words)
            self.assertGreater(os.path.getsize(out), 0, words)
        self.assertEqual(["out", "runs", "stdout"], sorted(os.listdir(self.place)))
        for words in (("metrics", "a", "--format", "csv"), ("trace", "a"), ("dashboard", "a")):
            refused = self.trainyard(words[0], "--storage-path", self.storage, *words[1:], "-o", "-")
            self.assertRegex(self.assert_status(2, refused).err, "^trainyard [a-z]+: --output -: must be a file: .*/dev/stdout.*\n$")
        self.assertEqual(["out", "runs", "stdout"], sorted(os.listdir(self.place)))
        refused = self.start_run("--name", "q", "--metrics-file", link, "--", "true")
        self.assertIn("no regular file", self.assert_status(2, self.finish(refused)).err)

    @unittest.skipUnless(os.geteuid() == 0, "others cannot give a link away")
    def test_a_link_of_somebody_else_is_not_followed(self):
        seen.write_a(self.storage)
        target, link = self.write("precious", "mine"), os.path.join(self.place, "out")
        for words in ((), ("--follow",)):
            os.symlink(target, link)
            os.lchown(link, 65534, -1)
            self.metrics("a", "--format", "csv", "-o", link, *words, status=2 if words else 0)
            with open(target) as file:
                self.assertEqual("mine", file.read())
            os.unlink(link)

    def test_what_does_not_go_together(self):
        seen.write_a(self.storage)
        for args, word in ((("--follow",), "--follow"), (("--plot", "--format", "csv"), "--plot"), (("--rank", "x"), "--rank"),
                           (("-o", "/no/such/place", "--format", "csv"), "/no/such/place")):
            self.assert_line(self.metrics("a", *args, status=2), "metrics", word)

    def test_a_reader_that_goes_away(self):
        seen.write_a(self.storage)
        process = self.start("metrics", "--storage-path", self.storage, "a", "--format", "csv",
                             preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
        process.stdout.readline()
        process.stdout.close()
        self.assertIn(process.wait(180), (0, -signal.SIGPIPE))


class Wait(Case):
    def wait(self, name, *args):
        return self.trainyard("wait", "--storage-path", self.storage, name, *args)

    def test_a_number(self):
        seen.write_a(self.storage)
        found = self.assert_status(0, self.wait("a", "--for", "loss>10"))
        self.assertIn("number 500", found.out)
        self.assertIn("rank 5", found.out)
        self.assert_line(self.assert_status(1, self.wait("a", "--for", "loss > 100")), "wait", "ended", "loss")
        for wrong in ("loss>>1", "loss", ">1", "loss>x", "@lag>1"):
            self.assert_line(self.assert_status(2, self.wait("a", "--for", wrong)), "wait", wrong)

    def test_the_end_of_a_run_that_fails(self):
        run = self.start_run("--name", "r", "-n", "1", "--progress", "none", "--", "sh", "-c", "until [ -e go ]; do sleep 0.01; done; exit 7")
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "r", "run.db")), "a journal", run)
        wait = self.start("wait", "--storage-path", self.storage, "r")
        self.write("go", "")
        self.assertEqual(7, self.finish(run).status)
        self.assert_status(7, self.finish(wait))
        self.assert_status(7, self.wait("r"))

    def test_a_run_that_is_not_there(self):
        self.assert_line(self.assert_status(2, self.wait("none")), "wait", "none")


if __name__ == "__main__":
    harness.main()
