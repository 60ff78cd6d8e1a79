"""Reports of single ranks, put together: one row when every rank has made the report of a number."""

from __future__ import annotations

from typing import Any, Iterator

from . import metrics as _metrics
from . import there as _there
from .checkpoint import Checkpoint

KINDS = ("report", "checkpoint", "checkpoint_lost")


class Reports:
    """Of one attempt of `world_size` workers. What stays incomplete is dropped with it. `there` is the run's other side."""

    def __init__(self, world_size: int, there: _there.There | None = None):
        self._world_size = world_size
        self._there = there
        self.number = 0  # of the row that was given last
        self._metrics: dict[int, dict[int, Any]] = {}
        self._with_checkpoint: set[int] = set()
        self._paths: dict[int, str | None] = {}

    def take(self, event: dict[str, Any]) -> Iterator[tuple[list[dict[str, Any]], Checkpoint | None]]:
        """Takes an event of KINDS; gives the rows that are complete now, in order of their numbers. A lost checkpoint is None."""
        number = event["number"]
        if event["event"] != "report":
            self._paths[number] = event.get("path")
        else:
            self._metrics.setdefault(number, {})[event["rank"]] = _metrics.restore(event["metrics"])
            if event.get("checkpoint"):
                self._with_checkpoint.add(number)
        while self._metrics and self._is_complete(first := min(self._metrics)):
            self.number, by_rank = first, self._metrics.pop(first)
            path = self._paths.pop(first, None)
            checkpoint = _there.found(path, self._there) if path else None
            yield [by_rank[rank] for rank in range(self._world_size)], checkpoint

    def _is_complete(self, number: int) -> bool:
        if len(self._metrics[number]) < self._world_size:
            return False
        return number not in self._with_checkpoint or number in self._paths
