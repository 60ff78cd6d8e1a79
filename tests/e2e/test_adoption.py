"""A controller of joined nodes that is killed, and resumed while its workers go on: it adopts them."""

import contextlib
import os
import random
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import unittest

from harness import COMMAND, HERE, free_port, main, processes_with
from test_join import JoinCase

# Steps until there is a file "enough", each reported and noted: process, attempt, step.
STEPS = """i=0; echo $PPID > agent.$RANK
while ! test -e enough; do i=$((i+1)); "%s" report step=$i || exit 9; echo $$ $TRAINYARD_ATTEMPT $i >> notes.$RANK; sleep 0.02; done""" % COMMAND

# The same, deaf to SIGTERM; "order" has the attempts as they went.
DEAF = "trap '' TERM; " + STEPS.replace("echo $$", "echo $TRAINYARD_ATTEMPT >> order; echo $$")

# Rank 0 waits for rank 1 in a gather, and for a key, when the controller is killed.
STORE = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from worker_client import RANK, Channel
c, other = Channel(), Channel().open()
c.set("from.%d" % RANK, b"value %d" % RANK)
assert c.add("sum", RANK + 1) in (1, 2, 3)
for turn in range(3):
    assert c.gather("before", b"%d" % RANK) == [b"0", b"1"]
    if RANK == 0:
        other.say("wait key.%d -1" % turn)
        open("waits.%d" % turn, "w").close()
    while RANK == 1 and not os.path.exists("go.%d" % turn):
        time.sleep(0.01)
    assert c.gather("round", b"%d" % RANK) == [b"0", b"1"]
    if RANK == 0:
        assert other.hear() == ("value", b"x")
    else:
        c.set("key.%d" % turn, b"x")
    assert c.get("from.%d" % (1 - RANK)) == b"value %d" % (1 - RANK)
    assert c.gather("after", b"") == [b"", b""]
    assert c.add("sum", 0) == 3
"""

# Checkpoints of one name, each in the place of the one before it: what was acknowledged is what is there.
NAMED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from worker_client import RANK, Channel
c, step = Channel(), 0
while not os.path.exists("last") or step < int(open("last").read()):
    step += 1
    _, number, path = c.ask('checkpoint "last" {"step": %d}' % step)[0].split(" ", 2)
    os.makedirs(path, exist_ok=True)
    for name in ("rank-%d" % RANK, "%d-of-%d" % (step % 50, RANK)):
        with open(os.path.join(path, name), "w") as file:
            file.write("%08d" % step)
    answer = c.ask("commit %s []" % number)[0]
    with open(os.path.join(answer[len("ok "):], "rank-%d" % RANK)) as file:
        assert file.read() == "%08d" % step
    with open("notes.%d" % RANK, "a") as notes:
        notes.write("%d %s %d\\n" % (os.getpid(), os.environ["TRAINYARD_ATTEMPT"], step))
"""

# Another user at the names where agents are found, that of node 0 unless others are given: listens there and hangs up, or knocks and says
# nothing.
STRANGER = """
import os, socket, sys
status, kept = os.stat(sys.argv[2]), []
names = ["\\0trainyard-run-%x-%x-%s" % (status.st_dev, status.st_ino, node) for node in sys.argv[3:] or [socket.gethostname()]]
if sys.argv[1] == "listens":
    for name in names:
        kept.append(socket.socket(socket.AF_UNIX))
        kept[-1].bind(name)
        kept[-1].listen(9)
else:
    for _ in range(int(sys.argv[1])):
        kept.append(socket.socket(socket.AF_UNIX))
        kept[-1].setblocking(False)
        try:
            kept[-1].connect(names[0])
        except BlockingIOError:
            break
print("there", flush=True)
while sys.argv[1] == "listens":
    kept[0].accept()[0].close()
sys.stdin.read()
"""


class Link:
    """A port that leads to another one, by connections that can be reset. A mute one takes whoever comes, and leads nowhere."""

    def __init__(self, port):
        self.there = ("127.0.0.1", port)
        self.mute = False
        self.holds = False  # what ends on one side does not on the other, before `let_go`
        self.door = socket.create_server(("127.0.0.1", 0))
        self.meeting = "127.0.0.1:%d" % self.door.getsockname()[1]
        self.ends = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                here, _ = self.door.accept()
            except OSError:
                return
            if self.mute:
                self.ends.append(here)
                continue
            try:
                there = socket.create_connection(self.there)
            except OSError:
                self.close(here)
                continue
            self.ends += [here, there]
            for pair in ((here, there), (there, here)):
                threading.Thread(target=self.carry, args=pair, daemon=True).start()

    def carry(self, source, target):
        try:
            while words := source.recv(1 << 16):
                target.sendall(words)
            if source in self.ends and not self.holds:
                target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self, end):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RD)  # whoever waits for it goes on
        end.close()

    def reset(self):
        ends, self.ends = self.ends, []
        for end in ends:
            self.close(end)

    def let_go(self):
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_WR)

    def done(self):
        with contextlib.suppress(OSError):
            self.door.shutdown(socket.SHUT_RDWR)
        self.door.close()
        self.reset()


class Noted:
    """Of a case: two ranks that note each step in the test's place, in the run r."""

    def notes(self, rank):
        try:
            with open(os.path.join(self.place, "notes.%d" % rank)) as file:
                return [tuple(map(int, line.split())) for line in file if line.count(" ") == 2 and line.endswith("\n")]
        except FileNotFoundError:
            return []

    def wait_for_steps(self, process, more=5):
        before = [len(self.notes(rank)) for rank in (0, 1)]
        self.wait_for(lambda: all(len(self.notes(rank)) >= before[rank] + more for rank in (0, 1)), "steps of both ranks", process)

    def told(self, query):
        with sqlite3.connect("file:%s/r/run.db?mode=ro" % self.storage, uri=True) as journal:
            return journal.execute(query).fetchall()

    def assert_reports_once(self):
        for rank in (0, 1):
            numbers = [number for (number,) in self.told("SELECT number FROM reports WHERE rank = %d ORDER BY number" % rank)]
            self.assertEqual(list(range(1, len(self.notes(rank)) + 1)), numbers)

    def assert_one_attempt(self):
        for rank in (0, 1):
            notes = self.notes(rank)
            self.assertEqual(1, len({pid for pid, _, _ in notes}), "the worker is the same")
            self.assertEqual([(1, step) for step in range(1, len(notes) + 1)], [note[1:] for note in notes])
        self.assert_reports_once()


class Adopted(Noted, JoinCase):
    def setUp(self):
        super().setUp()
        self.nodes = {}

    def wait_for_steps(self, more=5):
        super().wait_for_steps(self.nodes[1], more)

    def begin(self, script=STEPS, *args):
        self.words = ("-n", 2, "--placement", "SPREAD", "--name", "r", *args)
        self.nodes = {rank: self.node(rank, *self.words, "--", "sh", "-c", script) for rank in (0, 1)}
        self.wait_for_steps()

    def kill_controller(self):
        os.kill(self.nodes[0].pid, signal.SIGKILL)
        self.nodes[0].wait()

    def resume(self, script=STEPS, *args):
        self.nodes[0] = self.node(0, *self.words, "--resume", *args, "--", "sh", "-c", script)
        return self.nodes[0]

    def end(self):
        self.write("enough", "")
        return [self.assert_status(0, self.finish(self.nodes[rank])) for rank in (0, 1)]

    def assert_no_overlap(self):
        with open(os.path.join(self.place, "order")) as file:
            attempts = [int(line) for line in file]
        self.assertEqual(sorted(attempts), attempts, "the attempts overlapped")

    def test_workers_go_on_and_are_adopted(self):
        self.begin()
        self.kill_controller()
        self.wait_for_steps()
        self.resume()
        self.wait_for_line(self.nodes[0], "attempt 1 goes on")
        self.wait_for_steps()
        first, _ = self.end()
        self.assertNotIn("attempt 2", first.err)
        self.assert_one_attempt()
        run = self.trainyard("status", "r", "--storage-path", self.storage, "--format", "json").json
        self.assertEqual((1, "succeeded"), (run["attempts"], run["state"]))


    def test_killed_again_and_again_amid_checkpoints(self):
        """Both ranks wait for each checkpoint, mostly at the moment of the kill; whatever is acknowledged is there, once."""
        script = STEPS.replace("step=$i ||", "step=$i --checkpoint data ||").replace("! test -e enough", "! test -e last || [ $i -lt $(cat last) ]")
        os.mkdir(os.path.join(self.place, "data"))
        self.write("data/file", "data" * 1000)
        self.begin(script, "--keep-checkpoints", 3)
        dice = random.Random(self.seed())
        for _ in range(4):
            time.sleep(dice.random() / 10)
            self.kill_controller()
            time.sleep(dice.random() / 2)
            self.resume(script)
            self.wait_for_line(self.nodes[0], "attempt 1 goes on")
            self.wait_for_steps()
        self.write("last.part", str(len(self.notes(0)) + 20))  # one that both have before them
        os.rename(os.path.join(self.place, "last.part"), os.path.join(self.place, "last"))
        self.end()
        self.assert_one_attempt()
        self.assert_status(0, self.trainyard("checkpoints", "verify", "r", "--storage-path", self.storage))
        self.assertEqual([(len(self.notes(0)),)], self.told("SELECT max(number) FROM checkpoints"))
        self.assertEqual([], self.told("SELECT data FROM events WHERE kind = 'checkpoint_lost'"))

    def test_killed_again_and_again_amid_checkpoints_of_one_name(self):
        program = self.write("named.py", NAMED)
        self.words = ("-n", 2, "--placement", "SPREAD", "--name", "r")
        command = ("--", "python3", program, HERE)
        self.nodes = {rank: self.node(rank, *self.words, *command) for rank in (0, 1)}
        self.wait_for_steps()
        dice = random.Random(self.seed())
        for _ in range(6):
            time.sleep(dice.random() / 10)
            self.kill_controller()
            self.nodes[0] = self.node(0, *self.words, "--resume", *command)
            self.wait_for_line(self.nodes[0], "attempt 1 goes on")
            self.wait_for_steps()
        self.write("last.part", str(len(self.notes(0)) + 50))
        os.rename(os.path.join(self.place, "last.part"), os.path.join(self.place, "last"))
        for rank in (0, 1):
            self.assert_status(0, self.finish(self.nodes[rank]))
        self.assert_one_attempt()
        self.assert_status(0, self.trainyard("checkpoints", "verify", "r", "--storage-path", self.storage))
        self.assertEqual([], self.told("SELECT data FROM events WHERE kind = 'checkpoint_lost'"))
        left = [name for name in os.listdir(os.path.join(self.storage, "r")) if ".attempt-" in name]
        self.assertEqual([], left)

    def seed(self):
        seed = os.environ.get("TRAINYARD_TEST_SEED", "1")
        print("seed", seed, file=sys.stderr)
        return seed

    def test_the_store_goes_on(self):
        """What was set is there, sums go on, and who waits or gathers goes on waiting."""
        program = self.write("store.py", STORE)
        self.words = ("-n", 2, "--placement", "SPREAD", "--name", "r")
        command = ("--", "python3", program, HERE)
        self.nodes = {rank: self.node(rank, *self.words, *command) for rank in (0, 1)}
        for turn in range(3):
            self.wait_for(lambda: os.path.exists(os.path.join(self.place, "waits.%d" % turn)), "turn %d" % turn, self.nodes[1])
            time.sleep(0.1)
            self.kill_controller()
            time.sleep(0.1)
            self.nodes[0] = self.node(0, *self.words, "--resume", *command)
            self.wait_for_line(self.nodes[0], "attempt 1 goes on")
            self.write("go.%d" % turn, "")
        for rank in (0, 1):
            self.assert_status(0, self.finish(self.nodes[rank]))

    def end_workers(self):
        workers = ["/proc/%d" % self.notes(rank)[-1][0] for rank in (0, 1)]
        self.write("enough", "")
        self.wait_for(lambda: not any(map(os.path.exists, workers)), "the end of the workers", self.nodes[1])

    def test_workers_that_end_meanwhile(self):
        self.begin(STEPS + "; exit $((RANK * 7))")
        self.kill_controller()
        self.end_workers()
        self.resume(STEPS + "; exit $((RANK * 7))")
        first, second = (self.finish(self.nodes[rank]) for rank in (0, 1))
        self.assert_status(7, first)
        self.assert_status(7, second)
        self.assertIn("first cause: rank 1 exited with code 7", first.err)
        self.assert_one_attempt()

    def end_unheard(self, link, finished):
        """Both workers end when the controller is dead, and node 1 hears of that only then, as where a process that wrote for the controller
        has its connections still."""
        link.holds = True
        self.kill_controller()
        self.end_workers()
        time.sleep(0.2)  # its agent looks for what they left
        link.let_go()
        self.nodes[0] = self.node(0, *self.words, "--resume", *self.command)
        self.wait_for_line(self.nodes[0], "attempt 1 goes on")
        ended = [self.assert_status(finished, self.finish(self.nodes[rank])) for rank in (0, 1)]
        self.assert_one_attempt()
        return ended[0]

    def test_workers_that_end_before_their_node_knows_that_the_controller_is_dead(self):
        self.end_unheard(self.begin_by_link(STEPS, ()), 0)

    def test_a_worker_that_fails_before_its_node_knows_that_the_controller_is_dead(self):
        ended = self.end_unheard(self.begin_by_link(STEPS + "; echo no luck; exit $((RANK * 7))", ()), 7)
        self.assertIn("first cause: rank 1 exited with code 7", ended.err)
        self.assertIn("no luck", ended.err)

    def test_a_rank_that_had_ended_before(self):
        """The others are adopted all the same, and its end is on record once."""
        script = STEPS.replace("! test -e enough", "! test -e enough && ! test -e enough.$RANK")
        self.begin(script)
        self.write("enough.1", "")
        self.wait_for(lambda: self.told("SELECT 1 FROM events WHERE kind = 'exited'"), "the end of rank 1 on record", self.nodes[1])
        self.kill_controller()
        before = len(self.notes(0))
        self.wait_for(lambda: len(self.notes(0)) > before + 5, "steps of rank 0", self.nodes[1])
        self.resume(script)
        self.wait_for_line(self.nodes[0], "attempt 1 goes on")
        self.end()
        self.assert_one_attempt()
        self.assertEqual([(0,), (1,)], self.told("SELECT rank FROM events WHERE kind = 'exited' ORDER BY rank"))

    def assert_begins_anew(self, why, script=STEPS, *args):
        self.resume(script, *args)
        self.wait_for_line(self.nodes[0], why)
        self.wait_for(lambda: all(note[1] == 2 for rank in (0, 1) for note in self.notes(rank)[-1:]), "attempt 2", self.nodes[0])
        self.end()
        for rank in (0, 1):
            attempts = [attempt for _, attempt, _ in self.notes(rank)]
            self.assertEqual(sorted(attempts), attempts)

    def test_an_adopted_agent_of_this_machine_is_lost(self):
        self.begin(STEPS, "--max-failures", 1)
        self.kill_controller()
        self.resume()
        self.wait_for_line(self.nodes[0], "attempt 1 goes on")
        self.wait_for_steps()
        with open(os.path.join(self.place, "agent.0")) as file:
            os.kill(int(file.read()), signal.SIGKILL)
        self.wait_for(lambda: all(note[1] == 2 for rank in (0, 1) for note in self.notes(rank)[-1:]), "attempt 2", self.nodes[0])
        first, _ = self.end()
        self.assertIn("its agent ended before its time", first.err)

    def test_a_node_that_is_cut_off_from_the_second_controller(self):
        link = self.begin_by_link()
        self.kill_controller()
        self.nodes[0] = self.node(0, *self.words, "--resume", *self.command)  # with 1:2 the second one might come too late
        self.wait_for_line(self.nodes[0], "attempt 1 goes on")
        self.wait_for_steps()
        link.reset()
        self.assert_attempts_in_order()
        self.end_node_1()

    def test_a_node_that_is_cut_off_and_finds_a_port_that_says_nothing(self):
        link = self.begin_by_link(key=None)
        link.mute = True
        link.reset()
        self.assert_attempts_in_order()
        self.wait_for_line(self.nodes[1], "the controller is lost")
        link.done()
        self.wait_for_line(self.nodes[1], "the controller is lost")
        self.end_node_1()

    def test_a_node_whose_keeper_is_killed(self):
        """It looks for no controller, whether the one that it had lives or not."""
        link = self.begin_by_link(key=None)
        link.mute = True
        self.nodes[1].kill()
        self.nodes[1].wait()
        self.assert_attempts_in_order()

    def test_the_third_controller_waits_as_the_second_one_had_to(self):
        """That one, of this machine alone, began no attempt."""
        self.begin(DEAF, "--outlive", "3s")
        self.kill_controller()
        for again in range(2):
            self.nodes[0] = self.start("run", "--storage-path", self.storage, "--num-cpus", 64, "-n", 2, "--name", "r", "--resume", "--", "sh", "-c", DEAF)
            if again == 0:
                self.wait_for_line(self.nodes[0], "s at most: until then workers")
                self.kill_controller()
        self.wait_for(lambda: self.notes(0)[-1][1] == 2, "attempt 2", self.nodes[0])
        self.write("enough", "")
        self.assert_status(0, self.finish(self.nodes[0]))
        self.assert_no_overlap()
        self.end_node_1()

    def test_a_node_that_is_lost_while_an_attempt_of_another_failure_is_stopped(self):
        link = self.begin_by_link(script=DEAF.replace("do i=", "do test $RANK = 0 && test -e fail && exit 1; i="),
                                  options=("--max-failures", 0, "--grace", "20s", "--outlive", "2s"))
        self.write("fail", "")
        self.wait_for(lambda: self.told("SELECT 1 FROM events WHERE kind = 'stop'"), "the stop", self.nodes[0])
        link.mute = True
        link.reset()
        self.assert_status(1, self.finish(self.nodes[0]))
        os.remove(os.path.join(self.place, "fail"))
        self.nodes[0] = self.start("run", "--storage-path", self.storage, "--num-cpus", 64, "-n", 2, "--name", "r", "--resume", "--", "sh", "-c", DEAF)
        self.wait_for_line(self.nodes[0], "s at most: until then workers")
        self.assert_attempts_in_order()
        self.end_node_1()

    def begin_by_link(self, script=DEAF, options=("--max-failures", 3), **more):
        """Node 1 reaches node 0 by it; workers are deaf, and note the order of the attempts."""
        link = Link(self.port)
        self.addCleanup(link.done)
        self.words = ("-n", "1:2", "--placement", "SPREAD", "--name", "r", *options)
        self.command = ("--", "sh", "-c", script)
        self.nodes = {0: self.node(0, *self.words, *self.command, nodes="1:2", **more),
                      1: self.node(1, *self.words, "--rendezvous", link.meeting, *self.command, nodes="1:2", **more)}
        self.wait_for_steps()
        return link

    def assert_attempts_in_order(self):
        self.wait_for(lambda: self.notes(0)[-1][1] > 1, "another attempt", self.nodes[0])
        time.sleep(0.5)
        self.write("enough", "")
        self.assert_status(0, self.finish(self.nodes[0]))
        self.assert_no_overlap()

    def end_node_1(self):
        self.nodes[1].send_signal(signal.SIGINT)  # it might wait for a minute
        self.finish(self.nodes[1])

    def test_a_node_without_workers_comes_back(self):
        """As a spare one: it has nothing that could go on."""
        self.words = ("-n", 1, "--name", "r")
        command = ("--", "sh", "-c", STEPS)
        self.nodes = {rank: self.node(rank, *self.words, *command) for rank in (0, 1)}
        self.wait_for(lambda: len(self.notes(0)) >= 5, "steps", self.nodes[1])
        self.kill_controller()
        self.resume()
        self.wait_for_line(self.nodes[0], "attempt 1 goes on")
        self.end()
        self.assertEqual({1}, {attempt for _, attempt, _ in self.notes(0)})

    def begin_beside_another(self, script, *args):
        """A run of the same name in another storage has the first of two devices of node 0 until "stop" is written, this one the second."""
        devices = ("--num-gpus", 2, "--use-gpu", "--name", "r")
        os.mkfifo(os.path.join(self.place, "stop"))
        other = self.start("run", "--storage-path", os.path.join(self.place, "other"), "--num-cpus", 64, "-n", 1, *devices, "--", "sh", "-c", ": > up; cat stop")
        self.addCleanup(other.kill)
        self.wait_for(lambda: os.path.exists(os.path.join(self.place, "up")), "the other run", other)
        elsewhere = os.path.join(self.place, "leases-elsewhere")
        os.mkdir(elsewhere)
        os.chmod(elsewhere, 0o1777)
        self.words = ("-n", 2, "--placement", "SPREAD", *devices, *args)
        command = ("--", "sh", "-c", script)
        self.nodes = {0: self.node(0, *self.words, *command), 1: self.node(1, *self.words, *command, leases=elsewhere)}
        self.wait_for_steps()
        return other

    def begin_anew_behind_a_wait(self, meanwhile):
        """One worker with both devices of node 0: they are waited for, until nobody could be left by what the journal says."""
        other = self.begin_beside_another(DEAF, "--outlive", "1s")
        self.kill_controller()
        self.nodes[0] = self.node(0, *self.words, "-n", 1, "--resources", "GPU=2,first=1", "--node-resources", "first=1", "--resume", "--", "sh", "-c", DEAF)
        self.wait_for_line(self.nodes[0], "waiting: ")
        time.sleep(14)
        with contextlib.suppress(ProcessLookupError):  # on a busy machine the time was over before the second one came
            meanwhile()
        self.write("stop", "")
        self.assert_attempts_in_order()
        self.assert_status(0, self.finish(other))
        self.end_node_1()

    def test_who_went_on_while_devices_were_waited_for_ends_first(self):
        self.begin_anew_behind_a_wait(lambda: None)

    def test_an_agent_that_stands_still_when_it_is_sent_away(self):
        self.begin_anew_behind_a_wait(lambda: os.kill(self.agent(0), signal.SIGSTOP))

    def test_another_run_of_this_name_keeps_its_device(self):
        """Nobody has waited for the dead controller."""
        other = self.begin_beside_another(STEPS)
        dead = self.nodes[0]
        os.kill(dead.pid, signal.SIGKILL)
        self.resume()
        self.wait_for_line(self.nodes[0], "attempt 1 goes on")
        dead.wait()
        self.end()
        self.assert_one_attempt()
        self.write("stop", "")
        self.assert_status(0, self.finish(other))

    def test_a_node_that_was_lost_before_the_last_attempt_is_not_waited_for(self):
        self.begin_by_link(options=("--max-failures", 3, "--outlive", 0))
        self.nodes[1].kill()
        self.nodes[1].wait()
        self.wait_for(lambda: self.notes(0)[-1][1] == 2, "attempt 2", self.nodes[0])
        self.kill_controller()
        self.nodes[0] = self.node(0, *self.words, "--resume", *self.command, nodes="1:2")
        self.wait_for(lambda: self.notes(0)[-1][1] == 3, "attempt 3", self.nodes[0])
        self.write("enough", "")
        self.assertNotIn("waiting", self.assert_status(0, self.finish(self.nodes[0])).err)
        self.assert_no_overlap()

    def test_a_run_that_is_resumed_with_fewer_nodes(self):
        """The one that is there no more tells that nothing is left on it."""
        self.words = ("--placement", "SPREAD", "--name", "r", "--outlive", "1h")
        command = ("--", "sh", "-c", DEAF)
        self.nodes = {rank: self.node(rank, "-n", 3, *self.words, *command, nodes=3) for rank in (0, 1, 2)}
        self.wait_for_steps()
        self.wait_for(lambda: self.notes(2), "steps of the third", self.nodes[2])
        self.kill_controller()
        self.nodes[0] = self.node(0, "-n", 2, *self.words, "--resume", *command)
        self.assert_status(5, self.finish(self.nodes[2]))
        self.wait_for(lambda: all(self.notes(rank)[-1][1] == 2 for rank in (0, 1)), "attempt 2", self.nodes[0])
        self.end()
        self.assert_no_overlap()

    def test_a_second_command_for_a_node_proves_nothing_of_the_first(self):
        """It has waited at a controller that was killed, and had nothing to run there."""
        link = self.begin_by_link(options=("--outlive", "15s"))
        self.kill_controller()
        time.sleep(0.5)  # the first one's node hears of it
        link.done()
        second = self.node(1, *self.words, *self.command, nodes="1:2")
        self.nodes[0] = self.node(0, *self.words, "--resume", *self.command, nodes=3)
        self.wait_for_line(self.nodes[0], "missing: node 2")
        self.kill_controller()
        self.wait_for_line(second, "the controller is lost")
        self.nodes[0] = self.node(0, *self.words, "--resume", *self.command, nodes=2)
        self.assert_attempts_in_order()
        self.assert_status(0, self.finish(second))
        self.end_node_1()

    def test_where_a_spare_node_has_taken_over(self):
        self.words = ("-n", 2, "--placement", "SPREAD", "--name", "r", "--spares", 1, "--max-failures", 1)
        command = ("--", "sh", "-c", STEPS)
        self.nodes = {rank: self.node(rank, *self.words, *command, nodes=3) for rank in (0, 1, 2)}
        self.wait_for_steps()
        os.kill(self.agent(1), signal.SIGKILL)
        self.wait_for(lambda: all(self.notes(rank)[-1][1] == 2 for rank in (0, 1)), "attempt 2", self.nodes[0])
        self.kill_controller()
        self.nodes[0] = self.node(0, *self.words, "--resume", *command, nodes=3)
        self.wait_for_steps()
        first, _ = self.end()
        self.assertIn("attempt 2 goes on", first.err)
        self.assert_status(0, self.finish(self.nodes[2]))
        for rank in (0, 1):
            self.assertEqual(1, len({pid for pid, attempt, _ in self.notes(rank) if attempt == 2}), "the worker is the same")

    def test_a_resume_that_is_refused_leaves_them_to_another(self):
        """It has asked for more than there is."""
        self.begin()
        self.kill_controller()
        refused = self.finish(self.node(0, *self.words, "-n", 500, "--resume", "--", "sh", "-c", STEPS))
        self.assert_status(3, refused)
        self.wait_for_steps()
        self.resume()
        self.wait_for_line(self.nodes[0], "attempt 1 goes on")
        self.wait_for_steps()
        self.end()
        self.assert_one_attempt()

    def test_another_command_begins_anew(self):
        self.begin()
        self.kill_controller()
        self.assert_begins_anew("its command, or what it is to do, is another now", STEPS.replace("0.02", "0.03"))

    def test_a_node_that_does_not_come_back_begins_anew(self):
        self.begin()
        with open(os.path.join(self.place, "agent.1")) as file:
            agent = int(file.read())
        self.kill_controller()
        os.kill(agent, signal.SIGKILL)
        self.assert_begins_anew("a node of it has come back without its workers")

    def test_workers_end_when_the_time_is_over(self):
        self.begin(STEPS, "--outlive", "1s")
        self.kill_controller()
        self.wait_for_line(self.nodes[1], "the controller is lost")
        workers = ["/proc/%d" % self.notes(rank)[-1][0] for rank in (0, 1)]
        self.wait_for(lambda: not any(map(os.path.exists, workers)), "the end of the workers", self.nodes[1])
        self.nodes[1].send_signal(signal.SIGINT)
        self.assert_status(5, self.finish(self.nodes[1]))

    def stranger(self, what, *nodes):
        os.chmod(self.place, 0o755)
        os.makedirs(os.path.join(self.storage, "r"), exist_ok=True)
        program = ["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", STRANGER, what, os.path.join(self.storage, "r"), *nodes]
        stranger = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(stranger.communicate)
        self.addCleanup(stranger.kill)
        self.assertEqual("there\n", stranger.stdout.readline())
        return stranger

    def agent(self, rank):
        with open(os.path.join(self.place, "agent.%d" % rank)) as file:
            return int(file.read())

    def test_a_second_controller_at_another_port(self):
        """The run has one already: it is refused, and touches nobody."""
        self.begin()
        second = self.finish(self.node(0, *self.words, "--resume", "--rendezvous", "127.0.0.1:%d" % free_port(), "--", "sh", "-c", STEPS))
        self.assert_status(2, second)
        self.assertEqual(1, second.err.count("\n"), second)
        self.assertIn("goes on: its controller is process %d" % self.nodes[0].pid, second.err)
        self.wait_for_steps()
        self.end()
        self.assert_one_attempt()

    @unittest.skipUnless(os.geteuid() == 0, "takes the rights to become another user")
    def test_another_user_knocks_at_the_agent(self):
        """More than may wait at its door, from before the controller dies."""
        self.begin()
        self.stranger("200")
        self.kill_controller()
        self.wait_for_steps()
        self.resume()
        self.wait_for_line(self.nodes[0], "attempt 1 goes on")
        self.end()
        self.assert_one_attempt()

    def test_one_of_this_user_knocks_and_says_nothing(self):
        """Workers do not outlive the controller for longer by that."""
        self.begin(STEPS, "--outlive", "3s")
        self.kill_controller()
        status = os.stat(os.path.join(self.storage, "r"))
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect("\0trainyard-run-%x-%x-%s" % (status.st_dev, status.st_ino, socket.gethostname()))
            worker = "/proc/%d" % self.notes(0)[-1][0]
            self.wait_for(lambda: not os.path.exists(worker), "the end of the worker", self.nodes[1], seconds=60)
        self.end_node_1()

    def test_a_controller_that_takes_its_time(self):
        """Workers outlive the one before for as long as that waits for a node."""
        self.begin(STEPS, "--outlive", "20s")
        self.kill_controller()
        self.nodes[0] = self.node(0, *self.words, "--resume", "--", "sh", "-c", STEPS, nodes=3)
        time.sleep(27)
        self.wait_for_steps()
        third = self.node(2, *self.words, "--", "sh", "-c", STEPS, nodes=3)
        self.wait_for_line(self.nodes[0], "attempt 1 goes on")
        self.end()
        self.assert_status(0, self.finish(third))
        self.assert_one_attempt()

    @unittest.skipUnless(os.geteuid() == 0, "takes the rights to become another user")
    def test_another_user_listens_in_the_place_of_the_agent(self):
        """It proves nothing: no attempt begins beside workers that it hides."""
        self.stranger("listens")
        self.begin(DEAF, "--resume", "--outlive", "1s")
        self.wait_for_line(self.nodes[0], "workers will not outlive the controller")
        self.kill_controller()
        self.assert_nothing_is_proven("of user 65534 listens in the place of its agent")

    @unittest.skipUnless(os.geteuid() == 0, "takes the rights to become another user")
    def test_another_user_listens_in_the_places_of_many_agents(self):
        """Of logical nodes: they are waited for side by side."""
        nodes = ["n%02d" % i for i in range(40)]
        cluster = self.write("cluster.yaml", "nodes: [%s]" % ", ".join("{name: %s, resources: {CPU: 1}}" % node for node in nodes))
        run = ("run", "--storage-path", self.storage, "--cluster", cluster, "--name", "r", "-n", 40, "--placement", "SPREAD", "--resume", "--", "sh", "-c")
        first = self.start(*run, ": > up.$RANK; exec sleep 3076")
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.place, "up.%d" % rank)) for rank in range(40)), "all workers", first)
        first.kill()
        first.wait()
        self.wait_for(lambda: not processes_with(self.place), "the end of all")
        self.stranger("listens", *nodes)
        second = self.assert_status(0, self.finish(self.start(*run, "true")))
        self.assertEqual(40, second.err.count("somebody else listens in its place"))

    def test_an_agent_that_does_not_answer(self):
        self.begin(DEAF, "--outlive", "1s")
        self.kill_controller()
        os.kill(self.agent(0), signal.SIGSTOP)
        self.assert_nothing_is_proven("does not answer and was killed")

    def assert_nothing_is_proven(self, why):
        """Another attempt begins, behind all of the first."""
        self.resume(DEAF)
        self.wait_for_line(self.nodes[0], why)
        self.wait_for_line(self.nodes[0], "s at most: until then workers")
        self.wait_for(lambda: all(self.notes(rank)[-1][1] == 2 for rank in (0, 1)), "attempt 2", self.nodes[0])
        self.end()
        self.assert_no_overlap()

    @unittest.skipUnless(os.geteuid() == 0, "takes the rights to become another user")
    def test_who_knocks_where_no_descriptor_is_left(self):
        """The agent rests, and opens when it can."""
        script = STEPS.replace("i=$((i+1));", "while test -e hush; do : > hushed.$RANK; sleep 0.02; done; i=$((i+1));")
        self.begin(script)
        self.kill_controller()
        self.write("hush", "")  # no report is under way then, for which a worker opens a channel
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.place, "hushed.%d" % rank)) for rank in (0, 1)), "silence", self.nodes[1])
        with self.without_descriptors(self.agent(0)):
            stranger = self.stranger("1")
        os.unlink(os.path.join(self.place, "hush"))
        self.resume(script)
        self.wait_for_line(self.nodes[0], "attempt 1 goes on")
        self.end()
        self.assertEqual("", stranger.communicate()[0])


if __name__ == "__main__":
    main(side_by_side=3)
