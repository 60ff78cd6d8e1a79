"""DataType: the type of a column, as pyarrow, numpy or Python name it."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import numpy as np

from .block import needed


def _pa() -> Any:
    return needed("pyarrow", "a DataType of it")


bool_ = bool  # which is the name of a method, too


def _arrow_of(kind: Any) -> Any:
    return kind.to_arrow_dtype() if isinstance(kind, DataType) else kind


def _plain(name: str) -> classmethod[DataType, [], DataType]:
    return classmethod(lambda cls: cls(getattr(_pa(), name)()))


def _is(names: str) -> Callable[[DataType], bool_]:
    """Whether pyarrow says one of these of the type, or of what pyarrow has for numpy's."""

    def method(self: DataType) -> bool_:
        if self.is_python_type():
            return False
        import pyarrow as pa

        try:
            kind = self.to_arrow_dtype()
        except (pa.ArrowNotImplementedError, TypeError):
            return False
        return any(getattr(pa.types, f"is_{name}", lambda _: False)(kind) for name in names.split())

    return method


@dataclasses.dataclass(frozen=True, repr=False)
class DataType:
    """`DataType.int64()` and others are types of pyarrow; `DataType(object)` is any."""

    _physical_dtype: Any  # of pyarrow, of numpy, or a class of Python

    def __post_init__(self) -> None:
        if not (self.is_arrow_type() or self.is_numpy_type() or self.is_python_type()):
            raise TypeError(
                f"DataType supports only PyArrow DataType, NumPy dtype, or Python type objects, but was given type "
                f"{type(self._physical_dtype)}."
            )

    int8, int16, int32, int64 = _plain("int8"), _plain("int16"), _plain("int32"), _plain("int64")
    uint8, uint16, uint32, uint64 = _plain("uint8"), _plain("uint16"), _plain("uint32"), _plain("uint64")
    float32, float64 = _plain("float32"), _plain("float64")
    string, binary, bool = _plain("string"), _plain("binary"), _plain("bool_")

    @classmethod
    def from_arrow(cls, arrow_type: Any) -> DataType:
        return cls(arrow_type)

    @classmethod
    def from_numpy(cls, numpy_dtype: Any) -> DataType:
        return cls(np.dtype(numpy_dtype))

    @classmethod
    def list(cls, value_type: Any) -> DataType:
        return cls(_pa().list_(_arrow_of(value_type)))

    @classmethod
    def large_list(cls, value_type: Any) -> DataType:
        return cls(_pa().large_list(_arrow_of(value_type)))

    @classmethod
    def fixed_size_list(cls, value_type: Any, list_size: int) -> DataType:
        return cls(_pa().list_(_arrow_of(value_type), list_size))

    @classmethod
    def struct(cls, fields: Any) -> DataType:
        """Of pairs: a name and a type."""
        return cls(_pa().struct([(name, _arrow_of(kind)) for name, kind in fields]))

    @classmethod
    def map(cls, key_type: Any, value_type: Any) -> DataType:
        return cls(_pa().map_(_arrow_of(key_type), _arrow_of(value_type)))

    @classmethod
    def temporal(cls, temporal_type: str, unit: str | None = None, tz: str | None = None) -> DataType:
        """timestamp, date32, date64, time32, time64 or duration."""
        pa = _pa()
        if temporal_type in ("date32", "date64"):
            return cls(getattr(pa, temporal_type)())
        if temporal_type == "timestamp":
            return cls(pa.timestamp(unit or "us", tz=tz))
        if temporal_type not in ("time32", "time64", "duration"):
            raise ValueError(
                f"Invalid temporal_type {temporal_type!r}: it is one of timestamp, date32, date64, time32, time64, duration"
            )
        return cls(getattr(pa, temporal_type)(unit or {"time32": "s", "time64": "us"}.get(temporal_type, "us")))

    @classmethod
    def infer_dtype(cls, value: Any) -> DataType:
        """Of a value: of an array or a number of numpy numpy's, else pyarrow's, else its class."""
        if isinstance(value, (np.ndarray, np.generic)):
            return cls(value.dtype)
        try:
            import pyarrow as pa

            return cls(pa.array([value]).type)
        except Exception:  # no pyarrow, or a value that it does not know
            return cls(type(value))

    def is_arrow_type(self) -> bool_:
        return type(self._physical_dtype).__module__.startswith("pyarrow")

    def is_numpy_type(self) -> bool_:
        return isinstance(self._physical_dtype, np.dtype)

    def is_python_type(self) -> bool_:
        return isinstance(self._physical_dtype, type)

    is_list_type = _is("list large_list fixed_size_list list_view large_list_view")
    is_string_type = _is("string large_string string_view")
    is_binary_type = _is("binary large_binary binary_view fixed_size_binary")
    is_struct_type = _is("struct")
    is_map_type = _is("map")
    is_nested_type = _is("nested")
    is_numerical_type = _is("integer floating decimal")
    is_integer_type = _is("integer")
    is_floating_type = _is("floating")
    is_boolean_type = _is("boolean")
    is_null_type = _is("null")
    is_temporal_type = _is("temporal")

    def to_arrow_dtype(self, values: Any = None) -> Any:
        """The type of pyarrow; of a class of Python the one of `values`."""
        pa = _pa()
        if self.is_arrow_type():
            return self._physical_dtype
        if self.is_numpy_type():
            return pa.from_numpy_dtype(self._physical_dtype)
        if values is None or not len(values):
            raise ValueError(f"{self!r} has no type of pyarrow without values")
        return pa.array(values).type

    def to_numpy_dtype(self) -> Any:
        """numpy's; of what it has none for, that of objects."""
        if self.is_numpy_type():
            return self._physical_dtype
        if self.is_arrow_type():
            try:
                return np.dtype(self._physical_dtype.to_pandas_dtype())
            except (TypeError, NotImplementedError):
                return np.dtype("object")
        return np.dtype("object")

    def to_python_type(self) -> Any:
        if not self.is_python_type():
            raise ValueError(f"{self!r} is no class of Python")
        return self._physical_dtype

    def __repr__(self) -> str:
        kind = "arrow" if self.is_arrow_type() else "numpy" if self.is_numpy_type() else "python"
        shown = self._physical_dtype.__name__ if kind == "python" else self._physical_dtype
        return f"DataType({kind}:{shown})"
