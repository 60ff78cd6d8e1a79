"""What tests of faults share: the other e2e tests' harness, the library that makes calls fail, and the journal's tables."""

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
import hosts
import runs

BUILD = harness.BUILD
COMMAND = harness.COMMAND
Hosts = hosts.Hosts
FAILING = harness.preloadable(os.path.join(harness.BUILD, "tests", "e2e", "faults", "failing_calls.so"))
REPORT = "'%s' report " % COMMAND


def failing(call, error, part):
    """Environment in which this call fails on files whose path holds `part`."""
    return {"LD_PRELOAD": FAILING, "TRAINYARD_FAIL": "%s %d %s" % (call, error, part),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


def process_state(pid):
    """Its letter in ps, "X" for one that is gone."""
    try:
        with open("/proc/%s/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


class FaultCase(runs.RunCase):
    def rows(self, query, name="r"):
        path = os.path.join(self.storage, name, "run.db")
        with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % path, uri=True)) as database:
            return database.execute(query).fetchall()

    def await_event(self, kind, process):
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "r", "run.db")) and
                      self.rows("SELECT 1 FROM events WHERE kind = '%s'" % kind), kind, process)

    def metrics(self, rank, key, name="r"):
        """Values that a rank reported under this name, in the order in which they are on record; their numbers have no gap."""
        rows = self.rows("SELECT number, metrics->>'%s' FROM reports WHERE rank = %d ORDER BY id" % (key, rank), name)
        self.assertEqual(list(range(rows[0][0], rows[0][0] + len(rows))) if rows else [], [number for number, _ in rows])
        return [value for _, value in rows]

    def committed(self, name="r"):
        """Names of the checkpoints on record, which are the ones that are there, each of them whole."""
        names = [row[0] for row in self.rows("SELECT name FROM checkpoints ORDER BY number", name)]
        entries = os.listdir(os.path.join(self.storage, name))
        self.assertEqual(sorted(names), sorted(entry for entry in entries if "checkpoint" in entry))
        self.assert_status(0, self.trainyard("checkpoints", "verify", name, "--storage-path", self.storage))
        return names

    def stand_still(self, controller):
        """Stops it. From then on no thread of it is in a call, and what it did apart has come to its end."""
        own = runs.command_line(controller)

        def is_at_rest():
            threads = ["%d/task/%s" % (controller, thread) for thread in os.listdir("/proc/%d/task" % controller)]
            apart = [child for child, parent in runs.parents().items() if parent == controller and runs.command_line(child) == own]
            return not apart and all(process_state(thread) == "T" for thread in threads)

        def stands():
            os.kill(controller, signal.SIGSTOP)
            end = time.monotonic() + 2
            while not is_at_rest():
                if time.monotonic() > end:  # it was stopped with a lock in hand, for which what it does apart waits
                    os.kill(controller, signal.SIGCONT)
                    return False
                time.sleep(0.01)
            return True
        self.wait_for(stands, "the controller to stand still")

    def make_freezer(self):
        """For `freeze`; made before anything is started, as not every user may."""
        group = "/sys/fs/cgroup/freezer/trainyard-test-" + uuid.uuid4().hex[:8]
        try:
            os.mkdir(group)
        except OSError:
            self.skipTest("no freezer cgroup (version 1) may be made here")
        self.addCleanup(os.rmdir, group)
        return group

    def freeze(self, pid, group):
        """Nothing ends this process, SIGKILL included, until the test is over."""

        def write(name, text):
            with open(os.path.join(group, name), "w") as file:
                file.write(text)

        def thaw():
            write("freezer.state", "THAWED")
            self.wait_for(lambda: process_state(pid) in "ZX", "the end of the frozen process")
        self.addCleanup(thaw)
        write("cgroup.procs", str(pid))
        write("freezer.state", "FROZEN")
        self.wait_for(lambda: process_state(pid) == "D", "a process that cannot be killed")

    def frozen_storage(self):
        """A file system of its own, the storage of the test's runs, and the functions that freeze it and let it go on: who writes to it
        meanwhile cannot even be killed."""
        if os.geteuid() != 0:
            self.skipTest("only root may make a file system and freeze it")
        around = tempfile.mkdtemp(prefix="trainyard-test-")
        self.addCleanup(shutil.rmtree, around)
        image, place = os.path.join(around, "image"), os.path.join(around, "mounted")
        os.mkdir(place)
        with open(image, "wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        if subprocess.run(["mount", "-o", "loop", image, place], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no loop device may be mounted here")
        self.storage = os.path.join(place, "runs")
        frozen = []

        def freeze():
            subprocess.run(["fsfreeze", "-f", place], check=True)
            frozen.append(place)

        def thaw():
            if frozen:
                subprocess.run(["fsfreeze", "-u", frozen.pop()], check=True)

        def clear():
            thaw()
            self.wait_for(lambda: subprocess.run(["umount", place], stderr=subprocess.DEVNULL).returncode == 0, "the end of the storage")
        self.addCleanup(clear)
        return freeze, thaw

    def hang_directory(self, path):
        """Whoever asks for something below the directory from here on gets no answer; the function ends that, and it is as before."""
        if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
            self.skipTest("only root may mount a file system that nobody serves")
        device, libc = os.open("/dev/fuse", os.O_RDWR), ctypes.CDLL(None, use_errno=True)
        options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % device
        if libc.mount(b"hangs", os.fsencode(path), b"fuse", 0, options) != 0:
            os.close(device)
            self.skipTest("no FUSE here: " + os.strerror(ctypes.get_errno()))
        mounted = [path]

        def answer():
            if mounted:
                os.close(device)  # whoever waits gets an error
                subprocess.run(["umount", "-l", mounted.pop()], check=True)
        self.addCleanup(answer)
        return answer

    def few_processes(self, n):
        """How a command is started that may have `n` processes more: the limit does not hold for root."""
        limit = lambda used: {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NPROC, (used + n, used + n))}
        if os.geteuid() == 0:
            os.makedirs(self.storage)
            command = self.command_for_all()
            for path in (self.place, self.work, self.storage):
                os.chmod(path, 0o777)
            return {"user": 61000 + os.getpid() % 4000, "executable": command, **limit(0)}  # no user of a test beside this one
        used = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                used += len(os.listdir("/proc/%s/task" % pid)) if os.stat("/proc/" + pid).st_uid == os.getuid() else 0
        return limit(used)

    def pids_of(self, process, n):
        """The one agent, and the workers in rank order, which wrote their pids into ready.RANK."""
        self.ready(process, n)
        self.wait_for(lambda: all(self.read("ready.%d" % rank).endswith("\n") for rank in range(n)), "pids", process)
        return self.agents(process)[0], [int(self.read("ready.%d" % rank)) for rank in range(n)]


main = harness.main
