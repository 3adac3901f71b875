"""The target grammar by example: the acceptance cases of seed 000."""

from __future__ import annotations

import pytest

from phalanx.core.model.resources import Target, TargetError, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("n1", Target("n1")),
        ("n1:0", Target("n1", 0)),
        ("n1:1", Target("n1", 1)),
        ("n1::0", Target("n1", None, (0,))),
        ("n1::0,1", Target("n1", None, (0, 1))),
        ("n1:0::0,1", Target("n1", 0, (0, 1))),
        ("n1::1,0", Target("n1", None, (1, 0))),
        ("gpu-01.rack_3:7", Target("gpu-01.rack_3", 7)),
    ],
)
def test_what_is_understood(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert str(target) == text


def test_the_names_of_hosts_know_no_case() -> None:
    assert parse_target("GPU-01.Lab:0::1") == parse_target("gpu-01.lab:0::1") == Target("gpu-01.lab", 0, (1,))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        (":0", 0),
        ("\N{KELVIN SIGN}1", 0),
        ("-n1", 0),
        ("n1:", 3),
        ("n1:x", 3),
        ("n1:-1", 3),
        ("n1:70000", 3),
        ("n1:0:9", 4),
        ("n1::", 4),
        ("n1::,", 4),
        ("n1::0,", 6),
        ("n1::0,0", 6),
        ("n1::0 1", 5),
        ("n1 ", 2),
        ("n1\n", 2),
        ("n1:::0", 4),
        ("n1:0::0::1", 7),
        ("n1::0-999999999", 5),
        ("[::1]:0", 0),
    ],
)
def test_what_is_refused_and_where(text: str, position: int) -> None:
    with pytest.raises(TargetError, match=r"^invalid target format") as caught:
        parse_target(text)
    assert caught.value.position == position
    assert caught.value.expected in str(caught.value)


def test_a_long_text_is_not_repeated_in_full() -> None:
    with pytest.raises(TargetError) as caught:
        parse_target("?" * 100_000)
    assert len(str(caught.value)) < 300
