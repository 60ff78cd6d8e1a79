"""The page in a browser, which has no network but this machine's own: what it shows of runs with known numbers, what it asks for, and
that nothing in a run's names becomes a part of it."""

import contextlib
import http.client
import itertools
import json
import os
import re
import sqlite3
import time
import unittest
import urllib.parse

import harness
import seen
from dashboards import Server, exchange
from journals import BEGAN, SECOND, Journal, hold, make_a, make_b, make_usage
from playwright.sync_api import expect, sync_playwright

PARTS = ["plots", "ranks", "time", "attempts", "checkpoints", "logs", "placement", "hardware", "stacks"]
expect.set_options(timeout=60000)  # on a machine that has much to do
HOSTILE = "<img src=x onerror=alert(1)>"


class Page(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.playwright = sync_playwright().start()
        cls.addClassCleanup(cls.playwright.stop)
        cls.browser = cls.playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"], timeout=180000)
        cls.addClassCleanup(cls.browser.close)

    def serve(self, *args):
        os.makedirs(self.storage, exist_ok=True)
        return Server(self, *args)

    def open(self, server, part="", context=None):
        """A page that fails the test when it says anything, opens a dialog, or asks anybody else."""
        context = context or self.browser.new_context(viewport={"width": 1300, "height": 850})
        page = context.new_page()
        page.set_default_timeout(60000)
        self.addCleanup(page.close)
        self.said = getattr(self, "said", [])
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: (self.said.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: re.match(rf"(http://127\.0\.0\.1:{server.port}/|blob:|data:)", request.url) or self.said.append(request.url))
        page.goto(server.url + part)
        return page

    def tearDown(self):
        self.assertEqual([], getattr(self, "said", []))

    def withhold(self, page, url, times=1, method="GET"):
        """The next requests, each with what the server says to it now, wait until they are let go."""
        held, left = [], [times]

        def keep(route):
            left[0] -= route.request.method == method
            if left[0] < 0 or route.request.method != method:
                return route.fallback()
            own = [route, None]
            held.append(own)
            own[1] = route.fetch(timeout=60000)

        page.route(url, keep)
        return held

    def wait_held(self, page, held, n=1):
        self.wait_for(lambda: (page.wait_for_timeout(10), all(said for _, said in held) and len(held) >= n)[1])

    def let_go(self, page, held, at=0, **instead):
        """Answers one of them; when this returns the page has taken that, unless it gave the request up."""
        self.wait_held(page, held, at + 1)
        route, said = held.pop(at)
        route.fulfill(**(instead or {"response": said}))
        answer = route.request.response()
        if answer:
            answer.finished()
        self.settle(page)

    def settle(self, page, ms=50):
        """As long passes as timers of the page that are due within it take."""
        page.evaluate("(ms) => new Promise((resolve) => setTimeout(resolve, ms))", ms)

    def forget(self, status):
        """What the browser itself writes of answers with this status."""
        self.said = [line for line in self.said if f"responded with a status of {status}" not in line]

    def test_every_part_of_known_runs(self):
        make_a(self.storage)
        seen.write_profile(make_b(self.storage), 1, seen.SECOND)
        server = self.serve()
        ids = server.ids()
        page = self.open(server)
        expect(page.locator("tbody tr")).to_have_count(2)
        self.assertNotIn("token", page.evaluate("location.href"))
        page.get_by_role("link", name="a", exact=True).click()
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        expect(page.locator(".card[data-metric=loss] .foot")).to_contain_text("not finite")
        for part in PARTS:
            page.get_by_role("navigation").get_by_role("link", name=part, exact=True).click()
            expect(page.locator(f".tabs a.on:text-is('{part}')")).to_be_visible()
            expect(page.locator("#main > *").first).to_be_visible()
            expect(page.locator(".error")).to_have_count(0)
        page.goto(page.url.split("#")[0] + f"#run={ids['a']}&tab=ranks")
        expect(page.locator("h2").first).to_contain_text("farthest behind: rank 3")
        page.goto(page.url.split("#")[0] + f"#run={ids['b']}&tab=attempts")
        expect(page.locator("tbody tr").nth(0)).to_contain_text("rank 1 exited with code 7")
        expect(page.locator("tbody tr").nth(1)).to_contain_text("checkpoint_000100")
        page.goto(page.url.split("#")[0] + f"#run={ids['b']}&tab=time")
        with page.expect_download() as download:
            page.get_by_role("button", name="download", exact=True).click()
        self.assertEqual("rank-1.pt.trace.json.gz", download.value.suggested_filename)
        page.goto(page.url.split("#")[0] + f"#compare={ids['a']},{ids['b']}")
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        expect(page.locator("td.best[data-metric=loss]").nth(0)).to_have_text("0.001998")

    def test_an_answer_that_comes_late_changes_nothing_of_what_is_shown_then(self):
        """The list's, behind a click on a run; and one tab's behind a click on the next."""
        make_a(self.storage, numbers=20)
        server = self.serve()
        page = self.open(server)
        expect(page.locator("tbody tr")).to_have_count(1)
        held = self.withhold(page, "**/api/runs?*")
        Journal(self.storage, "b").done(1)  # of which the list is told
        self.wait_held(page, held)
        page.get_by_role("link", name="a", exact=True).click()
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        self.let_go(page, held)
        expect(page.locator("#main tbody")).to_have_count(0)
        held = self.withhold(page, "**/checkpoints")
        page.get_by_role("link", name="checkpoints", exact=True).click()
        expect(page.locator(".tabs a.on")).to_have_text("checkpoints")
        self.wait_held(page, held)
        page.get_by_role("link", name="stacks", exact=True).click()
        expect(page.locator("#main .note")).to_contain_text("No stacks were saved")
        self.let_go(page, held)
        expect(page.locator("#main .note")).to_have_text(re.compile("No stacks were saved"))
        held = self.withhold(page, "**/api/runs/*")
        page.get_by_role("link", name="time", exact=True).click()
        self.wait_held(page, held)
        page.keyboard.press("u")
        expect(page.locator("tbody tr")).to_have_count(2)
        self.let_go(page, held)
        expect(page.locator("h1")).to_have_count(0)

    def test_what_was_asked_for_last_is_shown_whatever_comes_last(self):
        """Of two ranks, of two maps, and of two looks at the list."""
        make_a(self.storage, numbers=20)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=ranks")
        legend = page.locator(".card .legend")
        expect(legend).to_contain_text("all ranks")
        held = self.withhold(page, "**/histogram?*", 2)
        page.get_by_role("button", name="2", exact=True).click()
        page.get_by_role("button", name="5", exact=True).click()
        self.let_go(page, held, 1)
        expect(legend).to_contain_text("rank 5")
        self.let_go(page, held)
        expect(legend).to_contain_text("rank 5")
        held = self.withhold(page, "**/heat?*", 2)
        select = page.locator(".controls select").first
        select.select_option("loss")
        select.select_option("epoch")
        self.let_go(page, held, 1)
        scale = page.locator(".legend:has(.scale)")
        expect(scale).to_have_text(re.compile("^0"))
        shown = scale.inner_text()
        self.let_go(page, held)
        self.assertEqual(shown, scale.inner_text())
        page.keyboard.press("u")
        expect(page.locator("tbody tr")).to_have_count(1)
        held = self.withhold(page, "**/api/runs?*")
        run = Journal(self.storage, "b", live=True)
        run.begin(1)
        run.commit()
        self.wait_held(page, held)
        run.done(1)
        b = page.locator("tbody tr:has-text('b')")
        expect(b).to_contain_text("succeeded")
        self.let_go(page, held)
        expect(b).to_contain_text("succeeded")

    def test_a_part_is_asked_again_once_its_answer_is_here(self):
        """What came before the answer is shown, and a server that could not answer the last time is asked once more."""
        run = Journal(self.storage, "a", live=True)
        run.begin(1)
        run.commit()

        def checkpoint(n):
            run.database.execute("INSERT INTO checkpoints VALUES (?, ?, 1, ?, '{}')", (n, BEGAN + n * SECOND, f"checkpoint_{n:06}"))
            run.event(n, "checkpoint", 1, number=n, path=f"checkpoint_{n:06}")
            run.report(n, 1, 0, n, {"loss": 1})
            run.commit()

        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=checkpoints")
        expect(page.locator("#main .note")).to_contain_text("No checkpoint")
        held = self.withhold(page, "**/checkpoints")
        checkpoint(1)
        self.wait_held(page, held)
        checkpoint(2)
        expect(page.locator(".facts")).to_contain_text("2 reports")
        self.settle(page, 1500)
        self.let_go(page, held)
        expect(page.locator("#main tbody tr")).to_have_count(2)
        page.route("**/checkpoints", lambda route: route.fulfill(status=503, json={"error": "it was busy"}), times=1)
        checkpoint(3)
        expect(page.locator("#main tbody tr")).to_have_count(3)
        self.forget("503")
        run.done()

    def test_what_a_server_could_not_answer_at_first_is_shown_then(self):
        make_a(self.storage, numbers=20)
        server = self.serve()
        context = self.browser.new_context(viewport={"width": 1300, "height": 850})
        busy = []
        for url in ("**/api/runs", "**/api/runs/*", "**/metrics", "**/ranks?*", "**/timeline"):
            context.route(url, lambda route: (busy.append(route.request.url), route.fulfill(status=503, json={"error": "it was busy"})), times=1)
        page = self.open(server, "", context)
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_role("link", name="a", exact=True).click()
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        for part, shown in (("ranks", "tbody button"), ("time", ".shares")):
            page.get_by_role("navigation").get_by_role("link", name=part, exact=True).click()
            expect(page.locator(shown).first).to_be_visible()
        self.assertEqual(5, len(busy))
        expect(page.locator(".error")).to_have_count(0)
        page.goto(page.url.split("#")[0] + "#")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.route("**/api/runs?*", lambda route: route.fulfill(status=503, json={"error": "it was busy"}), times=1)
        Journal(self.storage, "b").done(1)
        expect(page.locator("tbody tr")).to_have_count(2)
        self.forget("503")

    def test_a_metric_that_comes_soon_after_another_has_a_plot(self):
        """Though no report follows, as at the end of a run."""
        run = Journal(self.storage, "a", live=True)
        run.begin(1)
        run.report(1, 1, 0, 1, {"loss": 1})
        run.commit()
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}")
        expect(page.locator(".card[data-metric=loss]")).to_be_visible()
        run.report(2, 1, 0, 2, {"accuracy": 1})
        run.done(3)
        expect(page.locator(".card[data-metric=accuracy]")).to_be_visible()

    def test_a_zoom_into_hardware_while_it_is_asked_for(self):
        path = make_a(self.storage, numbers=3)
        make_usage(path, [(i * 10, "n1", "node_cpu", -1, i) for i in range(30)])
        server = self.serve()
        context, asked = self.browser.new_context(viewport={"width": 1300, "height": 850}), []
        context.on("request", lambda request: asked.append(request.url))
        page = self.open(server, f"&run={server.ids()['a']}&tab=hardware", context)
        expect(page.locator(".card[data-metric=node_cpu] canvas")).to_be_visible()
        while sum(url.endswith("/usage") for url in asked) < 2:  # again once the stream has told
            page.wait_for_timeout(50)
        began, zoom = BEGAN // SECOND, "(state) => { location.hash = location.hash.split('&x=')[0] + state; }"
        held = self.withhold(page, "**/usage?what=*")
        page.evaluate(zoom, f"&x=time&from={began + 50}&to={began + 250}")
        self.wait_held(page, held)
        with page.expect_response("**/events?kind=hardware"):
            page.evaluate(zoom, f"&x=time&from={began + 100}&to={began + 200}")
        self.settle(page, 500)
        self.let_go(page, held)
        self.wait_for(lambda: (page.wait_for_timeout(10), any(f"from={began + 100}" in url for url in asked))[1])

    def test_earlier_lines_are_read_once_each(self):
        """However often they are asked for before they come; and behind so much that the first were let go."""
        run = Journal(self.storage, "a", live=True)
        lines = [f"line {n:08}" for n in range(170000)]
        run.log(0, "\n".join(lines[:10000]) + "\n")
        run.begin(1)
        run.commit()
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=logs")
        log, earlier = page.locator("pre.log"), page.get_by_role("button", name="earlier")
        expect(log).to_contain_text(lines[9999])
        held = self.withhold(page, "**/logs/rank-0?*", 2)
        earlier.click()
        earlier.click()
        self.let_go(page, held)
        self.let_go(page, held)
        page.wait_for_function("() => document.querySelector('pre.log').textContent.includes('line 00000000')")
        self.assertEqual(lines[:10000], log.text_content().split("\n")[:-1])
        with open(os.path.join(run.path, "logs", "rank-0.log"), "a") as file:
            file.write("\n".join(lines[10000:]) + "\n")
        page.wait_for_function("(line) => document.querySelector('pre.log').textContent.includes(line)", arg=lines[-1])
        before = len(log.text_content())
        earlier.click()
        page.wait_for_function("(before) => document.querySelector('pre.log').textContent.length > before", arg=before)
        shown = log.text_content().split("\n")[1:-1]
        self.assertEqual(lines[-len(shown):], shown)
        run.done()

    def test_a_search_that_failed_is_forgotten_by_the_next(self):
        """Whichever comes first; none goes on behind the end of what is shown."""
        run = Journal(self.storage, "a")
        run.log(0, "a needle\n")
        run.done(1)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=logs")
        expect(page.locator("pre.log")).to_contain_text("needle")
        search = page.get_by_placeholder("search all ranks")
        search.fill("n" * 300)
        expect(page.locator("#main .error")).to_contain_text("256")
        expect(page.locator("pre.log")).to_be_visible()
        held = self.withhold(page, "**/logs/search?*")
        search.fill("hay")
        self.wait_held(page, held)
        search.fill("needle")
        expect(page.locator(".hit")).to_have_count(1)
        self.let_go(page, held, status=503, json={"error": "it was busy"})
        expect(page.locator(".hit")).to_have_count(1)
        expect(page.locator("#main .error")).to_have_count(0)
        search.fill("other")
        page.evaluate("() => { location.hash = ''; }")
        expect(page.locator("tbody tr")).to_have_count(1)
        self.settle(page, 300)
        self.assertNotIn("q=", page.evaluate("location.hash"))
        self.forget("400")
        self.forget("503")

    def test_what_fails_behind_the_end_of_what_is_shown_is_told_nowhere(self):
        seen.write_profile(make_b(self.storage), 1, seen.SECOND)
        server = self.serve("--allow-actions")
        page = self.open(server, f"&run={server.ids()['b']}&tab=stacks")
        expect(page.locator("#main .note")).to_contain_text("No stacks were saved")
        held = self.withhold(page, "**/stacks", method="POST")
        page.get_by_role("button", name="take stacks now").click()
        self.wait_held(page, held)
        page.get_by_role("link", name="time", exact=True).click()
        expect(page.locator(".shares")).to_be_visible()
        self.let_go(page, held, status=500, json={"error": "no worker has stacks"})
        self.assertEqual((1, 0), (page.locator(".shares").count(), page.locator(".error").count()))
        held = self.withhold(page, "**/profile/*")
        page.get_by_role("button", name="download").click()
        self.wait_held(page, held)
        page.get_by_role("link", name="attempts", exact=True).click()
        expect(page.locator("#main h2")).to_have_text(["Events"])  # the part before has tables, too
        self.let_go(page, held, status=503, json={"error": "it was busy"})
        self.assertEqual((2, 0), (page.locator("#main tbody").count(), page.locator(".error").count()))
        self.forget("500")
        self.forget("503")

    def test_a_download_that_fails_says_why(self):
        make_a(self.storage, numbers=20)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}")
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        page.route("**/metrics.csv", lambda route: route.fulfill(status=503, json={"error": "too many downloads"}), times=1)
        button = page.locator(".controls").get_by_role("button", name="csv")
        button.click()
        expect(page.locator(".controls .error")).to_have_text("too many downloads")
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        with page.expect_download():
            button.click()
        expect(page.locator(".error")).to_have_count(0)
        self.forget("503")

    def test_nothing_is_made_of_a_plot_that_has_not_come(self):
        make_a(self.storage, numbers=20)
        server = self.serve()
        page = self.open(server)
        expect(page.locator("tbody tr")).to_have_count(1)
        held = self.withhold(page, "**/api/series?*metric=loss&metric=step*")
        page.get_by_role("link", name="a", exact=True).click()
        self.wait_held(page, held)
        card = page.locator(".card[data-metric=loss]")
        card.hover()
        for name in ("csv", "svg"):
            card.get_by_role("button", name=name).click()
        self.let_go(page, held)
        with page.expect_download():
            card.get_by_role("button", name="csv").click()

    def test_what_was_shown_is_not_kept(self):
        """Plots of earlier parts, which listen to the address, are no objects of the page any more."""
        make_a(self.storage, numbers=20)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}")
        devtools = page.context.new_cdp_session(page)

        def canvases():
            """How many there are; what devtools is given to count them holds them, until it is let go."""
            prototype = devtools.send("Runtime.evaluate", {"expression": "HTMLCanvasElement.prototype", "objectGroup": "asked"})["result"]["objectId"]
            found = devtools.send("Runtime.queryObjects", {"prototypeObjectId": prototype, "objectGroup": "asked"})["objects"]["objectId"]
            count = devtools.send("Runtime.callFunctionOn", {"objectId": found, "functionDeclaration": "function () { return this.length; }", "returnByValue": True})
            devtools.send("Runtime.releaseObjectGroup", {"objectGroup": "asked"})
            return count["result"]["value"]

        for _ in range(4):
            for part, shown in (("attempts", "#main tbody"), ("plots", ".card canvas")):
                page.get_by_role("navigation").get_by_role("link", name=part, exact=True).click()
                expect(page.locator(shown).first).to_be_visible()
            expect(page.locator(".card canvas")).to_have_count(3)
        self.wait_for(lambda: canvases() < 9, canvases)

    def test_a_run_that_is_deleted_is_compared_no_longer(self):
        for name in "abc":
            make_a(self.storage, name, numbers=5)
        server = self.serve()
        page = self.open(server)
        for n in range(3):
            page.locator("tbody tr").nth(n).get_by_role("checkbox").check()
        os.rename(os.path.join(self.storage, "b"), os.path.join(self.place, "b"))
        expect(page.locator("tbody tr")).to_have_count(2)
        page.get_by_role("button", name="compare 2").click()
        expect(page.get_by_role("heading", name="2 runs compared")).to_be_visible()

    def test_a_server_that_takes_the_token_no_longer_is_told(self):
        make_a(self.storage, numbers=5)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}")
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        self.hide(page, True)
        self.wait_for(lambda: self.watches(server) == 0)
        page.route("**/api/stream*", lambda route: route.fulfill(status=401, json={"error": "the token is missing or wrong"}))
        self.hide(page, False)
        expect(page.get_by_placeholder("token")).to_be_visible()
        self.forget("401")
        self.said = [line for line in self.said if "autocomplete" not in line]  # the browser's, of each field for a password

    def test_more_pages_than_may_watch_are_told_nevertheless(self):
        run = Journal(self.storage, "a", live=True)
        run.begin(1)
        run.report(1, 1, 0, 1, {"loss": 1})
        run.commit()
        server = self.serve()
        streams = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in range(32)]
        for stream in streams:
            self.addCleanup(stream.close)
            stream.request("GET", "/api/stream", headers={"Authorization": "Bearer " + server.token})
            self.assertEqual(200, stream.getresponse().status)
        page = self.open(server, f"&run={server.ids()['a']}")
        expect(page.locator(".facts")).to_contain_text("1 report")
        run.report(2, 1, 0, 2, {"loss": 1})
        run.done(3)
        expect(page.locator(".facts")).to_contain_text("2 reports")
        self.forget("503")

    def test_a_run_that_was_deleted_while_the_page_was_hidden(self):
        path = make_a(self.storage, numbers=5)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}")
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        self.hide(page, True)
        self.wait_for(lambda: self.watches(server) == 0)
        os.rename(path, os.path.join(self.place, "old"))
        self.hide(page, False)
        expect(page.locator(".note")).to_contain_text("was deleted meanwhile")
        self.hide(page, True)
        os.rename(os.path.join(self.place, "old"), path)
        self.hide(page, False)
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        self.forget("410")

    def hide(self, page, hidden):
        page.evaluate("(hidden) => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); document.dispatchEvent(new Event('visibilitychange')); }", hidden)

    def test_a_run_that_can_no_longer_be_read_has_one_row(self):
        for name in ("a", "b"):
            Journal(self.storage, name).done(1)
        server = self.serve()
        page = self.open(server)
        rows = page.locator("#main tr:has(td)")
        expect(rows).to_have_text([re.compile("succeeded"), re.compile("succeeded")])
        journal = os.path.join(self.storage, "b", "run.db")
        with open(journal, "rb") as file:
            whole = file.read()
        with open(journal, "r+b") as file:
            file.write(b"\0" * 4096)
        expect(rows).to_have_text([re.compile("^a.*succeeded"), re.compile("^b.*run.db")])
        with open(journal, "r+b") as file:
            file.write(whole)
        expect(rows).to_have_text([re.compile("succeeded"), re.compile("succeeded")])

    def test_no_attempt_takes_less_than_nothing(self):
        seen.write_put_back(self.storage, "back")
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['back']}&tab=attempts")
        expect(page.locator("tbody").first.locator("td:nth-child(5)")).to_have_text(["0 µs", "3 s"])

    def test_all_times_are_by_the_browsers_clock(self):
        make_a(self.storage, numbers=20)
        server = self.serve()
        context = self.browser.new_context(timezone_id="America/New_York", viewport={"width": 1300, "height": 850})
        self.addCleanup(context.close)
        page = self.open(server, f"&run={server.ids()['a']}&tab=attempts", context)
        expect(page.locator("tbody").nth(1).locator("tr").last.locator("td:nth-child(2)")).to_have_text("17:13:20.000")
        page = self.open(server, f"&run={server.ids()['a']}&tab=ranks&heatx=time", context)
        expect(page.locator(".xaxis span").first).to_have_text(re.compile(r"^17:13:2\d$"))

    def test_ranks_are_compared_where_their_values_are(self):
        """The few that are far off have a bar for themselves; of a long run it is a sample, which is said."""
        make_a(self.storage)
        seen.write_c(self.storage, "c", 1000)
        server = self.serve("--no-cache")
        page = self.open(server, f"&run={server.ids()['a']}&tab=ranks&heat=loss")
        expect(page.locator(".card .legend")).to_have_text(re.compile("last: more, up to 99$"))
        page = self.open(server, f"&run={server.ids()['c']}&tab=ranks&heat=loss")
        expect(page.locator(".card .legend")).to_have_text(re.compile(r"sampled [\d.]+ %$"))

    def test_marks_of_numbers_of_any_size(self):
        """An axis has its marks, however far apart they are."""
        journal = seen.Journal(self.storage, "ends", 1)
        journal.begin(0, 1, 1)
        journal.reports((n * seen.SECOND, 1, 0, n, {"large": n * 2.0**70, "whole": (n - 3) * 8e307, "small": n / 1e12}) for n in range(1, 6))
        journal.end(9 * seen.SECOND, 1)
        server = self.serve()
        page = self.browser.new_page()
        self.addCleanup(page.close)
        page.add_init_script("""window.written = []; const write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) { written.push(String(text)); return write.call(this, text, ...rest); };""")
        page.goto(server.url + "&run=" + server.ids()["ends"])
        for mark in ("4.00e21", "5.00e307", "4.00e-12"):
            page.wait_for_function("(mark) => written.includes(mark)", arg=mark)

    def test_the_list_by_keys(self):
        """A row is gone to, chosen and opened; what was gone to stays so while the list is drawn anew."""
        for name in "abc":
            make_a(self.storage, name, numbers=5)
        server = self.serve()
        page = self.open(server)
        expect(page.locator("tbody tr")).to_have_count(3)
        page.keyboard.press("j")
        page.keyboard.press("ArrowDown")
        expect(page.locator("tbody tr").nth(1).get_by_role("link")).to_be_focused()
        page.keyboard.press("x")
        page.keyboard.press("k")
        page.keyboard.press("x")
        expect(page.locator("tbody tr").nth(0).get_by_role("link")).to_be_focused()
        page.keyboard.press("Shift+Tab")
        box = page.locator("tbody tr").nth(0).get_by_role("checkbox")
        expect(box).to_be_focused()
        expect(box).to_be_checked()
        page.keyboard.press("Space")
        page.keyboard.press("Space")
        expect(box).to_be_focused()
        page.get_by_role("button", name="compare 2").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="2 runs compared")).to_be_visible()
        page.keyboard.press("u")
        expect(page.locator("tbody tr")).to_have_count(3)
        page.keyboard.press("j")
        name = page.locator("tbody tr").nth(0).get_by_role("link").inner_text()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=name)).to_be_focused()
        page.keyboard.press("3")
        expect(page.get_by_role("link", name="time", exact=True)).to_have_attribute("aria-current", "page")
        page.get_by_role("link", name="attempts").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name="attempts")).to_have_attribute("aria-current", "page")
        expect(page.get_by_role("link", name="attempts")).to_be_focused()

    def test_what_has_the_focus_keeps_it_while_a_run_goes_on(self):
        run = Journal(self.storage, "a", live=True)
        run.begin(2)
        run.report(1, 1, 0, 1, {"loss": 1})
        run.commit()
        server = self.serve()
        page, alone = self.open(server), self.open(server, f"&run={server.ids()['a']}&tab=placement")
        kept = page.get_by_role("link", name="a", exact=True), alone.get_by_role("link", name="trainyard"), alone.locator(".seat").nth(1)
        kept[0].focus()
        kept[1].focus()
        run.report(2, 1, 0, 2, {"loss": 0.5})
        run.event(3, "ready", 1, 0, 0)
        run.commit()
        expect(page.locator(".chip b")).to_have_text("0.5")
        expect(alone.locator(".facts")).to_contain_text("2 reports")
        expect(kept[0]).to_be_focused()
        expect(kept[1]).to_be_focused()
        expect(alone.locator(".seat.ready:text-is('0')").first).to_be_visible()
        kept[2].focus()
        run.event(4, "exited", 1, 0, 0, code=0)
        run.commit()
        expect(alone.locator(".seats .seat.ready")).to_have_count(0)
        expect(kept[2]).to_be_focused()
        run.done()

    def test_the_keys_are_told_and_go_away(self):
        """By their key and by their button; what had the focus has it again, and no other key does anything meanwhile."""
        make_a(self.storage, numbers=5)
        page = self.open(self.serve())
        button = page.get_by_role("button", name="keys")
        for show in ("?", "Enter"):
            page.get_by_role("searchbox").focus()
            page.keyboard.press("Shift+Tab") if show == "?" else button.focus()
            before = page.evaluate("document.activeElement.outerHTML")
            page.keyboard.press(show)
            expect(page.get_by_role("dialog", name="keys")).to_be_visible()
            expect(page.get_by_role("button", name="close")).to_be_focused()
            page.keyboard.press("?")
            page.keyboard.press("j")
            expect(page.get_by_role("dialog")).to_have_count(1)
            page.keyboard.press("Escape")
            expect(page.get_by_role("dialog")).to_have_count(0)
            self.assertEqual(before, page.evaluate("document.activeElement.outerHTML"))

    def test_a_plot_by_keys(self):
        make_a(self.storage)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}")
        card = page.locator(".card[data-metric=loss]")
        expect(card.locator("canvas")).to_be_visible()
        card.get_by_role("img").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("ArrowLeft")
        expect(card.locator(".read")).to_have_text(re.compile("min .* max "))
        page.keyboard.press("Escape")
        expect(card.locator(".read")).not_to_have_text(re.compile("min"))
        page.keyboard.press("+")
        page.wait_for_function("() => { const [, from, to] = /from=([\\d.]+)&to=([\\d.]+)/.exec(location.hash) ?? []; return 245 < from && from < 255 && 745 < to && to < 755; }")
        page.keyboard.press("-")
        page.wait_for_function("() => !location.hash.includes('from=')")
        page.keyboard.press("+")
        page.keyboard.press("0")
        page.wait_for_function("() => !location.hash.includes('from=')")
        page.keyboard.press("Enter")
        expect(card.get_by_role("button", name="ranks")).to_have_class("bare on")
        expect(card.get_by_role("img")).to_be_focused()

    def test_ranks_and_their_logs_by_keys(self):
        make_a(self.storage)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=ranks&heat=loss&rank=3")
        heading = page.get_by_role("heading", name="against all")
        expect(heading).to_have_text("loss of rank 3 against all")
        expect(page.locator(".card .legend")).to_contain_text("rank 3")
        expect(page.locator(".axis span").first).to_be_visible()
        page.locator(".heat").focus()
        for _ in range(6):  # the first shows where
            page.keyboard.press("ArrowDown")
        expect(page.locator(".tip")).to_contain_text("rank 5")
        page.keyboard.press("Enter")
        expect(heading).to_have_text("loss of rank 5 against all")
        page.get_by_role("button", name="2", exact=True).focus()
        page.keyboard.press("Enter")
        expect(heading).to_have_text("loss of rank 2 against all")
        page.goto(page.url.split("#")[0] + f"#run={server.ids()['a']}&tab=logs")
        ranks = page.locator(".ranklist button")
        expect(page.locator("pre.log")).to_contain_text("rank 0 step 199")
        ranks.nth(0).focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Shift+Enter")
        expect(page.locator("pre.log")).to_have_count(2)
        expect(ranks.nth(1)).to_have_attribute("aria-pressed", "true")
        page.get_by_title("close").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator("pre.log")).to_have_count(1)
        page.keyboard.press("/")
        page.keyboard.type("step 7")
        expect(page.locator(".hit").first).to_be_visible()
        page.locator(".hit").nth(0).focus()
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        expect(page.locator("pre.log mark")).to_be_visible()

    def test_tab_comes_to_every_control(self):
        """All that a mouse can press, in a wide and in a narrow page, has a name, and shows that it is focused."""
        make_a(self.storage)
        make_b(self.storage)
        make_usage(os.path.join(self.storage, "a"), [(second, node, "device_power", 0, 0.5) for second in range(3) for node in ("n1", "n2")])
        server = self.serve()
        ids = server.ids()
        page = self.open(server)
        shows = {"plots": ".card canvas", "ranks": "tbody button", "time": ".shares", "attempts": "tbody tr", "logs": "pre.log", "placement": ".seat",
                 "hardware": ".card canvas"}
        for width, state, shown in [(1280, "", "tbody a"), *((1280, f"run={ids['a']}&tab={part}", shows.get(part, ".note")) for part in PARTS),
                                    (1280, f"compare={ids['a']},{ids['b']}", ".card canvas"),
                                    *((360, f"run={ids['a']}&tab={part}", shows[part]) for part in ("plots", "logs"))]:
            page.set_viewport_size({"width": width, "height": 740})
            page.goto(page.url.split("#")[0] + "#" + state)
            expect(page.locator("#main").locator(shown).first).to_be_visible()
            self.wait_for(lambda: not self.unreached(page), lambda: (state, self.unreached(page)))

    def unreached(self, page):
        """What a mouse can press and Tab does not come to, or comes to without a name or a mark; of a list that arrows go through one is enough."""
        names = page.evaluate("""() => {
            const list = [...document.querySelectorAll("a[href], button, input, select, [tabindex]")].filter((one) => one.checkVisibility() && !one.matches("h1"));
            document.activeElement.blur();
            window.unreached = new Set(list.filter((one) => one.tabIndex >= 0 || !one.parentNode.querySelector("[tabindex='0']")));
            return list.length;
        }""")
        for _ in range(names + 5):
            page.keyboard.press("Tab")
            page.evaluate("""() => {
                const one = document.activeElement;
                if (getComputedStyle(one).outlineStyle !== "none" && (one.textContent || one.ariaLabel || one.placeholder || one.title || one.labels?.length)) unreached.delete(one);
            }""")
        return page.evaluate("() => [...unreached].map((one) => one.outerHTML.slice(0, 200))")

    def test_a_narrow_page(self):
        """What is wide moves in a box of its own, and never the page."""
        make_a(self.storage)
        make_b(self.storage)
        make_usage(os.path.join(self.storage, "a"), [(second, "n1", what, number, 0.5) for second in range(3) for what, number in (("node_cpu", -1), ("device_power", 0), ("device_power", 1))])
        server = self.serve()
        ids = server.ids()
        page = self.open(server)
        page.set_viewport_size({"width": 360, "height": 740})
        for state in ("", *(f"run={ids[run]}&tab={part}" for run in "ab" for part in PARTS), f"compare={ids['a']},{ids['b']}"):
            page.goto(page.url.split("#")[0] + "#" + state)
            expect(page.locator("#main > *:visible").first).to_be_visible()
            page.wait_for_function("() => !document.querySelector('#main .note')?.textContent.includes('…')")
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 360, state)

    def test_metrics_in_one_plot(self):
        """Those that a regular expression leaves; the link has it."""
        run = Journal(self.storage, "several")
        run.begin(1)
        for n in range(1, 21):
            run.report(n, 1, 0, n, {"train/loss": 1 / n, "val/loss": "NaN" if n == 7 else 2 / n, "lr": 0.1, "step": n})
        run.done(30)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['several']}&tab=plots")
        expect(page.get_by_label("in one plot")).to_be_hidden()
        expect(page.locator(".card")).to_have_count(4)
        page.get_by_placeholder("filter metrics").fill("(train|val)/loss$")
        expect(page.locator(".card")).to_have_count(2)
        page.get_by_label("in one plot").check()
        page = self.open(server, "&" + page.url.split("#")[1])
        expect(page.locator(".card .title")).to_have_text("train/loss, val/loss")
        expect(page.locator(".card .keys > span:has(.key)")).to_have_text(["train/loss", "val/loss"])
        expect(page.locator(".card .foot")).to_contain_text("not finite first at rank 0, report 7")
        with page.expect_download() as download:
            page.locator(".card").hover()
            page.get_by_role("button", name="csv", exact=True).last.click()
        with open(download.value.path()) as file:
            self.assertEqual({"train/loss", "val/loss"}, {line.split(",")[1] for line in file.read().splitlines()[1:]})

    def test_hardware_that_was_said_last(self):
        path = make_a(self.storage, numbers=3)
        make_usage(path, [(0, "n1", what, device, value if device else 0)
                          for device in range(2) for what, value in [("device_utilization", 0.37), ("device_memory", 1 << 30), ("device_power", 412)]])
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=hardware")
        said = page.locator("table:has(th :text-is('GPU'))")
        expect(said.locator("th")).to_have_text(["GPU", "memory", "power", "utilization"])
        expect(said.locator("tr:has(td:text-is('1')) td")).to_have_text(["1", "1 GiB", "412 W", "37 %"])

    def test_hardware_over_time(self):
        path = make_a(self.storage, numbers=3)
        make_usage(path, [(i * 10, f"n{node}", what, number, value + i)
                          for i in range(30) for node in range(1, 3)
                          for what, number, value in [("node_cpu", -1, 0), *[("device_power", device, 300 + 100 * device) for device in range(16)]]])
        with contextlib.closing(sqlite3.connect(os.path.join(path, "run.db"))) as database:
            database.execute("INSERT INTO events VALUES (1000, ?, 'hardware', 1, 3, 0, ?)", (BEGAN, json.dumps({"fault": "xid", "device": 1, "code": 79, "cause": HOSTILE})))
            database.commit()
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=hardware")
        expect(page.locator(".card[data-metric=node_cpu] .foot")).to_contain_text("n2")
        expect(page.locator(".card[data-metric=device_power] .foot .key")).to_have_count(2)  # of 32 devices: a band a node
        expect(page.locator("tbody tr:has-text('" + HOSTILE.replace("'", "") + "')")).to_be_visible()
        page.locator("select[title=node]").select_option("n2")
        expect(page.locator(".card[data-metric=device_power] .foot .key")).to_have_count(16)
        expect(page.locator("h2:has-text('n1')")).to_have_count(0)
        plot = page.locator(".card[data-metric=device_power] .u-over")
        box = plot.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40, steps=4)
        page.mouse.up()
        page.wait_for_function("() => location.hash.includes('x=time') && location.hash.includes('from=')")
        expect(page.locator(".card[data-metric=node_cpu] canvas")).to_be_visible()

    def test_zoom_is_asked_again_and_stays_while_data_comes(self):
        run = Journal(self.storage, "live", live=True)
        run.begin(2)
        for n in range(1, 3001):
            for rank in range(2):
                run.report(n, 1, rank, n, {"loss": 99 if n == 1501 and rank else 1 / n, "step": n})
        run.commit()
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['live']}")
        card = page.locator(".card[data-metric=loss]")
        over = card.locator(".u-over")
        expect(over).to_be_visible()
        box = over.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.49, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.51, box["y"] + 50, steps=4)
        with page.expect_response(lambda reply: "/api/series" in reply.url and "metric=loss" in reply.url and "from=" in reply.url) as asked:
            page.mouse.up()
        line = asked.value.json()["series"][0]
        self.assertIn(1501, line["x"])
        self.assertEqual(99, max(line["max"]))
        self.assertEqual([2] * len(line["n"]), line["n"])  # each step by itself
        zoomed = page.evaluate("location.hash")
        self.assertRegex(zoomed, "from=.*to=")
        with page.expect_response(lambda reply: "/api/series" in reply.url and "metric=loss" in reply.url) as asked:
            run.report(3001, 1, 0, 3001, {"loss": 5, "step": 3001})
            run.commit()
        self.assertEqual(line["x"], asked.value.json()["series"][0]["x"])
        self.assertEqual(zoomed, page.evaluate("location.hash"))
        expect(page.locator(".facts")).to_contain_text("6,001 reports")
        with page.expect_response(lambda reply: "/api/series" in reply.url and "metric=loss" in reply.url and "from=" not in reply.url) as asked:
            page.get_by_role("button", name="whole range").click()
        self.assertEqual(6001, sum(asked.value.json()["series"][0]["n"]))
        run.done()

    def test_plots_are_asked_for_together_and_once(self):
        """Also when the stream begins, which tells of all that there is."""
        make_a(self.storage)
        server = self.serve()
        run = server.ids()["a"]
        context = self.browser.new_context(viewport={"width": 1300, "height": 850})
        asked = []
        context.on("request", lambda request: asked.append(urllib.parse.urlsplit(request.url)))
        page = self.open(server, f"&run={run}", context)
        expect(page.locator(".card .u-over")).to_have_count(3)
        while sum(url.path == "/api/runs/" + run for url in asked) < 2:  # again once the stream has told
            page.wait_for_timeout(50)
        plots = [urllib.parse.parse_qs(url.query)["metric"] for url in asked if url.path == "/api/series"]
        self.assertEqual([["loss", "step", "epoch"]], plots)

    def test_a_run_that_goes_on_is_seen_without_a_reload(self):
        path = make_a(self.storage, numbers=5)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}")
        expect(page.locator(".facts")).to_contain_text("40 reports")
        run = Journal.__new__(Journal)
        run.path, run.last = path, 40
        run.reopen()
        run.event(7, "run", command=["python"], host="n1", pid=1)
        run.event(7, "attempt", 2, workers=8, nodes=1, reason="resume")
        run.report(8, 2, 0, 6, {"loss": 0.1, "step": 6})
        run.commit()
        expect(page.locator(".facts")).to_contain_text("41 reports")
        run.done()

    def test_a_run_that_was_deleted_comes_again(self):
        path = make_a(self.storage, numbers=5)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}")
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        os.rename(path, os.path.join(self.place, "old"))
        expect(page.locator(".note")).to_contain_text("was deleted meanwhile")
        run = Journal(self.place, "new", live=True)
        run.event(1000, "run", command=["python"], host="n1", pid=1)
        run.report(1001, 1, 0, 1, {"other": 1, "step": 1})
        run.commit()
        os.rename(run.path, path)  # as a run comes: whole
        expect(page.locator(".card[data-metric=other]")).to_be_visible()
        expect(page.locator(".facts")).to_contain_text("1 report")
        run.done()
        self.forget("410")

    def test_a_run_that_cannot_be_reached_says_why(self):
        path = make_a(self.storage, numbers=5)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}")
        expect(page.locator(".facts")).to_contain_text("40 reports")
        away = os.path.join(self.place, "away")
        os.symlink("a", away)  # leads nowhere once it has the run's name
        exchange(path, away)
        expect(page.locator(".cause")).to_contain_text("Too many levels of symbolic links")
        exchange(path, away)
        expect(page.locator(".cause")).to_have_count(0)
        self.forget("500")

    def test_a_run_that_one_answer_could_not_reach_is_shown_again(self):
        """The server saw it whole before and after, so it has nothing to tell."""
        run = Journal(self.storage, "a")
        run.begin(1)
        run.report(1, 1, 0, 1, {"loss": 1})
        run.commit()
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}")
        expect(page.locator(".facts")).to_contain_text("1 report")
        page.route("**/api/runs/*", lambda route: route.fulfill(status=500, json={"error": "it was away"}), times=1)
        run.report(2, 1, 0, 2, {"loss": 1})
        run.commit()
        expect(page.locator(".facts")).to_contain_text("2 reports")
        expect(page.locator(".cause")).to_have_count(0)
        self.assertTrue(any("500" in one for one in self.said))  # it was answered so
        self.forget("500")
        run.done()

    def test_a_run_that_turns_quiet_and_dies_is_seen_without_a_reload(self):
        run = Journal(self.storage, "a", live=True)
        run.begin(1)
        run.commit()
        server = self.serve()
        with hold(run.path):
            page, alone = self.open(server), self.open(server, f"&run={server.ids()['a']}")
            states, numbers = (page.locator("tr .state"), alone.locator(".facts .state")), itertools.count(1)

            def runs():
                run.report(time.time() - BEGAN / SECOND, 1, 0, next(numbers), {"loss": 1})  # it is quiet when 30 s have passed
                run.commit()
                page.wait_for_timeout(500)
                return all([text.strip() for text in state.all_inner_texts()] == ["running"] for state in states)

            self.wait_for(runs, "a run that goes on")
            expect(page.locator("tr .state")).to_contain_text("quiet", timeout=120000)
            expect(alone.locator(".facts .state")).to_contain_text("quiet")
        expect(page.locator("tr .state")).to_have_text("died")
        expect(alone.locator(".facts .state")).to_have_text("died")
        run.done()

    def test_hostile_names_are_text(self):
        run = Journal(self.storage, HOSTILE)
        run.begin(1)
        for n in range(1, 60):
            run.report(n, 1, 0, n, {"</script>": n, HOSTILE + "/" + HOSTILE: 2, "\u202egnp": 1})
        run.log(0, f"{HOSTILE}</script><script>alert(1)</script>\x1b[31mred\x1b[0m \x1b]0;title\x07progress 1\rprogress 2\n")
        run.event(61, "exited", 1, 0, 0, code=3)
        run.done(62, "failed", 3, rank=0, node=0, cause=HOSTILE + "\n\x1b[2J")
        server = self.serve()
        page = self.open(server)
        expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
        page.get_by_role("link", name=HOSTILE).click()
        expect(page.locator(".cause")).to_contain_text(HOSTILE)
        expect(page.locator(".card .title").nth(0)).to_be_visible()
        for part in PARTS:
            page.get_by_role("navigation").get_by_role("link", name=part, exact=True).click()
            expect(page.locator("#main > *").first).to_be_visible()
            self.assertEqual(0, page.locator("img, main script, iframe").count())
        page.get_by_role("navigation").get_by_role("link", name="logs", exact=True).click()
        log = page.locator("pre.log")
        expect(log).to_contain_text("progress 2")
        expect(log).not_to_contain_text("title")
        expect(log).not_to_contain_text("progress 1")

    def test_long_names_are_cut(self):
        """None makes the page wider, on which the first cause and the checkpoints stand."""
        long = "n" * 4000
        run = Journal(self.storage, "long")
        run.event(0, "plan", 1, nodes=[long], ranks=[0], devices=[long])
        run.event(0, "attempt", 1, workers=1, nodes=1, reason=long)
        run.event(0, "started", 1, 0, 0, pid=1000)
        run.report(1, 1, 0, 1, {"step": 1})
        run.database.execute("INSERT INTO checkpoints VALUES (1, ?, 1, ?, ?)", (BEGAN + SECOND, long[:200], json.dumps({long: 1})))
        run.done(2, "failed", 3, rank=0, node=0, cause=long)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['long']}")
        for part in PARTS:
            page.get_by_role("navigation").get_by_role("link", name=part, exact=True).click()
            expect(page.locator(f".tabs a.on:text-is('{part}')")).to_be_visible()
            expect(page.locator("#main > *").first).to_be_visible()
            self.assertEqual(1300, page.evaluate("document.documentElement.scrollWidth"), part)
        page.get_by_role("navigation").get_by_role("link", name="checkpoints", exact=True).click()
        expect(page.locator("th span[title^=nnn]")).to_have_attribute("title", long)

    def test_red_text_is_red(self):
        run = Journal(self.storage, "a")
        run.log(0, "\x1b[1;31mred\x1b[0m plain \x1b[2Kx\n")
        run.done(1)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=logs")
        expect(page.locator("pre.log .f1.b")).to_have_text("red")
        expect(page.locator("pre.log")).to_have_text("red plain x\n")

    def test_logs_that_are_written_are_seen(self):
        run = Journal(self.storage, "a", live=True)
        run.begin(200)
        run.commit()
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=logs")
        expect(page.locator(".note")).to_contain_text("No worker has written anything yet")
        run.log(3, "one\n")
        expect(page.locator("pre.log")).to_have_text("one\n")
        run.log(3, "one\ntwo\n")
        expect(page.locator("pre.log")).to_have_text("one\ntwo\n")
        run.log(3, "cut\n")
        expect(page.locator("pre.log")).to_have_text("cut\n")
        for rank in range(200):
            run.log(rank, "cut\nand more\n")
        expect(page.locator(".ranklist button")).to_have_count(200)
        expect(page.locator("pre.log")).to_have_text("cut\nand more\n")
        run.done()

    def test_seven_tabs(self):
        make_a(self.storage, numbers=50)
        server = self.serve()
        run = server.ids()["a"]
        context = self.browser.new_context()
        for _ in range(7):
            page = self.open(server, f"&run={run}", context)
            expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()

    def test_a_hidden_page_holds_no_stream(self):
        make_a(self.storage, numbers=50)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}")
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        self.hide(page, True)
        self.wait_for(lambda: self.watches(server) == 0)
        self.hide(page, False)
        self.wait_for(lambda: self.watches(server) > 0)

    def watches(self, server):
        """How many directories are watched for news, which is done while somebody holds a stream."""
        total = 0
        for fd in os.listdir(f"/proc/{server.process.pid}/fdinfo"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{server.process.pid}/fdinfo/{fd}") as file:
                total += file.read().count("inotify wd:")
        return total

    def test_without_a_token_one_is_asked_for(self):
        make_a(self.storage, numbers=5)
        server = self.serve()
        context = self.browser.new_context()
        page = context.new_page()
        self.addCleanup(page.close)
        page.goto(server.url.split("#")[0])
        expect(page.get_by_placeholder("token")).to_be_visible()
        page.get_by_placeholder("token").fill(server.token)
        page.get_by_role("button", name="Open").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        other = self.browser.new_context().new_page()
        self.addCleanup(other.close)
        other.goto(server.url.split("#")[0])
        expect(other.get_by_placeholder("token")).to_be_visible()
        other.goto(server.url)  # in its place, which loads nothing by itself
        expect(other.locator("tbody tr")).to_have_count(1)
        self.assertNotIn("token", other.evaluate("location.href"))

    def test_the_search_finds_in_all_ranks(self):
        run = Journal(self.storage, "a")
        for rank in range(12):
            run.log(rank, f"begin\nrank {rank}: {'Needle <b>' if rank % 4 == 1 else 'hay'}\nend\n")
        run.done(1)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=logs")
        expect(page.locator("pre.log")).to_contain_text("begin")
        page.keyboard.press("/")
        page.keyboard.type("needle")
        expect(page.locator(".hit")).to_have_count(3)
        page.locator(".hit").nth(2).click()
        expect(page.locator("pre.log mark")).to_have_text("rank 9: Needle <b>")

    def test_no_runs_yet(self):
        page = self.open(self.serve())
        expect(page.locator(".note")).to_contain_text("trainyard run -n 4 -- PROG")

    def test_the_file_needs_no_script(self):
        make_a(self.storage)
        path = os.path.join(self.place, "page.html")
        self.assert_status(0, self.trainyard("dashboard", "--storage-path", self.storage, "a", "-o", path))
        context = self.browser.new_context(java_script_enabled=False)
        page = context.new_page()
        self.addCleanup(page.close)
        page.goto("file://" + path)
        expect(page.locator("figure")).to_have_count(3)
        expect(page.locator("figure").first).to_contain_text("max 99 @5")


if __name__ == "__main__":
    unittest.main()
