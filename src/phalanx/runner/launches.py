"""What an attempt is started with: its logs, environment, processors and cgroup, as sent to the keeper.

A group's brief is sent to a keeper once. `core/runner/state.py` decides which attempts are started, and when.

docs/reference/environment.md lists every variable. The user may choose among conventions, not the identity of the
task: a job's variables override JobSet's and torch's names, and are overridden by ours and by the devices. To torchrun
every member of a gang is a "node" with as many processes as it has devices, which is right for one member on each node
and for several. Ranks follow the roll, which the coordinator wrote; an attempt without a gang is alone, on its own
node. Process-level ranks (RANK, WORLD_SIZE, …) mean processes to torch and nodes to others, so they are set only as a
full set and only where every member is one process: it has one device, or is in a gang and has none. Their meeting
point (MASTER_ADDR, MASTER_PORT) is set for every member of a gang. Slurm's names are never set unasked.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from msgspec import Struct, structs

from phalanx.core.model.orders import (
    GANG_PORTS,
    AttemptKey,
    Brief,
    LonePorts,
    Roll,
    Start,
    key_from_text,
    key_text,
)
from phalanx.core.model.resources import Capacity, Grant
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.core.runner.state import Spawn
from phalanx.logger import logger
from phalanx.runner.cgroups import Cgroup, Cgroups
from phalanx.runner.keeper_messages import Launch
from phalanx.runner.log_files import ARTIFACTS, RESULT, LogPath, folder_of, log_path
from phalanx.runner.processes import Machine, Processes
from phalanx.runner.turn import RunnerEngine

log = logger("runner")
LOOPBACK = "127.0.0.1"
_TEXT_MAX = (128 << 10) - 64  # the kernel takes no variable longer than 128 KiB, its name included


class Launches:
    """The launches of one runner. The keeper's key of an attempt includes its lane."""

    def __init__(
        self,
        engine: RunnerEngine,
        state_dir: Path,
        base_env: dict[str, str],
        log_max_bytes: int,
        cgroups: Cgroups,
        machine: Machine,
    ) -> None:
        self.log_root = state_dir / "logs"
        self.names: dict[AttemptKey, str] = {}
        self._engine = engine
        self._checkpoints = state_dir / "checkpoints"
        self._base_env = base_env
        self._log_max_bytes = log_max_bytes
        self._cgroups = cgroups
        self._machine = machine
        self._held_cgroups: dict[AttemptKey, Cgroup] = {}
        self._briefed: set[str] = set()
        self._former: set[AttemptKey] = set()  # attempts whose files are where an earlier version has them
        self._ports = LonePorts(f"{engine.node}/{engine.incarnation}")

    def start(self, keeper: Processes, effect: Spawn, not_after: float) -> None:
        """Have the keeper start an attempt, or prepare it; raises OSError where its log can have no folder."""
        start, brief = effect.start, effect.brief
        self._brief(keeper, brief)
        name = self.names[start.key] = f"{key_text(start.key)}/{start.lane}"
        job, position, number = start.key
        cgroup = self._cgroup(start)
        here = Peer(self._engine.node, self._engine.address or LOOPBACK)
        port = 0 if start.formation else self._ports.take(start.key)
        place = standing(start, brief, effect.roll, here, port)
        env = attempt_environment(brief, start, place, self._engine.capacity, self._engine.state.epoch)
        env["PHALANX_RESULT"] = str(self._path(start.key, RESULT))
        artifacts = self.artifacts_path(start.key)
        env["PHALANX_ARTIFACTS"] = str(artifacts)
        self._machine.make_artifacts(artifacts)
        launch = Launch(
            out=str(log_path(self.log_root, job, position, number, "stdout")),
            err=str(log_path(self.log_root, job, position, number, "stderr")),
            env=env,
            cpus=self._cpus(start.grant),
            cgroups=cgroup.folders if cgroup else None,
            log_max_bytes=self._log_max_bytes,
            lane=start.lane,
            limit_s=brief.time_limit_s,
            held=effect.held,
            not_after=not_after,
        )
        keeper.start(name, _brief_id(job, brief.group), launch)

    def with_result(self, key: AttemptKey, end: ProcessEnd) -> ProcessEnd:
        """The end of an attempt, with what it gave as its result."""
        result, error = self._machine.read_result(self._path(key, RESULT))
        return structs.replace(end, result=result, result_error=error) if result or error else end

    def close_artifacts(self, key: AttemptKey) -> bool:
        """Whether an attempt left artifacts."""
        return self._machine.close_artifacts(self.artifacts_path(key))

    def artifacts_path(self, key: AttemptKey) -> LogPath:
        """The folder for its artifacts, made with those above it before the task starts."""
        return self._path(key, ARTIFACTS)

    def find_files(self, key: AttemptKey) -> None:
        """Look for the files of an attempt that an earlier runner had started: its version may have them elsewhere."""
        if self._machine.has_artifacts(log_path(self.log_root, *key, ARTIFACTS).former):
            self._former.add(key)

    def _path(self, key: AttemptKey, kind: str) -> LogPath:
        """Where the task makes its result, or finds the folder for its artifacts."""
        path = log_path(self.log_root, *key, kind)
        return path.former if key in self._former else path

    def adopt(self, key: AttemptKey, name: str) -> None:
        """An attempt that an earlier runner had started."""
        self.names[key] = name
        self.find_files(key)
        self._held_cgroups[key] = self._cgroups.named(cgroup_name(key))

    def new_keeper(self) -> None:
        """A new keeper has no briefs yet."""
        self._briefed.clear()

    def forget(self, keeper: Processes | None, key: AttemptKey) -> None:
        self._ports.give_back(key)
        self._former.discard(key)
        name = self.names.pop(key, None)
        if keeper is not None and name is not None:
            keeper.forget([name])

    def forget_brief(self, keeper: Processes | None, job: str, group: int) -> None:
        id = _brief_id(job, group)
        if keeper is not None and id in self._briefed:
            self._briefed.discard(id)
            keeper.forget_brief(id)

    def release(self, key: AttemptKey) -> None:
        """Nothing of it is alive: its cgroup can be removed."""
        if (cgroup := self._held_cgroups.pop(key, None)) is not None:
            self._cgroups.remove(cgroup)

    def release_all_but(self, live: set[AttemptKey]) -> None:
        for key in [each for each in self._held_cgroups if each not in live]:
            self.release(key)

    def _brief(self, keeper: Processes, brief: Brief) -> None:
        """Send the keeper what a group's attempts share, once, and make the folder for the job's logs."""
        id = _brief_id(brief.job, brief.group)
        if id in self._briefed:
            return
        self._machine.make_folder(f"{self.log_root}/{folder_of(brief.job)}")
        env = self._base_env | group_environment(brief, self._engine.node, f"{self._checkpoints}/{brief.job}")
        keeper.brief(id, brief.command.argv, env, brief.command.cwd, self._cgroups.tracking)
        self._briefed.add(id)

    def _cpus(self, grant: Grant) -> list[int] | None:
        """The kernel CPUs of the NUMA node a task is bound to, if it is."""
        numa = self._engine.capacity.numa
        return next((list(each.cpus) for each in numa if each.id == grant.numa and each.cpus), None)

    def _cgroup(self, start: Start) -> Cgroup | None:
        if not start.grant.memory_bytes:
            return None
        cgroup = self._cgroups.create(cgroup_name(start.key), start.grant.memory_bytes, start.grant.cores)
        if cgroup is not None:
            self._held_cgroups[start.key] = cgroup
        return cgroup


def read_key(name: str) -> tuple[AttemptKey, int] | None:
    """The attempt of a keeper's key, and its lane; None for an invalid key."""
    text, _, lane = name.rpartition("/")
    try:
        return key_from_text(text), int(lane)
    except ValueError:
        log.error("the keeper lists an invalid key", key=name[:80])
        return None


def cgroup_name(key: AttemptKey) -> str:
    return "-".join(map(str, key))


def _brief_id(job: str, group: int) -> str:
    return f"{job}/{group}"


class Peer(Struct, frozen=True):
    """A node of members, and its address for others."""

    name: str
    address: str


class Standing(Struct, frozen=True):
    """One attempt's ranks, counted from 0, and the sizes they are counted in."""

    rank: int
    size: int
    node_rank: int
    nodes: tuple[Peer, ...]
    local_rank: int  # among the members on its node
    local_size: int
    group_rank: int  # among the members of its group
    group_size: int
    leader: Peer  # the node of rank 0
    is_alone: bool = False
    is_mixed: bool = False  # whether there are members of other groups
    port: int = 0  # where rank 0 listens; 0: unknown
    meeting: int = 0  # the formation that all members belong to
    most_devices: int = -1  # of any member; −1: unknown

    @property
    def is_one_process_each(self) -> bool:
        """Whether every member is one process, with one device or none, as far as this one can know."""
        return not self.is_mixed if self.most_devices < 0 else self.most_devices <= 1


def standing(start: Start, brief: Brief, roll: Roll | None, here: Peer, port: int = 0) -> Standing:
    """The ranks from the roll; alone with its own port, if there is no roll or this attempt is not in it."""
    position = start.key[1]
    members = () if roll is None else roll.members
    rank = next((at for at, member in enumerate(members) if member[0] == position), None)
    if roll is None or rank is None:
        within = position - brief.group_first
        return Standing(0, 1, 0, (here,), 0, 1, within, brief.group_tasks, here, is_alone=True, port=port)
    nodes = tuple(Peer(name, address or name) for name, address in roll.nodes)
    node_rank = members[rank][1]
    local = [each for each, node in members if node == node_rank]
    last = brief.group_first + brief.group_tasks - 1
    group = [each for each, _ in members if each == position or brief.group_first <= each <= last]
    return Standing(
        rank,
        len(members),
        node_rank,
        nodes,
        local.index(position),
        len(local),
        group.index(position),
        len(group),
        nodes[members[0][1]],
        is_mixed=len(group) < len(members),
        port=roll.port,
        meeting=roll.meeting or roll.formation,
        most_devices=roll.most_devices,
    )


def group_environment(brief: Brief, node: str, checkpoint_dir: str) -> dict[str, str]:
    """What all attempts of a group share on this node."""
    conventions = {
        "REPLICATED_JOB_NAME": _group_name(brief),
        "REPLICATED_JOB_REPLICAS": str(brief.replicas),
        "GLOBAL_REPLICAS": str(brief.replicas_of_all),
    }
    ours = {
        "PHALANX_JOB_ID": brief.job,
        "PHALANX_JOB_NAME": brief.name,
        "PHALANX_BATCH_ID": brief.batch,
        "PHALANX_QUEUE": brief.queue,
        "PHALANX_GROUP": brief.group_name,
        "PHALANX_ARRAY_COUNT": str(brief.tasks),
        "PHALANX_NODE": node,
        "PHALANX_CHECKPOINT_DIR": checkpoint_dir,
    }
    if brief.token:  # for this job alone, and only while it lives
        ours["PHALANX_TASK_TOKEN"] = brief.token
        if brief.address:
            ours["PHALANX_TASK_ADDRESS"] = brief.address
    return conventions | brief.command.env | ours


def attempt_environment(
    brief: Brief, start: Start, place: Standing, capacity: Capacity, epoch: int
) -> dict[str, str]:
    """The variables of one attempt."""
    conventions = _jobset(brief, start) | _torchrun(brief, start, place)
    devices = len(start.grant.devices)
    if not place.is_alone:
        conventions |= _master(brief, start, place)
    if devices == 1 or (devices == 0 and not place.is_alone):
        conventions |= _one_process(brief, start, place) if place.is_one_process_each else {}
    given = brief.command.env
    chosen = {name: text for name, text in conventions.items() if name not in given}
    return chosen | _ours(brief, start, epoch) | _peers(place) | _devices(start, capacity)


def _jobset(brief: Brief, start: Start) -> dict[str, str]:
    replica, place = _in_replica(brief, start)
    return {"JOB_INDEX": str(replica), "JOB_COMPLETION_INDEX": str(place)}


def _torchrun(brief: Brief, start: Start, place: Standing) -> dict[str, str]:
    port = _port(brief, start, place)
    address = place.leader.address
    return {
        "PET_NNODES": str(place.size),
        "PET_NODE_RANK": str(place.rank),
        "PET_NPROC_PER_NODE": str(max(1, len(start.grant.devices))),
        "PET_RDZV_ID": _task_id(brief, start) if place.is_alone else f"{brief.job}.{place.meeting}",
        "PET_RDZV_ENDPOINT": f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
    }


def _one_process(brief: Brief, start: Start, place: Standing) -> dict[str, str]:
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_RANK": "0",  # it sees one device, which is device 0 to it, whatever else runs on its node
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(place.rank),
    } | _master(brief, start, place)


def _master(brief: Brief, start: Start, place: Standing) -> dict[str, str]:
    return {
        "MASTER_ADDR": "127.0.0.1" if place.is_alone else place.leader.address,
        "MASTER_PORT": _port(brief, start, place),
    }


def _ours(brief: Brief, start: Start, epoch: int) -> dict[str, str]:
    replica, place = _in_replica(brief, start)
    devices = start.grant.devices
    env = {
        "PHALANX_TASK_ID": _task_id(brief, start),
        "PHALANX_ATTEMPT": str(start.key[2]),
        "PHALANX_EPOCH": str(epoch),
        "PHALANX_RESTART_COUNT": str(start.restarts),
        "PHALANX_CORES": str(start.grant.cores),
        "PHALANX_GPUS_PER_NODE": str(len(devices)),
        "PHALANX_DEVICES": ",".join(map(str, devices)),
        "PHALANX_HOSTNAME": f"{brief.name or 'job'}-{_group_name(brief)}-{replica}-{place}",
    }
    if start.index is not None:
        env["PHALANX_ARRAY_INDEX"] = str(start.index)
    if start.grant.numa is not None:
        env["PHALANX_NUMA"] = str(start.grant.numa)
    if start.merged:
        env["PHALANX_MERGED"] = start.merged
    return env


def _peers(place: Standing) -> dict[str, str]:
    lists = {
        "PHALANX_NODE_IPS": ",".join(node.address for node in place.nodes),
        "PHALANX_NODE_NAMES": ",".join(node.name for node in place.nodes),
    }
    return {
        "PHALANX_RANK": str(place.rank),
        "PHALANX_WORLD_SIZE": str(place.size),
        "PHALANX_GROUP_RANK": str(place.group_rank),
        "PHALANX_GROUP_SIZE": str(place.group_size),
        "PHALANX_LOCAL_RANK": str(place.local_rank),
        "PHALANX_LOCAL_SIZE": str(place.local_size),
        "PHALANX_NODE_RANK": str(place.node_rank),
        "PHALANX_NUM_NODES": str(len(place.nodes)),
    } | {name: text for name, text in lists.items() if len(text) <= _TEXT_MAX}


def _devices(start: Start, capacity: Capacity) -> dict[str, str]:
    """UUIDs where CUDA knows them; plain indexes for simulated devices, which CUDA would not find anyway."""
    known = {device.index: device for device in capacity.devices}
    visible = [known[index].uuid for index in start.grant.devices if index in known]
    if any(not uuid or "pretend" in uuid for uuid in visible):
        visible = [*map(str, start.grant.devices)]
    text = ",".join(visible)
    return {"CUDA_VISIBLE_DEVICES": text, "NVIDIA_VISIBLE_DEVICES": text or "void"}


def _in_replica(brief: Brief, start: Start) -> tuple[int, int]:
    """The number of the task's replica in its group, and its index in that replica, as JobSet counts."""
    completions = max(1, brief.group_tasks // brief.replicas)
    return divmod(start.key[1] - brief.group_first, completions)


def _group_name(brief: Brief) -> str:
    return brief.group_name or brief.name or "job"


def _task_id(brief: Brief, start: Start) -> str:
    if start.index is None and brief.tasks == 1:
        return brief.job
    return f"{brief.job}.{start.key[1] if start.index is None else start.index}"


def _port(brief: Brief, start: Start, place: Standing) -> str:
    """The same for all members, and another for each formation: a former one may still hold its port."""
    if place.port:
        return str(place.port)
    text = f"{brief.job}.{start.formation}" if start.formation else _task_id(brief, start)
    return str(GANG_PORTS[zlib.crc32(text.encode()) % len(GANG_PORTS)])  # an older coordinator sends none
