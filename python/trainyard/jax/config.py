"""JaxConfig: which devices the workers' JAX world is made of."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from ..trainer import BackendConfig

_SHARE = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_PREALLOCATED = 0.75  # of a GPU's memory, which JAX takes at once unless told otherwise


@dataclasses.dataclass
class JaxConfig(BackendConfig):
    """Which devices the workers' JAX world is made of: TPU chips, GPUs, or CPUs with neither.

    JAX_PLATFORMS, where it is set, wins. Where it leaves out the devices that are asked for, each worker's JAX is by
    itself.
    """

    use_tpu: bool = False
    use_gpu: bool = False

    framework = "jax"

    @property
    def preload(self) -> tuple[str, ...]:  # type: ignore[override]
        """Importing JAX starts no thread and opens no device; on a TPU host it may look for chips."""
        return () if self.use_tpu else ("jax",)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def prepare(self, scaling_config: Any) -> None:
        """ValueError for a field that cannot work."""
        for name in ("use_tpu", "use_gpu"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"`JaxConfig.{name}` must be True or False, not {getattr(self, name)!r}")
        if self.use_tpu and self.use_gpu:
            raise ValueError("Cannot specify both `use_tpu=True` and `use_gpu=True` in `JaxConfig`")

    def environment(self, scaling_config: Any) -> dict[str, str]:
        gpus = scaling_config.num_gpus_per_worker
        if 0 < gpus < 1 and _SHARE not in os.environ:
            return {_SHARE: f"{_PREALLOCATED * gpus:.3g}"}
        return {}

    def on_start(self, session: Any) -> None:
        from . import world

        world.start(self, session)

    def on_shutdown(self, session: Any) -> None:
        from . import world

        world.stop(session)
