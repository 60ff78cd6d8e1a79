"""Trainings on several hosts, by ssh, by the same command on each, and in Slurm: torch's DistributedDataParallel over Gloo, JAX, a run
that is killed and resumed, and forty hosts, which ssh reaches by a tree. Part of `make soak`: torch is loaded on each host, and forty sshd
take a while.
"""

import os
import secrets
import signal

import harness
from hosts import SCRIPTS, Hosts, Slurm

PYTHON = os.path.join(SCRIPTS, "python")
DDP = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
rank = dist.get_rank()
for _ in range(5):
    optimizer.zero_grad()
    ((model(torch.full((8, 4), float(rank + 1))) - 1) ** 2).mean().backward()
    optimizer.step()
weights = [torch.zeros(4) for _ in range(dist.get_world_size())]
dist.all_gather(weights, model.module.weight.data[0])
assert all(torch.equal(weights[0], other) for other in weights)
print(os.uname().nodename, "agrees", flush=True)
dist.destroy_process_group()
"""
JAX = """
import os, jax
from jax.experimental import multihost_utils
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"], int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
seen = multihost_utils.process_allgather(jax.numpy.array([jax.process_index() + 1]))
assert jax.process_count() == 4 and seen.sum() == 10, seen
print(os.uname().nodename, "agrees", flush=True)
"""
STEPS = """
step=0
[ -z "$TRAINYARD_CHECKPOINT" ] || step=$(cat "$TRAINYARD_CHECKPOINT/step")
echo from $step
while [ $step -lt 6 ]; do
    step=$((step + 1)); mkdir -p "$TMP.$RANK"; echo $step >"$TMP.$RANK/step"
    if [ $RANK = 0 ]; then %(trainyard)s report step=$step --checkpoint "$TMP.$RANK"; else %(trainyard)s report step=$step; fi || exit 1
    [ -n "$TRAINYARD_CHECKPOINT" ] || [ $step != 3 ] || { : >"$TMP.ready.$RANK"; exec sleep 1000; }
done
"""


class Training(harness.Case):
    def ddp(self):
        return (PYTHON, self.write("ddp.py", DDP))

    def assert_agreed(self, finished, *hosts):
        self.assert_status(0, finished)
        said = sorted(line.split("] ")[1] for line in finished.out.splitlines() if line.endswith(" agrees"))
        self.assertEqual(["%s agrees" % host for host in hosts], said, repr(finished))

    def test_torch_by_ssh(self):
        hosts = Hosts(self, 2, sshd=True)
        done = hosts.trainyard("h1", "run", "--storage-path", self.storage, "--hosts", "h1:2,h2:2", "-n", "4", "--framework", "torch", "--",
                               *self.ddp(), timeout=200)
        self.assert_agreed(done, "h1", "h1", "h2", "h2")

    def test_torch_by_the_same_command_on_each(self):
        hosts = Hosts(self, 2)
        env = {"TRAINYARD_RUN_KEY": secrets.token_hex(32)}
        nodes = [hosts.start_trainyard(host, "run", "--storage-path", self.storage, "--nnodes", "2", "--node-rank", rank, "--rendezvous",
                                       "h1:7000", "-n", "2", "--placement", "SPREAD", "--framework", "torch", "--", *self.ddp(), env=env)
                 for rank, host in enumerate(("h1", "h2"))]
        self.assert_agreed(self.finish(nodes[0], timeout=200), "h1", "h2")
        self.assert_status(0, self.finish(nodes[1]))

    def test_torch_and_jax_in_slurm(self):
        slurm = Slurm(self)
        for framework, program in (("torch", self.ddp()), ("jax", (PYTHON, self.write("four.py", JAX)))):
            with self.subTest(framework):
                done = slurm.run("head", "salloc", "--quiet", "-N2", "--ntasks-per-node=2", harness.COMMAND, "run", "--storage-path", self.storage, "-n", "4",
                                 "--placement", "SPREAD", "--framework", framework, "--", *program, timeout=200)
                self.assert_agreed(done, "h1", "h1", "h2", "h2")

    def test_a_run_that_is_killed_goes_on_at_its_checkpoint(self):
        hosts = Hosts(self, 3, sshd=True)
        script = self.write("steps", STEPS % {"trainyard": harness.COMMAND})
        words = ("run", "--storage-path", self.storage, "-n", "2", "--placement", "SPREAD", "--env", "TMP=" + os.path.join(self.place, "at"))
        run = hosts.start_trainyard("h1", *words, "--name", "digits", "--hosts", "h1,h2", "--", "sh", script)
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.place, "at.ready.%d" % rank)) for rank in (0, 1)), "three steps", run)
        os.kill(hosts.pid_of(run), signal.SIGKILL)
        self.finish(run)
        done = hosts.trainyard("h1", *words, "--resume", "digits", "--hosts", "h3,h2", "--", "sh", script)
        self.assert_status(0, done)
        self.assertEqual(["[rank 0] from 3", "[rank 1] from 3"], sorted(done.out.splitlines()), repr(done))

    def test_forty_hosts_by_a_tree(self):
        hosts = Hosts(self, 40, sshd=True)
        words = ("run", "--storage-path", self.storage, "-n", "40", "--placement", "STRICT_SPREAD", "--hosts")
        done = hosts.trainyard("h1", *words, "h[1-40]", "--", "hostname", timeout=200)
        self.assert_status(0, done)
        self.assertEqual(sorted("h%d" % k for k in range(1, 41)), sorted(line.split("] ")[1] for line in done.out.splitlines()))
        refused = hosts.trainyard("h1", *words, "h[1-39],nowhere", "--", "hostname", timeout=200)
        self.assert_status(4, refused)
        self.assertIn("nowhere cannot take part: ssh: Could not resolve hostname nowhere", refused.err)
        for k in (1, 2, 39):
            self.wait_for(lambda k=k: "trainyard agent" not in hosts.run("h%d" % k, "ps", "-eo", "args").out, "the end of all agents")


if __name__ == "__main__":
    harness.main()
