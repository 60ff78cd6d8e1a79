"""Every variable of the name TRAINYARD_... that the code knows stands on docs/environment.md, and the other way round."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r"\bTRAINYARD_[A-Z_]+[A-Z]\b")
GUARD = re.compile(r"^#(?:ifndef|define|endif).*?(\w+_H)\b", re.M)  # of a header


def names_in_code():
    names = set()
    for folder in ("src", "include", "python"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".c", ".h", ".py", ".def"):
                text = path.read_text()
                names |= set(NAME.findall(text)) - set(GUARD.findall(text))
    return names - {"TRAINYARD_TEST_SEED"}  # of tests alone


told = set(NAME.findall((ROOT / "docs" / "environment.md").read_text()))
known = names_in_code()
for name in sorted(known - told):
    print(f"docs/environment.md does not have {name}")
for name in sorted(told - known):
    print(f"docs/environment.md has {name}, which nothing reads or sets")
sys.exit(told != known)
