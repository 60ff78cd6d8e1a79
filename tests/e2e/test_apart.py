"""Nodes whose storage is not the controller's: what their ranks log and write of checkpoints goes home, and the checkpoint that an
attempt begins with comes to them. Each host has a /tmp of its own (hosts.py)."""

import json
import os
import secrets
import tempfile

import harness
from hosts import Hosts

STORAGE = "/tmp/storage/runs"

# In the first attempt every rank brings a file of several pieces, an empty one, one in a directory and a link; then one fails. The second
# finds the files of all ranks.
WORKER = """
set -e
echo "rank $RANK of attempt $TRAINYARD_ATTEMPT on $(hostname)"
if [ "$TRAINYARD_ATTEMPT" = 1 ]; then
    mkdir -p "$HOME/state-$RANK/sub"
    cd "$HOME/state-$RANK"
    head -c 5000000 /dev/urandom > "big-$RANK"
    : > "empty-$RANK"
    echo "of $RANK" > "sub/small-$RANK"
    ln -s "sub/small-$RANK" "link-$RANK"
    md5sum "big-$RANK" > "sum-$RANK"
    "$TRAINYARD" report "step=1" --checkpoint .
    if [ "$RANK" = 3 ]; then exit 3; fi
    sleep 60
fi
cd "$TRAINYARD_CHECKPOINT"
md5sum --quiet -c sum-0 sum-1 sum-2 sum-3
cat link-0 link-1 link-2 link-3
test -f empty-2
"""


class Apart(harness.Case):
    def setUp(self):
        super().setUp()
        self.hosts = Hosts(self, 2)
        self.key = secrets.token_hex(32)
        self.worker = self.write("worker.sh", WORKER)

    def join(self, host, rank, *args, program=None, **more):
        return self.hosts.start_trainyard(
            host, "run", "--storage-path", STORAGE, "--name", "r", "--num-cpus", "4", "--nnodes", "2", "--node-rank", rank, "--rendezvous",
            "h1:7000", "--progress", "none", "-n", "4", "--placement", "SPREAD", *args, "--", *(program or ("sh", self.worker)),
            env={"TRAINYARD_RUN_KEY": self.key, "TRAINYARD": harness.COMMAND}, **more)

    def both(self, *args, **more):
        nodes = [self.join("h%d" % (rank + 1), rank, *args, **more) for rank in range(2)]
        return [self.finish(node) for node in nodes]

    def shell(self, host, script):
        return self.hosts.run(host, "sh", "-c", script).out

    def test_checkpoints_and_logs_go_home_and_come_back(self):
        home, away = self.both("--max-failures", "1")
        self.assert_status(0, home)
        self.assert_status(0, away)
        self.assertIn("node h2: " + STORAGE + "/r of this node is not that of the controller's node", home.err)
        for rank in range(4):
            log = self.shell("h1", "cat %s/r/logs/rank-%d.log" % (STORAGE, rank))
            self.assertIn("rank %d of attempt 1 on h%d\n" % (rank, 2 if rank > 1 else 1), log)
            self.assertIn("rank %d of attempt 2 on h%d\nof 0\nof 1\nof 2\nof 3\n" % (rank, 2 if rank > 1 else 1), log)
        listed = json.loads(self.shell("h1", "cat %s/r/checkpoint_000001/.metadata.json" % STORAGE))["trainyard"]["files"]
        self.assertEqual(20, len(listed))
        verified = self.hosts.trainyard("h1", "checkpoints", "verify", "--storage-path", STORAGE, "r")
        self.assert_status(0, verified)
        self.assertEqual("", self.shell("h2", "ls -A %s" % STORAGE), "nothing is left on the other host")

    def test_a_directory_of_somebody_else_is_not_touched(self):
        self.shell("h2", "mkdir -p %s/r && echo mine > %s/r/file" % (STORAGE, STORAGE))
        home, away = self.both(program=("true",))
        self.assert_status(4, home)
        self.assertIn("%s/r is there, and not the run's" % STORAGE, home.err)
        self.assertEqual("file\n", self.shell("h2", "ls -A %s/r" % STORAGE))

    def test_a_working_directory_that_is_not_there(self):
        begin = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, begin)
        self.shell("h1", "mkdir -p " + begin)  # each host has a /tmp of its own
        home, away = self.both(program=("echo", "here"), cwd=begin)
        self.assert_status(4, home)
        self.assertIn("node h2: cannot enter directory %s: No such file or directory" % begin, home.err)
        self.assertNotIn("here", home.out, "a worker started")
        self.assert_status(4, away)

    def test_programs_that_differ(self):
        self.shell("h1", "printf '#!/bin/sh\\nexit 0\\n' > /tmp/prog && chmod +x /tmp/prog && cp /tmp/prog /tmp/script.sh")
        home, away = self.both(program=("echo", "/tmp/script.sh"))
        self.assertIn("[rank 3] /tmp/script.sh", self.assert_status(0, home).out)
        home, away = self.both("--resume", program=("/tmp/prog",))
        self.assert_status(4, home)
        self.assertRegex(home.err, "node h2: cannot execute /tmp/prog: No such file or directory; it must be at the same path on every node")
        self.assert_status(4, away)
        self.shell("h2", "printf '#!/bin/sh\\n exit 0\\n' > /tmp/prog && chmod +x /tmp/prog && cp /tmp/prog /tmp/script.sh")
        differs = r"warning: node h2: /tmp/%s is another there \(18 bytes, here 17\): bring the same to all nodes"
        for program, differing in (("/tmp/prog", "prog"), ("sh", r"script\.sh")):  # only the file of an interpreter is looked at
            home, away = self.both("--resume", program=(program, "/tmp/script.sh"))
            self.assert_status(0, home)
            self.assertRegex(home.err, differs % differing)
            self.assert_status(0, away)

    def test_what_a_killed_agent_left_goes(self):
        self.shell("h2", "mkdir -p %s/r/logs && echo other > %s/r/.trainyard-node && echo old > %s/r/stale" % (STORAGE, STORAGE, STORAGE))
        home, away = self.both(program=("sh", "-c", "ls -A $TRAINYARD_RUN_PATH"))
        self.assert_status(0, home)
        self.assertNotIn("stale", home.out)
        self.assertEqual("", self.shell("h2", "ls -A %s" % STORAGE))


if __name__ == "__main__":
    harness.main()
