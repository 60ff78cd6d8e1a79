"""Names of the first Ray Train that the second took away: they say what to write instead."""

from __future__ import annotations

from typing import Any, NoReturn


def accelerate(amp: bool = False) -> NoReturn:
    raise DeprecationWarning(
        "`accelerate` is deprecated: use torch.amp.autocast and torch.amp.GradScaler in the training function"
    )


def prepare_optimizer(optimizer: Any) -> NoReturn:
    raise DeprecationWarning("`prepare_optimizer` is deprecated: use the optimizer as it is")


def backward(tensor: Any) -> NoReturn:
    raise DeprecationWarning(
        "`backward` is deprecated: call `loss.backward()`, with torch.amp.GradScaler for mixed precision"
    )
