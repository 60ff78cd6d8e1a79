"""Trainings on several hosts, by ssh, by the same command on each, and in Slurm: torch's DistributedDataParallel over Gloo, JAX, a
TorchTrainer of Ray's, a run that is killed and resumed, and forty hosts, which ssh reaches by a tree. Part of `make soak`: torch is loaded on each host, and forty sshd
take a while.
"""

import os
import secrets
import signal

import harness
from hosts import SCRIPTS, Hosts, Slurm

PYTHON = os.path.join(SCRIPTS, "python")
AS_RAY = (PYTHON, "-m", "trainyard.as_ray")
PACKAGE = {"PYTHONPATH": os.path.join(harness.BUILD, "python")}
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
ranks = jax.numpy.full(jax.local_device_count(), jax.process_index() + 1)
assert jax.pmap(lambda rank: jax.lax.psum(rank, "all"), "all")(ranks)[0] == 10 * jax.local_device_count()
print(os.uname().nodename, "agrees", flush=True)
"""
RAY = """
import os, sys, torch, torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

def train():
    torch.manual_seed(dist.get_rank())
    model = prepare_model(torch.nn.Linear(4, 1))
    model(torch.ones(8, 4)).mean().backward()
    weights = [torch.zeros(4) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, model.module.weight.data[0])
    assert len(weights) == 4 and all(torch.equal(weights[0], other) for other in weights)
    print(os.uname().nodename, "agrees", flush=True)

TorchTrainer(train, scaling_config=ScalingConfig(num_workers=4, placement_strategy="SPREAD"), run_config=RunConfig(storage_path=sys.argv[1])).fit()
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
    def agree(self, run, fit):
        """Four workers of each program, two on each of two hosts. `run` gives the end of `trainyard run` with these words there, `fit` that of
        a program that drives a run itself."""
        for framework, text in (("torch", DDP), ("jax", JAX)):
            with self.subTest(framework):
                self.assert_agreed(run("run", "--storage-path", self.storage, "-n", "4", "--placement", "SPREAD", "--framework", framework, "--",
                                       PYTHON, self.write("on_%s.py" % framework, text)))
        with self.subTest("a TorchTrainer"):
            self.assert_agreed(fit(self.write("trainer.py", RAY), self.storage))

    def learn(self, start):
        """The digits in C, as the program is: 12 workers of a quarter of a CPU do not fit on the CPUs of one node."""
        finished = start(os.path.join(harness.BUILD, "examples", "digits"), os.path.join(harness.BUILD, "examples", "data", "digits.csv"), "12")
        self.assert_status(0, finished)
        self.assertRegex(finished.out, r"12 workers, 30 epochs: loss .* test accuracy 9[5-9]\.")
        run = self.trainyard("status", "--storage-path", self.storage, "--format", "json").json["runs"][0]["name"]
        shown = self.trainyard("status", run, "--storage-path", self.storage, "--format", "json").json
        self.assertEqual(("succeeded", 2), (shown["state"], shown["nodes"]), shown)

    def assert_agreed(self, finished):
        self.assert_status(0, finished)
        said = sorted(line.split("] ")[1] for line in finished.out.splitlines() if line.endswith(" agrees"))
        self.assertEqual(["h1 agrees", "h1 agrees", "h2 agrees", "h2 agrees"], said, repr(finished))

    def test_by_ssh(self):
        hosts, where = Hosts(self, 2, sshd=True), ("--hosts", "h1:2,h2:2")
        self.agree(lambda verb, *words: hosts.trainyard("h1", verb, *where, *words, timeout=200),
                   lambda *words: hosts.run("h1", *AS_RAY, *where, *words, env=PACKAGE, timeout=200))
        with self.subTest("the digits in C"):
            self.learn(lambda *words: hosts.run("h1", *words, env={"TRAINYARD_HOSTS": where[1], "TRAINYARD_STORAGE": self.storage}, timeout=200))

    def test_by_the_same_command_on_each(self):
        hosts, key = Hosts(self, 2), secrets.token_hex(32)

        def on_each(*words, **variables):
            nodes = [hosts.start(host, *words, env={**PACKAGE, **variables, "TRAINYARD_RUN_KEY": key, "TRAINYARD_NNODES": "2", "TRAINYARD_NODE_RANK": str(rank),
                                                    "TRAINYARD_RENDEZVOUS": "h1:7000"}) for rank, host in enumerate(("h1", "h2"))]
            home, away = (self.finish(node, timeout=200) for node in nodes)
            self.assert_status(0, away)
            return home
        self.agree(lambda verb, *words: on_each(harness.COMMAND, verb, "--num-cpus", "2", *words), lambda *words: on_each(*AS_RAY, "--num-cpus", "2", *words))
        with self.subTest("the digits in C"):
            two_cpus = ("taskset", "-c", ",".join(map(str, sorted(os.sched_getaffinity(0))[:2])))
            self.learn(lambda *words: on_each(*two_cpus, *words, TRAINYARD_STORAGE=self.storage))

    def test_in_slurm(self):
        slurm, allocated = Slurm(self), ("salloc", "--quiet", "-N2", "--ntasks-per-node=2")
        self.agree(lambda *words: slurm.run("head", *allocated, harness.COMMAND, *words, timeout=200),
                   lambda *words: slurm.run("head", *allocated, *AS_RAY, *words, env=PACKAGE, timeout=200))
        with self.subTest("the digits in C"):
            self.learn(lambda *words: slurm.run("head", *allocated, *words, env={"TRAINYARD_STORAGE": self.storage}, timeout=200))

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
