"""A checkpoint of one model: beside it, in its metadata, may be the preprocessor that made of data what the model takes."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from ..checkpoint import Checkpoint

if TYPE_CHECKING:
    from ..data.preprocessors import Preprocessor

_KEY = "preprocessor_pkl"  # Ray's, so that checkpoints of either can be read by the other


class FrameworkCheckpoint(Checkpoint):
    def get_preprocessor(self) -> Preprocessor | None:
        """The preprocessor; None where there is none. It is unpickled, which runs what whoever wrote the checkpoint put there."""
        written = self.get_metadata().get(_KEY)
        if written is None:
            return None
        kept: Preprocessor = pickle.loads(bytes.fromhex(written))
        return kept

    def set_preprocessor(self, preprocessor: Preprocessor) -> None:
        import cloudpickle

        from ..data.preprocessors import Preprocessor

        if not isinstance(preprocessor, Preprocessor):
            kind = type(preprocessor).__name__
            raise ValueError(f"`preprocessor` must be a Preprocessor of ray.data.preprocessors, not {kind}")
        self.update_metadata({_KEY: cloudpickle.dumps(preprocessor).hex()})

    def _with(self, preprocessor: Preprocessor | None) -> None:
        if preprocessor is not None:
            self.set_preprocessor(preprocessor)
