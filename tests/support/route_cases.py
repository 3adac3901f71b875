"""Requests that schemathesis makes from the OpenAPI document, route by route.

Its own `parametrize` makes the cases of all routes while pytest collects, which every worker does: seconds for each.
Here a route's cases are made when its test runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests

from phalanx.api.server.openapi import openapi_document

EXAMPLES = settings().max_examples // 10  # a route takes long, and there are many
IS_QUICK = EXAMPLES < 5  # in `make check` nothing but random ones is tried
_CALM = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def a_document(*, app: Any = None, random_only: bool = False) -> schemathesis.BaseSchema:
    """The OpenAPI document; `random_only` leaves out the cases at the limits of each field, of which there are many."""
    document = schemathesis.openapi.from_dict(json.loads(openapi_document()))
    document.app = app
    if random_only or IS_QUICK:
        document.config.phases.update(phases=["examples", "fuzzing"])
    return document


def labels() -> list[str]:
    """Method and path of every route in the document."""
    paths: dict[str, dict[str, Any]] = json.loads(openapi_document())["paths"]
    return [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]


def try_route(
    document: schemathesis.BaseSchema, label: str, check: Callable[[schemathesis.Case], None]
) -> None:
    """Call `check` with every case of one route."""

    def test(case: schemathesis.Case) -> None:
        check(case)

    found = list(
        get_all_tests(schema=document.include(name=label), test_func=test, settings=_CALM, given_kwargs=None)
    )
    assert len(found) == 1, f"{len(found)} routes are {label}"
    made = found[0]
    assert isinstance(made, Ok), made.err()
    _, run = made.ok()
    run()
