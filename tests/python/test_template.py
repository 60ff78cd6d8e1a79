"""Workers forked from a template: what they are given, what is refused and why, and that nothing outlives a death.

Each test is a script of its own: agents and templates that rest belong to one driver.
"""

import os
import signal

import pytest
from conftest import BUILD, processes_with, wait_until

HEAD = """
import json, os, resource, signal, subprocess, sys, threading, time
import trainyard
from trainyard import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, init
from trainyard.trainer import BackendConfig

init(num_cpus=16)

def fit(train, workers=2, method="template", config=None, preload=(), failures=0):
    backend = BackendConfig()
    type(backend).preload = list(preload)
    trainer = DataParallelTrainer(train, train_loop_config=config, backend_config=backend,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path="runs", start_method=method, failure_config=FailureConfig(max_failures=failures)))
    return trainer.fit()

def facts():
    # what a worker is, as text that spawned and forked ones must agree about
    fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd))
    status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
    return {"group": os.getpgid(0) == os.getpid(), "fds": fds, "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
            "directory": os.getcwd(), "signals": {name: status[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt")},
            "variables": sorted(name for name in os.environ if name != "LC_CTYPE"), "stdin": sys.stdin.read(),
            "token": "TRAINYARD_TOKEN=" + os.environ["TRAINYARD_TOKEN"] in open("/proc/self/environ").read().split("\\0"),
            "own": int(os.environ["TRAINYARD_PID"]) == os.getpid(), "threads": len(os.listdir("/proc/self/task"))}
"""


@pytest.fixture
def run(start):
    """run(text, ...): the script after `head`, ended well."""

    def run(text, *arguments, head=HEAD, **environment):
        finished = start(head + text, *arguments, **environment).finish()
        assert finished.status == 0, finished
        return finished

    return run


def test_a_forked_worker_is_as_a_spawned_one(run):
    run("""
import pathlib
def train(config):
    if trainyard.get_context().get_world_rank() == 0:
        pathlib.Path(config["path"]).write_text(json.dumps(facts()))
seen = {}
for method in ("spawn", "template"):
    path = os.path.abspath(method)
    fit(train, method=method, config={"path": path})
    seen[method] = json.loads(pathlib.Path(path).read_text())
    glibc = 3 << 31  # signals 32 and 33 are its own: it takes them over as soon as a process has a thread
    ignored = int(seen[method]["signals"]["SigIgn"], 16)
    seen[method]["signals"]["SigIgn"] = ignored & ~glibc
    assert seen[method]["own"] and seen[method]["token"] and seen[method]["group"], seen
assert seen["spawn"] == seen["template"], seen
""")


def test_workers_draw_different_numbers_and_share_what_was_loaded(run, tmp_path):
    (tmp_path / "loaded.py").write_text("import os\nTEMPLATE = os.getpid()\nFILE = open(__file__)\n")
    finished = run("""
import loaded, random
def train():
    assert loaded.TEMPLATE != os.getpid() and os.pread(loaded.FILE.fileno(), 6, 0) == b"import"
    print("drawn", random.getrandbits(64), loaded.TEMPLATE)
for _ in range(2):
    fit(train, 3)
""")
    drawn = [line.split()[3:] for line in finished.out.splitlines()]
    assert len({draw for draw, _ in drawn}) == 6 and len({template for _, template in drawn}) == 2, drawn


@pytest.mark.parametrize("method", ["spawn", "template", "fork"])
def test_without_newer_system_calls(run, method):
    """As on an old kernel, or in a container that does not know them: each falls back on what does without."""
    program = os.path.abspath(os.path.join(BUILD, "tests", "e2e", "faults", "without_calls"))
    calls = "clone3,close_range,memfd_create,pidfd_open,pidfd_send_signal,renameat2"
    again = f"""
import os, sys
if "again" not in sys.argv:
    os.execv({program!r}, [{program!r}, {calls!r}, sys.executable, *sys.argv, "again"])
"""
    finished = run(
        """
def train(config):
    print("here", len(config["words"]))
for _ in range(2):
    fit(train, method=sys.argv[1], config={"words": "x" * 100000})
""",
        method,
        head=again + HEAD,
    )
    assert sorted(finished.out.splitlines()) == ["[rank 0] here 100000"] * 2 + ["[rank 1] here 100000"] * 2, finished


@pytest.mark.parametrize("method", ["spawn", "template", "fork"])
def test_who_rests_holds_nothing_of_the_driver(run, method):
    """What the driver had open, also for its children and as its standard streams, ends when the driver closes it."""
    run(
        """
import socket
def train():
    pass
ends = []
for fd in (None, None, 1, 2):
    ours, theirs = socket.socketpair()
    ours.settimeout(100)
    if fd is None:
        os.set_inheritable(theirs.fileno(), True)
    else:
        os.dup2(theirs.fileno(), fd)
    ends.append((ours, theirs, fd))
for _ in range(2):
    fit(train, method=sys.argv[1])
for ours, theirs, fd in ends:
    theirs.close()
    if fd is not None:
        os.close(fd)
    while ours.recv(1 << 16):
        pass
""",
        method,
    )


@pytest.mark.parametrize("method", ["spawn", "template"])
def test_what_a_module_of_the_user_seeds_stays_seeded(run, tmp_path, method):
    """Workers that are started afresh would each import it, and draw the same."""
    (tmp_path / "seeded.py").write_text(
        "import random, numpy, torch\nrandom.seed(7), numpy.random.seed(7), torch.manual_seed(7)\nrandom.random()\n"
    )
    finished = run(
        """
sys.path.insert(0, os.getcwd())
import seeded, random, numpy, torch
random.seed(7), random.random()
expected = [random.getrandbits(64), numpy.random.bytes(8).hex(), torch.rand(1).item()]
def train():
    assert seeded
    print("drawn", [random.getrandbits(64), numpy.random.bytes(8).hex(), torch.rand(1).item()] == expected)
fit(train, method=sys.argv[1], preload=["torch"])
""",
        method,
        OMP_NUM_THREADS="1",
    )
    assert sorted(finished.out.splitlines()) == ["[rank 0] drawn True", "[rank 1] drawn True"], finished


def test_what_nobody_seeds_differs(run):
    finished = run(
        """
import random, numpy, torch
def train():
    print("drawn", random.getrandbits(64), numpy.random.bytes(8).hex(), torch.rand(1).item())
for _ in range(2):
    fit(train, preload=["torch"])
""",
        OMP_NUM_THREADS="1",
    )
    drawn = [line.split()[3:] for line in finished.out.splitlines()]
    assert [len(set(kind)) for kind in zip(*drawn)] == [4, 4, 4], drawn


def test_what_was_imported_serves_later_runs(run, tmp_path):
    """Also where a run's own variables, as those of its ports, differ from those of the run before."""
    (tmp_path / "imported").mkdir()
    (tmp_path / "imported" / "heavy.py").write_text("import os\nopen('imports', 'a').write(f'{os.getpid()}\\n')\n")
    finished = run("""
import socket
os.environ["PYTHONPATH"] = os.pathsep.join(["imported", os.environ.get("PYTHONPATH", "")])
def train():
    trainyard.report({"port": os.environ["MASTER_PORT"]})
taken = {}
for _ in range(3):
    port = int(fit(train, preload=["heavy"]).metrics["port"])
    taken[port] = socket.create_server(("", port))
print(len(taken))
""")
    assert finished.out == "3\n", "each run had a port of its own"
    assert len((tmp_path / "imports").read_text().splitlines()) == 1, "one zygote for all"


def test_each_run_sees_the_users_code_of_today(run):
    run("""
import importlib, pathlib
sys.path.insert(0, os.getcwd())
sys.dont_write_bytecode = True
def train(config):
    import changing
    assert changing.value == config["value"], (changing.value, config)
for value in ("one", "second"):
    pathlib.Path("changing.py").write_text(f"value = {value!r}")
    fit(train, config={"value": value})
""")


def test_a_thread_that_an_import_started_is_named(run, tmp_path):
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), name='watcher', daemon=True).start()\n"
    )
    finished = run("""
import subprocess
sys.path.insert(0, os.getcwd())
import threaded
def train():
    assert threaded
    trainyard.report({"x": 1})
assert fit(train, method="auto").metrics == {"x": 1}
try:
    fit(train, method="template")
except Exception as error:
    assert "start_method" in str(error) and "watcher" in str(error), error
else:
    sys.exit("a fork that is unsafe was made")
""")
    assert "fresh processes, not forked from a template" in finished.err, finished
    assert "other thread (watcher) run" in finished.err, finished


def test_a_temporary_directory_of_a_module_is_each_worker_s_own(run, tmp_path):
    (tmp_path / "scratch.py").write_text(
        "import os, tempfile\nPLACE = tempfile.TemporaryDirectory()\n"
        "open(os.path.join(PLACE.name, str(os.getpid())), 'w').close()\n"
    )
    finished = run("""
sys.path.insert(0, os.getcwd())
import scratch
def train():
    if trainyard.get_context().get_world_rank() == 0:
        time.sleep(0.3)
    trainyard.report({"is": os.listdir(scratch.PLACE.name), "pid": str(os.getpid())})
metrics = fit(train, method="auto").metrics
assert metrics["is"] == [metrics["pid"]], metrics
""")
    assert "made the temporary directory" in finished.err, finished
    left = lambda: [path for path in tmp_path.rglob("*") if path.is_file() and path.name.isdigit()]
    assert wait_until(lambda: left() == []), "those of the template and of the workers go with them"


def test_what_a_module_does_at_exit_is_done_in_each_worker(run, tmp_path):
    (tmp_path / "leaving.py").write_text(
        "import atexit, os\n"
        "atexit.register(lambda: os.mkdir(f'left-{os.getpid()}-{os.environ.get(\"RANK\")}'))\n"
    )
    run("""
sys.path.insert(0, os.getcwd())
import leaving
def train():
    assert leaving
fit(train)
fit(train)
""")
    assert sorted(path.name.rsplit("-", 1)[1] for path in tmp_path.glob("left-*")) == [
        "0",
        "0",
        "1",
        "1",
        "None",
    ]


def test_a_module_that_cannot_be_imported(run):
    finished = run("""
def train():
    trainyard.report({"x": 1})
assert fit(train, method="auto", preload=["no_such_module"]).metrics == {"x": 1}
""")
    assert "No module named 'no_such_module'" in finished.err, finished


@pytest.mark.parametrize("way", ["os.kill(os.getpid(), 11)", "os._exit(3)"])
def test_a_template_that_dies_is_told(run, tmp_path, way):
    (tmp_path / "deadly.py").write_text(
        f"import os, sys\nprint('its last words', flush=True)\nif 'TRAINYARD_DRIVER' not in os.environ: {way}\n"
    )
    run("""
os.environ["TRAINYARD_DRIVER"] = "1"
sys.path.insert(0, os.getcwd())
import deadly
del os.environ["TRAINYARD_DRIVER"]
def train():
    assert deadly
try:
    fit(train)
except Exception as error:
    assert "its last words" in str(error), error
else:
    sys.exit("nothing was told")
""")


def test_an_import_without_end_is_ended(run, tmp_path):
    (tmp_path / "endless.py").write_text("import os, time\nif 'DRIVER' not in os.environ: time.sleep(600)\n")
    run(
        """
sys.path.insert(0, os.getcwd())
os.environ["DRIVER"] = "1"
import endless
del os.environ["DRIVER"]
def train():
    assert endless
try:
    fit(train)
except Exception as error:
    assert "did not answer within 300 ms" in str(error), error
else:
    sys.exit("nothing was told")
""",
        TRAINYARD_TEMPLATE_LIMIT="300ms",
    )


def test_a_killed_worker_is_forked_again_by_the_same_template(run, tmp_path):
    (tmp_path / "loaded.py").write_text("import os\nTEMPLATE = os.getpid()\n")
    run("""
sys.path.insert(0, os.getcwd())
import loaded, pathlib
def train():
    with open(f"templates-{trainyard.get_context().get_world_rank()}", "a") as file:
        print(loaded.TEMPLATE, file=file)
    if trainyard.get_context().get_attempt() == 1 and trainyard.get_context().get_world_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
fit(train, failures=1)
lines = pathlib.Path("templates-1").read_text().split()
assert len(lines) == 2 and lines[0] == lines[1], lines
""")


WAITING = """
def train():
    open(f"ready-{trainyard.get_context().get_world_rank()}-{os.getpid()}-{os.getppid()}", "w").close()
    time.sleep(600)
fit(train)
"""


def workers_of(place):
    """[(worker, agent)] once both are there."""
    found = wait_until(
        lambda: (
            [f.name.split("-")[2:] for f in place.glob("ready-*")]
            if len(list(place.glob("ready-*"))) == 2
            else []
        )
    )
    return [(int(pid), int(agent)) for pid, agent in found]


@pytest.mark.parametrize("victim", ["agent", "driver"])
def test_nothing_outlives_a_kill(start, place, victim):
    script = start(HEAD + WAITING)
    pairs = workers_of(place)
    assert len(pairs) == 2 and len(processes_with(str(place))) >= 6, script.finish(1)
    os.kill(pairs[0][1] if victim == "agent" else script.process.pid, signal.SIGKILL)
    script.finish()
    assert wait_until(lambda: not processes_with(str(place))), processes_with(str(place))


def test_a_driver_that_ends_takes_what_rests_along(start, place):
    text = "def train(): pass\nfit(train)\nprint('done', flush=True)\nsys.stdin = None\ntime.sleep(600)\n"
    script = start(HEAD + text)
    assert script.process.stdout.readline() == "done\n"
    assert len(processes_with(str(place))) >= 3  # driver, agent, zygote
    os.kill(script.process.pid, signal.SIGKILL)
    script.finish()
    assert wait_until(lambda: not processes_with(str(place))), processes_with(str(place))


def test_a_stop_while_modules_are_imported(start, place):
    (place / "endless.py").write_text(
        "import os, time\nif 'DRIVER' not in os.environ:\n    open('importing', 'w').close()\n    time.sleep(600)\n"
    )
    script = start(
        HEAD
        + """
sys.path.insert(0, os.getcwd())
os.environ["DRIVER"] = "1"
import endless
del os.environ["DRIVER"]
def train():
    assert endless
fit(train)
"""
    )
    assert wait_until(lambda: (place / "importing").exists()), script.finish(1)
    os.kill(script.process.pid, signal.SIGINT)
    assert script.finish().status != 0
    assert wait_until(lambda: not processes_with(str(place))), processes_with(str(place))


@pytest.mark.parametrize("method", ["spawn", "template"])
def test_what_the_driver_changed_between_runs_is_so_in_workers(run, method):
    """An agent that rests has what the driver was when it was started; another is, then."""
    finished = run(
        """
def train():
    mask = os.umask(0)
    print("has", mask, resource.getrlimit(resource.RLIMIT_CORE)[0], resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.nice(0))
os.umask(0o022)
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
before = os.nice(0)
fit(train, 1, sys.argv[1])
os.umask(0o077)
fit(train, 1, sys.argv[1])
os.umask(0o022)
resource.setrlimit(resource.RLIMIT_NOFILE, (300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.nice(1)
fit(train, 1, sys.argv[1])
print(before)
""",
        method,
    )
    *told, before = finished.out.splitlines()
    nice = int(before)
    assert told == [
        f"[rank 0] has {0o022} 0 200 {nice}",
        f"[rank 0] has {0o077} 0 200 {nice}",
        f"[rank 0] has {0o022} 0 300 {min(19, nice + 1)}",
    ]


@pytest.mark.parametrize("policy", ["SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE"])
def test_workers_have_the_scheduling_policy_of_the_driver(run, policy):
    finished = run(
        """
def train():
    print(*map(os.sched_getscheduler, (0, os.getppid())))
os.sched_setscheduler(0, getattr(os, sys.argv[1]), os.sched_param(0))
for method in ("spawn", "template"):
    fit(train, 1, method)
""",
        policy,
    )
    own = getattr(os, policy)
    assert finished.out == f"[rank 0] {own} {own if own != os.SCHED_OTHER else os.SCHED_BATCH}\n" * 2


def test_an_agent_sees_the_devices_that_the_driver_sees_by_now(run):
    """It looks at the hardware itself. Other variables are told with each run, and change nothing of who rests."""
    finished = run("""
def agents():
    pids = [int(pid) for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split()]
    return {pid: dict(e.split("=", 1) for e in open(f"/proc/{pid}/environ").read().split("\\0") if "=" in e) for pid in pids}
def train():
    pass
seen = []
for name, value in (("OTHER", "1"), ("OTHER", "2"), ("CUDA_VISIBLE_DEVICES", "0"), ("CUDA_VISIBLE_DEVICES", "1")):
    os.environ[name] = value
    fit(train, 1, "spawn")
    (agent,) = agents().items()
    seen.append(agent)
print(seen[0][0] == seen[1][0], [variables.get("CUDA_VISIBLE_DEVICES") for _, variables in seen])
""")
    assert finished.out == "True [None, None, '0', '1']\n"


@pytest.mark.parametrize("method", ["spawn", "template"])
def test_whom_a_worker_waits_for_at_its_end_is_told(start, method):
    """A thread that is no daemon keeps it, as any process of Python."""
    script = start(
        HEAD
        + """
def train():
    threading.Thread(target=threading.Event().wait, name="prefetcher").start()
fit(train, 1, sys.argv[1])
""",
        method,
    )
    told = next(line for line in script.process.stderr if "waits for" in line)
    assert told == "[rank 0] trainyard: the worker has come to its end, and waits for its threads: prefetcher\n"
    script.process.send_signal(signal.SIGTERM)
    assert script.finish().status != 0
