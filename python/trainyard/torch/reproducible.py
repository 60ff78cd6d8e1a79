"""Runs that give the same numbers each time."""

from __future__ import annotations


def enable_reproducibility(seed: int = 0) -> None:
    """Seeds torch, random and numpy, and lets torch choose deterministic algorithms only; slower.

    An operation that has no such algorithm then raises RuntimeError. Call it first thing in the training function.
    """
    import os
    import random

    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(seed % 2**32)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # What cuBLAS needs to be deterministic with several streams; it reads this when its first handle is made.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
