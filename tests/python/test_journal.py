"""The journal in the hands of others: copies made in the driver, clients that look, readers that leave nothing behind."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap

import pytest
from test_result import SCHEMA
from trainyard import Result

# A driver that copies its run at each report, beside a client of SQLite that may write; it kills itself behind the eighth.
DRIVER = """
import os, shutil, signal, subprocess, sys, tempfile
import trainyard
from trainyard import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig, UserCallback

LOOK = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute('SELECT count(*) FROM reports').fetchall(); d.close()"
OTHERS = shutil.ignore_patterns("checkpoint_*", ".*", "run.lock")

class Backup(UserCallback):
    seen = 0

    def after_report(self, run_context, metrics, checkpoint):
        self.seen += 1
        path = os.path.join(run_context.path, "run.db")
        open(path, "rb").close()
        with tempfile.TemporaryDirectory() as place:
            shutil.copytree(run_context.path, os.path.join(place, "copy"), ignore=OTHERS)
        subprocess.run([sys.executable, "-c", LOOK, path], check=True)
        open(path, "rb").close()
        subprocess.run([sys.executable, "-c", LOOK, path], check=True)
        if self.seen == int(sys.argv[2]):
            os.kill(os.getpid(), 9)

def train(config):
    begin = 0
    checkpoint = trainyard.get_checkpoint()
    if checkpoint is not None:
        begin = int(open(os.path.join(checkpoint.path, "step")).read())
    for step in range(begin + 1, 13):
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "step"), "w") as file:
                file.write(str(step))
            trainyard.report({"step": step}, checkpoint=Checkpoint(place))

result = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=1),
    run_config=RunConfig(name="r", storage_path=sys.argv[1], callbacks=[Backup()], resume=True)).fit()
print(result.metrics["step"])
"""


def rows(path, question):
    """Of a copy: who opens the journal for writing carries its log over."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("run.db", "run.db-wal"):
            shutil.copy(os.path.join(path, name), place)
        database = sqlite3.connect(os.path.join(place, "run.db"))
        try:
            return database.execute(question).fetchall()
        finally:
            database.close()


def parts(path):
    """What a reader may not change: names, bytes and times."""
    found = {name: os.stat(os.path.join(path, name)) for name in os.listdir(path)}
    shown = {name: (s.st_ino, s.st_size, s.st_mtime_ns) for name, s in found.items()}
    return (os.stat(path).st_mtime_ns, shown)


def test_copies_made_by_the_driver_lose_no_checkpoint(storage, tmp_path):
    program = tmp_path / "driver.py"
    program.write_text(DRIVER)

    def drive(seen):
        command = [sys.executable, str(program), storage, str(seen)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    killed = drive(8)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    path = os.path.join(storage, "r")
    kept = [number for (number,) in rows(path, "SELECT number FROM checkpoints ORDER BY number")]
    assert kept == list(range(1, len(kept) + 1)) and len(kept) >= 8
    assert [step for (step,) in rows(path, "SELECT metrics->>'step' FROM reports ORDER BY id")] == kept
    ended = drive(0)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("12\n")
    there = sorted(name for name in os.listdir(path) if name.startswith("checkpoint_"))
    assert there == [f"checkpoint_{number:06}" for number in range(1, 13)]
    assert [name for name in os.listdir(path) if name.startswith("run.db")] == ["run.db"]


def written(path):
    """A run's journal beside its writer, who is another process; killed when the test says so."""
    os.makedirs(path)
    program = """
        import sqlite3, sys, time
        d = sqlite3.connect(sys.argv[1])
        d.execute("PRAGMA journal_mode = WAL")
        d.executescript(sys.argv[2])
        d.execute("INSERT INTO reports VALUES (1, 1, 1, 0, 1, '{\\"loss\\": 1}')")
        d.commit()
        print("ready", flush=True)
        sys.stdin.readline()
        d.close()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), os.path.join(path, "run.db"), SCHEMA]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "ready\n"
    return writer


@pytest.mark.parametrize("end", ["lives", "killed", "killed, no index", "ended"])
def test_a_reading_leaves_no_trace(tmp_path, end):
    path = str(tmp_path / "run")
    with written(path) as writer:
        if end.startswith("killed"):
            writer.kill()
            writer.wait()
        elif end == "ended":
            writer.communicate("\n")
        if "no index" in end:
            os.remove(os.path.join(path, "run.db-shm"))
        before = parts(path)
        assert ("run.db-wal" in before[1]) == (end != "ended")
        assert Result.from_path(path).metrics == {"loss": 1}
        assert parts(path) == before
        if end == "lives":
            writer.communicate("\n")
            assert os.listdir(path) == ["run.db"]


def test_a_run_of_another_user_is_read(tmp_path):
    path = str(tmp_path / "run")
    with written(path) as writer:
        writer.kill()
    os.chmod(path, 0o555)
    copy = shutil.copytree(path, tmp_path / "copy")
    os.chmod(copy, 0o555)
    assert Result.from_path(copy).metrics == {"loss": 1}
    assert sorted(os.listdir(copy)) == sorted(os.listdir(path))
    os.chmod(path, 0o755)
    os.chmod(copy, 0o755)
