"""E5: the eight events of docs/faults.md, and SIGKILL at random moments. After each: is anything left of the run? Processes
that carry its mark, or did when the event came (a daemon that emptied its environment among them), leases, shared
memory, named sockets, temporary files."""
import glob
import os
import random
import signal
import subprocess
import time
from collections import namedtuple

from common import close_all, marked, milliseconds, open_pidfds, wait_pidfds
from subjects import Subjects, parent

WORKERS = 4
TRIALS = 100
PEER_TRIALS = 3
DEADLINE = 5
PEER_DEADLINE = 3
GRACE = "0.2s"
KILLS = 1000
KILL_WITHIN = 0.08  # seconds after the start, when such a run trains

Event = namedtuple("Event", "name mode act status options", defaults=((),))


def _to_worker(number):
    return lambda launcher, entries: os.kill(entries[1].pid, number)


def _to_launcher(number):
    return lambda launcher, entries: os.kill(launcher, number)


def _to_agent(launcher, entries):
    agent = parent(entries[0].pid)
    if agent == launcher:
        raise NoAgent
    os.kill(agent, signal.SIGKILL)


def _to_all(number):
    def act(launcher, entries):
        for entry in entries:
            os.kill(entry.pid, number)
    return act


class NoAgent(Exception):
    """This launcher has no process between itself and the workers."""


EVENTS = (
    Event("worker SIGKILL", "obey", _to_worker(signal.SIGKILL), 137),
    Event("worker exit(3)", "obey", _to_worker(signal.SIGUSR1), 3),
    Event("launcher SIGKILL", "obey", _to_launcher(signal.SIGKILL), -9),
    Event("launcher SIGHUP", "obey", _to_launcher(signal.SIGHUP), 129),
    Event("one SIGINT", "obey", _to_launcher(signal.SIGINT), 130),
    Event("SIGTERM, workers ignore it", "ignore", _to_launcher(signal.SIGTERM), 143, ("--grace", GRACE)),
    Event("setsid daemon left behind", "daemon", _to_all(signal.SIGUSR2), 0),
    Event("agent SIGKILL", "obey", _to_agent, 5),
)


def _things(bench):
    """Files and sockets that a run could leave behind."""
    with open("/proc/net/unix") as f:
        sockets = {line.split()[7] for line in f.readlines()[1:] if len(line.split()) > 7}
    ours = {name for name in sockets if "trainyard" in name or bench.directory in name}
    beside = "/tmp/trainyard-test-"  # tests that run at the same time
    temporary = [path for path in glob.glob("/tmp/*trainyard*") if not path.startswith(beside)]
    temporary += os.listdir(bench.environment["TMPDIR"])
    leases = glob.glob(os.path.join(bench.environment["TRAINYARD_LEASE_DIR"], "*.lease"))
    return ours | set(temporary) | set(leases) | set(glob.glob("/dev/shm/*"))


def _wait_unmarked(mark, seconds):
    """Waits until no process carries the mark; what is left otherwise."""
    end = time.monotonic() + seconds
    while True:
        left = marked(mark)
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.005)


def _settle(bench, child, known, start, deadline):
    """(seconds until nothing was left or None, what was left)."""
    last = wait_pidfds(known, deadline)
    left = _wait_unmarked(child.mark, 0.5)
    try:
        child.wait(1)
    except subprocess.TimeoutExpired:
        left.append(child.pid)
    return (None, left) if last is None or left else (last - start, [])


def _trial(bench, event, command, subjects, deadline):
    """{"took", "left", "status"} of one event; None when the workers never came up."""
    before = _things(bench)
    child = bench.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    entries = subjects.wait_ready(child)
    if entries is None:
        bench.end(child)
        return None
    daemons = [entry.daemon for entry in entries if entry.daemon]
    known = open_pidfds(set(marked(child.mark)) | set(daemons) | {entry.pid for entry in entries})
    start = time.monotonic()
    try:
        event.act(child.pid, entries)
        took, left = _settle(bench, child, known, start, deadline)
    finally:
        close_all(known)
        bench.end(child)
        for pid in daemons:
            _end_daemon(pid, subjects)
    things = sorted(_things(bench) - before)
    return {"took": took, "left": left, "things": things, "status": child.returncode}


def _end_daemon(pid, subjects):
    """Ends a daemon that outlived its run, if this pid is still that daemon."""
    try:
        if os.readlink(f"/proc/{pid}/exe") == subjects.argv[0]:
            os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def _trials(bench, event, make, repeats, deadline):
    """The trials' results; None when this launcher does not have what the event befalls."""
    results = []
    for _ in range(repeats):
        subjects = Subjects(bench, WORKERS, event.mode)
        try:
            command = make(subjects.argv)
            if command is None:
                return None
            results.append(_trial(bench, event, command, subjects, deadline))
        except NoAgent:
            return None
        finally:
            subjects.close()
    return results


def _clean(result):
    return result is not None and result["took"] is not None and not result["things"]


def _peer(name, results):
    if results is None:
        return f"{name} -"
    clean = [result["took"] for result in results if _clean(result)]
    return f"{name} {len(clean)}/{len(results)}" + (f" {milliseconds(max(clean))}" if clean else "")


def _event(bench, event):
    results = _trials(bench, event, lambda argv: bench.trainyard(WORKERS, *argv, options=event.options), TRIALS, DEADLINE)
    peers = {}
    if not bench.peers["srun"]:
        peers["srun -K"] = _trials(bench, event, lambda argv: bench.srun(WORKERS, *argv, options=("-K",)), PEER_TRIALS,
                                   PEER_DEADLINE)
    if not bench.peers["mpirun"]:
        peers["mpirun"] = _trials(bench, event, lambda argv: bench.mpirun(WORKERS, *argv), PEER_TRIALS, PEER_DEADLINE)
    clean = [result["took"] for result in results if _clean(result)]
    right = sum(result is not None and result["status"] == event.status for result in results)
    worst = f", worst {milliseconds(max(clean))}" if clean else ""
    passed = len(clean) == TRIALS and right == TRIALS and max(clean) <= 1
    bench.row("E5", event.name, f"{len(clean)}/{TRIALS} clean{worst}", ", ".join(_peer(*item) for item in peers.items()),
              f"all, <= 1 s, status {event.status} ({right})", passed, trials=results, peers_raw=peers)
    return passed, [name for name, trials in peers.items() if trials and all(map(_clean, trials))]


def run(bench):
    done = [_event(bench, event) for event in EVENTS]
    names = [name for _, peers in done for name in peers]
    peers = ", ".join(f"{name} {names.count(name)}" for name in ("srun -K", "mpirun") if not bench.peers[name.split()[0]])
    passed = sum(ok for ok, _ in done)
    bench.row("E5", "events of eight that leave nothing", str(passed), peers, "8", passed == len(EVENTS))


# ---- SIGKILL at random moments ----

def _victim(which, launcher, mark):
    """The pid of the controller, the agent or a worker of a run, as far as there is one at this moment."""
    below = [pid for pid in marked(mark) if pid != launcher]
    parents = {}
    for pid in below:
        try:
            parents[pid] = parent(pid)
        except OSError:
            pass
    agents = [pid for pid, above in parents.items() if above == launcher]
    workers = [pid for pid, above in parents.items() if above in agents]
    choice = {"worker": workers, "agent": agents}.get(which) or [launcher]
    return random.choice(choice), "worker" if choice is workers else "agent" if choice is agents else "controller"


def _kill_once(bench, which, delay):
    subjects = Subjects(bench, WORKERS, "obey")
    child = bench.start(bench.trainyard(WORKERS, *subjects.argv, options=("--use-gpu", "--num-gpus", str(WORKERS))),
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(delay)
    pid, hit = _victim(which, child.pid, child.mark)
    start = time.monotonic()
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    took, left = _settle(bench, child, [], start, 0)
    if not left:
        took = time.monotonic() - start
    ended = child.poll()
    bench.end(child)
    subjects.close()
    return {"hit": hit, "delay": delay, "took": took, "left": left, "status": ended}


def run_kills(bench):
    """Victims and moments are drawn from a fixed seed; the moment it falls in is not, so a failure may need some repeats."""
    random.seed(5)
    before = _things(bench)
    trials = [_kill_once(bench, random.choice(("worker", "agent", "controller")), random.uniform(0, KILL_WITHIN))
              for _ in range(KILLS)]
    left = sum(bool(trial["left"]) for trial in trials)
    things = sorted(_things(bench) - before)
    hits = {name: sum(trial["hit"] == name for trial in trials) for name in ("worker", "agent", "controller")}
    bench.row("E5", f"{KILLS} x kill -9 at random moments", f"{left} left processes, {len(things)} left things",
              ", ".join(f"{count} {name}" for name, count in hits.items()), "0, 0", left == 0 and not things, trials=trials,
              things=things)
