"""What `apply` asks and answers: job files, layers and quotas, all of them accepted or none.

How a `JobSpec` is read is `api/schema/jobspec.py`'s business, how files become specs that of `manifests/`.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.api.schema.fields import check_count, check_name
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.layers import TopologySpec
from phalanx.api.schema.queues import QuotaSpec
from phalanx.errors import BadRequest

SPECS_MAX = 1000
QUOTAS_MAX = 1000


class AmendSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The gang that the only spec takes the place of, as it was read."""

    job: str
    version: int


class DraftView(Struct):
    """A gang that waits for members: what it lacks, what it was made from, and the version to amend."""

    job: str
    version: int
    lacks: str
    manifests: str
    applied: dict[str, str] = {}  # digests of what it was made from, by kind and name


class ApplyRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Jobs to submit, and what an operator declares for them. Nothing of it happens if one is refused."""

    specs: list[JobSpec] = []
    topology: TopologySpec | None = None
    quotas: dict[str, QuotaSpec] = {}
    allow_infeasible: bool = False  # wait even if no node of today could ever hold it
    amends: AmendSpec | None = None  # members of a gang that waits for some
    strict: bool = False  # what would be a warning is a refusal
    request_id: str | None = None  # the same as the Idempotency-Key header


class AppliedJob(Struct):
    """One job that was accepted, or that is of the same objects already."""

    id: str
    name: str
    tasks: int
    unchanged: bool = False  # it was there already: the same objects of Kubernetes were applied before


class ApplyReply(Struct, omit_defaults=True):
    """Durable when you read this. The jobs stand in the order of the specs."""

    jobs: list[AppliedJob]
    topology_changed: bool = False
    quotas: list[str] = []  # the queues whose quota was set
    warnings: list[str] = []
    replayed: bool = False  # true when the same request_id had been answered before


def check_extent(request: ApplyRequest) -> None:
    """Refuse a call that asks for nothing, or for too much at once."""
    if not (request.specs or request.topology or request.quotas):
        raise BadRequest("specs: there is nothing to apply: give specs, a topology or quotas")
    check_count("specs", len(request.specs), SPECS_MAX)
    if request.amends is not None and len(request.specs) != 1:
        raise BadRequest(f"amends: given with {len(request.specs)} specs, one gang is amended at a time")
    check_count("quotas", len(request.quotas), QUOTAS_MAX)
    for queue in request.quotas:
        check_name("quotas", queue)
