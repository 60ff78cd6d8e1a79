"""Runs on hosts that are reached by ssh: a real sshd on each of several network namespaces (hosts.py)."""

import os
import shutil
import signal

import harness
from hosts import Hosts

KEY = "0123456789abcdef" * 4


class Ssh(harness.Case):
    def setUp(self):
        super().setUp()
        self.hosts = Hosts(self, 4, sshd=True)

    def words(self, *args):
        return ("run", "--storage-path", self.storage, *args)

    def run_on(self, *args, **more):
        """`trainyard run` on h1."""
        return self.hosts.trainyard("h1", *self.words(*args), **more)

    def start_on(self, *args, **more):
        return self.hosts.start_trainyard("h1", *self.words(*args), **more)

    def programs(self, host):
        return self.hosts.run(host, "ps", "-eo", "args").out

    def assert_all_gone(self, *hosts):
        for host in hosts:
            self.wait_for(lambda host=host: not any(word in self.programs(host) for word in ("trainyard agent", "sleep 1000")),
                          "the end of all that ran on " + host)


class TestSsh(Ssh):
    def test_a_host_file_says_where_workers_run(self):
        hostfile = self.write("hostfile", "# slots as of mpirun\nh3 slots=2\nh1:1\n\nfd77::2 slots=2 # by its address\n")
        done = self.assert_status(0, self.run_on("--hostfile", hostfile, "-n", "5", "--", "sh", "-c",
                                                 'echo $RANK $LOCAL_RANK $NODE_RANK $WORLD_SIZE $(hostname); echo $MASTER_ADDR >"%s/address"'
                                                 % self.place))
        said = sorted(line.split("] ")[1] for line in done.out.splitlines())
        self.assertEqual({"h1": 1, "h2": 2, "h3": 2}, {h: sum(line.endswith(h) for line in said) for h in ("h1", "h2", "h3")}, said)
        self.assertEqual(["0", "1", "2", "3", "4"], [line.split()[0] for line in said])
        with open(os.path.join(self.place, "address")) as file:
            self.assertTrue(file.read().startswith(("10.77.", "fd77:")))
        self.assert_all_gone("h1", "h2", "h3")

    def test_the_exit_status_and_the_first_cause_come_home(self):
        failed = self.run_on("--hosts", "h2,h3", "-n", "2", "--placement", "SPREAD", "--", "sh", "-c",
                             'if [ $RANK = 1 ]; then echo oh no >&2; exit 7; fi; exec sleep 1000')
        self.assert_status(7, failed)
        self.assertIn("rank 1 exited with code 7, on node h3", failed.err)
        self.assert_all_gone("h2", "h3")

    def test_a_host_that_cannot_take_part_is_named_with_the_words_of_ssh(self):
        self.hosts.run("h2", "sh", "-c", "kill $(cat /run/sshd.pid)")
        self.hosts.run("h3", "sh", "-c", "rm ~/.ssh/authorized_keys")
        self.hosts.run("h4", "mount", "-t", "tmpfs", "tmpfs", harness.BUILD)
        for host, words in (("nowhere", "Could not resolve hostname nowhere"), ("h2", "connect to host h2 port 22: Connection refused"),
                            ("h3", "Permission denied (publickey)"), ("h4", "there is no trainyard on this host: install it, or use --copy")):
            refused = self.assert_status(4, self.run_on("--hosts", "h1," + host, "-n", "2", "--", "true"))
            self.assert_line(refused, "run", host, words)
        self.assert_all_gone("h1", "h4")

    def test_another_build_is_refused_with_both_names(self):
        path, build, other = self.another_build()
        self.hosts.run("h2", "mount", "--bind", path, harness.COMMAND)
        refused = self.run_on("--hosts", "h1,h2", "-n", "2", "--", "true")
        self.assert_status(4, refused)
        for word in ("h2", build, other):
            self.assertIn(word, refused.err, repr(refused))

    def test_copy_brings_the_command_to_hosts_that_have_none(self):
        self.hosts.run("h2", "mount", "-t", "tmpfs", "tmpfs", harness.BUILD)
        for _ in range(2):  # the second time it is there
            done = self.run_on("--hosts", "h2", "--copy", "--", "hostname")
            self.assertEqual("[rank 0] h2\n", self.assert_status(0, done).out)
        self.assertIn("trainyard", self.hosts.run("h2", "sh", "-c", "ls ~/.cache/trainyard/*").out)

    def test_the_key_is_on_no_command_line_and_in_no_environment(self):
        ready = os.path.join(self.place, "ready")
        run = self.start_on("--hosts", "h1,h2,h3", "-n", "3", "--placement", "SPREAD", "--", "sh", "-c",
                            "touch %s-$RANK; exec sleep 1000" % ready, env={"TRAINYARD_RUN_KEY": KEY})
        self.wait_for(lambda: all(os.path.exists("%s-%d" % (ready, rank)) for rank in range(3)), "workers", run)
        for host in ("h1", "h2", "h3"):
            words = self.hosts.run(host, "sh", "-c", "cat /proc/[0-9]*/cmdline; for f in /proc/[0-9]*/environ; do "
                                   "grep -qz ^RANK= $f && cat $f; done | tr '\\0' '\\n'", env={"TRAINYARD_RUN_KEY": None})
            self.assertIn("RANK=", words.out)
            self.assertNotIn(KEY, words.out)
        os.kill(self.hosts.pid_of(run), signal.SIGINT)
        self.assert_status(130, self.finish(run))
        self.assert_all_gone("h1", "h2", "h3")

    def test_agents_end_with_the_controller_and_with_the_connection(self):
        ready = os.path.join(self.place, "ready")
        words = ("--hosts", "h1,h2,h3", "-n", "3", "--placement", "SPREAD", "--", "sh", "-c", "touch %s-$RANK; exec sleep 1000" % ready)
        run = self.start_on(*words)
        self.wait_for(lambda: all(os.path.exists("%s-%d" % (ready, rank)) for rank in range(3)), "workers", run)
        self.hosts.run("h2", "sh", "-c", "kill -9 $(pgrep -o -f 'sshd: .*@notty')")
        lost = self.finish(run)
        self.assert_status(5, lost)
        self.assertIn("h2", lost.err)
        self.assert_all_gone("h1", "h2", "h3")
        for rank in range(3):
            os.unlink("%s-%d" % (ready, rank))
        run = self.start_on(*words)
        self.wait_for(lambda: all(os.path.exists("%s-%d" % (ready, rank)) for rank in range(3)), "workers", run)
        os.kill(self.hosts.pid_of(run), signal.SIGKILL)
        self.assert_status(128 + 9, self.finish(run))
        self.assert_all_gone("h1", "h2", "h3")

    def test_hosts_whose_storage_is_another_are_told_in_one_line(self):
        finished = self.hosts.trainyard("h1", "run", "--storage-path", "/tmp/own", "--name", "r", "--hosts", "h1,h2,h3", "-n", "3", "--placement", "SPREAD", "--", "true")
        self.assert_status(0, finished)
        self.assertEqual(["trainyard run: warning: nodes h2, h3: /tmp/own/r of these nodes is not that of the controller's node: logs and checkpoints "
                          "go there over the network"], [line for line in finished.err.splitlines() if "is not that of" in line])

    def test_a_host_whose_connection_was_lost_is_started_again(self):
        """Nobody is left there who could bring it back."""
        ready = os.path.join(self.place, "ready")
        script = "[ $TRAINYARD_ATTEMPT = 1 ] || exec uname -n; touch %s-$RANK; exec sleep 1000" % ready
        run = self.start_on("--hosts", "h1,h2", "-n", "2", "--placement", "SPREAD", "--max-failures", "1", "--", "sh", "-c", script)
        self.wait_for(lambda: all(os.path.exists("%s-%d" % (ready, rank)) for rank in range(2)), "workers", run)
        self.hosts.run("h2", "sh", "-c", "kill -9 $(pgrep -o -f 'sshd: .*@notty')")
        finished = self.assert_status(0, self.finish(run))
        self.assertEqual(["[rank 0] h1", "[rank 1] h2"], sorted(finished.out.splitlines()), finished)
        self.assertIn("waiting a minute at most for node h2 to come back", finished.err)
        self.assert_all_gone("h1", "h2")


class Vanished(Ssh):
    """A host without power says nothing, and neither does ssh, whose connection to it is then one end alone."""

    def begin(self, hosts, *args, script="exec sleep 1000"):
        ready = os.path.join(self.place, "ready")
        run = self.start_on("--hosts", ",".join(hosts), "-n", str(len(hosts)), "--placement", "SPREAD", *args, "--", "sh", "-c",
                            "touch %s-$TRAINYARD_ATTEMPT-$RANK; %s" % (ready, script))
        self.wait_for(lambda: all(os.path.exists("%s-1-%d" % (ready, rank)) for rank in range(len(hosts))), "workers", run)
        return run

    def test_it_is_told_and_the_command_ends(self):
        run = self.begin(("h1", "h2", "h3"))
        self.hosts.crash("h3")
        lost = self.assert_status(5, self.finish(run))
        self.assertIn("node h3 was lost: nothing was heard of it", lost.err)
        self.assert_all_gone("h1", "h2")
        self.assertNotIn("ssh -T", self.programs("h1"))

    def test_its_agent_is_started_again_when_it_is_back(self):
        run = self.begin(("h1", "h2"), "--max-failures", "1", script="[ $TRAINYARD_ATTEMPT = 1 ] || exec uname -n; exec sleep 1000")
        self.hosts.cut("h1", "h2")
        # What its kernel knows of connections goes with it. One that dies may take the next one along before that is killed.
        off = self.hosts.run("h2", "sh", "-ec", "echo 1 >/proc/sys/net/ipv4/tcp_orphan_retries; "
                             "for pid in $(pgrep -f '[t]rainyard agent|[s]shd: .*@notty'); do kill -9 $pid || [ ! -e /proc/$pid ]; done")
        self.assert_status(0, off)
        self.wait_for(lambda: "h2" not in self.hosts.run("h2", "sh", "-c", "ss -Htan | grep -v -e LISTEN -e TIME-WAIT | sed 's/.*/h2/'").out, "a kernel without connections")
        while "to come back" not in (line := run.stderr.readline()):
            self.assertNotEqual("", line, "h2 is not waited for")
        self.hosts.mend()
        finished = self.assert_status(0, self.finish(run))
        self.assertEqual(["[rank 0] h1", "[rank 1] h2"], sorted(finished.out.splitlines()), finished)
        self.assert_all_gone("h1", "h2")
        self.assertNotIn("ssh -T", self.programs("h1"))


class TestWords(harness.Case):
    def test_wrong_words_start_nothing(self):
        hostfile = self.write("hostfile", "h1 slots=2\nh2 slots=two\n")
        empty = self.write("empty", "# nobody\n")
        for words, said in ((("--hosts", "a,,b"), ("a host has no name",)), (("--hosts", "-oProxyCommand=id"), ("does not begin with '-'",)),
                            (("--hosts", "a:0"), ("number of slots",)), (("--hostfile", hostfile), (hostfile + ":2", "two")),
                            (("--hostfile", empty), (empty, "no host")), (("--hostfile", "/nowhere"), ("/nowhere",)),
                            (("--copy",), ("--copy", "--hosts")), (("--hosts", "a", "--nnodes", "3"), ("--nnodes 3", "1 hosts")),
                            (("--hosts", "a", "--rendezvous", "b:1"), ("--rendezvous",)), (("--hosts", "a", "--engine", "local"), ("local",)),
                            (("--hosts", "a", "--cluster", empty), ("--cluster", "--hosts"))):
            with self.subTest(words):
                self.assert_usage(self.run_workers(*words, "--", "true"), "run", *said)

    def test_without_ssh_that_is_said(self):
        bin = os.path.join(self.place, "bin")
        os.mkdir(bin)
        for tool in ("sh", "env"):
            os.symlink(shutil.which(tool), os.path.join(bin, tool))
        refused = self.run_workers("--hosts", "somewhere", "--", "true", env={"PATH": bin})
        self.assert_status(4, refused)
        self.assert_line(refused, "run", "somewhere", "cannot execute ssh", "openssh-client")

    def test_the_last_of_many_words_of_ssh_is_the_reason(self):
        bin = os.path.join(self.place, "bin")
        os.mkdir(bin)
        self.write("bin/ssh", "#!/bin/sh\nseq 8000 >&2\necho the reason >&2\nexit 255\n")
        os.chmod(os.path.join(bin, "ssh"), 0o755)
        refused = self.run_workers("--hosts", "somewhere", "--", "true", env={"PATH": bin + ":" + os.environ["PATH"]})
        self.assert_status(4, refused)
        self.assert_line(refused, "run", "somewhere", "the reason")


if __name__ == "__main__":
    harness.main()
