"""Progress bars: one live line for each rank on a terminal, their last state elsewhere, and every byte in the logs."""

import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time

from harness import main
from test_output import MEMORY_LIMIT_KIB, OutputCase, agents, peak_kib
from test_terminal import Terminal

# Writes what tqdm writes: a CR before each drawing, a LF behind the last one. Before a line is printed the bar is erased with blanks.
BAR = r"""
import os, sys, time
steps, pause, mode = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
out = os.fdopen(2, "w", newline="")
def bar(i):
    full = i * 20 // steps
    return "\rrank %s %3d%%|%s%s| %d/%d" % (os.environ["RANK"], i * 100 // steps, "\u2588" * full, " " * (20 - full), i, steps)
for i in range(steps + 1):
    text = bar(i)
    if mode == "lines" and i % 10 == 5:
        text = "\r%s\rline %d\n" % (" " * len(text), i) + text
    out.write(text)
    out.flush()
    if mode.startswith("wait") and i == steps // 2:
        while not os.path.exists("go"):
            time.sleep(0.01)
    time.sleep(pause)
out.write({"open": "", "wait-open": "", "erased": "\r%s\r" % (" " * len(bar(steps)))}.get(mode, "\n"))
"""


class Grid:
    """A terminal's screen: rows, a cursor, lines that break at its width."""

    def __init__(self, columns):
        self.rows, self.columns, self.row, self.column, self.strange = [""], columns, 0, 0, []

    def feed(self, text):
        for part in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b.|\r|\n|[^\r\n\x1b]", text, re.S):
            if part == "\x1b[2K":
                self.rows[self.row] = ""
            elif part == "\x1b[A":
                self.row = max(0, self.row - 1)
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.down()
            elif part.startswith("\x1b"):
                self.strange.append(part)
            else:
                if self.column == self.columns:
                    self.down()
                    self.column = 0
                row = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = row[:self.column] + part + row[self.column + 1:]
                self.column += 1

    def down(self):
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")

    @property
    def text(self):
        return [row.rstrip() for row in self.rows]


class Bars(OutputCase):
    def setUp(self):
        super().setUp()
        self.program = self.write("bar.py", BAR)

    def bar(self, *args):
        return [sys.executable, "-S", "-E", self.program, *map(str, args)]

    def terminal(self, *args, columns=100, env=None, **more):
        return Terminal(self, self.command(*args), columns, env, **more)

    def grid(self, terminal, columns=100):
        grid = Grid(columns)
        grid.feed(terminal.raw.decode(errors="replace").partition("trainyard run: ")[0])  # its last word is no part of the bars
        return grid

    def wait_for_rows(self, terminal, condition, columns=100):
        terminal.wait_for(lambda screen: condition(self.grid(terminal, columns).text))


class Pipes(Bars):
    def test_the_last_state_is_a_line(self):
        for mode in ("closed", "open"):
            with self.subTest(mode):
                out, err = self.bytes_of("-n", 2, "--", *self.bar(60, 0.005, mode))
                self.assertEqual(b"", out)
                last = ["[rank %d] rank %d 100%%|%s| 60/60" % (rank, rank, "\u2588" * 20) for rank in (0, 1)]
                self.assertEqual(last, sorted(err.decode().splitlines()))
                for rank in (0, 1):
                    self.assertEqual(61, self.log(rank).count(b"\r"))

    def test_lines_between_its_drawings(self):
        _, err = self.bytes_of("--", *self.bar(40, 0, "lines"))
        lines = [line[9:] for line in err.decode().splitlines()]
        self.assertEqual(["line 5", "line 15", "line 25", "line 35"], lines[:-1])
        self.assertIn("100%", lines[-1])

    def test_one_that_goes_in_the_end_leaves_nothing(self):
        self.assertEqual((b"", b""), self.bytes_of("--", *self.bar(10, 0, "erased")))

    def test_line_ends_of_windows(self):
        out, _ = self.bytes_of("--", "printf", r"a\r\nb\r\n\r\nc\r\n")
        self.assertEqual(b"[rank 0] a\n[rank 0] b\n[rank 0] \n[rank 0] c\n", out)

    def test_a_bar_of_a_rank_that_is_killed(self):
        _, err = self.bytes_of("--", "sh", "-c", r"printf '\r10%%\r20%%'; kill -9 $$", status=137)
        self.assertIn(b"    | 20%\n", err)
        self.assertNotIn(b"10%", err)

    def test_a_single_program_without_prefix_draws_itself(self):
        """Its bytes go as they come, not when a line is whole."""
        process = subprocess.Popen(self.command("--no-prefix", "--", "sh", "-c", r"printf '\r10%%'; while [ ! -e go ]; do sleep 0.01; done"),
                                   cwd=self.place, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.assertEqual(b"\r10%", process.stdout.read(4))
        self.write("go", "")
        self.assertEqual((b"\n", None), process.communicate(timeout=180))
        self.assertEqual(0, process.returncode)


class Screens(Bars):
    PROGRESS = "auto"

    def test_a_live_line_for_each_rank(self):
        for ranks in (2, 8):
            with self.subTest(ranks):
                terminal = self.terminal("-n", ranks, "--", *self.bar(10, 0.001, "wait"))
                half = ["[rank %d] rank %d  50%%|%s%s| 5/10" % (rank, rank, "\u2588" * 10, " " * 10) for rank in range(ranks)]
                name = "r%d  00:" % self.runs
                self.wait_for_rows(terminal, lambda rows: rows[:-1] == half and rows[-1].startswith(name))
                self.write("go", "")
                self.assertEqual(0, terminal.finish())
                grid = self.grid(terminal)
                whole = ["[rank %d] rank %d 100%%|%s| 10/10" % (rank, rank, "\u2588" * 20) for rank in range(ranks)]
                self.assertEqual([*whole, ""], sorted(grid.text[:-1]) + grid.text[-1:])
                self.assertEqual([], grid.strange)
                os.remove(os.path.join(self.place, "go"))

    def test_more_than_there_is_room_for(self):
        """The terminal has 24 rows: what does not fit into half of them is counted."""
        terminal = self.terminal("-n", 20, "--", "sh", "-c", r"printf '\rbar '$RANK >&2; while [ ! -e go ]; do sleep 0.05; done")
        self.wait_for_rows(terminal, lambda rows: any("(9 more lines" in row for row in rows) and len(rows) == 13)
        self.write("go", "")
        self.assertEqual(0, terminal.finish())
        self.assertEqual(sorted("[rank %d] bar %d" % (rank, rank) for rank in range(20)), sorted(filter(None, self.grid(terminal).text)))

    def test_lines_go_above(self):
        terminal = self.terminal("-n", 2, "--", *self.bar(40, 0.01, "lines"))
        self.assertEqual(0, terminal.finish())
        rows = self.grid(terminal).text
        self.assertEqual(["[rank %d] line %d" % (rank, i) for rank in (0, 1) for i in (5, 15, 25, 35)],
                         sorted((row for row in rows if "line" in row), key=lambda row: (row[6], int(row.split()[-1]))))
        self.assertEqual(2, sum("100%" in row for row in rows))
        self.assertEqual(11, len(rows))

    def test_cut_at_the_width_of_the_terminal(self):
        """Between characters, of which a block has three bytes."""
        terminal = self.terminal("--", *self.bar(10, 0.001, "wait-open"), columns=20)
        self.wait_for_rows(terminal, lambda rows: rows[0] == "[rank 0] rank 0  50", 20)
        self.write("go", "")
        self.assertEqual(0, terminal.finish())
        self.assertNotIn("\ufffd", terminal.raw.decode(errors="replace"))
        self.assertIn("[rank 0] rank 0 100%%|%s| 10/10" % ("\u2588" * 20), "".join(self.grid(terminal, 20).text))

    def test_a_question_without_line_end_is_seen(self):
        terminal = self.terminal("--", "sh", "-c", "printf 'name? '; while [ ! -e go ]; do sleep 0.01; done; echo none")
        self.wait_for_rows(terminal, lambda rows: rows[0] == "[rank 0] name?")
        self.write("go", "")
        self.assertEqual(0, terminal.finish())
        self.assertEqual(["[rank 0] name? none", ""], self.grid(terminal).text)

    def test_its_rank_is_killed(self):
        terminal = self.terminal("-n", 2, "--", "sh", "-c",
                                 r"printf '\rbar '$RANK; while [ ! -e go ]; do sleep 0.01; done; [ $RANK = 1 ] && kill -9 $$; sleep 1000")
        self.wait_for_rows(terminal, lambda rows: rows[:2] == ["[rank 0] bar 0", "[rank 1] bar 1"])
        self.write("go", "")
        self.assertEqual(137, terminal.finish())
        rows = self.grid(terminal).text
        self.assertEqual(1, rows.count("[rank 0] bar 0"), rows)
        self.assertEqual(1, rows.count("[rank 1] bar 1"), rows)

    def test_its_agent_is_killed(self):
        terminal = self.terminal("--", "sh", "-c", r"printf '\rbar'; sleep 1000")
        self.wait_for_rows(terminal, lambda rows: rows[0] == "[rank 0] bar")
        os.kill(agents(terminal.process.pid)[0], signal.SIGKILL)
        self.assertEqual(5, terminal.finish())
        self.assertNotIn("[rank 0] bar", self.grid(terminal).text)

    def test_a_terminal_that_becomes_narrower(self):
        """What was drawn is taken away with all the rows that it was broken into."""
        terminal = self.terminal("--", "sh", "-c", r"printf '\r%060d' 0; while [ ! -e go ]; do sleep 0.01; done")
        self.wait_for_rows(terminal, lambda rows: rows[0] == "[rank 0] " + "0" * 60)
        seen = len(terminal.raw)
        fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        self.write("go", "")
        self.assertEqual(0, terminal.finish())
        self.assertIn(b"\r\x1b[2K\x1b[A\x1b[2K\x1b[A\x1b[2K", terminal.raw[seen:])

    def test_twenty_columns(self):
        terminal = self.terminal("--name", "a-name-of-some-length", "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.01; done", columns=20)
        self.wait_for_rows(terminal, lambda rows: rows[0] == "a-name-of-some-leng", 20)
        self.write("go", "")
        self.assertEqual(0, terminal.finish())
        self.assertEqual([""], self.grid(terminal, 20).text)

    def test_a_dumb_terminal_gets_no_escapes(self):
        terminal = self.terminal("--", *self.bar(10, 0.03, "closed"), env={"TERM": "dumb"})
        self.assertEqual(0, terminal.finish())
        self.assertNotIn(b"\x1b", terminal.raw)
        self.assertEqual("[rank 0] rank 0 100%%|%s| 10/10\r\n" % ("\u2588" * 20), terminal.raw.decode().partition("trainyard run: ")[0])

    def test_drawings_at_full_speed(self):
        """As many as a program can make, the last one whole: few of them are drawn, and nothing grows."""
        script = r"yes \"$(printf '\r')bar $RANK\" | tr -d '\n' | head -c 199999998 >&2"
        terminal = self.terminal("-n", 2, "--", "sh", "-c", script.replace('\\"', '"') + "; while [ ! -e go ]; do sleep 0.01; done")
        self.wait_for_rows(terminal, lambda rows: rows[:2] == ["[rank 0] bar 0", "[rank 1] bar 1"])
        log = os.path.join(self.storage, "r1", "logs", "rank-%d.log")
        deadline = time.monotonic() + 180
        while any(os.path.getsize(log % rank) < 199999998 for rank in (0, 1)):
            self.assertLess(time.monotonic(), deadline)
            terminal.read(0.05)
        peak = sum(map(peak_kib, [terminal.process.pid, *agents(terminal.process.pid)]))
        self.write("go", "")
        self.assertEqual(0, terminal.finish())
        for rank in (0, 1):
            os.remove(log % rank)
        self.assertLess(peak, MEMORY_LIMIT_KIB)
        self.assertLess(len(terminal.raw), 1000000)


if __name__ == "__main__":
    main()
