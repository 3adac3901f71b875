"""Sizes and durations by example."""

from __future__ import annotations

import pytest

from phalanx.core.model.amounts import (
    describe_bytes,
    describe_seconds,
    format_bytes,
    parse_bytes,
    parse_cores,
    parse_memory,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1", 1),
        ("1K", 1000),
        ("1k", 1000),
        ("1Ki", 1024),
        ("16GiB", 16 * 1024**3),
        ("16gb", 16 * 10**9),
        ("1.5G", 1_500_000_000),
        ("0.5Ki", 512),
        ("2T", 2 * 10**12),
        (" 3Mi ", 3 * 1024**2),
        ("7B", 7),
        ("16 GiB", 16 * 1024**3),  # as we write it ourselves
    ],
)
def test_a_size(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "G", "-1", "1.G", ".5G", "1i", "1iB", "1  G", "1e9", "0x10", "1GG", "9" * 20, "2000P"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a size|is too large"):
        parse_bytes(text)


@pytest.mark.parametrize(("given", "size"), [(0, 0), ("0", 0), ("16Mi", 16 << 20), (1 << 30, 1 << 30)])
def test_memory(given: int | str, size: int) -> None:
    assert parse_memory(given) == size


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (10, "10 without a unit is 10 bytes, .* the least for a task is 16MiB: write 10GiB$"),
        ("512", "write 512MiB or 512GiB$"),
        (4000, "write 4000MiB$"),
        ("8MiB", "'8MiB' is too little: the least for a task is 16MiB$"),
        (8 << 20, "'8388608' is too little"),
    ],
)
def test_memory_in_which_nothing_runs(given: int | str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_memory(given)


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("2", "2"),
        ("0.5", "0.5"),
        ("1.250", "1.25"),
        ("3.000", "3"),
        ("0", "0"),
        (" 0.001", "0.001"),
        ("500m", "0.5"),
        ("2000m", "2"),
    ],
)
def test_cores_are_whole_or_in_thousandths(text: str, cores: str) -> None:
    assert repr(parse_cores(text)) == cores


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "-0.5",
        "nan",
        "inf",
        "1e3",
        "5e-1",
        "0.0005",
        "1.",
        ".5",
        "0.5m",
        "500M",
        "m",
        "1,5",
        "1 2",
        "٣",
        "9" * 10,
    ],
)
def test_what_is_no_number_of_cores(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of cores"):
        parse_cores(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("1.5", 1.5),
        ("90s", 90.0),
        ("250ms", 0.25),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("1:30", 5400.0),
        ("0:00:30", 30.0),
        ("1-12:00:00", 129_600.0),
    ],
)
def test_a_duration(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "-5", "five", "1h-30m", "1:2:3:4", "nan", "inf", "1e3", "h", "9" * 15]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|is out of range"):
        parse_seconds(text)


def test_sizes_and_durations_for_people() -> None:
    assert [format_bytes(size) for size in (0, 1000, 1024, 3 * 1024**3)] == ["0B", "1000B", "1KiB", "3GiB"]
    assert [describe_bytes(size) for size in (0, 1536, 80 * 1024**3)] == ["0 B", "1.5 KiB", "80 GiB"]
    assert [describe_seconds(s) for s in (0.25, 42, 90, 3600, 90_000)] == [
        "0.2s",
        "42s",
        "1m30s",
        "1h",
        "1d1h",
    ]
