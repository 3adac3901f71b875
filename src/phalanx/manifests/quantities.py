"""Amounts and durations as Kubernetes writes them: 500m, 16Gi, 1e3, 3600s.

Read exactly: a fraction finer than a billionth is rounded away from zero, and so is what has to be a whole number.
`core/model/amounts.py` reads the sizes of our own files.
"""

from __future__ import annotations

import re

from phalanx.core.model.amounts import SECONDS_MAX

NANO = 10**9
VALUE_MAX = (1 << 63) - 1  # larger values count as this much
DIGITS_MAX = 400
EXPONENT_MAX = 1000

_QUANTITY = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))([A-Za-z].*)?", re.ASCII | re.DOTALL)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,18})", re.ASCII)
_SCALE = {
    "": (10, 0), "n": (10, -9), "u": (10, -6), "m": (10, -3), "k": (10, 3), "M": (10, 6), "G": (10, 9),
    "T": (10, 12), "P": (10, 15), "E": (10, 18), "Ki": (2, 10), "Mi": (2, 20), "Gi": (2, 30), "Ti": (2, 40),
    "Pi": (2, 50), "Ei": (2, 60),
}  # fmt: skip
_GO = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_GO_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def nanos(value: object) -> int:
    """A quantity in billionths, or a ValueError that shows it."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{str(value)[:80]!r} is not a quantity, such as 500m or 16Gi")  # noqa: TRY004
    text = value if isinstance(value, str) else _spelled(value)
    match = _QUANTITY.fullmatch(text)
    if match is None or len(text) > DIGITS_MAX:
        raise ValueError(f"{text[:80]!r} is not a quantity, such as 500m or 16Gi")
    sign, whole, fraction, bare, suffix = match.groups()
    fraction = bare or fraction or ""
    base, power = _scale(suffix or "", text)
    digits = int((whole or "0") + fraction)
    amount = _rounded(digits * NANO, base, power, len(fraction))
    return min(amount, VALUE_MAX * NANO) * (-1 if sign == "-" else 1)


def whole(value: object) -> int:
    """A quantity as a whole number, rounded away from zero."""
    return _up(nanos(value), NANO)


def go_seconds(text: str) -> float:
    """A duration as Go writes it: 3600s, 1h30m, 1.5h."""
    position, total = 0, 0.0
    while position < len(text) <= DIGITS_MAX:
        match = _GO.match(text, position)
        if match is None:
            break
        total += float(match.group(1)) * _GO_S[match.group(2)]
        position = match.end()
    if not text or position != len(text) or not 0 < total <= SECONDS_MAX:
        raise ValueError(f"{text[:80]!r} is not a duration above zero, such as 600s or 1h30m")
    return total


def _spelled(value: float) -> str:
    return "too long" if isinstance(value, int) and value.bit_length() > 256 else repr(value)


def _scale(suffix: str, text: str) -> tuple[int, int]:
    if suffix in _SCALE:
        return _SCALE[suffix]
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        raise ValueError(
            f"{text[:80]!r} is not a quantity: {suffix[:20]!r} is not one of its units, such as m, k, Gi"
        )
    power = int(exponent.group(1))
    return 10, max(-EXPONENT_MAX, min(EXPONENT_MAX, power))


def _rounded(digits: int, base: int, power: int, decimals: int) -> int:
    """digits × base^power ÷ 10^decimals, rounded up."""
    if power >= 0:
        return _up(digits * base**power, 10**decimals)
    return _up(digits, int(base**-power) * 10**decimals)


def _up(amount: int, unit: int) -> int:
    return -(-amount // unit) if amount >= 0 else amount // unit
