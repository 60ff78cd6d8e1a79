"""The main of the process that validates a checkpoint: `python -m trainyard._validate CALL EXCHANGE`, two descriptors.

CALL is what the driver pickled once: the function, its default keywords, which exceptions are worth another try. EXCHANGE holds the
checkpoint's path and the keywords of this call, and then the answer: {"metrics"} or {"failure", "again"}, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from typing import Any

from . import metrics as _metrics
from . import payload

_PR_SET_PDEATHSIG = 1


def main(call: int, exchange: int) -> int:
    """The exit status of the process."""
    driver = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != driver:
        return 1
    again: Any = False
    try:
        told = json.loads(payload.contents(exchange))
        objects, facts = payload.load_objects(payload.contents(call))
        again = objects["retry_exceptions"]
        _take_facts(facts)
        answer = {"metrics": _metrics.dump(_validate(objects, told))}
    except BaseException as error:
        classes = tuple(again) if isinstance(again, (list, tuple)) else ()
        worth_it = again is True or isinstance(error, classes)
        answer = {"failure": "".join(traceback.format_exception(error)), "again": worth_it}
    os.ftruncate(exchange, 0)
    os.pwrite(exchange, json.dumps(answer).encode(), 0)
    return 0 if "metrics" in answer else 1


def _take_facts(facts: dict[str, Any]) -> None:
    """What the driver was told of directory and nodes holds here too."""
    from . import defaults

    if facts.get("directory"):
        os.chdir(facts["directory"])
    if facts.get("defaults"):
        defaults.current = defaults.Defaults(**{**facts["defaults"], "join": None})


def _validate(objects: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    from .checkpoint import Checkpoint

    keywords = {**objects["defaults"], **_metrics.load(told["fn_kwargs"])}
    made = objects["validation"](Checkpoint(told["path"]), **keywords)
    if not isinstance(made, dict):
        raise ValueError(
            f"The validation function must return a dictionary of metrics. Got {type(made)} instead."
        )
    return made


if __name__ == "__main__":
    status = main(int(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.flush()
    sys.exit(status)
