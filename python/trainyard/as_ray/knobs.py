"""The environment variables of Ray Train: which of them count under `as_ray`, and why the others do not.

They are read where they act: in the driver, before a run starts, or in the workers, which have the driver's environment.
"""

from __future__ import annotations

import datetime
import os
import secrets

STORAGE_PATH = "~/ray_results"

# Variable -> what it does.
COUNTS = {
    "RAY_TRAIN_V2_ENABLED": "0: what the first Ray Train had and the second refuses works (docs/as-ray.md), and the trainer holds "
    "1 CPU beside rank 0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0: that is not warned of",
    "RAY_TRAIN_CALLBACKS": "classes derived from UserCallback, dotted and joined by commas, that every run gets",
    "RAY_TRAIN_COLLECTIVE_TIMEOUT_S": "seconds after which a barrier, broadcast or report that waits for ranks fails; -1: never",
    "RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S": "seconds between warnings that name the missing ranks (60)",
    "RAY_TRAIN_REPORT_BARRIER_TIMEOUT_S": "older name of RAY_TRAIN_COLLECTIVE_TIMEOUT_S",
    "RAY_TRAIN_REPORT_BARRIER_WARN_INTERVAL_S": "older name of RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S",
    "RAY_TRAIN_CHECKPOINT_UPLOAD_WARN_INTERVAL_S": "seconds after which a checkpoint that is still on its way is told of (60)",
    "TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES": "0: a worker sees its own GPUs only; 1: those of its node's workers "
    "too; not given: as the backend has it, so that workers of a TorchTrainer share them and others do not",
    "TRAIN_ENABLE_SHARE_HIP_VISIBLE_DEVICES": "the same, of AMD's GPUs",
    "TRAIN_ENABLE_SHARE_NEURON_CORES_ACCELERATOR": "the same, of neuron_cores",
    "TRAIN_ENABLE_SHARE_ASCEND_RT_VISIBLE_DEVICES": "the same, of NPUs",
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "seconds that tearing down the process group may take (30)",
    "JAX_DISTRIBUTED_SHUTDOWN_TIMEOUT_S": "seconds that leaving the JAX world may take (30)",
    "RAY_TPU_RESOURCE_PER_CHIP": "how many TPU units a chip counts as (1)",
    "RAY_ADDRESS": "as ray.init(address=), when the program does not call it",
}

_SHARING = {  # variable -> the devices it speaks of, as Policy.sharing names them
    "TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES": "GPU",
    "TRAIN_ENABLE_SHARE_HIP_VISIBLE_DEVICES": "AMD GPU",
    "TRAIN_ENABLE_SHARE_NEURON_CORES_ACCELERATOR": "neuron_cores",
    "TRAIN_ENABLE_SHARE_ASCEND_RT_VISIBLE_DEVICES": "NPU",
}

# Variable -> why it has no effect.
_EVENTS = "nothing is polled: an exit, an error or a report wakes the driver at once"
_START = "a request that never fits is refused at once; one that must wait says what for"
_LOGS = "the output of each rank is in logs/ of the run's directory, and is shown with its rank"
_STATE = "the run's journal holds its state; `trainyard status` shows it"
_V1 = "of the first Ray Train only"
NO_EFFECT = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": _EVENTS,
    "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": _EVENTS,
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": _START,
    "TRAIN_PLACEMENT_GROUP_TIMEOUT_S": _START,
    "RAY_TRAIN_ENABLE_PRINT_PATCH": _LOGS,
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": _LOGS,
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": _LOGS,
    "RAY_TRAIN_ENABLE_STATE_TRACKING": _STATE,
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": _STATE,
    "RAY_TRAIN_STATE_ACTOR_RECONCILIATION_INTERVAL_S": _STATE,
    "RAY_TRAIN_METRICS_ENABLED": _STATE,
    "RAY_TRAIN_RUN_CONTROLLER_AS_ACTOR": "the controller is part of the driver",
    "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "nodes that are about to go are told of at once, nobody polls",
    "RAY_CHDIR_TO_TRIAL_DIR": "workers stay in the driver's directory, or in the working_dir of the runtime environment",
    "TORCHFT_LIGHTHOUSE": "replica groups are not provided",
    "RAY_WARN_BLOCKING_GET_INSIDE_ASYNC": "there is no object store",
    "TRAIN_ENABLE_WORKER_SPREAD": _V1 + '; give ScalingConfig(placement_strategy="SPREAD")',
    "RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE": _V1 + "; give FailureConfig(max_preemption_failures=)",
    "TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS": _V1 + "; metrics are what was reported",
}

_OLDER_NAMES = {
    "RAY_TRAIN_REPORT_BARRIER_TIMEOUT_S": "RAY_TRAIN_COLLECTIVE_TIMEOUT_S",
    "RAY_TRAIN_REPORT_BARRIER_WARN_INTERVAL_S": "RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S",
}


def is_true(name: str, default: bool) -> bool:
    """A variable as a truth: 1, true, yes or on; ValueError for what is neither that nor its contrary."""
    text = os.environ.get(name, "").strip().lower()
    if text in ("", "1", "true", "yes", "on", "0", "false", "no", "off"):
        return default if text == "" else text in ("1", "true", "yes", "on")
    raise ValueError(f"{name}={os.environ[name]!r} must be 1 or 0")


def _run_name() -> str:
    """By the time, as Ray's; the end keeps two of one second apart, of which the second would go on with the first."""
    return f"ray_train_run-{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}-{secrets.token_hex(2)}"


def apply() -> None:
    """Sets what runs of this process go by, from the variables as they are now."""
    from .. import defaults
    from . import exceptions, first, train

    for older, name in _OLDER_NAMES.items():
        if older in os.environ:
            os.environ.setdefault(name, os.environ[older])
    given = [name for name in _SHARING if os.environ.get(name, "").strip()]
    defaults.policy = defaults.Policy(
        storage_path=STORAGE_PATH,
        run_name=_run_name,
        groups=True,
        logging_config=train.LoggingConfig,
        tracebacks=True,
        exits_fail=True,
        fail_together_s=0.5,
        follows_links=True,
        resume=True,
        manifest="beside",
        storage_there=True,
        called="Ray Train",
        package="ray.train",
        cpu_world=True,
        step_error=exceptions.of_step,
        sharing={_SHARING[name]: is_true(name, True) for name in given},
        shares_by_backend=True,
        words={f"the same length as {name}": "the same length as `max_workers`" for name in ("`num_workers`", "max_workers")},
        placeholders=True,
        returned=train.returned,
        tolerates=first.tolerates,
        shows_nodes=True,
    )
