"""The text of failures, and errors that travel."""

import pickle

from trainyard import ControllerError, TrainingFailedError, WorkerGroupError
from trainyard.errors import RemoteTraceback, WorkerKilledError, group_failures
from trainyard.screen import harmless


def test_ranks_that_failed_alike_are_told_together():
    failures = {0: ValueError("A"), 2: RuntimeError("B"), 3: ValueError("A")}
    assert group_failures(failures) == "[Rank 0, 3]:\nA\n[Rank 2]:\nB"


def test_numbers_and_addresses_make_no_difference():
    text = group_failures({rank: ValueError(f"rank {rank} at /data/x{rank} failed") for rank in range(4)})
    assert text == "[Rank 0, 1, 2, 3]:\nrank 0 at /data/x0 failed\n(numbers of rank 0; others in rank 1-3)"
    assert group_failures({1: ValueError("code 7")}) == "[Rank 1]:\ncode 7"


def test_long_texts_are_cut():
    text = group_failures({0: ValueError("x" * 5000)})
    assert text.count("x" * 500) == 2 and "x" * 501 not in text and "truncated" in text
    assert group_failures({0: ValueError("begin" + "x" * 5000 + "end")}).endswith("end")
    assert "truncated" not in group_failures({0: ValueError("x" * 1000)})


def test_the_remote_traceback_is_the_text():
    error = ValueError("short")
    error.__cause__ = RemoteTraceback("Traceback: long\nValueError: short\n")
    assert group_failures({0: error}) == "[Rank 0]:\nTraceback: long\nValueError: short"
    assert group_failures({0: error}, tracebacks=False) == "[Rank 0]:\nValueError: short"


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(WorkerGroupError("text", {1: ValueError("a")})))
    assert (
        isinstance(error, TrainingFailedError)
        and str(error) == "text"
        and error.worker_failures[1].args == ("a",)
    )
    error = pickle.loads(pickle.dumps(ControllerError(ValueError("b"))))
    assert isinstance(error.controller_failure, ValueError) and "b" in str(error)
    error = pickle.loads(pickle.dumps(WorkerKilledError("killed", 9)))
    assert (error.signal, error.exit_code, str(error)) == (9, 137, "killed")


def test_what_a_terminal_obeys_is_escaped():
    assert harmless("plain\ttext\nof \u00e9\u4e2d lines") == "plain\ttext\nof \u00e9\u4e2d lines"
    assert harmless("\x1b[31m\r\x00\x7f") == "\\x1b[31m\\x0d\\x00\\x7f"
    assert harmless("\x9b\u202e\u2066") == "\\u009b\\u202e\\u2066"
    assert harmless(b"\xff".decode(errors="surrogateescape") + "\ud800") == "\\xff\\ud800"


def test_failures_are_told_escaped_and_kept_as_they_are():
    failure = ValueError("\x1b[2J")
    assert group_failures({0: failure}) == "[Rank 0]:\n\\x1b[2J"
    controller = ControllerError(failure)
    assert "\\x1b[2J" in str(controller) and controller.controller_failure.args == ("\x1b[2J",)


def test_a_controller_s_error_is_told_on_a_line_of_its_own():
    assert str(ControllerError(ValueError("b"))) == "Training failed due to controller error:\nb"


def events(*told):
    """What a run tells: an attempt, and then of ranks that failed ("told", rank) and ended ("exited", rank, how)."""
    from trainyard.failures import Failures

    failures = Failures()
    failures.take({"event": "attempt"})
    for kind, rank, *more in told:
        if kind == "told":
            failure = {"type": "ValueError", "message": f"of {rank}", "traceback": "", "pickle": None}
            failures.take({"event": "failure", "rank": rank, "failure": failure})
        else:
            failures.take({"event": "exited", "rank": rank, **more[0]})
    return failures.collect("/run")


def test_ranks_that_failed_together_are_all_told_of():
    """Though the first to end has the others stopped."""
    stopped, ended = {"signal": 15, "stopped": True}, {"code": 1}
    assert list(events(("told", 1), ("told", 0), ("exited", 1, ended), ("exited", 0, stopped))) == [0, 1]
    assert list(events(("told", 1), ("exited", 1, ended), ("exited", 0, stopped))) == [1]
    assert events(("told", 0), ("exited", 0, stopped), ("exited", 1, stopped)) == {}, "who stops from outside fails of that"


def test_what_fails_of_the_end_of_another_is_not_told_of():
    killed, stopped = {"signal": 9}, {"code": 1, "stopped": True}
    failed = events(("exited", 1, killed), ("told", 0), ("exited", 0, stopped))
    assert list(failed) == [1] and isinstance(failed[1], WorkerKilledError)
