"""The page in a browser: what it asks for, answers that come late, overlap or fail, and news of runs while they are shown."""

import http.client
import itertools
import os
import re
import time
import unittest
import urllib.parse

import seen
from dashboards import exchange
from journals import BEGAN, SECOND, Journal, hold, make_a, make_b, make_usage
from pages import PageCase
from playwright.sync_api import expect


class PageAnswers(PageCase):
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
        run = self.begin("b")
        self.wait_held(page, held)
        run.done(1)
        b = page.locator("tbody tr:has-text('b')")
        expect(b).to_contain_text("succeeded")
        self.let_go(page, held)
        expect(b).to_contain_text("succeeded")

    def test_a_part_is_asked_again_once_its_answer_is_here(self):
        """What came before the answer is shown, and a server that could not answer the last time is asked once more."""
        run = self.begin()

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

    def test_a_part_whose_first_answer_was_an_error_is_shown_then(self):
        """Of what a disk could not read once nothing tells that it can."""
        path = make_a(self.storage, numbers=20)
        make_usage(path, [(i * 10, "n1", "node_cpu", -1, i) for i in range(3)])
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=stacks")
        expect(page.locator("#main .note")).to_contain_text("No stacks were saved")
        for part, url, shown in (("plots", "**/metrics", ".card[data-metric=loss] canvas"), ("ranks", "**/ranks?*", "tbody button"), ("time", "**/timeline", ".shares"),
                                 ("logs", "**/logs", "pre.log"), ("hardware", "**/usage", ".card canvas")):
            page.route(url, lambda route: route.fulfill(status=500, json={"error": "disk I/O error"}), times=1)
            page.get_by_role("navigation").get_by_role("link", name=part, exact=True).click()
            expect(page.locator("#main").locator(shown).first).to_be_visible()
            expect(page.locator("#main .error")).to_have_count(0)
        self.assertEqual(5, sum("500" in line for line in self.said))
        self.forget("500")

    def test_what_is_left_of_the_view_before_does_nothing(self):
        """While the next one is waited for: of the list, and of a part; other parts can be gone to meanwhile."""
        make_a(self.storage, numbers=20)
        server = self.serve("--allow-actions")
        page = self.open(server)
        expect(page.locator("tbody tr")).to_have_count(1)

        def press(element):
            box = element.bounding_box()
            page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

        held = self.withhold(page, "**/api/runs/*")
        page.get_by_role("link", name="a", exact=True).click()
        self.wait_held(page, held)
        press(page.get_by_role("checkbox"))
        self.assertNotIn("chosen", page.evaluate("location.hash"))
        self.let_go(page, held)
        expect(page.locator(".card[data-metric=loss] canvas")).to_be_visible()
        page.get_by_role("link", name="stacks", exact=True).click()
        button = page.get_by_role("button", name="take stacks now")
        expect(button).to_be_visible()
        asked = []
        page.on("request", lambda request: request.method == "POST" and asked.append(request.url))
        held = self.withhold(page, "**/api/runs/*")
        page.get_by_role("link", name="attempts", exact=True).click()
        self.wait_held(page, held)
        press(button)
        page.get_by_role("link", name="time", exact=True).click()
        expect(page.locator(".shares")).to_be_visible()
        self.let_go(page, held)
        self.assertEqual([], asked)
        with page.expect_download():  # what is shown now can be pressed
            page.get_by_role("button", name="trace").click()

    def test_a_run_that_has_ended_is_not_offered_to_be_stopped(self):
        run = self.begin()
        server = self.serve("--allow-actions")
        with hold(run.path):
            page = self.open(server, f"&run={server.ids()['a']}&tab=stacks")
            stop = page.get_by_role("button", name="stop the run")
            expect(stop).to_be_visible()
            run.done(3)
        expect(stop).to_be_hidden()
        expect(page.get_by_role("button", name="take stacks now")).to_be_visible()

    def test_a_metric_that_comes_soon_after_another_has_a_plot(self):
        """Though no report follows, as at the end of a run."""
        run = self.begin(reported={"loss": 1})
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
        run = self.begin(reported={"loss": 1})
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

    def test_logs_that_are_written_are_seen(self):
        run = self.begin(ranks=200)
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
        run = self.begin(reported={"loss": 1}, live=False)
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
        run = self.begin()
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


if __name__ == "__main__":
    unittest.main()
