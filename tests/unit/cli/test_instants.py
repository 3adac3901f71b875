"""A point in time as people write it after `--since`, and a time to come as `ps` shows it."""

from __future__ import annotations

from datetime import datetime

import pytest

from phalanx.cli.instants import read_since
from phalanx.cli.output import soon
from phalanx.errors import BadRequest
from tests.support.zones import in_zone_of_berlin

NOW = datetime.fromisoformat("2026-11-18T11:00:00+01:00").timestamp()


@pytest.fixture(autouse=True)
def in_berlin():
    with in_zone_of_berlin():
        yield


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2h", "2026-11-18T09:00:00+01:00"),
        ("2h ago", "2026-11-18T09:00:00+01:00"),
        ("90", "2026-11-18T10:58:30+01:00"),
        ("today", "2026-11-18T00:00:00+01:00"),
        ("yesterday", "2026-11-17T00:00:00+01:00"),
        ("Yesterday 18:30", "2026-11-17T18:30:00+01:00"),
        ("9:00", "2026-11-18T09:00:00+01:00"),
        ("18:00", "2026-11-17T18:00:00+01:00"),
        ("2026-11-18", "2026-11-18T00:00:00+01:00"),
        ("2026-11-18T09:00Z", "2026-11-18T10:00:00+01:00"),
    ],
)
def test_since_is_how_long_ago_a_time_of_day_or_a_date(text, instant):
    assert read_since(text, NOW) == datetime.fromisoformat(instant).timestamp()


@pytest.mark.parametrize("text", ["", "ago", "tomorrow", "25:00", "last week"])
def test_what_is_no_time_is_refused_with_what_is_one(text):
    with pytest.raises(BadRequest, match="write 2h, 3d, yesterday"):
        read_since(text, NOW)


@pytest.mark.parametrize(
    ("instant", "shown"),
    [
        ("2026-11-18T18:00:00+01:00", "18:00"),
        ("2026-11-19T08:00:00+01:00", "tomorrow 08:00"),
        ("2026-11-20T08:00:00+01:00", "11-20 08:00"),
    ],
)
def test_a_time_to_come_has_its_day_unless_that_is_today(instant, shown):
    assert soon(datetime.fromisoformat(instant).timestamp(), NOW) == shown
