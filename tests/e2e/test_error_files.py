"""What workers write to TORCHELASTIC_ERROR_FILE, as PyTorch's @record does: the cause that is told, and what is no such file."""

import os

from harness import main
from runs import RunCase

# record(message, stack): as PyTorch writes it; at(T): time of the file and of what it says.
RECORD = r"""
import json, os, signal, sys, time
rank = int(os.environ["RANK"])
path = os.environ["TORCHELASTIC_ERROR_FILE"]
def record(message, stack="Traceback (most recent call last):\n  File \"t.py\", line 7, in step\nValueError: hidden\n", at=None):
    at = time.time() if at is None else at
    with open(path, "w") as file:
        json.dump({"message": {"message": message, "extraInfo": {"py_callstack": stack, "timestamp": str(int(at))}}}, file)
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)
def make(name):
    open(name, "w").close()
"""


class ErrorFiles(RunCase):
    def failing(self, source, *args, n=1, status=1):
        finished = self.finish(self.python(RECORD + source, "-n", n, "--name", "r", *args))
        return self.assert_status(status, finished)

    def log(self, rank=0):
        with open(os.path.join(self.storage, "r", "logs", "rank-%d.log" % rank)) as file:
            return file.read()

    def leftovers(self, void):
        return [line for line in super().leftovers(void) if not line.endswith("error.json")]

    def test_what_it_says_is_the_cause(self):
        finished = self.failing('record("ValueError: bad loss\\nsecond line")\nsys.exit(1)')
        self.assertIn("first cause: rank 0 exited with code 1, ValueError: bad loss", finished.err)
        self.assertNotIn("second line", finished.err)
        self.assertIn('    | Traceback (most recent call last):\n    |   File "t.py", line 7, in step\n    | ValueError: hidden\n', finished.err)
        self.assertIn("ValueError: hidden", self.log())
        self.assertIn("ValueError: bad loss", str(self.status("r")))

    def test_what_was_printed_is_not_shown_again(self):
        finished = self.failing('record("ValueError: x")\nprint("ValueError: hidden", file=sys.stderr)\nsys.exit(3)', status=3)
        self.assertEqual(1, finished.err.count("    | ValueError: hidden"))
        self.assertNotIn("Traceback", finished.err)

    def test_the_earliest_is_the_cause_though_it_ends_last(self):
        """Rank 1 fails and lingers; rank 0 fails of that, and ends first."""
        for name in ("told", "killed"):
            with self.subTest(name):
                self.forget()
                source = ('if rank == 1:\n    record("OSError: the disk of rank 1")\n    make("there.1")\n'
                          '    signal.signal(signal.SIGTERM, lambda *_: sys.exit(4)) if %r == "told" else None\n    make("ready.1")\n    time.sleep(100000)\n'
                          'wait_for("ready.1")\ntime.sleep(0.05)\n'
                          'if rank == 0:\n    record("ConnectionError: rank 1 is gone")\n    sys.exit(9)\ntime.sleep(100000)\n' % name)
                path = os.path.join(self.work, "program.py")
                if os.path.exists(path):
                    os.unlink(path)
                finished = self.finish(self.python(RECORD + source, "-n", 3, "--name", name))
                code = 4 if name == "told" else 1
                self.assert_status(code, finished)
                self.assertIn("first cause: rank 1 exited with code %d, OSError: the disk of rank 1" % code, finished.err)
                self.assertIn("rank 0 failed after it", finished.err)
                self.assertIn("rank 2 stopped when told to", finished.err)

    def test_one_that_fails_of_the_stop_is_not(self):
        source = ('def fall(*_):\n    record("RuntimeError: stopped")\n    sys.exit(1)\n'
                  'if rank == 1:\n    signal.signal(signal.SIGTERM, fall)\n    make("ready.1")\n    time.sleep(100000)\n'
                  'wait_for("ready.1")\nrecord("ValueError: mine")\nsys.exit(1)')
        finished = self.failing(source, n=2)
        self.assertIn("first cause: rank 0 exited with code 1, ValueError: mine", finished.err)
        self.assertIn("rank 1 stopped when told to", finished.err)

    def test_an_older_form(self):
        finished = self.failing('json.dump({"message": "just words", "timestamp": int(time.time())}, open(path, "w"))\nsys.exit(1)')
        self.assertIn("exited with code 1, just words", finished.err)

    def test_of_an_attempt_before_says_nothing(self):
        source = 'if os.environ["TRAINYARD_ATTEMPT"] == "1":\n    record("ValueError: the first")\nsys.exit(2)'
        finished = self.failing(source, "--max-failures", 1, status=2)
        self.assertIn("rank 0 exited with code 2, ValueError: the first", finished.err)
        self.assertIn("first cause: rank 0 exited with code 2, on node", finished.err)

    def test_what_is_no_such_file(self):
        sources = {
            "link": 'open("elsewhere", "w").write(json.dumps({"message": "SECRET"}))\nos.symlink(os.path.abspath("elsewhere"), path)',
            "fifo": "os.mkfifo(path)",
            "directory": "os.mkdir(path)",
            "socket": "import socket\nos.chdir(os.path.dirname(path))\nsocket.socket(socket.AF_UNIX).bind(os.path.basename(path))",
            "large": 'file = open(path, "w")\nfile.write(\'{"message": "SECRET"}\')\nfile.truncate(1 << 30)',
            "empty": 'open(path, "w")', "words": 'open(path, "w").write("SECRET")', "list": 'open(path, "w").write("[1, 2]")',
            "deep": 'open(path, "w").write("[" * 100000)', "bytes": 'open(path, "wb").write(bytes(range(256)))',
            "cut": 'open(path, "w").write(\'{"message": "SECRET\')', "number": 'open(path, "w").write(\'{"message": 7}\')',
        }
        for name, source in sources.items():
            with self.subTest(name):
                path = os.path.join(self.work, "program.py")
                if os.path.exists(path):
                    os.unlink(path)
                finished = self.finish(self.python(RECORD + source + "\nsys.exit(6)", "--name", name))
                self.assert_status(6, finished)
                self.assertIn("first cause: rank 0 exited with code 6, on node", finished.err)
                self.assertNotIn("SECRET", finished.err)
                place = os.path.join(self.storage, name, "logs", "rank-0.error.json")
                if os.path.isdir(place) and not os.path.islink(place):
                    os.rmdir(place)
                else:
                    os.unlink(place)

    def test_times_that_cannot_be(self):
        """A timestamp of long ago, or ahead, makes nobody the first."""
        for name, at in (("past", 5), ("future", 2 ** 40), ("huge", 2 ** 63 - 1), ("negative", -1)):
            with self.subTest(name):
                self.forget()
                source = ('if rank == 1:\n    signal.signal(signal.SIGTERM, lambda *_: (record("KeyError: late", at=%d), sys.exit(1)))\n'
                          '    make("ready.1")\n    time.sleep(100000)\nwait_for("ready.1")\nsys.exit(8)' % at)
                path = os.path.join(self.work, "program.py")
                if os.path.exists(path):
                    os.unlink(path)
                finished = self.finish(self.python(RECORD + source, "-n", 2, "--name", name))
                self.assert_status(8, finished)
                self.assertIn("first cause: rank 0 exited with code 8", finished.err)

    def test_it_is_shown_harmless(self):
        finished = self.failing('record("\\x1b[2J\\u202eevil" + "x" * 5000, "\\x1b]0;title\\x07last\\n")\nsys.exit(1)')
        self.assertNotIn("\x1b", finished.err)
        self.assertNotIn("\u202e", finished.err)
        self.assertLess(len(finished.err), 2000)

    def test_the_log_that_is_named_is_there(self):
        finished = self.finish(self.shell("exit 5", "--name", "silent"))
        self.assert_status(5, finished)
        path = finished.err.partition("all of its output: ")[2].strip()
        self.assertEqual(os.path.join(self.storage, "silent", "logs", "rank-0.log"), path)
        self.assertEqual(0, os.path.getsize(path))

    def test_a_restart_makes_no_logs_of_ranks_that_print_nothing(self):
        finished = self.finish(self.shell("[ $RANK = 1 ] && exit 5; exec sleep 3077", "-n", 4, "--num-cpus", 4, "--max-failures", 1, "--name", "silent"))
        self.assert_status(5, finished)
        self.assertEqual(["rank-1.log"], os.listdir(os.path.join(self.storage, "silent", "logs")))


if __name__ == "__main__":
    main()
