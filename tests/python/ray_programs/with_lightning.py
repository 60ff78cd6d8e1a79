# Lightning's trainer on two workers; a checkpoint after each epoch.
import os

import lightning.pytorch as pl
import ray.train.lightning
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.layer(inputs), targets)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def learn():
    torch.manual_seed(0)
    inputs = torch.randn(32, 4)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices="auto",
        strategy=ray.train.lightning.RayDDPStrategy(),
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        callbacks=[ray.train.lightning.RayTrainReportCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    trainer = ray.train.lightning.prepare_trainer(trainer)
    assert trainer.world_size == 2 and trainer.global_rank == ray.train.get_context().get_world_rank()
    trainer.fit(Line(), train_dataloaders=torch.utils.data.DataLoader(data, batch_size=8))
    assert trainer.global_step == 4  # of 4 batches an epoch each worker has 2


result = TorchTrainer(learn, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(name="lightning")).fit()
assert result.metrics["epoch"] == 1 and result.metrics["step"] == 4 and result.metrics["loss"] >= 0
with result.checkpoint.as_directory() as folder:
    assert os.path.exists(os.path.join(folder, ray.train.lightning.RayTrainReportCallback.CHECKPOINT_NAME))
os.environ["RAY_TRAIN_V2_ENABLED"] = "0"
for given in ({"validation": True}, {"checkpoint_upload_mode": ray.train.CheckpointUploadMode.ASYNC}):
    try:
        ray.train.lightning.RayTrainReportCallback(**given)
    except ValueError as error:
        assert str(error).startswith(f"`{next(iter(given))}` is only supported in Ray Train v2")
print("ok")
