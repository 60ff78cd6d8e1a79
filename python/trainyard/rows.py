"""What a run reported, a row for each report, as `trainyard metrics --format jsonl` reads it, also while the run goes on."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from . import _command
from . import metrics as _metrics
from .screen import harmless

HEAD = ("id", "time", "attempt", "rank", "number")
HISTORIES = ("effective", "all")  # of the reports that count, and with those that later attempts took back
_STEPS = ("step", "global_step", "iteration", "training_iteration")


def read(
    name: str, storage_path: str | None, rank: int | None = 0, history: str = "effective"
) -> Iterator[dict[str, Any]]:
    """Of a run where runs are kept (None: as the command finds them), rows with id, time (ns since the epoch), attempt, rank,
    number, `lost` where `history` is "all", and metrics, a dict with the types that were reported. rank None: of all. ValueError
    for what is no such choice, RuntimeError where they cannot be read."""
    if history not in HISTORIES:
        raise ValueError(f'`history` must be "effective" or "all", not {history!r}')
    if rank is not None and (not isinstance(rank, int) or isinstance(rank, bool) or rank < 0):
        raise ValueError(f"`rank` must be a rank from 0 on, or None for all, not {rank!r}")
    words = [_command.path(), "metrics", "--format=jsonl", f"--history={history}"]
    words += [] if storage_path is None else ["--storage-path", storage_path]
    words += [] if rank is None else [f"--rank={rank}"]
    with tempfile.TemporaryFile() as told:
        with subprocess.Popen(
            [*words, "--", name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=told
        ) as reading:
            for line in reading.stdout or ():
                row = json.loads(line)
                row["metrics"] = _metrics.restore(row["metrics"])
                yield row
        if reading.returncode != 0:
            told.seek(0)
            raise RuntimeError(
                f"the reports cannot be read: {harmless(told.read().decode(errors='replace').strip())}"
            )


def head(history: str) -> list[str]:
    """What each row says beside the metrics."""
    return [*HEAD, *(["lost"] if history == "all" else [])]


def column_names(metrics: Iterable[str], head: list[str]) -> dict[str, str]:
    """What the column of each metric is called: its name, and where one of `head` has that, with a number behind it."""
    names = {name: name for name in metrics}
    taken = {*head, *names}
    for name in names.keys() & set(head):
        names[name] = next(made for n in itertools.count(2) if (made := f"{name}_{n}") not in taken)
        taken.add(names[name])
    return names


def flat(metrics: dict[str, Any], above: str = "") -> dict[str, Any]:
    """The metrics with "a/b" for b in the dict a."""
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{above}{name}/"))
        else:
            found[f"{above}{name}"] = value
    return found


def numbers(metrics: dict[str, Any]) -> dict[str, float]:
    """Those of the flat metrics that are numbers, NaN and infinities among them; booleans are 0 and 1."""
    found = {}
    for name, value in flat(metrics).items():
        if not isinstance(value, (str, bytes, list, tuple)):
            try:
                found[name] = float(value)
            except (TypeError, ValueError, OverflowError):
                continue
    return found


def step(metrics: dict[str, Any], number: int) -> int:
    """The step of a report, as the page has it; `number` where it has none."""
    for name in _STEPS:
        value = metrics.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return int(value)
    return number
