"""E14: `trainyard simulate` of 10,000 nodes for 30 days: how long it takes, and its goodput beside that of arithmetic (docs/simulate.md)."""
import json
import os
import subprocess
import time

NODES, DAYS = 10_000, 30
SEEDS = 5
LONGEST = 10  # seconds
FARTHEST = 0.01
# mean time between failures of a node, checkpoint interval, its cost, restart
WORLDS = (("1000d", "30m", "1m", "5m"), ("5000d", "30m", "1m", "5m"), ("5000d", "1h", "30s", "2m"))


def _simulate(bench, world, seed):
    """(seconds, what it tells)"""
    names = ("--mtbf", "--checkpoint-every", "--checkpoint-cost", "--restart-cost")
    options = [word for pair in zip(names, world) for word in pair]
    begin = time.monotonic()
    done = subprocess.run([os.path.join(bench.build, "trainyard"), "simulate", "--nodes", str(NODES), "--days", str(DAYS), "--seed",
                           str(seed), "--format", "json", *options], capture_output=True, check=True, env=bench.environment)
    return time.monotonic() - begin, json.loads(done.stdout)


def run(bench):
    for world in WORLDS:
        told = [_simulate(bench, world, seed) for seed in range(1, SEEDS + 1)]
        seconds = max(took for took, _ in told)
        goodput = sum(data["goodput"] for _, data in told) / SEEDS
        expected = told[0][1]["expected"]
        apart = goodput / expected - 1
        what = f"{NODES} nodes, {DAYS} d, a node fails in {world[0]}"
        bench.row("E14", what, f"{seconds:.2f} s", "", f"<= {LONGEST} s", seconds <= LONGEST, world=world)
        bench.row("E14", f"goodput, checkpoint {world[1]}/{world[2]}/{world[3]}", f"{goodput:.2%}, {apart:+.2%}", f"ETTR {expected:.2%}",
                  f"within {FARTHEST:.0%} of ETTR", abs(apart) <= FARTHEST, goodputs=[data["goodput"] for _, data in told])
