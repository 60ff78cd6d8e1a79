"""torch's profiler in the workers of a run: a file for each rank, which `trainyard trace --with-profile` lays beside all else."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from . import runtime


class profile:
    """Profiles steps of a training function with torch's profiler, in a `with` in which each step ends with `step()`:

        with trainyard.profile(steps=range(10, 13), ranks=[0, 7]) as profiler:
            for batch in batches:
                train(batch)
                profiler.step()

    steps: a range of them, the first is 0; a number, which is so many behind the first; None, all that happens in the block, for
    which no `step()` is needed. ranks: which are profiled, None: all; in the others nothing happens. Other options are those of
    `torch.profiler.profile`, such as `record_shapes=True`, but `on_trace_ready`; a `schedule` is for None.

    Each rank writes `logs/profile/rank-N.pt.trace.json.gz` of the run when the steps are over; a later profile of it takes its
    place. What cannot be written is told as a RuntimeWarning, and the training goes on. With num_workers=0 nothing is written.

    ValueError for steps and ranks that there cannot be; RuntimeError outside of a training function; ImportError without torch.
    """

    def __init__(
        self, steps: int | range | None = None, ranks: int | Iterable[int] | None = None, **options: Any
    ):
        self._session = runtime.session("profile")
        self._steps = _range(steps)
        for name in {"on_trace_ready", "schedule"} & options.keys():
            if name != "schedule" or steps is not None:
                raise ValueError(f"`trainyard.profile({name}=...)`: it writes each rank's file itself, of what `steps` says")
        self._options = options
        self._chosen = ranks is None or self._session.world_rank in _ranks(ranks)
        self._made = 0
        self._written = False
        self._profiler: Any = None

    def __enter__(self) -> profile:
        if not self._chosen:
            return self
        try:
            import torch.profiler
        except ImportError:
            raise ImportError("`trainyard.profile` needs torch (pip install torch)") from None
        if self._steps is not None:
            warmup = min(1, self._steps.start)
            wait = self._steps.start - warmup
            self._options["schedule"] = torch.profiler.schedule(
                wait=wait, warmup=warmup, active=len(self._steps), repeat=1
            )
        self._profiler = torch.profiler.profile(on_trace_ready=self._write, **self._options)
        self._profiler.__enter__()
        return self

    def step(self) -> None:
        """Ends a step."""
        self._made += 1
        if self._profiler is not None:
            self._profiler.step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        profiler.__exit__(kind, error, trace)
        if not self._written and kind is None and self._steps is not None:
            warnings.warn(
                f"`trainyard.profile`: step {self._steps.start} was not reached, `step()` was called {self._made} times: "
                "nothing is written",
                RuntimeWarning,
                stacklevel=2,
            )

    def _write(self, profiler: Any) -> None:
        self._written = True
        if self._session.run_path is None:
            return
        directory = os.path.join(self._session.run_path, "logs", "profile")
        path = os.path.join(directory, f"rank-{self._session.world_rank}.pt.trace.json.gz")
        # A rank is one process at a time: what a killed one has left of it is written over.
        part = os.path.join(directory, f".rank-{self._session.world_rank}.part.json.gz")
        try:
            os.makedirs(directory, exist_ok=True)
            profiler.export_chrome_trace(part)
            os.replace(part, path)
        except Exception as failure:
            with contextlib.suppress(OSError):
                os.unlink(part)
            warnings.warn(
                f"`trainyard.profile`: cannot write {path}: {failure}; the training goes on",
                RuntimeWarning,
                stacklevel=2,
            )


def _range(steps: int | range | None) -> range | None:
    behind_first = isinstance(steps, int) and not isinstance(steps, bool)
    found = range(1, 1 + steps) if behind_first else steps  # type: ignore[operator]
    if found is None or (isinstance(found, range) and len(found) > 0 and found.step == 1 and found.start >= 0):
        return found
    raise ValueError(
        f"`steps` must be a number from 1 on, a range such as range(10, 13), or None, not {steps!r}"
    )


def _ranks(ranks: int | Iterable[int]) -> set[int]:
    try:
        chosen = {ranks} if isinstance(ranks, int) else set(ranks)
    except TypeError:
        chosen = {-1}
    if all(isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 for rank in chosen):
        return chosen
    raise ValueError(f"`ranks` must be a rank from 0 on, several of them, or None, not {ranks!r}")
