"""PyTorch on many workers: the trainer, and what its training functions use.

Torch itself is imported where a training function runs, not in the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "config": ("TorchConfig",),
    "devices": ("get_device", "get_devices"),
    "loader": ("prepare_data_loader",),
    "model": ("prepare_model",),
    "removed": ("accelerate", "backward", "prepare_optimizer"),
    "reproducible": ("enable_reproducibility",),
    "trainer": ("TorchTrainer",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)

if TYPE_CHECKING:
    from .config import TorchConfig as TorchConfig
    from .devices import get_device as get_device
    from .devices import get_devices as get_devices
    from .loader import prepare_data_loader as prepare_data_loader
    from .model import prepare_model as prepare_model
    from .removed import accelerate as accelerate
    from .removed import backward as backward
    from .removed import prepare_optimizer as prepare_optimizer
    from .reproducible import enable_reproducibility as enable_reproducibility
    from .trainer import TorchTrainer as TorchTrainer


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME_OF:
        raise import_module("..missing", __name__).MissingName(__name__, name, __all__)
    value = getattr(import_module("." + _HOME_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
