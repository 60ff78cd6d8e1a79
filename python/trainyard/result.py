"""What a run came to, from the driver or read back from its directory."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

from . import defaults, filesystem, plot, rows
from . import metrics as _metrics
from .checkpoint import Checkpoint
from .config import CheckpointConfig
from .history import Attempt
from .manifest import damage, vacancy
from .paths import JOURNAL
from .screen import harmless
from .there import absent, noted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .plot import Plot
    from .remote import Remote


@dataclasses.dataclass
class Result:
    """The result of a run.

    metrics: the last report of rank 0, or None. checkpoint: the last committed one, or None. error: why the run failed,
    or None. path: the run's directory; None with num_workers=0. best_checkpoints: the kept ones with rank 0's metrics,
    in the order of CheckpointConfig, the best (or latest) last, without damaged ones, and without a latest one that is kept only to
    go on from. return_value: what the function returned in rank 0 (from `fit` only). history: the attempts of the run,
    oldest first, each with how long it took, how it ended and why. metrics_dataframe: a row for each of best_checkpoints, its
    metrics as columns; None when there is none. Needs pandas.
    """

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    error: Exception | None
    path: str | None
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] | None = None
    return_value: Any = None
    history: list[Attempt] = dataclasses.field(default_factory=list)
    _filesystem: Any = dataclasses.field(default=None, repr=False)  # None: this machine's
    metrics_dataframe: Any = dataclasses.field(default=None, compare=False, kw_only=True)  # see _Dataframe

    @property
    def filesystem(self) -> Any:
        """Where `path` lies, as pyarrow names it; None where pyarrow is not installed."""
        return filesystem.local() if self._filesystem is None else self._filesystem

    def plot(
        self, metrics: str | Sequence[str] | None = None, *, x: str = "step", history: str = "effective"
    ) -> Plot:
        """The curves of what was reported, over all ranks: those of `metrics`, else loss-like ones first. A notebook shows them;
        `.save("curves.svg")` writes them, `.figure` is one of matplotlib, where that is installed.

        x: step, epoch, number, time, relative or metric:NAME. history: "effective" is what counts, "all" also what later attempts
        took back. RuntimeError where there is no run's directory to read.
        """
        with self._directory("there is nothing to plot") as path:
            return plot.read(path, metrics, x, history)

    def reports(self, rank: int | None = 0, history: str = "effective") -> Any:
        """All that `rank` reported, None: all ranks, as a DataFrame: id, time (ns since the epoch), attempt, rank, number, then the
        metrics, "a/b" for b in the dict a; one that is called like these ends in "_2". Needs pandas.

        history: "effective" is what counts, "all" also what later attempts took back, with a column `lost`. RuntimeError where
        there is no run's directory to read.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("`Result.reports` needs pandas (pip install pandas)") from None
        with self._directory("nothing was kept") as path:
            storage, name = os.path.split(path)
            read = [(row, rows.flat(row["metrics"])) for row in rows.read(name, storage, rank, history)]
        head = rows.head(history)
        names = rows.column_names(dict.fromkeys(metric for _, flat in read for metric in flat), head)
        made = [
            {**{one: row[one] for one in head}, **{names[metric]: value for metric, value in flat.items()}}
            for row, flat in read
        ]
        return pandas.DataFrame(made, columns=[*head, *names.values()])

    @contextlib.contextmanager
    def _directory(self, nothing: str) -> Iterator[str]:
        """Where the run's directory is, or a copy of what one on another file system tells of it."""
        if self.path is None:
            raise RuntimeError(f"{nothing}: with num_workers=0 no reports are kept")
        if self._filesystem is None:
            yield os.path.abspath(self.path)
            return
        from .remote import fetch_result

        with tempfile.TemporaryDirectory(prefix="trainyard-result-") as place:
            fetch_result(self.path, self._filesystem, place)
            yield place

    @property
    def config(self) -> NoReturn:
        raise DeprecationWarning("`Result.config` is deprecated: the config is what you gave to the trainer")

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint:
        """The kept checkpoint whose `metric` is highest ("max") or lowest ("min"), of equal ones the first; "a/b" is also b in the
        dict a, "a/0" the first of the list a.

        RuntimeError when no checkpoint is kept, or no report of one has the metric.
        """
        if not isinstance(metric, str):
            raise ValueError(f"`metric` must be a name, not {metric!r}")
        if mode not in ("max", "min"):
            raise ValueError(f'`mode` must be "max" or "min", not {mode!r}')
        if not self.best_checkpoints:
            raise RuntimeError(f"No checkpoint exists in {self.path}")
        found = [
            (_metrics.find(metrics, metric, in_lists=True), checkpoint) for checkpoint, metrics in self.best_checkpoints
        ]
        found = [row for row in found if row[0] is not None]
        if not found:
            known = sorted({name for _, metrics in self.best_checkpoints for name in metrics})
            raise RuntimeError(
                f"Invalid metric name {metric!r}: the reports have {', '.join(known) or 'no metrics'}"
            )
        numbers = [row for row in found if row[0] == row[0]]  # NaN is neither best nor worst
        best = max if mode == "max" else min
        return best(numbers or found, key=lambda row: row[0])[1]

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """The result of the run in this directory. The error is not kept there: it is None. Its checkpoints are ranked as
        the CheckpointConfig said with which the run was last begun or resumed.

        A checkpoint that lacks a file, or has one of another size, is left out, with a RuntimeWarning that names it.
        RuntimeError when there is no such directory, or no run's journal in it; ValueError for another file system.
        """
        inside, there = filesystem.find(path, storage_filesystem, "`Result.from_path(path)`")
        if there is not None:
            return _read_remote(inside.rstrip("/"), there)
        text = os.path.abspath(os.path.expanduser(inside))
        if not os.path.isdir(text):
            raise RuntimeError(f"Experiment folder {text} doesn't exist.")
        if not os.path.exists(os.path.join(text, JOURNAL)):
            raise RuntimeError(_no_run(text))
        return read(text)

    def __repr__(self) -> str:
        shown = ("metrics", "checkpoint", "error", "path", "filesystem", "best_checkpoints", "return_value")
        return f"Result({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


class _Dataframe:
    """`Result.metrics_dataframe`: what the result was made with, else one row for each kept checkpoint, its metrics as
    columns, None when there is none. It is made when it is asked for, and needs pandas then."""

    def __set__(self, result: Result, given: Any) -> None:
        vars(result)["metrics_dataframe"] = given

    def __get__(self, result: Result | None, _: type) -> Any:
        if result is None:
            return self
        given = vars(result)["metrics_dataframe"]
        if given is not None or not result.best_checkpoints:
            return given
        try:
            import pandas
        except ImportError:
            raise ImportError(
                "`Result.metrics_dataframe` needs pandas (pip install pandas); `Result.best_checkpoints` holds the same rows"
            ) from None
        return pandas.DataFrame([metrics for _, metrics in result.best_checkpoints])


Result.metrics_dataframe = _Dataframe()


def told(summary: dict[str, Any], checkpoint_config: Any, remote: Remote | None = None) -> Result:
    """The result that a run's controller, or its journal, tells (ty_result_json); of a run that is kept on another file system,
    as it is there."""
    history = [Attempt.told(one) for one in summary["history"]]
    run = summary["path"]
    kept = []
    for one in summary["checkpoints"]:
        name, metrics, found = one["name"], one["metrics"], None
        if remote is not None and "/" not in name.removeprefix("./"):
            found = remote.checkpoint(name.removeprefix("./"))
        elif _is_whole(run, name):
            found = Checkpoint(place_of(run, name))
        if found is not None:
            kept.append((found, _metrics.restore(metrics) if metrics else {}))
    last = _last(summary["metrics"], kept[-1][1] if kept else {})
    ranked = rank(kept, checkpoint_config)
    result = Result(last, kept[-1][0] if kept else None, None, run, ranked, history=history)
    if remote is not None:
        result.path, result._filesystem = remote.path, remote.filesystem
    return result


def _last(metrics: dict[str, Any] | None, latest: dict[str, Any]) -> dict[str, Any] | None:
    """The last report, with what a validation found of its checkpoint, the latest one."""
    if metrics is None:
        return None
    made = _metrics.restore(metrics)
    is_of_it = isinstance(_metrics.validation(metrics), dict) and made.items() <= latest.items()
    return latest if is_of_it else made


def _read_remote(path: str, there: Any) -> Result:
    """The result of the run in directory `path` of another file system."""
    from . import _core
    from .remote import Remote, fetch_result

    base, _, name = path.rpartition("/")
    remote = Remote(base, there, warnings.warn)
    remote.path = path
    with tempfile.TemporaryDirectory(prefix="trainyard-result-") as place:
        try:
            if not filesystem.is_directory(there, path):
                raise RuntimeError(f"Experiment folder {path} doesn't exist.")
            fetch_result(path, there, place)
            summary = json.loads(_core.result_read(place))
            return told(summary, recorded_config(summary), remote)
        except FileNotFoundError:
            raise RuntimeError(_no_run(path)) from None
        except (_core.Error, OSError) as error:
            raise RuntimeError(f"Result folder {path} cannot be read: {error}") from error
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise RuntimeError(f"{path}/{JOURNAL} is damaged: {error!r}") from error


def _no_run(path: str) -> str:
    return (
        f"Failed to restore the Result object: {JOURNAL} doesn't exist in the experiment folder. Make sure that this is an output "
        f"directory created by a {defaults.policy.called} run: folder {path} holds no run"
    )


def read(path: str) -> Result:
    """The result of the run in directory `path`, ranked as its journal says."""
    from . import _core

    try:
        summary = json.loads(_core.result_read(path))
        return told(summary, recorded_config(summary))
    except (_core.Error, OSError) as error:
        raise RuntimeError(f"Result folder {path} cannot be read: {error}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise RuntimeError(f"{os.path.join(path, JOURNAL)} is damaged: {error!r}") from error


def recorded_config(told: dict[str, Any]) -> CheckpointConfig:
    """By what a run's last controller ranks its checkpoints, as its journal or its `run` event tells; by time where it does not."""
    return CheckpointConfig(
        num_to_keep=told.get("num_to_keep"),
        checkpoint_score_attribute=told.get("checkpoint_score_attribute"),
        checkpoint_score_order=told.get("checkpoint_score_order") or "max",
    )


def place_of(run: str, name: str) -> str:
    """Where the checkpoint of this name lies. A name with a "/", as no other has one, is a place of a user's: absolute, or
    "./mine" in the run's directory."""
    return os.path.join(run, name[2:] if name.startswith("./") else name)


def _is_whole(run: str, name: str) -> bool:
    """Whether the checkpoint is there; one that is damaged is told. What is to be in a place of a user's nobody knows."""
    directory = place_of(run, name)
    if not os.path.isdir(directory):
        return False
    why = vacancy(directory) if "/" in name else damage(directory)
    told = f"{directory} is damaged and left out of the result: {why}"
    if why is None and noted(directory) is not None:
        why = told = f"left out of the result: {absent(directory)}"
    if why is not None:
        warnings.warn(harmless(told), RuntimeWarning, stacklevel=2)
    return why is None


def rank(kept: list[Any], config: Any) -> list[Any]:
    """The kept checkpoints, oldest first, as CheckpointConfig orders them: the best, or the latest, last. The latest is kept
    whatever its score, to go on from; it counts where it is among the best `num_to_keep`."""
    attribute = getattr(config, "checkpoint_score_attribute", None)
    if attribute is None:
        return kept
    ranked = sorted(kept, key=lambda row: _metrics.score(row[1], attribute, config.checkpoint_score_order))
    return ranked[-(config.num_to_keep or len(kept)) :] if kept else []
