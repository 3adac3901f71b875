"""The heat map: one cell for each device, coloured by what the user asked for, and the legend that explains it.

Which cell stands where on the screen is `map_layout.py`'s business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from phalanx.api.schema.cluster import DeviceView, NodeView
from phalanx.api.schema.jobs import JobView
from phalanx.cli.output import clean
from phalanx.cli.top import symbols
from phalanx.cli.top.snapshot import ClusterSnapshot
from phalanx.cli.top.symbols import Symbol
from phalanx.core.model.amounts import describe_seconds
from phalanx.core.model.topology import DEFAULT

IDLE_LONG_S = 3600.0
NO_RACK = "no rack"
RACK_LABELS = DEFAULT.layers[-1].keys


class ColourBy(Enum):
    """What a cell's sign and colour stand for."""

    HOLDER = "holder"
    USER = "user"
    QUEUE = "queue"
    USAGE = "usage"
    HEALTH = "health"

    @property
    def next(self) -> ColourBy:
        every = list(ColourBy)
        return every[(every.index(self) + 1) % len(every)]


class Cell(Struct, frozen=True):
    """One device: its symbol, and what that stands for."""

    symbol: Symbol
    meaning: str


class LegendEntry(Struct, frozen=True):
    """A symbol, what it stands for, and how many cells have it."""

    symbol: Symbol
    meaning: str
    count: int


class NodeRow(Struct, frozen=True):
    """A node and its cells."""

    node: NodeView
    cells: list[Cell]


class RackRows(Struct, frozen=True):
    """The nodes of one rack."""

    name: str  # empty: nodes are not grouped
    rows: list[NodeRow]


class HeatMap(Struct, frozen=True):
    """All cells by rack and node, and the legend."""

    racks: list[RackRows]
    legend: list[LegendEntry]


Meaning = Callable[[NodeView, DeviceView, JobView | None], Cell]


def heat_map(snapshot: ClusterSnapshot, colour_by: ColourBy, by_rack: bool = True) -> HeatMap:
    """The heat map of a snapshot."""
    jobs = snapshot.by_number()
    meaning = _meaning(snapshot, colour_by)
    racks: dict[str, list[NodeRow]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    found: dict[tuple[str, str], Cell] = {}
    for node in sorted(snapshot.nodes, key=lambda each: natural(each.name)):
        cells = [meaning(node, device, jobs.get(job_number(device))) for device in node.devices]
        for cell in cells:
            key = (cell.symbol.sign, cell.meaning)
            counts[key] += 1
            found[key] = cell
        racks.setdefault(rack_of(node) if by_rack else "", []).append(NodeRow(node, cells))
    if list(racks) == [NO_RACK]:
        racks = {"": racks[NO_RACK]}
    groups = [RackRows(name, racks[name]) for name in sorted(racks, key=natural)]
    legend = [
        LegendEntry(found[key].symbol, found[key].meaning, count) for key, count in counts.most_common()
    ]
    return HeatMap(groups, legend)


def job_number(device: DeviceView) -> str:
    """The number of the job whose task holds a device: 17 of 17.3."""
    return (device.number or device.task or "").partition(".")[0]


def rack_of(node: NodeView) -> str:
    """The rack that a node's labels name."""
    return next((node.labels[key] for key in RACK_LABELS if node.labels.get(key)), NO_RACK)


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts n2 before n10."""
    parts: list[tuple[int, str]] = []
    digits, text = "", ""
    for sign in name + "\0":
        if sign.isdecimal() and sign.isascii():
            digits += sign
            continue
        if digits:
            parts += [(0, text), (int(digits[:18]), "")]
            digits, text = "", ""
        text += sign
    return [*parts, (0, text)]


def _meaning(snapshot: ClusterSnapshot, colour_by: ColourBy) -> Meaning:
    if colour_by is ColourBy.USAGE:
        return _usage
    if colour_by is ColourBy.HEALTH:
        return _health
    if colour_by is ColourBy.HOLDER:
        return _held(_holder)
    of_job = _user if colour_by is ColourBy.USER else _queue
    names = symbols.of_names(of_job(job) for job in snapshot.jobs)
    return _held(lambda _device, job: Cell(names[of_job(job)], of_job(job)) if job else _UNKNOWN)


_UNKNOWN = Cell(symbols.UNKNOWN, "holder not listed")


def _held(of_holder: Callable[[DeviceView, JobView | None], Cell]) -> Meaning:
    """The cell of who holds a device; of one that nobody holds, why."""

    def cell(node: NodeView, device: DeviceView, job: JobView | None) -> Cell:
        return of_holder(device, job) if device.task is not None else _unheld(node, device)

    return cell


def _unheld(node: NodeView, device: DeviceView) -> Cell:
    if device.out_of_service:
        return Cell(symbols.BROKEN, "out of service")
    if node.status != "Online":
        return Cell(symbols.GONE, "node not online")
    if node.drained or node.elastic_disabled:
        return Cell(symbols.CLOSED, "node drained")
    return Cell(symbols.FREE, "free")


def _holder(device: DeviceView, job: JobView | None) -> Cell:
    number = job_number(device)
    symbol = symbols.of_number(int(number)) if number.isdecimal() and number.isascii() else symbols.UNKNOWN
    return Cell(symbol, clean(f"{number} {job.name if job else ''}".strip()))


def _user(job: JobView) -> str:
    return clean(job.user) or "no user"


def _queue(job: JobView) -> str:
    return clean(job.queue)


def _usage(node: NodeView, device: DeviceView, _job: JobView | None) -> Cell:
    if device.task is None:
        return _unheld(node, device)
    if not device.idle_s:
        return Cell(symbols.BUSY, "in use")
    is_long = device.idle_s >= IDLE_LONG_S
    limit = describe_seconds(IDLE_LONG_S)
    return (
        Cell(symbols.IDLE_LONG, f"held, idle over {limit}") if is_long else Cell(symbols.IDLE, "held, idle")
    )


def _health(node: NodeView, device: DeviceView, _job: JobView | None) -> Cell:
    if device.out_of_service:
        return Cell(symbols.BROKEN, "out of service")
    if node.status != "Online":
        return Cell(symbols.GONE, f"node {node.status}")
    return Cell(symbols.DRAINED, "node drained") if node.drained else Cell(symbols.FINE, "healthy")
