"""`python -m trainyard.as_ray [options] script.py [args]` or `... -m module [args]`: see the usage text below."""

from __future__ import annotations

import argparse
import builtins
import io
import os
import runpy
import sys
from types import ModuleType, TracebackType

from .. import defaults
from . import install, knobs

USAGE = """\
python -m trainyard.as_ray [OPTION...] SCRIPT.py [ARG...]
       python -m trainyard.as_ray [OPTION...] -m MODULE [ARG...]"""

DESCRIPTION = """\
Runs a program that was written for Ray Train, unchanged, on Trainyard. The options say which nodes there are where the program's
ray.init() does not; without any, they are this machine."""


def parser() -> argparse.ArgumentParser:
    width = max(map(len, knobs.COUNTS)) + 2
    options = argparse.ArgumentParser(
        prog="trainyard.as_ray",
        usage=USAGE,
        description=DESCRIPTION,
        epilog="variables of the environment:\n"
        + "\n".join(f"  {name:{width}}{text}" for name, text in knobs.COUNTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--engine", choices=("auto", "local", "slurm"), help="where the workers run")
    options.add_argument(
        "--cluster", metavar="FILE", help="the nodes of a cluster file, as logical nodes of this machine"
    )
    options.add_argument(
        "--num-cpus", type=float, metavar="N", help="CPUs of this machine, instead of those found"
    )
    options.add_argument(
        "--num-gpus", type=float, metavar="N", help="GPUs of this machine, instead of those found"
    )
    options.add_argument(
        "--node-resources", type=amounts, metavar="NAME=AMOUNT[,...]", help="other resources of this machine"
    )
    options.add_argument(
        "--nnodes", type=node_counts, metavar="N|MIN:MAX", help="this many machines, on each of which the program is started"
    )
    options.add_argument("--node-rank", type=int, metavar="I", help="which of them this is, from 0")
    options.add_argument(
        "--rendezvous",
        metavar="HOST:PORT",
        help="where they meet, on the machine of rank 0; all have one key in TRAINYARD_RUN_KEY",
    )
    options.add_argument(
        "--hosts", metavar="HOST[:SLOTS][,...]", help="hosts on which agents are started by ssh (docs/ssh.md)"
    )
    options.add_argument("--hostfile", metavar="FILE", help="the same from a file")
    options.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="run a module instead of a script",
    )
    options.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return options


def amounts(text: str) -> dict[str, float]:
    """ "a=1,b=0.5" as a dict."""
    found = {}
    for item in text.split(","):
        name, sign, amount = item.partition("=")
        try:
            found[name.strip()] = float(amount)
        except ValueError:
            sign = ""
        if not sign or not name.strip():
            raise argparse.ArgumentTypeError(f"{item!r} is not NAME=AMOUNT")
    return found


def node_counts(text: str) -> tuple[int, int]:
    """ "4" or "2:4"."""
    least, _, most = text.partition(":")
    try:
        return int(least), int(most or least)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not N or MIN:MAX") from None


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    if not options.module and not options.program:
        parser().error("which program? Give SCRIPT.py or -m MODULE")
    install()
    sys.excepthook = show
    take_nodes(options)
    if options.module:
        run_module(options.module)
    else:
        run_script(options.program)


def take_nodes(options: argparse.Namespace) -> None:
    """What the options say of nodes, as defaults of every run of the program."""
    joined = {name: getattr(options, name) for name in ("nnodes", "node_rank", "rendezvous")}
    given = any(value is not None for value in joined.values())
    if given and (options.engine or options.cluster):
        parser().error("--nnodes, --node-rank and --rendezvous say where workers run: leave out --engine and --cluster")
    try:
        defaults.init(
            **joined,
            engine="join" if given else options.engine,
            cluster=options.cluster,
            hosts=options.hosts,
            hostfile=options.hostfile,
            num_cpus=options.num_cpus,
            num_gpus=options.num_gpus,
            resources=options.node_resources,
        )
    except ValueError as error:
        parser().error(str(error))


def show(kind: type, error: BaseException, trace: TracebackType | None) -> None:
    """The traceback of an exception that nothing caught, from the program's own first frame on."""
    here = trace
    while here is not None and here.tb_frame.f_code.co_filename in (
        __file__,
        runpy.run_module.__code__.co_filename,
    ):
        here = here.tb_next
    if here is None and isinstance(error, ImportError):  # there is no such module to run
        print(f"trainyard.as_ray: {error}", file=sys.stderr)
        return
    sys.__excepthook__(kind, error.with_traceback(here or trace), here or trace)


def begin(words: list[str], folder: str) -> None:
    """What the interpreter does before a program: its arguments, and its folder first on the path (not with -P)."""
    sys.argv = words
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def run_module(words: list[str]) -> None:
    begin(words, os.getcwd())
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def run_script(words: list[str]) -> None:
    """Runs the script as the interpreter would: as a fresh `__main__`, its folder first on the path."""
    path = os.path.abspath(words[0])
    try:
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec")
    except OSError as error:
        sys.exit(f"trainyard.as_ray: cannot open {words[0]}: {error.strerror}")
    main_module = ModuleType("__main__")
    main_module.__dict__.update(__file__=path, __builtins__=builtins, __spec__=None, __cached__=None)
    sys.modules["__main__"] = main_module
    begin(words, os.path.dirname(os.path.realpath(path)))
    exec(code, main_module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1:])
