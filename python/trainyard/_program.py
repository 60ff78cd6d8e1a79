"""The template of a program: an interpreter that was started with the program's own command line, and has not come to the
program yet (docs/torchrun.md, "Workers that are forked"; src/agent/template/template_program.c).

An agent puts _interpreter/ in front of PYTHONPATH, so that `begin` is called while the interpreter sets itself up, before it
looks at the program. It imports what the program imports first, and forks. In a worker it returns, and the interpreter goes on
as if nothing had been: it reads the program, which may have changed since, and runs it as `__main__`, with the arguments,
flags, tracebacks and exit status of a process that was executed.

Only what the program would import itself, before anything else that has an effect, is imported, and only packages of which it
is known that they look at no variable in which workers differ. What may not be the same in a fork is a reason to execute.
"""

from __future__ import annotations

import ast
import fcntl
import gc
import importlib.util
import os
import site
import socket
import struct
import sys
import tempfile
import termios
import threading
import warnings

from . import _template

_SHARED = {"numpy", "torch", "torchvision"}  # what is imported here, for torch's sake
_PASSED = {"tqdm"}  # what does not concern them, and is left to the program
_CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "time", "time_ns"}
_OUTPUT = _template.PLACES - 1  # where the agent puts the other end of standard output and error

_had_site = False


def begin(home: str, root: str, known: set[str]) -> None:
    """Serves the agent; returns in a worker. `known`: what the interpreter had imported by itself."""
    output = os.dup(_OUTPUT)
    os.set_blocking(1, False)  # who prints more than fits into the pipe fails, and does not wait
    control = _template.take_control()
    _leave_path(home, root)
    environment = _given_environment(home)
    program = Program(sys.orig_argv, known)
    _template.prepare(control, program.load, lambda: program.objection() or _printed(output), freeze=False)
    os.close(output)
    changes = {name: value for name, value in os.environb.items() if environment.get(name) != value}
    gone = environment.keys() - os.environb.keys()
    request = _template.serve(control, program.objection)
    control = socket.socket(fileno=_template.become_template(request)[0])
    _template.prepare(control, lambda: None, program.objection, freeze=False)
    request = _template.serve(control, program.objection)
    _template.become_process(request, _template.PLACES)
    os.environb.update(changes)
    for name in gone & os.environb.keys():
        del os.environb[name]
    _renew_libraries()


def end() -> None:
    """In a worker nothing is left of this package, and of the module that has called it only where the environment has one."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "trainyard"]:
        del sys.modules[name]
    if not _had_site:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")


def _leave_path(home: str, root: str) -> None:
    for place in (home, root):
        sys.path.remove(place)
        if place not in sys.path:
            sys.path_importer_cache.pop(place, None)


def _given_environment(home: str) -> dict[bytes, bytes]:
    """What this process was started with, but for what the agent added, which goes from os.environ as well: what the environment's
    own modules and the imports change is to be changed in each worker."""
    with open("/proc/self/environ", "rb") as file:
        given = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    del given[_template.VARIABLE.encode()]
    given[b"PYTHONPATH"] = given[b"PYTHONPATH"][len(os.fsencode(home)) + 1 :]
    os.environb[b"PYTHONPATH"] = given[b"PYTHONPATH"]
    if not given[b"PYTHONPATH"]:
        del given[b"PYTHONPATH"], os.environb[b"PYTHONPATH"]
    return given


def _renew_libraries() -> None:
    """What each process finds out, or draws, for itself when it imports them; Python's own generator does so by itself."""
    tempfile.tempdir = None
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined] # which a fork leaves as it was
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if hasattr(sys.modules["torch"], "default_generator"):
        sys.modules["torch"].default_generator.seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


class Program:
    """What the interpreter was asked to run, and what of it can be done before."""

    def __init__(self, argv: list[str], known: set[str]):
        words = [word for word in argv[1:] if word != "-u"]
        if words[0] == "-m":
            self.files = _files_of_module(words[1])
            self.home = os.getcwd()
        else:
            self.files = [words[0]]
            self.home = os.path.dirname(os.path.realpath(words[0]))
        self.known = {name.partition(".")[0] for name in known}
        self.imports: list[tuple[str, tuple[str, ...]]] = []
        self.seen: list[tuple[int, ...]] = []

    def load(self) -> None:
        """Its first imports, in its order."""
        self._load_site()
        self.imports = self._look()
        if not any(module.partition(".")[0] == "torch" for module, _ in self.imports):
            return
        gc.disable()  # what is imported stays
        try:
            for module, names in self.imports:
                __import__(module, fromlist=names)
        finally:
            gc.freeze()
            gc.unfreeze()  # of the oldest, as what has been looked at often
            gc.enable()

    def _load_site(self) -> None:
        global _had_site
        ours = sys.modules.pop("sitecustomize")
        try:
            import sitecustomize  # noqa: F401 # the environment's
        except ImportError as error:
            if error.name != "sitecustomize":
                raise
            sys.modules["sitecustomize"] = ours
        else:
            _had_site = True

    def _look(self) -> list[tuple[str, tuple[str, ...]]]:
        imports: list[tuple[str, tuple[str, ...]]] = []
        for file in self.files:
            if not first_imports(file, imports):
                break
        return imports

    def objection(self) -> str | None:
        """Why a fork would not be as a fresh interpreter; None when it would. It is looked at again where files have changed."""
        if not any(module.partition(".")[0] == "torch" for module, _ in self.imports):
            return "the program imports no torch before it does anything else"
        try:
            seen = [_facts(place) for place in (*self.files, self.home)]
            if seen == self.seen:
                return None
            if self._look()[: len(self.imports)] != self.imports:
                return "the program begins with other imports than it did"
        except (OSError, SyntaxError, ValueError) as error:
            return f"the program cannot be read: {error}"
        why = self._shadowed() or _customized()
        if why is None:
            self.seen = seen
        return why

    def _shadowed(self) -> str | None:
        """The program's own folder comes first in its path: what lies there would have been imported in place of ours."""
        loaded = {name.partition(".")[0] for name in sys.modules} - self.known
        for entry in os.scandir(self.home):
            name, dot, kind = entry.name.partition(".")
            module = kind == "py" or kind == "pyc" or kind.endswith("so")
            package = not dot and os.path.exists(os.path.join(entry.path, "__init__.py"))
            if name in loaded and (module or package):
                return f"{entry.path} has the name of a module that others import"
        return None


def first_imports(file: str, imports: list[tuple[str, tuple[str, ...]]]) -> bool:
    """Adds (module, names) of the imports that stand in front of all that has an effect; true when nothing in the file has."""
    with open(file, "rb") as text, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text.read(), file)
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            found = [(alias.name, ()) for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module:
            found = [(statement.module, tuple(alias.name for alias in statement.names))]
        elif _has_no_effect(statement):
            continue
        else:
            return False
        for module, names in found:
            root = module.partition(".")[0]
            if root in _SHARED:
                imports.append((module, names))
            elif root not in sys.stdlib_module_names and root not in _PASSED:
                return False
    return True


def _has_no_effect(statement: ast.stmt) -> bool:
    """A text, a constant or a time that is given a name, and a function without more than its body."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Name) for target in statement.targets) and _is_plain(
            statement.value
        )
    if isinstance(statement, ast.FunctionDef):
        arguments = statement.args
        annotated = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]
        if statement.decorator_list or statement.returns or any(one and one.annotation for one in annotated):
            return False
        return all(
            _is_plain(value) for value in [*arguments.defaults, *arguments.kw_defaults] if value is not None
        )
    return isinstance(statement, ast.Pass)


def _is_plain(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return True
    if isinstance(value, (ast.Tuple, ast.List)):
        return all(_is_plain(element) for element in value.elts)
    call = value.func if isinstance(value, ast.Call) and not value.args and not value.keywords else None
    if not isinstance(call, ast.Attribute) or not isinstance(call.value, ast.Name):
        return False
    return call.value.id == "time" and call.attr in _CLOCKS


def _files_of_module(name: str) -> list[str]:
    """Of a module in the working directory, with those of its packages, in the order in which they run."""
    place, files = os.getcwd(), []
    for part in name.split("."):
        place = os.path.join(place, part)
        if os.path.exists(os.path.join(place, "__init__.py")):
            files.append(os.path.join(place, "__init__.py"))
    return [*files, place + ".py" if os.path.exists(place + ".py") else os.path.join(place, "__main__.py")]


def _customized() -> str | None:
    """What acts on a fresh interpreter before a program's imports."""
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return "the interpreter is traced"
    user = site.ENABLE_USER_SITE and importlib.util.find_spec("usercustomize") is not None
    return "there is a usercustomize, which comes before a program's imports" if user else None


def _facts(file: str) -> tuple[int, ...]:
    status = os.stat(file)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _printed(output: int) -> str | None:
    """Something was said while it was imported, which each worker is to say itself."""
    (waiting,) = struct.unpack("i", fcntl.ioctl(output, termios.FIONREAD, b"\0" * 4))
    text = os.read(output, min(waiting, 1 << 12)).decode("utf-8", "replace") if waiting else ""
    return f"importing what the program imports prints: {text.strip()}" if waiting else None
