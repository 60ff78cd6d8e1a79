"""`start_method="fork"`: workers forked from the driver, what they share with it, what is refused, and that nothing is left.

Each test is a script of its own, as in test_template.py.
"""

import functools
import os
import signal

import pytest
from conftest import processes_with, wait_until
from test_template import HEAD, WAITING, run, workers_of  # noqa: F401

FORK = HEAD.replace('method="template"', 'method="fork"')


@pytest.fixture
def forked(run):  # noqa: F811
    """forked(text, ...): as `run`, with start_method "fork"."""
    return functools.partial(run, head=FORK)


def test_what_cannot_be_pickled_is_there(forked):
    finished = forked("""
lock, file, imported = threading.Lock(), open(__file__), os.getpid()
pipe = os.pipe()
def outer(text):
    def train(config):
        with lock:
            assert os.pread(file.fileno(), 7, 1) == b"import ", file
        assert imported != os.getpid() and config["lock"] is lock
        os.write(pipe[1], b"x")
        trainyard.report({"text": text})
    return train
for text in ("one", "two"):
    assert fit(outer(text), config={"lock": lock}).metrics == {"text": text}
assert os.read(pipe[0], 100) == b"xxxx"
print("the end")
""")
    assert finished.out.splitlines() == ["the end"], finished


def test_a_worker_is_as_a_spawned_one(forked):
    forked("""
import pathlib
def train(config):
    if trainyard.get_context().get_world_rank() == 0:
        pathlib.Path(config["path"]).write_text(json.dumps(facts()))
seen = {}
for method in ("spawn", "fork"):
    path = os.path.abspath(method)
    fit(train, method=method, config={"path": path})
    seen[method] = json.loads(pathlib.Path(path).read_text())
    assert seen[method]["own"] and seen[method]["token"] and seen[method]["group"], seen
    del seen[method]["fds"]
library = 3 << 31  # signals 32 and 33, which nobody can set
for seen_in in seen.values():
    seen_in["signals"] = {name: int(mask, 16) & ~library for name, mask in seen_in["signals"].items()}
seen["spawn"]["variables"].remove("TRAINYARD_PAYLOAD_FD")  # nothing is sent to forked ones
for name in seen["spawn"]:
    assert seen["spawn"][name] == seen["fork"][name], (name, seen["spawn"][name], seen["fork"][name])
""")


def test_the_state_of_the_driver_is_that_of_each_fit(forked):
    forked("""
state = {}
def train():
    trainyard.report(dict(state))
for n in range(3):
    state["n"] = n
    assert fit(train).metrics == {"n": n}
""")


def test_a_killed_worker_is_forked_again_from_the_same_copy(forked):
    forked("""
import pathlib
copied = []
def train():
    context = trainyard.get_context()
    with open(f"seen-{context.get_world_rank()}", "a") as file:
        print(os.getppid(), len(copied), file=file)
    if context.get_attempt() == 1 and context.get_world_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
fit(train, failures=1)
lines = pathlib.Path("seen-1").read_text().splitlines()
assert len(lines) == 2 and lines[0] == lines[1], lines
""")


def test_each_worker_draws_its_own_numbers(forked):
    finished = forked(
        """
import random, numpy
random.seed(1), numpy.random.seed(1)
def train():
    print("drawn", random.getrandbits(64), numpy.random.bytes(8).hex())
for _ in range(2):
    fit(train)
""",
        OPENBLAS_NUM_THREADS="1",
    )
    drawn = [line.split()[3:] for line in finished.out.splitlines()]
    assert len({pair[0] for pair in drawn}) == len({pair[1] for pair in drawn}) == 4, drawn


def test_what_the_driver_does_at_its_end_and_on_signals_is_its_own(forked):
    finished = forked("""
import atexit, logging
atexit.register(lambda: print("exit of", "driver" if os.getpid() == driver else "worker", flush=True))
driver = os.getpid()
signal.signal(signal.SIGUSR1, lambda *_: None)
logging.basicConfig(format="logged %(message)s")
print("before, without a newline", end="")
def train():
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    atexit.register(lambda: print("exit of the function", end=""))
    logging.warning("once a worker")
fit(train)
""")
    assert sorted(finished.out.replace("newline[", "newline\n[").splitlines()) == sorted(
        [
            "before, without a newline",
            "[rank 0] exit of the function",
            "[rank 1] exit of the function",
            "exit of driver",
        ]
    ), finished
    assert finished.err.count("logged once a worker") == 2, finished


def test_torch_is_imported_once(forked):
    """A library that starts threads at its import is held to one, as the refusal says."""
    forked(
        """
import torch
from trainyard.torch import TorchTrainer
imported = os.getpid()
def train():
    import torch.distributed as dist
    mine = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(mine)
    trainyard.report({"sum": mine.item(), "imported": imported})
run_config = RunConfig(storage_path="runs", start_method="fork")
found = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=run_config).fit().metrics
assert found == {"sum": 3.0, "imported": os.getpid()}, found
""",
        OPENBLAS_NUM_THREADS="1",
        OMP_NUM_THREADS="1",
    )


@pytest.mark.parametrize(
    "before, told",
    [
        ("threading.Thread(target=time.sleep, args=(600,), name='watcher', daemon=True).start()", "watcher"),
        (
            "open('nodes.yaml', 'w').write('nodes: [{name: a, resources: {CPU: 4}}]'); init(cluster='nodes.yaml')",
            "cluster",
        ),
        ("init(engine='slurm')", "slurm"),
    ],
)
def test_where_it_is_unsafe_it_is_refused(forked, before, told):
    forked(
        """
def train():
    open("started", "w").close()
try:
    exec(sys.argv[1])
    fit(train)
except ValueError as error:
    assert "start_method" in str(error) and sys.argv[2] in str(error) and "\\n" not in str(error), error
else:
    sys.exit("an unsafe fork was made")
assert not os.path.exists("started") and not os.path.exists("runs")
os._exit(0)
""",
        before,
        told,
    )


def test_a_request_that_cannot_fit_leaves_no_copy(forked):
    forked("""
def train():
    pass
try:
    fit(train, workers=17)
except Exception as error:
    assert "CPU" in str(error), error
else:
    sys.exit("there was no room")
children = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
assert [line for line in children.splitlines() if " ps " not in line] == [], children
""")


def test_an_exception_keeps_its_class(forked):
    forked("""
class Mine(Exception):
    pass
def train():
    raise Mine("of the driver's own module")
try:
    fit(train)
except trainyard.WorkerGroupError as error:
    assert "of the driver's own module" in str(error), error
else:
    sys.exit("it was not told")
""")


@pytest.mark.parametrize("victim", ["agent", "driver"])
def test_nothing_outlives_a_kill(start, place, victim):
    """Nor what a worker has only forked, which is found by what /proc shows of it."""
    script = start(FORK + WAITING.replace("def train():\n", "def train():\n    os.fork()\n"))
    ready = wait_until(lambda: found if len(found := list(place.glob("ready-*"))) == 4 else [])
    pids = [int(file.name.split("-")[2]) for file in ready]
    parents = {int(file.name.split("-")[3]) for file in ready}
    agent = (parents - set(pids)).pop()
    os.kill(agent if victim == "agent" else script.process.pid, signal.SIGKILL)
    script.finish()
    assert wait_until(lambda: not processes_with(str(place)) and not any(map(lives, pids))), pids


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_an_interrupt_ends_it(start, place):
    script = start(FORK + WAITING)
    assert len(workers_of(place)) == 2, script.finish(1)
    os.kill(script.process.pid, signal.SIGINT)
    assert script.finish().status != 0
    assert wait_until(lambda: not processes_with(str(place))), processes_with(str(place))
