"""A run inside of a notebook: the workers' output goes where `print` goes, and a small table shows how they are, with the curves of
what they report, as `Result.plot()` has them."""

from __future__ import annotations

import collections
import html
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from . import metrics as _metrics
from . import plot
from .screen import harmless

if TYPE_CHECKING:
    from collections.abc import Callable

_LATEST = 6  # metrics shown of a rank's last report
_ROWS = 64  # ranks in the table, which is drawn again and again
_INTERVAL_S = 0.2  # between two drawings of the table
_CURVES_INTERVAL_S = 2.0  # between two readings of the curves; with some the table is drawn twice in it


def in_kernel() -> bool:
    """Whether this process is a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class Display:
    """Takes the events of a run, and shows them."""

    events = [
        "output",
        "run",
        "attempt",
        "started",
        "ready",
        "rendezvous",
        "exited",
        "report",
        "run_end",
    ]
    _OF_RANKS = ("started", "ready", "rendezvous", "exited", "report")
    _STATES = {"started": "starting", "ready": "running", "rendezvous": "running"}

    def __init__(self, config: Any, path: Callable[[], str]):
        self._path = path
        self._live: plot.Live | None = None
        self._curves = ""
        self._read = 0.0
        self._quiet = config.quiet
        self._shows = config.progress != "none"
        self._title = ""
        self._rows: dict[int, dict[str, Any]] = {}
        self._handle: Any = None
        self._drawn = 0.0

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._curves = _inline(self._live.finish()._repr_svg_())
        self._draw(now=True)

    def take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "output":
            self._print(event)
        elif kind == "run":
            self._title = event["name"]
        elif kind == "attempt":
            self._rows = {rank: {"state": "starting"} for rank in range(event["workers"])}
        elif kind == "run_end":
            self._title += f": {event.get('outcome', 'ended')}"
        elif kind in self._OF_RANKS and event["rank"] in self._rows:
            self._update(kind, event)
            if kind == "report" and self._shows:
                self._read_curves()
        if kind != "output":
            self._draw(now=kind in ("attempt", "run_end"))

    def _print(self, event: dict[str, Any]) -> None:
        if not self._quiet:
            stream = sys.stderr if event.get("stream") == 2 else sys.stdout
            stream.write(event["text"] if event["text"].endswith("\n") else event["text"] + "\n")

    def _update(self, kind: str, event: dict[str, Any]) -> None:
        row = self._rows[event["rank"]]
        if kind == "report":
            row["reports"] = event["number"]
            row["metrics"] = event["metrics"]
        elif kind == "exited":
            row["state"] = _end(event)
        else:
            row["state"] = self._STATES[kind]

    def _read_curves(self) -> None:
        """Beside the run. The picture in between is SVG of our own: to have matplotlib draw takes longer than a run may wait."""
        if time.monotonic() - self._read < _CURVES_INTERVAL_S:
            return
        self._read = time.monotonic()
        if self._live is None:
            self._live = plot.Live(self._path())
        curves = self._live.step()
        self._curves = curves.svg if curves.curves else ""

    def _draw(self, now: bool) -> None:
        if not self._shows or not self._rows:
            return
        if not now and time.monotonic() - self._drawn < (_CURVES_INTERVAL_S / 2 if self._curves else _INTERVAL_S):
            return
        from IPython.display import display

        self._drawn = time.monotonic()
        if self._handle is None:
            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)

    def _head(self) -> str:
        """The title; of many ranks with how many are in each state."""
        if len(self._rows) <= _ROWS:
            return self._title
        states = collections.Counter(row["state"] for row in self._rows.values())
        counted = ", ".join(f"{n} {state}" for state, n in states.most_common())
        return f"{self._title}: {len(self._rows)} ranks, {counted}"

    def _cells(self) -> list[list[str]]:
        """A row for each rank; of many only so many, first of all those whose state few others have."""
        ranks = sorted(self._rows)
        if len(ranks) > _ROWS:
            states = collections.Counter(row["state"] for row in self._rows.values())
            ranks = sorted(sorted(ranks, key=lambda rank: states[self._rows[rank]["state"]])[:_ROWS])
        shown = [(rank, self._rows[rank]) for rank in ranks]
        return [
            [str(rank), row["state"], str(row.get("reports", "")), _latest(_metrics.restore(row.get("metrics", {})))]
            for rank, row in shown
        ]

    def __repr__(self) -> str:
        lines = [self._head()] + [
            "  ".join(cells).rstrip() for cells in [["rank", "state", "reports", "latest"], *self._cells()]
        ]
        return harmless("\n".join(lines))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("rank", "state", "reports", "latest"))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(harmless(cell))}</td>" for cell in cells) + "</tr>"
            for cells in self._cells()
        )
        return f"<b>{html.escape(harmless(self._head()))}</b><table><tr>{head}</tr>{body}</table>{self._curves}"


def _inline(svg: str) -> str:
    """The picture as a part of a page: without what stands in front of it in a file, and matplotlib's style for all that is drawn,
    which would be that of the whole page, for this picture alone."""
    picture = re.sub("<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    return picture.replace("<svg", '<svg style="stroke-linejoin: round; stroke-linecap: butt"', 1)


def _end(event: dict[str, Any]) -> str:
    if event.get("signal"):
        return f"killed by signal {event['signal']}"
    if event.get("code"):
        return f"failed with {event['code']}"
    return "finished"


def _latest(metrics: dict[str, Any]) -> str:
    shown = [
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in metrics.items()
    ]
    return ", ".join(text[:40] for text in shown[:_LATEST])
