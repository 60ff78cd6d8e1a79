"""Machines that are taken away: what a training function, and whoever called `fit`, is told of it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from . import runtime


@dataclasses.dataclass(frozen=True)
class PreemptionInfo:
    """Who loses its machine, and when.

    deadline_ms: milliseconds since 1970 when the workers are ended, None when it is not known.
    preempted_node_to_ranks: the world ranks on each of the nodes that go, by the node's name.
    """

    deadline_ms: int | None
    preempted_node_to_ranks: dict[str, list[int]]

    @property
    def deadline(self) -> float:
        """`deadline_ms` in seconds; 0.0 when it is not known."""
        return self.deadline_ms / 1000 if self.deadline_ms is not None else 0.0

    @property
    def preempted_node_ids(self) -> list[str]:
        """The names of the nodes, sorted."""
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The ranks on all of them, sorted."""
        return sorted({rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks})


def get_preemption_info() -> PreemptionInfo | None:
    """What is known of machines that are being taken away, None while there is nothing; cheap enough for every step.

    After the first call the worker is no longer ended at once when it is told to stop: it has the run's grace to save and to
    return. RuntimeError outside of a training function.
    """
    text = runtime.session("get_preemption_info").preemption()
    return read(json.loads(text)) if text is not None else None


def read(facts: dict[str, Any]) -> PreemptionInfo:
    """From what the C library tells."""
    deadline = facts.get("deadline")
    return PreemptionInfo(round(deadline * 1000) if deadline else None, facts.get("ranks_of", {}))
