"""Terminals of `fit`'s workers: `debug`, `pty` with `trainyard attach`, and standard input, by whichever way workers start."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

import pytest
from conftest import BUILD
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig

COMMAND = os.path.join(os.path.abspath(BUILD), "trainyard")
SCRIPT = """
import os, sys
import trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig

def look():
    print([os.isatty(i) for i in range(3)], os.read(0, 1))

def stop():
    x = 42
    if trainyard.get_context().get_world_rank() == 1:
        print([os.isatty(i) for i in range(3)], os.getsid(0) == os.getpid() == os.tcgetpgrp(0))
        breakpoint()
    print("went on with", x)

def read():
    print([input("? "), sys.stdin.readline(), list(sys.stdin), sys.stdin.buffer.read()])

trainyard.init(num_cpus=8)
DataParallelTrainer({function}, scaling_config=ScalingConfig(num_workers=2),
                    run_config=RunConfig(name="mine", storage_path="runs", {fields})).fit()
"""
METHODS = ["template", "spawn", "fork"]


class Screen:
    """A terminal, and the process that has it."""

    def __init__(self, words):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        take = lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, preexec_fn=take)
        os.close(slave)
        self.text = ""

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        self.text += data.decode(errors="replace")
        return bool(data)

    def wait_for(self, text, seconds=180):
        end = time.monotonic() + seconds
        while text not in self.text and self.read(0.1) and time.monotonic() < end:
            pass
        assert text in self.text, self.text

    def type(self, text):
        os.write(self.master, text.encode())

    def finish(self):
        while self.read(60):
            pass
        return self.process.wait(180)


@pytest.fixture
def screen(place):
    """screen(*words): a program on a terminal of its own."""
    with contextlib.ExitStack() as stack:

        def show(*words):
            made = Screen(words)
            stack.callback(os.close, made.master)
            stack.callback(made.process.kill)
            return made

        yield show


def script(place, function, fields):
    path = place / "script.py"
    path.write_text(SCRIPT.format(function=function, fields=fields))
    return [sys.executable, str(path)]


@pytest.mark.parametrize("method", METHODS)
def test_breakpoint_in_one_rank(place, screen, method):
    shown = screen(*script(place, "stop", f"debug=1, start_method={method!r}, hang_timeout_s=2"))
    shown.wait_for("(Pdb)")
    time.sleep(5)  # which is no hang
    shown.type("x = 7\nc\n")
    assert shown.finish() == 0, shown.text
    assert "[True, True, True] True" in shown.text
    assert "[rank 1] went on with 7" in shown.text and "[rank 0] went on with 42" in shown.text


def test_attached(place, screen):
    shown = screen(*script(place, "stop", "pty=True, start_method='template'"))
    shown.wait_for("(Pdb)")
    attached = screen(COMMAND, "attach", "mine", "--rank", "1", "--storage-path", "runs")
    attached.wait_for("(Pdb)")  # which it had said before
    attached.type("x = 7\rc\r")
    assert attached.finish() == 0 and "went on with 7" in attached.text
    assert shown.finish() == 0, shown.text
    assert not os.path.exists("runs/mine/attach")


def test_interrupt_at_a_breakpoint(place, screen):
    """Ctrl-C is the run's, and the terminal gets its modes back."""
    shown = screen(*script(place, "stop", "debug=1, start_method='template'"))
    shown.wait_for("(Pdb)")
    assert not termios.tcgetattr(shown.master)[3] & termios.ECHO
    shown.type("\x03")
    shown.wait_for("KeyboardInterrupt")
    assert shown.finish() != 0
    assert termios.tcgetattr(shown.master)[3] & termios.ECHO
    assert "resume=True" in shown.text


@pytest.mark.parametrize("method", METHODS)
def test_standard_input(place, method):
    words = script(place, "read", f"stdin='all', start_method={method!r}")
    done = subprocess.run(words, input="one\ntwo\nthree\nfour", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    for rank in (0, 1):
        assert f"[rank {rank}] ? ['one', 'two\\n', ['three\\n', 'four'], b'']\n" in done.stdout


def test_nobody_has_a_terminal(place):
    """Where none is asked for."""
    done = subprocess.run(
        script(place, "look", ""), input="unread", capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and done.stdout.count("[False, False, False] b''\n") == 2, done


WRONG = [
    ("debug", -1),
    ("debug", True),
    ("debug", 1.0),
    ("debug", "all"),
    ("debug", 1 << 32),
    ("debug", 1 << 63),
]
WRONG += [("stdin", "some"), ("stdin", -2), ("pty", 1)]


@pytest.mark.parametrize("name, value", WRONG)
def test_wrong_values(name, value):
    with pytest.raises(ValueError, match=rf"`RunConfig\.{name}`"):
        RunConfig(**{name: value})


@pytest.mark.parametrize("fields", [{"debug": 2}, {"stdin": 2}])
def test_ranks_that_there_are_not(storage, fields):
    [name] = fields
    trainer = DataParallelTrainer(
        lambda: None,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=storage, **fields),
    )
    with pytest.raises(ValueError, match=re.escape(f"`{name}` 2: there are 2 workers, ranks 0 to 1")):
        trainer.fit()
    assert not os.path.exists(storage)
