"""make_names.py OUTPUT: writes str_errno_name and str_signal_name (base/str.h), as the headers of the C library number the
names that Python knows. The functions of glibc for these are of 2.32, and wheels run with older ones."""

import errno
import pathlib
import signal
import sys

HEAD = '#include <errno.h>\n#include <signal.h>\n#include <stddef.h>\n\n#include "base/str.h"\n'
FUNCTION = """
const char *str_{kind}_name(int number) {{
    static const char *const names[] = {{
{rows}
    }};
    return number > 0 && (size_t)number < sizeof names / sizeof names[0] ? names[number] : NULL;
}}
"""
SECOND = {"EWOULDBLOCK", "EDEADLOCK", "ENOTSUP", "SIGCLD", "SIGIO", "SIGIOT"}  # second names of a number
UNKNOWN = {"EHWPOISON", "SIGSTKFLT"}  # to Python, or to some versions


def function(kind, prefix, names):
    rows = "\n".join(f'        [{name}] = "{name[len(prefix) :]}",' for name in sorted(set(names) - SECOND))
    return FUNCTION.format(kind=kind, rows=rows)


words = UNKNOWN.union(dir(errno), dir(signal))
code = HEAD + function("errno", "", (word for word in words if word.startswith("E")))
code += function("signal", "SIG", (word for word in words if word.startswith("SIG") and word[3] not in "_R"))
pathlib.Path(sys.argv[1]).write_text(code)
