"""Elastic runs from Python: the size changes while the training goes on from its last checkpoint."""

import contextlib
import json
import os
import threading
import time

import pytest
import trainyard
from conftest import wait_until
from trainyard import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig, defaults, driver
from trainyard.as_ray import cluster as ray_cluster
from trainyard.as_ray import session


def write_cluster(path, nodes):
    """A cluster file of that many nodes with one CPU each, put in place at once."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"nodes": [{"name": f"n{i}", "resources": {"CPU": 1}} for i in range(nodes)]}))
    os.replace(new, path)


def test_it_grows_from_the_last_checkpoint(tmp_path, storage):
    cluster = tmp_path / "cluster.json"
    write_cluster(cluster, 1)

    def train():
        checkpoint = trainyard.get_checkpoint()
        step = 0
        if checkpoint is not None:
            with checkpoint.as_directory() as there:
                step = int(open(os.path.join(there, "step")).read())
        first, size = step, trainyard.get_context().get_world_size()
        while step < first + 3 or size < 2:
            step += 1
            made = None
            if trainyard.get_context().get_world_rank() == 0:
                place = tmp_path / f"made-{step}"
                place.mkdir(exist_ok=True)
                (place / "step").write_text(str(step))
                made = Checkpoint.from_directory(place)
            trainyard.report({"size": size, "first": first, "step": step}, checkpoint=made)
            if step == 1:
                trainyard.get_all_reported_checkpoints()  # which waits until there is one
                write_cluster(cluster, 2)
            time.sleep(0.05)

    trainyard.init(cluster=str(cluster))
    result = DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=(1, 2), elastic_resize_monitor_interval_s=0.2),
        run_config=RunConfig(storage_path=storage),
    ).fit()
    assert result.metrics["size"] == 2
    assert result.metrics["first"] > 0
    assert result.metrics["step"] == result.metrics["first"] + 3


@pytest.fixture
def nodes():
    """A `Cluster` whose first node has no CPU, as what later runs go by."""
    made = ray_cluster.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    defaults.current = defaults.Defaults()
    session.init(address=made.address)
    yield made
    session.shutdown()
    made.shutdown()


@pytest.fixture
def told(monkeypatch):
    """What the driver tells while it waits."""
    lines = []
    monkeypatch.setattr(driver, "warn", lines.append)
    return lines


@contextlib.contextmanager
def meanwhile(function):
    hand = threading.Thread(target=function)
    hand.start()
    try:
        yield
    finally:
        hand.join()


def test_nodes_of_a_cluster_come_and_go_from_none_on(tmp_path, storage, nodes, told, monkeypatch):
    monkeypatch.setattr(driver, "_TELL_S", 600)  # once, however long the nodes take to come

    def train():
        checkpoint = trainyard.get_checkpoint()
        sizes = []
        if checkpoint is not None:
            with checkpoint.as_directory() as there:
                sizes = json.load(open(os.path.join(there, "sizes")))
        sizes.append(trainyard.get_context().get_world_size())
        while len(sizes) < 3:
            made = None
            if trainyard.get_context().get_world_rank() == 0:
                place = tmp_path / f"made-{len(sizes)}"
                place.mkdir(exist_ok=True)
                (place / "sizes").write_text(json.dumps(sizes))
                made = Checkpoint.from_directory(place)
            trainyard.report({"size": sizes[-1]}, checkpoint=made)
            if made is not None:  # it is committed
                (tmp_path / f"size-{len(sizes)}").touch()
            time.sleep(0.05)
        return sizes

    def come_and_go():
        wait_until(lambda: told)
        first = nodes.add_node(num_cpus=1)
        nodes.add_node(num_cpus=1)
        wait_until((tmp_path / "size-1").exists)
        nodes.add_node(num_cpus=1)
        wait_until((tmp_path / "size-2").exists)
        nodes.remove_node(first)

    with meanwhile(come_and_go):
        result = DataParallelTrainer(
            train,
            scaling_config=ScalingConfig(num_workers=(2, 4), elastic_resize_monitor_interval_s=0.2),
            run_config=RunConfig(storage_path=storage),
        ).fit()
    assert result.return_value == [attempt.num_workers for attempt in result.history] == [2, 3, 2]
    assert told == ["no node has 1 CPU: there is no CPU on any; add nodes with 1 CPU: the run waits for nodes"]


def test_a_run_of_fixed_size_waits_for_nodes_and_says_so_again_and_again(storage, nodes, told, monkeypatch):
    monkeypatch.setattr(driver, "_TELL_S", 0.1)
    nodes.add_node(num_cpus=1)

    def come():
        wait_until(lambda: len(told) > 1)
        nodes.add_node(num_cpus=1)

    with meanwhile(come):
        result = DataParallelTrainer(
            lambda: trainyard.get_context().get_world_size(),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=storage),
        ).fit()
    assert result.return_value == 2
    assert len(set(told)) == 1 and told[0].endswith("the run waits for nodes"), told
