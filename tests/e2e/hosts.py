"""Hosts for a test, by scripts/hosts: network namespaces with an address, a host name, processes and a /tmp of their own.

    self.hosts = Hosts(self, 3, sshd=True)
    self.hosts.trainyard("h2", "run", "-n", "2", "--", "true")
    self.hosts.cut("h1", "h2")

They end with the test, however that ends. Every host sees the test's place, at its path; /tmp is otherwise its own.
"""

import os
import pwd
import subprocess

from harness import COMMAND, HERE, read_line_by_line

SCRIPTS = os.path.join(HERE, "..", "..", "scripts")
SCRIPT = os.path.join(SCRIPTS, "hosts")


class Hosts:
    def __init__(self, case, count, names=None, networks=1, sshd=False):
        self.case = case
        self.at = os.path.join(case.place, "hosts")
        self.hold(SCRIPT, "hold", count, "--at", self.at, "--share", case.place, "--networks", networks,
                  *(["--names", ",".join(names)] if names else []), *(["--sshd"] if sshd else []))

    def hold(self, *words):
        self.holder = subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.case.addCleanup(self.end)
        if self.holder.stdout.readline() != "ready\n":
            self.case.fail("no hosts: " + self.holder.stderr.read())

    def end(self):
        for stream in (self.holder.stdin, self.holder.stdout, self.holder.stderr):
            stream.close()
        self.holder.wait()

    def words(self, host, *args):
        return [SCRIPT, "--at", self.at, "exec", str(host), "--", *map(str, args)]

    def environment(self, changes):
        """The test's, but at home is where the host's user is."""
        return self.case.environment_with({"HOME": pwd.getpwuid(os.getuid()).pw_dir, "TMPDIR": None, **(changes or {})})

    def start(self, host, *args, env=None, **more):
        """Starts a command in a host and gives its Popen, which the test must wait for; it is killed with the Popen's process."""
        process = subprocess.Popen(
            self.words(host, *args), cwd=more.pop("cwd", self.case.place), env=self.environment(env), text=True,
            stdin=more.pop("stdin", subprocess.DEVNULL), stdout=more.pop("stdout", subprocess.PIPE),
            stderr=more.pop("stderr", subprocess.PIPE), errors="surrogateescape", **more)
        read_line_by_line(process)
        for stream in (process.stdout, process.stderr):
            self.case.addCleanup(stream.close if stream else (lambda: None))
        return process

    def run(self, host, *args, timeout=180, env=None, **more):
        """The same, to its end."""
        return self.case.finish(self.start(host, *args, env=env, **more), timeout)

    def start_trainyard(self, host, *args, **more):
        return self.start(host, COMMAND, *args, **more)

    def trainyard(self, host, *args, **more):
        return self.run(host, COMMAND, *args, **more)

    def pid_of(self, process):
        """The command itself, for the test to send signals to; `process` only waits for it."""
        def child():
            with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as file:
                return file.read().split()
        return int(self.case.wait_for(child, "the command in the host", process)[0])

    def change(self, *args):
        """cut, reset, lose, slow, mend, crash."""
        subprocess.run([SCRIPT, "--at", self.at, *map(str, args)], check=True)

    def cut(self, *args):
        self.change("cut", *args)

    def mend(self):
        self.change("mend")

    def crash(self, host):
        self.change("crash", host)


class Slurm(Hosts):
    """A real Slurm on hosts `head` and h1 to h6, as the head of scripts/slurm says: self.slurm.run("head", "srun", "hostname").
    `extra`: lines to add to files of its configuration, as {"cgroup.conf": "ConstrainDevices=yes"}."""

    def __init__(self, case, extra=None):
        self.case = case
        self.state = os.path.join(case.place, "slurm")
        self.at = os.path.join(self.state, "hosts")
        added = os.path.join(case.place, "slurm-extra")
        os.mkdir(added)
        for name, lines in (extra or {}).items():
            with open(os.path.join(added, name), "w") as file:
                file.write(lines + "\n")
        self.hold("env", "SLURM_EXTRA=" + added, os.path.join(SCRIPTS, "slurm"), "hold", "--at", self.state, "--share", case.place)

    def environment(self, changes):
        return super().environment({"SLURM_CONF": os.path.join(self.state, "slurm.conf"), **(changes or {})})
