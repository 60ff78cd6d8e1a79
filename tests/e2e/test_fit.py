"""`fit()` of Python on hosts that are reached by ssh."""

import os
import shutil

import harness
from hosts import SCRIPTS, Hosts

# Workers of `fit()` on hosts, in which another `fit` is of their host.
FIT = """
import os, sys
import trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig

def inner():
    trainyard.report({"host": os.uname().nodename})

def train(config):
    place = config["place"]
    config = RunConfig(name=f"inner-{trainyard.get_context().get_world_rank()}", storage_path=place, progress="none")
    found = DataParallelTrainer(inner, scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 0}), run_config=config).fit()
    trainyard.report({})
    with open(f"{place}/told", "a") as file:
        print(os.uname().nodename, found.metrics["host"], file=file)

place = os.path.dirname(os.path.abspath(__file__))
trainyard.init(**{sys.argv[1]: sys.argv[2]})
scaling = ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD")
trainer = DataParallelTrainer(train, train_loop_config={"place": place}, scaling_config=scaling,
                              run_config=RunConfig(name="outer-" + sys.argv[1], storage_path=place, progress="none"))
trainer.fit()
"""


class Fit(harness.Case):
    def test_by_their_names_and_from_a_file(self):
        hosts = Hosts(self, 3, sshd=True)
        env = {"PYTHONPATH": os.path.join(harness.BUILD, "python")}
        python = (os.path.join(SCRIPTS, "python"), self.write("fit.py", FIT))
        for words in (("hosts", "h2,h3"), ("hostfile", self.write("hostfile", "h2\nh3\n"))):
            for name in ("inner-0", "inner-1"):
                shutil.rmtree(os.path.join(self.place, name), ignore_errors=True)
            done = self.assert_status(0, hosts.run("h1", *python, *words, env=env))
            with open(os.path.join(self.place, "told")) as file:
                self.assertEqual(["h2 h2", "h3 h3"], sorted(file.read().splitlines()), repr(done))
            os.unlink(os.path.join(self.place, "told"))
        shutil.rmtree(os.path.join(self.place, "outer-hosts"))  # a name that is taken is refused first
        refused = hosts.run("h1", *python, "hosts", "nowhere", env=env)
        self.assertEqual(1, refused.status)
        self.assertIn("Could not resolve hostname nowhere", refused.err)


if __name__ == "__main__":
    harness.main()
