"""The curves of a run, as the page and `trainyard metrics --plot` have them: `trainyard metrics --format json` computes them, so
that they are the same everywhere. matplotlib draws them where it is installed, else they are SVG of our own.
"""

from __future__ import annotations

import contextlib
import html
import io
import json
import math
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Sequence
from typing import IO, Any

from . import _command, rows
from .screen import harmless

_COLOUR, _LOST, _ATTEMPT, _BAD = "#2563c9", "#999999", "#8b6bd6", "#c62f2f"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 190, 58, 10, 26, 24
_COLUMNS = 2
_LIMIT_S = 60
_LAST_LIMIT_S = 5
_LIVE_POINTS = 200  # of a curve: the picture is sent to the browser again and again
_FARTHEST = 1e307  # what lies beyond is drawn there: a range must not be beyond a double
_DAY_S = 24 * 60 * 60


class Plot:
    """Curves of a run: the mean over the ranks, and a band from the least to the greatest of them. What later attempts took back
    is grey, an attempt begins at a dashed line, a red mark is a NaN or an infinity.

    A notebook shows it where it is the last value of a cell. curves: a dict a metric, as `/api/series` of the dashboard gives it.
    """

    def __init__(self, curves: list[dict[str, Any]]):
        self.curves = curves

    @property
    def figure(self) -> Any:
        """A new figure of matplotlib; ImportError where that is not installed."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("`Plot.figure` needs matplotlib (pip install matplotlib); `Plot.svg` does not") from None
        rows = max(1, math.ceil(len(self.curves) / _COLUMNS))
        columns = min(_COLUMNS, max(1, len(self.curves)))
        figure = Figure(figsize=(columns * 5.2, rows * 2.5), layout="constrained")
        for place, curve in enumerate(self.curves, 1):
            _draw(figure.add_subplot(rows, columns, place), curve)
        return figure

    @property
    def svg(self) -> str:
        """The picture without matplotlib: text of SVG, without scripts and without anything from outside."""
        rows = max(1, math.ceil(len(self.curves) / _COLUMNS))
        columns = min(_COLUMNS, max(1, len(self.curves)))
        width, height = columns * _WIDTH, rows * _HEIGHT
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="10" fill="#555555">'
        ]
        for place, curve in enumerate(self.curves):
            parts.append(f'<g transform="translate({place % _COLUMNS * _WIDTH} {place // _COLUMNS * _HEIGHT})">')
            parts += _panel(curve)
            parts.append("</g>")
        if not self.curves:
            parts.append('<text x="10" y="20">Nothing was reported.</text>')
        return "".join(parts) + "</svg>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture; what is not called .svg needs matplotlib."""
        if not os.fspath(path).endswith(".svg"):
            self.figure.savefig(path)
        elif _has_matplotlib():
            self._save_svg(path)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.svg)

    def _repr_svg_(self) -> str:
        if not _has_matplotlib():
            return self.svg
        text = io.StringIO()
        self._save_svg(text)
        return text.getvalue()

    def _save_svg(self, place: Any) -> None:
        """By matplotlib; names stay text, which whoever shows it has fonts for."""
        import matplotlib

        with matplotlib.rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            self.figure.savefig(place, format="svg")

    def __repr__(self) -> str:
        return f"Plot({', '.join(harmless(_name(curve)) for curve in self.curves) or 'nothing was reported'})"


def read(path: str, metrics: str | Sequence[str] | None, x: str, history: str) -> Plot:
    """The curves of the run in directory `path`; RuntimeError where they cannot be had, ValueError for what is no such choice."""
    words = _words(path, metrics, x, history)
    try:
        finished = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"the curves cannot be read: {harmless(path)} does not answer within {_LIMIT_S} s") from None
    if finished.returncode != 0:
        raise RuntimeError(f"the curves cannot be read: {harmless(finished.stderr.decode(errors='replace').strip())}")
    return Plot(json.loads(finished.stdout))


def _words(path: str, metrics: str | Sequence[str] | None, x: str, history: str, *more: str) -> list[str]:
    if history not in rows.HISTORIES:
        raise ValueError(f'`history` must be "effective" or "all", not {history!r}')
    names = [metrics] if isinstance(metrics, str) else [] if metrics is None else metrics
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"`metrics` must be a name or a list of names, not {metrics!r}")
    storage, name = os.path.split(os.path.abspath(path))
    words = [_command.path(), "metrics", "--storage-path", storage, "--format=json", f"--history={history}", f"--x={x}"]
    return [*words, *(f"--metric={name}" for name in names), *more, "--", name]


class Live:
    """The curves of a run that goes on, read beside it: nothing waits for them, and the last ones that came are shown."""

    def __init__(self, path: str):
        self._words = _words(path, None, "step", "all", f"--buckets={_LIVE_POINTS}")
        self._reading: subprocess.Popen[bytes] | None = None
        self._told: IO[bytes] | None = None
        self.plot = Plot([])

    def step(self) -> Plot:
        """Takes what has been read, and has it read again."""
        if self._reading is None or self._reading.poll() is not None:
            self._take()
            try:
                self._told = tempfile.TemporaryFile()
                self._reading = subprocess.Popen(
                    self._words,
                    stdin=subprocess.DEVNULL,
                    stdout=self._told,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:
                pass  # for want of processes, say: there is a next time
        return self.plot

    def finish(self) -> Plot:
        """The curves of the whole run, where they come within a few seconds."""
        self._end(_LAST_LIMIT_S)
        self.step()
        self._end(_LAST_LIMIT_S)
        self._take()
        return self.plot

    def _end(self, patience: float) -> None:
        """One that the kernel cannot end is left behind."""
        if self._reading is None:
            return
        try:
            self._reading.wait(patience)
        except subprocess.TimeoutExpired:
            self._reading.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._reading.wait(1)

    def _take(self) -> None:
        reading, told = self._reading, self._told
        self._reading = self._told = None
        if told is None:
            return
        with told:
            told.seek(0)
            text = told.read()
        if reading is not None and reading.returncode == 0:
            self.plot = Plot(json.loads(text))


# -- what both pictures are made of


def _has_matplotlib() -> bool:
    import importlib.util

    return importlib.util.find_spec("matplotlib") is not None


def _name(curve: dict[str, Any]) -> str:
    return curve["series"][0]["metric"] if curve["series"] else "?"


def _title(curve: dict[str, Any]) -> str:
    """The metric, and of how much of a long run the curve is."""
    sampled = "" if curve.get("exact", True) else f" (sampled {curve['scanned'] * 100:.2g} %)"
    return harmless(_name(curve))[:200] + sampled


def _points(line: dict[str, Any]) -> tuple[list[float], list[float], list[float], list[float]]:
    """x, least, mean, greatest of the buckets that have finite values."""
    known = [row for row in zip(line["x"], line["min"], line["mean"], line["max"]) if None not in row]
    rows = [[min(max(value, -_FARTHEST), _FARTHEST) for value in row] for row in known]
    x, low, mean, high = zip(*rows) if rows else ((), (), (), ())
    return list(x), list(low), list(mean), list(high)


def _draw(axes: Any, curve: dict[str, Any]) -> None:
    """One metric, with matplotlib."""
    for line in curve["series"]:
        x, low, mean, high = _points(line)
        colour = _LOST if line.get("lost") else _COLOUR
        axes.plot(x, mean, color=colour, linewidth=1.4, linestyle="--" if line.get("lost") else "-")
        if not line.get("lost"):
            axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    for mark in curve["marks"]:
        if mark["kind"] == "attempt":
            axes.axvline(mark["x"], color=_ATTEMPT, linestyle="--", linewidth=0.8)
        elif mark["kind"] == "nonfinite":
            axes.plot([mark["x"]], [1], "v", color=_BAD, transform=axes.get_xaxis_transform(), clip_on=False)
    axes.set_title(_title(curve).replace("$", r"\$"), fontsize=10)
    if curve["x"] == "time":
        from matplotlib.ticker import FuncFormatter

        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _clock(x, *axes.get_xlim())))
    axes.set_xlabel(harmless(curve["x"]).replace("$", r"\$"), fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)


def _clock(x: float, first: float, last: float) -> str:
    """A wall time on an axis from `first` to `last`, by the clock of this machine."""
    try:
        return time.strftime("%H:%M:%S" if last - first < _DAY_S else "%m-%d %H:%M", time.localtime(x))
    except (OverflowError, ValueError, OSError):  # a clock was far off
        return f"{x:.6g}"


def _span(values: list[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = max(0.5, abs(low) / 1000)
    return (low, high) if high > low else (low - room, high + room)


def _panel(curve: dict[str, Any]) -> list[str]:
    """One metric, as SVG."""
    lines = [(line, *_points(line)) for line in curve["series"]]
    x0, x1 = _span([value for _, x, *_ in lines for value in x])
    y0, y1 = _span([value for _, _, low, _, high in lines for value in (*low, *high)])

    def place(x: float, y: float) -> str:
        across = _LEFT + (x - x0) / (x1 - x0) * (_WIDTH - _LEFT - _RIGHT)
        up = _HEIGHT - _BOTTOM - (y - y0) / (y1 - y0) * (_HEIGHT - _TOP - _BOTTOM)
        return f"{across:.1f} {up:.1f}"

    parts = [f'<text x="{_LEFT}" y="15" font-size="12" fill="#222222">{html.escape(_title(curve))}</text>']
    for step in range(5):
        x, y = x0 + (x1 - x0) * step / 4, y0 + (y1 - y0) * step / 4
        across, up = place(x, y).split()
        anchor = ("start", "middle", "middle", "middle", "end")[step]
        parts.append(f'<path stroke="#dddddd" d="M{_LEFT} {up}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{float(up) + 3:.1f}" text-anchor="end">{y:.4g}</text>')
        told = _clock(x, x0, x1) if curve["x"] == "time" else f"{x:.6g}"
        parts.append(f'<text x="{across}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{told}</text>')
    for line, x, low, mean, high in lines:
        if x and not line.get("lost"):
            edge = [place(*point) for point in zip(x, high)] + [place(*point) for point in reversed([*zip(x, low)])]
            parts.append(f'<path fill="{_COLOUR}" fill-opacity="0.18" d="M{"L".join(edge)}Z"/>')
        if x:
            look = f'stroke="{_LOST}" stroke-dasharray="3 3"' if line.get("lost") else f'stroke="{_COLOUR}"'
            parts.append(f'<path fill="none" stroke-width="1.4" {look} d="M{"L".join(place(*point) for point in zip(x, mean))}"/>')
    for mark in curve["marks"]:
        if not x0 <= mark["x"] <= x1:
            continue
        across = place(mark["x"], y0).split()[0]
        if mark["kind"] == "attempt":
            parts.append(f'<path stroke="{_ATTEMPT}" stroke-dasharray="4 3" d="M{across} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        elif mark["kind"] == "nonfinite":
            parts.append(f'<path fill="{_BAD}" d="M{float(across) - 4:.1f} {_TOP}h8l-4 7z"/>')
    return parts
