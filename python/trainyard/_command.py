"""The `trainyard` command of this package."""

import os
import sys


def path() -> str:
    """Beside the library, in an installed package or in the build."""
    package = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(package, "_lib", "trainyard")
    built = os.path.join(package, os.pardir, os.pardir, "trainyard")
    return installed if os.path.exists(installed) else os.path.normpath(built)


def main(*words: str) -> None:
    """Becomes the command, with these words before those of this process; without any it has been called by its name."""
    os.execv(path(), [path() if words else sys.argv[0], *words, *sys.argv[1:]])
