"""Workers that things are done to: programs/subject.c, and the file through which they tell who they are."""
import mmap
import os
import struct
import time
from collections import namedtuple

ENTRY = struct.Struct("<qiiii40x")  # struct entry of subject.c
PID_AT = 12  # in an entry
RANKS = 1024

Entry = namedtuple("Entry", "told_ns signal pid daemon ready")


class Subjects:
    """A command of n subjects: `argv` is their program; started by whoever launches it."""

    def __init__(self, bench, n, mode):
        self.n = n
        self.path = os.path.join(bench.directory, f"subjects-{time.monotonic_ns()}")
        with open(self.path, "wb") as f:
            f.truncate(RANKS * ENTRY.size)
        with open(self.path, "r+b") as f:
            self._map = mmap.mmap(f.fileno(), RANKS * ENTRY.size)
        self._numbers = memoryview(self._map).cast("i")
        self.argv = [bench.program("subject"), self.path, mode]

    def entries(self):
        return [Entry(*ENTRY.unpack_from(self._map, rank * ENTRY.size)) for rank in range(self.n)]

    def pids(self):
        """Of all ranks, for who asks again and again: entries() would take an eighth of a processor from who is measured."""
        words = ENTRY.size // 4
        return self._numbers[PID_AT // 4:words * self.n:words].tolist()

    def wait_ready(self, child, seconds=20):
        """The entries once all are there; None when the launcher ended, or it took too long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and child.poll() is None:
            entries = self.entries()
            if all(entry.ready for entry in entries):
                return entries
            time.sleep(0.002)
        return None

    def close(self):
        self._numbers.release()
        self._map.close()
        os.unlink(self.path)


def parent(pid):
    with open(f"/proc/{pid}/stat", "rb") as f:
        return int(f.read().rsplit(b")", 1)[1].split()[1])
