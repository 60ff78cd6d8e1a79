"""Workers that fail, signals to the driver, new attempts: what `fit` raises, and what is left (nothing)."""

import os
import pathlib
import signal
import socket
import sys
import threading
import time

import pytest
import trainyard
from trainyard import (
    ControllerError,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    WorkerGroupError,
)
from trainyard.errors import NodeLostError, RemoteTraceback, WorkerExitError, WorkerKilledError


class Mine(Exception):
    def __init__(self, text, number):
        super().__init__(text, number)
        self.number = number


@pytest.fixture
def fail(storage):
    def fail(function, workers=3, **run):
        trainer = DataParallelTrainer(
            function,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(storage_path=storage, **run),
        )
        with pytest.raises(WorkerGroupError) as caught:
            trainer.fit()
        return caught.value

    return fail


@pytest.mark.parametrize("method", ["spawn", "auto"])
def test_the_original_exception_comes_home(fail, capfd, method):
    def train():
        if trainyard.get_context().get_world_rank() == 1:
            raise Mine("boo", 3)
        time.sleep(60)

    error = fail(train, start_method=method)
    assert list(error.worker_failures) == [1]
    failure = error.worker_failures[1]
    assert type(failure) is Mine and failure.args == ("boo", 3) and failure.number == 3
    assert isinstance(failure.__cause__, RemoteTraceback)
    assert 'raise Mine("boo", 3)' in str(failure.__cause__) and "_worker.py" not in str(failure.__cause__)
    assert str(error).splitlines()[1:] == ["[Rank 1]:", "test_failure.Mine: ('boo', 3)"]
    err = capfd.readouterr().err
    assert "first cause: rank 1 exited with code 1" in err and err.count("Mine: ('boo', 3)") == 1


def test_a_traceback_is_seen_once_and_is_in_the_log(fail, storage, capfd):
    def train():
        print("no newline", end="")
        raise ValueError("seen") from KeyError("deeper")

    error = fail(train, 2)
    err = capfd.readouterr().err
    assert err.count("Traceback (most recent call last)") == 1 and err.count("ValueError: seen") == 1
    assert "KeyError: 'deeper'" in err and "Traceback" not in str(error)
    rank = next(iter(error.worker_failures))
    (log,) = pathlib.Path(storage).glob(f"*/logs/rank-{rank}.log")
    assert log.read_text().startswith("no newline\n") and "ValueError: seen\n" in log.read_text()


def test_what_a_terminal_obeys_reaches_no_screen(fail, capfd):
    def train():
        raise RuntimeError("\x1b[31m\r\u202e")

    error = fail(train, 1, failure_config=FailureConfig(max_failures=1))
    err = capfd.readouterr().err
    escaped = "\\x1b[31m\\x0d\\u202e"
    assert "trainyard: attempt 1 ended with rank 0:" in err and escaped in err and escaped in str(error)
    assert not set("\x1b\r\u202e") & set(err + str(error))
    assert error.worker_failures[0].args == ("\x1b[31m\r\u202e",)


def test_a_quiet_run_has_the_traceback_in_its_exception(fail, capfd):
    def train():
        raise ValueError("seen")

    assert "Traceback" in str(fail(train, 1, quiet=True))
    assert "seen" not in capfd.readouterr().err


def test_earlier_attempts_are_told_too(fail, capfd):
    def train():
        raise ValueError(f"try {trainyard.get_context().get_attempt()}")

    fail(train, 1, failure_config=FailureConfig(max_failures=1))
    err = capfd.readouterr().err
    assert err.count("ValueError: try 1") == 1 and err.count("ValueError: try 2") == 1


class NeedsTwo(Exception):
    def __init__(self, first, second):
        super().__init__("both")


class NoText(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "make, kind, text",
    [
        (KeyError, KeyError, ""),
        (lambda: ValueError("a\udc80b\0c\x1b[31m"), ValueError, "a\udc80b\0c\x1b[31m"),
        (lambda: ValueError("x" * 3_000_000), WorkerExitError, "characters left out"),
        (lambda: NeedsTwo(1, 2), NeedsTwo, "both"),
        (NoText, NoText, None),
        (KeyboardInterrupt, KeyboardInterrupt, ""),
    ],
)
def test_odd_exceptions(fail, capfd, make, kind, text):
    def train():
        raise make()

    error = fail(train, 1)
    failure = error.worker_failures[0]
    assert type(failure).__name__ == kind.__name__ and (text is None or text in str(failure))
    assert "Traceback" in failure.__cause__.text and len(failure.__cause__.text) < 20_000
    err = capfd.readouterr().err
    assert "first cause: rank 0" in err and "\x1b" not in err and len(err) < 30_000


def test_a_callback_that_raises_is_named_and_no_signal(storage, capfd):
    class Broken(trainyard.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            raise LookupError("of the callback")

    def train():
        trainyard.report({"a": 1})
        time.sleep(60)

    config = RunConfig(storage_path=storage, callbacks=[Broken()], grace_s=0.1)
    with pytest.raises(ControllerError, match="of the callback") as caught:
        DataParallelTrainer(train, run_config=config).fit()
    assert isinstance(caught.value.controller_failure, LookupError)
    err = capfd.readouterr().err
    assert "LookupError: of the callback" in err and "SIGINT" not in err


@pytest.mark.parametrize("argument", [lambda: 5, threading.Lock])
def test_an_exception_travels_without_what_cannot(fail, argument):
    def train():
        error = NeedsTwo(1, 2)
        error.args = ("text", argument())
        error.lock, error.step = threading.Lock(), 3
        raise error

    failure = fail(train, 1).worker_failures[0]
    assert type(failure) is NeedsTwo and "text" in str(failure) and vars(failure) == {"step": 3}
    assert "NeedsTwo: ('text', " in str(failure.__cause__)


def test_an_exception_whose_class_cannot_travel_is_told_as_text(fail):
    def train():
        class Own(ValueError):
            pass

        Own.lock = threading.Lock()
        raise Own("text")

    failure = fail(train, 1).worker_failures[0]
    assert isinstance(failure, WorkerExitError) and "Own: text" in str(failure)
    assert "Own: text" in str(failure.__cause__)


def test_ways_to_end(fail):
    def killed():
        os.kill(os.getpid(), signal.SIGKILL)

    failure = fail(killed, 1).worker_failures[0]
    assert isinstance(failure, WorkerKilledError) and failure.signal == 9 and "SIGKILL" in str(failure)

    def ended():
        os._exit(7)

    failure = fail(ended, 1).worker_failures[0]
    assert type(failure) is WorkerExitError and failure.exit_code == 7 and "exit code 7" in str(failure)

    def left():
        raise SystemExit(3)

    assert fail(left, 1).worker_failures[0].exit_code == 3

    def told():
        raise SystemExit("a reason")

    assert fail(told, 1).worker_failures[0].exit_code == 1


def test_a_reason_to_leave_is_printed_once(fail, capfd):
    def train():
        sys.exit("a reason")

    fail(train, 1)
    assert capfd.readouterr().err.count("[rank 0] a reason\n") == 1


def test_a_lost_agent(fail):
    def train():
        if trainyard.get_context().get_world_rank() == 0:
            os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    error = fail(train, 2)
    assert sorted(error.worker_failures) == [0, 1]
    assert {type(failure) for failure in error.worker_failures.values()} == {NodeLostError}


def test_the_time_limit(storage):
    config = RunConfig(storage_path=storage, time_limit_s=0.5, grace_s=0.1)
    with pytest.raises(ControllerError, match="time") as caught:
        DataParallelTrainer(lambda: time.sleep(60), run_config=config).fit()
    assert isinstance(caught.value.controller_failure, TimeoutError)


def test_leaving_with_zero_is_no_failure(storage):
    def train():
        raise SystemExit(0)

    DataParallelTrainer(train, run_config=RunConfig(storage_path=storage)).fit()


def test_a_function_that_cannot_be_loaded_tells_why(fail, tmp_path, monkeypatch):
    (tmp_path / "gone.py").write_text("def train():\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from gone import train

    (tmp_path / "gone.py").write_text("raise RuntimeError('broken since')\n")
    error = fail(train, 1, start_method="spawn")
    assert "broken since" in str(error)


def test_new_attempts(storage):
    def train():
        attempt = trainyard.get_context().get_attempt()
        trainyard.report({"attempt": attempt})
        if attempt < 3:
            raise ValueError(f"attempt {attempt}")

    trainer = DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=storage, failure_config=FailureConfig(max_failures=2)),
    )
    result = trainer.fit()
    assert result.metrics == {"attempt": 3}
    assert [one.outcome for one in result.history] == ["failed", "failed", "succeeded"]
    assert [one.attempt for one in result.history] == [1, 2, 3]
    first = result.history[0]
    assert first.num_workers == 2 and first.rank in (0, 1) and f"rank {first.rank}" in first.cause
    assert first.node == socket.gethostname() and first.seconds > 0
    assert trainyard.Result.from_path(result.path).history == result.history


def test_the_failure_told_is_of_the_last_attempt(fail):
    def train():
        raise ValueError(f"attempt {trainyard.get_context().get_attempt()}")

    error = fail(train, 1, failure_config=FailureConfig(max_failures=1))
    assert error.worker_failures[0].args == ("attempt 2",)


def test_a_neighbour_of_the_package_keeps_its_frames():
    """Only what lies in the package itself is left out of a traceback."""
    from trainyard import _worker

    def fail():
        raise KeyError("lost")

    path = os.path.join(os.path.dirname(_worker.__file__) + "_of_mine", "model.py")
    neighbour = {}
    exec(compile("def train(function):\n    function()\n", path, "exec"), neighbour)
    with pytest.raises(KeyError) as caught:
        neighbour["train"](fail)
    error = caught.value.with_traceback(caught.value.__traceback__.tb_next)
    assert _worker._own_frames_cut(error).tb_frame.f_code.co_filename == path


SCRIPT = """
import os, sys, time
import trainyard
from trainyard import DataParallelTrainer, RunConfig, ScalingConfig

def train():
    open("started-%d" % trainyard.get_context().get_world_rank(), "w").close()
    time.sleep(600)

trainyard.init(num_cpus=8)
trainer = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path="runs"))
try:
    trainer.fit()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def wait_for_start(place):
    from conftest import wait_until

    assert wait_until(lambda: (place / "started-0").exists() and (place / "started-1").exists())


def test_ctrl_c_ends_the_run_and_is_a_keyboard_interrupt(start, place):
    script = start(SCRIPT)
    wait_for_start(place)
    script.process.send_signal(signal.SIGINT)
    finished = script.finish()
    assert finished.status == 0 and finished.out == "interrupted\n", repr(finished)


STARTED = """open("started-%d" % trainyard.get_context().get_world_rank(), "w").close()
"""
INTERRUPTED = SCRIPT.replace(
    f"""    {STARTED}    time.sleep(600)
""",
    f"""    try:
        {STARTED}        HOW
    except KeyboardInterrupt:
        print("caught", flush=True)
        raise
    finally:
        print("finally", flush=True)
""",
)
assert "HOW" in INTERRUPTED


def test_ctrl_c_is_a_keyboard_interrupt_in_the_function(start, place):
    """And nobody's traceback fills the screen."""
    script = start(INTERRUPTED.replace("HOW", "time.sleep(600)"))
    wait_for_start(place)
    script.process.send_signal(signal.SIGINT)
    finished = script.finish()
    assert finished.status == 0, repr(finished)
    lines = sorted(finished.out.splitlines())
    assert lines == sorted(
        ["interrupted"] + [f"[rank {n}] {word}" for n in (0, 1) for word in ("caught", "finally")]
    )
    assert "Traceback" not in finished.err and "KeyboardInterrupt" not in finished.err, repr(finished)


def test_ctrl_c_interrupts_nobody_that_asks_for_it(start, place):
    started = STARTED.strip()
    script = start(
        INTERRUPTED.replace(started, "trainyard.stop_requested()").replace(
            "HOW",
            f"""{started}
        while not trainyard.stop_requested():
            time.sleep(0.01)
        print("saved", flush=True)""",
        )
    )
    wait_for_start(place)
    script.process.send_signal(signal.SIGINT)
    finished = script.finish()
    assert sorted(finished.out.splitlines()) == [
        "[rank 0] finally",
        "[rank 0] saved",
        "[rank 1] finally",
        "[rank 1] saved",
        "interrupted",
    ], repr(finished)


def test_quit_saves_stacks_and_then_ends_the_driver(start, place):
    script = start(SCRIPT)
    wait_for_start(place)
    script.process.send_signal(signal.SIGQUIT)
    finished = script.finish()
    assert finished.status == -signal.SIGQUIT, repr(finished)
    stacks = list((place / "runs").glob("*/logs/rank-*.stack"))
    assert len(stacks) == 2 and all("in train" in path.read_text() for path in stacks), repr(finished)


def test_a_handler_of_quit_that_python_does_not_know_stays(start, place):
    script = start(
        "import faulthandler, os, signal\nfaulthandler.register(signal.SIGQUIT)\n"
        + SCRIPT.replace(
            "    time.sleep(600)\n", "    os.kill(int(os.environ['DRIVER']), signal.SIGQUIT)\n"
        ).replace(
            "import os, sys, time", "import os, sys, time, signal\nos.environ['DRIVER'] = str(os.getpid())"
        )
    )
    finished = script.finish()
    assert finished.status == 0 and "most recent call first" in finished.err, repr(finished)


def test_sigterm_ends_the_run_and_then_the_driver(start, place):
    script = start(SCRIPT)
    wait_for_start(place)
    script.process.send_signal(signal.SIGTERM)
    assert script.finish().status == -signal.SIGTERM


def test_a_killed_driver_leaves_nothing(start, place):
    script = start(SCRIPT)
    wait_for_start(place)
    script.process.kill()
    script.finish()  # the fixture proves that nothing is left


def test_handlers_are_given_back(storage):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    DataParallelTrainer(lambda: None, run_config=RunConfig(storage_path=storage)).fit()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_fit_in_a_thread(storage):
    import threading

    trainer = DataParallelTrainer(
        lambda: trainyard.report({"a": 1}), run_config=RunConfig(storage_path=storage)
    )
    results = []
    thread = threading.Thread(target=lambda: results.append(trainer.fit().metrics))
    thread.start()
    thread.join()
    assert results == [{"a": 1}]


def test_shutdown_from_another_thread(storage, place):
    import threading

    from trainyard import TrainingFailedError

    def train(config):
        (config["place"] / "started").touch()
        time.sleep(600)

    trainer = DataParallelTrainer(
        train, train_loop_config={"place": place}, run_config=RunConfig(storage_path=storage)
    )

    def stop():
        from conftest import wait_until

        wait_until((place / "started").exists)
        trainer.shutdown()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises((TrainingFailedError, KeyboardInterrupt)):
        trainer.fit()
    thread.join()
