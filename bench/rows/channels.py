"""What joins nodes. E6, E6-long: three nodes whose machine has twenty times more to do than processors: nobody may be taken for dead. E9: 4,000
clients join and gather 64 bytes of each, beside torch's TCPStore. E10: 10,000 agents join, beat once a second and leave, beside as many bare
sockets of an epoll. tls: bytes through a channel beside a plain socket, and what the cipher leaves of that.

The agents of E9 and E10 are sockets of one process (bench/programs/nodes.c); who listens is the product's own rendezvous, over TLS."""
import contextlib
import os
import secrets
import shutil
import socket
import statistics
import subprocess

from common import Command, Skip, Summary, milliseconds

from rows.python import interpreter

REPEATS = 3
CLIENTS, MOST_OF_TCPSTORE = 4_000, 0.2
AGENTS, BEATS_FOR, MOST_MIB, MOST_KIB_EACH, MOST_OF_FLOOR = 10_000, 10, 64, 16, 3
STREAM_MIB, LEAST_OF_PLAIN = 512, 0.5
NODES, LOAD, LOADED_FOR, LOADED_LONG = 3, 20, 30, 1200

TCPSTORE = """
import os, resource, sys, time
import torch.distributed as dist
n = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
server = dist.TCPStore("127.0.0.1", 0, n, True, wait_for_workers=False)
began = time.monotonic()
clients = [dist.TCPStore("127.0.0.1", server.port, n, False, wait_for_workers=False) for _ in range(n)]
joined = time.monotonic()
keys = [str(i) for i in range(n)]
for client, key in zip(clients, keys):
    client.set(key, "x" * 64)
for client in clients:
    client.multi_get(keys)
print("join_s", joined - began)
print("gather_s", time.monotonic() - joined, flush=True)
os._exit(0)
"""


def _numbers(argv, seconds=300):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise RuntimeError(f"{argv[0]}: status {done.returncode}: {done.stderr[-500:]}")
    return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}


def _nodes(bench, *words):
    return _numbers([bench.program("nodes"), *map(str, words)])


PEER_S = 300


def run_join(bench):
    """The peer is slow: it is asked once, and has so long."""
    ours = [_nodes(bench, "agents", CLIENTS, 0, "gather") for _ in range(REPEATS)]
    took = Summary([numbers["join_s"] + numbers["gather_s"] for numbers in ours])
    told, passed = "no torch: make bench-peers", None
    if os.access(interpreter(), os.X_OK) and not subprocess.run([interpreter(), "-c", "import torch"], capture_output=True).returncode:
        try:
            store = _numbers([interpreter(), "-c", TCPSTORE, str(CLIENTS)], PEER_S)
            peer, at_most = store["join_s"] + store["gather_s"], ""
            told = f"TCPStore {store['join_s']:.2f} + {store['gather_s']:.2f} s"
        except subprocess.TimeoutExpired:
            peer, at_most, told = PEER_S, "under ", f"TCPStore over {PEER_S} s"
        told, passed = f"{told}, {at_most}{took.median / peer:.2f}x", took.median <= MOST_OF_TCPSTORE * peer
    joined = statistics.median(numbers["join_s"] for numbers in ours)
    bench.row("E9", f"{CLIENTS} clients join and gather 64 bytes", f"{joined:.2f} + {took.median - joined:.2f} s", told,
              f"<= {MOST_OF_TCPSTORE}x of TCPStore", passed, times=took.as_dict(), ours_raw=ours)


def run_agents(bench):
    numbers = _nodes(bench, "agents", AGENTS, BEATS_FOR)
    floor = _nodes(bench, "floor", AGENTS, BEATS_FOR)
    mib, ratio = numbers["resident_kib"] / 1024, numbers["beat_cpu"] / floor["beat_cpu"]
    bench.row("E10", f"{AGENTS} agents join, beat and leave", f"{mib:.0f} MiB, {numbers['each_kib']:.1f} KiB each, {100 * numbers['beat_cpu']:.1f} % CPU",
              f"bare epoll {100 * floor['beat_cpu']:.1f} % CPU {ratio:.2f}x; join {numbers['join_s']:.2f} s, leave {milliseconds(numbers['leave_s'])}",
              f"< {MOST_MIB} MiB, {MOST_KIB_EACH} KiB each, <= {MOST_OF_FLOOR}x CPU",
              mib < MOST_MIB and numbers["each_kib"] <= MOST_KIB_EACH and ratio <= MOST_OF_FLOOR, ours_raw=numbers, floor_raw=floor)


def _cipher_rate():
    """MiB of a record's size that OpenSSL seals in a second of a processor, which each end does beside what TCP costs; None without its command."""
    if not shutil.which("openssl"):
        return None
    told = subprocess.run(["openssl", "speed", "-mr", "-seconds", "1", "-bytes", "16384", "-evp", "aes-128-gcm"], capture_output=True, text=True, check=True)
    return float(told.stdout.split()[-1].rsplit(":", 1)[1]) / 2**20


def run_tls(bench):
    plain, ours = [], []
    for _ in range(REPEATS):
        plain.append(_nodes(bench, "plain", STREAM_MIB)["mib_s"])
        ours.append(_nodes(bench, "stream", STREAM_MIB)["mib_s"])
    rate, bare = statistics.median(ours), statistics.median(plain)
    told, cipher = f"TCP {bare:.0f} MiB/s {rate / bare:.2f}x", _cipher_rate()
    if cipher:
        floor = 1 / (1 / bare + 1 / cipher)
        told += f"; cipher alone {cipher:.0f}, TCP behind it {floor:.0f} MiB/s {floor / bare:.2f}x"
    bench.row("tls", f"{STREAM_MIB} MiB through a channel", f"{rate:.0f} MiB/s", told, f">= {LEAST_OF_PLAIN}x of TCP",
              rate >= LEAST_OF_PLAIN * bare, plain=Summary(plain).as_dict(), ours_raw=Summary(ours).as_dict(), cipher_mib_s=cipher)


@contextlib.contextmanager
def _load(bench):
    """Processes that do nothing but take all the time they get."""
    busy = [bench.start(Command(["sh", "-c", "while :; do :; done"])) for _ in range(LOAD * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for child in busy:
            child.kill()
            child.wait()


def _run_load(bench, row, seconds):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**bench.environment, "TRAINYARD_RUN_KEY": secrets.token_hex(32)}
    words = [os.path.join(bench.build, "trainyard"), "run", "--storage-path", bench.storage(), "--name", "load", "--num-cpus", "1", "--nnodes",
             str(NODES), "--rendezvous", f"127.0.0.1:{port}", "--progress", "none", "-n", str(NODES)]
    if not os.access(words[0], os.X_OK):
        raise Skip(f"{words[0]} is not built")
    with _load(bench):
        nodes = [bench.start(Command([*words, "--node-rank", str(i), "--", "sleep", str(seconds)], environment), stderr=subprocess.PIPE, text=True)
                 for i in range(NODES)]
        try:
            said = [node.communicate(timeout=seconds + 300)[1] for node in nodes]
        finally:
            for node in nodes:
                bench.end(node)
    status, suspected = nodes[0].returncode, said[0].count("nothing was heard of")
    bench.row(row, f"{NODES} nodes, {seconds} s at {LOAD}x CPU load", "nobody was lost" if status == 0 else f"status {status}",
              f"suspected {suspected} times", "0 false deaths", status == 0, said=said)


def run_load(bench):
    _run_load(bench, "E6", LOADED_FOR)


def run_load_long(bench):
    _run_load(bench, "E6-long", LOADED_LONG)
