"""Sizes, cores and durations as people write them: `16GiB`, `512M`, `0.5`, `90s`, `1h30m`, `2-12:00:00`.

Decimal suffixes (K, M, G, T) are powers of 1000 and binary ones (Ki, Mi, Gi, Ti) powers of 1024, a
trailing B changes nothing. Whatever is not understood is refused, with the text and what would be right.
"""

from __future__ import annotations

import re

BYTES_MAX = 1 << 60
MILLI = 1000  # cores are counted in thousandths, so that sums of parts never drift
SECONDS_MAX = 10 * 365 * 86_400

_SIZE = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,9}))?([KMGTP]?i?)B?", re.IGNORECASE | re.ASCII)
_CORES = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,3}))?", re.ASCII)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_CLOCK = re.compile(r"(?:([0-9]{1,4})-)?([0-9]{1,4}):([0-9]{2})(?::([0-9]{2}))?")
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_bytes(text: str) -> int:
    """Read a size in bytes; a fraction is fine as long as it makes whole bytes when rounded down."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text[:80]!r} is not a size: write bytes or a number with K, M, G, T, Ki, Mi, Gi or Ti"
        )
    whole, fraction, suffix = match.group(1), match.group(2) or "", match.group(3).lower()
    if suffix == "i":
        raise ValueError(f"{text[:80]!r} is not a size: 'i' needs a letter before it, as in Gi")
    base = 1024 if suffix.endswith("i") else 1000
    scale: int = base ** _POWER[suffix.rstrip("i")]
    size = int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)
    if size > BYTES_MAX:
        raise ValueError(f"{text[:80]!r} is too large: the most is {BYTES_MAX} bytes (1 EiB)")
    return size


def parse_cores(text: str) -> int | float:
    """Read a number of cores: whole, or with at most three decimals."""
    match = _CORES.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text[:80]!r} is not a number of cores: write 2 or 0.5, with at most three digits after the point"
        )
    whole, part = int(match.group(1)), int((match.group(2) or "").ljust(3, "0"))
    return whole + part / 1000 if part else whole


def millicores(cores: float) -> int:
    """Thousandths of a core, exactly: a number with at most three decimals is the nearest float to it."""
    return cores * MILLI if cores.__class__ is int else round(cores * MILLI)


def written(millis: int) -> int | float:
    """Thousandths as people write cores: 2 and not 2.0, 0.5 and not 500m."""
    return millis / MILLI if millis % MILLI else millis // MILLI


def format_bytes(size: int) -> str:
    """The shortest exact binary spelling, so that parse_bytes(format_bytes(n)) == n."""
    for suffix, power in (("PiB", 5), ("TiB", 4), ("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{suffix}"
    return f"{size}B"


def describe_bytes(size: int) -> str:
    """A size for a person: one decimal, binary units."""
    for suffix, power in (("PiB", 5), ("TiB", 4), ("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if size >= 1024**power:
            text = f"{size / 1024**power:.1f}".removesuffix(".0")
            return f"{text} {suffix}"
    return f"{size} B"


def parse_seconds(text: str) -> float:
    """Read a duration: plain seconds, `1h30m`, or Slurm's `[days-]hours:minutes[:seconds]`."""
    text = text.strip()
    seconds = _plain(text) if text.replace(".", "", 1).isdecimal() else _clock(text)
    if seconds is None:
        seconds = _parts(text)
    if seconds is None:
        raise ValueError(f"{text[:80]!r} is not a duration: write seconds, 90s, 1h30m, 2d or 1-12:00:00")
    if not 0 < seconds <= SECONDS_MAX:
        raise ValueError(f"{text[:80]!r} is out of range: more than 0 and at most {SECONDS_MAX} seconds")
    return seconds


def describe_seconds(seconds: float) -> str:
    """A duration for a person, two units at the most."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for size, unit, smaller, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}{rest}{small}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def _plain(text: str) -> float | None:
    return float(text) if len(text) <= 20 and text.isascii() else None


def _clock(text: str) -> float | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return days * 86_400.0 + hours * 3600.0 + minutes * 60.0 + seconds


def _parts(text: str) -> float | None:
    total, position = 0.0, 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            return None
        total += float(match.group(1)) * _UNIT_S[match.group(2)]
        position = match.end()
    return total if text else None


def magnitude(amount: int, bits: int) -> int:
    """A size in few bits, larger for the larger: its power of two, and so many bits of what follows.

    Sizes that differ by less than one part in 2**bits may be equal, as those of two devices of one type should be.
    """
    power = amount.bit_length()
    return 0 if amount <= 0 else power << bits | (amount << bits >> power - 1) - (1 << bits)
