"""The live line of `fit` on a terminal: nothing that the driver writes meanwhile stands behind it."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

SCRIPT = """
import time
import trainyard
from trainyard import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, UserCallback

class Says(UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        print("SAID", metrics[0]["step"], flush=True)

def train(config):
    for step in range(5):
        trainyard.report({"step": step})
        time.sleep(0.15)

DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2),
                    run_config=RunConfig(name="mine", storage_path="runs", start_method="spawn", callbacks=[Says()])).fit()
"""


def test_what_callbacks_print_has_its_own_lines(place):
    (place / "script.py").write_text(SCRIPT)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = subprocess.Popen([sys.executable, "script.py"], cwd=place, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    raw = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        raw += data
    os.close(master)
    assert process.wait(180) == 0, raw
    assert b"mine  00:0" in raw
    rows = raw.decode().replace("\r\n", "\n").split("\n")
    said = [row for row in rows if "SAID" in row]
    assert len(said) == 5
    for row in said:
        assert re.split(r"\r\x1b\[2K", row)[-1].startswith("SAID"), row
