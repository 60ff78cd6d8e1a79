"""Threads of the driver's program beside its runs: calls that wait leave the interpreter to them, and each run is driven by one."""

import ctypes
import json
import os
import signal
import threading
import time

import pytest
from conftest import wait_until
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, _core

SLEEP = ["sleep", "600"]


class Ticker(threading.Thread):
    """Counts as long as it can run."""

    def __init__(self):
        super().__init__(daemon=True)
        self.count = 0
        self._ended = threading.Event()

    def run(self):
        while not self._ended.wait(0.005):
            self.count += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        self.join()


def request(storage, **fields):
    return json.dumps(
        {"scaling": {"num_workers": 1}, "storage_path": storage, "argv": SLEEP, "quiet": True, **fields}
    )


def drive(run, until):
    """Steps the run until one of its events is of that kind."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        run.dispatch()
        for text in iter(run.next_event, None):
            event = json.loads(text)
            if event["event"] == until:
                return event
        time.sleep(0.01)
    raise AssertionError(f"no event {until}")


def write_later(path, text, ticker, ticks):
    """Writes once the ticker has come so far: whoever reads meanwhile must not keep it from ticking."""

    def write():
        at = ticker.count
        wait_until(lambda: ticker.count >= at + ticks)
        with open(path, "w") as file:
            file.write(text)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


CLUSTER = "nodes:\n  - {name: a, resources: {CPU: 2}}\n"


def test_a_question_that_takes_long_leaves_the_interpreter_to_others(tmp_path):
    os.mkfifo(tmp_path / "cluster")
    with Ticker() as ticker:
        thread = write_later(tmp_path / "cluster", CLUSTER, ticker, 20)
        nodes = json.loads(_core.nodes(json.dumps({"cluster": str(tmp_path / "cluster")})))
        thread.join()
    assert nodes["nodes"][0]["name"] == "a"


def test_a_run_that_takes_long_to_begin_leaves_the_interpreter_to_others(tmp_path, storage):
    os.mkfifo(tmp_path / "cluster")
    with Ticker() as ticker:
        thread = write_later(tmp_path / "cluster", CLUSTER, ticker, 20)
        run = _core.Run(request(storage, cluster=str(tmp_path / "cluster")), b"")
        thread.join()
    run.stop(signal.SIGTERM)
    with pytest.raises(Exception, match="SIGTERM"):
        run.close()


def stopped(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


def test_a_close_that_waits_leaves_the_interpreter_to_others_and_stays_alone(storage):
    run = _core.Run(request(storage, num_cpus=4, events=["started"]), b"")
    worker = drive(run, "started")["pid"]
    with open(f"/proc/{worker}/stat") as file:
        agent = int(file.read().rsplit(")", 1)[1].split()[1])
    os.kill(agent, signal.SIGSTOP)
    wait_until(lambda: stopped(agent))
    refused = []

    def is_refused(call):
        try:
            call()
        except RuntimeError:
            return True
        return False

    def meddle():
        wait_until(lambda: is_refused(run.timeout_ms))  # the run is in its `close` by then
        at = ticker.count
        wait_until(lambda: ticker.count >= at + 20)
        for call in (run.dispatch, run.next_event, run.close, run.fileno, run.timeout_ms):
            try:
                call()
            except RuntimeError as error:
                refused.append(str(error))
        run.stop(0)
        os.kill(agent, signal.SIGCONT)

    with Ticker() as ticker:
        thread = threading.Thread(target=meddle)
        thread.start()
        with pytest.raises(Exception, match="SIGTERM"):
            run.close()
        thread.join()
    assert len(refused) == 5 and all("another thread is in a call of this run" in text for text in refused)
    with pytest.raises(ValueError, match="the run is closed"):
        run.dispatch()


def test_threads_go_on_and_a_stop_is_heard_while_devices_are_waited_for(storage, start):
    """Another run holds the only device."""
    holder = start(
        """
        import sys, time
        from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, defaults
        defaults.current = defaults.Defaults(num_cpus=4, num_gpus=1)

        def train():
            print("held", flush=True)
            time.sleep(600)

        scaling = ScalingConfig(num_workers=1, use_gpu=True)
        DataParallelTrainer(train, scaling_config=scaling, run_config=RunConfig(storage_path=sys.argv[1])).fit()
        """,
        storage,
    )
    try:
        assert "held" in holder.process.stdout.readline()
        wanted = {"num_workers": 1, "use_gpu": True}
        with Ticker() as ticker:
            run = _core.Run(request(storage, num_cpus=4, num_gpus=1, scaling=wanted, events=["wait"]), b"")
            assert "GPU" in drive(run, "wait")["reason"]
            at = ticker.count
            while ticker.count < at + 20:
                run.dispatch()
                time.sleep(0.001)
            stopper = threading.Thread(target=run.stop, args=(signal.SIGINT,))
            stopper.start()
            stopper.join()
            wait_until(lambda: not run.dispatch())
        with pytest.raises(Exception, match="SIGINT|interrupted"):
            run.close()
    finally:
        holder.process.send_signal(signal.SIGTERM)
        holder.finish()


def test_a_run_within_another_leaves_it_its_own_words(storage, start):
    """The inner one ends while the outer one goes on, whose warnings are shown as ever."""
    finished = start(
        """
        import os, sys
        from trainyard import DataParallelTrainer, RunConfig, ScalingConfig, UserCallback, defaults
        defaults.current = defaults.Defaults(num_cpus=4)

        def fit(train, name, **more):
            trainer = DataParallelTrainer(
                train,
                scaling_config=ScalingConfig(num_workers=1),
                run_config=RunConfig(name=name, storage_path=sys.argv[1], **more),
            )
            return trainer.fit()

        class Within(UserCallback):
            def after_report(self, **_):
                fit(lambda: None, "inner")
                open(os.environ["PLACE"] + "/go", "w").close()

        def train():
            import os, sys, time, trainyard
            trainyard.report({"a": 1})
            while not os.path.exists(os.environ["PLACE"] + "/go"):
                time.sleep(0.01)
            sys.stdin.read()

        fit(train, "outer", callbacks=[Within()])
        """,
        storage,
    ).finish()
    assert finished.status == 0, finished
    assert "rank 0 read standard input" in finished.err, finished


def test_fits_of_one_trainer_at_once(storage, place):
    """Each has an end of its own, and a shutdown ends all."""
    begun = place / "begun"
    begun.mkdir()

    def train(config):
        open(f"{config['place']}/{os.getpid()}", "w").close()
        time.sleep(600)

    trainer = DataParallelTrainer(
        train,
        train_loop_config={"place": str(begun)},
        scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 0.1}),
        run_config=RunConfig(storage_path=storage, quiet=True),
    )
    ends = []

    def fit():
        with pytest.raises(BaseException) as raised:
            trainer.fit()
        ends.append(str(raised.value))

    threads = [threading.Thread(target=fit) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert wait_until(lambda: len(os.listdir(begun)) == 2)
    trainer.shutdown()
    assert wait_until(lambda: len(ends) == 2), ends
    assert all("interrupted by the program" in end for end in ends), ends


def is_subreaper():
    answer = ctypes.c_int(-1)
    assert ctypes.CDLL(None).prctl(37, ctypes.byref(answer), 0, 0, 0) == 0  # PR_GET_CHILD_SUBREAPER
    return answer.value == 1


def test_orphans_are_adopted_as_long_as_there_is_a_run(storage):
    """Whichever of two ends first."""
    first = _core.Run(request(storage, name="first", num_cpus=4), b"")
    second = _core.Run(request(storage, name="second", num_cpus=4), b"")
    for run, left in ((first, True), (second, False)):
        with pytest.raises(Exception, match="SIGTERM"):
            run.close()
        assert is_subreaper() == left


def test_many_threads_drive_a_run_each(storage, start):
    """Again and again, with the agents that rest between them."""
    finished = start(
        """
        import json, select, sys, threading
        from trainyard import _core

        def drive(name):
            request = {"scaling": {"num_workers": 1}, "storage_path": sys.argv[1], "argv": ["true"], "quiet": True, "num_cpus": 4}
            run = _core.Run(json.dumps({**request, "name": name, "keep_agents": True}), b"")
            poller = select.poll()
            poller.register(run.fileno(), select.POLLIN)
            while run.dispatch():
                poller.poll(run.timeout_ms())
            return json.loads(run.close())["outcome"]

        def drive_some(thread):
            for turn in range(8):
                ended.append(drive(f"{thread}-{turn}"))

        ended = []
        threads = [threading.Thread(target=drive_some, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(len(ended), set(ended))
        """,
        storage,
    ).finish()
    assert (finished.status, finished.out) == (0, "64 {'succeeded'}\n"), finished
