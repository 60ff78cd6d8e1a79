"""Workers of a Python program, forked from an interpreter that has imported torch before it comes to the program: each program
here runs both ways, executed and forked, and says the same. What cannot be forked without a difference is executed.

Most of them import a small package of that name, which takes no time.
"""

import os
import re
import subprocess
import sys
import textwrap

import pytest
from conftest import BUILD

pytest.importorskip("torch")

COMMAND = os.path.join(os.path.abspath(BUILD), "trainyard")
FORKED = "'_interpreter' in open('/proc/self/environ', errors='replace').read()"
FIRST = "import os, sys\nimport torch\n"


REAL = {"facts", "loader"}  # what the library itself takes part in


@pytest.fixture
def run(place):
    dropped = ("PET_", "TORCH", "TRAINYARD_", "OMP_", "MASTER_", "OMPI_", "JAX_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environment |= {"HOME": str(place), "TMPDIR": str(place), "TRAINYARD_LEASE_DIR": str(place / "leases")}

    site = environment.get("PYTHONPATH", "")
    write(place / "packages" / "torch" / "__init__.py", "'stands for the library'\n")

    def run(method, *words, n=2, options=(), set=(), real=False):
        environment["PYTHONPATH"] = site if real else f"{place / 'packages'}:{site}"
        words = [
            COMMAND,
            "run",
            "-n",
            n,
            "--start-method",
            method,
            "--progress",
            "none",
            *options,
            "--",
            *words,
        ]
        return subprocess.run(
            [*map(str, words)], cwd=place, env={**environment, **dict(set)}, capture_output=True, timeout=300
        )

    return run


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def outcome(place, finished):
    """Status, and what each rank wrote; only the one that failed first, if one has: the others are stopped somewhere."""
    failed = re.findall(rb"first cause: rank (\d)", finished.stderr)
    logs = max((place / "trainyard_runs").iterdir(), key=lambda path: path.stat().st_mtime_ns) / "logs"
    written = [logs / f"rank-{int(rank)}.log" for rank in failed or range(2)]
    return finished.returncode, [log.read_bytes() if log.exists() else b"" for log in written]


# Each says what a program can see of the interpreter that it runs in.
PROGRAMS = {
    "facts": FIRST
    + """
        import gc, signal
        import threading
        print(sys.argv, sys.orig_argv, sys.path, sys.flags, sys.executable, sys.warnoptions)
        print(__name__, __file__, __spec__, __package__, __doc__, type(__loader__), __annotations__, sorted(globals()))
        print(len(threading.enumerate()), threading.main_thread().native_id == os.getpid(), threading.stack_size())
        print(sorted(name for name in sys.modules if "trainyard" in name or "custom" in name), sys._getframe().f_back)
        print([(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), s.seekable()) for s in
            (sys.stdin, sys.stdout, sys.stderr)], sys.stdin.read())
        print(sorted(map(int, os.listdir("/proc/self/fd")))[:5], os.getsid(0) == os.getpid() == os.getpgrp(), os.getcwd())
        print(gc.isenabled(), gc.get_freeze_count(), gc.get_threshold(), [signal.getsignal(n) for n in (2, 13, 15)])
        print(torch.get_num_threads(), torch.get_num_interop_threads())
        print(sorted(k for k in os.environ if k != "TRAINYARD_PID"), os.environ.get("PYTHONPATH"), os.environ["OMP_NUM_THREADS"])
        print(int(os.environ["TRAINYARD_PID"]) == os.getpid())
        print(open("/proc/self/cmdline").read().split(chr(0)), open("/proc/self/comm").read())
    """,
    "text_exit": FIRST + "sys.exit('a last word')\n",
    "number_exit": FIRST + "sys.exit(37)\n",
    "os_exit": FIRST + "print('never seen' if False else 'seen', flush=True)\nos._exit(5)\n",
    "signal": FIRST + "import signal\nprint('before')\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "raises": FIRST
    + "def deep():\n    raise ValueError('middle')\ntry:\n    deep()\nexcept ValueError as e:\n    raise KeyError(1) from e\n",
    "hook": FIRST + "sys.excepthook = lambda *a: print(a[0], a[2].tb_lineno, a[2].tb_frame.f_back)\n1 / 0\n",
    "stack": FIRST
    + "import traceback, warnings\ntraceback.print_stack()\nwarnings.warn('mind', stacklevel=3)\n",
    "syntax": FIRST + "print('x'\n",
    "latin": "# -*- coding: latin-1 -*-\nimport torch\nprint(ascii('\u00e4'))\n",
    "wrong_bytes": FIRST + "print('\u00e4')\n",
    "ends": FIRST
    + """
        import atexit, threading, time
        atexit.register(print, "at the end")
        threading.Thread(target=lambda: (time.sleep(0.2), print("a thread"))).start()
        class Last:
            def __del__(self): print("deleted")
        last = Last()
        sys.stdout.write("no newline")
    """,
    "replaced": FIRST + "import io\nsys.stdout = io.StringIO()\nprint('lost')\nsys.stderr.write('kept\\n')\n",
    "forks": FIRST
    + """
        pid = os.fork()
        if pid == 0:
            print("child", flush=True); os._exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """,
    "processes": FIRST
    + """
        import multiprocessing, pickle
        class Own: pass
        def square(x): return x * x, __name__, type(Own()).__module__
        if __name__ == "__main__":
            for method in ("spawn", "fork"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, pool.map(square, [2, 3]))
            print(type(pickle.loads(pickle.dumps(Own()))))
        else:
            print("imported again")
    """,
    "loader": FIRST
    + """
        from torch.utils.data import DataLoader
        if __name__ == "__main__":
            print([b.tolist() for b in DataLoader(list(range(8)), batch_size=4, num_workers=2)])
    """,
    "late_variable": "import os\nos.environ['OMP_NUM_THREADS'] = '2'\nimport torch\nprint(os.environ['OMP_NUM_THREADS'])\n",
    "absent": "import torch\nimport torch.no_such_part\n",
}


def prepared(text):
    return (
        textwrap.dedent(text) if not text.startswith(FIRST) else FIRST + textwrap.dedent(text[len(FIRST) :])
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_cannot_tell_how_it_was_started(place, run, name):
    program = place / "of" / "train.py"
    program.parent.mkdir()
    program.write_text(prepared(PROGRAMS[name]), encoding="latin-1")
    found = []
    for method in ("spawn", "auto"):
        finished = run(method, sys.executable, "of/train.py", "one", "--two", real=name in REAL)
        found.append(outcome(place, finished))
    assert found[0] == found[1]


def test_what_the_environments_own_modules_and_imports_change_is_changed_in_workers(place, run):
    write(place / "packages" / "sitecustomize.py", "import os\nos.environ['OF_SITE'] = os.environ.get('PYTHONPATH', 'none')\n")
    write(place / "packages" / "torch" / "__init__.py", "import os\nos.environ['OF_TORCH'] = '1'\ndel os.environ['TO_GO']\n")
    write(
        place / "train.py",
        FIRST + "print(os.environ['OF_SITE'], os.environ['OF_TORCH'], 'TO_GO' in os.environ, sys.modules['sitecustomize'])\n",
    )
    said = [outcome(place, run(method, sys.executable, "train.py", set={"TO_GO": "1"}.items())) for method in ("spawn", "template")]
    assert said[0] == said[1] and said[0][0] == 0, said


def test_imports_that_print_are_executed_and_print(place, run):
    write(place / "packages" / "torch" / "__init__.py", "print('x' * 200000)\n")
    write(place / "train.py", FIRST)
    said = [outcome(place, run(method, sys.executable, "train.py")) for method in ("spawn", "auto")]
    assert said[0] == said[1] and len(said[0][1][0]) > 200000


def test_workers_are_forked(place, run):
    write(place / "train.py", FIRST + f"print({FORKED}, torch.__name__)")
    for words, real in (([sys.executable, "-u", "train.py"], True), ([sys.executable, "-m", "train"], False)):
        finished = run("template", *words, real=real)
        assert finished.stdout.count(b"True torch") == 2, finished
    assert run("spawn", sys.executable, "train.py").stdout.count(b"False torch") == 2


def test_a_module_of_a_package_imports_its_neighbours(place, run):
    write(place / "a" / "__init__.py", "'a package'\nSIZE = 3\n")
    write(place / "a" / "b.py", "value = 7\n")
    write(
        place / "a" / "c.py",
        FIRST
        + f"from .b import value\nfrom . import SIZE\nprint({FORKED}, value, SIZE, __spec__.name, sys.argv[1:])\n",
    )
    for method, forked in (("template", b"True"), ("spawn", b"False")):
        finished = run(method, sys.executable, "-m", "a.c", "x")
        assert finished.stdout.count(forked + b" 7 3 a.c ['x']") == 2, finished


@pytest.mark.parametrize(
    "files, reason",
    [
        ({"train.py": "import os\nos.environ['A'] = '1'\nimport torch\n"}, b"imports no torch before"),
        ({"train.py": "import own\nimport torch\n", "own.py": ""}, b"imports no torch before"),
        ({"train.py": "import torch\n", "ast.py": "from _ast import *"}, b"ast.py has the name of a module"),
        ({"train.py": "import torch.no_such_part\n"}, b"no_such_part"),
        ({"train.py": "print(1)\n"}, b"does not begin with an import of torch"),
    ],
)
def test_what_would_differ_is_executed_and_told_when_forks_were_demanded(place, run, files, reason):
    for name, text in files.items():
        write(place / name, text)
    finished = run("template", sys.executable, "train.py")
    assert finished.returncode == 4 and reason in finished.stderr, finished


@pytest.mark.parametrize(
    "words, set, reason",
    [
        ([sys.executable, "-O", "train.py"], {}, b"no script"),
        ([sys.executable, "-c", "import torch"], {}, b"no script"),
        (["./shim", "train.py"], {}, b"not an interpreter"),
        ([sys.executable, "train.py"], {"OMP_NUM_THREADS": "2"}, b"OMP_NUM_THREADS is not 1"),
        ([sys.executable, "train.py"], {"TORCH_TRACE": "traces"}, b"TORCH_TRACE"),
    ],
)
def test_other_command_lines_and_environments_are_executed(place, run, words, set, reason):
    write(place / "train.py", FIRST)
    write(place / "shim", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n').chmod(0o755)
    finished = run("template", *words, set=set.items())
    assert finished.returncode == 4 and reason in finished.stderr, finished


def test_a_restart_runs_the_program_as_it_is_then(place, run):
    write(place / "part.py", "value = 'old'\n")
    write(
        place / "train.py",
        FIRST
        + """
import time
from part import value
print("first", value, flush=True)
while os.environ["RANK"] == "0" and not os.path.exists("up"):
    time.sleep(0.01)
if os.environ["RANK"] == "0":
    os.unlink("up")
    with open("part.py", "w") as file:
        file.write("value = 'something new'\\n")
    os.rename("next.py", "train.py")
    sys.exit(1)
open("up", "w")
time.sleep(60)
""",
    )
    for text, forked in (("", "True"), ("sys.argv.append('x')\n", "False")):
        write(place / "part.py", "value = 'old'\n")
        first = (place / "train.py").read_text()
        write(
            place / "next.py",
            f"import os, sys\n{text}import torch\nfrom part import value\nprint('second', value, {FORKED})\n",
        )
        finished = run("auto", sys.executable, "train.py", options=["--max-failures", 1])
        assert (
            finished.returncode == 0 and finished.stdout.count(f"second something new {forked}".encode()) == 2
        ), finished
        (place / "train.py").write_text(first)


def test_a_program_that_is_gone_at_the_restart_is_told_by_python(place, run):
    write(
        place / "train.py",
        FIRST
        + "import time\nif os.environ['RANK'] == '0':\n    while not os.path.exists('up'): time.sleep(0.01)\n"
        "    os.unlink('train.py')\n    sys.exit(1)\nopen('up', 'w')\ntime.sleep(60)\n",
    )
    finished = run("auto", sys.executable, "train.py", options=["--max-failures", 1])
    assert finished.returncode == 2 and b"can't open file" in finished.stderr, finished


def test_a_template_that_is_killed_is_made_again(place, run):
    write(
        place / "train.py",
        FIRST
        + f"""
import glob, time
if os.environ["TRAINYARD_ATTEMPT"] == "2":
    print("second", {FORKED})
    sys.exit()
with open("pid" + os.environ["RANK"], "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, file.name + ".up")
while len(glob.glob("pid*.up")) < 2:
    time.sleep(0.01)
if os.environ["RANK"] == "1":
    time.sleep(60)
workers = [int(open(name).read()) for name in glob.glob("pid*.up")]
agent = os.getppid()
children = [int(pid) for pid in open(f"/proc/{{agent}}/task/{{agent}}/children").read().split()]
templates = [pid for pid in children if pid not in workers]
print("killed", len(templates), flush=True)
for pid in templates:
    os.kill(pid, 9)
sys.exit(1)
""",
    )
    finished = run("auto", sys.executable, "train.py", options=["--max-failures", 1])
    assert b"killed 2" in finished.stdout and finished.stdout.count(b"second True") == 2, finished


@pytest.mark.parametrize("imported", ["os._exit(0)", "os.kill(os.getpid(), 11)", "raise ValueError('of torch')", "time.sleep(1e9)"])
def test_imports_that_fail_fail_in_the_worker(place, run, imported):
    """Those that hang, hang there as well."""
    write(place / "packages" / "torch" / "__init__.py", f"import os, time\n{imported}\n")
    write(place / "train.py", FIRST)
    options = ["--time-limit", "2s"] if "sleep" in imported else []
    said = []
    for method in ("spawn", "auto"):
        finished = run(method, sys.executable, "train.py", options=options, set={"TRAINYARD_TEMPLATE_LIMIT": "100ms"}.items())
        said.append(outcome(place, finished))
    assert said[0] == said[1]


def test_random_numbers_are_each_ranks_own(place, run):
    write(
        place / "train.py",
        "import random\nimport numpy\nimport torch\nprint('drew', random.random(), numpy.random.rand(), torch.initial_seed())\n",
    )
    drawn = re.findall(
        rb"drew (\S+) (\S+) (\S+)", run("template", sys.executable, "train.py", real=True).stdout
    )
    assert len(drawn) == 2 and len({number for rank in drawn for number in rank}) == 6, drawn
