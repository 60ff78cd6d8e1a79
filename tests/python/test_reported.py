"""A reported checkpoint, and what is told of a preemption, as values."""

from trainyard import Checkpoint
from trainyard.errors import PreemptionError
from trainyard.preemption import PreemptionInfo
from trainyard.reported import ReportedCheckpoint, ReportedCheckpointStatus


def test_reported_checkpoints_are_equal_by_their_fields(tmp_path):
    checkpoint = Checkpoint(str(tmp_path))
    one = ReportedCheckpoint(checkpoint, {"loss": 1}, ReportedCheckpointStatus.VALIDATED)
    assert one == ReportedCheckpoint(checkpoint, {"loss": 1}, ReportedCheckpointStatus.VALIDATED)
    assert one != ReportedCheckpoint(checkpoint, {"loss": 1})


def test_a_preemption_has_the_older_names_of_its_deadline():
    assert PreemptionInfo(1500, {}).deadline == 1.5 and PreemptionInfo(None, {}).deadline == 0.0
    assert PreemptionError(None, drain_timed_out=True).deadline_exceeded
    assert not PreemptionError(None).deadline_exceeded
