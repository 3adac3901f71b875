"""VPSs as users ask for them: made as jobs of one task, shown, restarted and stopped.

A private key that is made here is in one answer and nowhere else. Host keys follow from the cluster's secret and are
not kept.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from msgspec import structs

from phalanx.api.schema.ssh_keys import fingerprint, host_key, new_pair
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.api.schema.vps import NewVps, StoppedVps, VpsRequest, VpsView, read_vps
from phalanx.coordinator import lookup
from phalanx.coordinator.link_auth import LinkAuthenticator
from phalanx.coordinator.refusals import accepted
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.views import job_view, task_view
from phalanx.core.cluster.inputs import Cancel, Evict
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.job import Vps
from phalanx.core.model.orders import Status, vps_port
from phalanx.errors import Conflict, NotFound
from phalanx.store.protocol import Store


class SubmitVps(Protocol):
    def __call__(
        self, request: SubmitRequest, user: str, priority_max: int, vps: Vps
    ) -> Awaitable[SubmitReply]: ...


class VpsCommands:
    """What REST asks about VPSs."""

    def __init__(self, loop: Requests, store: Store, keys: LinkAuthenticator, submit: SubmitVps) -> None:
        self._loop = loop
        self._store = store
        self._keys = keys
        self._submit = submit

    async def create_vps(self, request: VpsRequest, user: str, priority_max: int) -> NewVps:
        asked, vps = read_vps(request)
        private: str | None = None
        if vps.ssh == "generate":
            private, public = new_pair(f"phalanx-vps-{request.name or user}")
            vps = structs.replace(vps, keys=(public,))
        reply = await self._submit(asked, user, priority_max, vps)
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
        return StoppedVps(job.job.id)

    async def restart_vps(self, id: str, user: str) -> VpsView:
        """End its attempt; another follows on the same node, with the same keys."""
        job = await self._found(id)
        if job.is_over:
            raise Conflict(f"VPS {job.job.id} has ended ({job.overall_status.word})", reason="AlreadyEnded")
        if job.live:
            accepted(await self._loop.ask([Evict(job.job.id, None, f"user {user}")]), job.job.id)
        return self._view(await self._found(job.job.id))

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
        task = task_view(job, 0, self._loop.state.known_names)
        target, has_ssh = spec.groups[0].request.target, vps.ssh != "disabled"
        public = host_key(self._keys.vps_seed(spec.id))[1] if has_ssh else None
        is_there = Status(job.status[0]) in (Status.ASSIGNED, Status.RUNNING)
        return VpsView(
            id=spec.id,
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
