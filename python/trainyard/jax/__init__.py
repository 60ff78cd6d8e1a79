"""JAX on many workers. JAX itself is imported where a training function runs, never in the driver."""

from __future__ import annotations

from .config import JaxConfig
from .trainer import JaxTrainer

__all__ = ["JaxConfig", "JaxTrainer"]


def __getattr__(name: str):
    from importlib import import_module

    raise import_module("..missing", __name__).MissingName(__name__, name, __all__)
