"""Steps: what is done with the rows of each part when they are read, in the process that reads them."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import threading
from typing import Any, Callable, Iterable, Iterator, Mapping, NoReturn

from .. import defaults
from .block import Block, as_numpy, check_format, gathered, of_batch, of_records, rebatched
from .config import DataContext
from .expression import Expr, Expression

ROWS = 1024  # of a block that rows are gathered in
_numbers = itertools.count()
_made: dict[tuple, Any] = {}  # objects of callable classes in this process
_making = threading.Lock()
_loops: dict[int, Any] = {}


# Options of steps that say where and how often Ray runs them: here the process that reads runs them.
_PLACES = frozenset(
    "compute concurrency num_cpus num_gpus memory udf_modifying_row_count ray_remote_args_fn ray_remote_args "
    "resources accelerator_type runtime_env label_selector fallback_strategy max_calls scheduling_strategy max_retries "
    "retry_exceptions num_partitions max_concurrency max_restarts max_task_retries".split()
)


def check_places(method: str, options: Mapping[str, Any]) -> None:
    """TypeError for an option of a data set's method that Ray has not either."""
    for name in options:
        if name not in _PLACES:
            raise TypeError(f"Dataset.{method}() got an unexpected keyword argument {name!r}")
    if isinstance(options.get("compute"), str):
        raise ValueError(f"`compute` of {method} is a TaskPoolStrategy or an ActorPoolStrategy, not {options['compute']!r}")


def new_identity() -> str:
    """By which all ranks know what was made once, in the driver."""
    return f"{os.getpid()}-{next(_numbers)}"


class Step:
    """`keeps_rows`: whether it gives a row for a row; None where that depends on a user's function. `by_row`: whether a row comes
    out the same whatever stands beside it."""

    keeps_rows: bool | None = True
    by_row = True
    name = ""

    def __init__(self) -> None:
        self.identity = new_identity()
        self.changed = False  # what a step of unknown kind was seen to do to the number of rows

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        raise NotImplementedError


class Function:
    """A user's function with its arguments; of a class one object is made in each process, when it is first called."""

    def __init__(
        self,
        call: Any,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        constructor_args: Iterable[Any] | None = None,
        constructor_kwargs: Mapping[str, Any] | None = None,
    ):
        if not callable(call):
            raise ValueError(
                f"`fn` must be a UserDefinedFunction: a function or a callable class, not {type(call).__name__}"
            )
        self.is_class = inspect.isclass(call)
        for name, given in (
            ("fn_constructor_args", constructor_args),
            ("fn_constructor_kwargs", constructor_kwargs),
        ):
            if given is not None and not self.is_class:
                raise ValueError(
                    f"``{name}`` can only be specified if providing a callable class instance for ``fn``, but got: {call}."
                )
        if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
            raise ValueError("`fn` is an `async def` function: call asyncio.run(...) in a plain one")
        self.call = call
        self.args, self.kwargs = tuple(args or ()), dict(kwargs or {})
        self.constructor = tuple(constructor_args or ()), dict(constructor_kwargs or {})
        self.identity = new_identity()
        self.name = getattr(call, "__name__", type(call).__name__)

    def __call__(self, value: Any) -> Any:
        call = self._object() if self.is_class else self.call
        try:
            made = call(value, *self.args, **self.kwargs)
            if inspect.iscoroutine(made) or inspect.isasyncgen(made):
                made = _awaited(made)
        except Exception as error:
            _fail(error)
        return _told(made) if inspect.isgenerator(made) else made

    def _object(self) -> Any:
        key = (os.getpid(), self.identity)
        with _making:
            if key not in _made:
                args, kwargs = self.constructor
                _made[key] = self.call(*args, **kwargs)
            return _made[key]


def _fail(error: Exception) -> NoReturn:
    """Raises what a user's function raised, as the policy has it."""
    make = defaults.policy.step_error
    if make is None or DataContext.get_current().raise_original_map_exception:
        raise error
    raise make(error) from error


def _told(made: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from made
    except Exception as error:
        _fail(error)


def _awaited(made: Any) -> Any:
    """What a coroutine returns; of an asynchronous generator a plain one. The process has one loop, to which the user's objects may
    belong, in a thread of its own."""
    import asyncio

    with _making:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="trainyard-data-loop", daemon=True).start()

    def waited(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    return _yielded(made, waited) if inspect.isasyncgen(made) else waited(made)


def _yielded(made: Any, waited: Callable[[Any], Any]) -> Iterator[Any]:
    end = object()

    async def following() -> Any:
        return await anext(made, end)

    while (one := waited(following())) is not end:
        yield one


class _Called(Step):
    """With a user's function."""

    def __init__(self, function: Function):
        super().__init__()
        self.function = function

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({self.function.name})"


class Map(_Called):
    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            yield of_records([_row(self.function(record), self.function, "a dict") for record in block.records()])


class FlatMap(_Called):
    keeps_rows = False

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        rows = (one for block in blocks for record in block.records() for one in self.function(record))
        return gathered((_row(one, self.function, "dicts in a list") for one in rows), ROWS)


def _row(made: Any, function: Function, expected: str) -> Mapping[str, Any]:
    if not isinstance(made, Mapping):
        raise ValueError(f"Error validating {made!r:.100}: `fn` ({function.name}) is to return {expected}, not {type(made)}")
    return made


class Filter(_Called):
    keeps_rows = False

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            kept = [i for i, record in enumerate(block.records()) if self.function(record)]
            yield block if len(kept) == block.rows else block.take(kept)


class FilterExpression(Step):
    """With an expression over the columns: "x > 3 and kind == 'a'", or col("x") > 3."""

    keeps_rows = False

    def __init__(self, expression: Any):
        super().__init__()
        self.expression = Expression(expression)
        self.name = f"Filter({expression})"

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        import numpy as np

        for block in blocks:
            if block.rows:
                yield block.take(np.flatnonzero(self.expression(block)))


class MapBatches(_Called):
    keeps_rows = None
    by_row = False

    def __init__(
        self, function: Function, batch_size: int | None, batch_format: str | None, is_written_to: bool = False
    ):
        super().__init__(function)
        check_format(batch_format)
        self.is_written_to = is_written_to
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ValueError(f"Batch size can't be negative or 0, but it's {batch_size}")
        self.batch_size, self.batch_format = batch_size, batch_format

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in rebatched(blocks, self.batch_size):
            batch = block.batch(self.batch_format)
            given = self.function(own(batch) if self.is_written_to else batch)
            if not inspect.isgenerator(given):
                made = of_batch(given, self.function.name)
                self.changed |= made.rows != block.rows
                yield made
                continue
            rows = 0
            for batch in given:
                made = of_batch(batch, self.function.name)
                rows += made.rows
                self.changed |= rows > block.rows
                yield made
            self.changed |= rows != block.rows


def own(batch: Any) -> Any:
    """A batch that can be written to; a table of pyarrow is as it is."""
    if isinstance(batch, dict):
        return {name: array.copy() for name, array in batch.items()}
    return batch.copy(deep=True) if type(batch).__module__.startswith("pandas") else batch


class Regrouped(Step):
    """The same rows, in blocks of so many."""

    name = "Repartition"

    def __init__(self, rows: int | None):
        super().__init__()
        self.rows = rows

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        return rebatched(blocks, self.rows)


class AddColumn(Step):
    def __init__(self, column: str, function: Function, batch_format: str | None):
        super().__init__()
        check_format(batch_format)
        self.column, self.function, self.batch_format = column, function, batch_format
        self.name = f"AddColumn({column})"

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            given = self.function(block.batch(self.batch_format))
            if getattr(given, "ndim", 1) == 2 and hasattr(
                given, "columns"
            ):  # a data frame with the one column
                given = given.iloc[:, 0]
            made = of_batch({self.column: given}, self.name)
            if made.rows != block.rows:
                raise ValueError(f"{self.name} gave {made.rows} values for {block.rows} rows")
            yield Block({**block.columns, **made.columns}, block.rows)


class WithColumns(Step):
    """With more columns, an expression each; all are of the columns that were there."""

    def __init__(self, expressions: Mapping[str, Expr]):
        super().__init__()
        self.expressions = dict(expressions)
        self.name = f"WithColumns({list(expressions)})"

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            if block.columns:  # else there are no rows, and no names that an expression could be of
                made = {name: expression.column(block) for name, expression in self.expressions.items()}
                block = Block({**block.columns, **made}, block.rows)
            yield block


class Columns(Step):
    """Of the columns of a block, by old name, those that stay, by the name that each then has."""

    def __init__(self, name: str, chosen: Callable[[list[str]], dict[str, str]]):
        super().__init__()
        self.name, self.chosen = name, chosen

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            if block.columns:
                chosen = self.chosen(list(block.columns))
                yield Block({new: block.columns[old] for old, new in chosen.items()}, block.rows)


def selected(names: list[str], there: list[str]) -> dict[str, str]:
    missing = [name for name in names if name not in there]
    if missing:
        raise KeyError(
            f"select_columns: column(s) not found in dataset schema: {missing}. Available columns: {there}"
        )
    return {name: name for name in names}


def dropped(names: list[str], there: list[str]) -> dict[str, str]:
    missing = [name for name in names if name not in there]
    if missing:
        raise KeyError(
            f"drop_columns: column(s) not found in dataset schema: {missing}. Available columns: {there}"
        )
    return {name: name for name in there if name not in names}


def renamed(names: Mapping[str, str] | list[str], there: list[str]) -> dict[str, str]:
    if isinstance(names, Mapping):
        missing = [name for name in names if name not in there]
        if missing:
            raise KeyError(f"rename_columns: column(s) not found in dataset schema: {missing}. Available columns: {there}")
        return {name: names.get(name, name) for name in there}
    if len(names) != len(there):
        raise ValueError(f"rename_columns requires length of names to be {len(there)}, got {len(names)}")
    return dict(zip(there, names))


def columns(name: str, choose: Callable, names: Any) -> Columns:
    return Columns(name, functools.partial(choose, names))


class Sample(Step):
    """Each row with a chance, the same rows whenever it is read with one seed."""

    keeps_rows = False
    by_row = False

    def __init__(self, fraction: float, seed: int):
        super().__init__()
        self.fraction, self.seed = fraction, seed
        self.name = f"RandomSample({fraction})"

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        import numpy as np

        for i, block in enumerate(blocks):
            first = as_numpy(next(iter(block.columns.values())))[:1].tobytes() if block.rows else b""
            draws = np.random.default_rng([self.seed, i, *first]).random(block.rows)
            yield block.take(np.flatnonzero(draws < self.fraction))


class Fitted(Step):
    """A preprocessor of data frames, or of arrays."""

    by_row = True

    def __init__(self, preprocessor: Any):
        super().__init__()
        self.preprocessor = preprocessor
        self.name = type(preprocessor).__name__

    def run(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            if block.rows:
                yield self.preprocessor.transform_block(block)
