"""The `trainyard` command of an installed package."""

import os
import sys


def main() -> None:
    """Becomes the command, which lies beside the library."""
    command = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib", "trainyard")
    os.execv(command, [command, *sys.argv[1:]])
