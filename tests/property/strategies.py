"""Random hardware, requests and clusters, kept small so that things collide often."""

from __future__ import annotations

from hypothesis import strategies as st

from phalanx.core.model.resources import Capacity, Device, Grant, NumaNode, Request, Target
from phalanx.core.model.table import NodeTable
from tests.support.builders import GIB

HOSTS = ("n1", "n2", "n3")
KINDS = ("a100", "h100")


def capacities() -> st.SearchStrategy[Capacity]:
    device = st.tuples(st.booleans(), st.sampled_from(KINDS), st.booleans(), st.integers(0, 2))
    return st.builds(
        _capacity,
        loose_cores=st.integers(0, 4),
        memory=st.integers(0, 8),
        numa=st.lists(st.integers(1, 4), max_size=3),
        devices=st.lists(device, max_size=5),
    )


def _capacity(
    loose_cores: int, memory: int, numa: list[int], devices: list[tuple[bool, str, bool, int]]
) -> Capacity:
    """Some cores belong to no NUMA node, some device indexes are missing: real machines have both."""
    parts = tuple(NumaNode(id, cores) for id, cores in enumerate(numa))
    found = tuple(
        Device(index, kind, (80 if large else 40) * GIB, at if at < len(numa) else None)
        for index, (there, kind, large, at) in enumerate(devices)
        if there
    )
    return Capacity(max(1, loose_cores + sum(numa)), memory * GIB, parts, found)


def targets(hosts: tuple[str, ...] = HOSTS) -> st.SearchStrategy[Target]:
    return st.builds(
        Target,
        host=st.sampled_from(hosts),
        numa=st.none() | st.integers(0, 2),
        devices=st.lists(st.integers(0, 5), max_size=3, unique=True).map(tuple),
    )


def requests(hosts: tuple[str, ...] = HOSTS) -> st.SearchStrategy[Request]:
    return st.builds(
        _request,
        cores=st.integers(0, 9),
        memory=st.integers(0, 9),
        gpus=st.integers(0, 4),
        kind=st.none() | st.sampled_from(KINDS),
        gpu_memory=st.sampled_from((0, 40, 80, 96)),
        target=st.none() | targets(hosts),
    )


def _request(
    cores: int, memory: int, gpus: int, kind: str | None, gpu_memory: int, target: Target | None
) -> Request:
    """As `api/schema/submission.py` makes them: named devices are the count, and 0 means no request for one."""
    gpus = len(target.devices) if target and target.devices else gpus
    options = (kind, gpu_memory * GIB) if gpus else (None, 0)
    return Request(cores, memory * GIB, gpus, *options, target=target)


@st.composite
def used_tables(draw: st.DrawFn) -> tuple[NodeTable, list[tuple[str, Grant]]]:
    """A table of nodes on which some requests have already been granted, and those grants."""
    table = NodeTable()
    for name in HOSTS[: draw(st.integers(1, len(HOSTS)))]:
        table.put(name, draw(capacities()))
        table.set_open(name, draw(st.booleans()))
    held: list[tuple[str, Grant]] = []
    for request in draw(st.lists(requests(), max_size=5)):
        for row, ledger in enumerate(table.ledgers):
            there = request.target is None or request.target.host == ledger.name
            if there and isinstance(grant := ledger.fit(request), Grant):
                table.take(row, grant)
                held.append((ledger.name, grant))
                break
    return table, held
