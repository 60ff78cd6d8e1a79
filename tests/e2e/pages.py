"""The page in a browser, which has no network but this machine's own, and the server behind it, whose answers a test may hold."""

import contextlib
import os
import re

import harness
from dashboards import Server
from journals import Journal
from playwright.sync_api import expect, sync_playwright

expect.set_options(timeout=60000)  # on a machine that has much to do


class PageCase(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.playwright = sync_playwright().start()
        cls.addClassCleanup(cls.playwright.stop)
        cls.browser = cls.playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"], timeout=180000)
        cls.addClassCleanup(cls.browser.close)

    def serve(self, *args):
        os.makedirs(self.storage, exist_ok=True)
        return Server(self, *args)

    def begin(self, name="a", ranks=1, reported=None, live=True):
        """A run that has begun, of which rank 0 has reported this."""
        run = Journal(self.storage, name, live)
        run.begin(ranks)
        if reported:
            run.report(1, 1, 0, 1, reported)
        run.commit()
        return run

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

    def hide(self, page, hidden):
        page.evaluate("(hidden) => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); document.dispatchEvent(new Event('visibilitychange')); }", hidden)

    def watches(self, server):
        """How many directories are watched for news, which is done while somebody holds a stream."""
        total = 0
        for fd in os.listdir(f"/proc/{server.process.pid}/fdinfo"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{server.process.pid}/fdinfo/{fd}") as file:
                total += file.read().count("inotify wd:")
        return total
