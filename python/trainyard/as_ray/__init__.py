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

import os
import sys

# Set in the environment of workers: `follow` then installs before anything of the program is loaded there.
VARIABLE = "TRAINYARD_AS_RAY"


def install() -> None:
    """Makes `ray` importable from here on; RuntimeError when the real one has been imported already."""
    from . import finder, knobs

    ray = sys.modules.get("ray")
    if ray is not None and not isinstance(ray, finder.RayModule):
        raise RuntimeError(f"ray is imported already, from {getattr(ray, '__file__', '?')}: install() must come before it")
    finder.put_first()
    os.environ[VARIABLE] = "1"
    knobs.apply()


def installed() -> bool:
    from . import finder

    return any(isinstance(one, finder.RayFinder) for one in sys.meta_path)


def follow() -> None:
    """In a worker, before the training function is loaded: installs when the driver had."""
    if os.environ.get(VARIABLE) == "1":
        from . import finder

        finder.put_first()
