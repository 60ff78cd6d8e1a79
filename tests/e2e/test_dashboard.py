"""`trainyard dashboard` over HTTP: who may ask, what is refused, what it costs to have it open, logs, the stream, the file."""

import contextlib
import ctypes
import http.client
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import time
import unittest

import harness
import seen
from journals import BEGAN, SECOND, Journal, hold, make_a, make_b, make_usage


def exchange(one, other):
    """Each takes the other's name, at once."""
    here, exchanged = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), exchanged) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), one)


class Server:
    """A dashboard that runs, and what it told."""

    def __init__(self, case, *args, env=None, storage=None, **more):
        self.case = case
        self.process = case.start("dashboard", "--storage-path", storage or case.storage, "--listen", "127.0.0.1:0", *args,
                                  env={"XDG_RUNTIME_DIR": case.place, "XDG_CACHE_HOME": os.path.join(case.place, "cache"), **(env or {})}, **more)
        case.addCleanup(self.end)
        self.url = self.process.stdout.readline().strip()
        match = re.match(r"http://127\.0\.0\.1:(\d+)/(?:#token=([0-9a-f]{32}))?", self.url)
        case.assertTrue(match, self.url or self.process.poll() is not None and self.process.stderr.read())
        self.port, self.token = int(match[1]), match[2]

    def end(self):
        if self.process.stdout.closed:
            return  # ended before
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.case.assert_status(0, self.case.finish(self.process, 20))

    def ask(self, path, method="GET", headers=None, token=True, body=None, skip_host=False):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest(method, path, skip_host=skip_host, skip_accept_encoding=True)
        headers = dict(headers or {})
        if token:
            headers.setdefault("Authorization", "Bearer " + self.token)
        if body is not None:
            headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, data, reply

    def json(self, path):
        status, data, _ = self.ask(path)
        self.case.assertEqual(200, status, data)
        return json.loads(data)

    def ids(self):
        return {run["name"]: run["id"] for run in self.json("/api/runs")["runs"]}


class Dashboard(harness.Case):
    def serve(self, *args, **more):
        os.makedirs(self.storage, exist_ok=True)
        return Server(self, *args, **more)

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

    # -- who may ask

    def test_without_the_token_nothing_is_told(self):
        make_a(self.storage, numbers=3)
        server = self.serve()
        run = server.ids()["a"]
        wrong = "0" * 32
        paths = ["/api/runs", "/api/runs/" + run, "/api/stream?run=" + run, "/metrics", "/api/none"]
        for path in paths:
            join = "&" if "?" in path else "?"
            for asked, headers in [(path, {}), (path, {"Authorization": "Bearer " + wrong}), (path, {"Authorization": "Bearer " + server.token + "0"}),
                                   (path, {"Authorization": "Bearer " + server.token[:-1]}), (path, {"Authorization": "Basic " + server.token}),
                                   (path + join + "token=" + server.token, {}), (path, {"Cookie": "token=" + server.token})]:
                status, data, _ = server.ask(asked, headers=headers, token=False)
                self.assertEqual(401, status, (asked, headers))
                self.assertEqual(["error"], list(json.loads(data)))
        self.assertEqual(200, server.ask("/", token=False)[0])

    def test_other_hosts_and_origins_are_refused(self):
        server = self.serve("--allow-host", "proxy.example")
        for headers in [{"Host": "evil.example"}, {"Host": "127.0.0.1.evil.example"}, {"Host": "localhost@evil"}, {"Host": "127.0.0.1:x"},
                        {"Host": "localhost", "Origin": "http://evil.example"}, {"Host": "localhost", "Origin": "null"},
                        {"Host": "localhost:1", "Origin": "http://localhost:2"},
                        {"Host": "localhost", "Sec-Fetch-Site": "cross-site"}, {"Host": "localhost", "Sec-Fetch-Site": "same-site"}]:
            for path in ("/", "/api/runs", "/app.js", "/none"):
                self.assertEqual(403, server.ask(path, headers=headers, skip_host=True)[0], (path, headers))
        for headers in [{"Host": "localhost:99"}, {"Host": "[::1]:1"}, {"Host": "proxy.example"}, {"Host": "LOCALHOST"},
                        {"Host": "localhost:7", "Origin": "http://localhost:7", "Sec-Fetch-Site": "same-origin"}, {"Host": "localhost", "Sec-Fetch-Site": "none"}]:
            status, _, reply = server.ask("/api/runs", headers=headers, skip_host=True)
            self.assertEqual(200, status, headers)
            self.assertEqual([], [name for name in reply.headers if name.lower().startswith("access-control")])

    def test_methods_that_change_are_refused(self):
        make_a(self.storage, numbers=3)
        server = self.serve()
        run = server.ids()["a"]
        before = sorted(os.listdir(os.path.join(self.storage, "a")))
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            for path in ("/", "/app.js", "/api/runs", "/api/runs/" + run, f"/api/runs/{run}/stop", f"/api/runs/{run}/stacks", "/metrics", "/none"):
                for token in (True, False):
                    status, data, reply = server.ask(path, method, token=token, body=b'{"confirm": "a"}')
                    self.assertEqual((405, "GET, HEAD"), (status, reply.headers["Allow"]), (method, path))
                    self.assertEqual(f"{method}: must be one of GET, HEAD here", json.loads(data)["error"])
        self.assertEqual(before, sorted(os.listdir(os.path.join(self.storage, "a"))))
        status, data, reply = server.ask("/api/runs", "HEAD")
        self.assertEqual((200, b""), (status, data))
        self.assertEqual("no-store", reply.headers["Cache-Control"])

    def test_paths_lead_nowhere_else(self):
        make_a(self.storage, numbers=3)
        server = self.serve()
        run = server.ids()["a"]
        for path in ("/api/runs/..%2f..%2fetc", "/api/runs/../../etc", f"/api/runs/{run}%00", f"/api/runs/{run}0", "/api/runs/" + "0" * 16,
                     f"/api/runs/{run[:-1]}", f"/api/runs/{run}/logs/rank-3%2f..%2f..", f"/api/runs/{run}/logs/rank-1/../../run.db",
                     f"/api/runs/{run}/logs/rank-", f"/api/runs/{run}/logs/rank--1", f"/api/runs/{run}/logs/run.db", f"/api/runs/{run}/", "//", "/%2e%2e/etc",
                     f"/api/runs/{run}/logs/rank-99999999999999999999", f"/api/series?run={run}0&metric=loss"):
            self.assertEqual(404, server.ask(path)[0], path)

    def test_what_is_wrong_with_a_parameter_is_told(self):
        make_a(self.storage, numbers=3)
        server = self.serve()
        run = server.ids()["a"]
        for query, words in {"buckets=0": "buckets=0 1 4000", "buckets=4001": "buckets=4001 4000", "buckets=x": "buckets=x", "x=what": "x=what metric:NAME",
                             "from=nan": "from=nan", "from=2&to=1": "from to", "what=lines": "what=lines band ranks", "history=some": "history=some effective all",
                             "ranks=3-1": "ranks=3-1 0-3,7", "bucket=3": "bucket allowed", "to=%zz": "escape", "to=%00": "escape", "from=%ff": "UTF-8"}.items():
            status, data, _ = server.ask(f"/api/series?run={run}&metric=loss&{query}")
            self.assertEqual(400, status, query)
            for word in words.split():
                self.assertIn(word, json.loads(data)["error"])
        self.assertEqual(400, server.ask(f"/api/series?run={run}")[0])
        self.assertEqual(400, server.ask("/api/series?metric=loss")[0])
        for query, words in {f"series?run={run}&metric=loss&from=2&to=1": "from=2 to=1", f"series?run={run}&metric=": "metric= name",
                             "series?metric=loss" + f"&run={run}" * 17: "17 runs 16", f"series?run={run}&to=%zz": "to=%zz %20",
                             "runs/{}/usage?from=2&to=1": "from=2 to=1", "runs/{}/usage?what=device_power&from=2.5&to=1": "from=2.5 to=1",
                             "runs/{}/usage?over=none": "over=none each node all", "runs/{}/trace.json?from=20&to=3": "from=20 to=3",
                             "runs/{}/trace.json?with_profile=yes": "with_profile=yes 0 1", "runs/{}/events?kind=none": "kind=none hardware run_end",
                             "runs/{}/logs/search?q=" + "z" * 257: "q=zzz 256"}.items():
            status, data, _ = server.ask("/api/" + query.format(run))
            self.assertEqual(400, status, query)
            for word in words.split():
                self.assertIn(word, json.loads(data)["error"])
        self.assertEqual("attempt", server.json(f"/api/runs/{run}/events?kind=attempt")["events"][0]["kind"])
        self.assertEqual(200, server.ask(f"/api/runs/{run}/trace.json?from=2")[0])

    def test_many_parameters_are_told(self):
        make_a(self.storage, numbers=3)
        server = self.serve()
        run = server.ids()["a"]
        for n in (33, 250, 500, 2000):
            status, data, _ = server.ask("/api/runs?" + "&".join(["a"] * n))
            self.assertEqual((400, {"error": "more than 32 parameters"}), (status, json.loads(data)))
        self.assertEqual(414, server.ask("/api/runs?" + "&".join(["a"] * 3000))[0])
        longest = "/api/series?from=1&to=2&x=step&buckets=10" + f"&run={run}" * 16 + "&what=band" * 11 + "&metric="
        longest += "m" * (4096 - len(longest))
        status, data, _ = server.ask(longest, headers={f"Cookie-{i}": "c" * 100 for i in range(40)})  # 32, and what a browser adds
        self.assertEqual((200, 16), (status, len(json.loads(data)["series"])), data)

    def test_heads_that_are_large_or_never_end(self):
        server = self.serve()
        self.assertEqual(414, server.ask("/api/runs?after=" + "1" * 4096)[0])
        self.assertIn(server.ask("/api/runs", headers={"X": "y" * 40000})[0], (413, 431))
        slow = socket.create_connection(("127.0.0.1", server.port))
        self.addCleanup(slow.close)
        slow.settimeout(30)
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        try:
            end = slow.recv(100)  # after 10 s, however often a byte comes
            while end and not end.startswith(b"HTTP/1.1 4"):
                end = slow.recv(100)
        except ConnectionResetError:
            pass
        self.assertEqual(200, server.ask("/")[0])

    def test_no_descriptor_is_left(self):
        """It does not call for whoever comes all the time, and answers when it can."""
        server = self.serve()
        with self.without_descriptors(server.process.pid):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            self.addCleanup(client.close)
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 200 "))

    def test_more_than_there_is_room_for_wait(self):
        server = self.serve()
        there = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(513)]
        for client in there:
            self.addCleanup(client.close)
        last = there.pop()
        last.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        last.settimeout(1)
        with self.assertRaises(TimeoutError):
            last.recv(100)
        there[0].close()
        last.settimeout(30)
        self.assertTrue(last.recv(100).startswith(b"HTTP/1.1 200 "))

    def test_headers_of_the_page(self):
        server = self.serve()
        for path in ("/", "/app.js", "/uplot.js", "/app.css", "/licenses.txt"):
            status, data, reply = server.ask(path, token=False)
            self.assertEqual(200, status, path)
            self.assertIn("default-src 'none'; script-src 'self'", reply.headers["Content-Security-Policy"])
            self.assertIn("require-trusted-types-for 'script'", reply.headers["Content-Security-Policy"])
            self.assertEqual(("nosniff", "no-referrer", "same-origin"),
                             tuple(reply.headers[name] for name in ("X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Opener-Policy")))
            self.assertEqual(304, server.ask(path, token=False, headers={"If-None-Match": reply.headers["ETag"]})[0])
            self.assertNotIn("Content-Encoding", reply.headers)
            packed = server.ask(path, token=False, headers={"Accept-Encoding": "gzip"})
            self.assertEqual("gzip", packed[2].headers["Content-Encoding"])
            for accepted in ("br, gzip;q=0.5", "GZIP ; q=1.0", "gzip, br;q=0", "gzip;q=0.001"):
                self.assertEqual("gzip", server.ask(path, token=False, headers={"Accept-Encoding": accepted})[2].headers["Content-Encoding"], accepted)
            for refused in ("gzip;q=0", "gzip; q=0", "gzip ;q=0.0, br", "xgzip", "gzippy", "identity", ""):
                self.assertNotIn("Content-Encoding", server.ask(path, token=False, headers={"Accept-Encoding": refused})[2].headers, refused)
            self.assertTrue(data)
        page = server.ask("/", token=False)[1].decode()
        self.assertNotRegex(page, r"(src|href)=\"(/|https?:)")  # it works below any prefix

    # -- where it listens

    def test_it_listens_to_this_machine_alone(self):
        for address in ("0.0.0.0:1", "[::]:8268", "192.168.1.1:80", "example.org:80", "0:1", ""):
            done = self.trainyard("dashboard", "--listen", address)
            self.assert_status(2, done)
            self.assertEqual("", done.out)
            if address:
                self.assertIn("use ssh -L, or unix:PATH", done.err)

    def test_a_port_that_is_taken(self):
        holder = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(holder.close)
        port = holder.getsockname()[1]
        server = self.serve("--listen", f"127.0.0.1:{port}", env={"SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"})
        self.assertTrue(port < server.port < port + 32)
        told = server.process.stderr.readline() + server.process.stderr.readline()
        self.assertIn(f"port {port} is taken: {server.port} is used", told)
        self.assertIn(f"ssh -N -L {server.port}:127.0.0.1:{server.port} ", told)
        self.assertIn("@10.0.0.2", told)

    @unittest.skipUnless(os.getuid() == 0, "only root can become another user")
    def test_a_socket_for_its_owner(self):
        os.makedirs(self.storage)
        path = os.path.join(self.place, "page.sock")
        command = self.command_for_all()
        process = self.start("dashboard", "--storage-path", self.storage, "--listen", "unix:" + path, env={"XDG_RUNTIME_DIR": self.place})
        try:
            line = process.stdout.readline()
            token = re.search(r"token (\w{32})", line)[1]
            self.assertEqual(0o600, stat.S_IMODE(os.lstat(path).st_mode))
            own = socket.socket(socket.AF_UNIX)
            own.connect(path)
            own.sendall(f"GET /api/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode())
            self.assertIn(b" 200 ", own.recv(100))
            own.close()
            program = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r})"
            other = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", program],
                                   capture_output=True, text=True)
            self.assertIn("PermissionError", other.stderr)
        finally:
            process.terminate()
            self.assertEqual(0, process.wait(20))
        self.assertFalse(os.path.exists(path))
        self.assertTrue(command)

    def test_a_socket_is_removed_by_its_own_dashboard(self):
        """One that lives is not replaced, stopped or not; another that was begun when somebody had removed the socket keeps its own."""
        os.makedirs(self.storage)
        path = os.path.join(self.place, "page.sock")

        def begin():
            process = self.start("dashboard", "--storage-path", self.storage, "--listen", "unix:" + path, env={"XDG_RUNTIME_DIR": self.place})
            self.addCleanup(process.kill)
            self.assertIn("token ", process.stdout.readline())
            return process
        first = begin()
        first.send_signal(signal.SIGSTOP)
        refused = self.trainyard("dashboard", "--storage-path", self.storage, "--listen", "unix:" + path)
        self.assert_line(self.assert_status(2, refused), "dashboard", path, "is taken")
        first.send_signal(signal.SIGCONT)
        os.unlink(path)
        second = begin()
        first.terminate()
        self.assertEqual(0, first.wait(20))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
        second.kill()
        second.wait()
        third = begin()  # what a killed one left is replaced
        third.terminate()
        self.assertEqual(0, third.wait(20))
        self.assertEqual([], [name for name in os.listdir(self.place) if "sock" in name or name.startswith(".trainyard")])

    def test_a_browser_is_opened_without_the_token_in_its_words(self):
        told = os.path.join(self.place, "told")
        browser = self.write("browser", f"#!/bin/sh\necho \"$1\" > {told}.part; mv {told}.part {told}; exec sleep 60\n")
        os.chmod(browser, 0o755)
        server = self.serve("--open", env={"BROWSER": browser})
        self.wait_for(lambda: os.path.exists(told))
        with open(told) as file:
            page = file.read().strip()
        self.assertEqual(0o600, stat.S_IMODE(os.stat(page).st_mode))
        with open(page) as file:
            self.assertIn(server.token, file.read())
        lines = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    lines.append(file.read())
            except OSError:
                pass
        self.assertFalse(any(server.token.encode() in line for line in lines))
        for pid in harness.processes_with(self.place):
            if pid != server.process.pid:
                with contextlib.suppress(ProcessLookupError):  # one that opens the browser ends by itself
                    os.kill(pid, signal.SIGKILL)
        server.end()
        self.assertFalse(os.path.exists(page))

    def test_list_and_token_file(self):
        path = os.path.join(self.place, "token")
        server = self.serve("--token-file", path)
        self.assertIsNone(server.token)
        self.assertEqual(0o600, stat.S_IMODE(os.stat(path).st_mode))
        with open(path) as file:
            server.token = file.read()
        self.assertEqual({}, server.ids())
        told = self.trainyard("dashboard", "--list", env={"XDG_RUNTIME_DIR": self.place})
        self.assertIn(f"http://127.0.0.1:{server.port}/", told.out)
        self.assertNotIn(server.token, told.out)
        server.end()
        self.assertEqual("", self.trainyard("dashboard", "--list", env={"XDG_RUNTIME_DIR": self.place}).out)
        self.assertFalse(os.path.lexists(path))

    def test_a_token_file_takes_no_place_but_a_files(self):
        link, pipe, path = (os.path.join(self.place, name) for name in ("link", "pipe", "token"))
        os.symlink("/dev/null", link)
        os.mkfifo(pipe)
        for name in (link, pipe, self.place):
            kind = stat.S_IFMT(os.lstat(name).st_mode)
            told = self.trainyard("dashboard", "--token-file", name)
            self.assertEqual((2, True), (told.status, told.err.endswith(f"--token-file {name}: it is there, and no regular file\n")))
            self.assertEqual(kind, stat.S_IFMT(os.lstat(name).st_mode))
        self.write("token", "of another dashboard")
        server = self.serve("--token-file", path)
        os.unlink(path)
        self.write("token", "somebody else's by now")
        server.end()
        with open(path) as file:
            self.assertEqual("somebody else's by now", file.read())

    # -- what it costs

    def test_nothing_runs_while_nobody_looks(self):
        make_a(self.storage, numbers=100)
        server = self.serve()
        run = server.ids()["a"]
        server.json(f"/api/series?run={run}&metric=loss")
        for watched in (None, run):  # and went again
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            self.next_event(self.open_stream(server, watched, connection), "run")
            connection.close()

        def switches():
            total = 0
            for task in os.listdir(f"/proc/{server.process.pid}/task"):
                with open(f"/proc/{server.process.pid}/task/{task}/status") as file:
                    total += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
            return total

        self.wait_for(lambda: sum("socket" in link for link in harness.open_files(server.process.pid)) <= 1)
        time.sleep(1)
        before = switches()
        time.sleep(5)
        self.assertEqual(before, switches())

    # -- what it tells

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

    def test_what_a_restart_took_back_is_lost_and_nothing_else(self):
        make_b(self.storage)
        server = self.serve()
        run = server.ids()["b"]
        counts = server.json(f"/api/series?run={run}&metric=loss")["series"]
        self.assertEqual([[2] * 200], [line["n"] for line in counts])
        lost = [line for line in server.json(f"/api/series?run={run}&metric=loss&history=all")["series"] if line["lost"]]
        self.assertEqual([list(range(101, 151))], [line["x"] for line in lost])

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

    def test_lines_of_a_large_run_are_drawn_in_the_end(self):
        seen.write_c(self.storage, "c", 2000)
        server = self.serve()
        run = server.ids()["c"]
        for query, n in (("metric=loss&what=ranks&ranks=3,9", 2 * 2000), ("metric=lr&x=metric:step", 64 * 2000), ("metric=@interval&ranks=5", 1999),
                         ("metric=@lag", 64 * 2000)):
            path = f"/api/series?run={run}&buckets=300&{query}"
            reply = self.open_stream(server, run)
            told = server.json(path)
            self.assertEqual((False, True), (told["exact"], 0 < told["scanned"] < 1))
            while not told["exact"]:
                if self.next_event(reply, "index")["scanned"] >= 1:
                    told = server.json(path)
            self.assertEqual((1, n), (told["scanned"], sum(sum(line["n"]) for line in told["series"])))
            reply.close()

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

    def test_news_that_are_dear_to_look_at_are_told_seldom(self):
        run = self.live("live", 45_000)  # so few that all of them are read for each answer
        server = self.serve()
        id = server.ids()["live"]
        reply, begun, told = self.open_stream(server, id), time.monotonic(), 0
        while told < 8:
            self.next_event(reply, "reports")
            told += 1
            server.json(f"/api/series?run={id}&metric=loss")
            server.json(f"/api/series?run={id}&metric=loss&x=time")
            run.report(told, 1, 0, 45_000 + told, {"loss": 1})
            run.commit()
        self.assertLessEqual(told, 1 + 1.5 * (time.monotonic() - begun))
        run.done()

    def test_it_ends_amid_answers_and_downloads(self):
        journal = Journal(self.storage, "large")
        journal.begin(8)
        for n in range(1, 8001):
            for rank in range(8):
                journal.report(n, 1, rank, n, {"loss": n, "text": "x" * 100})
        journal.done(9000)
        for paths in (["series?run={}&metric=loss&ranks=1"] * 20, ["runs/{}/metrics.csv", "series?run={}&metric=loss"]):
            server = self.serve()
            run = server.ids()["large"]
            for path in paths:
                client = socket.create_connection(("127.0.0.1", server.port))
                self.addCleanup(client.close)
                client.sendall(f"GET /api/{path.format(run)} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
                if path.endswith("csv"):
                    self.assertIn(b" 200 ", client.recv(100))  # and reads no more
            server.ids()  # all of them have come
            server.end()

    def test_a_run_that_was_deleted(self):
        make_a(self.storage, numbers=3)
        server = self.serve()
        run = server.ids()["a"]
        self.trainyard("rm", "--storage-path", self.storage, "a")
        self.assertEqual(410, server.ask("/api/runs/" + run)[0])
        for part in ("metrics", "usage", "usage?what=device_power", "profiles", "logs", "stacks", "events", "ranks"):
            self.assertEqual(410, server.ask(f"/api/runs/{run}/{part}")[0], part)
        self.assertEqual([], server.json("/api/runs")["runs"])

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

    def test_the_stream_tells_what_changed(self):
        run = Journal(self.storage, "live", live=True)
        run.begin(1)
        run.commit()
        server = self.serve()
        reply = self.open_stream(server, server.ids()["live"])
        self.next_event(reply, "run")
        for n in range(1, 6):
            run.report(n, 1, 0, n, {"loss": 1 / n})
        run.commit()
        self.assertEqual({"id": 5}, self.next_event(reply, "reports"))
        run.log(0, "hello\n")
        self.assertEqual({"rank": 0, "size": 6}, self.next_event(reply, "logs"))
        os.mkdir(os.path.join(self.place, "elsewhere"))
        for name in ("run.db", "run.db-wal", "run.db-shm"):
            os.link(os.path.join(run.path, name), os.path.join(self.place, "elsewhere", name))
        with contextlib.closing(sqlite3.connect(os.path.join(self.place, "elsewhere", "run.db"))) as other:
            other.execute("INSERT INTO reports(time, attempt, rank, number, metrics) VALUES(0, 1, 0, 6, '{}')")
            other.commit()  # of which the kernel tells nobody who watches the run's directory
        self.assertEqual({"id": 6}, self.next_event(reply, "reports"))
        run.done()
        for name in ("run.db", "run.db-wal", "run.db-shm"):
            if os.path.exists(os.path.join(run.path, name)):
                os.unlink(os.path.join(run.path, name))
        self.next_event(reply, "gone")

    def live(self, name, reports, seconds=0):
        run = Journal(self.storage, name, live=True)
        run.event(seconds, "run", command=["python"], host="n1", pid=1)
        run.event(seconds, "attempt", 1, workers=1, nodes=1)
        for n in range(1, reports + 1):
            run.report(seconds + n, 1, 0, n, {"loss": 1 / n})
        run.commit()
        return run

    def until_told(self, reply, look):
        """Asks for nothing before the stream tells that there is something."""
        while True:
            self.next_event(reply, "run")
            found = look()
            if found:
                return found

    def test_the_list_tells_what_changed(self):
        os.makedirs(self.storage)
        server = self.serve()
        reply = self.open_stream(server)
        cursor = 0

        def row():
            nonlocal cursor
            told = server.json(f"/api/runs?after={cursor}")
            cursor = told["cursor"]
            return told["runs"] or [{"gone": id} for id in told["gone"]]

        run = self.live("live", 2)
        lock = hold(run.path)
        self.addCleanup(lock.close)
        found = self.until_told(reply, row)[0]
        self.assertEqual("live", found["name"])
        run.report(time.time() - BEGAN / SECOND - 26, 1, 0, 3, {"loss": 1})
        run.commit()
        self.until_told(reply, lambda: [one for one in row() if one["metrics"] == {"loss": 1}])
        self.until_told(reply, lambda: [one for one in row() if one["quiet_s"]])  # by the clock alone
        lock.close()
        self.until_told(reply, lambda: [one for one in row() if one["state"] == "died"])  # by its lock alone
        run.done()
        os.rename(run.path, os.path.join(self.place, "old"))
        self.assertEqual(found["id"], self.until_told(reply, lambda: [one for one in row() if "gone" in one])[0]["gone"])

    def test_a_run_that_turns_quiet_or_dies_is_told(self):
        run = self.live("live", 2)
        lock = hold(run.path)
        self.addCleanup(lock.close)
        run.report(time.time() - BEGAN / SECOND - 26, 1, 0, 3, {"loss": 1})
        run.commit()
        server = self.serve()
        id = server.ids()["live"]
        self.assertIsNone(server.json("/api/runs/" + id)["quiet_s"])
        reply = self.open_stream(server, id)
        self.until_told(reply, lambda: server.json("/api/runs/" + id)["quiet_s"])
        lock.close()
        self.until_told(reply, lambda: server.json("/api/runs/" + id)["state"] == "died")
        run.done()

    def test_every_log_that_was_written_is_told(self):
        run = self.live("live", 3)
        os.rmdir(os.path.join(run.path, "logs"))
        server = self.serve()
        id = server.ids()["live"]
        self.assertEqual([], server.json(f"/api/runs/{id}/logs")["ranks"])
        reply = self.open_stream(server, id)
        self.next_event(reply, "reports")
        os.mkdir(os.path.join(run.path, "logs"))  # none was there when the stream began
        run.log(0, "hello\n")
        self.assertEqual({"rank": 0, "size": 6}, self.next_event(reply, "logs"))
        server.process.send_signal(signal.SIGSTOP)
        for rank in range(100):
            run.log(rank, "more at once\n")
        server.process.send_signal(signal.SIGCONT)
        self.assertEqual({}, self.next_event(reply, "logs"))  # too many to be told one by one
        run.log(99, "and then one\n" * 2)
        self.assertEqual({"rank": 99, "size": 26}, self.next_event(reply, "logs"))
        os.link(os.path.join(run.path, "logs", "rank-7.log"), os.path.join(self.place, "elsewhere.log"))
        with open(os.path.join(self.place, "elsewhere.log"), "a") as file:
            file.write("of which the kernel tells nobody\n")
        self.assertEqual({"rank": 7, "size": 46}, self.next_event(reply, "logs"))
        run.done()

    def test_what_the_kernel_has_no_room_to_tell_is_looked_for(self):
        with open("/proc/sys/fs/inotify/max_queued_events") as file:
            room = int(file.read())
        if room > 1 << 18:
            self.skipTest(f"the kernel queues {room} events")
        run = self.live("live", 3)
        known, told = set(), []
        for rank in (0, 1, 3, 7):
            run.log(rank, "hello\n")
        server = self.serve()
        reply = self.open_stream(server, server.ids()["live"])
        while len(known) < 4:
            known.add(self.next_event(reply, "logs")["rank"])
        for i in range(2):  # behind these all logs were looked at with the watches in their places
            run.log(0, "hello again\n" * (i + 1))
            self.next_event(reply, "logs")
        server.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)
        logs = [open(os.path.join(run.path, "logs", f"rank-{rank}.log"), "ab", buffering=0) for rank in (0, 1)]
        for i in range(room + 2):  # by turns: what is told twice in a row is told once
            logs[i % 2].write(b"x")
        for file in logs:
            file.close()
        run.log(7, "there is no room left for this\n")
        server.process.send_signal(signal.SIGCONT)
        while 3 not in told:
            told.append(self.next_event(reply, "logs")["rank"])
            if len(told) == 1:
                run.log(3, "and this is told by itself\n")
        self.assertIn(7, told)
        run.done()

    def test_a_run_that_comes_again_under_its_name_is_told(self):
        run = self.live("live", 3)
        server = self.serve()
        reply = self.open_stream(server, server.ids()["live"])
        self.assertEqual({"id": 3}, self.next_event(reply, "reports"))
        run.done()
        shutil.rmtree(run.path)
        self.next_event(reply, "gone")
        run = self.live("live", 4, 1000)
        self.next_event(reply, "run")
        self.assertEqual({"id": 4}, self.next_event(reply, "reports"))
        run.log(0, "hello\n")
        self.assertEqual({"rank": 0, "size": 6}, self.next_event(reply, "logs"))
        run.done()

    def test_a_run_in_the_place_of_another_is_told(self):
        old = self.live("live", 3)
        new = self.live("other", 3, 1000)
        server = self.serve()
        reply = self.open_stream(server, server.ids()["live"])
        self.assertEqual({"id": 3}, self.next_event(reply, "reports"))
        old.done()
        os.rename(old.path, os.path.join(self.place, "old"))
        os.rename(new.path, old.path)
        self.next_event(reply, "gone")
        self.next_event(reply, "run")
        self.assertEqual({"id": 3}, self.next_event(reply, "reports"))
        new.done()

    def test_a_run_that_cannot_be_reached_is_not_gone(self):
        run = self.live("live", 3)
        server = self.serve()
        id = server.ids()["live"]
        reply = self.open_stream(server, id)
        self.next_event(reply, "reports")
        away = os.path.join(self.place, "away")
        os.symlink("live", away)  # leads nowhere, for root as well, once it has the run's name
        exchange(run.path, away)
        self.assertEqual("run", self.next_of(reply, ("run", "gone")))
        status, data, _ = server.ask("/api/runs/" + id)
        self.assertEqual(500, status)
        self.assertIn("Too many levels of symbolic links", json.loads(data)["error"])
        exchange(run.path, away)
        self.assertEqual("run", self.next_of(reply, ("run", "gone")))
        self.assertEqual(3, server.json("/api/runs/" + id)["reports"])
        run.done()

    def open_stream(self, server, run=None, connection=None):
        connection = connection or http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        self.addCleanup(connection.close)
        connection.request("GET", "/api/stream" + (f"?run={run}" if run else ""), headers={"Authorization": "Bearer " + server.token})
        reply = connection.getresponse()
        self.assertEqual((200, "text/event-stream"), (reply.status, reply.headers["Content-Type"]))
        return reply

    def next_event(self, reply, name):
        self.next_of(reply, (name,))
        return json.loads(reply.readline()[len("data: "):])

    def next_of(self, reply, names):
        """The first of these events that comes; its data are the next line."""
        comments = 0  # one each 15 s
        while True:
            line = reply.readline().decode()
            comments += line.startswith(":")
            self.assertTrue(line and comments < 4, "the stream does not tell of " + " or ".join(names))
            if line.startswith("event: ") and line[len("event: "):-1] in names:
                return line[len("event: "):-1]

    def test_streams_are_bounded_and_freed(self):
        make_a(self.storage, numbers=3)
        server = self.serve()
        run = server.ids()["a"]
        open_ones = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(33)]
        replies = []
        for connection in open_ones:
            connection.request("GET", "/api/stream?run=" + run, headers={"Authorization": "Bearer " + server.token})
            replies.append(connection.getresponse())
        self.assertEqual([200] * 32 + [503], [reply.status for reply in replies])
        for connection, reply in zip(open_ones, replies):
            reply.close()
            connection.close()

        def one_more():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
                connection.request("GET", "/api/stream?run=" + run, headers={"Authorization": "Bearer " + server.token})
                status = connection.getresponse().status
            finally:
                connection.close()
            return status == 200

        self.wait_for(one_more)

    # -- actions

    def test_actions_only_where_they_are_allowed(self):
        process = self.start_run("-n", "1", "--name", "long", "--", "sleep", "100")
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "long", "run.db")), process=process)
        server = self.serve("--allow-actions")
        path = f"/api/runs/{server.ids()['long']}/stop"
        self.assertEqual(401, server.ask(path, "POST", token=False, body=b'{"confirm": "long"}')[0])
        self.assertEqual(403, server.ask(path, "POST", headers={"Origin": "http://evil.example"}, body=b'{"confirm": "long"}')[0])
        for body in (b"", b"{}", b'{"confirm": "other"}', b'{"confirm": "long", "more": 1}', b"[]"):
            self.assertEqual(400, server.ask(path, "POST", body=body)[0], body)
        self.assertEqual(413, server.ask(path, "POST", body=b" " * 5000)[0])
        self.assertEqual(405, server.ask("/api/runs", "POST", body=b"{}")[0])
        for method, other, allowed in (("GET", path, "POST"), ("PUT", path, "POST"), ("PUT", path.replace("stop", "stacks"), "GET, HEAD, POST"),
                                       ("POST", "/api/runs", "GET, HEAD")):
            status, _, reply = server.ask(other, method, body=None if method == "GET" else b"{}")
            self.assertEqual((405, allowed), (status, reply.headers["Allow"]), (method, other))
        self.assertIsNone(process.poll())
        status, data, _ = server.ask(path, "POST", body=b'{"confirm": "long"}')
        self.assertEqual((200, {"running": True}), (status, json.loads(data)))
        self.assert_status(130, self.finish(process))

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
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o666 & ~current_umask())
        done = self.trainyard("dashboard", "--storage-path", self.storage, "a", "-o", os.path.join(self.place, "no", "page.html"))
        self.assertNotEqual(0, done.status)
        self.assert_line(done, "dashboard", "cannot write")
        self.assert_status(2, self.trainyard("dashboard", "--storage-path", self.storage, "none", "-o", path))
        self.assert_status(2, self.trainyard("dashboard", "-o", path))

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
