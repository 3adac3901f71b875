"""A planted bug that is never reached fails its test, so that a rename cannot disarm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.planting import CountingPatch


@pytest.fixture
def monkeypatch(request: pytest.FixtureRequest) -> Iterator[pytest.MonkeyPatch | CountingPatch]:
    if "planted" not in request.path.name:
        with pytest.MonkeyPatch.context() as plain:
            yield plain
        return
    planted = CountingPatch()
    yield planted
    planted.undo()
    assert planted.unused == [], "planted, and never called"
