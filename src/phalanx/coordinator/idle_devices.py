"""Devices that tasks hold and hardly use, as the heartbeats of runners tell. Nothing of it is in the log.

Runners tell it again with each heartbeat, so a coordinator that has just taken over knows it soon; a standby, which
receives no heartbeats, does not. The rule by which a device is idle is the runner's (`runner.idle_device_use`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from msgspec import structs

from phalanx.api.schema.cluster import NodeView
from phalanx.api.schema.jobs import WhyReply
from phalanx.coordinator.lookup import job_part
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.amounts import describe_seconds, plural
from phalanx.core.model.reason import devices_idle
from phalanx.link.usage import IdleDevice
from phalanx.preview.reply import reason_view

BETWEEN_S_MAX = 120.0  # what is counted between two heartbeats at most
SHOWN_MAX = 8
ATTEMPTS_MAX = 1000  # of a job that are looked at


class IdleDevices:
    """By node, what its runner said last."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}  # of devices, by the queue of the job that held them
        self._idle: dict[str, dict[int, IdleDevice]] = {}
        self._told_at: dict[str, float] = {}

    def told(self, state: ClusterState, node: str, devices: Iterable[IdleDevice], sent_at: float) -> None:
        """A heartbeat; `sent_at` is by the runner's own clock."""
        between_s = sent_at - self._told_at.get(node, sent_at)
        self._told_at[node] = sent_at
        idle = {each.index: each for each in devices}
        if not idle:
            self._idle.pop(node, None)
            return
        self._idle[node] = idle
        known = state.nodes.get(node)
        for lane in () if known is None else known.lanes.values():
            count = sum(index in idle for index in lane.grant.devices)
            job = state.jobs.get(next(iter(lane.attempts))[0])
            if count and job is not None:
                idle_s = count * min(max(0.0, between_s), BETWEEN_S_MAX)
                self.seconds[job.job.queue] = self.seconds.get(job.job.queue, 0.0) + idle_s

    def gone(self, node: str) -> None:
        """Its runner is not connected any more."""
        self._idle.pop(node, None)
        self._told_at.pop(node, None)

    def clear(self) -> None:
        """The term is over: another coordinator receives the heartbeats."""
        self._idle.clear()
        self._told_at.clear()

    def of(self, node: str, devices: Iterable[int]) -> list[IdleDevice]:
        """Those of these devices that are idle."""
        idle = self._idle.get(node)
        return [] if idle is None else [idle[index] for index in devices if index in idle]

    def counts(self) -> dict[str, int]:
        """How many devices are idle, by node."""
        return {node: len(idle) for node, idle in self._idle.items()}

    def noted(self, view: NodeView) -> NodeView:
        """A node with what is to be said of its devices that are held and idle."""
        held = [each.index for each in view.devices if each.task is not None]
        idle = {each.index: each for each in self.of(view.name, held)}
        if not idle:
            return view
        devices = [
            structs.replace(each, idle_s=idle[each.index].idle_s) if each.index in idle else each
            for each in view.devices
        ]
        note = "; ".join(filter(None, (view.note, idle_text(idle.values()))))
        return structs.replace(view, devices=devices, note=note)

    def explained(self, state: ClusterState, reply: WhyReply) -> WhyReply:
        """Why something runs, with its devices that are idle."""
        job = state.jobs.get(job_part(reply.id))
        if reply.status != "Running" or job is None:
            return reply
        others = list(reply.others)
        for attempt in islice(job.live.values(), ATTEMPTS_MAX):
            idle = self.of(attempt.node, attempt.grant.devices)
            if idle and reply.id in (job.job.id, job.job.task_id(attempt.key[1])):
                numbers = {each.index: round(each.idle_s) for each in idle}
                no = devices_idle(attempt.node, list(numbers), min(numbers.values()), idle_text(idle))
                others.append(reason_view(no))
        return structs.replace(reply, others=others)


def idle_text(devices: Iterable[IdleDevice]) -> str:
    """`GPU 1, 3 idle for 20m`: those that are held and not used."""
    found = list(devices)
    named = ", ".join(str(each.index) for each in found[:SHOWN_MAX]) + (
        ", …" if len(found) > SHOWN_MAX else ""
    )
    least_s = min(each.idle_s for each in found)
    return (
        f"{plural(len(found), 'GPU')} held and idle for {describe_seconds(round(least_s))} or more: {named}"
    )
