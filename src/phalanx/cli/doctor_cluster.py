"""What `phalanx doctor` asks of the cluster: is it reached, as whom, who leads, and which nodes take no work?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from phalanx import __version__
from phalanx.cli.coordinators import Coordinators, describe_role
from phalanx.cli.doctor_checks import Check, DoctorLine, fail, ok, warn
from phalanx.clock import SystemClock
from phalanx.errors import ConfigError, Forbidden, NotFound, PhalanxError, Unavailable
from phalanx.settings import Settings

if TYPE_CHECKING:
    from phalanx.api.schema.cluster import NodeView
    from phalanx.client.client import Client

PATIENCE_S = 3.0
CLOCK_OFF_S = 5.0
NODES_TOLD_MAX = 20


def cluster_checks(settings: Settings) -> list[Check]:
    """None but one that says so where there is no cluster to ask."""
    try:
        client = _client(settings)
    except (ConfigError, Unavailable, NotFound) as error:
        line = _unreached(error)
        return [("cluster", lambda: [line])]
    except PhalanxError as error:
        line = fail("cluster", error.detail, error.hint)
        return [("cluster", lambda: [line])]
    return [
        ("cluster", lambda: _cluster(client, settings)),
        ("token", lambda: _token(client)),
        ("clock", lambda: _clock(settings)),
        ("nodes", lambda: _nodes(client)),
    ]


def _client(settings: Settings) -> Client:
    from phalanx.cli.session import connect

    return connect(settings, PATIENCE_S)


def _unreached(error: PhalanxError) -> DoctorLine:
    """No cluster was asked for and none is here, which is no failure; one that was asked for is."""
    if "no cluster is running here" in error.detail:
        return warn("cluster", error.detail, error.hint)
    return fail("cluster", error.detail, error.hint)


def _cluster(client: Client, settings: Settings) -> Iterator[DoctorLine]:
    view = client.cluster()
    yield ok("cluster", f"reached: phalanx {view.version}, {view.nodes_online} of {view.nodes} nodes online")
    if view.version != __version__:
        fix = "install the same version here and there; clients may be one minor version apart"
        yield warn("versions", f"the coordinator is {view.version}, this is {__version__}", fix)
    if view.brake:
        yield fail("nodes", view.brake, "see whether the coordinator is cut off; `phalanx node lose` if not")
    if view.coordinator is not None:
        trouble = view.coordinator.trouble
        said = describe_role(view.coordinator)
        fix = "see the coordinator's log, and `phalanx store check`"
        yield fail("coordinator", said, fix) if trouble else ok("coordinator", said)
    for title, text in Coordinators(settings).lines():
        is_well = (
            title != "Alarm" and (" is Active" in text or " is Standby" in text) and "not answer" not in text
        )
        fix = "start it, or take its address out of client.address"
        yield ok("coordinators", text) if is_well else fail("coordinators", text, fix)


def _token(client: Client) -> Iterator[DoctorLine]:
    """What the token allows, asked by what only an admin may see."""
    client.nodes()
    try:
        client.audit(1)
    except Forbidden as error:
        yield ok("token", f"accepted; not an admin's: {error.detail}")
    else:
        yield ok("token", "accepted, with the role of an admin")


def _clock(settings: Settings) -> Iterator[DoctorLine]:
    """The coordinator's clock by the header Date of an answer, which is right to a second."""
    from phalanx.client import calls
    from phalanx.client.access import reach_by, transport

    found = reach_by(settings)
    with closing(transport(found, PATIENCE_S)) as exchange:
        before = SystemClock().now()
        with closing(exchange.send(calls.cluster(), found.token)) as answer:
            text = answer.headers.get("date", "")
    if not text:
        yield ok("clock", "skipped: the coordinator's answers have no time to compare with")
        return
    theirs, ours = parsedate_to_datetime(text).timestamp(), (before + SystemClock().now()) / 2
    off_s = ours - theirs
    if abs(off_s) > CLOCK_OFF_S:
        fix = "let both machines set their clocks by NTP (`timedatectl set-ntp true`)"
        yield warn("clock", f"this machine is {abs(off_s):.0f} s {'ahead' if off_s > 0 else 'behind'}", fix)
    else:
        yield ok("clock", "within seconds of the coordinator's")


def _nodes(client: Client) -> Iterator[DoctorLine]:
    found = client.nodes()
    if not found:
        yield warn("nodes", "none has joined", "`phalanx runner --join HOST:7434` on a machine")
    told = 0
    for node in found:
        failed = [device for device in node.devices if device.out_of_service]
        if node.status == "Online" and not (
            failed or node.drained or node.excluded_until or node.elastic_disabled
        ):
            continue
        told += 1
        if told > NODES_TOLD_MAX:
            continue
        what = f"drained: {node.drain_reason}" if node.drained else node.note or node.disabled_reason
        text = f"{node.name} is {node.status}{f': {what}' if what else ''}"
        yield warn("nodes", text, _fix_node(node))
    if told > NODES_TOLD_MAX:
        yield warn("nodes", f"and {told - NODES_TOLD_MAX} more", "`phalanx nodes`")
    if found and not told:
        yield ok("nodes", f"{len(found)} online")
    weak = sorted({name for node in found if node.isolation for name in node.isolation.lacking})
    if weak:
        fix = "`phalanx node show NAME` says why, docs/operations/isolation.md what helps"
        yield warn("isolation", f"some nodes do not hold tasks to: {', '.join(weak)}", fix)


def _fix_node(node: NodeView) -> str:
    if node.drained:
        return f"`phalanx node resume {node.name}` when it is ready"
    if node.status in ("Offline", "Unreachable", "Stopping"):
        return f"start its runner; `phalanx node remove {node.name}` if it is gone for good"
    if node.elastic_disabled:
        return (
            f"`phalanx node elastic {node.name} on` enables it; automatic scaling does when tasks wait for it"
        )
    return f"`phalanx story {node.name}` tells what happened; it returns by itself once that is repaired"
