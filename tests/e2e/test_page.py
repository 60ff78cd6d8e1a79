"""The page in a browser: what it shows of runs with known numbers, by mouse and by keys, and that nothing in a run's names becomes a
part of it."""

import contextlib
import json
import os
import re
import sqlite3
import unittest

import seen
from journals import BEGAN, SECOND, Journal, make_a, make_b, make_usage
from pages import PageCase
from playwright.sync_api import expect

PARTS = ["plots", "ranks", "time", "attempts", "checkpoints", "logs", "placement", "hardware", "stacks"]
HOSTILE = "<img src=x onerror=alert(1)>"


class Page(PageCase):
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
        run = self.begin(ranks=2, reported={"loss": 1})
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

    def test_losses_have_the_first_plots(self):
        """Also those that have a group, of which the others stay together."""
        run = Journal(self.storage, "several")
        run.begin(1)
        for n in range(1, 4):
            run.report(n, 1, 0, n, {"accuracy": n / 4, "train/lr": 0.1, "train/loss": 1 / n, "step": n})
        run.done(5)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['several']}&tab=plots")
        expect(page.locator(".card .title")).to_have_text(["train/loss", "accuracy", "step", "train/lr"])
        page.get_by_role("button", name="train 1").click()
        expect(page.locator(".card .title")).to_have_text(["train/loss", "accuracy", "step"])

    def test_the_best_of_runs_is_told_of_plots_that_are_not_seen(self):
        names = ["loss", "b", "c", "d", "e", "f"]
        for i, name in enumerate(("one", "two"), 1):
            run = Journal(self.storage, name)
            run.begin(1)
            for n in range(1, 4):
                run.report(n, 1, 0, n, {metric: i + n for metric in names})
            run.done(5)
        server = self.serve()
        ids = server.ids()
        page = self.open(server, f"&compare={ids['one']},{ids['two']}", self.browser.new_context(viewport={"width": 500, "height": 300}))
        for metric in names:
            expect(page.locator(f"td.best[data-metric={metric}]")).to_have_text(["2", "3"])

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

    def test_long_names_leave_the_list_in_its_page(self):
        run = Journal(self.storage, "n" * 200)
        run.begin(1)
        run.report(1, 1, 0, 1, {"m" * 200: 123456.75})
        run.done(2, "failed", 3, rank=0, node=0, cause="c" * 400)
        page = self.open(self.serve())
        for width in (1300, 800, 360):
            page.set_viewport_size({"width": width, "height": 740})
            expect(page.locator("tbody tr")).to_have_count(1)
            self.assertEqual(width, page.evaluate("document.documentElement.scrollWidth"))

    def test_red_text_is_red(self):
        run = Journal(self.storage, "a")
        run.log(0, "\x1b[1;31mred\x1b[0m plain \x1b[2Kx\n")
        run.done(1)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=logs")
        expect(page.locator("pre.log .f1.b")).to_have_text("red")
        expect(page.locator("pre.log")).to_have_text("red plain x\n")

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

    def test_a_hit_in_a_line_of_several_colours(self):
        """It is the one that was chosen of equal lines, and is shown as on a terminal."""
        run = Journal(self.storage, "a")
        run.log(0, "é line\nstep \x1b[1;31mneedle\x1b[0m end\n" * 3)
        run.done(1)
        server = self.serve()
        page = self.open(server, f"&run={server.ids()['a']}&tab=logs")
        page.get_by_placeholder("search all ranks").fill("needle")
        expect(page.locator(".hit .cut")).to_have_text(["step needle end"] * 3)
        page.locator(".hit").nth(1).click()
        expect(page.locator("pre.log mark")).to_have_text("step needle end")
        expect(page.locator("pre.log mark .f1")).to_have_text("needle")
        self.assertEqual("é line\nstep needle end\né line\n", page.evaluate("""() => {
            const before = document.createRange();
            before.setStart(document.querySelector("pre.log"), 0);
            before.setEndBefore(document.querySelector("pre.log mark"));
            return before.toString();
        }"""))

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
