"""Which devices a worker holds, by kind, and where these are among the visible ones. Knows no framework."""

from __future__ import annotations

import os
from typing import Mapping, Sequence

# Kind -> the variables that list its visible devices, the one that counts first.
VISIBLE = {
    "GPU": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "NPU": ("ASCEND_RT_VISIBLE_DEVICES",),
    "HPU": ("HABANA_VISIBLE_MODULES",),
    "TPU": ("TPU_VISIBLE_CHIPS",),
}
_NONE = "NoDevFiles"  # what some tools write for an empty list


def assigned(environment: Mapping[str, str] = os.environ) -> dict[str, list[str]]:
    """Kind -> ids of the devices that this worker holds, such as {"GPU": ["2", "3"]}; {} outside of a worker."""
    text = environment.get("TRAINYARD_DEVICE_IDS", "")
    kinds = (entry.partition("=") for entry in text.split(";") if entry)
    return {kind: ids.split(",") for kind, _, ids in kinds if ids}


def visible(kind: str, environment: Mapping[str, str] = os.environ) -> tuple[str, list[str] | None]:
    """The variable that lists the visible devices of a kind, and its ids; None when it is not set: all are visible."""
    names = VISIBLE[kind]
    name = next((name for name in names if name in environment), names[0])
    if name not in environment:
        return name, None
    text = environment[name]
    return name, [] if text == _NONE else [one.strip() for one in text.split(",") if one.strip()]


def indices(kind: str, ids: Sequence[str], environment: Mapping[str, str] = os.environ) -> list[int]:
    """Where each id is among the visible devices, in the order of `ids`. RuntimeError for one that is not."""
    name, seen = visible(kind, environment)
    return [_index(one, name, seen) for one in ids]


def _index(one: str, name: str, seen: list[str] | None) -> int:
    if seen is None:
        if one.isdigit():
            return int(one)
        raise RuntimeError(f"{name} set incorrectly: it is not set, expected to include {one}")
    try:
        return seen.index(one)
    except ValueError:
        got = ",".join(seen) or "an empty list"
        raise RuntimeError(
            f"{name} set incorrectly: got {got}, expected to include {one}; a worker must not change it"
        ) from None
