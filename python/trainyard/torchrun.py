"""`python -m trainyard.torchrun`: the command `trainyard torchrun`, with this interpreter for the script."""

import os
import sys

from . import _command

if __name__ == "__main__":
    os.environ.setdefault("PYTHON_EXEC", sys.executable)
    _command.main("torchrun")
