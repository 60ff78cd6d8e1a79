"""Text of users and programs made harmless for a terminal, by the rule of the C library (src/base/str.h)."""

from __future__ import annotations

import re
import sys

# Control characters but tab and newline, what turns the direction of text, and bytes that were no UTF-8.
_HARMFUL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """`text` with such characters escaped: an escape becomes the four characters \\x1b."""
    return _HARMFUL.sub(_escape, text)


def warn(text: str) -> None:
    """Tells the user, on standard error."""
    print(f"trainyard: {harmless(text)}", file=sys.stderr, flush=True)


def barred(text: str) -> str:
    """What another process has told, such as a traceback: harmless, each line behind a bar."""
    return "\n".join(f"    | {line}" for line in harmless(text).rstrip("\n").split("\n"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x80 or 0xDC80 <= code <= 0xDCFF:  # the latter stand for a byte
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}"
