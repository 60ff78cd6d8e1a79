"""Makes `ray` and the modules below it importable, from the tables, without a file named ray anywhere.

A module is empty when it is made; a name is looked up when it is first asked for, so that `import ray.train` imports no
framework. What the tables give is the object of Trainyard itself, and is pickled by Trainyard's name.
"""

from __future__ import annotations

import difflib
import dis
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import FrameType, ModuleType
from typing import Any, NoReturn

from .absent import absent
from .table import ABSENT, ABSENT_MODULES, MODULES, NEEDS


def is_absent(module: str) -> bool:
    """Whether the whole module is one of those that are there in name only."""
    return any(module == name or module.startswith(name + ".") for name in ABSENT_MODULES)


def known(module: str) -> bool:
    return module in MODULES or is_absent(module)


def names_of(module: str) -> list[str]:
    """The names that the tables give a module; for "*" those of its source that begin with a capital, as constants do."""
    homes = MODULES.get(module, {})
    if "*" not in homes:
        return sorted(homes)
    source = vars(importlib.import_module(homes["*"]))
    return sorted({name for name in (*homes, *source) if name[0].isupper() or name in homes} - {"*"})


def look_up(module: str, name: str, importing: bool = False) -> Any:
    """What `module`.`name` is; else as `refuse`."""
    homes = MODULES.get(module, {})
    if name in names_of(module):
        source = homes.get(name) or homes["*"]
        return getattr(importlib.import_module(source), name) if is_usable(source) else absent(module, name)
    if is_absent(module):
        return absent(module, name)
    if known(f"{module}.{name}"):
        return importlib.import_module(f"{module}.{name}")
    refuse(module, name, importing)


def is_usable(source: str) -> bool:
    """Whether a source of the tables can be imported: ABSENT cannot, nor what wraps a package that is not installed."""
    needed = NEEDS.get(source)
    return source != ABSENT and (
        needed is None or any(importlib.util.find_spec(package) for package in needed)
    )


def below(module: str) -> list[str]:
    """The names of the modules right below it."""
    depth = module.count(".") + 1
    return sorted(
        {one.split(".")[depth] for one in (*MODULES, *ABSENT_MODULES) if one.startswith(module + ".")}
    )


def refuse(module: str, name: str, importing: bool) -> NoReturn:
    """AttributeError, or ImportError where `from MODULE import NAME` asked, with the nearest name or where to look."""
    hint = nearest(name, [*names_of(module), *below(module)]) or f"; dir({module}) lists what is provided"
    if importing:
        raise ImportError(f"cannot import name {name!r} from {module!r}{hint}", name=module)
    raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def is_importing(frame: FrameType) -> bool:
    """Whether the frame is in the midst of `from ... import`, which swallows the text of an AttributeError."""
    return frame.f_code.co_code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]


def nearest(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


class RayFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes the modules of the tables. What is in none of them is not found, as any module."""

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not known(name):
            return None
        return importlib.machinery.ModuleSpec(name, self, origin="trainyard.as_ray", is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return ModuleType(spec.name, f"{spec.name} as Trainyard provides it: see trainyard.as_ray.table.")

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__getattr__ = functools.partial(fill, module)
        module.__dir__ = lambda: sorted({*vars(module), *names_of(name), *below(name)})
        if not is_absent(name):
            module.__all__ = names_of(name)


def fill(module: ModuleType, name: str) -> Any:
    """A name of the module that is asked for the first time: looked up, and kept in the module."""
    if name.startswith("__") and name != "__version__":
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    value = look_up(module.__name__, name, is_importing(sys._getframe(1)))
    setattr(module, name, value)
    return value


def is_ours(module: ModuleType) -> bool:
    return isinstance(getattr(module.__spec__, "loader", None), RayFinder)


def put_first() -> None:
    """Puts the finder before all others; does nothing when it is there already."""
    if not any(isinstance(finder, RayFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, RayFinder())
