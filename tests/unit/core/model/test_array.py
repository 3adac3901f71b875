"""Arrays by example."""

from __future__ import annotations

import pytest

from phalanx.core.model.array import Array, ArrayError, parse_array


@pytest.mark.parametrize(
    ("text", "indexes", "at_once"),
    [
        ("1-5", [1, 2, 3, 4, 5], 0),
        ("1-5%2", [1, 2, 3, 4, 5], 2),
        ("0-9:4", [0, 4, 8], 0),
        ("7", [7], 0),
        ("3,1,10-11", [3, 1, 10, 11], 0),
        (" 1-2 , 5 ", [1, 2, 5], 0),
    ],
)
def test_what_an_array_means(text: str, indexes: list[int], at_once: int) -> None:
    array = parse_array(text)
    assert [array.index(position) for position in range(len(array))] == indexes
    assert array.at_once == at_once


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not an index"),
        ("a-b", "is not an index"),
        ("1-", "is not an index"),
        ("-5", "is not an index"),
        ("1,,2", "is not an index"),
        ("5-1", "ends before it begins"),
        ("1-5:0", "must be 1 or more"),
        ("1-5,3", "names an index twice"),
        ("1-5%0", "how many may run at once"),
        ("1-5%x", "how many may run at once"),
        ("1-5%", "how many may run at once"),
        ("0-999999999", "at most 1000000 are allowed"),
        (",".join(["1"] * 1001), "at most 1000 are allowed"),
    ],
)
def test_what_is_no_array_and_why(text: str, says: str) -> None:
    with pytest.raises(ArrayError, match=says):
        parse_array(text)


def test_equal_arrays_are_spelt_alike() -> None:
    assert str(parse_array("1-2:1%3")) == "1-2%3"
    assert parse_array("5-7:5") == parse_array("5") == Array(((5, 1, 1),))


def test_the_largest_array_is_read_at_once() -> None:
    assert len(parse_array("1-1000000")) == 1_000_000
