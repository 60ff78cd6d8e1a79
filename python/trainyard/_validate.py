"""The main of the processes that validate a checkpoint: `python -m trainyard._validate CALL EXCHANGE`, two descriptors.

CALL is what the driver pickled once: the function, its default keywords, which exceptions are worth another try. EXCHANGE holds
the driver's pid, the checkpoint's path and the keywords of this call, and then the answer: {"metrics"} or {"failure", "again"}, as
JSON.
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
    told = json.loads(payload.contents(exchange))
    _watch(told["driver"])
    again: Any = False
    try:
        objects, facts = payload.load_objects(payload.contents(call))
        again = objects["retry_exceptions"]
        _take_facts(facts)
        answer = {"metrics": _metrics.dump(_validate(objects, told, facts))}
    except BaseException as error:
        classes = tuple(again) if isinstance(again, (list, tuple)) else ()
        worth_it = again is True or isinstance(error, classes)
        answer = {"failure": "".join(traceback.format_exception(error)), "again": worth_it}
    os.ftruncate(exchange, 0)
    os.pwrite(exchange, json.dumps(answer).encode(), 0)
    return 0 if "metrics" in answer else 1


def _watch(driver: int) -> None:
    """Returns in a child, which is to validate; what it leaves running ends with the driver as well: this process is told of the
    driver's end, whatever the function is at, and ends its group."""
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != driver:
        os._exit(1)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


def _take_facts(facts: dict[str, Any]) -> None:
    """What the driver was told of directory and nodes holds here too."""
    from . import defaults

    if facts.get("directory"):
        os.chdir(facts["directory"])
    if facts.get("defaults"):
        defaults.current = defaults.Defaults(**facts["defaults"])
    for variable in defaults.JOIN_VARIABLES.values():  # a `fit` in here is of this machine
        os.environ.pop(variable, None)


def _validate(objects: dict[str, Any], told: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    from . import there

    run = os.path.basename(os.path.dirname(told["path"]))
    checkpoint = there.found(told["path"], there.told(facts.get("storage"), run))
    keywords = {**objects["defaults"], **_metrics.load(told["fn_kwargs"])}
    made = objects["validation"](checkpoint, **keywords)
    if not isinstance(made, dict):
        raise ValueError(
            f"The validation function must return a dictionary of metrics. Got {type(made)} instead."
        )
    return made


if __name__ == "__main__":
    status = main(int(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.flush()
    sys.exit(status)
