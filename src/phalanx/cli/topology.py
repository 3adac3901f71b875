"""`phalanx topology`: the topology tree, free resources, and which tasks run where."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from phalanx.cli.manifests import ClusterOption, StrictOption, read_files
from phalanx.cli.output import OutputOption, Table, clean, emit, note
from phalanx.cli.session import session
from phalanx.clock import SystemClock
from phalanx.core.model.amounts import plural

if TYPE_CHECKING:
    from phalanx.api.schema.apply import DomainView, PlaceView, TopologyView


HEADINGS = ("PLACE", "NODES", "FREE/CORES", "FREE/GPUS", "JOBS")


def topology(
    ctx: typer.Context,
    cluster: ClusterOption = None,
    strict: StrictOption = False,
    output: OutputOption = None,
) -> None:
    """Show the topology tree, free resources, and which tasks run where.

    With -o yaml it is a ClusterNetworkTopology with its detailStatus, as Koordinator writes it.
    """
    here = session(ctx)
    chosen = here.output(output)
    view = _offline(cluster, strict) if cluster else here.client().topology()
    for node in view.nodes:
        if node.missing:
            note(f"{node.name} has no label for {', '.join(node.missing)}")
    if chosen == "yaml":
        _write_yaml(view)
    else:
        emit(view, chosen, [node.name for node in view.nodes], lambda wide: _lines(view, wide))


def _offline(files: list[Path], strict: bool) -> TopologyView:
    from phalanx.preview.offline import Offline
    from phalanx.preview.topology import topology_view

    found = Offline(read_files([], files, strict), SystemClock().now())
    return topology_view(found.state, found.names)


def _write_yaml(view: TopologyView) -> None:
    import yaml

    from phalanx.preview.detail import cluster_network_topology

    class Dumper(yaml.SafeDumper):
        """Writes a name that is empty as kubectl does."""

    Dumper.add_representer(
        str,
        lambda dumper, text: dumper.represent_scalar(
            "tag:yaml.org,2002:str", text, style=None if text else '"'
        ),
    )
    yaml.dump(cluster_network_topology(view), sys.stdout, Dumper=Dumper, sort_keys=False)


def _lines(view: TopologyView, wide: bool) -> Iterable[str]:
    """The tree, one line per domain and node; the columns beside it are aligned."""
    table = Table(*HEADINGS, narrows=None if wide else {"JOBS": 20, "PLACE": 20})
    for row in _below(iter(view.domains), iter(view.nodes), "", "", wide):
        table.rows.append([clean(cell) for cell in row])
    return table.lines()


def _below(
    domains: Iterator[DomainView], nodes: Iterator[PlaceView], branch: str, trunk: str, wide: bool
) -> Iterator[list[str]]:
    """The rows of the next domain and of all below it. Both come depth first, so each takes what is its own."""
    domain = next(domains)
    yield [branch + _title(domain), str(domain.nodes), *_free(domain), ""]
    for left in range(len(domain.children) - 1, -1, -1):
        yield from _below(domains, nodes, trunk + _TURN[not left], trunk + _TRUNK[not left], wide)
    if not domain.children:
        for left in range(domain.nodes - 1, -1, -1):
            node = next(nodes)
            yield [trunk + _TURN[not left] + node.name, "", *_free(node), _who(node, wide)]


_TURN = {False: "├── ", True: "└── "}
_TRUNK = {False: "│   ", True: "    "}


def _title(domain: DomainView) -> str:
    if not domain.domain:
        return domain.layer
    return f"{domain.layer} {domain.domain[-1]}" + (" (no label)" if domain.virtual else "")


def _free(place: DomainView | PlaceView) -> list[str]:
    """Free of all; nothing is free on a node that takes no work."""
    is_open = getattr(place, "open", True)
    gpus = f"{place.devices_free if is_open else '-'}/{place.devices}" if place.devices else "-"
    return [f"{place.cores_free if is_open else '-'}/{place.cores}", gpus]


def _who(node: PlaceView, wide: bool) -> str:
    if not wide:
        jobs: dict[str, int] = {}
        for seat in node.seats:
            job = f"{seat.job} {seat.name}" if seat.name and seat.job.isdigit() else seat.job
            jobs[job] = jobs.get(job, 0) + 1
        said = [job if count == 1 else f"{job} ({plural(count, 'task')})" for job, count in jobs.items()]
    else:
        said = [
            f"{seat.task}[{','.join(map(str, seat.devices))}]" if seat.devices else seat.task
            for seat in node.seats
        ]
    return " ".join(said if node.open else ["closed", *said])
