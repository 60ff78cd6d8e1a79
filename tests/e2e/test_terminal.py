"""`trainyard run` on a terminal: the live line, Ctrl-C once and twice, a terminal that goes away, output that cannot take it over."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from harness import COMMAND, Case, main

NEVER = "100000"
ERASE = b"\r\x1b[2K"


class Screen:
    """The little of a terminal that is needed: lines, carriage return, erasing of a line. Other escapes are kept as strange."""

    def __init__(self):
        self.lines = [""]
        self.column = 0
        self.strange = []
        self.live = []  # every state of the last line that was redrawn

    def feed(self, text):
        for part in re.findall(r"\x1b\[2K|\x1b\[[0-9;?]*[a-zA-Z]|\x1b.|\r|\n|[^\r\n\x1b]+", text, re.S):
            if part == "\x1b[2K":
                self.live.append(self.lines[-1])
                self.lines[-1] = ""
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.lines.append("")
                self.column = 0
            elif part.startswith("\x1b"):
                self.strange.append(part)
            else:
                line = self.lines[-1].ljust(self.column)
                self.lines[-1] = line[:self.column] + part + line[self.column + len(part):]
                self.column += len(part)


class Terminal:
    """A command whose terminal this is."""

    def __init__(self, case, words, columns=100, env=None, error=None):
        self.case = case
        self.master, slave = pty.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(words, cwd=case.place, env=case.environment_with(env), stdin=slave, stdout=slave,
                                        stderr=slave if error is None else error, preexec_fn=self.take)
        os.close(slave)
        self.raw = b""
        case.addCleanup(self.close)

    @staticmethod
    def take():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def close(self):
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def read(self, seconds):
        """Takes what comes within the time; False at the end."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        self.raw += data
        return data != b""

    def wait_for(self, condition):
        """Reads until `condition(screen)` holds."""
        deadline = time.monotonic() + 180
        while not condition(self.screen):
            self.case.assertLess(time.monotonic(), deadline, "never seen: %r" % self.raw[-2000:])
            if not self.read(0.05):
                self.case.assertTrue(condition(self.screen), "the end came first: %r" % self.raw[-2000:])
                return

    def type(self, data):
        os.write(self.master, data)

    def finish(self):
        """Reads to the end; the exit status."""
        deadline = time.monotonic() + 180
        while self.read(0.05):
            self.case.assertLess(time.monotonic(), deadline, "did not end: %r" % self.raw[-2000:])
        status = self.process.wait(180)
        return status if status >= 0 else 128 - status

    @property
    def screen(self):
        screen = Screen()
        screen.feed(self.raw.decode(errors="replace"))
        return screen


class TerminalCase(Case):
    def terminal(self, *args, columns=100, env=None, **more):
        return Terminal(self, [COMMAND, "run", "--storage-path", self.storage, "--num-cpus", "8", *map(str, args)], columns, env, **more)

    def touch(self, name):
        self.write(name, "")


class LiveLine(TerminalCase):
    def test_states_time_and_metrics(self):
        script = "'%s' report loss=0.3125 step=40; while [ ! -e go ]; do sleep 0.01; done" % COMMAND
        terminal = self.terminal("-n", 2, "--name", "mine", "--", "sh", "-c", script)
        terminal.wait_for(lambda screen: "loss 0.3125" in screen.lines[-1])
        line = terminal.screen.lines[-1]
        self.assertRegex(line, r"^mine  \d\d:\d\d ")
        self.assertIn("2 ", line)
        self.assertIn("step 40", line)
        self.touch("go")
        self.assertEqual(0, terminal.finish())
        last, empty = terminal.screen.lines  # nothing of it stays but the last word
        self.assertRegex(last, r"^trainyard run: mine succeeded in .*: loss 0.3125  step 40; ")
        self.assertEqual("", empty)
        self.assertEqual([], terminal.screen.strange)

    def test_time_goes_by(self):
        terminal = self.terminal("--", "sh", "-c", "while [ ! -e go ]; do sleep 0.01; done")
        told = lambda screen: [time for line in screen.live for time in re.findall(r" (\d\d:\d\d) ", line)]
        terminal.wait_for(lambda screen: len(set(told(screen))) >= 3)
        self.touch("go")
        self.assertEqual(0, terminal.finish())
        times = told(terminal.screen)
        self.assertEqual(sorted(times), times)

    def test_output_has_its_own_lines(self):
        script = "for i in 1 2 3 4 5; do echo line $i; sleep 0.03; done; while [ ! -e go ]; do sleep 0.01; done"
        terminal = self.terminal("--name", "mine", "--", "sh", "-c", script)
        terminal.wait_for(lambda screen: "[rank 0] line 5" in screen.lines and screen.lines[-1].startswith("mine"))
        self.touch("go")
        self.assertEqual(0, terminal.finish())
        *lines, last, empty = terminal.screen.lines
        self.assertEqual((["[rank 0] line %d" % i for i in range(1, 6)], ""), (lines, empty))
        self.assertIn("mine succeeded in ", last)

    def test_attempts_are_counted(self):
        script = "[ $TRAINYARD_ATTEMPT = 1 ] && exit 1; while [ ! -e go ]; do sleep 0.01; done"
        terminal = self.terminal("--max-failures", 1, "--", "sh", "-c", script)
        terminal.wait_for(lambda screen: "attempt 2" in screen.lines[-1])
        self.touch("go")
        self.assertEqual(0, terminal.finish())
        self.assertIn("rank 0 exited with code 1, on node ", terminal.screen.lines[0])
        self.assertIn(": attempt 2 begins", "".join(terminal.screen.lines))

    def test_a_narrow_terminal(self):
        terminal = self.terminal("--name", "ein-größerer-Name-als-der-Platz-reicht", "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.01; done",
                                 columns=32)
        terminal.wait_for(lambda screen: "ein" in screen.lines[-1])
        self.assertLess(len(terminal.screen.lines[-1]), 32)
        self.assertNotIn("\ufffd", terminal.screen.lines[-1])
        self.touch("go")
        self.assertEqual(0, terminal.finish())

    def test_names_of_metrics_are_harmless(self):
        script = "'%s' report \"$(printf 'b\\302\\2332J')=2\" größe=4; while [ ! -e go ]; do sleep 0.01; done" % COMMAND
        terminal = self.terminal("--name", "a\u009b2J", "--", "sh", "-c", script)
        terminal.wait_for(lambda screen: "größe 4" in screen.lines[-1])
        line = terminal.screen.lines[-1]
        self.assertRegex(line, r"^a\?2J  \d\d:")
        self.assertIn("b?2J 2", line)
        self.touch("go")
        self.assertEqual(0, terminal.finish())
        self.assertNotIn("\x9b", terminal.raw.decode())

    def test_none(self):
        for option in (["--progress", "none"], ["--quiet"]):
            with self.subTest(option):
                terminal = self.terminal(*option, "--", "sleep", "0.05")
                self.assertEqual(0, terminal.finish())
                self.assertEqual(b"", terminal.raw)

    def test_only_standard_output_is_a_terminal(self):
        with open(os.path.join(self.place, "errors"), "wb") as errors:
            terminal = self.terminal("--", "sh", "-c", "echo out; echo err >&2", error=errors)
            self.assertEqual(0, terminal.finish())
        self.assertEqual(["[rank 0] out", ""], terminal.screen.lines)
        with open(os.path.join(self.place, "errors")) as errors:
            line, last = errors.read().splitlines()
        self.assertEqual("[rank 0] err", line)
        self.assertIn(" succeeded in ", last)

    def test_the_first_cause_has_its_own_lines(self):
        terminal = self.terminal("-n", 2, "--name", "mine", "--", "sh", "-c", "[ $RANK = 1 ] && echo oops && exit 7; sleep " + NEVER)
        self.assertEqual(7, terminal.finish())
        text = "\n".join(terminal.screen.lines)
        self.assertIn("first cause: rank 1 exited with code 7", text)
        self.assertIn("    | oops", text)
        self.assertNotIn("mine  00:", text)

    def test_plain_lines(self):
        finished = self.run_workers("--name", "mine", "--progress", "plain", "--", "sleep", "0.05")
        lines = self.assert_status(0, finished).err.splitlines()
        self.assertGreaterEqual(len(lines), 1)
        for line in lines[:-1]:
            self.assertRegex(line, r"^trainyard: mine  \d\d:\d\d  1 ")
        self.assertRegex(lines[-1], r"^trainyard run: mine succeeded in \d")
        self.assertNotIn("\x1b", finished.err)

    def test_quiet_off_a_terminal(self):
        lines = self.assert_status(0, self.run_workers("--name", "mine", "--", "sleep", "0.05")).err.splitlines()
        self.assertEqual(1, len(lines), lines)
        self.assertRegex(lines[0], r"^trainyard run: mine succeeded in \d")
        for silent in (["--quiet"], ["--progress", "none"]):
            self.assertEqual("", self.assert_status(0, self.run_workers(*silent, "--", "sleep", "0.05")).err)


class Keys(TerminalCase):
    def test_interrupt_once(self):
        script = 'trap "echo saving; sleep 0.02; echo saved; exit 0" TERM; echo ready; while :; do sleep 0.01; done'
        terminal = self.terminal("-n", 2, "--grace", "60s", "--", "sh", "-c", script)
        terminal.wait_for(lambda screen: "[rank 0] ready" in screen.lines and "[rank 1] ready" in screen.lines)
        terminal.type(b"\x03")
        self.assertEqual(130, terminal.finish())
        lines = [line.replace("^C", "") for line in terminal.screen.lines]
        for rank in (0, 1):
            self.assertIn("[rank %d] saved" % rank, lines)
        self.assertTrue(any("SIGINT" in line and "once more" in line for line in lines), lines)
        self.assertIn("interrupted by signal 2 (SIGINT)", lines[-3])
        self.assertIn("to go on: ", lines[-2])

    def test_interrupt_twice(self):
        script = "trap '' TERM INT; echo ready; while :; do sleep 0.01; done"
        terminal = self.terminal("-n", 2, "--grace", "1h", "--", "sh", "-c", script)
        terminal.wait_for(lambda screen: "[rank 0] ready" in screen.lines and "[rank 1] ready" in screen.lines)
        terminal.type(b"\x03")
        terminal.wait_for(lambda screen: any("once more" in line for line in screen.lines))
        terminal.type(b"\x03")
        self.assertEqual(130, terminal.finish())

    def test_interrupt_twice_for_what_workers_left_behind(self):
        """A daemon that ignores the polite signal, in a session of its own."""
        script = "setsid sh -c 'trap \"\" TERM; echo ready; while :; do sleep 0.01; done' > ready & while [ ! -s ready ]; do sleep 0.01; done"
        terminal = self.terminal("--name", "mine", "--grace", "1h", "--", "sh", "-c", script)
        terminal.wait_for(lambda screen: "1 gone" in screen.lines[-1])
        terminal.type(b"\x03")
        terminal.wait_for(lambda screen: any("once more" in line for line in screen.lines))
        terminal.type(b"\x03")
        self.assertEqual(0, terminal.finish())

    def test_interrupt_before_the_start(self):
        """Wherever it hits, it ends the run, and nothing is left."""
        for i in range(20):
            terminal = self.terminal("-n", 4, "--", "sleep", NEVER)
            time.sleep(0.001 * i)
            terminal.process.send_signal(signal.SIGINT)
            self.assertIn(terminal.finish(), (130,))
            self.check_nothing_left()

    def test_workers_do_not_share_the_terminal(self):
        """Neither its signals nor its input are theirs."""
        terminal = self.terminal("--", "sh", "-c", "(: < /dev/tty) 2> /dev/null && echo has one; cat; echo done")
        terminal.type(b"typed\n")
        self.assertEqual(0, terminal.finish())
        self.assertIn("[rank 0] done", terminal.screen.lines)
        self.assertNotIn("[rank 0] has one", terminal.screen.lines)
        self.assertNotIn("[rank 0] typed", terminal.screen.lines)

    def test_quit_key(self):
        terminal = self.terminal("--", "sh", "-c", "echo ready; sleep " + NEVER)
        terminal.wait_for(lambda screen: "[rank 0] ready" in screen.lines)
        terminal.type(b"\x1c")
        self.assertEqual(128 + signal.SIGQUIT, terminal.finish())
        self.assertTrue(any("SIGQUIT" in line and "stacks" in line for line in terminal.screen.lines), terminal.screen.lines)
        self.check_nothing_left()


class Closing(TerminalCase):
    def test_closed_terminal(self):
        script = 'trap ": > asked; exit 0" TERM; echo ready; while :; do sleep 0.01; done'
        terminal = self.terminal("--name", "mine", "-n", 2, "--grace", "60s", "--", "sh", "-c", script)
        terminal.wait_for(lambda screen: "[rank 0] ready" in screen.lines and "[rank 1] ready" in screen.lines)
        terminal.close()
        self.assertEqual(129, terminal.process.wait(180))
        self.assertTrue(os.path.exists(os.path.join(self.place, "asked")))
        shown = self.trainyard("status", "mine", "--storage-path", self.storage, "--format", "json")
        self.assertIn("interrupted", self.assert_status(0, shown).out)

    def test_closed_terminal_during_a_flood(self):
        terminal = self.terminal("-n", 2, "--", "sh", "-c", "while :; do seq 1 1000; done")
        terminal.wait_for(lambda screen: len(terminal.raw) > 100000)
        terminal.close()
        self.assertEqual(129, terminal.process.wait(180))

    def test_nohup(self):
        terminal = Terminal(self, ["nohup", COMMAND, "run", "--storage-path", self.storage, "--name", "mine", "--", "sh", "-c",
                                   ": > ready; while [ ! -e go ]; do sleep 0.01; done; echo alive"])
        deadline = time.monotonic() + 180
        while not os.path.exists(os.path.join(self.place, "ready")):
            self.assertLess(time.monotonic(), deadline)
            terminal.read(0.01)
        terminal.close()
        self.touch("go")
        self.assertEqual(0, terminal.process.wait(180))
        with open(os.path.join(self.place, "nohup.out")) as file:
            self.assertIn("[rank 0] alive", file.read())


class Escapes(TerminalCase):
    NASTY = b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m\x1bc\x9b5m\n"

    def shown(self, *args):
        path = self.write("nasty", self.NASTY)
        terminal = self.terminal("--progress", "none", *args, "--", "cat", path)
        self.assertEqual(0, terminal.finish())
        return terminal

    def test_of_workers_are_harmless(self):
        terminal = self.shown("-n", 2)
        self.assertEqual([], terminal.screen.strange)
        self.assertNotIn(b"\x1b", terminal.raw)
        self.assertNotIn(b"\x07", terminal.raw)
        self.assertIn(rb"\x1b[31mred", terminal.raw)

    def test_of_several_ranks_are_harmless_without_prefix_too(self):
        self.assertNotIn(b"\x1b", self.shown("-n", 2, "--no-prefix").raw)

    def test_a_single_program_may_own_the_terminal(self):
        self.assertEqual(self.NASTY.replace(b"\n", b"\r\n"), self.shown("--no-prefix").raw)

    def test_in_the_first_cause(self):
        path = self.write("nasty", self.NASTY)
        terminal = self.terminal("--progress", "none", "--quiet", "--", "sh", "-c", "cat %s; exit 1" % path)
        self.assertEqual(1, terminal.finish())
        self.assertEqual([], terminal.screen.strange)
        self.assertIn(rb"| \x1b[2J", terminal.raw)


if __name__ == "__main__":
    main()
