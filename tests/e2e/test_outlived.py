"""A controller that has started its agents by ssh, and is killed: with --outlive workers go on, and it is followed by another one."""

import os
import signal
import subprocess

from harness import main
from test_adoption import STEPS, Noted
from test_ssh import KEY, Ssh


class Outlived(Noted, Ssh):
    """With --outlive workers go on where the controller dies, also where the connection does."""

    def begin(self, hosts="h1,h2", *args):
        self.words_of_run = ("-n", "2", "--placement", "SPREAD", "--name", "r", "--outlive", "60s", *args)
        self.process = self.start_on("--hosts", hosts, *self.words_of_run, "--", "sh", "-c", STEPS)
        self.wait_for_steps(self.process)

    def kill_controller(self):
        os.kill(self.hosts.pid_of(self.process), signal.SIGKILL)
        self.assert_status(128 + 9, self.finish(self.process))

    def resume(self):
        self.process = self.start_on("--hosts", "h1,h2", *self.words_of_run, "--resume", "--", "sh", "-c", STEPS)

    def kept(self):
        return self.hosts.run("h1", "sh", "-c", "find /tmp/trainyard-0 -name 'run-*'").out.split()

    def end(self):
        self.write("enough", "")
        finished = self.assert_status(0, self.finish(self.process))
        self.assert_all_gone("h1", "h2", "h3", "h4")
        self.assertNotIn("ssh -T", self.programs("h1"))
        self.assertEqual([], self.kept())
        return finished

    def test_they_are_adopted(self):
        self.begin()
        for _ in range(2):
            self.kill_controller()
            self.wait_for_steps(None)
            self.resume()
            self.wait_for_line(self.process, "attempt 1 goes on")
            self.wait_for_steps(self.process)
        self.end()
        self.assert_one_attempt()

    def test_the_connection_is_not_needed(self):
        self.begin()
        self.hosts.run("h2", "sh", "-c", "kill -9 $(pgrep -o -f 'sshd: .*@notty')")
        self.wait_for_steps(self.process)
        self.kill_controller()
        self.resume()
        self.wait_for_line(self.process, "attempt 1 goes on")
        self.end()
        self.assert_one_attempt()

    def test_a_host_whose_agent_died_meanwhile_is_started_again(self):
        self.begin("h1,h2", "--max-failures", "1", "--outlive", "15s")
        self.kill_controller()
        self.hosts.run("h2", "sh", "-c", "kill -9 $(pgrep -f '[t]rainyard agent')")
        self.resume()
        self.wait_for_line(self.process, "the workers of attempt 1 have gone on, but are ended: a node of it has come back without its workers")
        self.wait_for_steps(self.process)
        self.end()
        self.assertEqual([[1, 2], [1, 2]], [sorted({attempt for _, attempt, _ in self.notes(rank)}) for rank in (0, 1)])

    def test_the_port_may_be_taken_by_then(self):
        self.begin("h1,h2", "--outlive", "3s")
        with open("/proc/%d/net/tcp" % self.hosts.pid_of(self.process)) as file:
            ports = {int(words[1].split(":")[1], 16) for words in map(str.split, file) if words[3] == "0A"} - {22}
        self.kill_controller()
        taken = self.hosts.start("h1", "python3", "-c", "import socket, sys; kept = [socket.create_server(('', int(port))) for port in sys.argv[1:]]; "
                                 "print('there', flush=True); sys.stdin.read()", *ports, stdin=subprocess.PIPE)
        self.assertEqual("there\n", taken.stdout.readline())
        self.resume()
        self.wait_for_steps(self.process)
        self.end()
        self.assert_status(0, self.finish(taken))

    def test_what_is_kept_is_this_users_alone(self):
        self.begin()
        self.assertEqual(1, len(self.kept()))
        self.assertEqual("700 root\n600 root\n", self.hosts.run("h1", "sh", "-c", "stat -c '%a %U' /tmp/trainyard-0 " + self.kept()[0]).out)
        self.end()
        self.hosts.run("h1", "chmod", "755", "/tmp/trainyard-0")
        done = self.assert_status(0, self.run_on("--hosts", "h1,h2", "-n", "2", "--outlive", "60s", "--", "true"))
        self.assertIn("workers will not outlive the controller: /tmp/trainyard-0 must be a directory of yours with mode 0700", done.err)


    def test_what_is_kept_may_be_anything(self):
        words = ("--hosts", "h1,h2", "-n", "2", "--name", "r", "--outlive", "1s", "--", "sh", "-c")
        self.assert_status(7, self.run_on(*words, "exit 7"))
        run = os.stat(os.path.join(self.storage, "r"))
        name = "/tmp/trainyard-0/run-%x-%x" % (run.st_dev, run.st_ino)
        for kept in ("", "1", "\n\n", "70000\n%s\nh1\nh2\n" % KEY, "22\n%s\nh1\nh2\n" % KEY, "4711\n%s\nh2\nh1\n" % KEY,
                     "4711\n%s\nh1\nh2\n" % (KEY * 9)):
            self.assert_status(0, self.hosts.run("h1", "sh", "-c", 'umask 077; printf %s "$1" >"$2"', "sh", kept, name))
            self.assertEqual([name], self.kept())
            self.assert_status(0, self.run_on("--resume", *words, "true"))
            self.assertEqual([], self.kept())


if __name__ == "__main__":
    main()
