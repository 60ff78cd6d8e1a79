"""A run inside of a notebook: the workers' output goes where `print` goes, and a small table shows how they are."""

from __future__ import annotations

import html
import sys
import time
from typing import Any

from . import metrics as _metrics
from .screen import harmless

_LATEST = 6  # metrics shown of a rank's last report
_INTERVAL_S = 0.2  # between two drawings of the table


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

    def __init__(self, config: Any):
        self._quiet = config.quiet
        self._shows = config.progress != "none"
        self._title = ""
        self._rows: dict[int, dict[str, Any]] = {}
        self._handle: Any = None
        self._drawn = 0.0

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *error: Any) -> None:
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
            row["metrics"] = _metrics.restore(event["metrics"])
        elif kind == "exited":
            row["state"] = _end(event)
        else:
            row["state"] = self._STATES[kind]

    def _draw(self, now: bool) -> None:
        if not self._shows or not self._rows:
            return
        if not now and time.monotonic() - self._drawn < _INTERVAL_S:
            return
        from IPython.display import display

        self._drawn = time.monotonic()
        if self._handle is None:
            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)

    def _cells(self) -> list[list[str]]:
        return [
            [str(rank), row["state"], str(row.get("reports", "")), _latest(row.get("metrics", {}))]
            for rank, row in sorted(self._rows.items())
        ]

    def __repr__(self) -> str:
        lines = [self._title] + [
            "  ".join(cells).rstrip() for cells in [["rank", "state", "reports", "latest"], *self._cells()]
        ]
        return harmless("\n".join(lines))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("rank", "state", "reports", "latest"))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(harmless(cell))}</td>" for cell in cells) + "</tr>"
            for cells in self._cells()
        )
        return f"<b>{html.escape(harmless(self._title))}</b><table><tr>{head}</tr>{body}</table>"


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
