"""Programs written for Ray Train, run unchanged: `python -m trainyard.as_ray script.py [args]`.

`install()` makes `ray`, `ray.train` and the modules below them importable in this process, and in the workers of the runs that
it starts. Nothing named ray is installed: without the call, `import ray` finds what is on the disk or fails. What each
name stands for is in table.py, what is there in name only in absent.py; knobs.py lists the environment variables.

What differs from Trainyard's own ways, as long as it is installed:
- a run name that exists is resumed, not refused;
- runs are kept in `~/ray_results` unless RunConfig(storage_path=) says otherwise;
- the environment variables of knobs.py count.
"""

from __future__ import annotations

import sys

_FOLLOW = "trainyard.as_ray:follow"


def install() -> None:
    """Makes `ray` importable from here on; RuntimeError when the real one has been imported already."""
    from . import finder, knobs

    ray = sys.modules.get("ray")
    if ray is not None and not finder.is_ours(ray):
        raise RuntimeError(
            f"ray is imported already, from {getattr(ray, '__file__', '?')}: install() must come before it"
        )
    finder.put_first()
    _be_followed()
    knobs.apply()


def _be_followed() -> None:
    """The workers of what this process fits have `ray` too."""
    from .. import payload

    if _FOLLOW not in payload.prepare:
        payload.prepare.append(_FOLLOW)


def installed() -> bool:
    from . import finder

    return any(isinstance(one, finder.RayFinder) for one in sys.meta_path)


def follow() -> None:
    """In a worker, or a process that validates, before the user's function is loaded: makes `ray` importable there too, and words
    and defaults Ray's."""
    from . import finder, knobs

    finder.put_first()
    _be_followed()
    knobs.apply()
