"""Workers that speak docs/worker-protocol.md by hand, against the real agent and controller: what they report arrives whole and in
order, what they hand over is a checkpoint when all ranks did, and no line of theirs does harm."""

import json
import os
import shutil
import signal
import sqlite3
import time

import harness
from harness import COMMAND
from runs import PYTHON, RunCase, main, seeds, soak

HEAD = "import json, os, random, signal, socket, subprocess, sys, threading, time\nfrom worker_client import RANK, SIZE, Channel, stat\nc = Channel()\n"


class ProtocolCase(RunCase):
    def setUp(self):
        super().setUp()
        shutil.copy(os.path.join(harness.HERE, "worker_client.py"), self.work)

    def workers(self, n, source, *args, name="run", status=0, env=None, timeout=180):
        """Runs `source` in n workers to the end."""
        program = self.write("work/program.py", HEAD + source)
        finished = self.run_workers("--name", name, "-n", n, *args, "--", PYTHON, "-B", "-S", "-E", program, env=env, timeout=timeout)
        self.assert_status(status, finished)
        self.assert_clean()
        return finished

    def start_workers(self, n, source, *args, name="run"):
        program = self.write("work/program.py", HEAD + source)
        return self.start_run("--name", name, "-n", n, *args, "--", PYTHON, "-B", "-S", "-E", program)

    def rows(self, query, name="run"):
        database = sqlite3.connect("file:%s?mode=ro" % os.path.join(self.storage, name, "run.db"), uri=True)
        try:
            return database.execute(query).fetchall()
        finally:
            database.close()

    def reports(self, rank, name="run", attempt=1):
        """Metrics of a rank, in order; their numbers are checked."""
        rows = self.rows("SELECT number, metrics FROM reports WHERE rank = %d AND attempt = %d ORDER BY id" % (rank, attempt), name)
        numbers = [number for number, _ in rows]
        self.assertEqual(list(range(numbers[0] if numbers else 1, (numbers[0] if numbers else 1) + len(numbers))), numbers)
        return [json.loads(metrics) for _, metrics in rows]

    def checkpoints(self, name="run"):
        """The committed ones: the journal and the directory agree."""
        rows = self.rows("SELECT number, name FROM checkpoints ORDER BY number", name)
        there = sorted(entry for entry in os.listdir(os.path.join(self.storage, name)) if "checkpoint" in entry)
        self.assertEqual([entry for _, entry in rows], there)
        return [number for number, _ in rows]

    def checkpoint_files(self, number, name="run"):
        path = os.path.join(self.storage, name, "checkpoint_%06d" % number)
        manifest = json.loads(self.read_bytes(path, ".metadata.json"))
        listed = {one["path"]: one for one in manifest["trainyard"]["files"]}
        found = {}
        for directory, _, files in os.walk(path):
            for file in files:
                inside = os.path.relpath(os.path.join(directory, file), path)
                if inside != ".metadata.json":
                    found[inside] = self.read_bytes(path, inside).decode()
        self.assertEqual(set(listed), set(found))
        for inside, text in found.items():
            self.assertEqual(len(text), listed[inside]["size"])
        return found

    def read_bytes(self, *path):
        with open(os.path.join(*path), "rb") as file:
            return file.read()


class Reports(ProtocolCase):
    def test_of_all_ranks_in_order(self):
        self.workers(4, "for i in range(500): c.report(step=i, rank=RANK, loss=1 / (i + 1))\n")
        for rank in range(4):
            self.assertEqual([{"step": i, "rank": rank, "loss": 1 / (i + 1)} for i in range(500)], self.reports(rank))
        self.assertEqual(list(range(1, 2001)), [row[0] for row in self.rows("SELECT id FROM reports ORDER BY id")])
        self.assertEqual(2000, self.status("run")["reports"])

    def test_none_is_lost_at_the_end(self):
        """The last ones before an end of any kind, in one write."""
        ends = {"exits": ("os._exit(0)", 0), "fails": ("os._exit(7)", 7), "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", 139),
                "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", 137), "returns": ("pass", 0)}
        for how, (end, status) in ends.items():
            with self.subTest(how):
                name = how.replace(" ", "-")
                self.workers(2, "c.socket.sendall(b''.join(b'report {\"step\": %d}\\n' % i for i in range(300)))\n"
                                "c.barrier('sent')\n"
                                "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
                                "if RANK == 1: " + end + "\nelse: c.report(step=300)\n", name=name, status=status)
                self.assertEqual([{"step": i} for i in range(300)], self.reports(1, name))
                self.assertEqual([{"step": i} for i in range(300)], self.reports(0, name)[:300])

    def test_none_is_lost_behind_answers_that_nobody_reads(self):
        """The worker has gone when the agent comes to the lines that are wrong."""
        self.workers(2, "c.socket.sendall(b''.join(b'wrong\\n' if i % 100 == 0 else b'report {\"step\": %d}\\n' % i for i in range(20000)))\n"
                        "os._exit(0)\n")
        for rank in range(2):
            self.assertEqual([{"step": i} for i in range(20000) if i % 100], self.reports(rank))

    def test_none_comes_behind_the_end_though_the_controller_does_not_keep_up(self):
        """The agent reads no output any more when a worker makes its last report, and ends."""
        self.workers(2, r"""
import select
if RANK == 0:
    c.commit_with_all("begun", rank=0)
    os._exit(0)
c.barrier("begun")
me, controller = os.getpid(), int(stat(os.getppid())[1])
os.kill(controller, signal.SIGSTOP)
while stat(controller)[0] != "T": pass
if os.fork() == 0:
    os.setsid()
    c.socket.close()
    os.close(int(os.environ["TRAINYARD_FD"]))
    os.close(1)
    while os.path.exists("/proc/%d" % me): time.sleep(0.01)
    os.kill(controller, signal.SIGCONT)
    os._exit(0)
os.set_blocking(1, False)
while True:
    try: os.write(1, (b"-" * 63 + b"\n") * 64)
    except BlockingIOError:
        if not select.select([], [1], [], 1)[1]: break
c.report(rank=1)
os._exit(0)
""")
        self.assertEqual([{"rank": 1}], self.reports(1))
        self.assertEqual([1], self.checkpoints())

    def test_none_comes_behind_the_end_of_a_worker_that_did_not_read_its_answer(self):
        """More than the socket holds is on its way to it, and a child that has the socket outlives it, and reads the answers in its place."""
        self.workers(2, r"""
if RANK == 1:
    number, path = c.begin(rank=1)
    c.set("begun", b"")
    answer = c.ask("commit %d []" % number)
    assert answer[0].startswith("ok "), answer
    os._exit(0)
c.wait("begun")
c.set("large", b"x" * (1 << 20))
c.say("get large")
c.socket.recv(1, socket.MSG_PEEK)
me = os.getpid()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while os.getppid() == me: time.sleep(0.01)
    answers = [c.hear(), c.hear()]
    assert answers == [("value", b"x" * (1 << 20)), ("value", b"7")], [len(value) for _, value in answers]
    open("heard", "w").close()
    os._exit(0)
c.report(rank=0)
c.say("add n 7")
os._exit(0)
""", "--grace", "1h")
        self.assertEqual([{"rank": 0}], self.reports(0))
        self.assertEqual([1], self.checkpoints())
        self.assertTrue(os.path.exists(os.path.join(self.work, "heard")))

    def test_of_the_fastest_worker(self):
        """More than any queue holds, without a pause."""
        self.workers(2, "for i in range(100): c.socket.sendall(b'report {\"a\": 1, \"b\": 2.5}\\n' * 500)\n")
        self.assertEqual([(0, 50000), (1, 50000)], self.rows("SELECT rank, count(*) FROM reports GROUP BY rank ORDER BY rank"))

    def test_numbers_that_are_none(self):
        lines = ['{"a": NaN, "b": Infinity, "c": -Infinity}', '{"a": "NaN", "b": "Infinity", "c": "-Infinity"}',
                 '{"a": 1e999, "b": -1e999, "c": 1e-999}', '{"a": 123456789012345678901234567890, "b": -0.0, "c": 5e-324}', '{}']
        self.workers(1, "for line in %r: c.say('report ' + line)\nassert c.ask('get x') == ('none', None)\n" % lines)
        found = self.reports(0)
        strings = {"a": "NaN", "b": "Infinity", "c": "-Infinity"}
        self.assertEqual([strings, strings], found[:2])
        self.assertEqual(("Infinity", "-Infinity", 0), (found[2]["a"], found[2]["b"], found[2]["c"]))
        self.assertAlmostEqual(1.2345678901234568e29, float(found[3]["a"]), delta=1e15)
        self.assertEqual((0, 5e-324), (found[3]["b"], found[3]["c"]))
        self.assertEqual({}, found[4])

    def test_names_of_metrics(self):
        metrics = {"loss/träin": 1, "a b": 2, "\u0001\u001b[31m": 3, "": 4, "x" * 5000: 5, "'; DROP TABLE reports; --": 6}
        self.workers(1, "c.report(**json.loads(%r))\n" % json.dumps(metrics))
        self.assertEqual([metrics], self.reports(0))
        shown = self.trainyard("status", "run", "--storage-path", self.storage)
        self.assertNotIn("\x1b", self.assert_status(0, shown).out)

    def test_attempts_are_told_apart(self):
        self.workers(2, "attempt = int(os.environ['TRAINYARD_ATTEMPT'])\n"
                        "for i in range(3): c.report(attempt=attempt, step=i)\n"
                        "c.barrier('x')\n"
                        "if attempt < 3 and RANK == 0: os._exit(1)\n"
                        "if attempt < 3: time.sleep(1000)\n", "--max-failures", "2")
        for attempt in (1, 2, 3):
            for rank in range(2):
                self.assertEqual([{"attempt": attempt, "step": i} for i in range(3)], self.reports(rank, attempt=attempt))
        numbers = [row[0] for row in self.rows("SELECT number FROM reports WHERE rank = 0 ORDER BY id")]
        self.assertEqual(list(range(1, 10)), numbers)

    def test_ready_and_rendezvous_are_events(self):
        self.workers(2, "c.say('ready'); c.say('rendezvous'); c.say('ready'); c.say('rendezvous')\n")
        for kind in ("ready", "rendezvous"):
            self.assertEqual([(0,), (1,)], self.rows("SELECT rank FROM events WHERE kind = '%s' ORDER BY rank" % kind))
        phases = {one["phase"] for one in self.status("run")["start_up"]}
        self.assertLessEqual({"interpreter or loader", "rendezvous"}, phases)


class Store(ProtocolCase):
    def test_values_of_any_bytes(self):
        self.workers(2, r"""
values = [b"", b"x", bytes(range(256)), b"\n" * 100, b"value 3\nabc", os.urandom(1 << 20)]
if RANK == 0:
    for i, value in enumerate(values): c.set("v%d" % i, value)
    c.set("last", values[-1])
else:
    assert c.wait("last")[0] == "value"
    for i, value in enumerate(values[:-1]): assert c.get("v%d" % i) == value, i
    assert c.get("v5") == c.get("last")
assert c.ask("get nothing") == ("none", None)
for key in ("a/b", "ключ", "k" * 255, "a=b", "--", "..", "%s"):
    c.set(key, key.encode()); assert c.get(key) == key.encode()
""")

    def test_wait(self):
        self.workers(2, r"""
if RANK == 0:
    assert c.ask("wait never 20") == ("timeout", None)
    assert c.ask("wait never 0") == ("timeout", None)
    c.set("go", b"1")
    assert c.ask("wait answer -1") == ("value", b"42")
else:
    assert c.wait("go") == ("value", b"1")
    time.sleep(0.05)
    c.set("answer", b"42")
""")

    def test_add(self):
        self.workers(4, r"""
seen = [c.add("count", 1) for _ in range(200)]
assert seen == sorted(set(seen))
c.set("seen-%d" % RANK, json.dumps(seen).encode())
c.barrier("all")
assert c.add("count", 0) == 800
if RANK == 0:
    every = sorted(n for rank in range(4) for n in json.loads(c.get("seen-%d" % rank)))
    assert every == list(range(1, 801))
    assert c.add("down", -5) == -5 and c.get("down") == b"-5"
    c.set("text", b"not a number")
    assert c.ask("add text 1")[0].startswith("error ")
    c.set("far", b"9223372036854775807")
    assert c.ask("add far 1")[0].startswith("error ")
    assert c.get("far") == b"9223372036854775807"
""")

    def test_gather(self):
        self.workers(4, r"""
for turn in range(20):
    pieces = c.gather("turn-%d" % turn, b"%d:%d" % (RANK, turn) * (RANK + 1))
    assert pieces == [b"%d:%d" % (rank, turn) * (rank + 1) for rank in range(4)], pieces
big = c.gather("big", bytes([RANK]) * 500000)
assert [len(piece) for piece in big] == [500000] * 4 and big[3][:1] == b"\x03"
# The same key may be used again when all have been served.
c.barrier("between")
assert c.gather("turn-0", b"again") == [b"again"] * 4
""")

    def test_a_gather_that_is_larger_than_a_message(self):
        """Every rank gets all of it: read and dropped, so that the test takes little memory itself."""
        self.workers(65, r"""
piece = bytes([RANK]) * (1 << 20)
c.say("gather all -1 %d" % len(piece), piece)
while b"\n" not in c.bytes: c.more()
line, _, rest = c.bytes.partition(b"\n")
assert line == b"value %d" % (SIZE * ((1 << 20) + 4)), line
left, last = int(line.split()[1]) - len(rest), rest[-1:]
while left > 0:
    got = c.socket.recv(min(left, 1 << 18))
    assert got, "the agent is gone"
    left, last = left - len(got), got[-1:]
assert left == 0 and last == bytes([SIZE - 1])
c.bytes = b""
assert len(c.gather("after", b"", -1)) == SIZE
""", timeout=300)

    def test_what_is_over_the_limit_is_refused_with_the_sizes(self):
        self.workers(2, r"""
if RANK == 0:
    for i in range(512):
        answer, _ = c.ask("set k%d %d" % (i, 1 << 20), b"x" * (1 << 20))
        if answer != "ok": break
    assert i == 511 or i == 510, i
    assert answer.startswith("error the store holds 53") and "over its limit of 536870912 bytes" in answer, answer
    c.set("k0", b"")
    c.set("again", b"x" * (1 << 20))
assert len(c.gather("filled", b"", -1)) == SIZE
answer = c.gather("more", b"y" * (1 << 20), -1)
assert isinstance(answer, str) and answer.startswith("error ") and "536870912" in answer, answer
assert len(c.gather("end", b"", -1)) == SIZE
""", timeout=300)

    def test_a_time_out_of_any_length(self):
        waits = ["0", "1", "2147483648", "4294967296", "9223372036854", "9223372036855", "18446744073709", "18446744073710", "9223372036854775807"]
        self.workers(2, r"""
if RANK == 0:
    others = [(text, c.open()) for text in %r]
    for text, other in others: other.say("wait zz " + text)
    for text, other in others:
        if text in ("0", "1"): assert other.hear() == ("timeout", None), text
    c.set("zz", b"here")
    for text, other in others:
        if text not in ("0", "1"): assert other.hear() == ("value", b"here"), text
    for text in ("18446744073709551616", "-2", "9223372036854775808", "nan", "1e999", "inf", "", "0x10", "1.0"):
        for line in ("wait zz " + text, "gather g %%s 0" %% text): assert c.ask(line)[0].startswith("error "), line
        if text != "-2": assert c.ask("set s " + text)[0].startswith("error ") and c.ask("add n " + text)[0].startswith("error "), text
""" % waits)

    def test_who_has_gone_waits_no_more(self):
        """A channel that is closed in a gather: its rank may ask again, which counts once."""
        self.workers(2, r"""
if RANK == 0:
    for i in range(20):
        other = c.open()
        other.say("gather all -1 1", b"a")
        assert c.add("turns", 1) > 0
        other.socket.close()
    c.set("gone", b"")
else:
    c.wait("gone", -1)
while isinstance(pieces := c.gather("all", b"b", -1), str): assert "already" in pieces, pieces
assert pieces == [b"a", b"b"], pieces
""")

    def test_gather_names_who_did_not_come(self):
        self.workers(4, r"""
c.barrier("before")
if RANK in (0, 2): assert c.gather("half", b"x", 5000) == "timeout 1,3"  # either of them may be late
c.barrier("after")
""")

    def test_the_reports_of_the_others_are_waited_for(self):
        """Behind its own reports of the same moment; by whoever is not there yet, in this attempt; without those who have ended."""
        self.workers(3, r"""
first = os.environ["TRAINYARD_ATTEMPT"] == "1"
c.barrier("before")
if RANK == 2:
    c.wait("asked"); c.report(a=1)
    if first: os._exit(1)
    sys.exit()
assert c.ask("reported 0 0")[0] == "ok"
c.say("report {}\nreported 0 0")
missing = ("timeout 2", ("timeout 1-2", "timeout 0,2")[RANK])
assert c.hear()[0] in missing
assert c.ask("reported 1 100")[0] in missing
other = c.open()
other.say("reported 1 -1")
if c.add("n", 1) == 2: c.set("asked", b"")
assert other.hear()[0] == "ok"
if RANK == 0:
    c.report(a=2)
    assert c.ask("reported 2 30000")[0] == "ok", "rank 2 has ended, and rank 1 comes"
else:
    while c.ask("reported 1 0")[0] != "ok" or c.ask("reported 2 0")[0] != "timeout 1": time.sleep(0.01)
    c.report(a=2)
""", "--max-failures", "1")

    def test_a_wait_for_reports_ends_with_its_channel_and_its_attempt(self):
        self.workers(2, r"""
if RANK == 0:
    for i in range(300):
        other = c.open()
        other.say("reported 1 -1")
        other.socket.close()
    c.say("reported 5 -1")
    c.bytes = b""
    if os.environ["TRAINYARD_ATTEMPT"] == "2": c.open().set("waits", b"")
else:
    if os.environ["TRAINYARD_ATTEMPT"] == "1": os._exit(3)
    c.wait("waits")
    for i in range(5): c.report(i=i)
    sys.exit()
for i in range(5): c.report(i=i)
assert c.hear()[0] == "ok"
""", "--max-failures", "1")

    def test_a_look_at_the_reports_of_the_others_is_no_sign_of_life(self):
        program = HEAD + "c.say('ready')\nwhile RANK == 0:\n    c.ask('reported 1 0')\n    time.sleep(0.02)\nwhile True:\n    c.say('heartbeat')\n    time.sleep(0.02)\n"
        finished = self.run_workers("--name", "run", "-n", 2, "--hang-timeout", "3s", "--", PYTHON, "-B", "-S", "-E", self.write("work/program.py", program), timeout=180)
        self.assert_status(1, finished)
        self.assertIn("first cause: rank 0 hung", finished.err)

    def test_attempts_have_stores_of_their_own(self):
        self.workers(2, "assert c.get('left') is None, 'of the attempt before'\nc.barrier('looked')\nc.set('left', b'x')\nc.barrier('set')\n"
                        "if os.environ['TRAINYARD_ATTEMPT'] == '1': os._exit(RANK)\n", "--max-failures", "1")

    def test_a_waiting_channel_holds_up_no_other(self):
        self.workers(2, r"""
if RANK == 0:
    other = c.open()
    c.say("wait late -1")
    for i in range(50): assert other.add("n", 1) > 0
    other.set("late", b"now")
    assert c.hear() == ("value", b"now")
    c.report(done=1)
""")
        self.assertEqual([{"done": 1}], self.reports(0))

    def test_requests_behind_a_waiting_one_keep_their_order(self):
        self.workers(2, r"""
if RANK == 0:
    other = c.open()
    c.say("wait late -1\nreport {\"step\": 1}\nget late\nset k 3", b"abc")
    c.say("get k\nnonsense\nget late")
    other.set("begun", b"")
    assert c.hear() == ("value", b"x"); assert c.hear() == ("value", b"x"); assert c.hear() == ("ok", None)
    assert c.hear() == ("value", b"abc"); assert c.hear()[0].startswith("error unknown"); assert c.hear() == ("value", b"x")
else:
    c.wait("begun"); c.set("late", b"x")
""")


class Hostile(ProtocolCase):
    REFUSED = [
        b"", b" ", b"nonsense", b"REPORT {}", b"report", b"report ", b"report 1", b"report []", b"report {", b'report {"a"}', b'report {"a": }',
        b'report {"a": 1} x', b'report {"a": 1, "a": ', b"report {\"a\": \x00}", b"\x00", b"report\t{}", b"report {\xff}",
        b"checkpoint", b"checkpoint []", b"commit", b"commit 1", b"commit 0 []", b"commit 1 []", b"commit -1 []", b"commit 99999999999999999999 []",
        b"commit x []", b"abort", b"abort 1", b"abort 1 why", b"set", b"set k", b"set k x", b"set k -1", b"set k 1.5", b"get", b"get ", b"get a\x01b",
        b"get " + b"k" * 256, b"wait k", b"wait k x", b"wait k -2", b"wait k 1.5", b"wait k 99999999999999999999", b"add k", b"add k x", b"add k 1.5",
        b"add k 99999999999999999999", b"add  1", b"gather k", b"gather k 10", b"gather k x 0", b"gather k 10 x", b"checkpoints 1", b"checkpoints now 1", b"reported", b"reported 1", b"reported x 0", b"reported -1 0", b"reported 1 x", b"reported 9223372036854775808 0",
        b"open", b"open now",
        b"value 3", b"ok", b"\xff\xfe\xfd", b"%s%s%n", b"../../etc/passwd", b"x" * 100000, b"y" * ((1 << 20) + 1), b"report " + b"z" * (1 << 20),
        b"[" * 100000, b"report " + b"[" * 100000, b'report {"a": ' + b"[" * 100000, b"commit 1 " + b"[" * 100000,
    ]

    def test_lines_that_are_not_understood(self):
        """Each has one answer, which is an error of one line; the channel goes on."""
        self.workers(1, "lines = %r\n" % self.REFUSED + r"""
for line in lines:
    answer, _ = c.ask(line)
    assert answer.startswith("error ") and len(answer) > 10, (line[:50], answer)
    assert c.ask("get x") == ("none", None), line[:50]
c.report(alive=1)
""")
        self.assertEqual([{"alive": 1}], self.reports(0))

    def test_values_that_are_too_long(self):
        self.workers(1, r"""
assert c.ask("set k %d" % ((1 << 20) + 1), b"x" * ((1 << 20) + 1))[0].startswith("error ")
assert c.ask("set k %d" % (1 << 25), b"get x\n" * ((1 << 25) // 6) + b"12")[0].startswith("error ")
assert c.ask("gather k 10 %d" % ((1 << 20) + 1), b"x" * ((1 << 20) + 1))[0].startswith("error ")
assert c.ask("set bad\x01key 6", b"get x\n")[0].startswith("error ")
assert c.ask("get k") == ("none", None)
""")

    def test_random_bytes(self):
        """Of a line's parts put together by chance, and of none: the agent stays, other ranks are not disturbed."""
        self.workers(2, r"""
words = [b"report", b"checkpoint", b"commit", b"abort", b"set", b"get", b"wait", b"add", b"gather", b"open", b"ready", b"{}", b"[]", b"1", b"0", b"-1",
         b"99999999999999999999", b"key", b'{"a": 1}', b"", b"\0", b"\xff", b"NaN", b'[{"path": "../x", "size": 1}]']
if RANK == 0:
    for seed in range(40):
        dice = random.Random(seed)
        other = c.open()
        other.socket.settimeout(0.2) # its last request may wait for ever
        sent = b"".join(dice.choice([b" ", b"\n", b"\n"]) + dice.choice(words) for _ in range(200)) + bytes(dice.randrange(256) for _ in range(50))
        try:
            other.socket.sendall(sent)
            other.socket.shutdown(socket.SHUT_WR)
            while other.socket.recv(1 << 16): pass
        except (BrokenPipeError, ConnectionResetError, socket.timeout):
            pass
        other.socket.close()
    assert c.ask("get x") == ("none", None)
    c.set("done", b"")
else:
    n = 1
    c.report(n=0)
    while c.ask("get done") == ("none", None): c.report(n=n); n += 1
""", "--grace", "1s")
        self.assertGreater(len(self.reports(1)), 0)

    def test_who_does_not_read_answers(self):
        """The agent keeps nothing without bound for it, and others go on."""
        self.workers(2, r"""
if RANK == 0:
    c.set("big", b"x" * (1 << 20))
    deaf = c.open()
    deaf.socket.settimeout(0.5)
    try:
        for _ in range(100000): deaf.socket.sendall(b"get big\n")
    except socket.timeout:
        pass
    assert len(c.get("big")) == 1 << 20
    c.report(alive=1)
else:
    for i in range(100): c.add("n", 1)
""")
        self.assertEqual([{"alive": 1}], self.reports(0))

    def test_channels_closed_at_any_point(self):
        self.workers(1, r"""
for line in (b"", b"rep", b"report {\"a\": 1}", b"get x\n", b"wait never -1\n", b"set k 10\nabc", b"gather g -1 3\nabc", b"checkpoint {}\n"):
    other = c.open(); other.socket.sendall(line); other.socket.close()
assert c.ask("get x") == ("none", None)
""")

    def test_channels_without_number(self):
        self.workers(1, r"""
kept = []
for i in range(400):
    ours, theirs = socket.socketpair()
    socket.send_fds(c.socket, [b"open\n"], [theirs.fileno()]); theirs.close()
    kept.append(Channel(ours))
assert c.ask("get x") == ("none", None)  # all have been looked at
refused = 0
for one in kept:
    one.socket.setblocking(False)
    try: answer, _ = one.hear()
    except BlockingIOError: answer = None  # open
    one.socket.setblocking(True)
    if answer is None: assert one.ask("get x") == ("none", None)
    else: assert answer.startswith("failed "), answer; refused += 1
assert 400 - 256 <= refused <= 400 - 200, refused
for one in kept: one.socket.close()
for i in range(300):
    other = c.open(); assert other.ask("get x") == ("none", None); other.socket.close()
""")

    def test_descriptors_that_are_no_sockets(self):
        self.workers(1, r"""
reader, writer = os.pipe()
null = os.open("/dev/null", os.O_RDWR)
datagrams = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
inet = socket.socket()
for fd in (reader, writer, null, datagrams[0].fileno(), inet.fileno()):
    socket.send_fds(c.socket, [b"open\n"], [fd])
    assert c.hear()[0].startswith("error "), fd
socket.send_fds(c.socket, [b"get x\n"], [null] * 20)
assert c.hear() == ("none", None)
""")

    def test_descriptors_without_an_open(self):
        """They are closed with the line that they came with, and no later `open` takes them."""
        self.workers(1, r"""
def send(*pieces):
    ours, theirs = socket.socketpair()
    socket.send_fds(c.socket, [pieces[0]], [theirs.fileno()])
    theirs.close()
    ours.settimeout(180)
    for piece in pieces[1:]: c.socket.sendall(piece)
    return ours

for pieces in ([b"get x\n"], [b"nonsense\n"], [b"get ", b"x\n"], [b"y" * 100000, b"\n"], [b"set k 10000000\n", b"open\n" * 2000000, b"\n"],
               [b"wait no 10\nget x\n"], [b"wait no 10\n", b"get x\n"]):
    ours = send(*pieces)
    c.hear()
    if len(pieces[-1]) == 1 and pieces[0][:3] == b"set": c.hear()
    if pieces[0][:4] == b"wait": c.hear()
    assert ours.recv(1) == b"", pieces[0]
    assert c.ask("open")[0].startswith("error "), pieces[0]

ours = send(b"se", b"t k 1\nxopen\nopen\n")
assert c.hear() == ("ok", None)
assert c.hear()[0].startswith("error ")
assert c.hear()[0].startswith("error ")
assert ours.recv(1) == b""
for pieces in ([b"open\n"], [b"op", b"en\n"], [b"get x\nopen\n"], [b"wait no 10\nopen\n"]):  # and these are its own
    other = Channel(send(*pieces))
    if len(pieces[0]) > 5: c.hear()
    assert other.ask("get x") == ("none", None), pieces
""")

    def test_strangers_that_write_on(self):
        """Behind the end of a worker, what lies in its channel is read and nothing else, however fast somebody goes on over it."""
        self.workers(1, r"""
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0: os._exit(0)
    lines = b"report {\"late\": 1}\n" * 5000
    os.fork()
    while True: c.socket.sendall(lines)
os.wait()
c.report(last=1)
""")

    def test_closed_channel_is_told_at_a_bad_end(self):
        close = ("fds = lambda: len(os.listdir('/proc/%d/fd' % os.getppid()))\n"
                 "before = fds(); c.socket.close(); os.closerange(3, 100)\n"
                 "while fds() >= before: time.sleep(0.01)\n"  # until the agent knows
                 "time.sleep(0.4); os._exit(9)\n")
        for name, before in ("ready", "c.say('ready'); "), ("never-said-a-word", ""):
            with self.subTest(name):
                finished = self.workers(1, before + close, name=name, status=9)
                self.assertIn("rank 0 exited with code 9, it had closed its report channel", finished.err)

    def test_a_channel_closed_on_the_way_out_is_not_told(self):
        """A process on its way out, as one whose driver takes back the memory of a device: its main thread has ended already."""
        finished = self.workers(1, """
import ctypes, platform
def end():
    while open("/proc/self/stat").read().rsplit(")", 1)[1].split()[0] != "Z": time.sleep(0.01)
    c.socket.close(); os.closerange(3, 100)
    time.sleep(0.5)
    os._exit(9)
threading.Thread(target=end).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
""", status=9)
        self.assertIn("rank 0 exited with code 9, on node", finished.err)


class Commands(ProtocolCase):
    def test_in_parallel(self):
        script = ("for i in 1 2 3 4 5 6; do '{0}' report step=$i rank=$RANK & '{0}' store add count 1 > /dev/null & done; wait; "
                  "'{0}' store set done-$RANK '' ; "
                  "for r in 0 1 2; do '{0}' store wait done-$r > /dev/null; done; [ $('{0}' store get count) = 18 ]").format(COMMAND)
        self.assert_status(0, self.finish(self.shell(script, "--name", "run", "-n", 3)))
        for rank in range(3):
            self.assertEqual([{"step": i, "rank": rank} for i in range(1, 7)], sorted(self.reports(rank), key=lambda one: one["step"]))
        self.assert_clean()

    def test_beside_the_worker_itself(self):
        """The worker speaks on its socket while its children open channels over it."""
        self.workers(2, "children = [subprocess.Popen([%r, 'report', 'child=%%d' %% i], close_fds=False) for i in range(5)]\n"
                        "for i in range(300): c.report(own=i); c.add('n', 1)\n"
                        "assert all(child.wait() == 0 for child in children)\n" % COMMAND)
        for rank in range(2):
            found = self.reports(rank)
            self.assertEqual(list(range(300)), [one["own"] for one in found if "own" in one])
            self.assertEqual(list(range(5)), sorted(one["child"] for one in found if "child" in one))

    def test_what_a_child_said_before_its_parent_comes_first(self):
        """Though the agent comes to look at it when all has been said, and the child is gone."""
        self.workers(1, r"""
agent = os.getppid()
for i in range(3):
    os.kill(agent, signal.SIGSTOP)
    while stat(agent)[0] != "T": pass
    child = c.open(); grandchild = child.open()
    grandchild.report(of="grandchild"); grandchild.socket.close()
    child.report(of="child"); child.socket.close()
    c.report(of="worker")
    os.kill(agent, signal.SIGCONT)
""")
        self.assertEqual([{"of": who} for who in ("grandchild", "child", "worker")] * 3, self.reports(0))

    def test_what_many_children_said_comes_before_the_end_of_their_worker(self):
        """Each on a channel of its own, and the agent looks at them when all are gone, the worker too."""
        self.workers(2, r"""
if RANK == 1:
    for i in range(40): c.report(step=i)
    c.commit_with_all("begun", step=40)
    os._exit(0)
c.barrier("begun")
agent, me = os.getppid(), os.getpid()
os.kill(agent, signal.SIGSTOP)
while stat(agent)[0] != "T": pass
if os.fork() == 0:
    os.setsid()
    c.socket.close()
    os.close(int(os.environ["TRAINYARD_FD"]))
    while stat(me)[0] != "Z": pass
    os.kill(agent, signal.SIGCONT)
    os._exit(0)
for i in range(41):
    child = c.open(); child.report(step=i); child.socket.close()
os._exit(0)
""")
        self.assertEqual([{"step": i} for i in range(41)], self.reports(0))
        self.assertEqual([41], self.checkpoints())

    def test_checkpoints_by_command(self):
        script = ("mkdir d$RANK; echo $RANK > d$RANK/part-$RANK; for i in 1 2 3; do echo $i > d$RANK/step-$RANK; "
                  "'%s' report step=$i --checkpoint d$RANK || exit 9; done" % COMMAND)
        self.assert_status(0, self.finish(self.shell(script, "--name", "run", "-n", 2)))
        self.assertEqual([1, 2, 3], self.checkpoints())
        for number in (1, 2, 3):
            self.assertEqual({"part-0": "0\n", "part-1": "1\n", "step-0": "%d\n" % number, "step-1": "%d\n" % number}, self.checkpoint_files(number))
        self.assert_clean()


class Checkpoints(ProtocolCase):
    def test_files_of_all_ranks_merge(self):
        self.workers(4, r"""
for step in (1, 2):
    answer = c.checkpoint({"rank-%d" % RANK: "step %d of %d" % (step, RANK)}, step=step)
    assert answer == "ok " + os.path.join(os.environ["TRAINYARD_RUN_PATH"], "checkpoint_%06d" % step), answer
    assert sorted(os.listdir(answer[3:])) == [".metadata.json"] + ["rank-%d" % rank for rank in range(4)]
""")
        self.assertEqual([1, 2], self.checkpoints())
        for number in (1, 2):
            self.assertEqual({"rank-%d" % rank: "step %d of %d" % (number, rank) for rank in range(4)}, self.checkpoint_files(number))
        self.assertEqual([{"step": 1}, {"step": 2}], self.reports(2))

    def test_some_ranks_only_report(self):
        self.workers(3, r"""
for step in range(1, 7):
    if RANK == 1 and step % 3 == 0: assert c.checkpoint({"model": "step %d" % step}, step=step).startswith("ok ")
    else: c.report(step=step)
""")
        self.assertEqual([3, 6], self.checkpoints())
        self.assertEqual({"model": "step 6"}, self.checkpoint_files(6))

    def test_nothing_is_to_be_seen_before_all_came(self):
        """Rank 0 has committed; until the last rank makes its report there is no checkpoint, then there is."""
        self.workers(3, r"""
run = os.environ["TRAINYARD_RUN_PATH"]
if RANK == 0:
    number, path = c.begin()
    open(path + "/a", "w").close()
    c.say("commit 1 []")
    other = c.open(); other.set("committed", b"")
    assert c.hear()[0].startswith("ok ")
    other.set("answered", b"")
elif RANK == 1:
    assert c.wait("committed")[0] == "value"
    c.report()
    c.set("one", b"")
else:
    c.wait("one")
    time.sleep(0.05)
    assert c.get("answered") is None
    assert not [name for name in os.listdir(run) if name.startswith("checkpoint")]
    c.report()
    assert c.wait("answered")[0] == "value"
""")
        self.assertEqual([1], self.checkpoints())

    def test_a_rank_that_ends_before_its_report(self):
        self.workers(3, r"""
c.report(step=1)
if RANK != 2:
    if RANK == 1: time.sleep(0.1) # long after that end
    answer = c.checkpoint({"x%d" % RANK: "y"}, step=2)
    assert answer.startswith("failed ") and "rank 2 ended after 1 reports" in answer, answer
""")
        self.assertEqual([], self.checkpoints())
        self.assertEqual([{"step": 1}, {"step": 2}], self.reports(0))

    def test_a_rank_that_gives_up(self):
        self.workers(3, r"""
number, path = c.begin(step=1)
if RANK == 1:
    assert c.ask("abort %d the disk is full" % number) == ("ok", None)
else:
    answer = c.commit(number)
    assert answer.startswith("failed ") and "rank 1: the disk is full" in answer, answer
assert c.checkpoint({"r%d" % RANK: "x"}, step=2).startswith("ok ")
""")
        self.assertEqual([2], self.checkpoints())

    def test_a_worker_that_dies_while_it_writes(self):
        self.workers(2, r"""
assert c.checkpoint({"r%d" % RANK: "good"}).startswith("ok ")
number, path = c.begin()
open(path + "/half-%d" % RANK, "w").write("half")
if RANK == 1: os.kill(os.getpid(), signal.SIGKILL)
answer = c.commit(number)
assert answer.startswith("failed ") and "rank 1" in answer, answer
""", status=137)
        self.assertEqual([1], self.checkpoints())
        self.assertEqual({"r0": "good", "r1": "good"}, self.checkpoint_files(1))

    def test_several_at_a_time(self):
        """Up to sixteen may be begun; they are committed in the order of their numbers, whichever is whole first."""
        self.workers(2, r"""
begun = [c.begin(step=step) for step in range(1, 17)]
answer, _ = c.ask("checkpoint {}")
assert answer.startswith("error ") and "16" in answer, answer
for number, path in begun:
    os.makedirs(path, exist_ok=True)
    open(path + "/r%d" % RANK, "w").write("%d" % number)
def commit(channel, number): return channel.commit(number)
import threading
others = [(c.open(), number) for number, _ in begun[1:]]
threads = [threading.Thread(target=lambda o=o, n=n: answers.__setitem__(n, o.commit(n))) for o, n in others]
answers = {}
[thread.start() for thread in threads]
assert c.commit(begun[0][0]).startswith("ok ")
[thread.join() for thread in threads]
assert all(answer.startswith("ok ") for answer in answers.values()), answers
""")
        self.assertEqual(list(range(1, 17)), self.checkpoints())
        self.assertEqual({"r0": "9", "r1": "9"}, self.checkpoint_files(9))

    def test_numbers_beyond_64_bits_take_nothing_away(self):
        """They are kept as they came; a run that reported them is ranked, shown and gone on with as any other."""
        finished = self.workers(1, r"""
for score in (3, 1, 2):
    number, path = c.ask('checkpoint {"score": %d, "seed": 18446744073709551615, "far": [-1e999]}' % score)[0].split(" ")[1:]
    os.makedirs(path, exist_ok=True)
    open(path + "/f", "w").write("x")
    answer = c.commit(int(number))
    assert answer.startswith("ok "), answer
""", "--keep-checkpoints", 1, "--checkpoint-score-attribute", "score")
        self.assertIn("score 2  seed 1.845e+19; best checkpoint by score: checkpoint_000001", finished.err)
        self.assertEqual([1, 3], self.checkpoints())

        def ask(*words):
            return self.assert_status(0, self.trainyard(*words, "--storage-path", self.storage, "--format", "json")).json

        metrics = {"score": 2, "seed": 2.0**64, "far": ["-Infinity"]}
        listed = ask("checkpoints", "list", "run")
        self.assertEqual([(1, 3, True), (3, 2, False)], [(entry["number"], entry["score"], entry["best"]) for entry in listed])
        self.assertEqual(metrics, listed[1]["metrics"])
        for shown in (ask("status", "run")["metrics"], ask("top")["runs"][0]["metrics"]):
            self.assertEqual(metrics, shown)
            self.assertIs(int, type(shown["score"]))
        self.assertEqual({2**64 - 1}, {report["seed"] for report in self.reports(0)})
        self.workers(1, "", "--resume")

    def test_names_and_places(self):
        """Rank 0 gives the name; a place outside of the run's directory is recorded as it is; a name is given once."""
        elsewhere = os.path.join(self.place, "work", "elsewhere")
        os.makedirs(os.path.join(elsewhere, "part"))
        self.workers(2, r"""
answer, _ = c.ask("checkpoint \"%s\" {}" % ("checkpoint_777777" if RANK == 0 else "other"))
number, path = int(answer.split(" ", 2)[1]), answer.split(" ", 2)[2]
os.makedirs(path, exist_ok=True)
open(path + "/r%d" % RANK, "w").write("x")
answer = c.commit(number)
assert answer == "ok " + os.path.join(os.environ["TRAINYARD_RUN_PATH"], "checkpoint_777777"), answer
answer, _ = c.ask("checkpoint {}")
answer, _ = c.ask("commit 2 \"ELSEWHERE\"")
assert answer == "ok ELSEWHERE", answer
answer, _ = c.ask("checkpoint {}")
answer, _ = c.ask("commit 3 \"s3://bucket/%d\"" % RANK)
assert answer.startswith("failed ") and "place" in answer, answer
answer, _ = c.ask("checkpoint \"checkpoint_777777\" {}")
answer = c.commit(4)
assert answer.startswith("failed ") and "checkpoint_777777" in answer, answer
answer, value = c.ask("checkpoints")
kept = json.loads(value)
assert [k["number"] for k in kept] == [1, 2] and kept[1]["path"] == "ELSEWHERE", kept
""".replace("ELSEWHERE", elsewhere))
        self.assertEqual([(1, "checkpoint_777777"), (2, elsewhere)], [tuple(row) for row in self.rows("SELECT number, name FROM checkpoints ORDER BY number")])

    def test_one_checkpoint_for_each_rank(self):
        self.workers(2, r"""
for step in (1, 2):
    number, path = c.begin(step=step)
    os.makedirs(path, exist_ok=True)
    open(path + "/r%d" % RANK, "w").write("y")
    assert c.commit(number).startswith("ok ")
""")
        self.assertEqual([1, 2], self.checkpoints())
        self.assertEqual({"r0": "y", "r1": "y"}, self.checkpoint_files(2))

    def test_reports_go_on_while_one_is_written(self):
        """Ranks need not wait for each other: numbers count, not times."""
        self.workers(2, r"""
number, path = c.begin(step=1)
open(path + "/r%d" % RANK, "w").write("x")
for step in range(2, 50): c.report(step=step)
assert c.commit(number).startswith("ok ")
""")
        self.assertEqual([1], self.checkpoints())
        self.assertEqual(list(range(1, 50)), [one["step"] for one in self.reports(1)])

    def test_lists_that_are_not_true(self):
        bad = ['[{"path": "missing", "size": 1}]', '[{"path": "r", "size": 7}]', '[{"path": "../r", "size": 1}]', '[{"path": "/etc/passwd", "size": 1}]',
               '[{"path": "r/../../x", "size": 1}]', '[{"path": "", "size": 1}]', '[{"path": "r"}]', '[1]', '[{"path": "r", "size": -1}]',
               '[{"path": "r", "size": 1, "xxh3": "zz"}]', '[{"path": ".metadata.json", "size": 1}]']
        self.workers(1, "bad = %r\n" % bad + r"""
for i, files in enumerate(bad, 1):
    number, path = c.begin()
    open(path + "/r", "w").write("x")
    open(path + "/.metadata.json", "w").write("x") if "metadata" in files else None
    answer = c.commit(number, files)
    assert number == i and answer.startswith("failed "), (files, answer)
assert c.checkpoint({"r": "x"}).startswith("ok ")
""")
        self.assertEqual([len(bad) + 1], self.checkpoints())

    def test_trees_that_lead_out(self):
        """What a rank writes into the directory by itself is looked at before it is committed."""
        self.workers(1, r"""
kinds = [lambda d: os.symlink("/etc/passwd", d + "/link"), lambda d: os.symlink("../../x", d + "/link"), lambda d: os.mkfifo(d + "/pipe"),
         lambda d: open(os.fsencode(d) + b"/\xff\xfe", "w").close()]
for make in kinds:
    number, path = c.begin()
    make(path)
    answer = c.commit(number)
    assert answer.startswith("failed "), answer
number, path = c.begin()
os.mkdir(path + "/sub"); open(path + "/sub/file", "w").write("deep"); os.symlink("sub/file", path + "/latest")
assert c.commit(number).startswith("ok ")
""")
        self.assertEqual([5], self.checkpoints())


class Resume(ProtocolCase):
    COUNT = r"""
attempt = int(os.environ["TRAINYARD_ATTEMPT"])
last = os.environ.get("TRAINYARD_CHECKPOINT")
step = int(open(last + "/step-%d" % RANK).read()) if last else 0
open("began-%d.%d" % (attempt, RANK), "w").write("%d" % step)
while step < 6:
    step += 1
    assert c.checkpoint({"step-%d" % RANK: str(step)}, step=step).startswith("ok ")
    c.barrier("step-%d" % step)
    if step == 2 * attempt and attempt < 3 and RANK == attempt % 2: os._exit(5)
"""

    def assert_steps(self, *steps):
        """Numbers grow, and are left out where some rank had begun one when another failed."""
        self.assertEqual([{"step-0": str(step), "step-1": str(step)} for step in steps],
                         [self.checkpoint_files(number) for number in self.checkpoints()])

    def test_after_a_failure(self):
        self.workers(2, self.COUNT, "--max-failures", "2")
        self.assertEqual([["0", "2", "4"]] * 2, [[self.read("began-%d.%d" % (attempt, rank)) for attempt in (1, 2, 3)] for rank in range(2)])
        self.assert_steps(1, 2, 3, 4, 5, 6)

    def test_by_name(self):
        self.workers(2, self.COUNT, status=5)
        self.workers(2, self.COUNT, "--resume", status=5)
        self.workers(2, self.COUNT, "--resume")
        self.assertEqual(["0", "2", "4"], [self.read("began-%d.0" % attempt) for attempt in (1, 2, 3)])
        self.assert_steps(1, 2, 3, 4, 5, 6)
        self.assertEqual((3, "succeeded"), (self.status("run")["attempts"], self.status("run")["state"]))

    def test_without_a_checkpoint_there_is_none(self):
        self.workers(2, "assert 'TRAINYARD_CHECKPOINT' not in os.environ\nassert os.path.isdir(os.environ['TRAINYARD_RUN_PATH'])\n",
                     env={"TRAINYARD_CHECKPOINT": "/from/outside"})

    def test_whoever_is_killed_whenever(self):
        """Kills of the controller, the agent and a worker while checkpoints are made: what is there is whole, what was acknowledged is
        there, and the run goes on behind it."""
        source = r"""
last = os.environ.get("TRAINYARD_CHECKPOINT")
step = int(open(last + "/step-%d" % RANK).read()) if last else 0
if RANK == 0: open("began", "a").write("%d\n" % step)
while step < 100000:
    step += 1
    answer = c.checkpoint({"step-%d" % RANK: str(step), "body-%d" % RANK: str(RANK) * 5000}, step=step)
    assert answer.startswith("ok "), answer
    if RANK == 0: os.write(log, b"%d\n" % step)
"""
        source = 'log = os.open("acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n' + source
        acknowledged = os.path.join(self.work, "acknowledged")

        def last():
            return int(self.read("acknowledged").split()[-1]) if os.path.exists(acknowledged) and os.path.getsize(acknowledged) else 0
        for seed, random in seeds(soak("CHECKPOINT_KILLS", 8)):
            before = last()
            process = self.start_workers(2, source, *(() if before == 0 else ("--resume",)), "--grace", "200ms")
            more = random.choice([0, 1, 5])
            self.wait_for(lambda: last() > before + more, "checkpoints", process)
            agent, = self.agents(process)
            victims = {"controller": lambda: process.pid, "agent": lambda: agent, "worker": lambda: random.choice(self.workers_of(agent))}
            kind = random.choice(sorted(victims))
            time.sleep(0.01 * random.random())
            os.kill(victims[kind](), signal.SIGKILL)
            self.finish(process)
            self.wait_for(lambda: not harness.processes_with(self.place), "an end of all")
            self.assert_whole(last(), "seed %d, %s killed" % (seed, kind))
        begun = [int(step) for step in self.read("began").split()]
        self.assertEqual(sorted(begun), begun)

    def workers_of(self, agent):
        from runs import children
        return children(agent)

    def assert_whole(self, acknowledged, what):
        """The directories as the journal knows them; a newer one, whose row a killed controller did not write, is whole as well."""
        run = os.path.join(self.storage, "run")
        known = [row[0] for row in self.rows("SELECT number FROM checkpoints ORDER BY number")]
        there = sorted(int(name[11:]) for name in os.listdir(run) if name.startswith("checkpoint_"))
        self.assertGreaterEqual(max(known), acknowledged, what)
        self.assertLessEqual(set(known), set(there), what)
        for number in there[-3:]:
            files = self.checkpoint_files(number)
            self.assertEqual({"step-0", "step-1", "body-0", "body-1"}, set(files), what)
            self.assertEqual(("0" * 5000, "1" * 5000), (files["body-0"], files["body-1"]), what)
            self.assertEqual(files["step-0"], files["step-1"], what)


if __name__ == "__main__":
    main()
