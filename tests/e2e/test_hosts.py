"""The hosts that other tests run on are hosts: apart from each other and from this machine, connected, and gone at the end."""

import os
import signal
import subprocess

import harness
from hosts import SCRIPT, Hosts, Slurm

SERVE = """
import socket
server = socket.create_server(("::", 7000), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    server.accept()[0].send(b"heard")
"""
CALL = """
import socket, sys
try:
    server = socket.create_connection((sys.argv[1], 7000), timeout=2)
    server.settimeout(None)
    print(server.recv(5).decode())
except TimeoutError:
    print("silence")
except OSError as error:
    print(error.strerror)
"""


class TestHosts(harness.Case):
    def serve(self, hosts, *names):
        for name in names:
            server = hosts.start(name, "python3", "-c", SERVE)
            self.assertEqual("ready\n", server.stdout.readline())
            self.addCleanup(server.wait)
            self.addCleanup(server.kill)

    def call(self, hosts, source, sink):
        return hosts.run(source, "python3", "-c", CALL, sink).out.strip()

    def test_each_is_a_machine_of_its_own(self):
        hosts = Hosts(self, 2)
        here = self.write("seen", "seen by all\n")
        home = os.path.expanduser("~")
        below = os.path.relpath(harness.BUILD, home).split(os.sep)[0]
        shown = [home + ":"] + ([below] if below != ".." else [])  # the build is shared
        for k in (1, 2):
            seen = hosts.run(k, "sh", "-c", "hostname; cat %s; ls /dev/shm ~; >/dev/shm/mine; >/tmp/mine; >~/mine; ps x | wc -l" % here)
            self.assertEqual(["h%d" % k, "seen by all", "/dev/shm:", "", *shown], seen.out.splitlines()[:-1], repr(seen))
            self.assertLess(int(seen.out.splitlines()[-1]), 10)
        self.assertFalse(os.path.exists("/tmp/mine"))
        self.assertFalse(os.path.exists("/dev/shm/mine"))

    def test_links_are_cut_reset_slowed_and_mended(self):
        hosts = Hosts(self, 3, networks=2)
        self.serve(hosts, "h1", "h2", "h3")
        for sink in ("h2", "10.77.0.2", "10.77.1.2", "fd77::2", "fd77:1::2"):
            self.assertEqual("heard", self.call(hosts, "h1", sink), sink)
        hosts.cut("h1", "h2", "--one-way")
        self.assertEqual(["silence", "silence", "heard"],
                         [self.call(hosts, *pair) for pair in (("h1", "h2"), ("h1", "fd77:1::2"), ("h1", "h3"))])
        hosts.mend()
        hosts.cut("h1")
        self.assertEqual(["silence", "silence", "heard"],
                         [self.call(hosts, *pair) for pair in (("h1", "h2"), ("h3", "h1"), ("h2", "h3"))])
        hosts.mend()
        hosts.change("reset", "h1", "h2")
        self.assertEqual("Connection refused", self.call(hosts, "h1", "h2"))
        hosts.mend()
        hosts.change("slow", "h1", "256kbit")
        hosts.change("lose", "h1", "1")
        self.wait_for(lambda: self.call(hosts, "h2", "h1") == "heard", "an answer through a link that loses packets")
        hosts.mend()
        hosts.crash("h2")
        self.assertEqual("silence", self.call(hosts, "h1", "fd77::2"))
        self.assertEqual("heard", self.call(hosts, "h1", "h3"))

    def test_ssh_reaches_each(self):
        hosts = Hosts(self, 2, sshd=True)
        told = hosts.run("h1", "ssh", "-o", "BatchMode=yes", "h2", "hostname; echo $SSH_CONNECTION")
        self.assertEqual("h2\n", told.out[:3], repr(told))
        self.assertIn("77", told.out)

    def test_nobody_waits_for_hosts_that_are_up(self):
        """Whoever reads what `up` prints finds its end: `scripts/slurm up 2>&1 | tail`."""
        at = ["--at", os.path.join(self.place, "up")]
        self.addCleanup(subprocess.run, [SCRIPT, "down", *at])
        made = subprocess.run([SCRIPT, "up", "1", *at], capture_output=True, text=True, timeout=60)
        self.assertEqual((0, "", ""), (made.returncode, made.stdout, made.stderr))
        there = subprocess.run([SCRIPT, "exec", *at, "h1", "--", "hostname"], capture_output=True, text=True)
        self.assertEqual((0, "h1\n"), (there.returncode, there.stdout), there.stderr)

    def test_nothing_is_left_of_a_holder_that_is_killed(self):
        hosts = Hosts(self, 2)
        daemon = hosts.start("h1", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo ready; exec sleep 1000")
        self.assertEqual("ready\n", daemon.stdout.readline())
        os.kill(hosts.holder.pid, signal.SIGKILL)
        hosts.holder.wait()
        self.assertEqual(128 + 9, self.finish(daemon).status)
        self.wait_for(lambda: not harness.processes_with(self.place), "the end of all processes in the hosts")
        refused = self.finish(subprocess.Popen([SCRIPT, "--at", hosts.at, "exec", "1", "true"], stdout=subprocess.PIPE,
                                               stderr=subprocess.PIPE, text=True))
        self.assert_status(1, refused)
        self.assertIn("no hosts are up", refused.err)

    def test_slurm_places_tasks_on_its_nodes(self):
        slurm = Slurm(self)
        told = slurm.run("head", "srun", "-N2", "-n4", "--ntasks-per-node=2", "--gpus-per-task=1", "-l", "sh", "-c",
                         'echo "$SLURMD_NODENAME $(hostname) $CUDA_VISIBLE_DEVICES"')
        self.assertEqual(["0: h1 h1 0", "1: h1 h1 1", "2: h2 h2 0", "3: h2 h2 1"], sorted(told.out.splitlines()), repr(told))


if __name__ == "__main__":
    harness.main()
