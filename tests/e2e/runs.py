"""Runs under test: where their processes are, what they tell, and the proof that nothing of them is left.

Workers work in `self.work`; all else below the test's place is the product's, so that any file that it leaves behind is found.
"""

import fcntl
import os
import random
import re
import stat
import struct
import sys
import time

import harness
from harness import Case, open_files, processes_with

PYTHON = sys.executable
F_OFD_GETLK = 36  # of <fcntl.h>; Python has no name for it
NEVER = "100000"  # seconds that a worker would sleep if nobody ended it

# What may stay of a run: its journal (with its companions, and the lock, when the writer was killed), samples of the hardware
# where it was slow, logs, checkpoints.
KEPT = re.compile(r"^(run\.lock|(run|usage)\.db(-wal|-shm)?|logs(/((rank-\d+|agent-[^/]+)\.log|rank-\d+\.stack))?|checkpoint_\d{6,}(/.*)?)$")


def soak(name, default):
    """How often a loop runs: the environment's say, for a long soak, or the test's."""
    return int(os.environ.get("TRAINYARD_TEST_" + name, default))


def seeds(count):
    """As many random generators, always the same ones; TRAINYARD_TEST_SEED begins elsewhere."""
    first = int(os.environ.get("TRAINYARD_TEST_SEED", 1))
    return ((seed, random.Random(seed)) for seed in range(first, first + count))


def parents():
    """Parent of each process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as file:
                    found[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    return found


def command_line(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def children(pid):
    """But for what a controller does apart for a moment, with its own memory: writing to the storage; looked at again it may be gone. And but
    for the sampler that an agent has after a while."""
    own = command_line(pid)
    found = {child: command_line(child) for child, parent in sorted(parents().items()) if parent == pid}
    return [child for child, words in found.items()
            if words[1:3] != [b"agent", b"--sample"] and (own[1:2] != [b"run"] or words not in (own, [], [b""]))]


def state_of(pid):
    """Its letter in /proc; none of a process that is gone."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def try_kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def is_pending(pid, number):
    """This signal is on its way to the process; to one that is gone none is."""
    try:
        with open("/proc/%d/status" % pid) as file:
            pending = next(line for line in file if line.startswith("ShdPnd:"))
    except OSError:
        return False
    return int(pending.split()[1], 16) >> (number - 1) & 1 == 1


def files_below(path):
    found = []
    for directory, names, files in os.walk(path):
        found += [os.path.relpath(os.path.join(directory, name), path) for name in names + files]
    return sorted(found)


def is_locked(path):
    """Somebody holds this lease; one that nobody holds is void, and removed by the next run that looks."""
    try:
        with open(path) as file:
            asked = fcntl.fcntl(file, F_OFD_GETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
    except FileNotFoundError:
        return False
    return struct.unpack("hhqqi4x", asked)[0] == fcntl.F_WRLCK


def held_elsewhere(names):
    """Those of these names in /dev/shm that a living process has open or mapped."""
    held = set()
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            with open("/proc/%s/maps" % pid) as file:
                text = "\n".join(open_files(pid)) + "\n" + file.read()
        except OSError:
            continue
        held |= {name for name in names if "/dev/shm/" + name in text}
    return held


class RunCase(Case):
    def setUp(self):
        super().setUp()
        self.work = os.path.join(self.place, "work")
        os.mkdir(self.work)
        self.shared_memory = set(os.listdir("/dev/shm"))

    def wait_for_files(self, process, *names):
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.work, name)) for name in names), ", ".join(names), process)

    def read(self, *path):
        with open(os.path.join(self.work, *path)) as file:
            return file.read()

    def forget(self):
        """What workers of an earlier run told by files."""
        for name in os.listdir(self.work):
            if name.partition(".")[0] in ("ready", "daemon", "there", "go"):
                os.unlink(os.path.join(self.work, name))

    def start_run(self, *args, env=None, **more):
        return super().start_run(*args, env=env, cwd=more.pop("cwd", self.work), **more)

    def shell(self, script, *args, env=None, **more):
        """Starts a run of `sh -c script`."""
        return self.start_run(*args, "--", "sh", "-c", script, env=env, **more)

    def python(self, source, *args, env=None, **more):
        """Starts a run of a Python program."""
        path = os.path.join(self.work, "program.py")
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(source)
        return self.start_run(*args, "--", PYTHON, "-S", "-E", path, env=env, **more)

    def ready(self, process, n):
        """All of `n` ranks have made their file ready.RANK."""
        self.wait_for_files(process, *("ready.%d" % rank for rank in range(n)))

    def signal(self, process, number, times=1):
        """Sends a signal so often; one that is sent while another like it is on its way would be lost."""
        for _ in range(times):
            process.send_signal(number)
            self.wait_for(lambda: not is_pending(process.pid, number), "the end of the signal's way")

    def agents(self, process):
        return self.wait_for(lambda: children(process.pid), "the agents", process)

    def status(self, name):
        return self.assert_status(0, self.trainyard("status", name, "--storage-path", self.storage, "--format", "json")).json

    def leftovers(self, void):
        """Everything of ended runs that should not be there, in words; void leases pass when they may be there."""
        told = ["process %d" % pid for pid in processes_with(self.place)]
        told += ["lease %s" % name for name in self.lease_files() if not void or is_locked(os.path.join(self.leases, name))]
        for path in files_below(self.place):
            try:
                mode = os.lstat(os.path.join(self.place, path)).st_mode
            except FileNotFoundError:
                continue  # gone meanwhile
            top, _, rest = path.partition("/")
            if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
                told.append("socket or pipe %s" % path)
            elif top == "runs":
                name, _, kept = rest.partition("/")
                if kept and not KEPT.match(kept):
                    told.append("file %s" % path)
            elif top not in ("work", "leases"):
                told.append("file %s" % path)
        new = set(os.listdir("/dev/shm")) - self.shared_memory
        told += ["shared memory %s" % name for name in sorted(new - held_elsewhere(new))] if new else []
        return told

    def assert_clean(self, void=False):
        """Nothing is left; what the kernel still takes down after a kill may take its time. A controller that is killed before it
        has an agent may leave a void lease."""
        deadline = time.monotonic() + 60
        while True:
            told = self.leftovers(void)
            if not told:
                return
            if time.monotonic() > deadline:
                self.fail("left behind: " + ", ".join(told))
            time.sleep(0.02)

    def assert_ended(self, name, *states):
        """The run's directory tells how it ended."""
        one = self.status(name)
        self.assertIn(one["state"], states, one)
        text = self.assert_status(0, self.trainyard("status", name, "--storage-path", self.storage)).out
        self.assertIn(one["state"], text)
        self.assert_status(0, self.trainyard("logs", name, "--storage-path", self.storage))
        return one


main = harness.main
