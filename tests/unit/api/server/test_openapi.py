"""The OpenAPI document is correct, and the copy in the repository is the newest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phalanx.api.server.openapi import openapi_document, write_openapi
from phalanx.api.server.routes.table import ROUTES

COPY = Path(__file__).parents[4] / "docs" / "reference" / "openapi.json"
DOCUMENT = json.loads(openapi_document())


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from [value["$ref"]] if "$ref" in value else []
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from references(each)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, told)
        for path, row in DOCUMENT["paths"].items()
        for method, told in row.items()
    ]


def test_the_copy_in_the_repository_is_up_to_date():
    assert COPY.read_bytes() == openapi_document(), "run: python -m phalanx.api.server.openapi"


def test_a_copy_can_be_written(tmp_path: Path):
    write_openapi(tmp_path / "new" / "openapi.json")
    assert (tmp_path / "new" / "openapi.json").read_bytes() == openapi_document()


def test_every_route_is_told():
    assert {(method, path) for method, path, _ in operations()} == {
        (each.method, each.path) for each in ROUTES
    }


def test_operations_have_names_of_their_own():
    names = [told["operationId"] for _, _, told in operations()]
    assert len(set(names)) == len(names)


def test_every_reference_leads_somewhere():
    found = set(references(DOCUMENT))
    schemas = DOCUMENT["components"]["schemas"]
    assert found
    assert {each.removeprefix("#/components/schemas/") for each in found} <= set(schemas)


def test_every_operation_tells_its_problems():
    for _, _, told in operations():
        assert list(told["responses"]["default"]["content"]) == ["application/problem+json"]


def test_unknown_fields_of_a_body_are_told_to_be_refused():
    assert DOCUMENT["components"]["schemas"]["SubmitRequest"]["additionalProperties"] is False


def test_parameters_are_those_of_the_query():
    told = DOCUMENT["paths"]["/v1/jobs"]["get"]["parameters"]
    limit = next(each for each in told if each["name"] == "limit")
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
