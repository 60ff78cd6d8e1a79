"""make_build.py OUTPUT DEPFILE VERSION ROOT: writes base_build (base/module.h), the version and a digest of all that the parts of a
build must agree on, which is the headers and messages that they share. Parts of two builds that are alike in these may be mixed."""

import hashlib
import pathlib
import sys

# What the library, its modules and the command say to each other.
SHARED = ("include", *("src/" + room for room in ("base", "cluster", "collective", "journal", "run", "web", "wire", "worker")))

output, depfile, version, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4])
paths = sorted(path for top in SHARED for path in (root / top).rglob("*") if path.suffix in (".h", ".proto"))
digest = hashlib.sha256()
for path in paths:
    text = path.read_bytes()
    digest.update(b"%s %d\n%s" % (path.relative_to(root).as_posix().encode(), len(text), text))
code = f'#include "base/module.h"\n\nconst char base_build[] = "{version}+{digest.hexdigest()[:12]}";\n'
if not output.exists() or output.read_text() != code:
    output.write_text(code)
inputs = " ".join(str(path).replace(" ", "\\ ") for path in paths)
depfile.write_text(f"{output}: {inputs}\n")
