"""Names of the first Ray Train that the second took away: they say what to write instead. In programs of the first they work, in
full precision."""

from __future__ import annotations

from typing import Any

from .. import defaults


def accelerate(amp: bool = False) -> None:
    defaults.deprecated(
        "`accelerate` is deprecated: use torch.amp.autocast and torch.amp.GradScaler in the training function"
    )


def prepare_optimizer(optimizer: Any) -> Any:
    defaults.deprecated("`prepare_optimizer` is deprecated: use the optimizer as it is")
    return optimizer


def backward(tensor: Any) -> None:
    defaults.deprecated(
        "`backward` is deprecated: call `loss.backward()`, with torch.amp.GradScaler for mixed precision"
    )
    tensor.backward()
