"""What it costs to look at runs (docs/seeing.md): the page and the formats over a run of 10 million reports, beside sqlite3 on the same
data and TensorBoard on a hundredth of it; 200 runs; a run that goes on. TRAINYARD_BENCH_NUMBERS shortens the run of 64 ranks."""
import concurrent.futures
import contextlib
import gzip
import http.client
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.parse

from common import Command, Skip, Summary, milliseconds, status_field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import seen  # noqa: E402

NUMBERS = int(os.environ.get("TRAINYARD_BENCH_NUMBERS", 156_250))
METRICS = ["loss", "step", "epoch", "lr", "step_time", "tokens_per_second"]
PAGE = ["/", "/uplot.js", "/uplot.css", *("/" + name for name in os.listdir(os.path.join(ROOT, "src", "web", "page")) if name != "index.html")]
CONNECTIONS = 6  # that a browser opens at most
REPLIES = 1000
CLIENTS = 8
MANY_RANKS = 10_000
RUNS = 200
RATE_REPEATS = 7
BOARD_SHARE = 100
FIRST_VIEW_S, REPLY_P99_S, INDEX_CPU_S, INDEX_BYTES, MEMORY_KB = 0.2, 0.05, 10, 65e6, 64 << 10
LIST_FIRST_S, LIST_AGAIN_S, ON_PAGE_S, PAGE_BYTES, CSV_S, OF_BOARD, OF_RATE = 1, 0.02, 1, 100_000, 30, 0.05, 0.97
PLOTS, PLOTS_S, QUIET_SHARE, BUSY_SHARE, BUSY_RATE = 24, 0.5, 0.005, 0.05, 20_000


class Server:
    """A dashboard over `storage`, with an empty cache of its own."""

    def __init__(self, bench, storage):
        self.cache = os.path.join(bench.directory, "cache")
        shutil.rmtree(self.cache, ignore_errors=True)
        environment = {**bench.environment, "XDG_CACHE_HOME": self.cache, "XDG_RUNTIME_DIR": bench.directory}
        command = Command([os.path.join(bench.build, "trainyard"), "dashboard", "--storage-path", storage, "--listen", "127.0.0.1:0"], environment)
        self.child = bench.start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        told = re.match(r"http://127\.0\.0\.1:(\d+)/#token=(\w+)", self.child.stdout.readline())
        self.port, self.headers = int(told[1]), {"Authorization": "Bearer " + told[2]}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(30)
        self.child.stdout.close()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def get(self, path, connection=None, **headers):
        connection = connection or self.connect()
        connection.request("GET", path, headers={**self.headers, **headers})
        reply = connection.getresponse()
        data = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{path}: {reply.status} {data[:200]}")
        return data

    def id_of(self, name):
        return next(run["id"] for run in json.loads(self.get("/api/runs"))["runs"] if run["name"] == name)

    def cpu(self):
        with open(f"/proc/{self.child.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _series(run, metric, **more):
    return "/api/series?" + urllib.parse.urlencode({"run": run, "metric": metric, "x": "step", "buckets": 600, "history": "all", **more})


def _view(server, run):
    """All that the page of a run asks for at once; how long until the last reply is there."""
    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        begin = time.monotonic()
        for path in ("/api/runs/" + run, f"/api/runs/{run}/metrics"):
            server.get(path)
        list(pool.map(lambda metric: server.get(_series(run, metric)), METRICS))
        return time.monotonic() - begin


def _until_exact(server, run):
    """What was looked at begins the index."""
    end = time.monotonic() + 600
    while not json.loads(server.get(_series(run, "loss")))["exact"]:
        if time.monotonic() > end:
            raise RuntimeError("the index is not there after 600 s")
        time.sleep(1)


def _kept_index(server):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for where, _, names in os.walk(server.cache):
            for name in names:
                if name.endswith(".db"):
                    return os.path.join(where, name)
        time.sleep(0.1)
    raise RuntimeError("the index is not kept 60 s after it was made")


def _replies(server, run, count):
    """Seconds of each of so many replies to somebody who zooms about."""
    dice, connection, took = random.Random(1), server.connect(), []
    for _ in range(count):
        low = dice.uniform(0, NUMBERS)
        path = _series(run, dice.choice(METRICS), **{"from": low, "to": dice.uniform(low, NUMBERS)})
        begin = time.monotonic()
        server.get(path, connection)
        took.append(time.monotonic() - begin)
    return took


def _sqlite(path):
    """What sqlite3 takes for one curve of the same data, with its own JSON functions."""
    sql = "SELECT number / 260, min(v), max(v), avg(v) FROM (SELECT number, json_extract(metrics, '$.loss') AS v FROM reports) GROUP BY 1"
    with contextlib.closing(sqlite3.connect(f"file:{path}/run.db?mode=ro", uri=True)) as database:
        begin = time.monotonic()
        database.execute(sql).fetchall()
        return time.monotonic() - begin


def _board(bench, storage):
    """Seconds from TensorBoard's start until it has the loss of rank 0, over a hundredth of the reports."""
    python = os.path.join(ROOT, "scripts", "python")
    if subprocess.run([python, "-c", "import tensorboard"], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("tensorboard is not installed")
    seen.write_c(storage, "part", max(NUMBERS // BOARD_SHARE, 1))
    logs = os.path.join(bench.directory, "board")
    subprocess.run([os.path.join(bench.build, "trainyard"), "metrics", "--storage-path", storage, "part", "--format", "tensorboard", "-o", logs], check=True)
    words = [python, "-m", "tensorboard.main", "--logdir", logs, "--host", "127.0.0.1", "--port", "0", "--load_fast=false"]
    begin = time.monotonic()
    child = bench.start(Command(words, bench.environment), stderr=subprocess.PIPE, text=True)
    try:
        port = next(int(found[1]) for line in child.stderr if (found := re.search(r"http://127\.0\.0\.1:(\d+)/", line)))
        threading.Thread(target=child.stderr.read, daemon=True).start()
        while time.monotonic() - begin < 300:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/data/plugin/scalars/tags")
            reply = connection.getresponse()
            if reply.status == 200 and "loss" in json.loads(reply.read()).get("rank-0", {}):
                return time.monotonic() - begin
            time.sleep(0.05)
        raise RuntimeError("TensorBoard has no plot after 300 s")
    finally:
        child.terminate()
        bench.end(child)
        shutil.rmtree(logs, ignore_errors=True)


def _large(bench):
    storage = bench.storage()
    path = seen.write_c(storage, "c", NUMBERS)
    reports = f"{NUMBERS * 64 / 1e6:g} M reports"
    with Server(bench, storage) as server:
        run = server.id_of("c")
        before = server.cpu()
        view = _view(server, run)
        _until_exact(server, run)
        cpu = server.cpu() - before
        database = _sqlite(path)
        size = os.path.getsize(_kept_index(server))
        took = Summary(_replies(server, run, REPLIES))
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda _: _replies(server, run, 50), range(CLIENTS)))
        memory = status_field(server.child.pid, "VmHWM")
    bench.row("seeing", f"first view, {reports}, no index", milliseconds(view), f"sqlite3, one curve {milliseconds(database)}",
              f"<= {FIRST_VIEW_S} s", view <= FIRST_VIEW_S)
    bench.row("seeing", "index of them, of one core; size", f"{cpu:.1f} s, {size / 1e6:.0f} MB", "", f"<= {INDEX_CPU_S} s, 65 MB",
              cpu <= INDEX_CPU_S and size <= INDEX_BYTES)
    bench.row("seeing", f"{REPLIES} replies with index", f"p99 {milliseconds(took.quantile(0.99))}", f"median {milliseconds(took.median)}",
              f"p99 <= {REPLY_P99_S} s", took.quantile(0.99) <= REPLY_P99_S, replies=took.as_dict())
    bench.row("seeing", f"memory, {CLIENTS} clients", f"{memory / 1024:.0f} MiB", "", f"<= {MEMORY_KB >> 10} MiB", memory <= MEMORY_KB)
    csv = bench.time(Command([os.path.join(bench.build, "trainyard"), "metrics", "--storage-path", storage, "c", "--format", "csv"]), 600)
    bench.row("seeing", f"CSV of {reports}", milliseconds(csv), "", f"<= {CSV_S} s", csv <= CSV_S)
    try:
        board = _board(bench, storage)
    except Skip as reason:
        bench.row("seeing", "TensorBoard, first plot", "", str(reason), "", None)
    else:
        bench.row("seeing", "first view, beside TensorBoard's plot", f"{view / board:.3f}x", f"{milliseconds(board)} for 1/{BOARD_SHARE} of them",
                  f"<= {OF_BOARD}x", view <= OF_BOARD * board)


def _wide(bench):
    """What many ranks take of memory: plots, who is slow, and a heat map of all."""
    storage = bench.storage() + "-wide"
    numbers = max(NUMBERS * 64 // MANY_RANKS, 1)
    seen.write_c(storage, "d", numbers, MANY_RANKS)
    with Server(bench, storage) as server:
        run = server.id_of("d")
        _view(server, run)
        _until_exact(server, run)
        paths = [_series(run, metric) for metric in METRICS] + [
            f"/api/runs/{run}/ranks?limit={MANY_RANKS}", f"/api/runs/{run}/placement",
            f"/api/runs/{run}/heat?" + urllib.parse.urlencode({"metric": "loss", "rows": 512, "columns": 600})]
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(server.get, paths * CLIENTS))
        memory = status_field(server.child.pid, "VmHWM")
    shutil.rmtree(storage)
    bench.row("seeing", f"memory, {MANY_RANKS} ranks x {numbers}, {CLIENTS} clients", f"{memory / 1024:.0f} MiB", "", f"<= {MEMORY_KB >> 10} MiB",
              memory <= MEMORY_KB)


def _many(bench):
    """A list of runs; what nobody costs who is not there; how large the page is."""
    storage = bench.storage() + "-many"
    first = seen.write_a(storage, "run-0")
    for i in range(1, RUNS):
        shutil.copytree(first, os.path.join(storage, f"run-{i}"))
    with Server(bench, storage) as server:
        took = []
        for _ in range(20):
            begin = time.monotonic()
            server.get("/api/runs")
            took.append(time.monotonic() - begin)
        again = Summary(took[1:]).median
        packed = {path: server.get(path, **{"Accept-Encoding": "gzip"}) for path in PAGE}
        size = sum(len(data if data[:2] == b"\x1f\x8b" else gzip.compress(data)) for data in packed.values())
        time.sleep(6)  # whoever looked has gone
        before, cpu = status_field(server.child.pid, "voluntary_ctxt_switches"), server.cpu()
        time.sleep(10)
        switches, cpu = status_field(server.child.pid, "voluntary_ctxt_switches") - before, server.cpu() - cpu
        ids = [found["id"] for found in json.loads(server.get("/api/runs"))["runs"]]
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda run: server.get(_series(run, "loss")), ids))
        memory = status_field(server.child.pid, "VmHWM")
    shutil.rmtree(storage)
    bench.row("seeing", f"list of {RUNS} runs, first; again", f"{milliseconds(took[0])}; {milliseconds(again)}", "",
              f"<= {LIST_FIRST_S} s; {LIST_AGAIN_S} s", took[0] <= LIST_FIRST_S and again <= LIST_AGAIN_S)
    bench.row("seeing", f"memory, {RUNS} runs, {CLIENTS} clients", f"{memory / 1024:.0f} MiB", "", f"<= {MEMORY_KB >> 10} MiB", memory <= MEMORY_KB)
    bench.row("seeing", "the page, gzip, all files", f"{size / 1000:.0f} KB", "", f"<= {PAGE_BYTES // 1000} KB", size <= PAGE_BYTES)
    bench.row("seeing", "no client, 10 s: wake-ups, CPU", f"{switches}, {cpu:.2f} s", "", "0", switches == 0 and cpu == 0)


def _events(server, run, take):
    """Calls `take` with the name and the data of what the stream says, until it says no more."""
    connection = server.connect()
    connection.request("GET", "/api/stream?run=" + run, headers=server.headers)
    name = ""
    with contextlib.suppress(OSError, http.client.HTTPException, TimeoutError):
        for line in connection.getresponse():
            key, _, value = line.decode().rstrip("\n").partition(": ")
            name = value if key == "event" else name
            if key == "data" and not take(name, json.loads(value)):
                return


def _fresh(bench):
    """From the time that a row of a live run has to the reply that shows it, to a page that hears of it by the stream."""
    words = bench.trainyard(2, bench.program("reports"), "200", "50000", options=("--no-prefix", "--name", "live"))
    late, known = [], set()
    with Server(bench, bench.storage()) as server:
        child = bench.start(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        database = os.path.join(bench.storage(), "live", "run.db")
        while not os.path.exists(database) or "live" not in server.get("/api/runs").decode():
            time.sleep(0.05)
        run = server.id_of("live")

        def take(name, data):
            if name == "reports":
                now_on_page = sum(json.loads(server.get(_series(run, "step", x="number")))["series"][0]["n"])
                now = time.time_ns()
                with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as rows:
                    for report, made in rows.execute("SELECT id, time FROM reports WHERE id <= ?", (now_on_page,)):
                        if report not in known:
                            late.append((now - made) / 1e9)
                            known.add(report)
            return child.poll() is None

        _events(server, run, take)
        child.wait(60)
        bench.end(child)
    if not late:
        raise RuntimeError("the stream told of no reports")
    took = Summary(late)
    bench.row("seeing", f"report made to reply, {len(late)} of them", f"p99 {milliseconds(took.quantile(0.99))}",
              f"median {milliseconds(took.median)}", f"p99 <= {ON_PAGE_S} s", took.quantile(0.99) <= ON_PAGE_S)


def _drawn(bench):
    """A run of as many metrics, from their names to all of their plots, in a browser."""
    python = os.path.join(ROOT, "scripts", "python")
    if not os.access("/usr/bin/chromium", os.X_OK) or subprocess.run([python, "-c", "import playwright"], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("chromium or playwright is not installed")
    journal = seen.Journal(bench.storage(), "drawn", 3)
    journal.begin(0, 1, 3)
    journal.reports((n * seen.SECOND // 10, 1, rank, n, {f"m{i}": math.sin(n / (20 + i)) + rank / 10 for i in range(PLOTS)})
                    for n in range(1, 1201) for rank in range(3))
    journal.end(121 * seen.SECOND, 1)
    with Server(bench, bench.storage()) as server:
        address = f"http://127.0.0.1:{server.port}/#token={server.headers['Authorization'].split()[1]}&run={server.id_of('drawn')}"
        words = [python, os.path.join(ROOT, "bench", "programs", "draw_plots.py"), address, str(PLOTS)]
        took = Summary(float(ms) / 1000 for ms in subprocess.run(words, check=True, capture_output=True, text=True, timeout=300).stdout.split())
    bench.row("seeing", f"{PLOTS} plots in chromium", milliseconds(took.median), "", f"<= {PLOTS_S} s", took.median <= PLOTS_S, took=took.as_dict())


def _one_page(bench):
    """What one page costs while a run is quiet, and while it reports."""
    from rows import reports

    pause_us = 8_000_000 // BUSY_RATE // 8 * reports.WORKERS
    busy = bench.trainyard(reports.WORKERS, bench.program("reports"), "1000000", str(pause_us - 60), options=("--no-prefix", "--name", "busy"))
    for name, words, limit in (("quiet", bench.trainyard(2, "sleep", "1000", options=("--name", "quiet")), QUIET_SHARE), ("busy", busy, BUSY_SHARE)):
        with Server(bench, bench.storage()) as server:
            child = bench.start(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            pages = _Watching(bench, server, name, 1)
            pages.wait()
            time.sleep(3)
            before, first, begin = server.cpu(), _count(bench, name), time.monotonic()
            time.sleep(10)
            seconds, used, made = time.monotonic() - begin, server.cpu() - before, _count(bench, name) - first
            pages.end()
            child.terminate()
            child.wait(60)
            bench.end(child)
        bench.row("seeing", f"one page, {made / seconds:.0f} reports/s", f"{used / seconds:.2%} of a core", "", f"<= {limit:.1%}", used / seconds <= limit)


def _count(bench, name):
    with contextlib.closing(sqlite3.connect(f"file:{os.path.join(bench.storage(), name)}/run.db?mode=ro", uri=True)) as database:
        return database.execute("SELECT coalesce(max(id), 0) FROM reports").fetchone()[0]


def _beside(bench):
    """The rate at which reports reach the journal, alone and beside three clients that look at the run as it goes on, in turn; and how
    much of a core the dashboard, the clients and the run itself take meanwhile."""
    from rows import reports

    rates, own, shares = {False: [], True: []}, {False: [], True: []}, {"dashboard": [], "clients": []}
    for i in range(RATE_REPEATS):
        for watched in rates:
            name = f"{'watched' if watched else 'alone'}-{i}"
            with contextlib.ExitStack() as stack:
                clients = _Watching(bench, stack.enter_context(Server(bench, bench.storage())), name, 3) if watched else None
                used = _children_cpu()
                seconds, _, _ = reports._reports(bench, name, reports.WORKERS, reports.CALLS)
                own[watched].append(_children_cpu() - used)
                if clients:
                    for who, cpu in clients.end().items():
                        shares[who].append(cpu / seconds)
            rates[watched].append(reports.WORKERS * reports.CALLS / seconds)
    alone, beside = Summary(rates[False]).median, Summary(rates[True]).median
    told = ", ".join(f"{who} {Summary(found).median:.1%}" for who, found in shares.items())
    bench.row("seeing", "reports beside 3 clients", f"{beside / alone:.2f}x, {beside:.0f}/s",
              f"alone {alone:.0f}/s; of a core {told}; the run's own CPU {Summary(own[True]).median / Summary(own[False]).median:.2f}x",
              f">= {OF_RATE}x", beside >= OF_RATE * alone, rates={str(key): value for key, value in rates.items()}, shares=shares,
              own={str(key): value for key, value in own.items()})


def _children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class _Watching:
    """Pages that watch the run of this name from when it is listed on."""

    def __init__(self, bench, server, name, count):
        self._bench, self._server, self._name, self._count = bench, server, name, count
        self._child, self._over = None, threading.Event()
        self._before = server.cpu()
        self._thread = threading.Thread(target=self._begin)
        self._thread.start()

    def _begin(self):
        while not self._over.wait(0.05):
            found = [run["id"] for run in json.loads(self._server.get("/api/runs"))["runs"] if run["name"] == self._name]
            if found:
                command = Command([self._bench.program("pages"), str(self._server.port), found[0], str(self._count)])
                self._child = self._bench.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                self._child.stdin.write(self._server.headers["Authorization"].split()[1] + "\n")
                self._child.stdin.flush()
                return

    def wait(self):
        self._thread.join(60)

    def end(self):
        """Seconds of a processor that each used; RuntimeError where the pages saw nothing."""
        cpu = self._server.cpu() - self._before
        self._over.set()
        self._thread.join()
        told = self._child.communicate(timeout=60)[0].split() if self._child else []
        if len(told) != 2 or told[0] == "0":
            raise RuntimeError(f"pages: {told}, status {self._child and self._child.returncode}")
        return {"dashboard": cpu, "clients": int(told[1]) / 1e9}


def run(bench):
    for part in (_many, _fresh, _one_page, _beside, _drawn, _large, _wide):
        try:
            part(bench)
        except Skip as reason:
            bench.row("seeing", part.__name__[1:], "", str(reason), "", None)
        bench.clear_storage()
