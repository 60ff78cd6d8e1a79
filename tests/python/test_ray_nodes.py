"""Nodes and what they have, as workers and drivers of programs for Ray Train hear of them."""

import pytest


def test_a_type_of_accelerator_among_the_resources_of_this_machine(ray):
    program = """
        ray.init(num_cpus=4, num_gpus=2, resources={"accelerator_type:A100": 2, "special": 1})
        def train():
            return ray.get_runtime_context().get_assigned_resources()
        scale = ScalingConfig(num_workers=2, use_gpu=True, accelerator_type="A100")
        held = DataParallelTrainer(train, scaling_config=scale).fit().return_value
        there = ray.cluster_resources()
        print(json.dumps([held, [there[name] for name in ("GPU", "special")]]))
    """
    assert ray(program) == [{"GPU": 1, "accelerator_type:A100": 0.001}, [2.0, 1.0]]


def test_workers_know_their_node_s_labels_and_its_address(ray):
    workers = ray("""
        from ray.cluster_utils import Cluster

        cluster = Cluster()
        for zone in "ab":
            cluster.add_node(num_cpus=1, labels={"zone": zone})
        ray.init(address=cluster.address)

        def train():
            context = ray.get_runtime_context()
            mine = [os.environ["MASTER_ADDR"], ray.util.get_node_ip_address()]
            ray.train.report({"labels": context.get_node_labels(), "id": context.get_node_id(), "mine": mine,
                              "all": ray.cluster_resources()["CPU"]})

        class Seen(ray.train.UserCallback):
            def after_report(self, run_context, metrics, checkpoint):
                print(json.dumps(metrics))

        config = RunConfig(storage_path=os.path.abspath("runs"), callbacks=[Seen()])
        DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=config).fit()
    """)
    assert sorted(worker["labels"]["zone"] for worker in workers) == ["a", "b"]
    for worker in workers:
        assert worker["labels"]["ray.io/node-id"] == worker["id"]
        assert worker["mine"][0] == worker["mine"][1] and worker["all"] == 2


def test_what_a_worker_holds_are_floats_as_all_amounts_are(ray):
    assert ray("""
        def train():
            return str(ray.get_runtime_context().get_assigned_resources())
        print(json.dumps(DataParallelTrainer(train).fit().return_value))
    """) == "{'CPU': 1.0}"


def test_the_driver_is_on_the_first_node_of_a_cluster(ray):
    assert ray("""
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "labels": {"zone": "head"}})
        cluster.add_node(num_cpus=1, labels={"zone": "other"})
        ray.init(address=cluster.address)
        here = ray.get_runtime_context()
        mine = [node["Labels"] for node in ray.nodes() if node["NodeID"] == here.get_node_id()]
        print(json.dumps([here.get_node_labels()["zone"], mine == [here.get_node_labels()]]))
    """) == ["head", True]


def test_options_of_ray_s_daemons_have_no_effect_on_nodes(ray):
    assert ray("""
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "dashboard_port": 1})
        cluster.add_node(num_cpus=2, include_log_monitor=False, object_spilling_directory="/nowhere", _system_config={})
        ray.init(address=cluster.address)
        try:
            cluster.add_node(num_cpu=1)
        except ValueError as error:
            print(json.dumps([ray.cluster_resources()["CPU"], str(error).partition(";")[0]]))
    """) == [3.0, "a node has no option 'num_cpu'"]


def test_a_worker_s_address_is_that_of_its_node(monkeypatch):
    from trainyard import backend
    from trainyard.as_ray.context import get_node_ip_address

    monkeypatch.setenv("TRAINYARD_ADDRESS", "10.0.0.2")
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    assert get_node_ip_address() == "127.0.0.1"  # of the driver
    monkeypatch.setenv("TRAINYARD_FD", "99")
    assert get_node_ip_address() == "10.0.0.2" and backend._metadata().node_ip == "10.0.0.2"
    monkeypatch.delenv("TRAINYARD_ADDRESS")  # on one machine alone
    assert get_node_ip_address() == "10.0.0.1"


@pytest.mark.parametrize("version", ["1", "0"])
@pytest.mark.parametrize("on_a_cluster", [False, True])
def test_what_a_run_holds_is_not_available_in_its_workers_nor_its_driver(ray, monkeypatch, on_a_cluster, version):
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", version)
    told = ray(f"""
        import threading, time
        from ray.cluster_utils import Cluster

        if {on_a_cluster}:
            cluster = Cluster()
            for _ in range(2):
                cluster.add_node(num_cpus=4, num_gpus=1, resources={{"special": 2}})
            ray.init(address=cluster.address)
        else:
            ray.init(num_gpus=2, resources={{"special": 4}})
        names = ("CPU", "GPU", "special")
        def left():
            free = ray.available_resources()
            return [free.get(name, 0) for name in names]
        def all_of_it():
            return [ray.cluster_resources()[name] for name in names]

        def train(folder):
            with open(f"{{folder}}/worker.{{ray.train.get_context().get_world_rank()}}.new", "w") as file:
                json.dump([left(), all_of_it()], file)
            os.rename(file.name, file.name[:-4])
            while not os.path.exists(f"{{folder}}/seen"):
                time.sleep(0.01)
        def look():
            while len([name for name in os.listdir(folder) if name[-1].isdigit()]) < 2:
                time.sleep(0.01)
            during.extend(left())
            open(f"{{folder}}/seen", "w").close()

        folder, during = tempfile.mkdtemp(), []
        before = left()
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        scale = ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={{"CPU": 1, "GPU": 0.5, "special": 1.5}})
        DataParallelTrainer(train, train_loop_config=folder, scaling_config=scale).fit()
        thread.join()
        workers = [json.load(open(f"{{folder}}/worker.{{rank}}")) for rank in range(2)]
        print(json.dumps({{"before": before, "during": during, "after": left(), "workers": workers}}))
    """)
    everything = [8.0, 2.0, 4.0]
    assert told["before"] == everything and told["after"] == everything
    rest = [6.0 if version == "1" else 5.0, 1.0, 1.0]  # the trainer of the first Ray Train holds a CPU
    assert told["during"] == rest and told["workers"] == [[rest, everything]] * 2
