"""Rules of how close members stand, as people write them."""

from __future__ import annotations

import pytest

from phalanx.api.schema.groupspec import GatherSpec, parse_gather, parse_gather_rules
from phalanx.errors import BadRequest


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("rack", GatherSpec("rack")),
        ("rack:prefer", GatherSpec("rack")),
        ("rack:must", GatherSpec("rack", must=True)),
        ("rack:must:4", GatherSpec("rack", must=True, multiple=4)),
    ],
)
def test_a_rule_may_be_written_as_text(text: str, rule: GatherSpec):
    assert parse_gather(text) == rule


@pytest.mark.parametrize("text", ["", ":must", "rack:Must", "rack:must:x", "rack:must:-1"])
def test_what_is_no_rule_is_refused(text: str):
    with pytest.raises(BadRequest, match="is not a rule"):
        parse_gather(text)


def test_one_rule_needs_no_list():
    assert parse_gather_rules("rack") == [GatherSpec("rack")]
    assert parse_gather_rules(GatherSpec("rack")) == [GatherSpec("rack")]
    assert parse_gather_rules(["rack:must", GatherSpec("block")]) == [
        GatherSpec("rack", must=True),
        GatherSpec("block"),
    ]
