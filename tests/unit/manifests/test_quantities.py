"""Quantities and durations as Kubernetes reads them."""

from __future__ import annotations

import pytest

from phalanx.manifests.quantities import NANO, VALUE_MAX, go_seconds, nanos, whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("500m", NANO // 2),
        ("16Gi", 16 * 2**30 * NANO),
        ("1e3", 1000 * NANO),
        ("1E3", 1000 * NANO),
        ("1E", 10**18 * NANO),
        ("100n", 100),
        ("5u", 5000),
        ("1.5G", 1_500_000_000 * NANO),
        ("1.5Gi", 3 * 2**29 * NANO),
        ("-1", -NANO),
        ("+2k", 2000 * NANO),
        (".5", NANO // 2),
        ("5.", 5 * NANO),
        ("1e-3", NANO // 1000),
        ("0.1Ki", 102_400_000_000),
        (3, 3 * NANO),
        (2.5, 2_500_000_000),
        ("12Ei", VALUE_MAX * NANO),
        ("1e99", VALUE_MAX * NANO),
    ],
)
def test_a_quantity_is_read_exactly(text: object, value: int):
    assert nanos(text) == value


@pytest.mark.parametrize(("text", "value"), [("0.0000000001", 1), ("1e-30", 1), ("-0.1n", -1), ("1.1n", 2)])
def test_what_is_finer_than_a_billionth_is_rounded_away_from_zero(text: str, value: int):
    assert nanos(text) == value


def test_whole_numbers_are_rounded_away_from_zero():
    assert [whole("1m"), whole("1500m"), whole("-1m"), whole("2")] == [1, 2, -1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "1 Gi",
        "0x1",
        "1K",
        "1ki",
        "1KI",
        "--1",
        "1e",
        "1e3Gi",
        ".",
        "1.2.3",
        "\uff11",
        "1\n",
        "Gi",
        "1e1.5",
    ],
)
def test_what_kubernetes_refuses_is_refused(text: str):
    with pytest.raises(ValueError, match="is not a quantity"):
        nanos(text)


@pytest.mark.parametrize("value", [True, None, [], {}, float("nan"), float("inf"), 10**400])
def test_what_is_no_text_and_no_number_is_refused(value: object):
    with pytest.raises(ValueError, match="is not a quantity"):
        nanos(value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("3600s", 3600), ("1h30m", 5400), ("1.5h", 5400), ("100ms", 0.1), ("2m.5s", 120.5)]
)
def test_durations_of_go(text: str, seconds: float):
    assert go_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "60", "-5s", "1d", "s", "0s", "1h x", "9" * 20 + "h"])
def test_what_is_no_duration_of_go_is_refused(text: str):
    with pytest.raises(ValueError, match="is not a duration"):
        go_seconds(text)
