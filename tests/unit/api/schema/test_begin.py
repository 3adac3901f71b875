"""When a job is to begin, as people write it and as requests carry it."""

from __future__ import annotations

from datetime import datetime

import pytest

from phalanx.api.schema.begin import local_begin, read_begin
from phalanx.errors import BadRequest, PhalanxError, Unprocessable
from tests.support.zones import in_zone_of_berlin

NOW = datetime.fromisoformat("2026-11-18T10:00:00+00:00").timestamp()
HERE = datetime.fromisoformat("2026-11-18T11:00:00")  # the same instant, in Berlin


@pytest.fixture(autouse=True)
def in_berlin():
    with in_zone_of_berlin():
        yield


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("18:00", "2026-11-18T18:00:00+01:00"),
        ("9:30", "2026-11-19T09:30:00+01:00"),
        ("11:00", "2026-11-19T11:00:00+01:00"),
        ("18:00:30", "2026-11-18T18:00:30+01:00"),
        ("tomorrow", "2026-11-19T00:00:00+01:00"),
        ("Tomorrow 8:00", "2026-11-19T08:00:00+01:00"),
        ("today 12:00", "2026-11-18T12:00:00+01:00"),
        ("+2h", "2026-11-18T13:00:00+01:00"),
        ("now+2h", "2026-11-18T13:00:00+01:00"),
        ("5m", "2026-11-18T11:05:00+01:00"),
        ("1h30m", "2026-11-18T12:30:00+01:00"),
        ("5", "5"),
        ("2027-07-01T08:00", "2027-07-01T08:00:00+02:00"),
        ("2027-01-31", "2027-01-31T00:00:00+01:00"),
        ("2027-01-31T08:00:00Z", "2027-01-31T08:00:00+00:00"),
        ("now", "now"),
        ("25:00", "25:00"),
        ("whenever", "whenever"),
        ("+never", "+never"),
        ("", ""),
    ],
)
def test_a_time_is_put_into_an_instant_where_it_is_written(text, instant):
    assert local_begin(text, HERE) == instant


def test_tomorrow_has_the_hour_of_tomorrow_where_summer_time_ends():
    assert (
        local_begin("tomorrow 8:00", datetime.fromisoformat("2026-10-24T20:00"))
        == "2026-10-25T08:00:00+01:00"
    )


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (None, 0.0),
        ("now", 0.0),
        ("+90s", NOW + 90),
        ("now+90s", NOW + 90),
        ("5m", NOW + 300),
        ("2026-11-18T18:00:00+01:00", NOW + 7 * 3600),
        (NOW + 5, NOW + 5),
        ("2020-01-01T00:00:00Z", 0.0),
        (NOW - 5, 0.0),
    ],
)
def test_a_request_names_an_instant(value, at):
    assert read_begin("begin", value, NOW) == at


@pytest.mark.parametrize(
    ("value", "error", "part"),
    [
        ("18:00", BadRequest, "begin: '18:00' is not a time"),
        ("2027-01-31T08:00:00", BadRequest, "zone"),
        ("+soon", BadRequest, "begin: 'soon' is not a duration"),
        ("+0s", BadRequest, "out of range"),
        ("5", BadRequest, "begin: '5' is not a time: write 5m (from now)"),
        (3600, Unprocessable, "5m (from now)"),
        (float("nan"), Unprocessable, "nan"),
        (float("inf"), Unprocessable, "too far"),
        ("2999-01-01T00:00:00Z", Unprocessable, "too far"),
    ],
)
def test_what_is_no_instant_is_refused_with_what_would_be_right(value, error, part):
    with pytest.raises(PhalanxError) as refused:
        read_begin("begin", value, NOW)
    assert isinstance(refused.value, error)
    assert part in refused.value.detail
