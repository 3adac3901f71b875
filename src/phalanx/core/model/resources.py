"""What a task asks for, what a node has, and what a task was given.

`Request`, `Capacity` and `Grant` are plain values. As vectors they are counted in `amounts.py`; what is
held on a node right now is kept in `ledger.py`.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.target import Target

CAPACITY_CORES_MAX = 1 << 40
# As written: whole, or with at most three decimals. `amounts.py` counts them in thousandths.
Cores = int | float


class Request(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one task asks for. Equal requests form one class and are placed by one calculation."""

    cores: Cores = 1  # 0 asks for no core of its own: the task runs without a CPU limit
    memory_bytes: int = 0  # 0 asks for no memory of its own: no limit is set
    gpus: int = 0
    gpu_type: str | None = None
    gpu_memory_bytes: int = 0  # what each device must have at the least
    target: Target | None = None  # a node, perhaps a NUMA node of it, perhaps exact devices
    labels: tuple[tuple[str, str], ...] = ()  # what the node must carry, sorted


class Device(Struct, frozen=True, omit_defaults=True):
    """One accelerator of a node. `index` is how targets name it, `uuid` how CUDA does."""

    index: int
    kind: str
    memory_bytes: int = 0
    numa: int | None = None
    uuid: str = ""


class NumaNode(Struct, frozen=True):
    """A part of a machine where cores and memory are close together; `cpus` are kernel CPU numbers."""

    id: int
    cores: int
    cpus: tuple[int, ...] = ()


class Capacity(Struct, frozen=True, omit_defaults=True):
    """All that a node has to give. A node without NUMA data has an empty `numa`."""

    cores: Cores
    memory_bytes: int
    numa: tuple[NumaNode, ...] = ()
    devices: tuple[Device, ...] = ()
    labels: dict[str, str] = {}

    def __post_init__(self) -> None:
        """A runner says what its node has, so a number that cannot be is refused where it is read."""
        if not 0 <= self.cores <= CAPACITY_CORES_MAX:
            raise ValueError(f"cores: {self.cores} is out of range, a node has 0 to {CAPACITY_CORES_MAX}")


class Grant(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a task was given on its node, exactly. `numa` is set when the task is bound to it."""

    cores: Cores
    memory_bytes: int
    devices: tuple[int, ...] = ()
    numa: int | None = None
    numa_cores: tuple[tuple[int, Cores], ...] = ()  # (NUMA node, cores taken from it)
