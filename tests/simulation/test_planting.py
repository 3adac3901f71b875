"""The planting itself: a name that is not there is refused, and one that nothing calls is reported."""

from __future__ import annotations

import pytest

from tests.support.planting import CountingPatch


class Table:
    def look(self) -> str:
        return "looked"

    def forgotten(self) -> str:
        return "forgotten"


def test_a_planted_function_that_nothing_calls_is_unused():
    planted = CountingPatch()
    planted.setattr(Table, "look", lambda self: "planted")
    planted.setattr(Table, "forgotten", lambda self: "planted")
    assert Table().look() == "planted"
    planted.undo()
    assert planted.unused == ["forgotten"]
    assert Table().look() == "looked"


def test_a_name_that_was_renamed_is_refused():
    with pytest.raises(AttributeError):
        CountingPatch().setattr(Table, "looked_at", lambda self: "planted")
