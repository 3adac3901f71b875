"""Arrays: index and position are two names for the same task, and what is written comes back."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.core.model.array import TASKS_MAX, Array, ArrayError, parse_array

_range = st.builds(
    lambda first, count, step: (
        f"{first}-{first + count * step}:{step}" if step else f"{first}-{first + count}"
    ),
    st.integers(0, 50),
    st.integers(0, 10),
    st.integers(0, 5),
)
almost = st.lists(
    st.integers(0, 60).map(str) | _range | st.text("019-:,% ", max_size=6), min_size=1, max_size=3
).map(",".join)
spellings = st.builds(lambda text, limit: f"{text}%{limit}" if limit else text, almost, st.integers(0, 9))


@example("5-7:5")  # one task, written as a range with a step
@given(st.text(max_size=40) | spellings)
def test_any_text_is_an_array_or_refused(text: str):
    try:
        array = parse_array(text)
    except ArrayError:
        return
    assert 1 <= len(array) <= TASKS_MAX
    assert parse_array(str(array)) == array


@given(spellings)
def test_index_and_position_are_inverse(text: str):
    array = _parsed(text)
    indexes = [array.index(position) for position in range(len(array))]
    assert len(set(indexes)) == len(indexes)
    assert [array.position(index) for index in indexes] == list(range(len(array)))
    strangers = set(range(max(indexes) + 2)) - set(indexes)
    assert {array.position(index) for index in strangers} <= {None}


@given(spellings)
def test_a_position_outside_is_an_index_error(text: str):
    array = _parsed(text)
    try:
        array.index(len(array))
    except IndexError:
        return
    raise AssertionError("a task beyond the last has an index")


def _parsed(text: str) -> Array:
    try:
        return parse_array(text)
    except ArrayError:
        return parse_array("0-3,7,10-20:5%2")
