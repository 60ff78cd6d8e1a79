"""draw_plots.py URL N: milliseconds from when a browser without a window is led to the run's address until its N plots are drawn, of
several tries; the files of the page come from the dashboard each time."""
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
        page.goto("about:blank")
        begin = time.monotonic()
        page.goto(url)
        page.wait_for_function(f"document.querySelectorAll('.card canvas').length === {n}", timeout=60000)
        took.append((time.monotonic() - begin) * 1000)
        page.context.close()
    browser.close()
print(*took)
