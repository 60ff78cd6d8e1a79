"""One list of what `run` does, on each engine: nodes of this machine, the same command on each of two hosts, ssh, and an allocation of Slurm."""

import json
import secrets

from harness import COMMAND, Case, main
from hosts import Hosts, Slurm

RANKS = "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $NODE_RANK"
# Reports a checkpoint; then one rank fails, and whoever begins with that checkpoint tells what is in it.
SAVES = """
if [ -z "$TRAINYARD_CHECKPOINT" ]; then
    cd "$(mktemp -d)" && echo $RANK > part-$RANK && "$0" report step=1 --checkpoint . || exit 9
    [ $RANK != 3 ] || exit 7
    exec sleep 1000
fi
echo begins with $(cat "$TRAINYARD_CHECKPOINT/part-$RANK")
"""


class Engines(Case):
    def behave(self, run):
        """`run` gives the end of `trainyard run` with these options and words on two nodes of four CPUs."""
        def spread(*args):
            return run("--progress", "none", "--storage-path", self.storage, "-n", "4", "--placement", "SPREAD", *args)

        def lines(finished):
            return sorted(finished.out.splitlines())

        def status(name):
            found = self.trainyard("status", name, "--storage-path", self.storage, "--format", "json").json
            return found["state"], found["checkpoints"]

        with self.subTest("ranks and sizes"):
            finished = self.assert_status(0, spread("--", "sh", "-c", RANKS))
            self.assertEqual(["[rank %d] %d of 4, %d of 2 on %d" % (rank, rank, rank % 2, rank // 2) for rank in range(4)], lines(finished))
        with self.subTest("variables and words as they are"):
            finished = self.assert_status(0, spread("--env", "GREETING=a  'b'", "--", "sh", "-c", 'echo "$GREETING|$1"', "sh", 'it\'s $x "y"'))
            self.assertEqual(["[rank %d] a  'b'|it's $x \"y\"" % rank for rank in range(4)], lines(finished))
        with self.subTest("the exit status of the first that fails, and its last lines"):
            finished = self.assert_status(7, spread("--", "sh", "-c", "[ $RANK = 3 ] || exec sleep 1000; echo no luck >&2; exit 7"))
            self.assertRegex(finished.err, r"first cause: rank 3 .*\b7\b")
            self.assertIn("no luck", finished.err)
        with self.subTest("a worker that is killed"):
            finished = self.assert_status(137, spread("--", "sh", "-c", "[ $RANK = 2 ] || exec sleep 1000; kill -KILL $$"))
            self.assertRegex(finished.err, r"first cause: rank 2 .*SIGKILL")
        with self.subTest("another attempt begins with the last checkpoint"):
            finished = self.assert_status(0, spread("--name", "again", "--max-failures", "1", "--", "sh", "-c", SAVES, COMMAND))
            self.assertEqual(["[rank %d] begins with %d" % (rank, rank) for rank in range(4)], lines(finished))
            self.assertEqual(("succeeded", 1), status("again"))
        with self.subTest("so does a run that is resumed"):
            self.assert_status(7, spread("--name", "resumed", "--", "sh", "-c", SAVES, COMMAND))
            self.assertEqual(("failed", 1), status("resumed"))
            finished = self.assert_status(0, spread("--name", "resumed", "--resume", "--", "sh", "-c", SAVES, COMMAND))
            self.assertEqual(["[rank %d] begins with %d" % (rank, rank) for rank in range(4)], lines(finished))
            self.assertEqual(("succeeded", 1), status("resumed"))
        with self.subTest("the time limit"):
            self.assert_status(124, spread("--time-limit", "2s", "--", "sleep", "1000"))
        with self.subTest("what does not fit is refused"):
            finished = self.assert_status(3, spread("--resources", "CPU=5", "--", "echo", "began"))
            self.assertIn("CPU", finished.err)
            self.assertEqual("", finished.out)
        with self.subTest("a program that is not there"):
            finished = self.assert_status(4, spread("--", "/nowhere/prog"))
            self.assertIn("/nowhere/prog", finished.err)

    def test_nodes_of_this_machine(self):
        cluster = self.write("cluster.json", json.dumps({"nodes": [{"name": "n[1-2]", "resources": {"CPU": 4}}]}))
        self.behave(lambda *args: self.trainyard("run", "--cluster", cluster, *args))

    def test_the_same_command_on_each_host(self):
        hosts, key = Hosts(self, 2), secrets.token_hex(32)

        def run(*args):
            nodes = [hosts.start_trainyard(host, "run", "--num-cpus", 4, "--nnodes", 2, "--node-rank", rank, "--rendezvous", "h1:7000", *args,
                                           env={"TRAINYARD_RUN_KEY": key}) for rank, host in enumerate(("h1", "h2"))]
            home, away = map(self.finish, nodes)
            self.assertEqual(home.status, away.status, repr((home, away)))
            return home
        self.behave(run)

    def test_hosts_by_ssh(self):
        hosts = Hosts(self, 2, sshd=True)
        self.behave(lambda *args: hosts.trainyard("h1", "run", "--hosts", "h1:4,h2:4", *args))

    def test_an_allocation_of_slurm(self):
        slurm = Slurm(self)
        self.behave(lambda *args: slurm.run("head", "salloc", "--quiet", "-N2", "--ntasks-per-node=4", COMMAND, "run", *args))


if __name__ == "__main__":
    main(side_by_side=2)
