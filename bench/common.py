"""What every row needs: where things lie, commands started and timed and never left behind, numbers summed up."""
import os
import platform
import select
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

MARK = "TRAINYARD_BENCH_MARK"  # in the environment of all that the bench starts: what carries it after the end is a leftover


class Skip(Exception):
    """A row that cannot be measured here; the reason is its message."""


class Summary:
    """Some measurements of one thing, in one unit, and how many of them never ended."""

    def __init__(self, values=(), hangs=0):
        self.values = sorted(values)
        self.hangs = hangs

    def quantile(self, q):
        return self.values[min(len(self.values) - 1, int(q * len(self.values)))] if self.values else float("nan")

    @property
    def median(self):
        return statistics.median(self.values) if self.values else float("nan")

    def as_dict(self):
        return {"n": len(self.values), "hangs": self.hangs, "min": self.quantile(0), "median": self.median,
                "p99": self.quantile(0.99), "max": self.quantile(1), "values": self.values}


def marked(mark):
    """Pids of all processes that carry the mark, the bench aside."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if wanted in f.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found


def wait_pidfds(fds, seconds):
    """Waits for the end of processes by their pidfds; the time of the last end (monotonic), or None when some live on."""
    poller, left, end = select.poll(), set(fds), time.monotonic() + seconds
    for fd in fds:
        poller.register(fd, select.POLLIN)
    last = time.monotonic()
    while left:
        rest = end - time.monotonic()
        ready = poller.poll(max(0, rest * 1000))
        if not ready:
            return None
        last = time.monotonic()
        for fd, _ in ready:
            poller.unregister(fd)
            left.discard(fd)
    return last


def open_pidfds(pids):
    fds = []
    for pid in pids:
        try:
            fds.append(os.pidfd_open(pid))
        except ProcessLookupError:
            pass
    return fds


def close_all(fds):
    for fd in fds:
        os.close(fd)


def children(pid):
    """{pid: command line} of the children of a process."""
    found = {}
    for other in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{other}/stat", "rb") as f:
                parent = int(f.read().rsplit(b")", 1)[1].split()[1])
            if parent == pid:
                with open(f"/proc/{other}/cmdline", "rb") as f:
                    found[int(other)] = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except (OSError, IndexError):
            pass
    return found


def status_field(pid, field):
    """A number of /proc/PID/status: kB or a count."""
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    raise KeyError(field)


class Command:
    """A command line with its environment, as one contestant of a row."""

    def __init__(self, argv, environment=None, shell=False):
        self.argv, self.environment, self.shell = argv, environment, shell


class Bench:
    """The build under test, the peers, and a place for files that goes with the bench."""

    def __init__(self, build, peers, slurm):
        self.build = os.path.abspath(build)
        self.peers = peers  # {"mpirun": None or why it is missing, "srun": likewise}
        self.slurm = slurm  # a running slurm_here.Slurm, or None
        self.directory = tempfile.mkdtemp(prefix="bench-trainyard-")
        self.rows = []
        self._marks = 0
        self.environment = {**os.environ, "TRAINYARD_LEASE_DIR": os.path.join(self.directory, "leases"),
                            "TMPDIR": os.path.join(self.directory, "tmp")}
        os.mkdir(self.environment["TMPDIR"])

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)

    # ---- what to run ----

    def program(self, name):
        path = os.path.join(self.build, "bench", name)
        if not os.access(path, os.X_OK):
            raise Skip(f"{path} is not built")
        return path

    def trainyard(self, n, *program, options=()):
        """`trainyard run` as a user types it, on a machine that is said to have a CPU for each worker; the table is all that is printed."""
        command = os.path.join(self.build, "trainyard")
        if not os.access(command, os.X_OK):
            raise Skip(f"{command} is not built")
        return Command([command, "run", "-n", str(n), "--num-cpus", str(n), "--storage-path", self.storage(), "--progress", "none",
                        *options, "--", *program], self.environment)

    def storage(self):
        return os.path.join(self.directory, "runs")

    def clear_storage(self):
        """Forgets all runs, so that what one wrote does not fill the page cache of the next."""
        shutil.rmtree(self.storage(), ignore_errors=True)

    def mpirun(self, n, *program, options=()):
        if self.peers["mpirun"]:
            return None
        root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        return Command(["mpirun", *root, "--oversubscribe", "-n", str(n), *options, *program], self.environment)

    def srun(self, n, *program, options=()):
        if self.slurm is None:
            return None
        return Command(self.slurm.srun(n, *program, options=options), self.slurm.environment)

    # ---- running ----

    def start(self, command, **options):
        """Starts it in a session of its own, marked; the Popen object has the mark as `.mark`."""
        self._marks += 1
        mark = f"{os.getpid()}-{self._marks}"
        child = subprocess.Popen(command.argv, env={**(command.environment or self.environment), MARK: mark},
                                 start_new_session=True, shell=command.shell, **{"stdin": subprocess.DEVNULL, **options})
        child.mark = mark
        return child

    def end(self, child):
        """Ends whatever is left of a started command; the number of processes that had to be killed."""
        left = set(marked(child.mark)) - {child.pid if child.poll() is not None else -1}
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        child.wait()
        return len(left)

    def time(self, command, seconds=30):
        """Seconds from start to end of the whole command, its output thrown away through a pipe; None when it hangs, and then it
        is killed. A failure is an exception: a fast failure is no result."""
        begin = time.monotonic()
        child = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.terminate()  # mpirun and srun clear up after that, which a SIGKILL would prevent
            try:
                child.communicate(timeout=3)
            except subprocess.TimeoutExpired:
                pass
            self.end(child)
            return None
        took = time.monotonic() - begin
        if child.returncode != 0:
            raise RuntimeError(f"{' '.join(command.argv)}: status {child.returncode}: {output[-500:].decode(errors='replace')}")
        return took

    def race(self, contestants, repeats, seconds=30, give_up=3):
        """Times contestants in turn, {name: Command or None}. Who hangs `give_up` times is let off the rest of the repeats.
        {name: Summary}"""
        times = {name: [] for name, command in contestants.items() if command}
        hangs = dict.fromkeys(times, 0)
        for _ in range(repeats):
            for name, taken in times.items():
                if name != "ours" and hangs[name] >= give_up:
                    continue
                took = self.time(contestants[name], seconds)
                if took is None:
                    hangs[name] += 1
                else:
                    taken.append(took)
        return {name: Summary(taken, hangs[name]) for name, taken in times.items()}

    # ---- results ----

    def row(self, row, what, ours, peers, limit, passed, **raw):
        """One line of the table. `passed` None: told, not judged."""
        self.rows.append({"row": row, "what": what, "ours": ours, "peers": peers, "limit": limit, "passed": passed, **raw})
        print_row(self.rows[-1])


HEADINGS = ("row", "what", "ours", "peers", "limit", "")
WIDTHS = (4, 38, 28, 52, 30, 4)


def print_row(row):
    verdict = {True: "pass", False: "FAIL", None: "-"}[row["passed"]]
    cells = (row["row"], row["what"], row["ours"], row["peers"], row["limit"], verdict)
    print("  ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS)).rstrip(), flush=True)


def print_headings():
    print("  ".join(f"{cell:<{width}}" for cell, width in zip(HEADINGS, WIDTHS)).rstrip())


def milliseconds(seconds):
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _first_line(*argv, environment=None):
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
        return (done.stdout or done.stderr).splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return None


def machine_facts(bench):
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.machine())
    with open("/proc/meminfo") as f:
        memory_kib = int(f.readline().split()[1])
    system = _first_line("sed", "-n", 's/^PRETTY_NAME="\\(.*\\)"/\\1/p', "/etc/os-release")
    return {"cpu": model, "cpus": len(os.sched_getaffinity(0)), "memory_gib": round(memory_kib / 2**20, 1),
            "kernel": platform.release(), "system": system, "python": platform.python_version(),
            "load": os.getloadavg()[0], "trainyard": _first_line(os.path.join(bench.build, "trainyard"), "version"),
            "mpirun": None if bench.peers["mpirun"] else _first_line("mpirun", "--version"),
            "srun": bench.slurm and _first_line("srun", "--version", environment=bench.slurm.environment)}
