"""What expressions have for columns of one kind: `col("name").str.upper()`, `.dt`, `.list`, `.struct`, `.map`, `.arr`.

Nearly all are functions of pyarrow, to which what else is given goes as it is.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

from .block import needed
from .datatype import DataType

if TYPE_CHECKING:
    from .expression import Expr, UDFExpr

# Methods by the function of pyarrow.compute, and the type that comes out; "" where that depends.
_TEXT = {
    "len": ("utf8_length", "int32"),
    "byte_len": ("binary_length", "int32"),
    **{name: (f"utf8_{name}", "string") for name in "upper lower capitalize title swapcase reverse center lpad rpad".split()},
    **{
        f"is_{name}": (f"utf8_is_{name}", "bool")
        for name in "alpha alnum digit decimal numeric space lower upper title printable".split()
    },
    "is_ascii": ("string_is_ascii", "bool"),
    "starts_with": ("starts_with", "bool"),
    "ends_with": ("ends_with", "bool"),
    "contains": ("match_substring", "bool"),
    "match": ("match_like", "bool"),
    "match_regex": ("match_substring_regex", "bool"),
    "find": ("find_substring", "int32"),
    "find_regex": ("find_substring_regex", "int32"),
    "count": ("count_substring", "int32"),
    "count_regex": ("count_substring_regex", "int32"),
    "slice": ("utf8_slice_codeunits", "string"),
    "replace": ("replace_substring", "string"),
    "replace_regex": ("replace_substring_regex", "string"),
    "replace_slice": ("binary_replace_slice", "string"),
    "repeat": ("binary_repeat", "string"),
    "split": ("split_pattern", ""),
    "split_regex": ("split_pattern_regex", ""),
    "split_whitespace": ("utf8_split_whitespace", ""),
    "extract": ("extract_regex", ""),
}
_TIME = {
    **{name: (name, "int32") for name in "year month day hour minute second".split()},
    "strftime": ("strftime", "string"),
}
_LIST = {"len": ("list_value_length", "int32"), "get": ("list_element", "")}
_STRUCT = {"field": ("struct_field", ""), "field_by_index": ("struct_field", "")}


class _Function:
    """A function of pyarrow.compute, by its name."""

    def __init__(self, name: str):
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(needed("pyarrow.compute", "a function of columns"), self.__name__)(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Function) and self.__name__ == other.__name__

    def __hash__(self) -> int:
        return hash(self.__name__)


def _called(function: Callable[..., Any], kind: str, *args: Any, **kwargs: Any) -> UDFExpr:
    from .expression import UDFExpr

    data_type = getattr(DataType, kind)() if kind else DataType(object)
    return UDFExpr(data_type, function, args, kwargs)


class Namespace:
    """The methods of `table`, and those of the class."""

    table: dict[str, tuple[str, str]] = {}

    def __init__(self, expr: Expr):
        self._expr = expr

    def _by(self, function: str, kind: str, *args: Any, **kwargs: Any) -> UDFExpr:
        return _called(_Function(function), kind, self._expr, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name not in self.table:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return functools.partial(self._by, *self.table[name])


class Text(Namespace):
    table = _TEXT

    def strip(self, characters: str | None = None) -> UDFExpr:
        """Without spaces, or these characters, at both ends."""
        return self._trimmed("trim", characters)

    def lstrip(self, characters: str | None = None) -> UDFExpr:
        return self._trimmed("ltrim", characters)

    def rstrip(self, characters: str | None = None) -> UDFExpr:
        return self._trimmed("rtrim", characters)

    def _trimmed(self, which: str, characters: str | None) -> UDFExpr:
        if characters is None:
            return self._by(f"utf8_{which}_whitespace", "string")
        return self._by(f"utf8_{which}", "string", characters=characters)

    def center(self, width: int, padding: str = " ", *args: Any, **kwargs: Any) -> UDFExpr:
        return self._by("utf8_center", "string", width, padding, *args, **kwargs)

    def lpad(self, width: int, padding: str = " ", *args: Any, **kwargs: Any) -> UDFExpr:
        return self._by("utf8_lpad", "string", width, padding, *args, **kwargs)

    def rpad(self, width: int, padding: str = " ", *args: Any, **kwargs: Any) -> UDFExpr:
        return self._by("utf8_rpad", "string", width, padding, *args, **kwargs)

    def pad(self, width: int, fillchar: str = " ", side: str = "right") -> UDFExpr:
        """Filled up to a width at the "left", the "right" or "both" sides."""
        functions = {"right": "utf8_rpad", "left": "utf8_lpad", "both": "utf8_center"}
        if side not in functions:
            raise ValueError("side must be 'left', 'right', or 'both'")
        return self._by(functions[side], "string", width=width, padding=fillchar)


class Time(Namespace):
    table = _TIME

    def ceil(self, unit: str) -> UDFExpr:
        return self._by("ceil_temporal", "", multiple=1, unit=unit)

    def floor(self, unit: str) -> UDFExpr:
        return self._by("floor_temporal", "", multiple=1, unit=unit)

    def round(self, unit: str) -> UDFExpr:
        return self._by("round_temporal", "", multiple=1, unit=unit)


class List(Namespace):
    table = _LIST

    def __getitem__(self, key: int | slice) -> UDFExpr:
        if isinstance(key, slice):
            return self.slice(key.start, key.stop, key.step)
        if not isinstance(key, int):
            raise TypeError(f"List indices must be integers or slices, not {type(key).__name__}")
        return _called(_element, "", self._expr, key)

    def get(self, index: int) -> UDFExpr:
        return _called(_element, "", self._expr, index)

    def slice(self, start: int | None = None, stop: int | None = None, step: int | None = None) -> UDFExpr:
        return self._by("list_slice", "", start=start or 0, stop=stop, step=1 if step is None else step)

    def sort(self, order: str = "ascending", null_placement: str = "at_end") -> UDFExpr:
        """The values of each list in their order."""
        if order not in ("ascending", "descending"):
            raise ValueError(f"order must be either 'ascending' or 'descending', got {order!r}")
        if null_placement not in ("at_start", "at_end"):
            raise ValueError(f"null_placement must be 'at_start' or 'at_end', got {null_placement!r}")
        return _called(_sorted, "", self._expr, order, null_placement)

    def flatten(self) -> UDFExpr:
        """Of lists of lists one list for each row."""
        return _called(_flat, "", self._expr)


class Struct(Namespace):
    table = _STRUCT

    def __getitem__(self, key: str | int) -> UDFExpr:
        return self._by("struct_field", "", key)


class Map(Namespace):
    def keys(self) -> UDFExpr:
        return _called(_of_entries, "", self._expr, 0)

    def values(self) -> UDFExpr:
        return _called(_of_entries, "", self._expr, 1)


class Arrays(Namespace):
    def to_list(self) -> UDFExpr:
        """Arrays of one size as lists."""
        return _called(_listed, "", self._expr)

    def flatten(self) -> UDFExpr:
        """The values of each array as one list."""
        return _called(_all_flat, "", self._expr)


_NAMESPACES = {"str": Text, "dt": Time, "list": List, "struct": Struct, "map": Map, "arr": Arrays}


def of(name: str, expr: Expr) -> Namespace | None:
    return _NAMESPACES[name](expr) if name in _NAMESPACES else None


# Of arrays of pyarrow, what no function of its own does


def _element(lists: Any, index: int) -> Any:
    """The value at `index` of each list, from its end where that is negative."""
    import pyarrow.compute as pc

    if index >= 0:
        return pc.list_element(lists, index)
    import pyarrow as pa

    return pa.array([None if one is None else one[index] for one in lists.to_pylist()], lists.type.value_type)


def _sorted(lists: Any, order: str, null_placement: str) -> Any:
    import pyarrow as pa

    _check_lists(lists, "list.sort() requires a list column.")

    def ordered(values: list[Any]) -> list[Any]:
        there = sorted((one for one in values if one is not None), reverse=order == "descending")
        gone = [None] * (len(values) - len(there))
        return gone + there if null_placement == "at_start" else there + gone

    return pa.array([None if one is None else ordered(one) for one in lists.to_pylist()], lists.type)


def _flat(lists: Any) -> Any:
    import pyarrow as pa

    words = "list.flatten() requires a list column whose elements are also lists."
    _check_lists(lists, words)
    if not _is_list(lists.type.value_type):
        raise TypeError(words)
    joined = [
        None if outer is None else [one for inner in outer if inner is not None for one in inner]
        for outer in lists.to_pylist()
    ]
    made = pa.large_list if pa.types.is_large_list(lists.type) else pa.list_
    return pa.array(joined, made(lists.type.value_type.value_type))


def _of_entries(maps: Any, which: int) -> Any:
    """The keys (0) or the values (1) of each map, or of each list of pairs."""
    import pyarrow as pa

    kind = maps.type
    if pa.types.is_map(kind):
        inner = kind.item_type if which else kind.key_type
        rows = [None if one is None else [pair[which] for pair in one] for one in maps.to_pylist()]
        return pa.array(rows, pa.list_(inner))
    if not (_is_list(kind) and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields >= 2):
        raise TypeError(f".map is for columns of maps, or of lists of pairs, not of {kind}")
    field = kind.value_type.field(which)
    rows = [None if one is None else [pair[field.name] for pair in one] for one in maps.to_pylist()]
    return pa.array(rows, pa.list_(field.type))


def _listed(arrays: Any) -> Any:
    import pyarrow as pa

    _check_lists(arrays, "to_list() can only be called on list-like columns")
    return arrays.cast(pa.list_(arrays.type.value_type)) if pa.types.is_fixed_size_list(arrays.type) else arrays


def _all_flat(arrays: Any) -> Any:
    _check_lists(arrays, "flatten() can only be called on list-like columns")
    while _is_list(arrays.type.value_type):
        arrays = _flat(arrays)
    return _listed(arrays)


def _is_list(kind: Any) -> bool:
    return DataType(kind).is_list_type()


def _check_lists(lists: Any, words: str) -> None:
    if not _is_list(lists.type):
        raise TypeError(f"{words} This one is of {lists.type}")
