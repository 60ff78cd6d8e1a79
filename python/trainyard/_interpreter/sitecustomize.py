"""Found by an interpreter that an agent has started as a template of its program (../_program.py), in place of the
environment's own module of this name. Whichever Python reads this, the program itself must not run in the template: what
cannot begin ends."""

import os
import sys

try:
    _known = set(sys.modules)
    _home = os.path.dirname(os.path.abspath(__file__))
    _root = os.path.dirname(os.path.dirname(_home))
    sys.path.insert(0, _root)
    from trainyard import _program

    _program.begin(_home, _root, _known)
except BaseException:
    import traceback

    traceback.print_exc()
    os._exit(70)
_program.end()  # in a worker: the interpreter goes on to the program
