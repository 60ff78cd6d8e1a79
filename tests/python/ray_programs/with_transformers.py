# The trainer of Transformers on two workers; a report whenever it saves. Then on batches of a data set.
import os

import ray.data
import ray.train.huggingface.transformers
import torch
import transformers
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def learn(shards):
    config = transformers.BertConfig(
        vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, num_labels=2
    )
    model = transformers.BertForSequenceClassification(config)
    data = [{"input_ids": torch.tensor([i % 16, 1, 2]), "labels": torch.tensor(i % 2)} for i in range(16)]
    arguments = transformers.TrainingArguments(
        output_dir="out" if shards else f"out-{ray.train.get_context().get_world_rank()}",
        max_steps=4,
        save_steps=2,
        logging_steps=1,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to=[],
    )
    if shards:
        data = ray.train.get_dataset_shard("train").iter_torch_batches(batch_size=2)
        arguments.eval_strategy = "steps"
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data)
    trainer.add_callback(ray.train.huggingface.transformers.RayTrainReportCallback())
    trainer = ray.train.huggingface.transformers.prepare_trainer(trainer)
    assert arguments.world_size == 2
    trainer.train()


rows = [{"input_ids": [i, 1, 2], "labels": i % 2} for i in range(16)]
for datasets in (None, {"train": ray.data.from_items(rows)}):
    trainer = TorchTrainer(learn, train_loop_config=bool(datasets), scaling_config=ScalingConfig(num_workers=2), datasets=datasets)
    result = trainer.fit()
    assert "loss" in result.metrics and ("eval_loss" in result.metrics) == bool(datasets), result.metrics
    with result.checkpoint.as_directory() as folder:
        files = os.listdir(os.path.join(folder, "checkpoint"))
    assert {"config.json", "rng_state_0.pth", "rng_state_1.pth"} <= set(files), files
print("ok")
