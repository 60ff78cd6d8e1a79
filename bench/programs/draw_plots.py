"""draw_plots.py URL N: milliseconds from when a page has the names of a run's metrics until all N plots of them are painted, of several
tries, in a browser without a window. The page's own clock tells both: whoever asks a browser again and again hears of it late."""
import sys

from playwright.sync_api import sync_playwright

TRIES = 5
WATCH = """new MutationObserver((_, watcher) => {
    if (document.querySelectorAll(".card canvas").length < %d) return;
    watcher.disconnect();
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => (window.painted = performance.now());
    requestAnimationFrame(() => port2.postMessage(0));
}).observe(document, { childList: true, subtree: true });"""
TOOK = "() => painted - performance.getEntriesByType('resource').find((one) => one.name.endsWith('/metrics')).responseEnd"

url, n = sys.argv[1], int(sys.argv[2])
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    took = []
    for _ in range(TRIES):
        page = browser.new_context(viewport={"width": 1900, "height": 2200}).new_page()
        page.add_init_script(WATCH % n)
        page.goto(url)
        page.wait_for_function("() => window.painted", polling=100, timeout=60000)  # each frame would make frames
        took.append(page.evaluate(TOOK))
        page.context.close()
    browser.close()
print(*took)
