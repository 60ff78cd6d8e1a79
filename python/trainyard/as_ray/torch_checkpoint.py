"""`ray.train.torch.TorchCheckpoint` and `TorchPredictor`: a checkpoint that holds one model of torch's, and what it says to data.

The file is model.pt: a state dict, or the whole model, which only its user's own code may have made, as loading it runs what it
names."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Mapping

import torch

from ..checkpoint import Checkpoint
from .framework_checkpoint import FrameworkCheckpoint

_WRAPPED = "module."  # how the names of a model begin that DistributedDataParallel holds


def _stripped(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(_WRAPPED): value for name, value in state.items()}


class TorchCheckpoint(FrameworkCheckpoint):
    """A checkpoint with a model in it."""

    MODEL_FILENAME = "model.pt"

    @classmethod
    def from_state_dict(cls, state_dict: Mapping[str, Any], *, preprocessor: Any = None) -> TorchCheckpoint:
        """In a new temporary directory, a model's parameters; names are those without DistributedDataParallel."""
        return cls._saved(_stripped(state_dict), preprocessor)

    @classmethod
    def from_model(cls, model: torch.nn.Module, *, preprocessor: Any = None) -> TorchCheckpoint:
        """The same with the whole model, of whose class the reader needs the code."""
        return cls._saved(model, preprocessor)

    @classmethod
    def _saved(cls, what: Any, preprocessor: Any) -> TorchCheckpoint:
        directory = tempfile.mkdtemp(prefix="trainyard-model-")
        torch.save(what, os.path.join(directory, cls.MODEL_FILENAME))
        made = cls.from_directory(directory)
        made._with(preprocessor)
        return made

    def get_model(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """The model; where its state dict was saved, `model` with that. ValueError where it is needed and not given."""
        with self.as_directory() as directory:
            path = os.path.join(directory, self.MODEL_FILENAME)
            saved = torch.load(path, map_location="cpu", weights_only=False)
        if isinstance(saved, torch.nn.Module):
            return saved
        if model is None:
            raise ValueError(f"{self} holds a state dict: give the `model` that it belongs to")
        model.load_state_dict(_stripped(saved))
        return model


class TorchPredictor:
    """A model, asked with arrays, of which a preprocessor makes first what it takes."""

    def __init__(self, model: torch.nn.Module, preprocessor: Any = None, use_gpu: bool = False):
        self._preprocessor = preprocessor
        self.device = torch.device("cuda" if use_gpu else "cpu")
        self.use_gpu = use_gpu
        self.model = model.to(self.device).eval()

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, model: torch.nn.Module | None = None, use_gpu: bool = False
    ) -> TorchPredictor:
        saved = TorchCheckpoint(checkpoint.path, checkpoint._filesystem)
        return cls(saved.get_model(model), saved.get_preprocessor(), use_gpu)

    def get_preprocessor(self) -> Any:
        return self._preprocessor

    def set_preprocessor(self, preprocessor: Any) -> None:
        self._preprocessor = preprocessor

    def call_model(self, inputs: Any) -> Any:
        """A tensor, or a dict of them, for what the model is given: to be overridden where it wants something else."""
        with torch.no_grad():
            return self.model(inputs)

    def predict(self, data: Any, dtype: Any = None) -> Any:
        """What the model says to an array, to a dict of arrays, or to a data frame of pandas: a dict of arrays, or a data frame. A
        tensor without a name is "predictions", as in Ray. `dtype` is that of the tensors, or a dict of it by name. ValueError for a
        model that gives anything else: `call_model` can be overridden."""
        if self._preprocessor is not None:
            data = self._preprocessor.transform_batch(data)
        names = getattr(data, "columns", None)
        if names is not None:
            import pandas

            columns = {name: _stacked(data[name]) for name in names}
            return pandas.DataFrame({name: list(part) for name, part in self._ask(columns, dtype).items()})
        if isinstance(data, Mapping):
            return self._ask(dict(data), dtype)
        return self._named(self.call_model(self._tensor(data, dtype)))

    def _ask(self, columns: dict[str, Any], dtype: Any) -> dict[str, Any]:
        types = dtype if isinstance(dtype, Mapping) else {name: dtype for name in columns}
        tensors = {name: self._tensor(column, types.get(name)) for name, column in columns.items()}
        return self._named(self.call_model(next(iter(tensors.values())) if len(tensors) == 1 else tensors))

    def _named(self, answer: Any) -> dict[str, Any]:
        named = answer if isinstance(answer, Mapping) else {"predictions": answer}
        for name, part in named.items():
            if not isinstance(part, torch.Tensor):
                raise ValueError(f"the model gives a {type(part).__name__} as {name!r}: it must be a tensor, or a dict of them")
        return {name: part.cpu().numpy() for name, part in named.items()}

    def _tensor(self, data: Any, dtype: Any) -> torch.Tensor:
        return torch.as_tensor(data, dtype=dtype, device=self.device)

    def __repr__(self) -> str:
        return f"TorchPredictor(model={self.model!r}, use_gpu={self.use_gpu})"


def _stacked(column: Any) -> Any:
    import numpy

    values = column.to_numpy()
    return numpy.stack(list(values)) if values.dtype == object else values
