"""Where this process is, for the agent to ask when it hangs.

The agent sends the signal and reads the file, which is in memory; it finds it by its name (src/agent/stack_save.h). The dump is
written by a signal handler in C, so it comes while the interpreter's lock is held too.
"""

from __future__ import annotations

import os
import signal

_SIGNAL = signal.SIGRTMIN + 3
_NAME = "trainyard-stacks"


def register() -> None:
    """Lets the agent ask this worker; not where somebody else has the signal."""
    import faulthandler

    if signal.getsignal(_SIGNAL) != signal.SIG_DFL:
        return
    try:
        fd = os.memfd_create(_NAME)
    except OSError:
        return  # the agent has other ways
    faulthandler.register(_SIGNAL, file=fd, all_threads=True)
