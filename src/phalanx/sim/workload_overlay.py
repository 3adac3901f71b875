"""Addresses of the overlay network in a run, drawn from the seed: few of them, so that they become scarce."""

from __future__ import annotations

import hashlib
from random import Random

from msgspec import structs

from phalanx.core.cluster.overlay import ReservedAddress
from phalanx.core.model.job import Command, Group, Job
from phalanx.core.model.overlay import OverlayRules
from phalanx.core.model.resources import Request, Target
from phalanx.sim.workload import a_job_id

SHARE = 0.3  # of the jobs that ask for addresses, in runs that have an overlay network
TTLS_S = (1.0, 5.0, 30.0)


def some_overlay_rules(dice: Random) -> OverlayRules:
    """An overlay network in half of the runs, with four addresses for each node."""
    if dice.random() < 0.5:
        return OverlayRules()
    return OverlayRules("10.128.0.0/26", 29, dice.choice((0.0, 2.0, 10.0)))


def with_addresses(dice: Random, jobs: list[Job]) -> list[Job]:
    """The same jobs, some of which ask for addresses of their own."""
    return [_asking(job) if dice.random() < SHARE else job for job in jobs]


def a_reservation(dice: Random, node: str, now: float) -> ReservedAddress:
    digest = hashlib.sha256(dice.randbytes(16)).digest()
    return ReservedAddress(digest.hex()[:16], digest, node, "", "ada", now, now + dice.choice(TTLS_S))


def a_job_with_token(dice: Random, node: str, now: float) -> Job:
    """One task for the node of a reservation, which may fail and be tried again there."""
    id = a_job_id(dice, now)
    argv = ("run", f"{dice.uniform(0.1, 2.0):.2f}", dice.choice(("0", "0", "1")))
    group = Group(Command(argv), Request(cores=1, target=Target(node)))
    return Job(id=id, groups=(group,), batch=id, submitted_at=now, max_retries=2, user="ada")


def _asking(job: Job) -> Job:
    groups = tuple(
        structs.replace(group, request=structs.replace(group.request, addresses=1)) for group in job.groups
    )
    return structs.replace(job, groups=groups)
