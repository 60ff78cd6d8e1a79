"""A data set of parquet files on two workers: how soon the first batch is there, and how many rows a second. Beside it Ray."""
import json
import os
import subprocess

from common import Command, Skip, Summary, milliseconds

from rows.python import PEERS_PYTHON, interpreter

FILES, ROWS, COLUMNS = 4, 500_000, 8
REPEATS = {"ours": 5, "ray": 2}
DEADLINE = 180
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(HERE, "programs", "data_batches.py")
MAKE = """
import sys
import numpy, pyarrow, pyarrow.parquet
place, files, rows, columns = sys.argv[1], *map(int, sys.argv[2:])
draw = numpy.random.default_rng(0)
for i in range(files):
    named = {f"x{j}": draw.random(rows, numpy.float32) for j in range(columns)}
    table = pyarrow.table({**named, "y": draw.integers(0, 10, rows)})
    pyarrow.parquet.write_table(table, f"{place}/{i}.parquet", row_group_size=rows // 4)
"""


def _make(bench):
    place = os.path.join(bench.directory, "parquet")
    os.makedirs(place, exist_ok=True)
    subprocess.run([interpreter(), "-c", MAKE, place, *map(str, (FILES, ROWS, COLUMNS))], check=True)
    return place


def _contestants(bench, place, out):
    """{name: Command} of whoever is installed; ours always."""
    ours = {**bench.environment, "PYTHONPATH": os.path.join(bench.build, "python")}
    commands = {"ours": Command([interpreter(), PROGRAM, "ours", place, out], ours)}
    if not bench.peers["ray"]:
        commands["ray"] = Command([PEERS_PYTHON, PROGRAM, "ray", place, out], {**bench.environment, "RAY_TRAIN_V2_ENABLED": "1"})
    return commands


def _measure(bench, command, repeats, out):
    """(seconds to the first batch, rows a second), of several runs."""
    told = []
    for _ in range(repeats):
        if bench.time(command, DEADLINE) is None:
            raise RuntimeError("it hung")
        with open(out) as f:
            told.append(json.load(f))
        os.unlink(out)
    return Summary([one["first_s"] for one in told]), Summary([one["rows_per_s"] for one in told])


def run(bench):
    if not os.access(interpreter(), os.X_OK):
        raise Skip(f"no interpreter at {interpreter()}: make setup")
    place, out = _make(bench), os.path.join(bench.directory, "data.json")
    found = {name: _measure(bench, command, REPEATS[name], out) for name, command in _contestants(bench, place, out).items()}
    (first, speed), ray = found["ours"], found.get("ray")
    beside = (f"ray {milliseconds(ray[0].median)}", f"ray {ray[1].median / 1e6:.2f} M/s") if ray else ("", "")
    bench.row("data", "first batch of a data set, 2 workers", milliseconds(first.median), beside[0], "< Ray",
              first.median < ray[0].median if ray else None)
    bench.row("data", "rows of parquet, map_batches, 2 workers", f"{speed.median / 1e6:.2f} M/s", beside[1], ">= Ray",
              speed.median >= ray[1].median if ray else None)
