"""What a task asks for, what a node has, and what a task was given.

`Request`, `Capacity` and `Grant` are plain values. As vectors they are counted in `amounts.py`; what is
held on a node right now is kept in `ledger.py`. Makers have long names for their devices, people ask by short ones.

A *target* is written `host[:numa][::gpus]`: a node, perhaps one NUMA node of it, perhaps exact devices, such as `n1`,
`n1:0`, `n1::0,1`, `n1:0::0,1`. One parser serves the command line, REST, the SDK and files; what it refuses is named by
the position of the first character that does not belong. Names of hosts know no case, and nodes have theirs in lower
case.
"""

from __future__ import annotations

import re
from typing import ClassVar

from msgspec import Struct

from phalanx.core.model.overlay import usable

DEVICES_MAX = 1024
INDEX_MAX = 65_535
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NUMBER = re.compile(r"[0-9]{1,5}")
# Words in a product's name that do not tell one kind of device from another.
_SIZE_OR_FORM = re.compile(
    r"nvidia|tesla|geforce|graphics|generation|pcie|nvl|sxm[0-9]*|hbm[0-9]*[a-z]?|[0-9]+gb"
)


class TargetError(ValueError):
    """A target that cannot be read: which text, where it goes wrong, and what would be right."""

    def __init__(self, text: str, position: int, expected: str) -> None:
        self.text = text
        self.position = position
        self.expected = expected
        super().__init__(
            f"invalid target format {text[:80]!r} at position {position}: expected {expected}"
            " (host[:numa][::gpus], such as n1, n1:0, n1::0,1 or n1:0::0,1)"
        )


class Target(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a task must run. No `devices` means none by name; a count may still be asked for."""

    host: str
    numa: int | None = None
    devices: tuple[int, ...] = ()

    def __str__(self) -> str:
        numa = "" if self.numa is None else f":{self.numa}"
        devices = f"::{','.join(map(str, self.devices))}" if self.devices else ""
        return f"{self.host}{numa}{devices}"


def parse_target(text: str) -> Target:
    """Read a target, or raise TargetError with the position of what is wrong."""
    host = _HOST.match(text)
    if host is None:
        raise TargetError(text, 0, "a host name of letters, digits, '.', '_' or '-'")
    position = host.end()
    numa = None
    if text.startswith(":", position) and not text.startswith("::", position):
        numa, position = _number(text, position + 1, "a NUMA node number")
    devices: tuple[int, ...] = ()
    if text.startswith("::", position):
        devices, position = _devices(text, position + 2)
    if position != len(text):
        raise TargetError(text, position, "the end" if devices else "':' or '::' or the end")
    return Target(host.group().lower(), numa, devices)


def _devices(text: str, position: int) -> tuple[tuple[int, ...], int]:
    found: dict[int, None] = {}  # in order
    while True:
        at = position
        index, position = _number(text, position, "a GPU index")
        if index in found:
            raise TargetError(text, at, f"each GPU index once, {index} is repeated")
        if len(found) == DEVICES_MAX:
            raise TargetError(text, at, f"at most {DEVICES_MAX} GPU indexes")
        found[index] = None
        if not text.startswith(",", position):
            return tuple(found), position
        position += 1


def _number(text: str, position: int, expected: str) -> tuple[int, int]:
    match = _NUMBER.match(text, position)
    if match is None or int(match.group()) > INDEX_MAX:
        raise TargetError(text, position, f"{expected} from 0 to {INDEX_MAX}")
    return int(match.group()), match.end()


NOTE_MAX = 300
_KEY = re.compile(r"[A-Za-z0-9+/]{43}=")
CAPACITY_CORES_MAX = 1 << 40
COST_MAX = 1_000_000  # per hour


# As written: whole, or with at most three decimals. `amounts.py` counts them in thousandths.
Cores = int | float


class Request(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one task asks for. Equal requests form one class and are placed by one calculation."""

    cores: Cores = 1  # 0 asks for no core of its own: the task runs without a CPU limit
    memory_bytes: int = 0  # 0 asks for no memory of its own: no limit is set
    gpus: int = 0
    gpu_type: str | None = None  # a kind of device, or with `*` a pattern of their names
    gpu_memory_bytes: int = 0  # what each device must have at the least
    target: Target | None = None  # a node, perhaps a NUMA node of it, perhaps exact devices
    labels: tuple[tuple[str, str], ...] = ()  # what the node must carry, sorted
    addresses: int = 0  # 1: one of the overlay network, whichever is free
    address: str = ""  # exactly this one, which is reserved for it; then `addresses` is 0
    nodes: tuple[str, ...] = ()  # only one of these; empty: any
    exclude: tuple[str, ...] = ()  # none of these
    exclusive: bool = False  # a node that is empty, all of which it is given
    spread: bool = False  # tasks of the job on as many different nodes as there is room on

    @property
    def is_choosy(self) -> bool:
        """Whether nodes have to be of a kind, whatever is free on them."""
        return bool(self.labels or self.nodes or self.exclude)

    @property
    def wants_address(self) -> bool:
        return bool(self.addresses or self.address)


class Device(Struct, frozen=True, omit_defaults=True):
    """One accelerator of a node. `index` is how targets name it, `uuid` how CUDA does."""

    index: int
    kind: str
    memory_bytes: int = 0
    numa: int | None = None
    uuid: str = ""
    name: str = ""  # as its maker calls it; empty where only the kind is known
    shares_memory: bool = False  # its memory is a part of that of its machine


class NumaNode(Struct, frozen=True):
    """A part of a machine where cores and memory are close together; `cpus` are kernel CPU numbers."""

    id: int
    cores: int
    cpus: tuple[int, ...] = ()


ISOLATED = (
    "phalanx.isolation",
    "enforced",
)  # the label of a node that holds tasks to all that they were granted


class Isolation(Struct, frozen=True, omit_defaults=True):
    """How a node holds tasks to what they were granted, one word for each limit; empty: it does not.

    Words that a task cannot undo: cpuset, quota, limit, filter; `none` of devices: there are none to be kept apart.
    """

    cpus: str = ""  # cpuset, or affinity, which a task can undo
    cpu_time: str = ""  # quota, for parts of cores
    memory: str = ""  # limit, or watched: what uses more is ended when that is seen
    processes: str = ""  # limit, or account: of all tasks together
    devices: str = ""  # filter, or none
    scratch: str = ""  # quota, tmpfs or watched; empty where no size is set
    note: str = ""  # why not more
    network: str = ""  # cgroup or account: what tells tasks without an address apart in an overlay network

    @property
    def lacking(self) -> list[str]:
        """What tasks are not held to, in words for people; empty: to everything."""
        held = {
            "CPUs": self.cpus == "cpuset",
            "CPU time": self.cpu_time == "quota",
            "memory": self.memory == "limit",
            "number of processes": self.processes == "limit",
            "devices": self.devices in ("filter", "none"),
        }
        return [name for name, is_held in held.items() if not is_held]


class TaskAccounts(Struct, frozen=True, omit_defaults=True):
    """As which accounts of a node its tasks run."""

    mapped: bool = False  # each user's tasks as the account that the operator has named for that user
    shared: str = ""  # else all tasks as this one, which is the runner's
    root: bool = False  # whether tasks may run as root


class Capacity(Struct, frozen=True, omit_defaults=True):
    """All that a node has to give. A node without NUMA data has an empty `numa`."""

    cores: Cores
    memory_bytes: int
    numa: tuple[NumaNode, ...] = ()
    devices: tuple[Device, ...] = ()
    labels: dict[str, str] = {}
    cost_per_hour: float | None = None  # what an hour of it costs, as its operator says
    slots: int = 0  # 1: one task at a time, which is given all cores and memory; 0: as many as find room
    isolation: Isolation | None = None  # None: its runner is of a version that does not say
    # Its part of the overlay network, such as 10.128.0.0/22, as the coordinator has given it; runners send none.
    block: str = ""
    containers: str = ""  # its runtime for containers and the version of that, or why there is none
    wireguard: str = ""  # its public key, if its runner can encrypt what it sends to other nodes
    no_wireguard: str = ""  # why it cannot
    accounts: TaskAccounts | None = None  # None: its runner is of a version that does not say

    @property
    def addresses(self) -> int:
        return usable(self.block)

    def __post_init__(self) -> None:
        """A runner says what its node has, so a number that cannot be is refused where it is read."""
        if self.cost_per_hour is not None and not 0 <= self.cost_per_hour <= COST_MAX:
            raise ValueError(f"cost_per_hour: {self.cost_per_hour} is out of range, expected 0 to {COST_MAX}")
        if self.slots not in (0, 1):
            raise ValueError(f"slots: {self.slots} is out of range, expected 0 or 1")
        if self.wireguard and _KEY.fullmatch(self.wireguard) is None:
            raise ValueError(f"wireguard: {self.wireguard[:60]!r} is not a public key, 32 bytes in base64")
        if len(self.no_wireguard) > NOTE_MAX:
            raise ValueError(
                f"no_wireguard: {len(self.no_wireguard)} characters, at most {NOTE_MAX} are taken"
            )
        if not 0 <= self.cores <= CAPACITY_CORES_MAX:
            raise ValueError(f"cores: {self.cores} is out of range, a node has 0 to {CAPACITY_CORES_MAX}")


class Grant(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a task was given on its node, exactly. `numa` is set when the task is bound to it."""

    cores: Cores
    memory_bytes: int
    devices: tuple[int, ...] = ()
    numa: int | None = None
    numa_cores: tuple[tuple[int, Cores], ...] = ()  # (NUMA node, cores taken from it)
    address: str = ""  # its own in the overlay network
    # The whole node, and one byte more than there is: so nothing fits beside it, not even what asks for nothing.
    exclusive: bool = False
    # How many addresses are free as soon as it ends: none, for an address rests first.
    addresses: ClassVar[int] = 0


def device_kind(name: str) -> str:
    """The short name people ask for: `NVIDIA A100-SXM4-80GB` is an `a100`, `GeForce RTX 4090` an `rtx-4090`."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    kept = [word for word in words if _SIZE_OR_FORM.fullmatch(word) is None]
    return "-".join(kept or words)[:63].strip("-") or "gpu"
