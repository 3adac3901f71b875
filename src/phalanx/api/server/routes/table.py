"""The route table: every path, its method, who may ask, and who answers. What has no row here does not exist.

Paths have one shape, `/v1/NOUN/ID/VERB`, so finding a row is one look in a dictionary.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from phalanx.api.schema.fields import shown
from phalanx.api.server.route import Route
from phalanx.api.server.routes import apply, cluster, jobs, nodes, tasks, tokens
from phalanx.core.model.ids import is_object
from phalanx.errors import NotFound, WrongMethod

ROUTES: tuple[Route, ...] = (
    *jobs.ROUTES,
    *tasks.ROUTES,
    *nodes.ROUTES,
    *apply.ROUTES,
    *cluster.ROUTES,
    *tokens.ROUTES,
)

# Ids and names go no further than here unless they are plain: they end up in paths, stories and terminals.
_ID = re.compile(r"[0-9a-z][0-9a-z._-]{0,79}")
_NAMED = ("jobs", "tasks", "names")  # what may also be named as Kubernetes does, namespace%2Fname

Row = dict[str, Route]  # by method


def _by_path(routes: tuple[Route, ...]) -> dict[str, Row]:
    table: dict[str, Row] = {}
    for route in routes:
        table.setdefault(route.path, {})[route.method] = route
    return table


_TABLE = _by_path(ROUTES)


def find_row(path: str) -> tuple[Row | None, str]:
    """The routes of a path by method, and the id in it; no row for a path that does not exist.

    `path` is as it was sent: what is quoted in it is not yet read, so that a slash may stand within an id.
    """
    row = _TABLE.get(path)
    if row is not None:
        return row, ""
    parts = path.split("/", 4)  # "", v1, noun, id, verb
    if len(parts) < 4:
        return None, ""
    id, parts[3] = unquote(parts[3]), "{id}"
    if not (_ID.fullmatch(id) or (parts[2] in _NAMED and is_object(id))):
        return None, ""
    return _TABLE.get("/".join(parts)), id


def choose(row: Row | None, method: str, path: str) -> Route:
    """The route for a method, or the error that says why there is none."""
    if row is None:
        raise NotFound(f"there is nothing at {shown(path)}", reason="RouteNotFound")
    route = row.get(method)
    if route is None:
        allow = ", ".join(sorted(row))
        raise WrongMethod(f"{shown(method)} is not possible here, only {allow}", extra={"allow": allow})
    return route
