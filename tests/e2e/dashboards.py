"""A dashboard that runs, asked over HTTP, and its streams."""

import ctypes
import http.client
import json
import os
import re
import signal

import harness


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
        self.case.assert_status(0, self.case.finish(self.process))

    def ask(self, path, method="GET", headers=None, token=True, body=None, skip_host=False):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=180)
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


class DashboardCase(harness.Case):
    def serve(self, *args, **more):
        os.makedirs(self.storage, exist_ok=True)
        return Server(self, *args, **more)

    def open_stream(self, server, run=None, connection=None):
        connection = connection or http.client.HTTPConnection("127.0.0.1", server.port, timeout=180)
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
