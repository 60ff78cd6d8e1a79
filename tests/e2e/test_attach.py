"""Terminals of workers: --pty, --debug, and `trainyard attach`, which gives the user's to one of them."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

from harness import COMMAND, main
from runs import children, state_of
from test_bars import Grid
from test_output import OutputCase
from test_terminal import Terminal

STOPS = """
import os, signal
x = 42
if os.environ["RANK"] == os.environ.get("AT", "0"):
    breakpoint()
print("went on with", x)
"""


class AttachCase(OutputCase):
    def start_run_with(self, *args, **more):
        """A run in the background whose output goes to a file."""
        out = open(os.path.join(self.place, "out"), "wb")
        self.addCleanup(out.close)
        process = subprocess.Popen(self.command(*args), cwd=self.place, env=self.environment_with(more.pop("env", None)),
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=out, **more)
        return process

    def socket(self, rank=0):
        return os.path.join(self.storage, "r%d" % self.runs, "attach", "rank-%d" % rank)

    def wait_for_socket(self, rank=0):
        self.wait_for(lambda: os.path.exists(self.socket(rank)))

    def out(self):
        with open(os.path.join(self.place, "out"), "rb") as file:
            return file.read()

    def attach_words(self, *args):
        return [COMMAND, "attach", "r%d" % self.runs, "--storage-path", self.storage, *map(str, args)]

    def attach(self, *args):
        """On a terminal."""
        return Terminal(self, self.attach_words(*args))

    def stop(self, process):
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.wait(180)
        self.assertFalse(os.path.exists(os.path.dirname(self.socket())))


class Terminals(AttachCase):
    def test_all_three_are_one(self):
        script = "import os; print([os.isatty(i) for i in range(3)], open('/dev/tty') and 1, os.getsid(0) == os.getpid() == os.tcgetpgrp(0))"
        out, err = self.bytes_of("-n", 2, "--pty", "--", sys.executable, "-S", "-c", script)
        self.assertEqual(["[rank %d] [True, True, True] 1 True" % rank for rank in (0, 1)], sorted(out.decode().splitlines()))
        self.assertEqual(b"", err)
        self.assertEqual(b"[True, True, True] 1 True\n", self.log())

    def test_size_follows_the_terminal(self):
        terminal = Terminal(self, self.command("--pty", "--", "sh", "-c", "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.01; done"))
        terminal.wait_for(lambda screen: "[rank 0] 24 100" in screen.lines)
        fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.assertEqual(0, terminal.finish())
        self.assertIn("[rank 0] 40 120", terminal.screen.lines)

    def test_colours_go_to_a_terminal_and_nothing_else(self):
        said = r"\033[1;31mred\033[0m \033[2J\033]0;title\007plain\033[?25l ab\bc\n"
        terminal = Terminal(self, self.command("--pty", "--", "printf", said))
        self.assertEqual(0, terminal.finish())
        self.assertIn(b"[rank 0] \x1b[1;31mred\x1b[0m plain ac\x1b[0m\r\n", terminal.raw)
        out, _ = self.bytes_of("--pty", "--", "printf", said)
        self.assertEqual(b"[rank 0] red plain ac\n", out)
        self.assertEqual(b"\x1b[1;31mred\x1b[0m \x1b[2J\x1b]0;title\x07plain\x1b[?25l ab\bc\n", self.log())

    def test_output_is_whole(self):
        """Of a flood, and of a worker that dies: its last lines too."""
        out, _ = self.bytes_of("-n", 2, "--pty", "--", "seq", 1, 100000)
        for rank in (0, 1):
            mine = [line for line in out.splitlines() if line.startswith(b"[rank %d] " % rank)]
            self.assertEqual([b"[rank %d] %d" % (rank, i) for i in range(1, 100001)], mine)
        _, err = self.bytes_of("--pty", "--", "sh", "-c", "seq 1 5000; echo last words; kill -9 $$", status=137)
        self.assertIn(b"    | last words\n", err)

    def test_a_worker_that_lets_go_of_it(self):
        """It is not hung up on."""
        self.bytes_of("--pty", "--", "sh", "-c", "exec > file 2>&1 < /dev/null; sleep 0.3; echo alive")
        with open(os.path.join(self.place, "file")) as file:
            self.assertEqual("alive\n", file.read())

    def test_a_stranger_that_keeps_it(self):
        self.bytes_of("--pty", "--", "sh", "-c", "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.01; done' & sleep 0.1; echo over")
        self.assertEqual(b"over\n", self.log())

    def test_input_reaches_it_and_ends(self):
        process = subprocess.run(self.command("--pty", "--stdin", 0, "--", "sh", "-c", "stty -echo; echo ready; cat; echo over"), cwd=self.place,
                                 env=self.environment, input=b"one\ntwo\n", capture_output=True, timeout=180)
        self.assertEqual(0, process.returncode, process.stderr)
        self.assertTrue(process.stdout.endswith(b"[rank 0] one\n[rank 0] two\n[rank 0] over\n"), process.stdout)

    def test_no_terminal_can_be_had(self):
        for rank, words in (("2", b"debug 2: there are 2 workers"), ("all", b"RANK")):
            finished = subprocess.run(self.command("-n", 2, "--debug", rank, "--", "true"), cwd=self.place, env=self.environment,
                                      capture_output=True, timeout=180)
            self.assertEqual(2, finished.returncode)
            self.assertIn(words, finished.stderr)
            self.assertFalse(os.path.exists(self.storage))


class Attached(AttachCase):
    def test_breakpoint_in_one_rank(self):
        script = self.write("stops.py", STOPS)
        run = self.start_run_with("-n", 2, "--pty", "--env", "AT=1", "--", sys.executable, script)
        self.wait_for_socket(1)
        self.wait_for(lambda: b"(Pdb)" in self.read_log(1))
        terminal = self.attach("--rank", 1)
        terminal.wait_for(lambda screen: "(Pdb)" in screen.lines[-1])  # which it had said before
        terminal.type(b"p x + 1\r")
        terminal.wait_for(lambda screen: "43" in screen.lines)
        terminal.type(b"x = 7\rc\r")
        self.assertEqual(0, terminal.finish())
        self.assertIn("went on with 7", terminal.screen.lines)
        self.assertEqual(0, run.wait(180))
        self.assertIn(b"[rank 1] went on with 7\n", self.out())
        self.assertFalse(os.path.exists(os.path.dirname(self.socket())))

    def read_log(self, rank):
        try:
            with open(os.path.join(self.storage, "r%d" % self.runs, "logs", "rank-%d.log" % rank), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def test_keys_and_size_are_the_workers(self):
        run = self.start_run_with("--pty", "--", "sh", "-c", "trap 'echo heard; stty size' INT; echo ready; while :; do sleep 0.01; done")
        self.wait_for_socket()
        terminal = self.attach()
        terminal.wait_for(lambda screen: "ready" in screen.lines)
        terminal.type(b"\x03")
        terminal.wait_for(lambda screen: "24 100" in screen.lines)
        terminal.type(b"\x1d")
        self.assertEqual(0, terminal.finish())
        self.assertIn("detached", terminal.screen.lines[-2])
        self.assertIsNone(run.poll())
        self.stop(run)

    def test_the_terminal_gets_its_modes_back(self):
        """Whoever is ended, in whatever way; and when the run ends."""
        def end_child(terminal):
            with open("/proc/%d/task/%d/children" % (terminal.process.pid, terminal.process.pid)) as file:
                os.kill(int(file.read()), signal.SIGKILL)

        def kill_run(terminal):
            self.stop(self.run_process)

        for end in (lambda terminal: terminal.type(b"\x1d"), lambda terminal: terminal.process.terminate(),
                    lambda terminal: terminal.process.send_signal(signal.SIGHUP), lambda terminal: terminal.process.kill(), end_child, kill_run):
            self.run_process = self.start_run_with("--pty", "--", "sh", "-c", "echo ready; while :; do sleep 0.01; done")
            self.wait_for_socket()
            master, slave = pty.openpty()
            before = termios.tcgetattr(slave)
            terminal = self.attach_on(master, slave)
            terminal.wait_for(lambda screen: "ready" in screen.lines)
            self.assertNotEqual(before, termios.tcgetattr(slave))
            end(terminal)
            terminal.process.wait(180)
            self.wait_for(lambda: termios.tcgetattr(slave) == before)
            os.close(slave)
            terminal.close()
            if self.run_process.poll() is None:
                self.stop(self.run_process)

    def attach_on(self, master, slave):
        terminal = Terminal.__new__(Terminal)
        terminal.case, terminal.master, terminal.raw = self, master, b""
        terminal.process = subprocess.Popen(self.attach_words(), cwd=self.place, env=self.environment, stdin=slave, stdout=slave, stderr=slave,
                                            preexec_fn=Terminal.take)
        self.addCleanup(terminal.close)
        return terminal

    def test_without_a_terminal(self):
        run = self.start_run_with("--pty", "--", "sh", "-c", "read a; echo got $a; read b; echo got $b")
        self.wait_for_socket()
        finished = subprocess.run(self.attach_words(), env=self.environment, input=b"one\ntwo\n", capture_output=True, timeout=180)
        self.assertEqual((0, b""), (finished.returncode, finished.stderr))
        self.assertIn(b"got one\n", finished.stdout)
        self.assertTrue(finished.stdout.endswith(b"got two\n"), finished.stdout)
        self.assertEqual(0, run.wait(180))

    def test_one_at_a_time(self):
        run = self.start_run_with("--pty", "--", "sh", "-c", "echo ready; while :; do sleep 0.01; done")
        self.wait_for_socket()
        first = self.attach()
        first.wait_for(lambda screen: "ready" in screen.lines)
        second = self.attach()
        second.finish()
        self.assertIn(b"attached to this rank already", second.raw)
        first.type(b"\x1d")
        self.assertEqual(0, first.finish())
        third = self.attach()
        third.wait_for(lambda screen: "ready" in screen.lines)
        third.type(b"\x1d")
        third.finish()
        self.stop(run)

    def test_who_is_refused_hears_why(self):
        """Also when the size of the terminal came before the agent looked, which resets the connection."""
        run = self.start_run_with("--pty", "--", "sh", "-c", "echo ready; while :; do sleep 0.01; done")
        self.wait_for_socket()
        first = self.attach()
        first.wait_for(lambda screen: "ready" in screen.lines)
        [agent] = children(run.pid)
        os.kill(agent, signal.SIGSTOP)
        second = self.attach()
        self.wait_for(lambda: [pid for pid in children(second.process.pid) if state_of(pid) == "S"])  # it waits for an answer
        os.kill(agent, signal.SIGCONT)
        second.finish()
        self.assertIn(b"attached to this rank already", second.raw)
        first.type(b"\x1d")
        self.assertEqual(0, first.finish())
        self.stop(run)

    def test_no_descriptor_is_left_for_who_attaches(self):
        """The agent does not call for it all the time, and shows the rank when it can."""
        run = self.start_run_with("--pty", "--", "sh", "-c", "echo ready; read go; echo over")
        self.wait_for_socket()
        [agent] = children(run.pid)
        with self.without_descriptors(agent):
            client = subprocess.Popen(self.attach_words(), env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.addCleanup(client.kill)
            self.wait_for(lambda: [pid for pid in children(client.pid) if state_of(pid) == "S"])  # it waits for an answer
        self.assertIn(b"over", client.communicate(b"go\n", timeout=180)[0])
        self.assertEqual(0, run.wait(180))

    def test_one_that_does_not_read_is_let_go(self):
        run = self.start_run_with("--pty", "--", "sh", "-c", "read go; seq 1 400000")
        self.wait_for_socket()
        reader = subprocess.Popen(self.attach_words(), env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        reader.stdin.write(b"go\n")
        reader.stdin.flush()
        self.assertEqual(0, run.wait(180))
        self.assertTrue(self.out().endswith(b"[rank 0] 400000\n"))
        reader.communicate(timeout=180)

    def test_long_paths(self):
        self.storage = os.path.join(self.place, "d" * 100, "e" * 100)
        run = self.start_run_with("--pty", "--", "sh", "-c", "read a; echo got $a")
        self.wait_for_socket()
        finished = subprocess.run(self.attach_words(), env=self.environment, input=b"it\n", capture_output=True, timeout=180)
        self.assertIn(b"got it\n", finished.stdout)
        self.assertEqual(0, run.wait(180))

    @unittest.skipUnless(os.geteuid() == 0, "takes the rights to become another user")
    def test_another_user_is_refused(self):
        command = self.command_for_all()
        run = self.start_run_with("--pty", "--", "sh", "-c", "echo ready; while :; do sleep 0.01; done")
        self.wait_for_socket()
        for mode in (0o700, 0o777):  # the second: on storage that knows no modes
            os.chmod(os.path.dirname(self.socket()), mode)
            os.chmod(self.socket(), mode)
            finished = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", command, *self.attach_words("--rank", 0)[1:]],
                                      env=self.environment, input=b"", capture_output=True, timeout=180)
            self.assertNotIn(b"ready", finished.stdout)
        self.stop(run)

    @unittest.skipUnless(os.geteuid() == 0, "takes the rights to become another user")
    def test_a_socket_of_another_user_is_given_nothing(self):
        """Neither to one in the place of the run's, nor is one made where somebody else could put his own."""
        run = self.start_run_with("--pty", "--", "sh", "-c", "echo ready; while :; do sleep 0.01; done")
        self.wait_for_socket()
        path = self.socket()
        place = os.path.dirname(path)
        os.unlink(path)
        os.chmod(place, 0o777)
        script = "import os, socket, sys; os.setuid(65534); os.chdir(sys.argv[1]); s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); " \
            "s.bind('rank-0'); s.listen(); print('listens', flush=True); t, _ = s.accept(); print('got', t.recv(9), flush=True)"
        os.chmod(self.place, 0o755)
        with subprocess.Popen([sys.executable, "-c", script, place], stdout=subprocess.PIPE, text=True) as stranger:
            self.assertEqual("listens\n", stranger.stdout.readline())
            finished = subprocess.run(self.attach_words("--rank", 0), env=self.environment, input=b"secret\n", capture_output=True, timeout=180)
            self.assertIn(b"Operation not permitted", finished.stderr)
            self.assertEqual("got b''\n", stranger.stdout.readline())
        self.stop(run)
        os.mkdir(place)
        os.chown(place, 65534, 65534)
        run = self.start_run("--resume", "r%d" % self.runs, "-n", 1, "--pty", "--", "sh", "-c", "while [ ! -e told ]; do sleep 0.01; done")
        lines = iter(run.stderr.readline, "")
        told = "nobody can attach to rank 0: no socket can be made in %s: Operation not permitted" % place
        self.assertTrue(any(told in line for line in lines))
        self.write("told", "")
        self.assert_status(0, self.finish(run))

    def test_who_has_no_terminal(self):
        run = self.start_run_with("-n", 2, "--", "sh", "-c", ": > ready; while [ ! -e go ]; do sleep 0.01; done")
        self.wait_for(lambda: os.path.exists(os.path.join(self.place, "ready")))
        finished = subprocess.run(self.attach_words("--rank", 1), env=self.environment, capture_output=True, timeout=180)
        self.assertEqual(2, finished.returncode)
        self.assertIn(b"--pty", finished.stderr)
        self.write("go", "")
        self.assertEqual(0, run.wait(180))

    def test_which_of_several(self):
        run = self.start_run_with("-n", 2, "--pty", "--", "sh", "-c", "while :; do sleep 0.01; done")
        self.wait_for_socket(0)
        self.wait_for_socket(1)
        finished = subprocess.run(self.attach_words(), env=self.environment, capture_output=True, timeout=180)
        self.assertEqual(2, finished.returncode)
        self.assertIn(b"2 workers with a terminal: which", finished.stderr)
        self.stop(run)


class Debugged(AttachCase):
    PROGRESS = "auto"

    def test_the_rank_gets_the_terminal_at_once(self):
        script = self.write("stops.py", STOPS)
        terminal = Terminal(self, self.command("-n", 2, "--debug", 1, "--env", "AT=1", "--hang-timeout", "2s", "--", sys.executable, script))
        terminal.wait_for(lambda screen: b"(Pdb)" in terminal.raw)
        time.sleep(5)  # which is no hang
        self.assertFalse(termios.tcgetattr(terminal.master)[3] & (termios.ECHO | termios.ICANON))
        terminal.type(b"x = 7\nc\n")
        self.assertEqual(0, terminal.finish())
        self.assertTrue(termios.tcgetattr(terminal.master)[3] & termios.ECHO)
        self.assertTrue(termios.tcgetattr(terminal.master)[3] & termios.ICANON)
        grid = Grid(100)
        grid.feed(terminal.raw.decode(errors="replace"))
        rows = [row.replace("[rank 1] ", "") for row in grid.text if row.startswith("[rank 1]")]
        self.assertEqual(["(Pdb) x = 7", "(Pdb) c", "went on with 7"], rows[-3:])
        self.assertEqual([], [row for row in grid.text if "00:0" in row])  # what was typed left no live line behind

    def test_input_of_a_pipe(self):
        script = self.write("stops.py", STOPS)
        finished = subprocess.run(self.command("-n", 2, "--debug", 0, "--", sys.executable, script), cwd=self.place, env=self.environment,
                                  input=b"x = 7\nc\n", capture_output=True, timeout=180)
        self.assertEqual(0, finished.returncode, finished)
        self.assertIn(b"[rank 0] went on with 7\n", finished.stdout)
        self.assertIn(b"[rank 1] went on with 42\n", finished.stdout)


if __name__ == "__main__":
    main()
