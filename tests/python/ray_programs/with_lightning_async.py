# Lightning's trainer whose checkpoints are copied behind the training, and validated beside it.
import os

import lightning.pytorch as pl
import ray.train.lightning
import torch
from ray.train import CheckpointUploadMode, RunConfig, ScalingConfig, ValidationConfig
from ray.train.torch import TorchTrainer

NAME = ray.train.lightning.RayTrainReportCallback.CHECKPOINT_NAME


class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def validate(checkpoint):
    with checkpoint.as_directory() as folder:
        return {"size": os.path.getsize(os.path.join(folder, NAME))}


def learn():
    callback = ray.train.lightning.RayTrainReportCallback(CheckpointUploadMode.ASYNC, validation=True)
    assert ray.train.lightning.RayTrainReportCallback().checkpoint_upload_mode is CheckpointUploadMode.SYNC
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices="auto",
        strategy=ray.train.lightning.RayDDPStrategy(),
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        callbacks=[callback],
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    data = torch.utils.data.TensorDataset(torch.ones(8, 4))
    trainer = ray.train.lightning.prepare_trainer(trainer)
    trainer.fit(Line(), train_dataloaders=torch.utils.data.DataLoader(data, batch_size=4))
    return callback.tmpdir_prefix


result = TorchTrainer(
    learn,
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(name="lightning-async"),
    validation_config=ValidationConfig(fn=validate),
).fit()
assert len(result.best_checkpoints) == 2
for checkpoint, metrics in result.best_checkpoints:
    with checkpoint.as_directory() as folder:
        assert metrics["size"] == os.path.getsize(os.path.join(folder, NAME)), metrics
assert not os.path.exists(result.return_value) or not os.listdir(result.return_value)
print("ok")
