"""Runtime environments: what a worker's process is given. Variables and a working directory are; Trainyard installs nothing."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from typing import Any, Mapping

from . import exceptions

# Fields that have no meaning here, and do no harm.
_IGNORED = (
    "config",
    "eager_install",
    "excludes",
    "nsight",
    "rocprof_sys",
    "_validate",
    "_ray_commit",
    "_ray_release",
)
_REFUSED = ("conda", "container", "image_uri", "java_jars", "py_executable", "worker_process_setup_hook")
_FIELDS = ("env_vars", "working_dir", "py_modules", "pip", "uv", *_IGNORED, *_REFUSED)


class RuntimeEnv(dict):
    """`ray.runtime_env.RuntimeEnv`: a dict of the fields that were given."""

    def __init__(self, **fields: Any):
        super().__init__({name: value for name, value in fields.items() if value is not None})
        check(self)

    def env_vars(self) -> dict[str, str]:
        return self.get("env_vars", {})

    def working_dir(self) -> str | None:
        return self.get("working_dir")

    def has_working_dir(self) -> bool:
        return "working_dir" in self

    def py_modules(self) -> list[str]:
        return self.get("py_modules", [])

    def to_dict(self) -> dict[str, Any]:
        return dict(self)

    def set(self, name: str, value: Any) -> None:
        self[name] = value


class RuntimeEnvConfig(dict):
    """`ray.runtime_env.RuntimeEnvConfig`: accepted, and without effect, for nothing is installed."""

    def __init__(self, **fields: Any):
        super().__init__(fields)


def _fail(text: str) -> None:
    raise exceptions.RuntimeEnvSetupError(text)


def check(runtime_env: Mapping[str, Any] | None) -> None:
    """RuntimeEnvSetupError, one line, when `runtime_env` asks for what is not here; ValueError when it is malformed."""
    if runtime_env is None:
        return
    if not isinstance(runtime_env, Mapping):
        raise TypeError(f"runtime_env must be a dict or a RuntimeEnv, not {type(runtime_env).__name__}")
    for name in runtime_env:
        if name not in _FIELDS:
            raise ValueError(f"runtime_env has no field {name!r}; there are {', '.join(sorted(_FIELDS))}")
        if name in _REFUSED and runtime_env[name]:
            _fail(
                f"runtime_env[{name!r}] is not provided: workers run in the environment of the driver; start that in it"
            )
    for name in ("pip", "uv"):
        _check_packages(name, runtime_env.get(name))
    for name, path in _directories(runtime_env):
        if not os.path.isdir(path):
            _fail(f"runtime_env[{name!r}]: there is no directory {path}; archives and URIs are not provided")


def _directories(runtime_env: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [
        ("py_modules", path)
        for path in runtime_env.get("py_modules") or ()
        if isinstance(path, (str, os.PathLike))
    ]
    if runtime_env.get("working_dir"):
        found.append(("working_dir", runtime_env["working_dir"]))
    return [(name, os.path.abspath(os.path.expanduser(os.fspath(path)))) for name, path in found]


def _check_packages(field: str, wanted: Any) -> None:
    """Every package that is asked for must be installed already; versions are not compared."""
    if isinstance(wanted, Mapping):
        wanted = wanted.get("packages")
    if isinstance(wanted, str):
        with open(wanted) as file:
            wanted = file.read().splitlines()
    missing = [name for name in map(_package, wanted or ()) if name and not _is_installed(name)]
    if missing:
        _fail(
            f"runtime_env[{field!r}]: not installed here: {', '.join(missing)}; Trainyard installs nothing, install it first"
        )


def _package(requirement: str) -> str | None:
    """The name in a requirement; None for a comment, an option or a URL."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[|[<>=!~;@ ]|$)", requirement)
    return match.group(1) if match else None


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def defaults(runtime_env: Mapping[str, Any] | None) -> dict[str, Any]:
    """What `trainyard.init` is to know of it, after check(). Packages of py_modules become importable here, and so in the
    workers, which look for modules where the driver does."""
    given = runtime_env or {}
    for name, path in _directories(given):
        if name == "py_modules" and os.path.dirname(path) not in sys.path:
            sys.path.append(os.path.dirname(path))
    return {name: given[name] for name in ("env_vars", "working_dir") if given.get(name)}
