"""The target grammar: what is written comes back, and no text at all can do worse than be refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.core.model.resources import DEVICES_MAX, INDEX_MAX, Target, TargetError, parse_target

hosts = st.from_regex(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?", fullmatch=True)
indexes = st.integers(0, INDEX_MAX)
any_target = st.builds(
    Target,
    host=hosts,
    numa=st.none() | indexes,
    devices=st.lists(indexes, max_size=8, unique=True).map(tuple),
)
almost = st.text("n1:,-._ a0\uff19\n\0", max_size=20)  # close enough to reach every branch of the parser


@given(any_target)
def test_a_target_is_read_back_from_its_own_spelling(target: Target):
    assert parse_target(str(target)) == target


@given(st.text(max_size=100) | almost)
def test_any_text_is_a_target_or_refused_at_a_position_inside_it(text: str):
    read = attempt(text)
    if isinstance(read, TargetError):
        assert 0 <= read.position <= len(text)
        assert f"at position {read.position}" in str(read)
    else:
        assert parse_target(str(read)) == read


@given(any_target, st.integers(0, 40), st.characters())
def test_one_wrong_character_is_never_passed_over_in_silence(target: Target, at: int, extra: str):
    """Whatever is accepted after an insertion has that character in its meaning or its canonical form."""
    text = str(target)
    text = text[:at] + extra + text[at:]
    read = attempt(text)
    if isinstance(read, TargetError):
        return
    assert text.isascii()
    assert _without_zeros(str(read)) == _without_zeros(text.lower())


def test_the_number_of_devices_is_bounded():
    with pytest.raises(TargetError, match=f"at most {DEVICES_MAX}"):
        parse_target("n1::" + ",".join(map(str, range(DEVICES_MAX + 1))))


def attempt(text: str) -> Target | TargetError:
    try:
        return parse_target(text)
    except TargetError as error:
        return error


def _without_zeros(text: str) -> list[str]:
    host, _, rest = text.partition(":")
    return [host, *(part.lstrip("0") for part in rest.replace(",", ":").split(":"))]
