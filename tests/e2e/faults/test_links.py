"""Faults between machines, on network namespaces with real links (hosts.py): N1 to N5, N7, N8 of docs/faults.md, and what a stopped
agent or a vanished machine comes to. Most of them take the ten seconds after which a silent node is given up: those run side by side,
each on hosts of its own.
"""

import os
import secrets
import signal
import sqlite3
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from hosts import Hosts
from place import FAILING

# Each worker notes its attempt and the time, which is that of one kernel, as long as it lives; the second attempt is a short one.
WORKER = """
import os, sys, time
name = "%s/%s-%s-%s" % (sys.argv[1], sys.argv[2], os.environ["TRAINYARD_ATTEMPT"], os.environ["RANK"])
with open(name, "w", buffering=1) as file:
    while True:
        print(time.monotonic(), file=file)
        if os.path.exists(sys.argv[1] + "/enough-" + sys.argv[2]) or int(os.environ["TRAINYARD_ATTEMPT"]) > 1:
            break
        time.sleep(0.02)
"""

LINES = "i=0; while [ $i -lt 2000 ]; do echo line $i of $RANK; i=$((i+1)); done"
CLOCK = ('"$0" report step=$TRAINYARD_ATTEMPT; test $RANK = 0 || exit $((TRAINYARD_ATTEMPT == 1 ? 3 : 0)); '
         "test $TRAINYARD_ATTEMPT = 2 || exec sleep 60")
FULL = 'mkdir "$HOME/big"; head -c 3000000 /dev/zero > "$HOME/big/file"; "$0" report step=1 --checkpoint "$HOME/big" || echo rank $RANK has saved nothing'


class Links(harness.Case):
    def setUp(self):
        super().setUp()
        self.key = secrets.token_hex(32)
        self.worker = self.write("worker.py", WORKER)
        self.notes = os.path.join(self.place, "notes")
        os.mkdir(self.notes)

    def join(self, name, host, rank, meeting, *args, nodes="2:3", program=None, env=None, **more):
        program = program or ("python3", self.worker, self.notes, name)
        return self.hosts.start_trainyard(
            host, "run", "--storage-path", more.pop("storage", self.storage), "--name", name, "--num-cpus", "4", "--nnodes", nodes, "--node-rank", rank,
            "--rendezvous", meeting, "--progress", "none", *args, "--", *program, env={"TRAINYARD_RUN_KEY": self.key, **(env or {})}, **more)

    def begin(self, name, hosts, *args, n=None, **more):
        """The same run on each of these hosts, one worker a host, with another attempt on those that are left; once all work."""
        n = n or "%d:%d" % (len(hosts) - 1, len(hosts))
        nodes = [self.join(name, host, rank, hosts[0] + ":7000", "-n", n, "--placement", "SPREAD", "--max-failures", "1", *args,
                           nodes=more.pop("nodes", n), **more)
                 for rank, host in enumerate(hosts)]
        for rank in range(len(hosts)):
            self.wait_for(lambda rank=rank: self.times(name, 1, rank), "worker %d of %s" % (rank, name), nodes[0])
        return nodes

    def times(self, name, attempt, rank):
        try:
            with open(os.path.join(self.notes, "%s-%d-%d" % (name, attempt, rank))) as file:
                return [float(line) for line in file.read().split("\n")[:-1]]
        except FileNotFoundError:
            return []

    def ahead_by_an_hour(self):
        """The environment of a node whose clock is."""
        library = os.path.join(self.place, "ahead.so")  # seen by all hosts, and without a space in its path
        os.symlink(os.path.realpath(FAILING), library)
        return {"LD_PRELOAD": library, "TRAINYARD_CLOCK_AHEAD": "3600"}

    def make_full(self, host):
        """/tmp/full has room for less than a checkpoint of FULL."""
        self.assert_status(0, self.hosts.run(host, "sh", "-c", "mkdir /tmp/full && mount -n -t tmpfs -o size=1m tmpfs /tmp/full"))

    def make_slow(self, host):
        self.hosts.change("slow", host, "512kbit")
        self.hosts.change("lose", host, "3")

    def assert_lines(self, finished):
        for rank in (0, 1):
            self.assertEqual(["[rank %d] line %d of %d" % (rank, i, rank) for i in range(2000)],
                             [line for line in finished.out.splitlines() if line.startswith("[rank %d]" % rank)])

    def assert_times(self, finished):
        """Of the run "clock" whose second node is an hour ahead."""
        self.assertIn("attempt 2 begins", finished.err)
        run = self.trainyard("status", "clock", "--storage-path", self.storage, "--format", "json").json
        self.assertEqual((2, 2), (run["attempts"], run["workers"]))
        self.assertTrue(0 <= run["seconds"] < 600, run)
        clock = max(run["clock_offsets"], key=lambda clock: clock["seconds"])
        self.assertLess(abs(clock["seconds"] - 3600), clock["uncertainty"] + 1e-6)
        with sqlite3.connect("file:%s/clock/run.db?mode=ro" % self.storage, uri=True) as journal:
            first, last = journal.execute("SELECT min(time) / 1e9, max(time) / 1e9 FROM (SELECT time FROM events UNION ALL SELECT time FROM reports)").fetchone()
        self.assertLess(last - first, 600, "times of the node are those of the controller's clock")

    def assert_nothing_saved(self, finished, host):
        """In the run "full", whose controller is on that host."""
        self.assertEqual({"[rank 0] rank 0 has saved nothing", "[rank 1] rank 1 has saved nothing"}, set(finished.out.splitlines()))
        self.assertIn("No space left on device", finished.err)
        self.assertNotIn("checkpoint_", self.hosts.run(host, "ls", "/tmp/full/runs/full").out)

    def enough(self, name):
        self.write("notes/enough-" + name, "")

    def assert_next_attempt(self, name, nodes, left):
        """The run went on without the node that was lost, and no worker of the first attempt lived when the second began."""
        self.assert_status(0, self.finish(nodes[0]))
        last = max(self.times(name, 1, rank)[-1] for rank in range(left + 1))
        first = min(self.times(name, 2, rank)[0] for rank in range(left))
        self.assertLess(last, first, "%s: the attempts overlapped" % name)


class Silence(Links):
    def test_what_is_silent_is_given_up_and_ends_itself(self):
        self.hosts = hosts = Hosts(self, 24)
        runs = {name: ["h%d" % (3 * k + 1), "h%d" % (3 * k + 2), "h%d" % (3 * k + 3)]
                for k, name in enumerate(("both-ways", "one-way-out", "one-way-in", "crash", "stopped", "killed"))}
        nodes = {name: self.begin(name, members) for name, members in runs.items()}
        hosts.cut(runs["both-ways"][2])
        hosts.cut(runs["one-way-out"][2], runs["one-way-out"][0], "--one-way")
        hosts.cut(runs["one-way-in"][0], runs["one-way-in"][2], "--one-way")
        hosts.crash(runs["crash"][2])
        os.kill(self.agent_of_node(nodes["stopped"][2]), signal.SIGSTOP)
        os.kill(self.agent_of_node(nodes["killed"][2]), signal.SIGKILL)
        resumed = self.resume_without(self.begin("resumed", ["h19", "h20"], "--outlive", "0", n="2"), "resumed", ["h19", "h21"], cut="h20")
        killed, adrift = self.resume_without_one_that_went_on("adrift", ["h22", "h23", "h24"])
        for name in runs:
            with self.subTest(name):
                self.assert_next_attempt(name, nodes[name], 2)
        for node in adrift:
            self.assert_status(0, self.finish(node))
        self.assertGreater(self.times("adrift", 1, 1)[-1], killed + 1, "the workers of a node whose controller died did not go on")
        self.assertLess(self.times("adrift", 1, 1)[-1], min(self.times("adrift", 2, rank)[0] for rank in (0, 1)),
                        "a resumed run began before the workers that had gone on had ended")
        for node in resumed:
            self.assert_status(0, self.finish(node))
        self.assertLess(self.times("resumed", 1, 1)[-1], min(self.times("resumed", 2, rank)[0] for rank in (0, 1)),
                        "a resumed run began before the node that is cut off had ended the attempt before")
        hosts.mend()
        for name in runs:
            self.assert_status(0, self.finish(nodes[name][1]))
            nodes[name][2].kill()  # it would try to come back for a minute
            nodes[name][2].wait()

    def resume_without(self, nodes, name, hosts, cut):
        """The controller is killed, and resumed at once, while one node that goes on cannot hear of it."""
        self.hosts.cut(cut)
        os.kill(self.hosts.pid_of(nodes[0]), signal.SIGKILL)
        nodes[0].wait()
        self.addCleanup(nodes[1].wait)
        self.addCleanup(nodes[1].kill)  # it would wait for a minute

        def resume():
            return [self.join(name, host, rank, hosts[0] + ":7000", "-n", "2", "--placement", "SPREAD", "--resume", nodes="2")
                    for rank, host in enumerate(hosts)]

        interrupted = resume()
        while "s at most: until then workers" not in (line := interrupted[0].stderr.readline()):
            self.assertNotEqual("", line, "the resumed run does not wait")
        os.kill(self.hosts.pid_of(interrupted[0]), signal.SIGINT)
        for node in interrupted:
            self.assert_status(130, self.finish(node))
        return resume()

    def resume_without_one_that_went_on(self, name, hosts):
        """The workers of a controller that is killed go on, and then one of their nodes is cut off, which another takes the place of."""
        nodes = self.begin(name, hosts[:2], "--outlive", "5", n="2")
        os.kill(self.hosts.pid_of(nodes[0]), signal.SIGKILL)
        nodes[0].wait()
        killed = time.monotonic()
        time.sleep(0.5)
        self.hosts.cut(hosts[1])
        self.addCleanup(nodes[1].wait)
        self.addCleanup(nodes[1].kill)  # it would wait for a minute
        resumed = [self.join(name, host, rank, hosts[0] + ":7000", "-n", "2", "--placement", "SPREAD", "--resume", nodes="2")
                   for rank, host in enumerate((hosts[0], hosts[2]))]
        while "s at most: until then workers" not in (line := resumed[0].stderr.readline()):
            self.assertNotEqual("", line, "the resumed run does not wait")
        return killed, resumed

    def test_a_short_silence_is_nothing(self):
        self.hosts = hosts = Hosts(self, 4)
        cut = self.begin("cut", ["h1", "h2"], n="2")
        stopped = self.begin("stopped", ["h3", "h4"], n="2")
        agent = self.agent_of_node(stopped[1])
        hosts.cut("h1", "h2")
        os.kill(agent, signal.SIGSTOP)
        goes_on = threading.Timer(4, os.kill, (agent, signal.SIGCONT))
        goes_on.start()
        time.sleep(2)
        hosts.mend()
        goes_on.join()
        time.sleep(0.5)
        for name, nodes in (("cut", cut), ("stopped", stopped)):
            self.enough(name)
            for node in nodes:
                self.assert_status(0, self.finish(node))
            self.assertEqual([], self.times(name, 2, 0), "another attempt was begun")

    def agent_of_node(self, node):
        """The process that serves the run, which the command itself keeps."""
        keeper = self.hosts.pid_of(node)
        with open("/proc/%d/task/%d/children" % (keeper, keeper)) as file:
            return int(file.read().split()[0])


class Trouble(Links):
    def test_a_reset_connection_loses_the_node(self):
        self.hosts = hosts = Hosts(self, 3)
        nodes = self.begin("reset", ["h1", "h2", "h3"])
        hosts.change("reset", "h1", "h3")
        self.assert_next_attempt("reset", nodes, 2)
        hosts.mend()
        self.assert_status(0, self.finish(nodes[1]))
        nodes[2].kill()  # it would try to come back for a minute
        nodes[2].wait()

    def test_one_node_with_a_clock_an_hour_ahead_and_one_with_a_full_disk(self):
        self.hosts = Hosts(self, 4)
        self.make_full("h4")
        ahead = self.ahead_by_an_hour()
        common = ("-n", "2", "--placement", "SPREAD", "--max-failures", "1")
        nodes = [self.join(name, host, rank, meeting, *common, nodes="2", program=("sh", "-c", script, harness.COMMAND), env=env, storage=storage)
                 for name, host, rank, meeting, script, env, storage in (
                     ("clock", "h1", 0, "h1:7000", CLOCK, None, self.storage), ("clock", "h2", 1, "h1:7000", CLOCK, ahead, self.storage),
                     ("full", "h3", 0, "h3:7000", FULL, None, "/tmp/full/runs"), ("full", "h4", 1, "h3:7000", FULL, None, "/tmp/full/runs"))]
        ended = [self.assert_status(0, self.finish(node)) for node in nodes]
        self.assert_times(ended[0])
        self.assert_nothing_saved(ended[2], "h3")

    def test_a_slow_link_that_loses_packets_is_slow(self):
        self.hosts = Hosts(self, 2)
        self.make_slow("h2")
        nodes = [self.join("slow", host, rank, "h1:7000", "-n", "2", "--placement", "SPREAD", nodes="2", program=("sh", "-c", LINES))
                 for rank, host in enumerate(("h1", "h2"))]
        first = self.assert_status(0, self.finish(nodes[0]))
        self.assert_status(0, self.finish(nodes[1]))
        self.assert_lines(first)

    def test_addresses_that_do_not_answer_are_passed_over(self):
        self.hosts = hosts = Hosts(self, 2, networks=2)
        hosts.run("h2", "ip", "link", "set", "eth0", "down")
        hosts.run("h2", "mount", "--bind", self.write("resolv.conf", "nameserver 10.77.1.77\noptions timeout:2 attempts:1\n"), "/etc/resolv.conf")
        for k, (here, there) in enumerate((("10.77.1.1:7001", "h1:7001,10.77.1.1:7001"), ("[fd77:1::1]:7002", "nowhere.example.org:7002,[fd77:1::1]:7002"),
                                           ("[fd77:1::1]:7003",) * 2)):
            with self.subTest(there):
                nodes = [self.join("address-%d" % k, host, rank, meeting, "-n", "2", "--placement", "SPREAD", nodes="2",
                                   program=("sh", "-c", "echo $RANK at $MASTER_ADDR"))
                         for rank, (host, meeting) in enumerate((("h1", here), ("h2", there)))]
                first = self.assert_status(0, self.finish(nodes[0]))
                self.assert_status(0, self.finish(nodes[1]))
                self.assertEqual(2, len(first.out.splitlines()), repr(first))
                for line in first.out.splitlines():
                    self.assertIn(line.split(" at ")[1], ("10.77.1.1", "fd77:1::1"))


class Comers(Links):
    def test_a_node_that_comes_and_goes_ten_times(self):
        """With another name and address each time; it is killed at another moment of its life each time, and stays in the end."""
        self.hosts = hosts = Hosts(self, 4)
        script = ': >"$0/$TRAINYARD_ATTEMPT-$RANK-$(uname -n)"; until [ -e "$0/enough" ]; do sleep 0.05; done'
        words = ("-n", "4:8", "--placement", "SPREAD", "--max-failures", "20", "--elastic-resize-monitor-interval", "200ms")

        def come(host, rank):
            return self.join("run", host, rank, "h1:7000", *words, nodes="1:2", program=("sh", "-c", script, self.notes))

        first = come("h1", 0)
        self.wait_for(lambda: os.path.exists(os.path.join(self.notes, "1-0-h1")), "the first worker", first)
        for times in range(10):
            node = come("h%d" % (2 + times % 2), 1)
            time.sleep(0.1 * times)
            os.kill(hosts.pid_of(node), signal.SIGKILL)
            node.wait()
        last = come("h4", 1)
        self.wait_for(lambda: any(name.endswith("-h4") for name in os.listdir(self.notes)), "workers of the node that stays", first)
        self.write("notes/enough", "")
        self.assert_status(0, self.finish(first))
        self.assert_status(0, self.finish(last))

    def test_another_build_is_refused_with_both_names(self):
        self.hosts = hosts = Hosts(self, 2)
        path, build, other = self.another_build()

        def come(host, rank):
            return self.join("run", host, rank, "h1:7000", "-n", "2", nodes="2", program=("true",))

        first = come("h1", 0)
        hosts.run("h2", "mount", "--bind", path, harness.COMMAND)
        refused = self.assert_status(4, self.finish(come("h2", 1)))
        for word in (build, other):
            self.assertIn(word, refused.err, refused)
        hosts.run("h2", "umount", harness.COMMAND)
        second = come("h2", 1)
        self.assert_status(0, self.finish(first))
        self.assert_status(0, self.finish(second))


class BySsh(Links):
    """Nobody is there who was started by hand: the agents, and what keeps them, are children of sshd."""

    def start_by_ssh(self, name, hosts):
        run = self.hosts.start_trainyard(
            hosts[0], "run", "--storage-path", self.storage, "--name", name, "--hosts", ",".join(host + ":4" for host in hosts), "-n", "2:3",
            "--placement", "SPREAD", "--max-failures", "1", "--progress", "none", "--", "python3", self.worker, self.notes, name)
        for rank in range(3):
            self.wait_for(lambda rank=rank: self.times(name, 1, rank), "worker %d of %s" % (rank, name), run)
        return run

    def test_what_is_silent_is_given_up_and_ends_itself(self):
        self.hosts = hosts = Hosts(self, 18, sshd=True)
        runs = {name: ["h%d" % (3 * k + i + 1) for i in range(3)]
                for k, name in enumerate(("both-ways", "one-way-out", "one-way-in", "crash", "stopped", "reset"))}
        started = {name: self.start_by_ssh(name, members) for name, members in runs.items()}
        hosts.cut(runs["both-ways"][2])
        hosts.cut(runs["one-way-out"][2], runs["one-way-out"][0], "--one-way")
        hosts.cut(runs["one-way-in"][0], runs["one-way-in"][2], "--one-way")
        hosts.crash(runs["crash"][2])
        hosts.run(runs["stopped"][2], "sh", "-c", "kill -STOP $(pgrep -P $(pgrep -o -f '[t]rainyard agent'))")
        hosts.change("reset", runs["reset"][0], runs["reset"][2])
        for name in runs:
            with self.subTest(name):
                self.assert_next_attempt(name, [started[name]], 2)
                self.assertNotIn("ssh -T", hosts.run(runs[name][0], "ps", "-eo", "args").out)

    def test_one_node_is_slow_one_has_a_clock_an_hour_ahead_and_one_a_full_disk(self):
        self.hosts = hosts = Hosts(self, 6, sshd=True)
        self.make_slow("h2")
        self.make_full("h6")
        # What ssh asks for is executed with these variables there.
        ahead = " ".join("%s=%s" % pair for pair in self.ahead_by_an_hour().items())
        script = self.write("ahead.sh", 'exec env %s sh -c "$SSH_ORIGINAL_COMMAND"\n' % ahead)
        self.assert_status(0, hosts.run("h4", "sh", "-c", """sed -i 's|^|command="sh %s" |' "$HOME/.ssh/authorized_keys"
""" % script))

        def start(name, host, other, storage, *program):
            return hosts.start_trainyard(
                host, "run", "--storage-path", storage, "--name", name, "--hosts", "%s:4,%s:4" % (host, other), "-n", "2", "--placement", "SPREAD",
                "--max-failures", "1", "--progress", "none", "--", "sh", "-c", *program)

        runs = (start("slow", "h1", "h2", self.storage, LINES), start("clock", "h3", "h4", self.storage, CLOCK, harness.COMMAND),
                start("full", "h5", "h6", "/tmp/full/runs", FULL, harness.COMMAND))
        slow, clock, full = (self.assert_status(0, self.finish(run)) for run in runs)
        self.assert_lines(slow)
        self.assert_times(clock)
        self.assert_nothing_saved(full, "h5")


if __name__ == "__main__":
    harness.main(side_by_side=3)
