"""E11: the planner, by bench_placement, which times it alone; and how much memory `trainyard plan` takes for a large cluster file."""
import os
import re
import subprocess

from common import Skip

BIG = re.compile(r"placement (\d+)x(\d+)( unlike)? (\w+) ([\d.]+) s \d+ workers/s( refused)?")
GANGS = re.compile(r"placement gangs (\d+) nodes( unlike)? (\d+) kinds (\w+) (\d+) gangs/s refused (\d+) gangs/s")
QUALITY = re.compile(r"placement quality (.*) ratio ([\d.]+) missed (\d+)")
LIMITS = {10000: 0.5, 100000: 5.0}


def _big(bench, lines):
    seconds = {}
    for match in filter(None, map(BIG.fullmatch, lines)):
        nodes, workers, unlike, strategy, took, refused = match.groups()
        nodes, took, unlike = int(nodes), float(took), unlike or " alike"
        if refused:
            bench.row("E11", f"refusal {nodes} x {workers} {strategy}", f"{took:.4f} s", "", "as fast as a placement",
                      took <= seconds[unlike, strategy, nodes])
            continue
        seconds[unlike, strategy, nodes] = took
        tenth = seconds.get((unlike, strategy, nodes // 10))
        if nodes not in LIMITS:
            continue
        judged = nodes // 10 in LIMITS  # below, it is a matter of caches
        bench.row("E11", f"{nodes} x {workers} {strategy}{unlike}", f"{took:.4f} s, {took / tenth:.1f}x a tenth", "",
                  f"<= {LIMITS[nodes]} s" + (", <= 13x a tenth" if judged else ""),
                  took <= LIMITS[nodes] and (not judged or took <= 13 * tenth))


def _gangs(bench, lines):
    worst = None
    for match in filter(None, map(GANGS.fullmatch, lines)):
        nodes, unlike, kinds, strategy, placed, refused = match.groups()
        found = (int(placed), int(refused), f"{strategy}{unlike or ''}, {kinds} kinds")
        worst = min(worst or found, found)
    bench.row("E11", "gangs of 8, 5000 nodes, the worst case", f"{worst[0]}/s, refused {worst[1]}/s", "kube floor 810, Ray 779 /s",
              ">= 50000/s, refused as fast", worst[0] >= 50000 and worst[1] >= worst[0], worst=worst[2])


def _write_cluster(path, nodes):
    with open(path, "w") as f:
        f.write("nodes:\n")
        for i in range(nodes):
            f.write(f"  - name: node{i:06d}\n    resources: {{CPU: 64, GPU: 8, memory: {500 + i % 7}GiB}}\n"
                    f"    labels: {{zone: z{i % 3}}}\n")


def _plan_memory(bench, nodes):
    """Seconds and peak memory (MiB) of `trainyard plan` for 8 workers a node."""
    path = os.path.join(bench.directory, f"cluster-{nodes}.yaml")
    _write_cluster(path, nodes)
    child = subprocess.Popen([os.path.join(bench.build, "trainyard"), "plan", "--cluster", path, "-n", str(8 * nodes), "--use-gpu",
                              "--format", "json"], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=bench.environment)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    size = os.path.getsize(path)
    os.unlink(path)
    if child.returncode != 0:
        raise Skip(f"trainyard plan: status {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, size / 2**20


def run(bench):
    lines = subprocess.run([bench.program("bench_placement")], capture_output=True, text=True, check=True).stdout.splitlines()
    _big(bench, lines)
    _gangs(bench, lines)
    for match in filter(None, map(QUALITY.fullmatch, lines)):
        what, ratio, missed = match.groups()
        bench.row("E11", "nodes used, to the fewest that would do", f"{ratio}x", "", "told", None, measured=what, missed=missed)
    for nodes in (10000, 100000):
        seconds, memory, size = _plan_memory(bench, nodes)
        bench.row("E11", f"plan command, file of {nodes} nodes", f"{seconds:.2f} s, {memory:.0f} MiB", f"file {size:.1f} MiB", "told",
                  None, seconds=seconds, memory_mib=memory)
