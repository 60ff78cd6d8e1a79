"""A clean death: whatever kills a worker, the agent or the controller, nothing of the run is left but its directory, which tells
what happened. The eight events of docs/faults.md, and the ways in which processes try to stay."""

import contextlib
import fcntl
import os
import signal
import subprocess
import termios
import time

from harness import COMMAND
from runs import NEVER, PYTHON, RunCase, children, main, parents, seeds, soak, try_kill

WAIT = ": > ready.$RANK; exec sleep " + NEVER
DEAF = "trap '' TERM INT HUP; : > ready.$RANK; while :; do sleep 0.05; done"

# A daemon as books teach it: two forks, a session of its own, no descriptor, no environment, another directory.
DAEMON = r"""
import os, sys, time
rank = os.environ["RANK"]
place = os.getcwd()
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    os.write(writer, b"%d" % os.getpid())
    os.chdir("/")
    os.closerange(0, 256)
    os.execve("/bin/sleep", ["sleep", "100000", place][:2], {} if "bare" in sys.argv else dict(os.environ))
with open("daemon.%s.part" % rank, "wb") as file:
    file.write(os.read(reader, 32))
os.rename("daemon.%s.part" % rank, "daemon.%s" % rank)
os.close(reader); os.close(writer)
open("ready.%s" % rank, "w").close()
if "end" not in sys.argv:
    time.sleep(100000)
"""


class DeathCase(RunCase):
    N = 4

    def gang(self, script=WAIT, *args, name="gang", **more):
        """A run of some workers, each with a logical device, all of which are up."""
        self.forget()
        process = self.shell(script, "--name", name, "-n", self.N, "--num-gpus", self.N, "--use-gpu", "--num-cpus", self.N,
                             *args, **more)
        self.ready(process, self.N)
        return process

    def worker(self, process, rank):
        """Pid of a rank of a gang that runs one agent; in the midst of an exec a process has no environment for a moment."""
        def find():
            for pid in children(self.agents(process)[0]):
                with contextlib.suppress(OSError), open("/proc/%d/environ" % pid, "rb") as file:
                    if b"\0RANK=%d\0" % rank in b"\0" + file.read():
                        return pid
            return None
        return self.wait_for(find, "rank %d" % rank, process)

    def assert_death(self, process, status, *states, name="gang"):
        finished = self.assert_status(status, self.finish(process))
        self.assert_clean()
        self.assert_ended(name, *states)
        return finished


    def assert_no_void_leases(self):
        """A run that looks at the leases takes the void ones away."""
        self.assert_status(0, self.run_workers("--num-gpus", "1", "--use-gpu", "--", "true"))
        self.assertEqual([], self.lease_files())


class EightEvents(DeathCase):
    def test_killed_worker(self):
        process = self.gang()
        os.kill(self.worker(process, 2), signal.SIGKILL)
        finished = self.assert_death(process, 137, "failed")
        self.assertIn("rank 2 was killed by signal 9", finished.err)
        self.assertIn("nothing is left of the run", finished.err)

    def test_worker_exits_with_3(self):
        process = self.gang(": > ready.$RANK; [ $RANK = 1 ] || exec sleep 100000; while [ ! -e go ]; do sleep 0.01; done; exit 3")
        self.write("work/go", "")
        self.assertIn("rank 1 exited with code 3", self.assert_death(process, 3, "failed").err)

    def test_killed_controller(self):
        process = self.gang()
        process.kill()
        self.assert_death(process, 137, "died")

    def test_hangup(self):
        process = self.gang()
        process.send_signal(signal.SIGHUP)
        self.assert_death(process, 129, "interrupted")

    def test_one_interrupt(self):
        process = self.gang()
        process.send_signal(signal.SIGINT)
        self.assert_death(process, 130, "interrupted")

    def test_workers_that_ignore_it(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number):
                name = "deaf-%d" % number
                process = self.gang(DEAF, "--grace", "200ms", name=name)
                process.send_signal(number)
                state = "preempted" if number == signal.SIGTERM else "interrupted"
                self.assert_death(process, 128 + number, state, name=name)

    def test_daemon_left_behind(self):
        script = self.write("work/daemons.py", DAEMON)
        for words in ("end", "end bare"):
            with self.subTest(words):
                self.forget()
                name = words.replace(" ", "-")
                process = self.shell("exec %s -S %s %s" % (PYTHON, script, words), "--name", name, "-n", 2)
                self.assert_death(process, 0, "succeeded", name=name)
                self.assert_daemons_gone(2)

    def assert_daemons_gone(self, n):
        for rank in range(n):
            self.assertNotIn(int(self.read("daemon.%d" % rank)), parents(), "the daemon of rank %d lives" % rank)

    def test_killed_agent(self):
        process = self.gang()
        agent, = self.agents(process)
        os.kill(agent, signal.SIGKILL)
        finished = self.assert_death(process, 5, "failed")
        self.assertIn("agent of node %s was killed by signal 9" % os.uname().nodename, finished.err)


class Daemons(DeathCase):
    """Daemons in a session of their own and with an empty environment, whichever process is killed."""

    def daemons(self, words="bare"):
        script = self.write("work/daemons.py", DAEMON)
        process = self.shell("exec %s -S %s %s" % (PYTHON, script, words), "--name", "daemons", "-n", 2, "--grace", "500ms")
        self.ready(process, 2)
        return process

    def assert_gone(self, process, status, *states):
        self.assert_death(process, status, *states, name="daemons")
        deadline = time.monotonic() + 60
        for rank in range(2):
            pid = int(self.read("daemon.%d" % rank))
            while pid in parents() and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertNotIn(pid, parents(), "the daemon of rank %d lives" % rank)

    def test_after_a_killed_worker(self):
        process = self.daemons()
        os.kill(self.worker(process, 0), signal.SIGKILL)
        self.assert_gone(process, 137, "failed")

    def test_after_a_killed_controller(self):
        process = self.daemons()
        process.kill()
        self.assert_gone(process, 137, "died")

    def test_after_a_killed_agent(self):
        process = self.daemons()
        os.kill(self.agents(process)[0], signal.SIGKILL)
        self.assert_gone(process, 5, "failed")

    def test_what_is_not_the_runs_is_left_alone(self):
        """A job that the shell had in the background when it became the command is the command's child, too."""
        self.forget()
        process = subprocess.Popen(
            ["sh", "-c", "sleep %s > /dev/null 2>&1 & echo $! > job; exec '%s' run --storage-path '%s' --name job -n 1 -- sh -c '%s'" %
             (NEVER, COMMAND, self.storage, WAIT)],
            cwd=self.work, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ready(process, 1)
        job = int(self.read("job"))
        agent, = [pid for pid in children(process.pid) if pid != job]
        os.kill(agent, signal.SIGKILL)
        process.communicate(timeout=180)
        self.assertIn(job, parents(), "a stranger was killed")
        os.kill(job, signal.SIGKILL)
        self.assertEqual(5, process.returncode)
        self.assert_clean()

    def test_after_an_interrupt(self):
        process = self.daemons()
        process.send_signal(signal.SIGINT)
        self.assert_gone(process, 130, "interrupted")


class WaysToStay(DeathCase):
    def test_stopped_worker(self):
        for action, status, states in (("interrupt", 130, ["interrupted"]), ("worker", 137, ["failed"]), ("controller", 137, ["died"]),
                                       ("agent", 5, ["failed"])):
            with self.subTest(action):
                process = self.gang(name=action)
                os.kill(self.worker(process, 1), signal.SIGSTOP)
                if action == "interrupt":
                    process.send_signal(signal.SIGINT)
                elif action == "worker":
                    os.kill(self.worker(process, 3), signal.SIGKILL)
                elif action == "controller":
                    process.kill()
                else:
                    os.kill(self.agents(process)[0], signal.SIGKILL)
                self.assert_death(process, status, *states, name=action)

    def test_stopped_worker_goes_on(self):
        process = self.shell(": > ready.$RANK; while [ ! -e go ]; do sleep 0.01; done; echo went on", "--name", "gang", "-n", 2)
        self.ready(process, 2)
        pid = self.worker(process, 0)
        os.kill(pid, signal.SIGSTOP)
        self.write("work/go", "")
        os.kill(pid, signal.SIGCONT)
        finished = self.assert_death(process, 0, "succeeded")
        self.assertEqual(2, finished.out.count("went on"))

    def test_other_process_group(self):
        script = ("import os, time; os.setpgid(0, 0) if os.getpgrp() != os.getpid() else None\n"
                  "if os.fork() == 0: os.setpgid(0, 0); time.sleep(100000)\n"
                  "if os.fork() == 0: os.setsid(); time.sleep(100000)\n"
                  "open('ready.' + os.environ['RANK'], 'w').close()\n"
                  "time.sleep(100000)\n")
        process = self.python(script, "--name", "gang", "-n", 2)
        self.ready(process, 2)
        os.kill(self.worker(process, 0), signal.SIGKILL)
        self.assert_death(process, 137, "failed")

    def test_leaves_its_own_group(self):
        """A worker leads a session and cannot join the group of its child, as it tries; the child is not in the worker's."""
        script = ("import os, time\n"
                  "child = os.fork()\n"
                  "if child == 0: time.sleep(100000)\n"
                  "os.setpgid(child, child)\n"
                  "try: os.setpgid(0, child)\n"
                  "except PermissionError: open('ready.' + os.environ['RANK'], 'w').close()\n"
                  "time.sleep(100000)\n")
        process = self.python(script, "--name", "gang", "-n", 2)
        self.ready(process, 2)
        process.send_signal(signal.SIGTERM)
        self.assert_death(process, 143, "preempted")

    def test_grandchild_holds_the_pipes(self):
        """It has the worker's output and its channel open; the run does not wait for it."""
        process = self.shell("sleep %s & sh -c 'trap \"\" TERM; sleep %s; :' & exit 0" % (NEVER, NEVER), "--name", "gang", "-n", 3,
                             "--grace", "100ms")
        self.assert_death(process, 0, "succeeded")

    def test_grandchild_in_a_session_holds_the_pipes(self):
        process = self.shell("setsid sh -c 'trap \"\" TERM HUP; : > there.'$RANK'; sleep %s; :' & "
                             "while [ ! -e there.$RANK ]; do sleep 0.01; done; exit 7" % NEVER, "--name", "gang", "-n", 3, "--grace", "100ms")
        self.assert_death(process, 7, "failed")

    def test_grandchild_without_environment(self):
        for action, status in (("end", 0), ("controller", 137), ("agent", 5)):
            with self.subTest(action):
                self.forget()
                last = "exit 0" if action == "end" else "exec sleep " + NEVER
                process = self.shell("env -i setsid sleep %s & env -i sleep %s & : > ready.$RANK; %s" % (NEVER, NEVER, last),
                                     "--name", action, "-n", 2, "--grace", "100ms")
                self.ready(process, 2)
                if action == "controller":
                    process.kill()
                elif action == "agent":
                    os.kill(self.agents(process)[0], signal.SIGKILL)
                self.assert_death(process, status, "succeeded", "died", "failed", name=action)

    def test_zombies(self):
        """Children that nobody waits for, and orphans that end while the run goes on: reaped, and no reason to complain."""
        script = ("import os, time\n"
                  "for _ in range(20):\n"
                  "    if os.fork() == 0:\n"
                  "        if os.fork() == 0: time.sleep(0.02)\n"
                  "        os._exit(0)\n"
                  "open('ready.' + os.environ['RANK'], 'w').close()\n"
                  "while not os.path.exists('go'): time.sleep(0.01)\n")
        process = self.python(script, "--name", "gang", "-n", 2)
        self.ready(process, 2)
        agent, = self.agents(process)

        def orphans_reaped():
            return len(children(agent)) == 2
        self.wait_for(orphans_reaped, "reaped orphans", process)
        self.write("work/go", "")
        self.assert_death(process, 0, "succeeded")

    def test_fork_storm(self):
        """Processes that fork a successor and end, so that a list of them is old when it is made: for some seconds at most."""
        script = r"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 20
def storm():
    while time.monotonic() < end:
        if os.fork() > 0:
            os._exit(0)
        os.setsid()
for _ in range(3):
    if os.fork() == 0:
        storm()
        os._exit(0)
open("ready." + os.environ["RANK"], "w").close()
if os.environ["RANK"] == "0" and os.path.exists("fail"):
    os._exit(9)
time.sleep(100000)
"""
        self.write("work/fail", "")
        process = self.python(script, "--name", "gang", "-n", 2, "--grace", "100ms")
        self.assert_death(process, 9, "failed")

    def test_fork_storm_and_killed_controller(self):
        script = r"""
import os, signal, time
end = time.monotonic() + 20
if os.fork() == 0:
    while time.monotonic() < end:
        if os.fork() > 0:
            os._exit(0)
        os.setsid()
open("ready." + os.environ["RANK"], "w").close()
time.sleep(100000)
"""
        process = self.python(script, "--name", "gang", "-n", 2)
        self.ready(process, 2)
        process.kill()
        self.assert_death(process, 137, "died")

    def test_terminated_agent(self):
        process = self.gang()
        os.kill(self.agents(process)[0], signal.SIGTERM)
        finished = self.assert_death(process, 143, "preempted")
        self.assertIn("was told to end, on node %s" % os.uname().nodename, finished.err)

    def test_terminated_agent_is_replaced(self):
        process = self.gang(": > ready.$RANK; [ $TRAINYARD_ATTEMPT = 2 ] || exec sleep 100000", "--max-failures", "1")
        os.kill(self.agents(process)[0], signal.SIGTERM)
        self.assert_death(process, 0, "succeeded")
        self.assertEqual(2, self.status("gang")["attempts"])

    def test_killed_agent_is_replaced(self):
        process = self.gang(": > ready.$RANK; [ $TRAINYARD_ATTEMPT = 2 ] || exec sleep 100000", "--max-failures", "1")
        os.kill(self.agents(process)[0], signal.SIGKILL)
        self.assert_death(process, 0, "succeeded")
        self.assertEqual(2, self.status("gang")["attempts"])

    def test_stopped_agent_and_two_interrupts(self):
        process = self.gang()
        agent, = self.agents(process)
        os.kill(agent, signal.SIGSTOP)
        self.signal(process, signal.SIGINT, 2)
        finished = self.finish(process)
        self.assertIn(finished.status, (5, 130), repr(finished))
        self.assert_clean()
        self.assert_ended("gang", "interrupted")

    def test_stopped_agent_goes_on_without_a_controller(self):
        process = self.gang()
        agent, = self.agents(process)
        os.kill(agent, signal.SIGSTOP)
        process.kill()
        process.wait(180)
        os.kill(agent, signal.SIGCONT)
        self.assert_death(process, 137, "died")

    def test_terminal_that_goes_away(self):
        """The controller leads the session of a terminal; the terminal's end hangs it up."""
        leader, follower = os.openpty()
        process = self.start("run", "--storage-path", self.storage, "--name", "gang", "-n", 2, "--num-cpus", 2, "--", "sh", "-c", WAIT,
                             cwd=self.work, stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(follower)
        self.ready(process, 2)
        os.close(leader)
        self.assertEqual(129, process.wait(180))
        self.assert_clean()
        self.assert_ended("gang", "interrupted")

    def test_reader_that_goes_away(self):
        """Nobody reads the output any more: the run ends by itself as it would, or is told so; it does not hang."""
        reader, writer = os.pipe()
        process = self.start("run", "--storage-path", self.storage, "--name", "gang", "-n", 2, "--num-cpus", 2, "--", "sh", "-c",
                             "seq 1 200000", cwd=self.work, stdout=writer)
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        self.finish(process)
        self.assert_clean()


class KilledController(DeathCase):
    def test_while_it_starts(self):
        """At any moment of the start: before the directory is there, before the agent, between the workers."""
        for step in range(soak("START_KILLS", 25)):
            name = "start-%d" % step
            process = self.shell(WAIT, "--name", name, "-n", 8, "--num-gpus", 8, "--use-gpu", "--num-cpus", 8)
            time.sleep(0.0008 * step)
            process.kill()
            self.finish(process)
            self.assert_clean(void=True)
            if os.path.exists(os.path.join(self.storage, name, "run.db")):
                self.assert_ended(name, "died")
        self.assert_no_void_leases()

    def test_while_it_waits_for_a_lease(self):
        holder = self.gang()
        waiter = self.shell(WAIT, "--name", "waiter", "-n", 2, "--num-gpus", self.N, "--use-gpu", "--num-cpus", 4)
        self.wait_for(lambda: os.path.exists(os.path.join(self.storage, "waiter", "run.db")), "the waiter's journal", waiter)
        waiter.kill()
        self.assert_status(137, self.finish(waiter))
        self.assert_ended("waiter", "died")
        holder.send_signal(signal.SIGTERM)
        self.assert_death(holder, 143, "preempted")

    def test_its_run_goes_on_with_resume(self):
        process = self.gang()
        process.kill()
        self.assert_death(process, 137, "died")
        self.assert_status(0, self.run_workers("--name", "gang", "--resume", "--", "true"))
        self.assert_clean()
        self.assert_ended("gang", "succeeded")


class RandomKills(DeathCase):
    SCRIPTS = (
        ("sleep", WAIT),
        ("busy", ": > ready.$RANK; while :; do echo line; done"),
        ("deaf", DEAF),
        ("family", "sleep %s & setsid sleep %s & env -i setsid sleep %s & : > ready.$RANK; wait" % (NEVER, NEVER, NEVER)),
        ("reports", ": > ready.$RANK; while :; do '%s' report step=1; done" % COMMAND),
        ("ends", ": > ready.$RANK; sleep 0.02"),
    )

    def victim(self, kind, random, process):
        """A process of the run, of this kind or the next above it."""
        agents = children(process.pid)
        if kind == "controller" or not agents:
            return process.pid
        if kind == "agent":
            return agents[0]
        workers = children(agents[0])
        if not workers:
            return agents[0]
        worker = random.choice(workers)
        below = children(worker)
        return random.choice(below) if kind == "descendant" and below else worker

    def trial(self, seed, random):
        self.forget()
        kind, script = random.choice(self.SCRIPTS)
        name = "trial-%d-%s" % (seed, kind)
        devices = random.choice([(), ("--num-gpus", "2", "--use-gpu", "--resources", "GPU=1")])
        process = self.shell(script, "--name", name, "-n", "2", "--num-cpus", "2", "--grace", "100ms", "--max-failures",
                             str(random.choice([0, 0, 1])), *devices, stdout=subprocess.DEVNULL)
        time.sleep(random.choice([0, 0.002, 0.005, 0.01, 0.03]) * random.random())
        if random.random() < 0.6:
            self.wait_for(lambda: os.path.exists(os.path.join(self.work, "ready.1")) or process.poll() is not None, "workers")
        kinds = random.choice([["controller"], ["agent"], ["worker"], ["descendant"], ["worker", "controller"],
                               ["descendant", "worker"], ["worker", "agent"]])
        victim = self.victim(kinds[0], random, process)
        agents = children(process.pid)
        try_kill(victim, signal.SIGKILL)
        for kind in kinds[1:]:
            # Where the controller and the agent are killed at once, nobody is left to clear up. Where there is no agent, or none any more, the
            # controller is the victim, whatever is asked for.
            other = self.victim(kind, random, process)
            if victim != process.pid and (other != process.pid or victim not in agents):
                try_kill(other, signal.SIGKILL)
        time.sleep(0.01 * random.random())
        if process.poll() is None:
            process.terminate()
        finished = self.finish(process)
        self.assert_clean(void=True)
        if os.path.exists(os.path.join(self.storage, name, "run.db")):
            self.assert_ended(name, "died", "failed", "node_lost", "interrupted", "preempted", "succeeded", "start_failed")
        else:
            self.assertIn(finished.status, (137, 143))

    def test_trials(self):
        for seed, random in seeds(soak("KILLS", 50)):
            try:
                self.trial(seed, random)
            except AssertionError as error:
                raise AssertionError("TRAINYARD_TEST_SEED=%d: %s" % (seed, error)) from error
        self.assert_no_void_leases()


if __name__ == "__main__":
    main()
