"""A classifier of handwritten digits, trained on several workers with PyTorch.

    python digits.py [DATA [WORKERS]]

Every worker holds the same network and reads its own share of each batch; DistributedDataParallel averages the gradients.
Of the 1,797 images 360 are held out for the test. A failed run goes on from its last checkpoint.
"""

import os
import sys
import tempfile

import trainyard
from trainyard import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from trainyard.torch import TorchTrainer, get_device, prepare_data_loader, prepare_model

TRAIN, BATCH, EPOCHS = 1437, 32, 15


def load(path):
    """(images, labels), shuffled, always the same way: the writers are in order in the file."""
    import numpy
    import torch

    rows = torch.tensor(numpy.loadtxt(path, delimiter=",", dtype="float32"))
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1998))]
    return rows[:, :64] / 16, rows[:, 64].long()


def train(config):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)  # the same network everywhere
    images, labels = load(config["data"])
    workers = trainyard.get_context().get_world_size()
    share = TensorDataset(images[:TRAIN], labels[:TRAIN])
    loader = prepare_data_loader(DataLoader(share, batch_size=BATCH // workers, shuffle=True))
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = resume(model, optimizer)
    model = prepare_model(model)
    for epoch in range(first, EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            guessed = model(images[TRAIN:].to(get_device())).argmax(1).cpu()
        accuracy = (guessed == labels[TRAIN:]).float().mean().item()
        report(epoch, {"epoch": epoch, "loss": loss.item(), "accuracy": accuracy}, model, optimizer)


def resume(model, optimizer):
    """The epoch to go on with."""
    import torch

    checkpoint = trainyard.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as directory:
        state = torch.load(os.path.join(directory, "state.pt"))
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1


def report(epoch, metrics, model, optimizer):
    """Rank 0 hands the state over; the others report without."""
    import torch

    if trainyard.get_context().get_world_rank() > 0:
        trainyard.report(metrics)
        return
    with tempfile.TemporaryDirectory() as directory:
        network = getattr(model, "module", model)
        state = {"epoch": epoch, "model": network.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, os.path.join(directory, "state.pt"))
        trainyard.report(metrics, Checkpoint.from_directory(directory))


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    data = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(here, "data", "digits.csv")
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    result = TorchTrainer(
        train,
        train_loop_config={"data": data},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            failure_config=FailureConfig(max_failures=2),
            checkpoint_config=trainyard.CheckpointConfig(num_to_keep=2),
        ),
    ).fit()
    print(f"accuracy {100 * result.metrics['accuracy']:.1f}% after {EPOCHS} epochs; {result.checkpoint.path}")
