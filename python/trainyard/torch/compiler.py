"""Imported by a fork template for training functions that will need torch's compiler; see hints.py."""

import contextlib

with contextlib.suppress(ImportError):
    import torch._dynamo  # noqa: F401
