"""Machines that are taken away: what a training function, and whoever called `fit`, is told of it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from . import runtime


@dataclasses.dataclass(frozen=True)
class PreemptionInfo:
    """deadline: seconds since 1970 when the workers are ended, 0.0 when it is not known. preempted_ranks and
    preempted_node_ids (names of nodes): who loses its machine, sorted."""

    deadline: float = 0.0
    preempted_ranks: list[int] = dataclasses.field(default_factory=list)
    preempted_node_ids: list[str] = dataclasses.field(default_factory=list)


def get_preemption_info() -> PreemptionInfo | None:
    """What is known of machines that are being taken away, None while there is nothing; cheap enough for every step.

    After the first call the worker is no longer ended at once when it is told to stop: it has the run's grace to save and to
    return. RuntimeError outside of a training function.
    """
    text = runtime.session("get_preemption_info").preemption()
    return read(json.loads(text)) if text is not None else None


def read(facts: dict[str, Any]) -> PreemptionInfo:
    """From what the C library tells."""
    return PreemptionInfo(facts.get("deadline", 0.0), sorted(facts.get("ranks", [])), sorted(facts.get("nodes", [])))
