"""Several nodes. E2: the whole command on 6 nodes of 8 no-op workers, in an allocation of Slurm beside bare srun, an mpirun that starts a
daemon on each node of the same allocation, and torchrun, where they are installed; an mpirun that starts no daemon, since its only node is
the machine that it runs on, is told beside them. ssh: to 6 hosts beside the slowest bare `ssh HOST true`, and mpirun and torchrun on the
same hosts. home: a checkpoint of a node whose storage is apart, brought home over the channel, beside plain TCP, both from memory to
memory: a disk that has to be waited for is E12's. site: 10,000 nodes of `scontrol show nodes`, read and planned.

Hosts are network namespaces of this machine (scripts/hosts), so that six of them share its processors."""
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time

import slurm_here
from common import Command, Skip, Summary, milliseconds

from rows.python import ROOT, interpreter

NODES, EACH = 6, 8
REPEATS = 5
MOST_OF_SRUN, MOST_OF_SSH, SSH_MORE = 1.2, 1.2, 0.2
SITE_NODES, SITE_LIMIT = 10_000, 1.0
HOME_MIB, HOME_LEAST = 128, 0.5


def _told(times):
    return ", ".join(f"{name} {milliseconds(summary.median)} {times['ours'].median / summary.median:.2f}x" if summary.values else f"{name} hung"
                     for name, summary in times.items() if name != "ours")


# ---- Slurm ----

def _torchrun(bench, program):
    """One torchrun for each of the nodes, as their user would start them; None without torch."""
    if not os.access(interpreter(), os.X_OK) or subprocess.run([interpreter(), "-c", "import torch"], capture_output=True).returncode:
        return None
    line = (f"port=$((20000 + $$ % 20000)); for i in $(seq 0 {NODES - 1}); do {interpreter()} -m torch.distributed.run --nnodes {NODES} --node-rank $i "
            f"--nproc-per-node {EACH} --rdzv-backend c10d --rdzv-id $port --rdzv-endpoint 127.0.0.1:$port --no-python {program} & done; wait")
    return Command(["sh", "-c", line], {**bench.environment, "OMP_NUM_THREADS": "1"})


def _mpirun(bench, inside, program):
    """In an allocation Open MPI starts a daemon on each node by srun, as ours does an agent."""
    command = bench.mpirun(NODES * EACH, program, options=("--mca", "plm", "slurm", "--mca", "oob_tcp_if_include", "lo"))
    if command:
        command.environment = inside
    return command


def _mpirun_here(bench, program):
    """Without a daemon: its one node is this machine, all slots of which are mpirun's own."""
    path = os.path.join(bench.directory, "hostfile")
    with open(path, "w") as f:
        f.write(f"localhost slots={NODES * EACH}\n")
    return bench.mpirun(NODES * EACH, program, options=("--hostfile", path))


def run(bench):
    if slurm_here.missing():
        raise Skip(f"{slurm_here.missing()} not installed, make bench-peers")
    program, n = bench.program("noop"), NODES * EACH
    with slurm_here.Slurm(NODES, EACH) as slurm:
        job, nodes = slurm.environment["SLURM_JOB_ID"], f"node[0-{NODES - 1}]"
        inside = {**bench.environment, **slurm.environment, "SLURM_JOBID": job, "SLURM_JOB_NUM_NODES": str(NODES), "SLURM_JOB_NODELIST": nodes,
                  "SLURM_NODELIST": nodes, "SLURM_NNODES": str(NODES), "SLURM_TASKS_PER_NODE": f"{EACH}(x{NODES})"}
        ours = bench.trainyard(n, program, options=("--engine", "slurm"))
        ours.argv = [word for word in ours.argv if word != "--num-cpus"]
        del ours.argv[ours.argv.index(str(n)) + 1]  # what --num-cpus had: Slurm says how many
        ours.environment = inside
        contestants = {"ours": ours, "srun": Command(slurm.srun(n, program), slurm.environment), "mpirun": _mpirun(bench, inside, program),
                       "mpirun without daemons": _mpirun_here(bench, program)}
        times = bench.race(contestants, REPEATS)
        slow = bench.race({"torchrun": _torchrun(bench, program)}, 1, 120)
    times |= slow
    median = times["ours"].median
    slower = [name for name in ("mpirun", "torchrun") if name in times and times[name].values and median >= times[name].median]
    bench.row("E2", f"{NODES} nodes x {EACH} no-op workers", milliseconds(median), _told(times), f"<= {MOST_OF_SRUN}x srun, below mpirun, torchrun",
              median <= MOST_OF_SRUN * times["srun"].median and not slower and not times["ours"].hangs,
              times={name: summary.as_dict() for name, summary in times.items()})


# ---- hosts ----

@contextlib.contextmanager
def _hosts(bench, count, *options):
    """Gives the words that run a command in a host."""
    script, at = os.path.join(ROOT, "scripts", "hosts"), os.path.join(bench.directory, f"hosts-{time.monotonic_ns()}")
    holder = subprocess.Popen([script, "hold", str(count), "--at", at, "--share", bench.directory, *options], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if holder.stdout.readline() != "ready\n":
            raise Skip("no hosts: " + holder.stderr.read().strip())
        yield lambda host, *words: [script, "--at", at, "exec", host, "--", *words]
    finally:
        holder.stdin.close()
        holder.wait()


def _on_hosts(bench, names):
    """Words of mpirun with these hosts, and of a torchrun on each by ssh, where they are installed; the first one is where they are typed."""
    path, program, others = os.path.join(bench.directory, "hosts"), bench.program("noop"), {}
    with open(path, "w") as f:
        f.writelines(f"{name} slots={EACH}\n" for name in names)
    if not bench.peers["mpirun"]:
        others["mpirun"] = ["mpirun", *(["--allow-run-as-root"] if os.getuid() == 0 else []), "-n", str(NODES * EACH), "--hostfile", path, program]
    if os.access(interpreter(), os.X_OK) and subprocess.run([interpreter(), "-c", "import torch"], capture_output=True).returncode == 0:
        line = (f"OMP_NUM_THREADS=1 {interpreter()} -m torch.distributed.run --nnodes {NODES} --nproc-per-node {EACH} --rdzv-backend c10d --rdzv-id x "
                f"--rdzv-endpoint {names[0]}:29400 --no-python {program}")
        each = " ".join(f'ssh -o BatchMode=yes {name} "{line}" &' for name in names[1:])
        others["torchrun"] = ["sh", "-c", f"{each} {line}; wait"]
    return others


def run_ssh(bench):
    if not shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin"):
        raise Skip("sshd is not installed")
    names = [f"h{i + 1}" for i in range(NODES)]
    with _hosts(bench, NODES, "--sshd") as within:
        ours = [os.path.join(bench.build, "trainyard"), "run", "--storage-path", bench.storage(), "--progress", "none", "--hosts",
                ",".join(f"{name}:{EACH}" for name in names), "-n", str(NODES * EACH), "--", bench.program("noop")]
        contestants = {"ours": Command(within("h1", *ours), bench.environment)}
        for name in names[1:]:
            contestants[name] = Command(within("h1", "ssh", "-o", "BatchMode=yes", name, "true"), bench.environment)
        others = {name: Command(within("h1", *words), bench.environment) for name, words in _on_hosts(bench, names).items()}
        slow = {"torchrun": others.pop("torchrun", None)}
        times = bench.race(contestants | others, REPEATS)
        beside = {name: times[name] for name in others} | bench.race(slow, 1, 120)
    slowest = max(times[name].median for name in names[1:])
    median = times["ours"].median
    slower = [name for name, summary in beside.items() if summary.values and median >= summary.median]
    bench.row("ssh", f"{NODES} hosts x {EACH} no-op workers", milliseconds(median),
              f"slowest ssh {milliseconds(slowest)} {median / slowest:.2f}x, " + _told({"ours": times["ours"], **beside}),
              f"<= {MOST_OF_SSH}x + {SSH_MORE} s, below the others",
              median <= MOST_OF_SSH * slowest + SSH_MORE and not slower and not times["ours"].hangs,
              times={name: summary.as_dict() for name, summary in (times | beside).items()})


# ---- files that come home ----

CHECKPOINT = """
mkdir -p /dev/shm/state && cd /dev/shm/state
if [ "$RANK" = "$1" ]; then head -c $2 /dev/urandom >data; else : >small; fi
began=$(date +%s.%N)
"$0" report step=1 --checkpoint . && [ "$RANK" != "$1" ] || echo "took $began $(date +%s.%N)"
"""

RECEIVE = """
import os, socket, sys, time
server = socket.create_server(("", 7100))
print("on", flush=True)
peer, _ = server.accept()
began, buffer = time.monotonic(), bytearray(1 << 20)
with open(sys.argv[1], "wb") as f:
    while n := peer.recv_into(buffer):
        f.write(memoryview(buffer)[:n])
print(time.monotonic() - began, flush=True)
os.unlink(sys.argv[1])
"""

SEND = """
import os, socket, sys
with open("/dev/shm/plain", "wb") as f:
    f.write(os.urandom(1 << 20) * int(sys.argv[1]))
peer = socket.create_connection(("h1", 7100))
with open("/dev/shm/plain", "rb") as f:
    peer.sendfile(f)
peer.close()
os.unlink("/dev/shm/plain")
"""


def _plain(bench, within):
    receiver = subprocess.Popen(within("h1", sys.executable, "-c", RECEIVE, "/dev/shm/plain"), stdout=subprocess.PIPE, text=True)
    receiver.stdout.readline()
    subprocess.run(within("h2", sys.executable, "-c", SEND, str(HOME_MIB)), check=True)
    seconds = float(receiver.communicate()[0])
    return seconds


def _reported(bench, within, rank):
    """Seconds of the report of the rank that has all: rank 0 is at home, 1 is not."""
    command = os.path.join(bench.build, "trainyard")
    environment = {**bench.environment, "TRAINYARD_RUN_KEY": secrets.token_hex(32), "TMPDIR": "/tmp"}
    words = [command, "run", "--storage-path", "/dev/shm/apart", "--name", f"r{time.monotonic_ns()}", "--num-cpus", "1", "--nnodes", "2", "--rendezvous",
             "h1:7000", "--progress", "none", "--no-prefix", "-n", "2"]
    program = ["--", "sh", "-c", CHECKPOINT, command, str(rank), str(HOME_MIB << 20)]
    nodes = [subprocess.Popen(within(f"h{i + 1}", *words, "--node-rank", str(i), *program), env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for i in range(2)]
    out, err = nodes[0].communicate(timeout=120)
    nodes[1].communicate(timeout=120)
    subprocess.run(within("h1", "rm", "-rf", "/dev/shm/apart"), check=True)
    if nodes[0].returncode:
        raise RuntimeError(err[-500:])
    began, ended = next(line.split()[1:] for line in out.splitlines() if line.startswith("took "))
    return float(ended) - float(began)


def run_home(bench):
    with _hosts(bench, 2) as within:
        plain, away, here = [], [], []
        for _ in range(REPEATS):
            plain.append(_plain(bench, within))
            away.append(_reported(bench, within, 1))
            here.append(_reported(bench, within, 0))
    carried = min(away) - min(here)  # the fastest of each: memory that the kernel has yet to find takes several times as long
    rate, bare = HOME_MIB / max(carried, 1e-3), HOME_MIB / min(plain)
    bench.row("home", f"checkpoint of {HOME_MIB} MiB from a node apart", f"{rate:.0f} MiB/s, report {milliseconds(min(away))}",
              f"TCP {bare:.0f} MiB/s {rate / bare:.2f}x; report at home {milliseconds(min(here))}", f">= {HOME_LEAST}x of TCP",
              rate >= HOME_LEAST * bare, plain=Summary(plain).as_dict(), away=Summary(away).as_dict(), here=Summary(here).as_dict())


# ---- a large site ----

SHOWN = ("NodeName=node{i:05d} Arch=x86_64 CoresPerSocket=32 CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.11 AvailableFeatures=h100,rack{rack} "
         "ActiveFeatures=h100,rack{rack} Gres=gpu:h100:8(S:0-1) GresDrain=N/A GresUsed=gpu:h100:0(IDX:N/A) NodeAddr=node{i:05d} "
         "NodeHostName=node{i:05d} Version=22.05.8 OS=Linux 6.1.0 #1 SMP RealMemory=1031000 AllocMem=0 FreeMem=900000 Sockets=2 Boards=1 "
         "State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=main CfgTRES=cpu=64,mem=1031000M,billing=64 "
         "AllocTRES= CapWatts=n/a\n")
SCONTROL = """#!/bin/sh
case "$2" in
node) exec cat {nodes} ;;
licenses) echo "No licenses configured in Slurm." ;;
*) echo "PartitionName=main AllowGroups=ALL Default=YES State=UP" ;;
esac
"""


def run_site(bench):
    place = os.path.join(bench.directory, "site")
    os.mkdir(place)
    nodes = os.path.join(place, "nodes")
    with open(nodes, "w") as f:
        f.writelines(SHOWN.format(i=i, rack=i // 32) for i in range(SITE_NODES))
    with open(os.open(os.path.join(place, "scontrol"), os.O_WRONLY | os.O_CREAT, 0o755), "w") as f:
        f.write(SCONTROL.format(nodes=nodes))
    environment = {**bench.environment, "PATH": place + ":" + bench.environment["PATH"]}
    ours = Command([os.path.join(bench.build, "trainyard"), "plan", "--engine", "slurm", "-n", str(8 * SITE_NODES), "--use-gpu"], environment)
    times = bench.race({"ours": ours, "cat": Command(["scontrol", "show", "node"], environment)}, REPEATS)
    bench.row("site", f"{SITE_NODES} nodes of scontrol, {8 * SITE_NODES} workers", milliseconds(times["ours"].median), _told(times),
              f"< {SITE_LIMIT:.0f} s", times["ours"].median < SITE_LIMIT, times={name: summary.as_dict() for name, summary in times.items()})
