"""`trainyard dashboard` over HTTP: who may ask, what is refused, where it listens, what it costs to have it open, what the page may do."""

import contextlib
import ctypes
import fcntl
import http.client
import json
import os
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import time
import unittest

import harness
from dashboards import DashboardCase
from journals import Journal, make_a
from runs import children


class Dashboard(DashboardCase):
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
        slow.settimeout(180)
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
            client = socket.create_connection(("127.0.0.1", server.port), timeout=180)
            self.addCleanup(client.close)
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 200 "))

    def test_more_than_there_is_room_for_wait(self):
        server, waits = self.serve(), False
        while not waits:
            began = time.monotonic()
            there = [socket.create_connection(("127.0.0.1", server.port), timeout=180) for _ in range(513)]
            for client in there:
                self.addCleanup(client.close)
            last = there.pop()
            last.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            waits = not select.select([last], [], [], 1)[0]
            # Those that say nothing are closed after 10 s: on a machine that is so busy it is tried again.
            self.assertTrue(waits or time.monotonic() - began > 9, "answered beyond the room that there is")
            for client in there[:1] if waits else (*there, last):
                client.close()
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
            self.assertEqual(0, process.wait(180))
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
        self.assertEqual(0, first.wait(180))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
        second.kill()
        second.wait()
        third = begin()  # what a killed one left is replaced
        third.terminate()
        self.assertEqual(0, third.wait(180))
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

    def test_it_is_listed_when_it_is_locked(self):
        """A file that is not locked is taken for one that was left over, and removed, by whoever lists the dashboards."""
        IN_CREATE, IN_MOVED_TO = 0x100, 0x80  # of <sys/inotify.h>
        registry = os.path.join(self.place, "trainyard")
        os.mkdir(registry, 0o700)
        libc = ctypes.CDLL(None, use_errno=True)
        watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.addCleanup(os.close, watch)
        self.assertGreaterEqual(libc.inotify_add_watch(watch, registry.encode(), IN_CREATE | IN_MOVED_TO), 0)
        name = f"dashboard-{self.serve().process.pid}"
        events, at, ways = os.read(watch, 65536), 0, []
        while at < len(events):
            _, mask, _, size = struct.unpack_from("iIII", events, at)
            if events[at + 16:at + 16 + size].rstrip(b"\0").decode() == name:
                ways.append(mask)
            at += 16 + size
        self.assertEqual([IN_MOVED_TO], ways)

    def test_no_file_gets_its_name_while_those_left_over_are_removed(self):
        """It could be one of the names: a dashboard that begins and one that lists wait for whoever holds the directory."""
        registry = os.path.join(self.place, "trainyard")
        os.makedirs(self.storage)
        os.mkdir(registry, 0o700)
        left = self.write("trainyard/dashboard-1", "of a process that is gone")
        directory = os.open(registry, os.O_RDONLY)
        self.addCleanup(os.close, directory)
        fcntl.flock(directory, fcntl.LOCK_EX)
        env = {"XDG_RUNTIME_DIR": self.place}
        begins = self.start("dashboard", "--storage-path", self.storage, "--listen", "127.0.0.1:0", env=env)
        lists = self.start("dashboard", "--list", env=env)
        for process in (begins, lists):
            self.wait_for(lambda process=process: self.waits_for_a_lock(process.pid), process=process)
        self.assertEqual(["dashboard-1"], os.listdir(registry))
        fcntl.flock(directory, fcntl.LOCK_UN)
        self.assert_status(0, self.finish(lists))
        self.assertFalse(os.path.exists(left))
        self.assertTrue(begins.stdout.readline())
        self.assertEqual([f"dashboard-{begins.pid}"], os.listdir(registry))
        begins.terminate()
        self.assert_status(0, self.finish(begins))

    def waits_for_a_lock(self, pid):
        with open("/proc/locks") as file:
            return any(line.split()[1:3] == ["->", "FLOCK"] and line.split()[5] == str(pid) for line in file)

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
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=180)
            self.next_event(self.open_stream(server, watched, connection), "run")
            connection.close()

        def switches():
            total = 0
            for task in os.listdir(f"/proc/{server.process.pid}/task"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{server.process.pid}/task/{task}/status") as file:
                    total += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
            return total

        def rests(seconds):
            before = switches()
            time.sleep(seconds)
            return switches() == before

        self.wait_for(lambda: sum("socket" in link for link in harness.open_files(server.process.pid)) <= 1)
        self.wait_for(lambda: rests(5), "the end of what was begun")

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

    # -- actions

    def test_actions_only_where_they_are_allowed(self):
        process = self.start_run("-n", "1", "--name", "long", "--", "sh", "-c", ": > up; exec sleep 1000")
        self.wait_for(lambda: os.path.exists(os.path.join(self.place, "up")), process=process)
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
        make_a(self.storage, numbers=3)
        for more in ((), ("--open",)):  # whose child is a browser too
            other = self.serve("--allow-actions", *more, env={"BROWSER": "true"})
            status, data, _ = other.ask(f"/api/runs/{other.ids()['a']}/stacks", "POST", body=b'{"confirm": "a"}')
            self.assertEqual((400, {"error": "no worker of this run runs on this machine now"}), (status, json.loads(data)), more)
            self.wait_for(lambda: not children(other.process.pid))  # noqa: B023
        status, data, _ = server.ask(path, "POST", body=b'{"confirm": "long"}')
        self.assertEqual((200, {"running": True}), (status, json.loads(data)))
        self.assert_status(130, self.finish(process))


if __name__ == "__main__":
    unittest.main()
