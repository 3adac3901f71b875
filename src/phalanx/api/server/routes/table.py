"""The route table: every path, its method, who may ask, and who answers. What has no row here does not exist."""

from __future__ import annotations

from phalanx.api.server.route import Route
from phalanx.api.server.routes import (
    apply,
    approvals,
    calls,
    changes,
    cluster,
    files,
    jobs,
    logins,
    metrics,
    nodes,
    overlay,
    pages,
    sessions,
    sweeps,
    tasks,
    tokens,
    usage,
    vps,
    workflows,
)

ROUTES: tuple[Route, ...] = (
    *jobs.ROUTES,
    *changes.ROUTES,
    *sweeps.ROUTES,
    *workflows.ROUTES,
    *approvals.ROUTES,
    *tasks.ROUTES,
    *sessions.ROUTES,
    *files.ROUTES,
    *usage.ROUTES,
    *vps.ROUTES,
    *calls.ROUTES,
    *nodes.ROUTES,
    *overlay.ROUTES,
    *apply.ROUTES,
    *cluster.ROUTES,
    *metrics.ROUTES,
    *tokens.ROUTES,
    *logins.ROUTES,
    *pages.ROUTES,
)
