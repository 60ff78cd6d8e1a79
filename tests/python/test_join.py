"""Several nodes, on each of which the same program is started: here over loopback."""

import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import textwrap

import pytest
import trainyard
from conftest import free_port, wait_until

PROGRAM = """
import os, sys, time
import trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig

def train(config):
    context = trainyard.get_context()
    seen = int("TRAINYARD_RUN_KEY" in os.environ)
    trainyard.report({"rank": context.get_world_rank(), "node": context.get_node_rank(), "key": seen})
    if config["fails"] == context.get_world_rank():
        raise ValueError("as asked")
    if config["fails"] == 99:
        open(f"{config['place']}/works.{context.get_world_rank()}", "w").close()
        time.sleep(600)

trainyard.init(engine="join", nnodes=2, node_rank=int(sys.argv[1]), rendezvous=sys.argv[2], num_cpus=8)
scaling = ScalingConfig(num_workers=4, placement_strategy="SPREAD")
result = DataParallelTrainer(train, train_loop_config={"fails": int(sys.argv[4]), "place": sys.argv[3]}, scaling_config=scaling,
                             run_config=RunConfig(name="joined", storage_path=sys.argv[3], outlive_s=0)).fit()
print(result.metrics)
"""


UNCHANGED = """
import os
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, get_context, report

def train():
    seen = sorted(name for name in os.environ if name in ("TRAINYARD_NNODES", "TRAINYARD_NODE_RANK", "TRAINYARD_RENDEZVOUS"))
    report({"node": get_context().get_node_rank(), "world": get_context().get_world_size(), "seen": seen})

result = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
                             run_config=RunConfig(name="joined", storage_path=os.path.dirname(__file__))).fit()
print(result.metrics)
"""


def begin(tmp_path, fails, ranks):
    """The port where they meet, and their processes."""
    port = free_port()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = dict(os.environ, TRAINYARD_RUN_KEY=secrets.token_hex(32))
    words = [sys.executable, str(program)]
    return port, [
        subprocess.Popen(
            [*words, str(rank), f"127.0.0.1:{port}", str(tmp_path), str(fails)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ranks
    ]


def start(tmp_path, fails):
    _, nodes = begin(tmp_path, fails, (1, 0))
    return [(*node.communicate(timeout=300), node.returncode) for node in reversed(nodes)]


def test_the_node_of_rank_0_has_the_result(tmp_path):
    (out, err, status), (other_out, other_err, other_status) = start(tmp_path, -1)
    assert (status, other_status) == (0, 0), err + other_err
    assert out == "{'rank': 0, 'node': 0, 'key': 0}\n"
    assert other_out == ""


def test_a_program_for_ray_train_runs_on_all_of_them(tmp_path):
    """The options win over what it says of an address; a name that it does not give is that of the first node."""
    program = """
    import json, ray, ray.train
    from ray.train.data_parallel_trainer import DataParallelTrainer

    def train():
        context = ray.train.get_context()
        ranks = ray.train.collective.broadcast_from_rank_zero(context.get_world_size())
        ray.train.report({"size": ranks, "node": context.get_node_rank()})
        return context.get_local_world_size()

    ray.init(address="10.0.0.1:6379")
    scaling = ray.train.ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD")
    result = DataParallelTrainer(train, scaling_config=scaling).fit()
    print(json.dumps([result.metrics, result.return_value]))
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    env = dict(os.environ, TRAINYARD_RUN_KEY=secrets.token_hex(32), HOME=str(tmp_path))
    words = [sys.executable, "-m", "trainyard.as_ray", "--num-cpus", "4", "--nnodes", "2"]
    words += ["--rendezvous", f"127.0.0.1:{free_port()}", "--node-rank"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    nodes = [subprocess.Popen([*words, rank, "program.py"], cwd=tmp_path, env=env, **pipes) for rank in "10"]
    (other_out, other_err), (out, err) = (node.communicate(timeout=300) for node in nodes)
    assert [node.returncode for node in nodes] == [0, 0], err + other_err
    assert json.loads(out) == [{"size": 2, "node": 0}, 1] and other_out == b""
    assert b"left aside" not in err


def test_a_failure_ends_all(tmp_path):
    (out, err, status), (_, other_err, other_status) = start(tmp_path, 3)
    assert out == ""
    assert "as asked" in err
    assert status == other_status == 1, err + other_err


def test_a_node_waits_for_another_controller(tmp_path):
    _, (first, second) = begin(tmp_path, 99, (0, 1))
    wait_until(lambda: len(list(tmp_path.glob("works.*"))) == 4, 60)
    first.kill()
    first.communicate()
    while "the controller is lost" not in (line := second.stderr.readline()):
        assert line != ""
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=180)
    assert second.returncode == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_nodes(tmp_path, number):
    port, (node,) = begin(tmp_path, -1, [0])
    wait_until(lambda: f":{port:04X} 00000000:0000 0A" in pathlib.Path("/proc/net/tcp").read_text(), 60)
    if number == signal.SIGTERM:  # who is missing is told meanwhile
        told = f"trainyard: 1 of 2 nodes are here at 127.0.0.1:{port}; missing: node 1 (nothing was heard of it)\n"
        assert node.stderr.readline() == told
    node.send_signal(number)
    _, err = node.communicate(timeout=180)
    assert node.returncode == -number
    assert (
        f"trainyard: interrupted: 1 of 2 nodes have come to 127.0.0.1:{port}; missing: node 1 (nothing was heard"
        in err
    )
    assert not (tmp_path / "joined").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"engine": "join"},
        {"nnodes": 2},
        {"engine": "join", "nnodes": 2, "node_rank": 2, "rendezvous": "a:1"},
        {"engine": "join", "nnodes": (3, 2), "node_rank": 0, "rendezvous": "a:1"},
        {"engine": "join", "nnodes": 2, "node_rank": 0, "rendezvous": ""},
    ],
)
def test_what_is_missing_or_wrong_is_named(given):
    with pytest.raises(ValueError, match="init"):
        trainyard.init(**given)
    trainyard.init()


CLOSES = """
import os, socket, sys, time, trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, UserCallback

pairs, again = [], []

class Closes(UserCallback):
    def after_report(self, **arguments):
        os.closerange(3, 4096)
        pairs.extend(socket.socketpair() for _ in range(60))
        again.extend(os.dup(end.fileno()) for pair in pairs for end in pair)

def train(config):
    trainyard.report({"a": 1})
    time.sleep(600)

trainyard.init(engine="join", nnodes=3, node_rank=int(sys.argv[1]), rendezvous=sys.argv[2], num_cpus=8)
scaling = ScalingConfig(num_workers=2, placement_strategy="SPREAD")
run = RunConfig(name="joined", storage_path=sys.argv[3], callbacks=[Closes()], outlive_s=float(sys.argv[4]))
try:
    DataParallelTrainer(train, scaling_config=scaling, run_config=run).fit()
except ValueError as error:
    print(error)
for number in again:
    os.set_blocking(number, False)
    try:
        print("heard:", os.read(number, 1000))
    except BlockingIOError:
        pass
"""


def start_that_closes(tmp_path, outlive):
    """One of the three nodes waits without workers."""
    program = tmp_path / "closes.py"
    program.write_text(CLOSES)
    meeting = f"127.0.0.1:{free_port()}"
    env = dict(os.environ, TRAINYARD_RUN_KEY=secrets.token_hex(32))
    return [
        subprocess.Popen(
            [sys.executable, str(program), str(rank), meeting, str(tmp_path), outlive],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]


def test_nodes_of_one_who_closes_the_descriptors_of_the_run_hear_of_its_end(tmp_path):
    """They do not wait for another controller, though workers might outlive this one for an hour."""
    nodes = start_that_closes(tmp_path, "3600")
    out, err = nodes[0].communicate(timeout=300)
    assert "closed the run's descriptors" in out, err
    for node in nodes[1:]:
        _, err = node.communicate(timeout=50)  # they would look for one for a minute
        assert node.returncode == 2, err


def test_who_closes_the_descriptors_of_the_run_finds_nothing_written_to_his_own(tmp_path):
    nodes = start_that_closes(tmp_path, "2")
    out, err = nodes[0].communicate(timeout=300)
    assert "closed the run's descriptors" in out, err
    assert r"\x17\x03\x03" not in out  # a record of TLS
    for node in nodes[1:]:
        while "the controller is lost" not in (line := node.stderr.readline()):
            assert line != ""
        node.send_signal(signal.SIGINT)
        node.communicate(timeout=300)


TAKEN_AWAY = """
import os, time
import trainyard
from trainyard import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig

def train(place):
    open(f"{place}/began-{os.environ['RANK']}", "w").close()
    while not trainyard.stop_requested():
        time.sleep(0.05)

place = os.path.dirname(os.path.abspath(__file__))
config = RunConfig(name="taken", storage_path=place, failure_config=FailureConfig(max_preemption_failures=0))
scaling = ScalingConfig(num_workers=2, placement_strategy="SPREAD")
DataParallelTrainer(lambda: train(place), scaling_config=scaling, run_config=config).fit()
"""


def test_by_variables_alone(tmp_path):
    (tmp_path / "program.py").write_text(UNCHANGED)
    meeting = {"TRAINYARD_NNODES": "2", "TRAINYARD_RENDEZVOUS": f"127.0.0.1:{free_port()}"}
    nodes = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "program.py")],
            env={**os.environ, **meeting, "TRAINYARD_NODE_RANK": rank, "TRAINYARD_RUN_KEY": "k" * 32},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("1", "0")
    ]
    ended = [node.communicate(timeout=300) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], ended
    assert ended[1][0] == "{'node': 0, 'world': 2, 'seen': []}\n"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"TRAINYARD_NNODES": "2"}, "TRAINYARD_NODE_RANK, TRAINYARD_RENDEZVOUS is missing"),
        ({"TRAINYARD_NNODES": "2:1"}, "TRAINYARD_NNODES='2:1' must be N or MIN:MAX"),
        ({"TRAINYARD_NNODES": "two"}, "TRAINYARD_NNODES='two' must be N or MIN:MAX"),
        ({"TRAINYARD_NODE_RANK": "2"}, "TRAINYARD_NODE_RANK=2 must be 0 to 1"),
        ({"TRAINYARD_NODE_RANK": "-1"}, "TRAINYARD_NODE_RANK='-1' must be a number from 0"),
    ],
)
def test_variables_that_cannot_be_understood(given, told, monkeypatch):
    whole = {"TRAINYARD_NNODES": "2", "TRAINYARD_NODE_RANK": "0", "TRAINYARD_RENDEZVOUS": "127.0.0.1:1"}
    for name, value in (given if "missing" in told else {**whole, **given}).items():
        monkeypatch.setenv(name, value)
    trainer = trainyard.DataParallelTrainer(lambda: None, scaling_config=trainyard.ScalingConfig(num_workers=2))
    with pytest.raises(ValueError, match=re.escape(told)):
        trainer.fit()


def test_hosts_of_the_environment(monkeypatch, tmp_path):
    from trainyard import defaults

    monkeypatch.setenv("TRAINYARD_HOSTS", "a,b:8")
    assert defaults.named() == defaults.Hosts("a,b:8", None, False)
    monkeypatch.setattr(defaults, "current", defaults.Defaults(engine="local"))
    assert defaults.named() is None
    monkeypatch.setattr(defaults, "current", defaults.Defaults())
    monkeypatch.setenv("TRAINYARD_HOSTFILE", str(tmp_path / "hosts"))
    with pytest.raises(ValueError, match="TRAINYARD_HOSTS and TRAINYARD_HOSTFILE of the environment"):
        defaults.named()
    monkeypatch.delenv("TRAINYARD_HOSTS")
    trainer = trainyard.DataParallelTrainer(lambda: None, scaling_config=trainyard.ScalingConfig(num_workers=2))
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "hosts"))):
        trainer.fit()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_node_that_serves_is_told_to_end_or_killed(number, tmp_path):
    """Its agent ends with it: told, as the run does; killed, the node is lost."""
    (tmp_path / "program.py").write_text(TAKEN_AWAY)
    meeting = {"TRAINYARD_NNODES": "2", "TRAINYARD_RENDEZVOUS": f"127.0.0.1:{free_port()}"}
    nodes = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "program.py")],
            env={**os.environ, **meeting, "TRAINYARD_NODE_RANK": rank, "TRAINYARD_RUN_KEY": "k" * 32},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in ("0", "1")
    ]
    assert wait_until(lambda: len(list(tmp_path.glob("began-*"))) == 2)
    nodes[1].send_signal(number)
    told = nodes[0].communicate(timeout=300)[0]
    nodes[1].communicate(timeout=300)
    assert nodes[1].returncode == (143 if number == signal.SIGTERM else -number)
    assert ("PreemptionError" if number == signal.SIGTERM else "was lost") in told


def test_who_says_where_a_run_goes_is_not_overruled(monkeypatch):
    from trainyard import defaults

    for name in defaults.JOIN_VARIABLES.values():
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(defaults, "current", defaults.Defaults(engine="local"))
    assert defaults.joined() is None
    monkeypatch.setattr(defaults, "current", defaults.Defaults())
    with pytest.raises(ValueError, match="TRAINYARD_NODE_RANK=1 must be 0 to 0"):
        defaults.joined()
