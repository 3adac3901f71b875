"""The environment of an attempt: who it is, what it was given, and where the others of its gang stand.

docs/reference/environment.md lists every variable. The user may choose among conventions, not the identity of the
task: a job's variables override JobSet's and torch's names, and are overridden by ours and by the devices. What was
exported from the environment of whoever submitted it is weaker than all of these. To torchrun
every member of a gang is a "node" with as many processes as it has devices, which is right for one member on each node
and for several. Ranks follow the roll, which the coordinator wrote; an attempt without a gang is alone, on its own
node. Process-level ranks (RANK, WORLD_SIZE, …) mean processes to torch and nodes to others, so they are set only as a
full set and only where every member is one process: it has one device, or is in a gang and has none, or all members
of the gang run Python and no launcher (`plain_command.py`). Their meeting point (MASTER_ADDR, MASTER_PORT) is set
for every member of a gang. Slurm's names are never set unasked.
"""

from __future__ import annotations

import zlib

from msgspec import Struct

from phalanx.core.model.orders import GANG_PORTS, Brief, Roll, Start
from phalanx.core.model.resources import Capacity
from phalanx.logger import logger
from phalanx.runner.parameters import variables
from phalanx.runner.peers import Member, members_of, own_hostname, subdomain_of
from phalanx.runner.plain_command import is_plain_python

log = logger("runner")
LOOPBACK = "127.0.0.1"
_OF_VENVS = ("VIRTUAL_ENV", "CONDA_")
_TEXT_MAX = (128 << 10) - 64  # the kernel takes no variable longer than 128 KiB, its name included


class Withheld(Exception):
    """A job none of whose attempts may start, by what its coordinator says; the text is for its user."""


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
    members: tuple[Member, ...] = ()  # by rank; empty: not known
    hostname: str = ""
    subdomain: str = ""  # empty: nobody else knows it by name

    @property
    def is_one_process_each(self) -> bool:
        """Whether every member is one process, with one device or none, as far as this one can know."""
        return not self.is_mixed if self.most_devices < 0 else self.most_devices <= 1


def standing(
    start: Start, brief: Brief, roll: Roll | None, here: Peer, port: int = 0, others: Roll | None = None
) -> Standing:
    """The ranks from the roll; alone with its own port, if there is no roll or this attempt is not in it.

    `others` has those tasks of the job that have started by now, where they start one by one and know each other.
    """
    position = start.key[1]
    members = () if roll is None else roll.members
    rank = next((at for at, member in enumerate(members) if member[0] == position), None)
    if roll is None or rank is None:
        within = position - brief.group_first
        return Standing(
            0,
            1,
            0,
            (here,),
            0,
            1,
            within,
            brief.group_tasks,
            Peer(here.name, start.grant.address or here.address),
            is_alone=True,
            port=port,
            members=tuple(members_of(brief, others)),
            hostname=own_hostname(brief, position),
            subdomain=subdomain_of(brief) if brief.names else "",
        )
    nodes = tuple(Peer(name, address or name) for name, address in roll.nodes)
    node_rank = members[rank][1]
    local = [each for each, node in members if node == node_rank]
    last = brief.group_first + brief.group_tasks - 1
    group = [each for each, _ in members if each == position or brief.group_first <= each <= last]
    named = tuple(members_of(brief, roll))
    leader = nodes[members[0][1]]
    return Standing(
        rank,
        len(members),
        node_rank,
        nodes,
        local.index(position),
        len(local),
        group.index(position),
        len(group),
        Peer(leader.name, named[0].address) if named else leader,
        is_mixed=len(group) < len(members),
        port=roll.port,
        meeting=roll.meeting or roll.formation,
        most_devices=roll.most_devices,
        members=named,
        hostname=own_hostname(brief, position),
        subdomain=subdomain_of(brief),
    )


def inherited(base: dict[str, str], exported: dict[str, str]) -> dict[str, str]:
    """What a task starts from: the runner's own variables, overridden by those of whoever submitted it.

    Who exports a PATH has a virtual environment of his own, or none: the runner's does not go with it.
    """
    if "PATH" in exported:
        base = {name: text for name, text in base.items() if not name.startswith(_OF_VENVS)}
    return base | exported


def inside(base: dict[str, str], exported: dict[str, str]) -> dict[str, str]:
    """The same for a container: of the runner's own variables only those that we set, stronger than exported ones."""
    return exported | {name: text for name, text in base.items() if name.startswith("PHALANX_")}


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
    if brief.number:
        ours["PHALANX_JOB_NUMBER"] = str(brief.number)
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
    if not place.is_alone:
        conventions |= _master(brief, start, place)
    if _is_ranked(brief, start, place):
        conventions |= _one_process(brief, start, place)
    given = brief.command.env
    chosen = {name: text for name, text in conventions.items() if name not in given}
    return (
        chosen | _ours(brief, start, epoch) | _peers(place) | _names(start, place) | _devices(start, capacity)
    )


def _is_ranked(brief: Brief, start: Start, place: Standing) -> bool:
    """Whether its place among the members is that of one process among processes."""
    devices = len(start.grant.devices)
    if place.is_alone:
        return devices == 1 and place.is_one_process_each
    if devices <= 1 and place.is_one_process_each:
        return True
    return not place.is_mixed and is_plain_python(
        brief.command.argv
    )  # of other groups the command is not known


def _jobset(brief: Brief, start: Start) -> dict[str, str]:
    replica, place = in_replica(brief, start)
    return {"JOB_INDEX": str(replica), "JOB_COMPLETION_INDEX": str(place)}


def _torchrun(brief: Brief, start: Start, place: Standing) -> dict[str, str]:
    port = _port(brief, start, place)
    address = place.leader.address
    return {
        "PET_NNODES": str(place.size),
        "PET_NODE_RANK": str(place.rank),
        "PET_NPROC_PER_NODE": str(max(1, len(start.grant.devices))),
        "PET_RDZV_ID": task_id(brief, start) if place.is_alone else f"{brief.job}.{place.meeting}",
        "PET_RDZV_ENDPOINT": f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
    }


def _one_process(brief: Brief, start: Start, place: Standing) -> dict[str, str]:
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_RANK": "0",  # it sees its own devices alone, the first of which is device 0 to it
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(place.rank),
    } | _master(brief, start, place)


def _master(brief: Brief, start: Start, place: Standing) -> dict[str, str]:
    return {
        "MASTER_ADDR": "127.0.0.1" if place.is_alone else place.leader.address,
        "MASTER_PORT": _port(brief, start, place),
    }


def _ours(brief: Brief, start: Start, epoch: int) -> dict[str, str]:
    devices = start.grant.devices
    env = {
        "PHALANX_TASK_ID": task_id(brief, start),
        "PHALANX_ATTEMPT": str(start.key[2]),
        "PHALANX_EPOCH": str(epoch),
        "PHALANX_RESTART_COUNT": str(start.restarts),
        "PHALANX_CORES": str(start.grant.cores),
        "PHALANX_GPUS_PER_NODE": str(len(devices)),
        "PHALANX_DEVICES": ",".join(map(str, devices)),
    }
    if start.index is not None:
        env["PHALANX_ARRAY_INDEX"] = str(start.index)
    if start.grant.numa is not None:
        env["PHALANX_NUMA"] = str(start.grant.numa)
    if start.has_merged:
        env["PHALANX_MERGED"] = start.merged
    return env | variables(start.params) if start.params else env


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


def _names(start: Start, place: Standing) -> dict[str, str]:
    """Its host name, its own address, and host name and address of every member."""
    env = {"PHALANX_HOSTNAME": place.hostname}
    if place.subdomain:
        env["PHALANX_SUBDOMAIN"] = place.subdomain
    if start.grant.address:
        env["PHALANX_IP"] = start.grant.address
    peers = ",".join(f"{each.hostname}={each.address}" for each in place.members)
    if peers and len(peers) <= _TEXT_MAX:
        env["PHALANX_PEERS"] = peers
    return env


def _devices(start: Start, capacity: Capacity) -> dict[str, str]:
    """UUIDs where CUDA knows them; plain indexes for simulated devices, which CUDA would not find anyway."""
    known = {device.index: device for device in capacity.devices}
    visible = [known[index].uuid for index in start.grant.devices if index in known]
    if any(not uuid or "pretend" in uuid for uuid in visible):
        visible = [*map(str, start.grant.devices)]
    text = ",".join(visible)
    return {"CUDA_VISIBLE_DEVICES": text, "NVIDIA_VISIBLE_DEVICES": text or "void"}


def in_replica(brief: Brief, start: Start) -> tuple[int, int]:
    """The number of the task's replica in its group, and its index in that replica, as JobSet counts."""
    completions = max(1, brief.group_tasks // brief.replicas)
    return divmod(start.key[1] - brief.group_first, completions)


def _group_name(brief: Brief) -> str:
    return brief.group_name or brief.name or "job"


def task_id(brief: Brief, start: Start) -> str:
    if start.index is None and brief.tasks == 1:
        return brief.job
    return f"{brief.job}.{start.key[1] if start.index is None else start.index}"


def _port(brief: Brief, start: Start, place: Standing) -> str:
    """The same for all members, and another for each formation: a former one may still hold its port."""
    if place.port:
        return str(place.port)
    text = f"{brief.job}.{start.formation}" if start.formation else task_id(brief, start)
    return str(GANG_PORTS[zlib.crc32(text.encode()) % len(GANG_PORTS)])  # an older coordinator sends none
