"""The same command started once on each of several nodes, which meet at a rendezvous: here over loopback."""

import contextlib
import json
import os
import resource
import secrets
import signal
import socket
import sqlite3
import threading
import time

from harness import COMMAND, Case, free_port, main, processes_with

KEY = secrets.token_hex(32)


class JoinCase(Case):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.meeting = "127.0.0.1:%d" % self.port

    def node(self, rank, *args, nodes=2, key=KEY, leases=None, meeting=None, **more):
        env = {"TRAINYARD_RUN_KEY": key, **({"TRAINYARD_LEASE_DIR": leases} if leases else {})}
        return self.start("run", "--storage-path", self.storage, "--num-cpus", "64", "--nnodes", nodes, "--node-rank", rank,
                          "--rendezvous", meeting or self.meeting, *args, env=env, **more)

    def all_nodes(self, *args, order=(0, 1), **more):
        started = {rank: self.node(rank, *args, **more) for rank in order}
        return [self.finish(started[rank]) for rank in sorted(started)]

    def assert_statuses(self, status, ended):
        for finished in ended:
            self.assert_status(status, finished)


class Joined(JoinCase):
    def spread(self, script, *args, **more):
        return self.all_nodes("-n", 4, "--placement", "SPREAD", *args, "--", "sh", "-c", script, **more)

    def test_in_any_order(self):
        for order in ((0, 1), (1, 0)):
            ended = self.spread("echo $RANK on $NODE_RANK of $WORLD_SIZE at $MASTER_ADDR", order=order)
            self.assert_statuses(0, ended)
            lines = sorted(ended[0].out.splitlines())
            self.assertEqual(["[rank 0] 0 on 0 of 4 at 127.0.0.1", "[rank 1] 1 on 0 of 4 at 127.0.0.1",
                              "[rank 2] 2 on 1 of 4 at 127.0.0.1", "[rank 3] 3 on 1 of 4 at 127.0.0.1"], lines)
            self.assertEqual(("", []), (ended[1].out, self.lines_of(ended[1])))

    def test_a_node_of_another_run_is_told_so(self):
        words = ("-n", 2, "--placement", "SPREAD", "--name")
        first = self.node(0, *words, "a", "--", "sh", "-c", "echo $RANK is here")
        other = self.assert_status(2, self.finish(self.node(1, *words, "b", "--", "true")))
        self.assert_line(other, "run", "node 1", "started for the run b", "this is the run a", "--name")
        second = self.node(1, *words, "a", "--", "true")
        self.assertIn("rank 1] 1 is here", self.assert_status(0, self.finish(first)).out)
        self.assert_status(0, self.finish(second))

    def test_by_variables(self):
        env = {"TRAINYARD_NNODES": "2", "TRAINYARD_RENDEZVOUS": self.meeting, "TRAINYARD_RUN_KEY": KEY}
        line = ("run", "--storage-path", self.storage, "--num-cpus", "64", "-n", 4, "--placement", "SPREAD", "--", "sh", "-c",
                "echo $RANK on $NODE_RANK ${TRAINYARD_NNODES-} ${TRAINYARD_NODE_RANK-} ${TRAINYARD_RENDEZVOUS-}")
        ended = [self.finish(one) for one in [self.start(*line, env={**env, "TRAINYARD_NODE_RANK": str(rank)}) for rank in (0, 1)]]
        self.assert_statuses(0, ended)
        self.assertEqual(["[rank %d] %d on %d" % (rank, rank, rank // 2) for rank in range(4)],
                         sorted(line.rstrip() for line in ended[0].out.splitlines()))
        for args in (("--engine", "local"), ("--cluster", self.write("cluster.yaml", "nodes:\n- {name: a, resources: {CPU: 8}}\n"))):
            alone = self.trainyard("run", "--storage-path", self.storage, *args, "--", "true", env={**env, "TRAINYARD_NODE_RANK": "1"})
            self.assert_status(0, alone)

    def test_each_node_ends_with_the_status_of_the_run(self):
        self.assert_statuses(7, self.spread("exit $((RANK == 3 ? 7 : 0))"))

    def test_without_a_key_on_loopback(self):
        self.assert_statuses(0, self.spread("true", key=None))

    def test_the_key_is_not_told(self):
        ended = self.spread("env; cat /proc/$PPID/environ /proc/$PPID/cmdline | tr '\\0' '\\n'")
        self.assert_statuses(0, ended)
        self.assertNotIn(KEY, ended[0].out)
        self.assertIn("WORLD_SIZE=4", ended[0].out)

    def test_key_file(self):
        path = self.write("key", KEY + "\n")
        os.chmod(path, 0o600)
        self.assert_statuses(0, self.spread("true", "--key-file", path, key=None))

    def test_the_store_and_reports_come_home(self):
        script = 'T="%s"; "$T" report rank=$RANK; "$T" store set at.$RANK $RANK; "$T" store wait at.$((3 - RANK))' % COMMAND
        ended = self.spread(script)
        self.assert_statuses(0, ended)
        self.assertEqual(["[rank 0] 3", "[rank 1] 2", "[rank 2] 1", "[rank 3] 0"], sorted(ended[0].out.splitlines()))

    def test_a_controller_that_stands_still_is_waited_for(self):
        """For longer than a handshake may take: a machine may be that busy."""
        words = ("-n", 2, "--placement", "SPREAD", "--", "true")
        first = self.node(0, *words)
        self.wait_for_line(first, "missing: ")
        first.send_signal(signal.SIGSTOP)
        second = self.node(1, *words)
        time.sleep(6)
        first.send_signal(signal.SIGCONT)
        self.assert_statuses(0, [self.finish(first), self.finish(second)])

    def test_what_a_dead_controller_left_may_listen_a_moment_longer(self):
        with socket.create_server(("127.0.0.1", self.port)):
            first = self.node(0, "-n", 2, "--placement", "SPREAD", "--", "true")
            time.sleep(1)
        self.assertIsNone(first.poll(), "it has not waited")
        second = self.node(1, "-n", 2, "--placement", "SPREAD", "--", "true")
        self.assert_statuses(0, [self.finish(first), self.finish(second)])

    def test_who_answers_before_the_controller_may_be_another(self):
        """With another key, and about to leave the port: the node comes again."""
        words = ("-n", 2, "--placement", "SPREAD", "--", "true")
        with socket.create_server(("127.0.0.1", self.port)) as door:
            second = self.node(1, *words)
            stranger = door.accept()[0]
        with stranger:
            stranger.recv(4096)
            stranger.sendall(b"\x15\3\3\0\2\2\x28")  # handshake_failure
        first = self.node(0, *words)
        self.assert_statuses(0, [self.finish(first), self.finish(second)])

    def test_several_names_of_one_address(self):
        """The line is the same on each node."""
        for several in ("[::ffff:127.0.0.1]:%d,127.0.0.1:%d", "localhost:%d,127.0.0.1:%d", "127.0.0.1:%d,localhost:%d", "127.0.0.1:%d,127.0.0.1:%d"):
            with self.subTest(several):
                self.meeting = several % (self.port, self.port)
                self.assert_statuses(0, self.all_nodes("-n", 2, "--placement", "SPREAD", "--", "true"))

    def test_a_port_that_is_taken_in_one_family(self):
        """Nodes that ask there would find somebody else."""
        self.meeting = "localhost:%d" % self.port
        with socket.create_server(("0.0.0.0", self.port)):
            refused = self.assert_status(4, self.finish(self.node(0, "-n", 2, "--", "true")))
        self.assert_line(refused, "run", "cannot listen on 0.0.0.0:%d" % self.port, "in use")

    def test_a_run_that_cannot_fit(self):
        ended = self.all_nodes("-n", 500, "--", "true")
        self.assert_statuses(3, [ended[0]])
        self.assertNotEqual(0, ended[1].status)
        self.assert_statuses(3, ended)

    def test_a_name_that_is_taken_keeps_nobody_waiting(self):
        """It is refused before the other node is there."""
        os.makedirs(os.path.join(self.storage, "r"))
        finished = self.finish(self.node(0, "--name", "r", "-n", 2, "--", "true"))
        self.assert_status(2, finished)
        self.assertEqual(1, len(finished.err.splitlines()), finished)
        self.assert_line(finished, "run", "exists already", "--resume")


class Asked(JoinCase):
    """The controller's own socket, for questions from this machine."""

    def setUp(self):
        super().setUp()
        words = ("--name", "r", "-n", 2, "--placement", "SPREAD", "--", "sh", "-c", ": > up.$RANK; while ! test -e enough; do sleep 0.05; done")
        self.nodes = [self.node(rank, *words) for rank in (0, 1)]
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.place, "up.%d" % rank)) for rank in (0, 1)), "workers", self.nodes[0])
        for node in self.nodes:
            self.addCleanup(node.kill)
        with sqlite3.connect("file:%s/r/run.db?mode=ro" % self.storage, uri=True) as journal:
            (run,) = journal.execute("SELECT data FROM events WHERE kind = 'run'").fetchone()
        self.name = "\0trainyard-control-" + json.loads(run)["id"]

    def end(self):
        self.write("enough", "")
        for node in self.nodes:
            self.assert_status(0, self.finish(node))

    def connect(self):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.settimeout(180)
        client.connect(self.name)
        self.addCleanup(client.close)
        return client

    def assert_answers(self, client):
        client.send(b"look 1000000 1000000 0-1")
        self.assertRegex(client.recv(1 << 15), b"^(node|silent) ")
        client.close()

    def test_who_asks_nothing_is_not_waited_for(self):
        silent = self.connect()
        self.assertEqual(b"", silent.recv(1))
        self.assert_answers(self.connect())
        self.end()

    def test_no_descriptor_is_left(self):
        """The controller does not call for it all the time, and answers when it can."""
        with self.without_descriptors(self.nodes[0].pid):
            client = self.connect()
        self.assert_answers(client)
        self.end()


    def test_a_controller_that_hears_nobody_is_not_waited_for(self):
        """As many wait there as may. The one who asks takes the ranks for those of another machine."""
        controller = self.nodes[0].pid
        before = resource.prlimit(controller, resource.RLIMIT_NOFILE)
        resource.prlimit(controller, resource.RLIMIT_NOFILE, (0, before[1]))
        waiting = []
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                waiting[-1].setblocking(False)
                waiting[-1].connect(self.name)
        elsewhere = ("--uts", *(() if os.geteuid() == 0 else ("-r",)), "sh", "-c", 'hostname elsewhere && exec "$0" "$@"', COMMAND)
        told = self.finish(self.start(*elsewhere, "stacks", "r", "--storage-path", self.storage, "--seconds", "100ms", command="unshare"))
        self.assertIn("the run's controller does not answer", told.err)
        resource.prlimit(controller, resource.RLIMIT_NOFILE, before)
        for client in waiting:
            client.close()
        self.end()


class Lost(JoinCase):
    def begin(self, script, *args, **more):
        started = [self.node(rank, "-n", 2, "--placement", "SPREAD", *args, "--", "sh", "-c", script, **more) for rank in (0, 1)]
        self.wait_for(lambda: len([n for n in os.listdir(self.place) if n.startswith("ready.")]) == 2, "two workers", started[0])
        return started

    def test_an_agent_is_killed(self):
        started = self.begin("echo $PPID > agent.$RANK; : > ready.$RANK; exec sleep 3071", "--name", "r")
        with open(os.path.join(self.place, "agent.1")) as file:
            os.kill(int(file.read()), signal.SIGKILL)
        first, second = (self.finish(process) for process in started)
        self.assert_status(5, first)
        self.assert_status(5, second)
        self.assertRegex(first.err, "first cause: node .*-1 was lost: its agent ended before its time, [0-9.]+ m?s after the launch\n")
        told = self.assert_status(0, self.trainyard("status", "r", "--storage-path", self.storage)).out
        self.assertRegex(told, "first cause +node .*-1 was lost: its agent ended before its time\n")
        self.assertIn("its agent was killed by signal 9", second.err)

    def attempts(self):
        """What each rank of each attempt wrote: (attempt, rank, begin or end, when), by time."""
        with open(os.path.join(self.place, "notes")) as file:
            return sorted((line.split() for line in file if line.count(" ") == 3), key=lambda words: int(words[3]))

    def test_a_killed_agent_is_followed_by_another(self):
        started = self.begin("echo $PPID > agent.$TRAINYARD_ATTEMPT.$RANK; : > ready.$RANK; "
                             "test $TRAINYARD_ATTEMPT = 2 || exec sleep 3073", "--max-failures", 1)
        with open(os.path.join(self.place, "agent.1.1")) as file:
            os.kill(int(file.read()), signal.SIGKILL)
        first, second = (self.finish(process) for process in started)
        self.assert_status(0, first)
        self.assert_status(0, second)
        self.assertIn("attempt 2 begins", first.err)

    def test_a_spare_node_takes_over(self):
        """Three nodes, of which one waits; the agent of another is killed."""
        script = ("echo $PPID > agent.$TRAINYARD_ATTEMPT.$RANK; echo $TRAINYARD_ATTEMPT $RANK $WORLD_SIZE $NODE_RANK >> notes; "
                  ": > ready.$RANK; test $TRAINYARD_ATTEMPT = 2 || exec sleep 3075")
        args = ("--name", "r", "-n", 2, "--placement", "SPREAD", "--spares", 1, "--max-failures", 1, "--", "sh", "-c", script)
        started = [self.node(rank, *args, nodes=3) for rank in (0, 1, 2)]
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.place, "ready.%d" % rank)) for rank in (0, 1)), "workers", started[0])
        self.assertEqual({"number": 1, "replaced": None}, self.status_of("r")["spares"])
        with open(os.path.join(self.place, "agent.1.1")) as file:
            os.kill(int(file.read()), signal.SIGKILL)
        first, *others = (self.finish(process) for process in started)
        self.assert_status(0, first)
        for other in others:
            self.assert_status(0, other)
        with open(os.path.join(self.place, "notes")) as file:
            self.assertEqual(["1 0 2 0", "1 1 2 1", "2 0 2 0", "2 1 2 1"], sorted(file.read().splitlines()))
        name = socket.gethostname()
        self.assertIn("spare nodes take over: %s-2 for %s-1" % (name, name), first.err)
        self.assertEqual({"number": 1, "replaced": "%s-2 for %s-1" % (name, name)}, self.status_of("r")["spares"])
        text = self.trainyard("status", "r", "--storage-path", self.storage).out
        self.assertRegex(text, r"spares +1 node; %s-2 for %s-1 in attempt 2\n" % (name, name))

    def status_of(self, name):
        return self.trainyard("status", name, "--storage-path", self.storage, "--format", "json").json

    def test_attempts_never_overlap_when_an_agent_is_stopped(self):
        script = ("echo $TRAINYARD_ATTEMPT $RANK begin $(date +%s%N) >> notes; echo $PPID > agent.$TRAINYARD_ATTEMPT.$RANK; "
                  ": > ready.$RANK; test $TRAINYARD_ATTEMPT = 2 && exit; "
                  "while :; do echo $TRAINYARD_ATTEMPT $RANK goes $(date +%s%N) >> notes; sleep 0.05; done")
        started = self.begin(script, "--max-failures", 1)
        with open(os.path.join(self.place, "agent.1.1")) as file:
            os.kill(int(file.read()), signal.SIGSTOP)
        first, second = (self.finish(process) for process in started)
        self.assert_status(0, first)
        self.assert_status(0, second)
        self.assertIn("was killed by signal 9", second.err)
        notes = [words[0] for words in self.attempts()]
        self.assertEqual(sorted(notes), notes)
        self.assertIn("2", notes)

    def test_an_agent_that_is_stopped_for_a_while_goes_on(self):
        started = self.begin("echo $PPID > agent.$RANK; : > ready.$RANK; while ! test -e go; do sleep 0.05; done")
        with open(os.path.join(self.place, "agent.1")) as file:
            agent = int(file.read())
        os.kill(agent, signal.SIGSTOP)
        time.sleep(4)
        os.kill(agent, signal.SIGCONT)
        time.sleep(1.5)
        self.write("go", "")
        first, second = (self.finish(process) for process in started)
        self.assert_status(0, first)
        self.assert_status(0, second)

    def test_a_killed_controller_is_followed_by_another(self):
        script = "echo $TRAINYARD_ATTEMPT $RANK begin >> notes; : > ready.$RANK; test $TRAINYARD_ATTEMPT = 2 || exec sleep 3072"
        started = self.begin(script, "--name", "r", "--outlive", 0)
        os.kill(started[0].pid, signal.SIGKILL)
        started[0].wait()
        resumed = self.node(0, "-n", 2, "--placement", "SPREAD", "--name", "r", "--resume", "--", "sh", "-c", script)
        first, second = self.assert_status(0, self.finish(resumed)), self.assert_status(0, self.finish(started[1]))
        self.assertNotIn("waiting", first.err)  # the node that came back has proven that nothing is left there
        self.assertIn("the controller is lost", second.err)

    def test_a_node_that_waits_for_another_controller_can_be_ended(self):
        started = self.begin(": > ready.$RANK; exec sleep 3072", "--outlive", 0)
        os.kill(started[0].pid, signal.SIGKILL)
        started[0].wait()
        self.wait_for_line(started[1], "the controller is lost")
        started[1].send_signal(signal.SIGINT)
        self.assert_status(5, self.finish(started[1]))

    def test_a_node_that_waits_for_another_controller_ends_with_its_keeper(self):
        started = self.begin(": > ready.$RANK; exec sleep 3072", "--outlive", 0)
        os.kill(started[0].pid, signal.SIGKILL)
        started[0].wait()
        self.wait_for_line(started[1], "the controller is lost")
        started[1].kill()
        started[1].wait()
        self.wait_for(lambda: not processes_with(self.place), "the end of its agent", seconds=50)  # it would look for another controller for a minute

    def test_a_node_is_taken_away(self):
        started = self.begin("trap 'exit 0' TERM; : > ready.$RANK; while :; do sleep 0.02; done")
        os.kill(started[1].pid, signal.SIGTERM)
        for process in started:
            self.assert_status(143, self.finish(process))

    def test_a_node_is_taken_away_whose_workers_have_ended(self):
        """Others' have not: the run is preempted, and what is resumed begins at once."""
        script = ": > ready.$RANK; [ $RANK$TRAINYARD_ATTEMPT != 01 ] || exec sleep 3072"
        started = self.begin(script, "--name", "r", "--outlive", 0)
        self.wait_for(lambda: '"succeeded": 1' in self.trainyard("status", "--storage-path", self.storage, "--format", "json", "r").out, "the end of worker 1", started[0], seconds=60)
        os.kill(started[1].pid, signal.SIGTERM)
        self.assert_status(143, self.finish(started[0]))
        self.finish(started[1])
        again = [self.node(rank, "-n", 2, "--placement", "SPREAD", "--name", "r", "--resume", "--", "sh", "-c", script) for rank in (0, 1)]
        first, _ = [self.assert_status(0, self.finish(process)) for process in again]
        self.assertNotIn("waiting", first.err)

    def test_a_node_is_taken_away_by_another_signal(self):
        """As the one that Slurm gives a step before its time is over."""
        started = self.begin("trap 'exit 0' TERM; echo $PPID > agent.$RANK; : > ready.$RANK; while :; do sleep 0.02; done")
        with open(os.path.join(self.place, "agent.1")) as file:
            os.kill(int(file.read()), signal.SIGUSR1)
        for process in started:
            self.assert_status(128 + signal.SIGUSR1, self.finish(process))

    def test_a_node_whose_command_hears_another_signal_ends_as_the_run_does(self):
        for number, options in ((signal.SIGUSR1, ()), (signal.SIGUSR2, ()), (signal.SIGXCPU, ("--preempt-signal", "XCPU"))):
            with self.subTest(number.name):
                for rank in (0, 1):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(self.place, "ready.%d" % rank))
                started = self.begin("trap 'exit 0' TERM; : > ready.$RANK; while :; do sleep 0.02; done", *options)
                os.kill(started[1].pid, number)
                for process in started:
                    self.assert_status(128 + number, self.finish(process))

    def test_a_node_is_told_to_end(self):
        started = self.begin("trap 'exit 0' TERM; : > ready.$RANK; while :; do sleep 0.02; done")
        os.kill(started[1].pid, signal.SIGINT)
        first, second = (self.finish(process) for process in started)
        self.assertEqual(first.status, second.status)
        self.assertNotEqual(0, first.status)


class Between(JoinCase):
    """Node 1 reaches the controller through somebody who has no key, and does with each piece of bytes as `change` says."""

    def go_between(self, change):
        door = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(door.close)

        def carry(source, to, home):
            with contextlib.suppress(OSError):
                while piece := source.recv(65536):
                    for part in change(piece, home):
                        to.sendall(part)
            for end in (source, to):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        def open_door():
            with contextlib.suppress(OSError):
                while True:
                    near = door.accept()[0]
                    try:
                        far = socket.create_connection(("127.0.0.1", self.port))
                    except OSError:
                        near.close()  # it comes again
                        continue
                    for end in (near, far):
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        self.addCleanup(end.close)
                    for source, to, home in ((near, far, True), (far, near, False)):
                        threading.Thread(target=carry, args=(source, to, home), daemon=True).start()

        threading.Thread(target=open_door, daemon=True).start()
        return "127.0.0.1:%d" % door.getsockname()[1]

    def test_bytes_may_come_one_by_one(self):
        meeting = self.go_between(lambda piece, home: (piece[i:i + 1] for i in range(len(piece))))
        first = self.node(0, "-n", 2, "--placement", "SPREAD", "--", "sh", "-c", "echo rank $RANK is here")
        second = self.node(1, "--", "true", meeting=meeting)
        said = self.assert_status(0, self.finish(first)).out
        self.assert_status(0, self.finish(second))
        self.assertIn("rank 1 is here", said)

    def test_a_node_that_was_turned_away_for_being_late_comes_again(self):
        """As where either machine is busy between a node's first word and its next."""
        held = threading.Event()

        def change(piece, home):
            if home and not piece.startswith(b"\x16") and not held.is_set():
                held.set()
                time.sleep(6)
            return [piece]

        first = self.node(0, "-n", 2, "--placement", "SPREAD", "--", "true")
        self.wait_for_line(first, "missing: ")
        second = self.node(1, "--", "true", meeting=self.go_between(change))
        self.assert_statuses(0, [self.finish(first), self.finish(second)])

    def test_a_changed_byte_costs_the_node_its_attempt(self):
        """It comes back, and the next attempt has it again."""
        for home in (True, False):
            with self.subTest(home=home):
                ready, changed = os.path.join(self.place, "ready.%s" % home), threading.Event()

                def change(piece, to_home):
                    if to_home == home and os.path.exists(ready) and not changed.is_set():
                        changed.set()
                        piece = piece[:-1] + bytes([piece[-1] ^ 1])
                    return [piece]

                words = ("-n", 2, "--placement", "SPREAD", "--max-failures", 1, "--", "sh", "-c",
                         "test $TRAINYARD_ATTEMPT = 2 && exit; test $RANK = 0 || : > %s; exec sleep 3077" % ready)
                meeting = self.go_between(change)
                first, second = self.node(0, *words), self.node(1, *words, meeting=meeting)
                ended = self.assert_status(0, self.finish(first))
                self.assert_status(0, self.finish(second))
                self.assertTrue(changed.is_set())
                self.assertRegex(ended.err, "was lost")
                self.assertIn("attempt 2 begins", ended.err)


class Leases(JoinCase):
    """Two runs whose nodes are on one host, where there is one GPU."""

    def node_of(self, run, port, rank, script="true", nodes=2, gpus=0, *args):
        return self.start("run", "--storage-path", self.storage, "--name", run, "--num-cpus", 64, "--num-gpus", gpus, "--nnodes", nodes,
                          "--node-rank", rank, "--rendezvous", "127.0.0.1:%d" % port, "-n", 1, "--use-gpu", *args, "--", "sh", "-c", script,
                          env={"TRAINYARD_RUN_KEY": KEY})

    def hold(self, gpus=(0, 1)):
        started = [self.node_of("holder", self.port, rank, "echo $PPID > agent; : > ready; exec sleep 3074", gpus=gpus[rank])
                   for rank in (0, 1)]
        self.wait_for(lambda: os.path.exists(os.path.join(self.place, "ready")), "the worker of the holder", started[0])
        return started

    def end(self, started):
        started[0].send_signal(signal.SIGINT)
        for process in started:
            self.assert_status(130, self.finish(process))

    def assert_free(self):
        port = free_port()
        for finished in [self.finish(process) for process in [self.node_of("next", port, rank, gpus=rank) for rank in (0, 1)]]:
            self.assert_status(0, finished)

    def test_what_another_joined_run_holds_is_not_offered(self):
        holder = self.hold()
        port = free_port()
        first, second = (self.finish(process) for process in [self.node_of("hasty", port, rank, gpus=rank) for rank in (0, 1)])
        self.assert_status(3, first)
        self.assertRegex(first.err, r"GPU.*; node \S+: run holder of \S+ \(pid \d+\) has held 1 GPU since 20")
        self.assertNotEqual(0, second.status)
        self.end(holder)
        self.assert_free()

    def test_what_another_run_took_meanwhile_is_refused(self):
        port = free_port()
        late = [self.node_of("late", port, rank, nodes=3, gpus=int(rank == 1)) for rank in (0, 1)]
        self.wait_for_line(late[0], "2 of 3 nodes are here")
        holder = self.hold()
        late.append(self.node_of("late", port, 2, nodes=3))
        first, *others = [self.finish(process) for process in late]
        self.assert_status(4, first)
        self.assertRegex(first.err, r"node \S+: GPU 0 is taken: run holder of \S+ \(pid \d+\) has held 1 GPU since 20.*; start again when")
        for other in others:
            self.assert_status(4, other)
        self.end(holder)
        self.assert_free()

    def test_a_killed_agent_lets_go(self):
        holder = self.hold()
        with open(os.path.join(self.place, "agent")) as file:
            os.kill(int(file.read()), signal.SIGKILL)
        for process in holder:
            self.assert_status(5, self.finish(process))
        self.assert_free()

    def test_what_an_elastic_run_grows_into_is_claimed(self):
        script = ": > worker.$RANK.of.$WORLD_SIZE; exec sleep 3075"
        grow = ("-n", "1:2", "--elastic-resize-monitor-interval", "200ms")

        def wait_for_worker(rank, of):
            self.wait_for(lambda: os.path.exists(os.path.join(self.place, "worker.%d.of.%d" % (rank, of))), "worker", started[0])

        started = [self.node_of("growing", self.port, rank, script, "2:3", rank, *grow) for rank in (0, 1)]
        wait_for_worker(0, 1)
        started.append(self.node_of("growing", self.port, 2, script, "2:3", 2, *grow))
        wait_for_worker(1, 2)
        other = self.trainyard("run", "--storage-path", self.storage, "-n", 1, "--use-gpu", "--num-gpus", 2, "--no-wait", "--", "true")
        self.assert_status(3, other)
        self.assertIn("run growing of ", other.err)
        self.end(started)
        self.assert_free()

    def test_the_controller_claims_for_its_own_node(self):
        holder = self.hold(gpus=(1, 0))
        port = free_port()
        first, _ = (self.finish(process) for process in
                    [self.node_of("hasty", port, rank, "true", 2, 1 - rank, "--no-wait") for rank in (0, 1)])
        self.assert_status(3, first)
        self.assertIn("run holder of ", first.err)
        waiting = [self.node_of("waiter", port, rank, gpus=1 - rank) for rank in (0, 1)]
        self.wait_for_line(waiting[0], "waiting: ")
        self.end(holder)
        for process in waiting:
            self.assert_status(0, self.finish(process))


class Refused(JoinCase):
    def test_words(self):
        for args, words in (
            (("--nnodes", "2", "--rendezvous", self.meeting), ("--node-rank",)),
            (("--nnodes", "2", "--node-rank", "0"), ("--rendezvous",)),
            (("--node-rank", "0", "--rendezvous", self.meeting), ("--nnodes",)),
            (("--nnodes", "2", "--node-rank", "0", "--rendezvous", self.meeting, "--spares", "2", "--max-failures", "1"), ("--spares", "2 nodes")),
            (("--nnodes", "2", "--node-rank", "0", "--rendezvous", self.meeting, "--spares", "1"), ("--spares", "--max-failures")),
            (("--spares", "1", "--max-failures", "1"), ("--spares", "1 node")),
            (("--spares", "-1"), ("--spares",)),
            (("--nnodes", "2", "--node-rank", "2", "--rendezvous", self.meeting), ("0 to 1",)),
            (("--nnodes", "0", "--node-rank", "0", "--rendezvous", self.meeting), ("--nnodes 0",)),
            (("--nnodes", "3:2", "--node-rank", "0", "--rendezvous", self.meeting), ("--nnodes 3:2",)),
            (("--nnodes", "2", "--node-rank", "0", "--rendezvous", "127.0.0.1"), ("port",)),
            (("--nnodes", "2", "--node-rank", "1", "--rendezvous", "127.0.0.1:1, 127.0.0.1:2"), ("--rendezvous", '" 127.0.0.1:2" has no host')),
            (("--nnodes", "2", "--node-rank", "0", "--rendezvous", "0.0.0.0:0"), ("no key", "openssl rand -hex 32")),
            (("--nnodes", "2", "--node-rank", "1", "--rendezvous", "192.0.2.1:9"), ("no key",)),
        ):
            with self.subTest(args=args):
                finished = self.trainyard("run", "--storage-path", self.storage, *args, "--", "true")
                self.assert_usage(finished, "run", *words)

    def test_variables(self):
        whole = {"TRAINYARD_NNODES": "2", "TRAINYARD_NODE_RANK": "0", "TRAINYARD_RENDEZVOUS": "127.0.0.1"}
        for env, words in (({"TRAINYARD_NNODES": "x"}, ("TRAINYARD_NNODES", "MIN:MAX")), ({"TRAINYARD_NODE_RANK": "-1"}, ("TRAINYARD_NODE_RANK",)),
                           ({"TRAINYARD_NNODES": "2"}, ("--rendezvous",)), (whole, ("port",))):
            with self.subTest(env):
                self.assert_usage(self.trainyard("run", "--storage-path", self.storage, "--", "true", env=env), "run", *words)

    def test_key_files(self):
        path = self.write("key", KEY)
        for mode, text, word in ((0o644, KEY, "chmod 600"), (0o600, "short", "openssl rand -hex 32"), (0o600, "", "openssl")):
            self.write("key", text)
            os.chmod(path, mode)
            finished = self.finish(self.node(0, "--key-file", path, "--", "true", key=None))
            self.assert_usage(finished, "run", word)
            self.assertNotIn(KEY, finished.err)

    def test_another_key(self):
        first = self.node(0, "--", "true")
        second = self.finish(self.node(1, "--", "true", key=secrets.token_hex(32)))
        self.assertNotEqual(0, second.status)
        self.assertIn("have both the same key?", second.err)
        self.assert_status(0, self.finish(self.node(1, "--", "true")))
        self.assertIn("was turned away", self.assert_status(0, self.finish(first)).err)

    def test_a_rank_that_is_there_already(self):
        first = self.node(0, "--", "true", nodes=3)
        second = self.node(1, "--", "true", nodes=3)
        third = self.node(1, "--", "true", nodes=3)
        self.wait_for(lambda: second.poll() is not None or third.poll() is not None, "the one that came later to be refused")
        late, other = (second, third) if second.poll() is not None else (third, second)
        refused = self.assert_status(2, self.finish(late))
        self.assertIn("node rank 1 has joined already", refused.err)
        self.assert_status(0, self.finish(self.node(2, "--", "true", nodes=3)))
        self.assert_status(0, self.finish(first))
        self.assert_status(0, self.finish(other))

    def test_another_run_at_the_same_port(self):
        """With the same key, as from a profile."""
        words = ("--placement", "SPREAD", "-n", 2, "--", "sh", "-c", ": > up.$RANK; until [ -e enough ]; do sleep 0.05; done")
        nodes = [self.node(rank, "--name", "one", *words) for rank in (0, 1)]
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.place, "up.%d" % rank)) for rank in (0, 1)), "workers", nodes[0])
        refused = self.assert_status(4, self.finish(self.node(0, "--name", "two", *words)))
        self.assert_line(refused, "run", "cannot listen on", "in use")
        self.assertIn("node rank 1 has joined already", self.assert_status(2, self.finish(self.node(1, "--name", "two", *words))).err)
        self.write("enough", "")
        for node in nodes:
            self.assert_status(0, self.finish(node))

    def test_strangers_change_nothing(self):
        first = self.node(0, "-n", 2, "--placement", "SPREAD", "--", "true")
        strangers = []
        self.await_door()
        for said in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\xff\xff", secrets.token_bytes(4096), b"\0" * 65536):
            for _ in range(60):
                stranger = socket.create_connection(("127.0.0.1", self.port))
                strangers.append(stranger)
                stranger.setblocking(False)
                try:
                    stranger.send(said)
                except OSError:
                    pass
        self.assert_status(0, self.finish(self.node(1, "--", "true")))
        self.assert_status(0, self.finish(first))
        for stranger in strangers:
            stranger.close()

    def await_door(self):
        def listens():
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return True
            return False
        self.wait_for(listens, "somebody who listens")


if __name__ == "__main__":
    main(side_by_side=3)
