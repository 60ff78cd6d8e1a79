"""embed.py OUTPUT FILE...: writes the files of the page as C (web_assets of http.h), packed with gzip; index.html is /.
uPlot's files get the names uplot.js and uplot.css, and licenses.txt is its text behind our own."""

import gzip
import hashlib
import pathlib
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
}
NAMES = {"index.html": "", "uPlot.iife.js": "uplot.js", "uPlot.min.css": "uplot.css"}


def c_bytes(data):
    lines = (",".join(str(byte) for byte in data[at : at + 32]) for at in range(0, len(data), 32))
    return ",\n".join(lines)


output, files = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
code = ['#include "web/http.h"\n']
rows = []
for number, file in enumerate(sorted(files, key=lambda file: file.name)):
    text = file.read_bytes()
    packed = gzip.compress(text, 9, mtime=0)
    etag = hashlib.sha256(text).hexdigest()[:16]
    code.append(f"static const unsigned char file_{number}[] = {{\n{c_bytes(packed)}\n}};\n")
    path = "/" + NAMES.get(file.name, file.name)
    rows.append(f'    {{"{path}", "{TYPES[file.suffix]}", "\\"{etag}\\"", file_{number}, sizeof file_{number}}},')
code.append("const struct http_asset web_assets[] = {\n" + "\n".join(rows) + "\n    {0},\n};\n")
output.write_text("\n".join(code))
