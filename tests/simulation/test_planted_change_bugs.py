"""Planted bugs about holds, begins and where jobs run: each is seen, by the checker that is meant to see it."""

from __future__ import annotations

import pytest
from msgspec import structs

from phalanx.core.cluster import transitions
from phalanx.core.cluster.apply import changes as apply_changes
from phalanx.core.cluster.apply import jobs as apply_jobs
from phalanx.core.cluster.change_events import JobHeld
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.columns import Columns
from phalanx.core.model.job import Job
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.tree import Mask
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_a_hold_that_holds_nothing_is_found(monkeypatch: Patch):
    monkeypatch.setitem(transitions.CHANGES, JobHeld, lambda state, event: None)
    must_find({"held"}, within=60)


def test_a_job_that_begins_at_once_is_found(monkeypatch: Patch):
    def at_once(state: ClusterState, job: JobState, now: float) -> None:
        job.begins_at = 0.0

    monkeypatch.setattr(apply_jobs, "wait_to_begin", at_once)
    must_find({"begin"}, within=40)


def test_a_limit_that_is_forgotten_when_it_is_changed_is_found(monkeypatch: Patch):
    monkeypatch.setattr(apply_changes, "_limited", lambda job, at_once: without_limit(job))
    must_find({"limit"}, within=60)


def without_limit(job: Job) -> Job:
    return structs.replace(job, groups=(structs.replace(job.groups[0], at_once=0),))


def test_an_exclusive_task_that_is_given_a_part_of_its_node_is_found(monkeypatch: Patch):
    def a_part(
        self: Ledger, request: Request, devices: tuple[int, ...], numa: int | None, address: str
    ) -> Grant | Reason:
        cores = self._choose_cores(request.cores, numa) if self.numa_free and request.cores else ()
        return Grant(request.cores, request.memory_bytes, devices, numa, cores, address)

    monkeypatch.setattr(Ledger, "_whole", a_part)
    must_find({"exclusive"}, within=60)


def test_a_node_that_was_left_out_and_is_used_is_found(monkeypatch: Patch):
    def all_of_them(self: Columns, request: Request) -> Mask:
        return self.open | True

    monkeypatch.setattr(Ledger, "_unlike", lambda self, request: None)
    monkeypatch.setattr(Columns, "labelled", all_of_them)
    must_find({"nodes"}, within=60)
