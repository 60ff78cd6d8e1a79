"""make_names.py OUTPUT: writes str_errno_name and str_signal_name (base/str.h), as the headers of the C library number what Python knows
by name. The functions of glibc for these are of 2.32, and wheels run with older ones."""

import errno
import pathlib
import signal
import sys

FUNCTION = """
const char *str_{kind}_name(int number) {{
    static const char *const names[] = {{
{rows}
    }};
    return number > 0 && (size_t)number < sizeof names / sizeof names[0] ? names[number] : NULL;
}}
"""


def shortest(names):
    """Of the names of one number the shortest: EAGAIN, not EWOULDBLOCK."""
    by_number = {}
    for name, number in sorted(names, key=lambda item: (-len(item[0]), item[0])):
        by_number[number] = name
    return sorted(by_number.items())


def function(kind, prefix, names):
    rows = "\n".join(f'        [{name}] = "{name[len(prefix):]}",' for _, name in shortest(names))
    return FUNCTION.format(kind=kind, rows=rows)


numbers = [(name, getattr(errno, name)) for name in dir(errno) if name.startswith("E")]
signals = [(item.name, int(item)) for item in signal.Signals if not item.name.startswith("SIGRT")]
code = "#include <errno.h>\n#include <signal.h>\n#include <stddef.h>\n\n#include \"base/str.h\"\n"
pathlib.Path(sys.argv[1]).write_text(code + function("errno", "", numbers) + function("signal", "SIG", signals))
