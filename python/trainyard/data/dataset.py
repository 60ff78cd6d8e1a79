"""Dataset: a plan with the methods that programs call. All that changes rows or their order is done when they are read."""

from __future__ import annotations

import secrets
from typing import Any, Callable, Iterable, Iterator, Mapping

import numpy as np

from . import plan as plans
from . import steps, writing
from .block import Block, blocks_missing, concat, described, plain, present
from .config import DataContext, RandomSeedConfig
from .expression import Expr
from .grouped import GroupedData, part_of_each, rows_in_order
from .iterator import DataIterator
from .not_provided import refuse
from .plan import Plan, Reading
from .shards import Shard
from .sources import Held, Range, Rows


class Schema:
    """Names and types of columns."""

    def __init__(self, columns: Any):
        """{name: type}, or a schema of pyarrow."""
        given = columns if isinstance(columns, Mapping) else dict(zip(columns.names, columns.types))
        self._columns: dict[str, Any] = dict(given)

    @property
    def names(self) -> list[str]:
        return list(self._columns)

    @property
    def types(self) -> list[Any]:
        return list(self._columns.values())

    @property
    def base_schema(self) -> Any:
        import pyarrow

        return pyarrow.schema(list(self._columns.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._columns == other._columns

    def __hash__(self) -> int:
        return hash(tuple(self._columns))

    def __repr__(self) -> str:
        names = ["Column", "------", *self._columns]
        types = ["Type", "----", *map(str, self._columns.values())]
        width = max(map(len, names))
        return "\n".join(f"{name:<{width}}  {kind}" for name, kind in zip(names, types))


class Dataset:
    """Rows with columns, read when they are needed."""

    def __init__(self, plan: Plan, name: str | None = None):
        self.plan = plan
        self._name = name
        self.seed = secrets.randbits(62)  # for what is drawn without one
        self.context = DataContext.get_current().copy()
        self._passes: DataIterator | None = None  # of the loops over it in this process, each an epoch

    # What is to be done with the rows

    def _then(self, step: steps.Step) -> Dataset:
        return Dataset(plans.Then(self.plan, step), self._name)

    def map(
        self,
        fn: Any,
        *,
        fn_args: Any = None,
        fn_kwargs: Any = None,
        fn_constructor_args: Any = None,
        fn_constructor_kwargs: Any = None,
        **places: Any,
    ) -> Dataset:
        """`fn` of each row, a dict, which gives another."""
        steps.check_places("map", places)
        return self._then(
            steps.Map(steps.Function(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs))
        )

    def map_batches(
        self, fn: Any, *, batch_size: int | str | None = None, batch_format: str | None = "default",
        zero_copy_batch: bool = True, fn_args: Any = None, fn_kwargs: Any = None,
        fn_constructor_args: Any = None, fn_constructor_kwargs: Any = None, **places: Any,
    ) -> Dataset:  # fmt: skip
        """`fn` of batches of `batch_size` rows (None: as they are read), which gives a batch, or yields several.

        A callable class is made once in each process that reads. Without `zero_copy_batch` a batch can be written to."""
        steps.check_places("map_batches", places)
        size = None if batch_size in ("default", "auto") else batch_size
        function = steps.Function(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        return self._then(steps.MapBatches(function, size, batch_format, not zero_copy_batch))  # type: ignore[arg-type]

    def flat_map(
        self,
        fn: Any,
        *,
        fn_args: Any = None,
        fn_kwargs: Any = None,
        fn_constructor_args: Any = None,
        fn_constructor_kwargs: Any = None,
        **places: Any,
    ) -> Dataset:
        """`fn` of each row, which gives a list of rows."""
        steps.check_places("flat_map", places)
        return self._then(
            steps.FlatMap(steps.Function(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs))
        )

    def filter(
        self,
        fn: Any = None,
        expr: str | Expr | None = None,
        *,
        fn_args: Any = None,
        fn_kwargs: Any = None,
        fn_constructor_args: Any = None,
        fn_constructor_kwargs: Any = None,
        **places: Any,
    ) -> Dataset:
        """The rows for which `fn`, or an expression such as "x > 3 and kind == 'a'" or col("x") > 3, is true."""
        steps.check_places("filter", places)
        if (fn is None) == (expr is None):
            raise ValueError("Exactly one of 'fn' or 'expr' must be provided to `filter`.")
        if expr is not None:
            return self._then(steps.FilterExpression(expr))
        return self._then(
            steps.Filter(steps.Function(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs))
        )

    def add_column(
        self, col: str, fn: Callable[[Any], Any], *, batch_format: str | None = "pandas", **places: Any
    ) -> Dataset:
        """With one more column: `fn` of a batch."""
        steps.check_places("add_column", places)
        return self._then(steps.AddColumn(col, steps.Function(fn), batch_format))

    def with_column(self, column_name: str, expr: Expr, **places: Any) -> Dataset:
        """With one more column, or another one of the name: an expression over the others, as col("x") * 2."""
        steps.check_places("with_column", places)
        return self.with_columns({column_name: expr})

    def with_columns(self, *exprs: Mapping[str, Expr], **places: Any) -> Dataset:
        """The same with several, all of them over the columns that are there now."""
        steps.check_places("with_columns", places)
        expressions: dict[str, Expr] = {}
        for one in exprs:
            if not isinstance(one, Mapping):
                raise TypeError(
                    f"`with_columns` arguments must be mappings from column name to expression, got {type(one).__name__}."
                )
            expressions.update(one)
        for name, expression in expressions.items():
            if not isinstance(expression, Expr):
                raise TypeError(f"`with_column` expects an expression for {name!r}, as col('x') * 2, not {expression!r}")
        return self._then(steps.WithColumns(expressions)) if expressions else self

    def select_columns(self, cols: str | list[str], **places: Any) -> Dataset:
        steps.check_places("select_columns", places)
        names = _names(cols, "cols")
        pruned = _pruned(self.plan, names)
        return Dataset(
            plans.Then(pruned, steps.columns(f"Select({names})", steps.selected, names)), self._name
        )

    def drop_columns(self, cols: str | list[str], **places: Any) -> Dataset:
        steps.check_places("drop_columns", places)
        return self._then(steps.columns(f"Drop({cols})", steps.dropped, _names(cols, "cols")))

    def rename_columns(self, names: Mapping[str, str] | list[str], **places: Any) -> Dataset:
        """Other names: {"old": "new"}, or a list of as many as there are columns."""
        steps.check_places("rename_columns", places)
        if not isinstance(names, (Mapping, list)):
            raise TypeError(f"rename_columns expected names to be either List[str] or Dict[str, str], got {type(names)}.")
        given = [*names, *names.values()] if isinstance(names, Mapping) else names
        new = list(names.values()) if isinstance(names, Mapping) else names
        if not names or not all(isinstance(name, str) for name in given):
            raise ValueError(f"rename_columns requires names, all of them strings, not {names!r}")
        if len(set(new)) != len(new):
            raise ValueError(f"rename_columns received duplicate values in the 'names': {names}")
        return self._then(steps.columns("Rename", steps.renamed, names))

    def random_sample(self, fraction: float, *, seed: Any = None) -> Dataset:
        """Each row with this chance."""
        if not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
            raise ValueError("Fraction must be between 0 and 1.")
        return self._then(steps.Sample(fraction, self._draw(seed).seed))

    # Their order, and how many

    def _draw(self, seed: Any) -> plans.Draw:
        if isinstance(seed, RandomSeedConfig):
            return plans.Draw(
                secrets.randbits(62) if seed.seed is None else seed.seed, seed.reseed_after_execution
            )
        return plans.Draw(secrets.randbits(62), True) if seed is None else plans.Draw(int(seed), False)

    def random_shuffle(self, *, seed: Any = None, num_blocks: int | None = None, **places: Any) -> Dataset:
        """In an order that is drawn, in each epoch another one; with a seed always the same. Rows of files are mixed with those
        that are read near them, and the files' parts are drawn from all of them."""
        steps.check_places("random_shuffle", places)
        return Dataset(plans.Shuffled(self.plan, self._draw(seed)), self._name)

    def randomize_block_order(self, *, seed: Any = None) -> Dataset:
        return Dataset(plans.BlockOrder(self.plan, self._draw(seed)), self._name)

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: list[str] | None = None,
        sort: bool = False,
    ) -> Dataset:
        """In so many parts, or parts of so many rows. Where these would have to be counted first, each part that there is gives
        blocks of so many and one that may be smaller, unless it is `strict`."""
        if num_blocks is None and target_num_rows_per_block is None:
            raise ValueError("Either `num_blocks` or `target_num_rows_per_block` must be set")
        if num_blocks is not None and target_num_rows_per_block is not None:
            raise ValueError("Only one of `num_blocks` or `target_num_rows_per_block` must be set, but not both.")
        if target_num_rows_per_block is not None and shuffle:
            raise ValueError("`shuffle` must be False when `target_num_rows_per_block` is set.")
        for name, value in (("num_blocks", num_blocks), ("target_num_rows_per_block", target_num_rows_per_block)):
            if value is not None:
                _check_whole(name, value, 1)
        if keys or sort:
            raise NotImplementedError(
                "repartition(keys=..., sort=...) is not provided: sort by the column, or group where it is read"
            )
        whole = self.random_shuffle() if shuffle else self
        return Dataset(plans.Divided(whole.plan, num_blocks, target_num_rows_per_block, strict), self._name)

    def limit(self, limit: int) -> Dataset:
        """The first rows."""
        _check_whole("limit", limit, 0)
        return Dataset(plans.Between(self.plan, 0, limit, f"Limit({limit})"), self._name)

    def union(self, *other: Dataset) -> Dataset:
        """These rows, and then those of the others."""
        _check_datasets("union", other)
        return Dataset(plans.Union(self.plan, *(one.plan for one in other)), self._name)

    def zip(self, *other: Dataset) -> Dataset:
        """Columns side by side; both must have as many rows."""
        _check_datasets("zip", other)
        return Dataset(plans.Zip(self.plan, *(one.plan for one in other)), self._name)

    def sort(
        self, key: str | list[str], descending: bool | list[bool] = False, boundaries: Any = None
    ) -> Dataset:
        """By columns, rows without a value last. Who reads of it holds all of it in memory."""
        keys = _names(key, "key")
        down = descending if isinstance(descending, list) else [descending] * len(keys)
        if len(down) != len(keys):
            raise ValueError(
                f"Length of `descending` ({len(down)}) does not match the length of the key ({len(keys)})"
            )

        def ordered(block: Block) -> Block:
            missing = [name for name in keys if name not in block.columns]
            if missing:
                raise ValueError(
                    f"You specified the column '{missing[0]}', but there's no such column in the dataset."
                )
            return block.take(rows_in_order(block, keys, down))

        return Dataset(plans.Together(self.plan, ordered, f"Sort({keys}, {down})"), self._name)

    # By groups

    def _over(self, plan: Plan) -> Dataset:
        """What a plan over this one's gives."""
        return Dataset(plan, self._name)

    def groupby(self, key: str | list[str] | None, num_partitions: int | None = None) -> GroupedData:
        """The rows by the values of one column, or several."""
        if num_partitions is not None and num_partitions <= 0:
            raise ValueError("`num_partitions` must be a positive integer")
        names = [] if key is None else _names(key, "key")
        schema = self.schema(fetch_if_missing=False)
        for name in names:
            if schema is not None and name not in schema.names:
                raise ValueError(f"You specified the column '{name}', but there's no such column in the dataset.")
        return GroupedData(self, key)

    def aggregate(self, *aggs: Any) -> dict[str, Any] | None:
        """What all rows come to, by the name of each aggregation; None without rows."""
        found = self.groupby(None).aggregate(*aggs).take(1)
        return found[0] if found else None

    # In several data sets

    def _between(self, edges: list[int]) -> list[Dataset]:
        fixed = self.plan.fixed()
        return [
            Dataset(plans.Between(fixed, start, stop), self._name) for start, stop in zip(edges, edges[1:])
        ]

    def split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[Dataset]:
        """In so many; with `equal` of as many rows each, and what is over is left out."""
        _check_splits(n)
        if locality_hints is not None and len(locality_hints) != n:
            raise ValueError("The length of locality_hints must equal the number of splits")
        rows = self.count()
        return self._between([rows // n * i if equal else rows * i // n for i in range(n + 1)])

    def split_at_indices(self, indices: list[int]) -> list[Dataset]:
        """Before each of these rows."""
        if not indices:
            raise ValueError("indices must be at least of length 1")
        if sorted(indices) != list(indices):
            raise ValueError("indices must be sorted")
        if indices[0] < 0:
            raise ValueError("indices must be positive")
        rows = self.count()
        return self._between([0, *(min(index, rows) for index in indices), rows])

    def split_proportionately(self, proportions: list[float]) -> list[Dataset]:
        """Of these parts of the rows, and one of what is left."""
        if not proportions:
            raise ValueError("proportions must be at least of length 1")
        if sum(proportions) >= 1:
            raise ValueError("proportions must sum to less than 1")
        if any(part <= 0 for part in proportions):
            raise ValueError("proportions must be bigger than 0")
        rows = self.count()
        edges = [int(rows * part) for part in np.cumsum(proportions)]
        for i in reversed(range(len(edges))):  # each gets a row, if there are enough
            edges[i] = max(0, min(edges[i], (edges[i + 1] if i + 1 < len(edges) else rows) - 1))
        return self.split_at_indices(edges)

    def train_test_split(
        self,
        test_size: int | float,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        stratify: str | None = None,
    ) -> tuple[Dataset, Dataset]:
        """One to train with and one to test with, of this part or number of the rows, at the end or drawn."""
        if stratify is not None:
            return self._stratified(test_size, shuffle, stratify)
        whole = self.random_shuffle(seed=seed) if shuffle else self
        rows = self.count()
        if isinstance(test_size, float):
            if not 0 < test_size < 1:
                raise ValueError(
                    f"If `test_size` is a float, it must be bigger than 0 and smaller than 1. Got {test_size}."
                )
            edge = int(rows * (1 - test_size))
        else:
            if not 0 < test_size < rows:
                raise ValueError(
                    f"If `test_size` is an int, it must be bigger than 0 and smaller than the size of the dataset ({rows}). "
                    f"Got {test_size}."
                )
            edge = rows - test_size
        train, test = whole._between([0, edge, rows])
        return train, test

    def _stratified(self, test_size: int | float, shuffle: bool, column: str) -> tuple[Dataset, Dataset]:
        """Of each value of the column the same part of its rows."""
        if shuffle:
            raise ValueError("Cannot specify both 'shuffle=True' and 'stratify' parameters: the order within a class stays")
        if not isinstance(test_size, float):
            rows = self.count()
            if not 0 < test_size < rows:
                raise ValueError(f"`test_size`={test_size} must be bigger than 0 and smaller than the dataset ({rows})")
            test_size = test_size / rows
        elif not 0 < test_size < 1:
            raise ValueError(f"If `test_size` is a float, it must be bigger than 0 and smaller than 1. Got {test_size}.")
        part, fixed = test_size, self.plan.fixed()  # a row stays in its part in all epochs

        def made(is_last: bool) -> Dataset:
            name = f"Stratified({column!r}, {'test' if is_last else 'train'})"
            chosen = plans.Together(
                fixed, lambda block: part_of_each(block, column, part, is_last), name, keeps_rows=False
            )
            return self._over(chosen)

        return made(False), made(True)

    def streaming_split(
        self, n: int, *, equal: bool = False, locality_hints: Any = None
    ) -> list[DataIterator]:
        """An iterator for each of `n` readers, together over all rows; with `equal` of as many rows each."""
        _check_splits(n)
        return [DataIterator(Shard(self, rank, n, equal)) for rank in range(n)]

    # What is in it

    def _blocks(self) -> Iterator[Block]:
        return plans.blocks_of(self.plan.parts(Reading()))

    def iterator(self) -> DataIterator:
        return DataIterator(Shard(self))

    def _own(self) -> DataIterator:
        if self._passes is None:
            self._passes = self.iterator()
        return self._passes

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        return self._own().iter_rows()

    def iter_batches(self, **options: Any) -> Iterable[Any]:
        return self._own().iter_batches(**options)

    def iter_torch_batches(self, **options: Any) -> Iterable[Any]:
        return self._own().iter_torch_batches(**options)

    def iter_jax_batches(self, **options: Any) -> Iterable[Any]:
        return self._own().iter_jax_batches(**options)

    def to_torch(self, **options: Any) -> Any:
        return self._own().to_torch(**options)

    def iter_tf_batches(self, **options: Any) -> Iterable[Any]:
        return self._own().iter_tf_batches(**options)

    def to_tf(self, *columns: Any, **options: Any) -> Any:
        return self._own().to_tf(*columns, **options)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_passes": None}

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows."""
        _check_whole("limit", limit)
        found: list[dict[str, Any]] = []
        for block in self._blocks() if limit > 0 else ():
            found += block.slice(0, limit - len(found)).records()
            if len(found) >= limit:
                break
        return found

    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        """All rows; ValueError when they are more than `limit`."""
        found = (
            [record for block in self._blocks() for record in block.records()]
            if limit is None
            else self.take(limit + 1)
        )
        if limit is not None and len(found) > limit:
            raise ValueError(f"The dataset has more than the given limit of {limit} records.")
        return found

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        _check_whole("batch_size", batch_size, 1)
        found, rows = [], 0
        for block in self._blocks():
            found.append(block.slice(0, batch_size - rows))
            rows += found[-1].rows
            if rows >= batch_size:
                break
        if not rows:
            raise ValueError("The dataset is empty.")
        return concat(found).batch(batch_format)

    def show(self, limit: int = 20) -> None:
        for record in self.take(limit):
            print(record)

    def count(self) -> int:
        """How many rows; they are read where that is not known."""
        reading = Reading()
        return sum(reading.count(part) for part in self.plan.parts(reading))

    def schema(self, fetch_if_missing: bool = True) -> Schema | None:
        """Of the first rows; without any that of what is in memory."""
        first = next((block for block in self._blocks() if block.columns), None) if fetch_if_missing else None
        return Schema(described(first)) if first is not None else _known_schema(self.plan)

    def columns(self, fetch_if_missing: bool = True) -> list[str] | None:
        schema = self.schema(fetch_if_missing)
        return schema.names if schema is not None else None

    def input_files(self) -> list[str]:
        sources = (getattr(plan, "source", None) for plan in self.plan.walk())
        return sorted({path for source in sources if source is not None for path in source.input_files()})

    def size_bytes(self) -> int | None:
        return sum(block.nbytes() for block in self._blocks()) or None

    def num_blocks(self) -> int:
        raise NotImplementedError(
            "Number of blocks is only available for `MaterializedDataset`, because the number of blocks may dynamically change "
            "during execution. Call `ds.materialize()` to get a `MaterializedDataset`."
        )

    def to_pandas(self, limit: int | None = None) -> Any:
        """One data frame; ValueError when the rows are more than `limit`."""
        whole = concat(list(self._blocks()))
        if limit is not None and whole.rows > limit:
            raise ValueError(f"the dataset has more than the given limit of {limit} rows: {whole.rows}")
        return whole.pandas()

    def materialize(self) -> MaterializedDataset:
        """Read once, and kept in memory; workers share what they read of it."""
        parts = self.plan.parts(Reading())
        return MaterializedDataset.holding([concat(list(part.blocks())) for part in parts], self._name)

    # In files

    def write_parquet(
        self,
        path: Any,
        *,
        partition_cols: str | list[str] | None = None,
        filesystem: Any = None,
        arrow_parquet_args_fn: Callable[[], Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """In files of a directory, by this process, a file for each part of the data set that has rows; with `partition_cols` in
        directories "kind=a". min_rows_per_file, filename_provider and mode as in Ray; others go to pyarrow.parquet.write_table."""
        ours, theirs = writing.divided(options)
        stream = dict(ours.pop("arrow_open_stream_args", None) or {})
        if "compression" in stream:  # that of the pages: a file of parquet is not compressed as a whole
            theirs.setdefault("compression", stream.pop("compression"))
        ours["arrow_open_stream_args"] = stream
        more = arrow_parquet_args_fn() if arrow_parquet_args_fn else {}
        put = writing.parquet({**theirs, **more})
        writing.write(self, writing.Target(path, filesystem), "parquet", put, ours, partition_cols)

    def write_csv(
        self,
        path: Any,
        *,
        filesystem: Any = None,
        arrow_csv_args_fn: Callable[[], Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """As write_parquet, by pyarrow.csv.write_csv."""
        ours, theirs = writing.divided(options)
        put = writing.csv({**theirs, **(arrow_csv_args_fn() if arrow_csv_args_fn else {})})
        writing.write(self, writing.Target(path, filesystem), "csv", put, ours)

    def write_json(
        self,
        path: Any,
        *,
        filesystem: Any = None,
        pandas_json_args_fn: Callable[[], Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """As write_parquet, a line for each row, by pandas.DataFrame.to_json."""
        ours, theirs = writing.divided(options)
        put = writing.json({**theirs, **(pandas_json_args_fn() if pandas_json_args_fn else {})})
        writing.write(self, writing.Target(path, filesystem), "json", put, ours)

    def write_numpy(self, path: Any, *, column: str, filesystem: Any = None, **options: Any) -> None:
        """As write_parquet, one column, by numpy.save."""
        ours, theirs = writing.divided(options)
        if theirs:
            raise TypeError(f"Dataset.write_numpy() got an unexpected keyword argument {next(iter(theirs))!r}")
        writing.write(self, writing.Target(path, filesystem), "npy", writing.numpy(column), ours)

    # What a column comes to

    def _column(self, name: str) -> tuple[np.ndarray, bool]:
        """Its values without missing ones, and whether there are such."""
        blocks = [block for block in self._blocks() if block.rows]
        if not blocks:
            return np.array([]), False
        blocks_missing(blocks, [name])
        found = [present(block.columns[name]) for block in blocks]
        values = [there for there, _ in found if len(there)]
        return np.concatenate(values) if values else np.array([]), any(gone.any() for _, gone in found)

    def _each(self, on: str | list[str] | None, ignore_nulls: bool, work: Callable[[np.ndarray], Any]) -> Any:
        names = [on] if isinstance(on, str) else on if on is not None else self.columns() or []
        found = {}
        for name in names:
            values, lacks = self._column(name)
            found[name] = None if not len(values) or (lacks and not ignore_nulls) else work(values)
        return next(iter(found.values())) if len(found) == 1 else found

    def sum(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._each(on, ignore_nulls, lambda values: plain(np.sum(values)))

    def min(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._each(on, ignore_nulls, lambda values: plain(np.min(values)))

    def max(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._each(on, ignore_nulls, lambda values: plain(np.max(values)))

    def mean(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._each(on, ignore_nulls, lambda values: float(np.mean(values)))

    def std(self, on: Any = None, ddof: int = 1, ignore_nulls: bool = True) -> Any:
        def deviation(values: np.ndarray) -> float:
            return float(np.std(values, ddof=ddof)) if len(values) > ddof else float("nan")

        return self._each(on, ignore_nulls, deviation)

    def unique(self, column: str, ignore_nulls: bool = False) -> list[Any]:
        """The values of a column, each once, as they come first; None for missing ones, unless they are to be ignored."""
        values, lacks = self._column(column)
        found = list(dict.fromkeys(values.tolist()))
        return [*found, None] if lacks and not ignore_nulls else found

    # The data set itself

    @property
    def name(self) -> str | None:
        return self._name

    def set_name(self, name: str | None) -> None:
        self._name = name

    @staticmethod
    def copy(ds: Dataset, _deep_copy: bool = False, _as: type | None = None) -> Dataset:
        import copy

        other = copy.copy(ds)
        other.context = ds.context.copy()
        return other

    def stats(self) -> str:
        return repr(self)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            "`Dataset` objects aren't iterable. To iterate records, call `ds.iter_rows()` or `ds.iter_batches()`."
        )

    def __len__(self) -> int:
        raise AttributeError(
            "Use `ds.count()` to compute the length of a distributed Dataset. This may be an expensive operation."
        )

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        refuse(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return "\n".join(_drawn_tree(self.plan, type(self).__name__))


class MaterializedDataset(Dataset):
    """What was read, in memory."""

    @classmethod
    def holding(cls, blocks: list[Block], name: str | None = None) -> MaterializedDataset:
        kept = [block for block in blocks if block.rows] or blocks[:1]
        return cls(plans.Read(Held(kept)), name)

    def num_blocks(self) -> int:
        return len(self.plan.parts(Reading()))


def _drawn_tree(plan: Plan, kind: str) -> list[str]:
    """What is done last is first."""
    if not plan.inputs:
        return [f"{kind}({_facts(plan, kind)})"]
    lines = [plan.name]
    for one in plan.inputs:
        first, *others = _drawn_tree(one, "Dataset")
        lines += [f"+- {first}", *(f"   {line}" for line in others)]
    return lines


def _facts(plan: Plan, kind: str) -> str:
    source = plan.source  # type: ignore[attr-defined]
    blocks = [f"num_blocks={len(source.parts())}"] if kind == "MaterializedDataset" else []
    rows = f"num_rows={len(source) if hasattr(source, '__len__') else '?'}"
    schema = _known_schema(plan)
    known = (
        "{" + ", ".join(f"{name}: {type_}" for name, type_ in schema._columns.items()) + "}"
        if schema
        else "Unknown schema"
    )
    return ", ".join([*blocks, rows, f"schema={known}"])


def _known_schema(plan: Plan) -> Schema | None:
    """Of a source in memory."""
    source = getattr(plan, "source", None)
    if isinstance(source, Held) and source.blocks and source.blocks[0].columns:
        return Schema(described(source.blocks[0]))
    if isinstance(source, (Range, Rows)) and len(source):
        return Schema(described(source.block(slice(0, 1))))
    return None


def _check_whole(name: str, value: Any, least: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or (least is not None and value < least):
        bound = "" if least is None else f", {least} or more"
        raise ValueError(f"`{name}` must be a whole number{bound}, not {value!r}")


def _check_splits(n: Any) -> None:
    _check_whole("n", n)
    if n <= 0:
        raise ValueError(f"The number of splits {n} is not positive.")


def _check_datasets(method: str, given: tuple[Any, ...]) -> None:
    for one in given:
        if not isinstance(one, Dataset):
            raise ValueError(f"`{method}` takes data sets, not {type(one).__module__}.{type(one).__name__}")


def _names(names: Any, what: str) -> list[str]:
    found = [names] if isinstance(names, str) else list(names)
    if not all(isinstance(name, str) for name in found):
        raise ValueError(f"`{what}` must be a name or a list of names, not {names!r}")
    if len(set(found)) != len(found):
        raise ValueError(f"`{what}` has a name twice: {found}")
    return found


def _pruned(plan: Plan, names: list[str]) -> Plan:
    """A source that need not read all columns is told which are wanted."""
    only = getattr(getattr(plan, "source", None), "only", None)
    return plans.Read(only(names)) if only is not None else plan
