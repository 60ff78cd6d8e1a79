"""draw_plots.py URL N: milliseconds from when a page has the names of a run's metrics until all N plots of them are drawn, of several
tries, in a browser without a window."""
import sys
import time

from playwright.sync_api import sync_playwright

TRIES = 5

url, n = sys.argv[1], int(sys.argv[2])
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    took = []
    for _ in range(TRIES):
        page = browser.new_context(viewport={"width": 1900, "height": 2200}).new_page()
        named = []
        page.on("response", lambda reply: reply.url.endswith("/metrics") and named.append(time.monotonic()))  # noqa: B023
        page.goto(url)
        page.locator(".card canvas").nth(n - 1).wait_for(state="attached", timeout=60000)
        took.append((time.monotonic() - named[0]) * 1000)
        page.context.close()
    browser.close()
print(*took)
