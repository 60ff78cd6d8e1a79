"""Runs of eight workers that report and make checkpoints, each with one random fault at a random time, drawn from a seed: no hang, nothing
left behind, nothing acknowledged lost, and every run comes to its end, where needed by --resume. TRAINYARD_TEST_RANDOM_FAULTS is how
many, TRAINYARD_TEST_SEED the first of them, which is also told with whatever went wrong."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from place import failing
from runs import RunCase, children, main, seeds, soak, try_kill

PROGRAM = os.path.join(harness.BUILD, "tests", "e2e", "faults", "crash_program")
WORKERS, STEPS = 8, 6
LONGEST = 180  # seconds of one command; what takes longer hangs
# A rank whose file is there leaves with code 3 before its training; `$0` is the program.
WORKER = 'rm "leave.$RANK" 2>/dev/null && exit 3; exec "$0" "$@"'

# Each fault, and how the command that it befell may end; 0: it came too late, or the run got over it.
FAULTS = {
    "kill a worker": {0},
    "stop a worker": {0},
    "worker leaves": {0},
    "kill the agent": {0, 4, 5},  # 4: before it had workers
    "kill all workers": {0},
    "SIGTERM": {0, 143},
    "SIGINT": {0, 130},
    "kill the controller": {0, 137},
    "kill controller and agent": {0, 137},
    "no space for checkpoints": {0, 7},
    "no sync of checkpoints": {0, 7},
    "no space for the journal": {0, 1, 7},
    "no sync of the journal": {0, 1, 7},
}
# Those of the disk pass after a while: the calls that fail, how, and in which files.
DISK = {
    "no space for checkpoints": ("write", errno.ENOSPC, ".checkpoint_"),
    "no sync of checkpoints": ("sync", errno.EIO, ".checkpoint_"),
    "no space for the journal": ("write", errno.ENOSPC, "run.db"),
    "no sync of the journal": ("sync", errno.EIO, "run.db"),
}


class RandomFaults(RunCase):
    cut_short = False  # the journal of the last command lacks its end

    def training(self, *options, env=None):
        return self.start_run("--name", "run", "-n", WORKERS, "--num-cpus", WORKERS, "--max-failures", WORKERS, "--hang-timeout", "2s",
                              "--grace", "1s", "--quiet", *options, "--", "sh", "-c", WORKER, PROGRAM, STEPS, self.work, env=env)

    def workers(self, agents):
        return [pid for agent in agents for pid in children(agent)]

    def watched(self, agents):
        """Those that are up: one that has never spoken is not watched for hangs."""
        return [pid for pid in self.workers(agents) if os.path.exists(os.path.join(self.work, "acknowledged.%s" % self.rank(pid)))]

    def rank(self, pid):
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                return next((word[5:].decode() for word in file.read().split(b"\0") if word.startswith(b"RANK=")), None)
        except OSError:
            return None

    @property
    def broken(self):
        """While this file is there, the disk fails."""
        return os.path.join(self.work, "broken")

    def do(self, fault, process, length, dice):
        """The fault, to whatever is there by now."""
        agents = children(process.pid)
        if fault in DISK:
            self.write("work/broken", "")
            time.sleep(length * dice.random())
            os.unlink(self.broken)
        elif fault in ("SIGTERM", "SIGINT"):
            process.send_signal(getattr(signal, fault))
        elif fault.startswith("kill "):
            whole = {"kill the agent": agents, "kill the controller": [process.pid], "kill all workers": self.workers(agents),
                     "kill controller and agent": [process.pid, *agents]}
            for pid in whole.get(fault) or self.workers(agents)[dice.randrange(WORKERS):][:1]:
                try_kill(pid, signal.SIGKILL)
        elif fault == "stop a worker":
            for pid in self.watched(agents)[dice.randrange(WORKERS):][:1]:
                try_kill(pid, signal.SIGSTOP)

    def leftovers(self, void):
        """Half a checkpoint may wait for --resume, which removes it."""
        told = super().leftovers(void)
        return [one for one in told if not one.startswith("file runs/run/.checkpoint_")] if self.cut_short else told

    def check(self):
        """Nothing is left, and no step was done again after it had been acknowledged with its checkpoint."""
        self.assert_clean(void=True)
        for rank in range(WORKERS):
            path = "acknowledged.%d" % rank
            steps = [int(line.split()[1]) for line in self.read(path).splitlines()] if os.path.exists(os.path.join(self.work, path)) else []
            self.assertEqual(sorted(set(steps)), steps, "rank %d lost what was acknowledged" % rank)

    def begin(self, fault, dice):
        """The run that the fault will befall."""
        if fault == "worker leaves":
            self.write("work/leave.%d" % dice.randrange(WORKERS), "")
        if fault not in DISK:
            return self.training()
        return self.training(env=dict(failing(*DISK[fault]), TRAINYARD_FAIL_WHEN=self.broken))

    def live(self, fault, length, dice):
        """One run with its fault, to its end; `length` is how long one without takes."""
        process = self.begin(fault, dice)
        time.sleep(length * dice.random())
        self.do(fault, process, length, dice)
        finished = self.finish(process, LONGEST)
        self.assertIn(finished.status, FAULTS[fault], repr(finished))
        self.cut_short = finished.status == 137 or "journal" in fault
        self.check()
        if finished.status != 0:
            self.assert_status(0, self.finish(self.training("--resume"), LONGEST))
            self.cut_short = False
            self.check()
        self.assert_ended("run", "succeeded")
        self.assert_status(0, self.trainyard("checkpoints", "verify", "run", "--storage-path", self.storage))

    def forget_all(self):
        shutil.rmtree(self.storage, ignore_errors=True)
        for name in os.listdir(self.work):
            path = os.path.join(self.work, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)

    def test_a_random_fault_each(self):
        begin = time.monotonic()
        self.assert_status(0, self.finish(self.training()))
        length = time.monotonic() - begin
        for seed, dice in seeds(soak("RANDOM_FAULTS", 20)):
            self.forget_all()
            fault = dice.choice(sorted(FAULTS))
            with self.subTest("seed %d: %s" % (seed, fault)):
                self.live(fault, length, dice)

    def test_one_driver_of_many(self):
        """Its memory and descriptors stay what they are."""
        first = next(seeds(1))[0]
        driver = os.path.join(harness.BUILD, "tests", "e2e", "faults", "many_runs")
        done = subprocess.run([driver, str(soak("RANDOM_FAULTS", 20) * 2), str(first), self.storage, PROGRAM, str(STEPS), self.work],
                              env=self.environment, cwd=self.work, capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        print(done.stdout, end="")
        self.cut_short = True  # what a closed run leaves half done waits for --resume
        self.assert_clean(void=True)


if __name__ == "__main__":
    main()
