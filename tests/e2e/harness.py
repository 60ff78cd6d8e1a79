"""What every end-to-end test uses: the built command, a place of its own for each test, and the proof that nothing is left.

Each test gets a temporary directory with its own HOME, storage path and lease directory. The path of that directory is in the
environment of every process that the test starts, so a process that outlives the test is found by it, whatever its
parent or session has become.
"""

import atexit
import concurrent.futures
import contextlib
import glob
import io
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("TRAINYARD_BUILD", os.path.join(HERE, "..", "..", "build")))
COMMAND = os.path.join(BUILD, "trainyard")

# Tests under nohup, or behind a shell's "&", hear neither of these, and neither would the programs that they start.
for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)


def preloadable(library):
    """A path of the library for LD_PRELOAD, in which a space would begin the next one."""
    if " " not in library:
        return library
    directory = tempfile.mkdtemp(prefix="trainyard-test-")
    atexit.register(shutil.rmtree, directory, True)
    os.symlink(library, os.path.join(directory, os.path.basename(library)))
    return os.path.join(directory, os.path.basename(library))


def free_port():
    """Which the kernel gives to nobody else before the end of this program; who sets SO_REUSEADDR may listen there."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))
    atexit.register(one.close)
    return one.getsockname()[1]


def read_line_by_line(process):
    """A line that is read of what the process prints takes along nothing of what comes behind it: `communicate` would not have that."""
    for stream in (process.stdout, process.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream._CHUNK_SIZE = 1


class Finished:
    """A command that ended: its exit status (128 + signal) and what it printed."""

    def __init__(self, status, out, err, args):
        self.status = status if status >= 0 else 128 - status
        self.out = out
        self.err = err
        self.args = args

    @property
    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return "%s: exit status %d\n--- stdout\n%s--- stderr\n%s" % (
            " ".join(map(repr, self.args)), self.status, self.out[-4000:], self.err[-4000:])


def holds(path, mark):
    """Whether a file of /proc has the mark. Without Python's files, as every test reads those of all processes, many times."""
    file = os.open(path, os.O_RDONLY)
    try:
        text = b""
        while piece := os.read(file, 1 << 17):
            text += piece
    finally:
        os.close(file)
    return mark in text


def open_files(pid):
    """What the descriptors of a process lead to, but for those that it closes meanwhile."""
    links = []
    place = "/proc/%s/fd" % pid
    for fd in os.listdir(place):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(os.path.join(place, fd)))
    return links


def processes_with(mark):
    """Pids of the processes whose environment or words hold `mark`, or that are at home below it, but for this one."""
    found = []
    mark = os.fsencode(mark)
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        place = "/proc/" + name
        try:
            if mark in os.fsencode(os.readlink(place + "/cwd")) or holds(place + "/environ", mark) or holds(place + "/cmdline", mark):
                with open(place + "/stat") as file:
                    state = file.read().rsplit(")", 1)[1].split()[0]
                if state not in "ZX":
                    found.append(int(name))
        except OSError:
            continue
    return found


class Case(unittest.TestCase):
    longMessage = True
    maxDiff = None

    def setUp(self):
        self.place = tempfile.mkdtemp(prefix="trainyard-test-")
        self.copy = None
        self.started_processes = []
        self.addCleanup(shutil.rmtree, self.place, True)
        self.addCleanup(self.check_nothing_left)
        self.storage = os.path.join(self.place, "runs")
        self.leases = os.path.join(self.place, "leases")
        drop = ("TRAINYARD_", "CUDA_", "HIP_", "RAY_", "TPU_", "NO_COLOR", "PYTHONUNBUFFERED")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        self.environment.update(HOME=self.place, TRAINYARD_LEASE_DIR=self.leases, TMPDIR=self.place)
        # Devices are those that a test makes up, on a machine with GPUs as well.
        self.environment.update(TRAINYARD_NVML_LIBRARY="no-devices-in-tests.so")

    # -- starting things

    def command_for_all(self):
        """A copy of the command, with its modules, for a test that becomes another user, who may not enter where the build lies;
        the test's own place is opened too."""
        os.chmod(self.place, 0o755)
        if self.copy is None:
            self.copy = tempfile.mkdtemp(prefix="trainyard-test-")
            self.addCleanup(shutil.rmtree, self.copy, True)
            modules = os.path.join(self.copy, "trainyard-modules")
            os.mkdir(modules)
            shutil.copy(COMMAND, self.copy)
            for module in glob.glob(os.path.join(BUILD, "trainyard-modules", "*.so")):
                shutil.copy(module, modules)
            for path in (self.copy, *glob.glob(self.copy + "/**", recursive=True)):
                os.chmod(path, 0o755)
        return os.path.join(self.copy, "trainyard")

    def environment_with(self, changes):
        environment = dict(self.environment)
        for name, value in (changes or {}).items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        return environment

    def start(self, *args, env=None, **more):
        """Starts `trainyard args...`, or another `command`, and gives the Popen; the test must wait for it."""
        process = subprocess.Popen(
            [more.pop("command", COMMAND), *map(str, args)], cwd=more.pop("cwd", self.place), env=self.environment_with(env),
            stdin=more.pop("stdin", subprocess.DEVNULL), stdout=more.pop("stdout", subprocess.PIPE),
            stderr=more.pop("stderr", subprocess.PIPE), text=True, errors="surrogateescape", **more)
        read_line_by_line(process)
        self.started_processes.append(process)
        self.addCleanup(process.stdout and process.stdout.close or (lambda: None))
        self.addCleanup(process.stderr and process.stderr.close or (lambda: None))
        return process

    def finish(self, process, timeout=180):
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            for pid in [process.pid, *processes_with(self.place)]:  # all that may hold its output open
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            told = []  # one that ended before may be the reason
            for one in [process, *(other for other in self.started_processes if other is not process and other.returncode is None)]:
                with contextlib.suppress(ValueError):  # the test has closed its output
                    out, err = one.communicate()
                    told.append(repr(Finished(one.returncode, out or "", err or "", one.args)))
            self.fail("did not end in %s s: %s" % (timeout, "\n--- beside it: ".join(told)))
        return Finished(process.returncode, out or "", err or "", process.args)

    def trainyard(self, *args, timeout=180, env=None, **more):
        return self.finish(self.start(*args, env=env, **more), timeout)

    def start_run(self, *args, env=None, **more):
        """`trainyard run` with this test's storage path, on as many logical CPUs as any test wants."""
        own = () if {"--cluster", "--num-cpus", "--config"} & set(args) else ("--num-cpus", "1024")
        return self.start("run", "--storage-path", self.storage, *own, *args, env=env, **more)

    def run_workers(self, *args, timeout=180, env=None, **more):
        """The same, to its end."""
        return self.finish(self.start_run(*args, env=env, **more), timeout)

    def wait_for(self, condition, what="what it is to bring about", process=None, seconds=180):
        """Waits until `condition()` is true, which some process brings about; its value."""
        began = time.monotonic()
        while True:
            asked = time.monotonic()
            ended = process is not None and process.poll() is not None  # asked first: the last it does may be what is waited for
            value = condition()
            if value:
                return value
            if ended:
                self.fail("ended before there was %s: %r" % (what, self.finish(process)))
            now = time.monotonic()
            self.assertLess(now - began, seconds, "waited %s s for %s" % (seconds, what))
            # A condition may cost as much as a command: what is waited for has most of the processor.
            time.sleep(max(min(0.002 + (now - began) / 20, 0.02), min(3 * (now - asked), 0.5)))

    def wait_for_line(self, process, words):
        """Reads standard error up to a line with these words."""
        told = ""
        while words not in (line := process.stderr.readline()):
            told += line
            self.assertNotEqual("", line, "ended without %r: %s" % (words, told))

    @contextlib.contextmanager
    def without_descriptors(self, pid):
        """The process gets none meanwhile, for what the block asks of it, and does not try all the time."""
        def ticks():
            with open("/proc/%d/stat" % pid) as file:
                return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))

        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, before[1]))
        try:
            yield
            used = ticks()
            time.sleep(1)
            self.assertLess(ticks() - used, os.sysconf("SC_CLK_TCK") // 4, "it spins")
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    def another_build(self):
        """A command that is ours but for its build: its path, our build, its own."""
        with open(COMMAND, "rb") as file:
            program = file.read()
        build = self.trainyard("version").out.split("build ")[1].split(",")[0]
        other = build[:-4] + ("0000" if build[-4:] != "0000" else "1111")
        path = self.write("other", program.replace(build.encode(), other.encode()))
        os.chmod(path, 0o755)
        return path, build, other

    def write(self, name, text):
        """A file in the test's place; gives its path."""
        path = os.path.join(self.place, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    # -- what must hold

    def agent_of(self, node, living):
        """The agent, one of the pids `living`, that last said hello for the node, by the journal: its words are the same on every node."""
        for path in glob.glob(os.path.join(self.storage, "*", "run.db")):
            with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % path, uri=True)) as database:
                for (data,) in database.execute("SELECT data FROM events WHERE kind = 'node' ORDER BY sequence DESC"):
                    if json.loads(data)["name"] == node and json.loads(data)["pid"] in living:
                        return json.loads(data)["pid"]
        self.fail("node %s has no agent" % node)

    def assert_status(self, status, finished):
        self.assertEqual(status, finished.status, repr(finished))
        return finished

    def lines_of(self, finished):
        """The lines on standard error, but for what is told of nodes that wait for each other, on a machine that is busy."""
        return [line for line in finished.err.splitlines() if "; missing: " not in line and "waiting for the controller at " not in line]

    def assert_line(self, finished, command, *words):
        """One line on standard error, which names the command and holds all words (case-blind)."""
        lines = self.lines_of(finished)
        self.assertEqual(1, len(lines), repr(finished))
        self.assertTrue(lines[0].startswith("trainyard %s: " % command if command else "trainyard: "), repr(finished))
        for word in words:
            self.assertIn(word.lower(), lines[0].lower(), repr(finished))

    def assert_usage(self, finished, command, *words):
        """Exit status 2, one line, nothing printed, nothing made, nothing started."""
        self.assert_status(2, finished)
        self.assertEqual("", finished.out, repr(finished))
        self.assert_line(finished, command, *words)
        self.assert_nothing_made()

    def assert_nothing_made(self):
        self.assertFalse(os.path.exists(self.storage), "the storage path was made")
        self.assertFalse(os.path.exists(os.path.join(self.place, "trainyard_runs")), "the default storage path was made")
        self.assertEqual([], self.lease_files(), "leases were made")
        self.assertEqual([], processes_with(self.place), "processes were started")

    def lease_files(self):
        """Leases; the directory's own files begin with a dot."""
        try:
            return [name for name in os.listdir(self.leases) if not name.startswith(".")]
        except FileNotFoundError:
            return []

    def check_nothing_left(self):
        deadline = time.monotonic() + 60
        left = processes_with(self.place)
        while left and time.monotonic() < deadline:
            time.sleep(0.01)
            left = processes_with(self.place)
        told = []
        for pid in left:
            try:
                with open("/proc/%d/cmdline" % pid, "rb") as file:
                    told.append("%d: %s" % (pid, file.read().replace(b"\0", b" ").decode(errors="replace")))
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.assertEqual([], told, "processes outlived the test")


def flatten(suite):
    return [test for part in suite for test in (flatten(part) if isinstance(part, unittest.TestSuite) else [part])]


def run_side_by_side(most):
    """Each test in a process of its own, `most` of them at once; what failed is shown."""
    tests = flatten(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    run = lambda test: subprocess.run([sys.executable, sys.argv[0], test.id().split(".", 1)[1]], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, errors="replace", text=True)
    with concurrent.futures.ThreadPoolExecutor(most) as pool:
        ended = list(pool.map(run, tests))
    failed = [one for one in ended if one.returncode != 0]
    print("".join(one.stdout for one in failed) + "%d of %d tests failed" % (len(failed), len(ended)))
    sys.exit(bool(failed) or not ended)


def main(side_by_side=1):
    """The tests of this program, or those that the command line names. `side_by_side`: so many at once, where they mostly wait."""
    if not os.access(COMMAND, os.X_OK):
        sys.exit("no command at %s: build first, or set TRAINYARD_BUILD" % COMMAND)
    if side_by_side > 1 and len(sys.argv) == 1:
        run_side_by_side(side_by_side)
    unittest.main(module="__main__")
