"""The dashboard on storage that fails, refuses or does not answer."""

import contextlib
import errno
import http.client
import json
import os
import re
import sqlite3
import time
import unittest

from place import FaultCase, failing

# isort: split
from dashboards import DashboardCase, Server
from journals import Journal


class Seeing(FaultCase, DashboardCase):
    def serve(self, env, *args):
        return Server(self, *args, env=env)

    def test_a_download_that_fails_before_its_first_byte(self):
        run = Journal(self.storage, "a")
        run.log(0, "text")
        run.done(1)
        for error, status in ((errno.EACCES, 403), (errno.EPERM, 403), (errno.ETIMEDOUT, 503), (errno.EIO, 500)):
            with self.subTest(errno.errorcode[error]):
                server = self.serve(failing("read", error, "rank-0.log"))
                for _ in range(5):  # more than may be under way at once
                    told, data, reply = server.ask(f"/api/runs/{server.ids()['a']}/logs/rank-0/whole")
                    self.assertEqual((status, "application/json", None), (told, reply.headers["Content-Type"], reply.headers["Content-Disposition"]), data)
                    self.assertIn(os.strerror(error), json.loads(data)["error"])
                server.end()

    def test_a_download_of_which_nothing_comes(self):
        """It is given up as other answers are, and leaves its place to others once the storage answers."""
        run = Journal(self.storage, "a")
        run.log(0, "text")
        run.log(1, "other")
        run.done(1)
        answers = os.path.join(self.place, "answers")
        server = self.serve({**failing("read", -1, "rank-0.log"), "TRAINYARD_FAIL_UNTIL": answers})
        base = f"/api/runs/{server.ids()['a']}/logs"
        asked = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=180) for _ in range(4)]  # as many as may be under way
        for connection in asked:
            self.addCleanup(connection.close)
            connection.request("GET", base + "/rank-0/whole", headers={"Authorization": "Bearer " + server.token})
        for connection in asked:
            reply = connection.getresponse()
            self.assertEqual((503, "application/json", {"error": "a: not answering for 5 s"}),
                             (reply.status, reply.headers["Content-Type"], json.loads(reply.read())))
        open(answers, "w").close()
        self.wait_for(lambda: server.ask(base + "/rank-1/whole")[:2] == (200, b"other"))

    def test_downloads_that_get_no_further(self):
        """Storage that hangs in the midst of one, and clients that read nothing: they are cut off, and others have their places."""
        for name in ("a", "b"):
            run = Journal(self.storage, name)
            run.log(0, b"x" * (16 << 20))
            run.done(1)
        hangs = os.path.join(self.place, "hangs")
        server = self.serve({**failing("read", -1, "a/logs/rank-0.log"), "TRAINYARD_FAIL_WHEN": hangs})
        paths = {name: f"/api/runs/{run}/logs/rank-0/whole" for name, run in server.ids().items()}

        def ask_four(name):
            """As many as may be under way."""
            asked = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=150) for _ in range(4)]
            for connection in asked:
                self.addCleanup(connection.close)
                connection.request("GET", paths[name], headers={"Authorization": "Bearer " + server.token})
            return [connection.getresponse() for connection in asked]

        for name in ("a", "b"):
            asked = ask_four(name)
            self.assertEqual([200] * 4, [reply.status for reply in asked])
            self.assertEqual(503, server.ask(paths["b"])[0])
            if name == "a":
                open(hangs, "w").close()
                for reply in asked:
                    with self.assertRaises(http.client.IncompleteRead):
                        reply.read()
            self.wait_for(lambda: server.ask(paths["b"])[0] == 200)
        for _ in range(20):  # what hangs is not asked again
            self.assertEqual((503, {"error": "a: not answering: an earlier download of it hangs"}), decode(*server.ask(paths["a"])[:2]))
        self.assertEqual(200, server.ask(paths["b"])[0])

    def report_once(self, *names):
        """Runs that are over, of one report each."""
        for name in names:
            run = Journal(self.storage, name)
            run.begin(1)
            run.report(1, 1, 0, 1, {"loss": 1})
            run.done(1)

    def test_a_run_that_hangs_holds_up_no_other(self):
        self.report_once("a", "b")
        server = self.serve({})
        ids = server.ids()
        self.assertEqual({"a", "b"}, set(ids))
        answer = self.hang_directory(os.path.join(self.storage, "b"))
        later = self.serve({})  # which has never seen it
        for one in (server, later):
            for _ in range(3):
                told = one.json("/api/runs")
                self.assertEqual((["a"], [{"id": ids["b"], "name": "b", "error": "not answering for 5 s"}]), ([run["name"] for run in told["runs"]], told["unreadable"]))
            self.assertEqual(200, one.ask("/metrics")[0])
            self.assertEqual(404, one.ask("/api/runs/" + "0" * 16)[0])
            self.assertEqual(200, one.ask(f"/api/runs/{ids['a']}/metrics")[0])
            self.assertEqual((503, {"error": "b: not answering for 5 s"}), tuple(decode(*one.ask("/api/runs/" + ids["b"])[:2])))
        answer()
        for one in (server, later):
            self.wait_for(lambda: one.ids() == ids)  # noqa: B023
            self.assertEqual([], one.json("/api/runs")["unreadable"])

    def test_a_run_that_hangs_for_prometheus_alone(self):
        """The list is there, and of the other runs all is told."""
        self.report_once("a", "b")
        with contextlib.closing(sqlite3.connect(os.path.join(self.storage, "b", "usage.db"))) as samples:
            samples.execute("CREATE TABLE samples(span, time, node, what, number, n, min, mean, max)")
        for name in ("a", "b"):  # it tells of what ended in the last 15 minutes
            with contextlib.closing(sqlite3.connect(os.path.join(self.storage, name, "run.db"))) as journal, journal:
                journal.execute("UPDATE events SET time = ? WHERE kind = 'run_end'", (time.time_ns(),))
        hangs = os.path.join(self.place, "hangs")
        server = self.serve({**failing("pread", -1, "b/usage.db"), "TRAINYARD_FAIL_WHEN": hangs})
        for there, told in ((False, {"a", "b"}), (True, {"a"}), (True, {"a"})):
            if there:
                open(hangs, "w").close()
            status, text, _ = server.ask("/metrics")
            self.assertEqual((200, told), (status, set(re.findall(r'^trainyard_reports_total\{run="(\w)"\} 1$', text.decode(), re.MULTILINE))), text)
            self.assertEqual({"a", "b"}, set(server.ids()))
        self.assertEqual(1, server.json(f"/api/runs/{server.ids()['a']}")["reports"])

    def test_a_storage_path_that_hangs_holds_up_no_other(self):
        other = os.path.join(self.place, "other")
        for storage, name in ((self.storage, "a"), (other, "b")):
            run = Journal(storage, name)
            run.begin(1)
            run.report(1, 1, 0, 1, {"loss": 1})
            run.done(1)
        server = self.serve({}, "--storage-path", other)
        ids = server.ids()
        self.assertEqual({"a", "b"}, set(ids))
        reply = self.open_stream(server)
        self.next_of(reply, ("run",))  # it has seen the list
        answer = self.hang_directory(other)
        later = self.serve({}, "--storage-path", other)  # which has never seen what is there
        hangs = {"id": None, "name": other, "error": "not answering for 5 s"}
        for one, below in ((later, []), (server, [{**hangs, "id": ids["b"], "name": "b"}])):
            for _ in range(3):
                told = one.json("/api/runs")
                self.assertEqual((["a"], [hangs, *below]), ([run["name"] for run in told["runs"]], told["unreadable"]))
            threads = threads_of(one)
            self.assertEqual(200, one.ask("/metrics")[0])
            self.assertEqual(404, one.ask("/api/runs/" + "0" * 16)[0])
            self.assertEqual(200, one.ask(f"/api/runs/{ids['a']}/metrics")[0])
            self.wait_for(lambda: threads_of(one) <= threads + 1)  # noqa: B023 - none more waits for the storage
        self.next_of(reply, ("run",))
        # A sanitizer that looks for leaks at the end waits for all threads, also for one that hangs.
        env = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        shown = self.assert_status(0, self.trainyard("top", "--once", "--storage-path", other, env=env)).out
        self.assertIn(f"{other}: not answering for 5 s\n", shown)
        self.assertNotIn("No runs here", shown)
        answer()
        for one in (server, later):
            self.wait_for(lambda: one.ids() == ids)  # noqa: B023
            self.assertEqual([], one.json("/api/runs")["unreadable"])

    def test_runs_beside_one_that_hangs_are_seen(self):
        """However often somebody wanted to compare them."""
        self.report_once("a", "b", "c")
        server = self.serve({})
        ids = server.ids()
        compared = "/api/series?metric=loss" + "".join("&run=" + ids[name] for name in ("a", "b", "c"))
        self.assertEqual([ids[name] for name in ("a", "b", "c")], [line["run"] for line in server.json(compared)["series"]])
        answer = self.hang_directory(os.path.join(self.storage, "b"))
        for _ in range(2):
            self.assertEqual((503, {"error": "b: not answering for 5 s"}), decode(*server.ask(compared)[:2]))
        for name in ("a", "c"):
            self.assertEqual(1, len(server.json(f"/api/series?metric=loss&run={ids[name]}")["series"]))
        answer()
        self.wait_for(lambda: server.ask(compared)[0] == 200)

    def test_a_name_below_a_storage_path_that_hangs(self):
        """The page is served; the run is shown first where another path has it."""
        other = os.path.join(self.place, "other")
        for storage, name in ((self.storage, "a"), (other, "b"), (other, "c")):
            Journal(storage, name).done(1)
        more = ("--storage-path", other)
        ids = self.serve({}, *more).ids()
        compared = self.serve({}, *more, "b", "c")
        self.assertTrue(compared.url.endswith(f"&compare={ids['b']},{ids['c']}"), compared.url)
        answer = self.hang_directory(other)
        server = self.serve({}, *more, "a")
        self.assertTrue(server.url.endswith("&run=" + ids["a"]), server.url)
        server = self.serve({}, *more, "b")
        self.assertNotIn("run=", server.url)
        self.assertEqual(f"{other}/b: not answering for 5 s: it is not shown first\n", server.process.stderr.readline())
        self.assertEqual(["a"], [run["name"] for run in server.json("/api/runs")["runs"]])
        answer()

    def test_a_storage_path_that_cannot_be_listed(self):
        """It is told beside the others; where there is no other it is the answer."""
        Journal(self.storage, "a").done(1)
        other = self.write("other", "no directory")
        told = self.serve({}, "--storage-path", other).json("/api/runs")
        self.assertEqual((["a"], [{"id": None, "name": other, "error": f"cannot read {other}: Not a directory"}]),
                         ([run["name"] for run in told["runs"]], told["unreadable"]))
        server = Server(self, storage=other)
        self.assertEqual((400, {"error": f"cannot read {other}: Not a directory"}), decode(*server.ask("/api/runs")[:2]))

    def test_as_many_runs_hang_as_there_are(self):
        """None of them is asked again while it does not answer."""
        for i in range(20):
            Journal(self.storage, f"r{i:02}").done(1)
        answers = [self.hang_directory(os.path.join(self.storage, f"r{i:02}")) for i in range(1, 20)]
        server = self.serve({})
        told = server.json("/api/runs")
        self.assertEqual((["r00"], 19), ([run["name"] for run in told["runs"]], len(told["unreadable"])))
        before = threads_of(server)
        for _ in range(3):
            self.assertEqual(19, len(server.json("/api/runs")["unreadable"]))
        self.wait_for(lambda: threads_of(server) <= before)  # the thread that looked at r00 ends a moment after the answer
        for answer in answers:
            answer()
        self.wait_for(lambda: len(server.ids()) == 20)


def threads_of(server):
    return len(os.listdir(f"/proc/{server.process.pid}/task"))


def decode(status, body):
    return status, json.loads(body)


if __name__ == "__main__":
    unittest.main()
