"""The environment a task finds: ours, JobSet's, torchrun's defaults, and the devices it may see.

Process-level ranks (RANK, WORLD_SIZE, …) mean processes to torch and nodes to others, so they are set only as
a full set and only where a task is the one process of its one device. Slurm's names are never set unasked.
"""

from __future__ import annotations

import zlib

from phalanx.core.model.orders import Brief, Start, key_text
from phalanx.core.model.resources import Capacity

KEY_VARIABLE = "PHALANX_ATTEMPT_KEY"
_PORT_FIRST, _PORTS = 20_000, 10_000


def job_environment(brief: Brief, node: str, address: str, checkpoint_dir: str) -> dict[str, str]:
    """What all attempts of a job share on this node."""
    port = str(_PORT_FIRST + zlib.crc32(brief.job.encode()) % _PORTS)
    name = brief.name or "job"
    defaults = {
        "JOB_INDEX": "0",
        "REPLICATED_JOB_NAME": name,
        "REPLICATED_JOB_REPLICAS": "1",
        "GLOBAL_REPLICAS": "1",
        "PET_NNODES": "1",
        "PET_NODE_RANK": "0",
        "PET_RDZV_ID": brief.job,
        "PET_RDZV_ENDPOINT": f"{address}:{port}",
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
    }
    ours = {
        "PHALANX_JOB_ID": brief.job,
        "PHALANX_JOB_NAME": brief.name,
        "PHALANX_BATCH_ID": brief.batch,
        "PHALANX_QUEUE": brief.queue,
        "PHALANX_ARRAY_COUNT": str(brief.tasks),
        "PHALANX_NODE_RANK": "0",
        "PHALANX_NUM_NODES": "1",
        "PHALANX_NODE_IPS": address,
        "PHALANX_NODE_NAMES": node,
        "PHALANX_NODE": node,
        "PHALANX_CHECKPOINT_DIR": checkpoint_dir,
    }
    return defaults | brief.command.env | ours  # the user may choose among conventions, not who the task is


def attempt_environment(
    brief: Brief, start: Start, capacity: Capacity, epoch: int, now: float
) -> dict[str, str]:
    """What is particular to one attempt."""
    devices = start.grant.devices
    visible = _visible(devices, capacity)
    env = {
        KEY_VARIABLE: f"{key_text(start.key)}/{start.lane}",
        "PHALANX_TASK_ID": brief.job if start.index is None else f"{brief.job}.{start.index}",
        "PHALANX_ATTEMPT": str(start.key[2]),
        "PHALANX_EPOCH": str(epoch),
        "PHALANX_RESTART_COUNT": str(start.restarts),
        "PHALANX_CORES": str(start.grant.cores),
        "PHALANX_GPUS_PER_NODE": str(len(devices)),
        "PHALANX_DEVICES": ",".join(map(str, devices)),
        "JOB_COMPLETION_INDEX": str(start.key[1]),
        "PET_NPROC_PER_NODE": str(max(1, len(devices))),
        "CUDA_VISIBLE_DEVICES": visible,
        "NVIDIA_VISIBLE_DEVICES": visible or "void",
    }
    if start.index is not None:
        env["PHALANX_ARRAY_INDEX"] = str(start.index)
    if start.grant.numa is not None:
        env["PHALANX_NUMA"] = str(start.grant.numa)
    if brief.time_limit_s is not None:
        env["PHALANX_DEADLINE"] = f"{now + brief.time_limit_s:.3f}"
    if len(devices) == 1:
        env |= _one_process(brief)
    return env


def _one_process(brief: Brief) -> dict[str, str]:
    port = str(_PORT_FIRST + zlib.crc32(brief.job.encode()) % _PORTS)
    return {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }


def _visible(devices: tuple[int, ...], capacity: Capacity) -> str:
    """UUIDs where CUDA knows them; plain indexes for pretended devices, which CUDA would not find anyway."""
    known = {device.index: device for device in capacity.devices}
    uuids = [known[index].uuid for index in devices if index in known]
    if any(not uuid or "pretend" in uuid for uuid in uuids):
        return ",".join(map(str, devices))
    return ",".join(uuids)
