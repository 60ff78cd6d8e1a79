"""`python -m trainyard.export wandb|mlflow|parquet NAME`: what a run reported, for other tools, by their own packages.

CSV, JSON lines, OpenMetrics and TensorBoard's files are those of `trainyard metrics --format`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from . import integrations, rows
from .metrics import unboxed
from .screen import harmless

_BATCH = 20_000


class Run(NamedTuple):
    """Which reports of which run."""

    name: str
    storage_path: str | None
    rank: int | None
    history: str


def _batches(run: Run) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows.read(*run):
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch


@contextlib.contextmanager
def _told(kind: type) -> Iterator[None]:
    """Packages raise errors of their own classes, of many lines."""
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{kind.__name__}: {' '.join(harmless(str(error)).split())}") from error


def to_tool(
    kind: type[integrations.Wandb] | type[integrations.MLflow], run: Run, options: dict[str, Any]
) -> None:
    """The numbers as a run of the tool, which has failed where they are not all there. RuntimeError says in a line what it had
    against them."""
    writer: integrations.Writer | None = None
    whole = False
    integrations.need(kind.__name__.lower(), "the export")
    try:
        for batch in _batches(run):
            numbers = [
                (rows.step(row["metrics"], row["number"]), row["time"] / 1e9, rows.numbers(row["metrics"]))
                for row in batch
            ]
            with _told(kind):
                writer = writer or kind(run.name, None, options)
                writer.write(numbers)
        whole = True
    finally:
        if writer is not None:
            with _told(kind) if whole else contextlib.suppress(Exception):
                writer.close(whole)


# -- Parquet: a first reading finds the columns and their types, a second one writes them, so that memory stays the same


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return "int64"
    if isinstance(value, float):
        return "float64"
    return "string"


def _widest(kinds: set[str]) -> str:
    if len(kinds) == 1:
        return next(iter(kinds))
    return "float64" if kinds == {"int64", "float64"} else "string"


def _columns(batches: Iterable[list[dict[str, Any]]]) -> dict[str, str]:
    kinds: dict[str, set[str]] = {}
    for batch in batches:
        for row in batch:
            for name, value in rows.flat(row["metrics"]).items():
                if value is not None:
                    kinds.setdefault(name, set()).add(_kind(unboxed(value)))
    return {name: _widest(found) for name, found in kinds.items()}


def _cell(value: Any, kind: str) -> Any:
    value = unboxed(value)
    if value is None:
        return None
    if kind == "float64":
        return float(value)
    if kind != "string" or isinstance(value, str):
        return value
    return json.dumps(value, default=str)


def to_parquet(run: Run, output: str) -> None:
    """All reports, a row each: id, time (ns since the epoch), attempt, rank, number, `lost` of all, then the metrics, "a/b" for b
    in the dict a."""
    integrations.need("pyarrow", "parquet")
    import pyarrow
    import pyarrow.parquet

    head = rows.head(run.history)
    columns = _columns(_batches(run))
    names = rows.column_names(columns, head)
    fields = [(name, "bool" if name == "lost" else "int64") for name in head]
    fields += [(names[name], kind) for name, kind in columns.items()]
    schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in fields])
    if os.path.lexists(output) and (os.path.islink(output) or not os.path.isfile(output)):
        raise ValueError(f"{output}: it is there, and no regular file")
    part = f"{output}.part-{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)  # of a process that had this number before; nothing is written through it
    try:
        file = open(part, "xb")
    except OSError as error:
        raise RuntimeError(f"cannot write {output}: {error.strerror}") from None
    try:
        with file, pyarrow.parquet.ParquetWriter(file, schema) as writer:
            for batch in _batches(run):
                flats = [rows.flat(row["metrics"]) for row in batch]
                table: dict[str, list[Any]] = {name: [row[name] for row in batch] for name in head}
                for name, kind in columns.items():
                    table[names[name]] = [_cell(one.get(name), kind) for one in flats]
                writer.write_table(pyarrow.table(table, schema))
        os.replace(part, output)
    except BaseException:
        os.unlink(part)
        raise


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m trainyard.export",
        description="Brings what a run reported to another tool, by that tool's own package.",
        epilog="CSV, JSON lines, OpenMetrics and TensorBoard's files: `trainyard metrics NAME --format`.",
    )
    parser.add_argument("kind", choices=("wandb", "mlflow", "parquet"), help="which tool")
    parser.add_argument("name", metavar="NAME", help="of the run")
    parser.add_argument(
        "-o", "--output", metavar="PATH", help="parquet: the file (default: NAME.parquet); wandb: the directory"
    )
    parser.add_argument(
        "--storage-path", metavar="DIR", help="where runs are kept (default: as `trainyard run --help` tells)"
    )
    parser.add_argument("--rank", metavar="R", type=int, help="of this rank (default: 0; parquet: all)")
    parser.add_argument(
        "--history", choices=rows.HISTORIES, default="effective", help="what counts (default), or all"
    )
    parser.add_argument("--tracking-uri", metavar="URI", help="mlflow: where to (default: as MLflow has it)")
    given = parser.parse_args(words)
    if given.output is not None and given.kind == "mlflow":
        parser.error("-o goes with parquet and wandb: mlflow writes to --tracking-uri")
    if given.tracking_uri is not None and given.kind != "mlflow":
        parser.error("--tracking-uri goes with mlflow")
    run = Run(given.name, given.storage_path, given.rank, given.history)
    try:
        if given.kind == "parquet":
            to_parquet(run, given.output or f"{given.name}.parquet")
        elif given.kind == "wandb":
            to_tool(
                integrations.Wandb,
                run._replace(rank=given.rank or 0),
                {"dir": given.output} if given.output else {},
            )
        else:
            to_tool(
                integrations.MLflow, run._replace(rank=given.rank or 0), {"tracking_uri": given.tracking_uri}
            )
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(f"trainyard.export: {error}")


if __name__ == "__main__":
    main()
