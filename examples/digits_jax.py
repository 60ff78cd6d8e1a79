"""A classifier of handwritten digits, trained on several workers with JAX: on TPU chips, GPUs or, with neither, CPUs.

    python digits_jax.py [DATA [WORKERS]]

The workers are processes of one JAX world. A batch is one array over all of their devices, the network is on each; JAX adds
the gradients up across the workers.
"""

import os
import sys

import trainyard
from trainyard import ScalingConfig
from trainyard.jax import JaxTrainer

TRAIN, BATCH, EPOCHS = 1437, 32, 15


def load(path):
    """(images, labels), shuffled, always the same way: the writers are in order in the file."""
    import numpy

    rows = numpy.loadtxt(path, delimiter=",", dtype="float32")
    rows = rows[numpy.random.default_rng(1998).permutation(len(rows))]
    return rows[:, :64] / 16, rows[:, 64].astype("int32")


def scores(network, images):
    import jax

    return jax.nn.relu(images @ network["w1"] + network["b1"]) @ network["w2"] + network["b2"]


def step(network, velocity, images, labels):
    """One step down the gradient of the whole batch: (network, velocity, loss)."""
    import jax
    import jax.numpy as jnp

    def cross_entropy(network):
        likelihoods = jax.nn.log_softmax(scores(network, images))
        return -jnp.take_along_axis(likelihoods, labels[:, None], axis=1).mean()

    loss, gradient = jax.value_and_grad(cross_entropy)(network)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradient)
    return jax.tree.map(lambda p, v: p - 0.1 * v, network, velocity), velocity, loss


def train(config):
    import jax
    import numpy
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    images, labels = load(config["data"])
    mesh = Mesh(numpy.array(jax.devices()), ("batch",))
    everywhere, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("batch"))
    random = numpy.random.default_rng(0)  # the same network everywhere
    network = {
        "w1": random.normal(0, 0.15, (64, 64)).astype("float32"),
        "b1": numpy.zeros(64, "float32"),
        "w2": random.normal(0, 0.15, (64, 10)).astype("float32"),
        "b2": numpy.zeros(10, "float32"),
    }
    network = jax.device_put(network, everywhere)
    velocity = jax.tree.map(lambda p: p * 0, network)
    update = jax.jit(step, donate_argnums=(0, 1))
    mine = slice(jax.process_index(), None, jax.process_count())  # of each batch
    for epoch in range(EPOCHS):
        order = numpy.random.default_rng(epoch).permutation(TRAIN)
        for first in range(0, TRAIN - BATCH + 1, BATCH):
            rows = order[first : first + BATCH][mine]
            x, y = (jax.make_array_from_process_local_data(split, part[rows]) for part in (images, labels))
            network, velocity, loss = update(network, velocity, x, y)
        local = jax.tree.map(lambda p: numpy.asarray(p.addressable_data(0)), network)
        guessed = numpy.asarray(scores(local, images[TRAIN:])).argmax(1)
        accuracy = float((guessed == labels[TRAIN:]).mean())
        trainyard.report({"epoch": epoch, "loss": float(loss), "accuracy": accuracy})


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    data = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(here, "data", "digits.csv")
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    trainer = JaxTrainer(
        train, train_loop_config={"data": data}, scaling_config=ScalingConfig(num_workers=workers)
    )
    result = trainer.fit()
    print(f"accuracy {100 * result.metrics['accuracy']:.1f}% after {EPOCHS} epochs")
