"""Workers that hang in Python, and machines that are taken away."""

import json
import re
import signal
import subprocess
import textwrap

import pytest
import trainyard
from conftest import BUILD, wait_until
from trainyard import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig


def live_until_told():
    import time

    while not trainyard.stop_requested():
        trainyard.heartbeat()
        time.sleep(0.02)


def hold_the_lock():
    import ctypes

    while True:
        ctypes.PyDLL(None).sleep(1000)


def spin():
    while True:
        pass


def fit(function, storage, **config):
    config = {"storage_path": storage, "name": "run", "hang_timeout_s": 1, "quiet": True, **config}
    return DataParallelTrainer(
        function, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(**config)
    ).fit()


@pytest.mark.parametrize("hang", [hold_the_lock, spin])
def test_a_hang_names_the_line(hang, storage, place):
    def train():
        hang() if trainyard.get_context().get_world_rank() == 1 else live_until_told()

    with pytest.raises(trainyard.WorkerGroupError) as caught:
        fit(train, storage, hang_timeout_s=3)  # the other one may begin late on a busy machine
    assert list(caught.value.worker_failures) == [1]
    assert "it hung" in str(caught.value.worker_failures[1])
    stacks = [(place / "runs" / "run" / "logs" / f"rank-{rank}.stack").read_text() for rank in range(2)]
    assert f" in {hang.__name__}" in stacks[1] and " in train" in stacks[1]
    assert "in live_until_told" in stacks[0]


def test_another_attempt_follows_a_hang(storage):
    def train():
        if trainyard.get_context().get_attempt() == 1:
            spin()
        trainyard.report({"attempt": trainyard.get_context().get_attempt()})

    failures = FailureConfig(max_failures=1)
    assert fit(train, storage, failure_config=failures, hang_timeout_s=3).metrics == {"attempt": 2}


def test_outside_of_a_training_function():
    for function in (trainyard.heartbeat, trainyard.stop_requested, trainyard.get_preemption_info):
        with pytest.raises(RuntimeError, match="outside"):
            function()


def test_with_no_workers_there_is_nothing_to_tell(storage):
    def train():
        trainyard.heartbeat()
        assert not trainyard.stop_requested() and trainyard.get_preemption_info() is None
        trainyard.report({"done": 1})

    result = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=0)).fit()
    assert result.metrics == {"done": 1}


@pytest.mark.parametrize("value", ["KILL", "NOTHING", ""])
def test_a_signal_that_cannot_tell_of_it(value, storage):
    with pytest.raises(ValueError, match="preempt_signal"):
        fit(lambda: None, storage, preempt_signal=value)


def test_chaos_is_told_and_survived(storage, place):
    """Only a kill ends the first attempt; any later one may meet the next kill, and is followed by another."""

    def train():
        if trainyard.get_context().get_attempt() == 1:
            live_until_told()

    failures = FailureConfig(max_failures=-1)
    result = fit(train, storage, chaos="1:100ms", failure_config=failures, hang_timeout_s=None)
    first = result.history[0]
    assert first.outcome == "failed" and f"rank {first.rank} was killed by signal 9" in first.cause
    with pytest.raises(ValueError, match="chaos"):
        fit(train, storage, name="other", chaos="soon")


@pytest.mark.parametrize("value", [-1, float("nan"), True, "1"])
def test_a_timeout_is_a_number_of_seconds(value):
    with pytest.raises(ValueError, match="hang_timeout_s"):
        RunConfig(hang_timeout_s=value)


def test_the_error_travels():
    import pickle

    info = trainyard.PreemptionInfo(5000, {"n2": [3, 1], "n1": [0]})
    assert (info.preempted_ranks, info.preempted_node_ids) == ([0, 1, 3], ["n1", "n2"])
    error = pickle.loads(pickle.dumps(trainyard.PreemptionError(info, True, "gone", {1: ValueError("x")})))
    assert (str(error), error.preemption_info, error.drain_timed_out) == ("gone", info, True)
    assert isinstance(error, trainyard.TrainingFailedError) and list(error.worker_failures) == [1]


PREEMPTED = """
    import json, os, sys, tempfile, time
    import trainyard
    from trainyard import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig

    def train():
        last = trainyard.get_checkpoint()
        if last is not None:
            trainyard.report({"from": open(os.path.join(last.path, "step")).read()})
            return
        trainyard.get_preemption_info()  # from here on SIGTERM does not end this worker
        open("started-%d" % trainyard.get_context().get_world_rank(), "w").close()
        while trainyard.get_preemption_info() is None:
            time.sleep(0.01)
        with tempfile.TemporaryDirectory() as place:
            open(os.path.join(place, "step"), "w").write("7")
            trainyard.report({"step": 7}, checkpoint=Checkpoint(place))

    trainyard.init(num_cpus=8)
    config = RunConfig(name="run", storage_path="runs", resume=True, grace_s=60)
    trainer = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=config)
    try:
        print(json.dumps(trainer.fit().metrics))
    except trainyard.PreemptionError as error:
        info = error.preemption_info
        print(json.dumps([info.preempted_ranks, len(info.preempted_node_ids), error.drain_timed_out]), flush=True)
        if len(sys.argv) > 1:
            raise
"""


def test_a_preempted_run_goes_on_later(start, place):
    script = start(textwrap.dedent(PREEMPTED), "raise")
    assert wait_until(lambda: (place / "started-0").exists() and (place / "started-1").exists())
    script.process.send_signal(signal.SIGTERM)
    finished = script.finish()
    assert finished.status == -signal.SIGTERM, repr(finished)  # nobody caught it
    assert json.loads(finished.out.splitlines()[-1]) == [[0, 1], 1, False]
    assert "PreemptionError" in finished.err
    again = start(textwrap.dedent(PREEMPTED)).finish()
    assert (again.status, json.loads(again.out.splitlines()[-1])) == (0, {"from": "7"}), repr(again)


def test_a_signal_that_a_file_for_all_runs_names_is_a_preemption(start, place):
    site = place / "site.yaml"
    site.write_text("run_config: {preempt_signal: USR1}\n")
    site.chmod(0o644)
    script = start(textwrap.dedent(PREEMPTED), TRAINYARD_CONFIG=str(site))
    assert wait_until(lambda: (place / "started-0").exists() and (place / "started-1").exists())
    script.process.send_signal(signal.SIGUSR1)
    finished = script.finish()
    assert (finished.status, json.loads(finished.out.splitlines()[-1])) == (0, [[0, 1], 1, False]), repr(finished)


STUCK = """
    import time
    import trainyard
    from trainyard import DataParallelTrainer, RunConfig, ScalingConfig

    def all_reduce():
        time.sleep(100000)

    def load_batch():
        time.sleep(100000)

    def train():
        rank = trainyard.get_context().get_world_rank()
        open("started-%d" % rank, "w").close()
        load_batch() if rank == 2 else all_reduce()

    trainyard.init(num_cpus=8)
    config = RunConfig(name="run", storage_path="runs")
    DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=4), run_config=config).fit()
"""


def test_who_stands_apart_is_told_first(start, place, storage):
    """Ranks at the same place are a group, the smallest first; sampled, they are told how often they were where."""
    script = start(STUCK)
    wait_until(lambda: len(list(place.glob("started-*"))) == 4)
    command = [BUILD + "/trainyard", "stacks", "--storage-path", storage, "run"]
    told = lambda *options: (
        subprocess.run([*command, *options], check=True, capture_output=True, text=True).stdout
    )

    assert wait_until(lambda: subprocess.run(command, capture_output=True).returncode == 0)  # on record
    assert wait_until(
        lambda: (seen := told("--format", "folded")).count("all_reduce") == 3 and "load_batch" in seen
    )
    text = told()
    assert text.startswith("1 rank (2): load_batch script.py:10\n"), text
    assert "\n3 ranks (0-1,3): all_reduce script.py:7\n" in text
    assert [group["ranks"] for group in json.loads(told("--format", "json"))["groups"]] == ["2", "0-1,3"]

    saved = (place / "runs/run/logs/rank-2.stack").read_text()
    folded = told("--seconds", "1", "--rate", "10", "--format", "folded")
    lines = [re.fullmatch(r"(rank \d);(.*) (\d+)", line) for line in folded.splitlines()]
    assert all(lines), folded
    for rank, function in enumerate(["all_reduce", "all_reduce", "load_batch", "all_reduce"]):
        own = [line for line in lines if line[1] == f"rank {rank}"]
        assert 1 <= sum(int(line[3]) for line in own) <= 11
        assert all(
            re.search(rf";train \(script.py:\d+\);{function} \(script.py:\d+\)$", line[2]) for line in own
        ), folded
    sampled = json.loads(told("--seconds", "200ms", "--format", "json", "--rank", "2"))
    assert (sampled["rate"], [rank["rank"] for rank in sampled["ranks"]]) == (20, [2])
    assert sampled["ranks"][0]["stacks"][0]["frames"][-1].startswith("load_batch (script.py:")
    assert re.match(r"run: \d+ looks at 4 workers in 200 ms\n", told("--seconds", "200ms"))
    assert (place / "runs/run/logs/rank-2.stack").read_text() == saved  # sampling saves nothing
    script.process.send_signal(signal.SIGINT)
    assert script.finish().status != 0
