"""VPSs as users ask for them: made as jobs of one task, shown, restarted and stopped.

A private key that is made here is in one answer and nowhere else. Host keys follow from the cluster's secret and are
not kept.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from msgspec import structs

from phalanx.api.schema.fields import shown
from phalanx.api.schema.ssh_keys import fingerprint, host_key, new_pair
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.api.schema.vps import NewVps, SnapshotView, StoppedVps, VpsRequest, VpsView, read_vps
from phalanx.clock import Clock
from phalanx.coordinator import lookup
from phalanx.coordinator.logs import LogLinks
from phalanx.coordinator.refusals import accepted
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.views import job_view, task_view
from phalanx.core.cluster.inputs import Cancel, Evict
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.job import Vps, is_name
from phalanx.core.model.orders import Status, vps_port
from phalanx.errors import BadRequest, Conflict, NotFound, PhalanxError, Unavailable
from phalanx.link.vps import SnapshotAction
from phalanx.store.protocol import Store

SNAPSHOT_WITHIN_S, ANSWER_WITHIN_S = 300.0, 20.0
_REFUSALS: dict[str, type[PhalanxError]] = {
    "SnapshotNotFound": NotFound,
    "SnapshotExists": Conflict,
    "SnapshotBusy": Conflict,
    "SnapshotInUse": Conflict,
    "TooManySnapshots": Conflict,
}


class SubmitVps(Protocol):
    def __call__(self, request: SubmitRequest, user: str, role: str, vps: Vps) -> Awaitable[SubmitReply]: ...


class VpsCommands:
    """What REST asks about VPSs."""

    def __init__(
        self, loop: Requests, store: Store, log_links: LogLinks, clock: Clock, submit: SubmitVps
    ) -> None:
        self._loop = loop
        self._store = store
        self._log_links = log_links
        self._keys = log_links.keys
        self._clock = clock
        self._submit = submit

    async def create_vps(self, request: VpsRequest, user: str, role: str) -> NewVps:
        asked, vps = read_vps(request)
        private: str | None = None
        if vps.ssh == "generate":
            private, public = new_pair(f"phalanx-vps-{request.name or user}")
            vps = structs.replace(vps, keys=(public,))
        reply = await self._submit(asked, user, role, vps)
        view = await self.vps(reply.task_ids[0])
        return NewVps(
            **structs.asdict(view),
            private_key=None if reply.replayed else private,
            replayed=reply.replayed,
        )

    async def list_vps(self, user: str | None, *, ended: bool) -> list[VpsView]:
        """Those of one user, or everybody's; with `ended` also those that are over and still in memory."""
        found = (job for job in self._loop.state.jobs.values() if job.job.vps is not None)
        return [
            self._view(job)
            for job in found
            if user in (None, job.job.user) and (ended or not job.is_over or job.live)
        ]

    async def vps(self, id: str) -> VpsView:
        return self._view(await self._found(id))

    async def stop_vps(self, id: str) -> StoppedVps:
        job = await self._found(id)
        accepted(await self._loop.ask([Cancel(job.job.id)]), job.job.id)
        return StoppedVps(job.job.id, number=job.arrival)

    async def restart_vps(self, id: str, user: str) -> VpsView:
        """End its attempt; another follows on the same node, with the same keys."""
        job = await self._found(id)
        if job.is_over:
            raise Conflict(f"VPS {job.job.id} has ended ({job.overall_status.word})", reason="AlreadyEnded")
        if job.live:
            accepted(await self._loop.ask([Evict(job.job.id, None, f"user {user}")]), job.job.id)
        return self._view(await self._found(job.job.id))

    async def vps_snapshots(self, id: str) -> list[SnapshotView]:
        return await self._snapshots(await self._found(id), "list")

    async def snapshot_vps(self, id: str, name: str) -> SnapshotView:
        """Make an image of its container, under a name; the VPS goes on."""
        job = await self._found(id)
        if not job.live or job.status[0] != Status.RUNNING:
            raise Conflict(f"VPS {job.job.id} does not run", reason="TaskNotRunning")
        name = _checked(name or f"at-{self._clock.now():.0f}")
        return next(each for each in await self._snapshots(job, "take", name) if each.name == name)

    async def restore_vps(self, id: str, name: str, user: str) -> VpsView:
        """Start it anew from a snapshot, now and from then on."""
        job = await self._found(id)
        await self._snapshots(job, "choose", _checked(name))
        return await self.restart_vps(job.job.id, user)

    async def remove_snapshot(self, id: str, name: str) -> list[SnapshotView]:
        return await self._snapshots(await self._found(id), "remove", _checked(name))

    async def _snapshots(self, job: JobState, action: SnapshotAction, name: str = "") -> list[SnapshotView]:
        spec, target = job.job, job.job.groups[0].request.target
        if not spec.groups[0].command.image:
            raise Conflict(
                f"VPS {spec.id} is no container, so there is no image to be made of it: its files are in its home",
                reason="NotAContainer",
                hint="make one with --image",
            )
        if job.is_over or target is None or not job.attempts[0]:
            raise Conflict(f"VPS {spec.id} has ended, or was never started", reason="TaskNotRunning")
        key = (spec.id, 0, job.attempts[0])
        within_s = SNAPSHOT_WITHIN_S if action == "take" else ANSWER_WITHIN_S
        told = await self._log_links.snapshots(target.host, key, action, name, within_s)
        if told.error:
            raise _REFUSALS.get(told.reason, Unavailable)(told.error, reason=told.reason)
        return [
            SnapshotView(each.name, each.taken_at, each.size_bytes, each.is_chosen) for each in told.snapshots
        ]

    async def _found(self, id: str) -> JobState:
        job = await lookup.find_job(self._loop, self._store, lookup.job_part(id))
        if job.job.vps is None:
            raise NotFound(
                f"{job.job.id} is a job and no VPS", reason="VpsNotFound", hint="phalanx vps list shows them"
            )
        return job

    def _view(self, job: JobState) -> VpsView:
        spec, vps = job.job, job.job.vps
        assert vps is not None
        task = task_view(self._loop.state, job, 0)
        target, has_ssh = spec.groups[0].request.target, vps.ssh != "disabled"
        public = host_key(self._keys.vps_seed(spec.id))[1] if has_ssh else None
        is_there = Status(job.status[0]) in (Status.ASSIGNED, Status.RUNNING)
        return VpsView(
            id=spec.id,
            number=job.arrival,
            name=spec.name,
            user=spec.user,
            status=task.status,
            reason=task.reason,
            message=task.message,
            node=task.node or (None if target is None else target.host),
            ssh=vps.ssh,
            ssh_port=vps_port(spec.id, job.charged.get(0, 0)) if has_ssh and is_there else None,
            host_key=public,
            host_key_fingerprint=None if public is None else fingerprint(public),
            key_fingerprints=[fingerprint(each) for each in vps.keys],
            address=task.address,
            image=spec.groups[0].command.image or None,
            request=job_view(self._loop.state, job).request,
            devices=task.devices,
            attempt=task.attempt,
            queue=spec.queue,
            priority=spec.priority,
            submitted_at=spec.submitted_at,
            started_at=task.started_at,
            ended_at=task.ended_at,
        )


def _checked(name: str) -> str:
    if not is_name(name):
        raise BadRequest(
            f"name: {shown(name)} cannot name a snapshot: give letters in lower case, digits, '.', '_' or '-'"
        )
    return name
