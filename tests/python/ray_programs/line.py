# A whole training: data loader, model, checkpoints, metrics, and going on from the last checkpoint under the same name.
import os
import sys
import tempfile

import ray
import ray.train.torch
import torch
from ray import train
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

epochs = int(sys.argv[1])


def learn(config):
    torch.manual_seed(0)
    inputs = torch.randn(64, 4)
    targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=8, shuffle=True)
    loader = ray.train.torch.prepare_data_loader(loader)
    model = ray.train.torch.prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    start, last = 0, train.get_checkpoint()
    if last:
        with last.as_directory() as folder:
            saved = torch.load(os.path.join(folder, "state.pt"))
            model.load_state_dict(saved["model"])
            start = saved["epoch"] + 1
    for epoch in range(start, config["epochs"]):
        if train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            if train.get_context().get_world_rank() == 0:
                torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(folder, "state.pt"))
            metrics = {"loss": loss.item(), "epoch": epoch, "start": start}
            train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


ray.init(ignore_reinit_error=True)
trainer = ray.train.torch.TorchTrainer(
    learn,
    train_loop_config={"lr": 0.05, "epochs": epochs},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(
        name="line", checkpoint_config=CheckpointConfig(num_to_keep=2), failure_config=FailureConfig(max_failures=1)
    ),
)
result = trainer.fit()
assert result.path == os.path.expanduser("~/ray_results/line"), result.path
assert result.metrics["epoch"] == epochs - 1
assert len(result.best_checkpoints) == 2
assert os.path.exists(os.path.join(result.checkpoint.path, "state.pt"))
print("start", result.metrics["start"], "loss", result.metrics["loss"])
ray.shutdown()
print("ok")
