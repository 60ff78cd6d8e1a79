"""The exception classes of `ray.exceptions`, so that a program can catch them. What fails under Trainyard raises the classes of
`ray.train` (TrainingFailedError and those below it); of these only RuntimeEnvSetupError and UserCodeException are raised."""

from __future__ import annotations

import traceback


class RayError(Exception):
    """The base of the others."""


def _below(names: str, *bases: type) -> None:
    for name in names.split():
        globals()[name] = type(
            name, bases, {"__module__": __name__, "__doc__": "Never raised, unless said above."}
        )


_below(
    "ActorPlacementGroupRemoved ActorUnschedulableError AsyncioActorExit AuthenticationError CrossLanguageError "
    "LocalRayletDiedError NodeDiedError ObjectLostError ObjectRefStreamEndOfStreamError ObjectStoreFullError OutOfDiskError "
    "OufOfBandObjectRefSerializationException OutOfMemoryError PendingCallsLimitExceeded PlasmaObjectNotAvailable RayActorError "
    "RaySystemError RayTaskError RpcError RuntimeEnvSetupError TaskCancelledError "
    "TaskPlacementGroupRemoved TaskUnschedulableError UnserializableException UserCodeException WorkerCrashedError",
    RayError,
)
_below("RayTaskError(UserCodeException)", globals()["RayTaskError"], globals()["UserCodeException"])
_below("ActorDiedError ActorUnavailableError", globals()["RayActorError"])
_below(
    "ObjectFetchTimedOutError ObjectFreedError ObjectReconstructionFailedError OwnerDiedError",
    globals()["ObjectLostError"],
)
_below("ReferenceCountingAssertionError", globals()["ObjectLostError"], AssertionError)
_below(
    "RayCgraphCapacityExceeded RayChannelError RayDirectTransportError StreamingGeneratorReplayInconsistentError",
    globals()["RaySystemError"],
)
_below("GetTimeoutError", RayError, TimeoutError)
_below("RayChannelTimeoutError", globals()["RayChannelError"], TimeoutError)
_below("ActorAlreadyExistsError ActorHandleNotFoundError", ValueError, RayError)


def of_step(error: Exception) -> Exception:
    """What a data set raises where a user's function raised `error`: a UserCodeException and a RayTaskError, with its traceback."""
    text = "".join(traceback.format_exception(error))
    return globals()["RayTaskError(UserCodeException)"](f"UDF failed to process a data block.\n{text}")
