"""The attempts of a run."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class Attempt:
    """One attempt of a run.

    attempt: its number, from 1 on. began, ended: seconds since the epoch. outcome: "succeeded", "failed", "start_failed",
    "node_lost", "time_limit", "interrupted", "preempted", "resized" (it made way for one of another size) or "died" (its
    controller did, and another one went on). ended and outcome are None where no end is on record. rank, node: which worker
    failed first, and the name of the node of the failure. cause: how, on one line. checkpoint: directory of the one that the
    attempt began from.
    """

    attempt: int
    num_workers: int
    began: float
    ended: float | None = None
    outcome: str | None = None
    rank: int | None = None
    node: str | None = None
    cause: str | None = None
    checkpoint: str | None = None

    @classmethod
    def told(cls, one: dict[str, Any]) -> Attempt:
        """From the "history" of ty_result_json."""
        return cls(**{field.name: one[field.name] for field in dataclasses.fields(cls)})

    @property
    def seconds(self) -> float | None:
        """How long it took; None where no end is on record, 0 where the clock was put back meanwhile."""
        return None if self.ended is None else max(0.0, self.ended - self.began)
