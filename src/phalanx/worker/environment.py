"""What a worker of an executor finds in its environment, as the client and the runner have set it for the task."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from phalanx.errors import ConfigError

_WORKER_VARIABLES = ("PHALANX_TASK_ID", "PHALANX_ATTEMPT", "PHALANX_TASK_TOKEN", "PHALANX_EXECUTOR_ADDRESS")


class WorkerEnvironment(Struct, frozen=True):
    """What a worker of an executor is told: its task, its token, and where the coordinators are."""

    task: str
    attempt: int
    token: str
    address: str
    ca_file: str = ""
    path: str = ""  # folders of the client's modules
    idle_s: float = 10.0  # after which a worker without calls ends


def worker_environment(env: Mapping[str, str]) -> WorkerEnvironment:
    """As the client and the runner have set it for the task."""
    missing = [name for name in _WORKER_VARIABLES if not env.get(name)]
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} not set: a worker is a task of an executor",
            hint="use phalanx.Executor, which submits its workers",
        )
    return WorkerEnvironment(
        env["PHALANX_TASK_ID"],
        int(env["PHALANX_ATTEMPT"]),
        env["PHALANX_TASK_TOKEN"],
        env["PHALANX_EXECUTOR_ADDRESS"],
        env.get("PHALANX_EXECUTOR_CA_FILE", ""),
        env.get("PHALANX_EXECUTOR_PATH", ""),
        float(env.get("PHALANX_EXECUTOR_IDLE_S", "10")),
    )
