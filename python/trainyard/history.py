"""The attempts of a run, as its journal tells of them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

_EVENTS = """SELECT event.kind, event.time, event.attempt, event.data, coalesce(before.time, 0)
FROM events AS event LEFT JOIN events AS before ON before.sequence = event.sequence - 1
WHERE event.kind IN ('run', 'plan', 'attempt', 'attempt_end') ORDER BY event.sequence"""


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
        """How long it took; None where no end is on record."""
        return None if self.ended is None else self.ended - self.began


def read(database: Any) -> list[Attempt]:
    """From the events of a journal, oldest first."""
    attempts: list[Attempt] = []
    nodes: list[str] = []
    for kind, nanoseconds, number, text, before in database.execute(_EVENTS):
        time, data = float(nanoseconds) / 1e9, json.loads(text) if text else {}
        goes_on = attempts[-1] if attempts and attempts[-1].outcome is None else None
        if kind == "plan":
            nodes = data["nodes"]
        elif kind == "attempt":
            attempts.append(Attempt(number, data["workers"], time, checkpoint=data.get("checkpoint")))
        elif kind == "attempt_end" and goes_on:
            _end(goes_on, time, data, nodes)
        elif kind == "run" and goes_on:
            _die(goes_on, float(before) / 1e9)
    return attempts


def _end(attempt: Attempt, time: float, data: dict[str, Any], nodes: list[str]) -> None:
    rank, node = data.get("rank", -1), data.get("node", -1)
    attempt.ended, attempt.outcome = time, data["outcome"]
    attempt.rank = rank if rank >= 0 else None
    attempt.node = nodes[node] if 0 <= node < len(nodes) else None
    attempt.cause = data.get("resize", data.get("cause"))


def _die(attempt: Attempt, time: float) -> None:
    attempt.ended, attempt.outcome, attempt.cause = time, "died", "its controller died"
