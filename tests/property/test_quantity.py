"""Sizes and durations: what is printed can be typed again, and no text at all can do worse than be refused."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.core.model.amounts import (
    BYTES_MAX,
    SECONDS_MAX,
    describe_bytes,
    describe_seconds,
    format_bytes,
    parse_bytes,
    parse_seconds,
)

sizes = st.integers(0, BYTES_MAX) | st.builds(
    lambda n, power: n * 1024**power, st.integers(0, 1024), st.integers(0, 5)
)
almost_sizes = st.text("0123456789.kKmMgGtTpPiIbB \u0131\u0130\u212a\uff19", max_size=12)
almost_durations = st.text("0123456789.:-mshd \uff19", max_size=12)


@given(sizes)
def test_a_size_is_read_back_from_its_exact_spelling(size: int):
    assert parse_bytes(format_bytes(size)) == size


@example("1G\u0131")  # a dotless i, which a pattern that ignores case takes for an i
@example("1\u212a")  # the Kelvin sign
@given(st.text(max_size=60) | almost_sizes)
def test_any_text_is_a_size_or_a_value_error(text: str):
    try:
        size = parse_bytes(text)
    except ValueError:
        return
    assert 0 <= size <= BYTES_MAX
    assert text.strip().isascii()


@given(st.text(max_size=60) | almost_durations)
def test_any_text_is_a_duration_or_a_value_error(text: str):
    try:
        seconds = parse_seconds(text)
    except ValueError:
        return
    assert 0 < seconds <= SECONDS_MAX


@given(st.integers(1, 3650), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_the_three_ways_to_write_a_duration_agree(days: int, hours: int, minutes: int, seconds: int):
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if whole > SECONDS_MAX:
        return
    assert parse_seconds(f"{days}-{hours}:{minutes:02}:{seconds:02}") == whole
    assert parse_seconds(f"{days}d{hours}h{minutes}m{seconds}s") == whole
    assert parse_seconds(str(whole)) == whole


@given(sizes, st.floats(0, SECONDS_MAX))
def test_what_people_see_is_short(size: int, seconds: float):
    assert len(describe_bytes(size)) <= 12
    assert len(describe_seconds(seconds)) <= 9
