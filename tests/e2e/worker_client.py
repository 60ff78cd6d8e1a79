"""A worker's side of docs/worker-protocol.md in plain Python, written from that page alone."""

import json
import os
import socket
import struct

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])


def stat(pid):
    """What /proc tells of a process, from its state on."""
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rpartition(")")[2].split()


class Channel:
    def __init__(self, end=None):
        self.socket = end or socket.socket(fileno=os.dup(int(os.environ["TRAINYARD_FD"])))
        self.bytes = b""

    def say(self, line, value=b""):
        self.socket.sendall((line if isinstance(line, bytes) else line.encode()) + b"\n" + value)

    def hear(self):
        """The next answer, and the bytes of a value."""
        while b"\n" not in self.bytes:
            self.more()
        line, _, self.bytes = self.bytes.partition(b"\n")
        words = line.decode(errors="surrogateescape").split(" ", 1)
        if words[0] != "value":
            return line.decode(errors="surrogateescape"), None
        while len(self.bytes) < int(words[1]):
            self.more()
        value, self.bytes = self.bytes[:int(words[1])], self.bytes[int(words[1]):]
        return "value", value

    def more(self):
        got = self.socket.recv(1 << 20)
        if not got:
            raise EOFError("the agent is gone")
        self.bytes += got

    def ask(self, line, value=b""):
        self.say(line, value)
        return self.hear()

    def open(self):
        """Another channel of this worker."""
        ours, theirs = socket.socketpair()
        socket.send_fds(self.socket, [b"open\n"], [theirs.fileno()])
        theirs.close()
        return Channel(ours)

    # -- what training programs want

    def report(self, **metrics):
        self.say("report " + json.dumps(metrics))

    def set(self, key, value):
        assert self.ask("set %s %d" % (key, len(value)), value) == ("ok", None)

    def get(self, key):
        return self.ask("get " + key)[1]

    def wait(self, key, milliseconds=180000):
        return self.ask("wait %s %d" % (key, milliseconds))

    def add(self, key, delta):
        return int(self.ask("add %s %d" % (key, delta))[1])

    def gather(self, key, piece, milliseconds=180000):
        """Everybody's pieces, or the answer that says why not."""
        answer, value = self.ask("gather %s %d %d" % (key, milliseconds, len(piece)), piece)
        if answer != "value":
            return answer
        pieces = []
        while value:
            size, = struct.unpack("<I", value[:4])
            pieces.append(value[4:4 + size])
            value = value[4 + size:]
        return pieces

    def barrier(self, key):
        assert len(self.gather(key, b"")) == SIZE

    def begin(self, **metrics):
        """Number and directory of a checkpoint."""
        answer, _ = self.ask("checkpoint " + json.dumps(metrics))
        word, number, path = answer.split(" ", 2)
        assert word == "directory", answer
        os.makedirs(path, exist_ok=True)
        return int(number), path

    def commit(self, number, files="[]"):
        return self.ask("commit %d %s" % (number, files))[0]

    def commit_with_all(self, key, **metrics):
        """Commits a checkpoint without files once all have come to this barrier, behind its begin."""
        number, _ = self.begin(**metrics)
        self.barrier(key)
        answer = self.commit(number)
        assert answer.startswith("ok "), answer

    def checkpoint(self, contents, **metrics):
        """Hands over a checkpoint of these files; the answer."""
        number, path = self.begin(**metrics)
        for name, text in contents.items():
            with open(os.path.join(path, name), "w") as file:
                file.write(text)
        return self.commit(number)
