"""Amounts: sizes, cores and durations as people write them, and resources as they are counted, rows of one vector.

Written they are `16GiB`, `512M`, `0.5`, `90s`, `1h30m`, `2-12:00:00`. Decimal suffixes (K, M, G, T) are powers of 1000
and binary ones (Ki, Mi, Gi, Ti) powers of 1024, a trailing B changes nothing. Whatever is not understood is refused,
with the text and what would be right.

A vector has cores in thousandths, bytes of memory, addresses of the overlay network, then devices of each kind asked
for. Requests, grants, capacities
and quotas become vectors here and nowhere else, and what follows from vectors alone is computed here: slots, headroom
under a quota, what a grant holds of a kind of device. A further resource is one more fixed row: `fixed` reads it,
`WORDS` names it. One node is counted here, in plain integers; all of them at once are counted in `columns.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import inf
from typing import Protocol, TypeVar

from phalanx.core.model.device_types import fits, is_pattern
from phalanx.core.model.resources import Cores, Device, Grant, Request

BYTES_MAX = 1 << 60
MEMORY_BYTES_MIN = 16 << 20  # with less, an OOM kill could strike before the program of a task runs
MILLI = 1000  # cores are counted in thousandths, so that sums of parts never drift
_MILLICORES_KEPT = 4096
SECONDS_MAX = 10 * 365 * 86_400
_SIZE = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,9}))? ?([KMGTP]?i?)B?", re.IGNORECASE | re.ASCII)
_CORES = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,3}))?|([0-9]{1,12})m", re.ASCII)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_CLOCK = re.compile(r"(?:([0-9]{1,4})-)?([0-9]{1,4}):([0-9]{2})(?::([0-9]{2}))?")
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_DURATION_MAX = 100  # characters: users write them, and each part takes a while to read
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
CORES = 0  # the row of
ADDRESSES = 2  # the row of
FIXED = 3  # rows that every vector has: cores, memory, addresses
WORDS = ("tasks", "cores", "bytes of memory", "GPUs")  # of the rows of a quota
SLOTS_MAX = 1_000_000  # tasks that ask for nothing fit anywhere without end; this is where we stop counting
WHOLE = 1 << 20  # an empty node, as a row of its own: each that holds something there takes one of it
Vector = tuple[int, ...]
_Number = TypeVar("_Number", int, float)
DeviceKind = tuple[str | None, int]  # type asked for, memory asked for
ANY: DeviceKind = (None, 0)


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


def parse_memory(value: int | str, of: str = "a task") -> int:
    """Memory in bytes; so little that nothing runs in it is refused: a number without a unit was meant in another."""
    size = parse_bytes(value) if isinstance(value, str) else value
    if not 0 < size < MEMORY_BYTES_MIN:
        return size
    least = f"the least for {of} is {format_bytes(MEMORY_BYTES_MIN)}"
    text = str(value).strip()
    if not text.isdecimal() or size >= 1 << 20:
        raise ValueError(f"{text!r} is too little: {least}")
    units = ("GiB",) if size < 16 else ("MiB", "GiB") if size < 1024 else ("MiB",)
    meant = " or ".join(f"{size}{unit}" for unit in units)
    raise ValueError(f"{text} without a unit is {plural(size, 'byte')}, and {least}: write {meant}")


def parse_cores(text: str) -> int | float:
    """Read a number of cores: whole, with at most three decimals, or in thousandths as Kubernetes writes them, 500m."""
    match = _CORES.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text[:80]!r} is not a number of cores: write 2, 0.5 or 500m, with at most three digits after the point"
        )
    if match.group(3):
        return written(int(match.group(3)))
    whole, part = int(match.group(1)), int((match.group(2) or "").ljust(3, "0"))
    return whole + part / 1000 if part else whole


class _Millicores(dict[float, int]):
    """Thousandths of a core, exactly: a number with at most three decimals is the nearest float to it."""

    def __missing__(self, cores: float) -> int:
        if len(self) >= _MILLICORES_KEPT:
            self.clear()
        millis = self[cores] = round(cores * MILLI)
        return millis


MILLICORES = _Millicores()  # a table, for it is asked several times for every task


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


def plural(count: float, noun: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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


def utc(at: float) -> str:
    """An instant, in seconds since 1970, as ISO 8601 writes it, in UTC."""
    days, second = divmod(int(at), 86_400)
    # Years that begin in March have the leap day at their end; 400 of them have 146,097 days.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day += 1 - (153 * month + 2) // 5
    month += 3 if month < 10 else -9
    year += 400 * era + (month <= 2)
    return f"{year:04}-{month:02}-{day:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def _plain(text: str) -> float | None:
    return float(text) if len(text) <= 20 and text.isascii() else None


def _clock(text: str) -> float | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return days * 86_400.0 + hours * 3600.0 + minutes * 60.0 + seconds


def _parts(text: str) -> float | None:
    if len(text) > _DURATION_MAX:
        return None
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


class _Sized(Protocol):
    """A request, a grant or a capacity."""

    @property
    def cores(self) -> Cores: ...

    @property
    def memory_bytes(self) -> int: ...

    @property
    def addresses(self) -> int: ...


def fixed(of: _Sized) -> tuple[int, int, int]:
    """The rows that every vector has."""
    return MILLICORES[of.cores], of.memory_bytes, of.addresses


def holds(free: list[int], of: _Sized) -> bool:
    """Whether so much is free. This and what follows is asked for every task, so the rows are written out."""
    return MILLICORES[of.cores] <= free[0] and of.memory_bytes <= free[1] and of.addresses <= free[2]


def add(free: list[int], of: _Sized, sign: int) -> None:
    """Give so much back, or take it."""
    free[0] += sign * MILLICORES[of.cores]
    free[1] += sign * of.memory_bytes
    free[2] += sign * of.addresses


def add_grant(free: list[int], numa_free: dict[int, int], grant: Grant, sign: int) -> None:
    """The same with what it has of each NUMA node; its node may have come back without some of them.

    Its address is counted by the ledger, for not every one that is taken or given back was free or becomes so.
    """
    free[0] += sign * MILLICORES[grant.cores]
    free[1] += sign * grant.memory_bytes
    for numa, cores in grant.numa_cores:
        if numa in numa_free:
            numa_free[numa] += sign * MILLICORES[cores]


def take_grant(free: list[int], numa_free: dict[int, int], grant: Grant) -> bool:
    """Take a grant if it is free; else nothing is taken."""
    millis, memory, parts = MILLICORES[grant.cores], grant.memory_bytes, grant.numa_cores
    if millis > free[0] or memory > free[1]:
        return False
    for numa, cores in parts:
        if MILLICORES[cores] > numa_free.get(numa, -1):
            return False
    free[0] -= millis
    free[1] -= memory
    for numa, cores in parts:
        numa_free[numa] -= MILLICORES[cores]
    return True


def slots(free: Sequence[int], of: _Sized, most: int) -> int:
    """How often so much can be taken from what is free on one node, up to `most`.

    More than everything may be promised: then less than nothing is free, and nobody fits.
    """
    millis, memory, addresses = free
    if millis < 0 or memory < 0:
        return 0
    if of.cores and (fit := millis // MILLICORES[of.cores]) < most:
        most = fit
    if of.memory_bytes and (fit := memory // of.memory_bytes) < most:
        most = fit
    if of.addresses and (fit := addresses // of.addresses) < most:
        most = fit
    return most


def device_kind(request: Request) -> DeviceKind:
    return request.gpu_type, request.gpu_memory_bytes


def matching(devices: Sequence[Device], kind: DeviceKind) -> Sequence[Device]:
    """The devices, free or not, that are of the type and size asked for."""
    type_, size = kind
    if type_ is not None and is_pattern(type_):
        devices, type_ = [each for each in devices if fits(type_, each)], None
    if type_ is None and not size:
        return devices
    return [
        each
        for each in devices
        if (type_ is None or each.kind == type_ or each.kind.lower() == type_) and each.memory_bytes >= size
    ]


class Rows:
    """Which rows vectors have for some requests: the fixed ones, then one for each kind of device that they ask for.

    With `others` devices of any kind have a row before those, in which requests for further kinds are counted, too. If
    one of them asks for an empty node, the last row counts who holds something there (`WHOLE`).
    """

    def __init__(self, requests: Iterable[Request], *, others: bool = False) -> None:
        requests = list(requests)
        self.has_whole = any(each.exclusive for each in requests)
        kinds = dict.fromkeys(device_kind(each) for each in requests if each.gpus)
        self._others = others and bool(kinds)
        self.kinds: tuple[DeviceKind, ...] = tuple({ANY: None, **kinds} if self._others else kinds)

    def ask(self, request: Request) -> Vector:
        """A request as a vector."""
        kind, gpus = device_kind(request), request.gpus
        is_mine = (each == kind or (self._others and each == ANY) for each in self.kinds)
        whole = (WHOLE * request.exclusive,) if self.has_whole else ()
        return (*fixed(request), *(gpus if mine else 0 for mine in is_mine), *whole)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return FIXED + len(self.kinds) + self.has_whole

    def of_grant(self, grant: Grant, devices: Sequence[Device]) -> Vector:
        """A grant as a vector; `devices` are those of its node."""
        held = set(grant.devices)
        counts = (sum(each.index in held for each in matching(devices, kind)) for kind in self.kinds)
        whole = (1,) if self.has_whole else ()
        return (*fixed(grant), *(counts if held else (0 for _ in self.kinds)), *whole)


def use(held: list[_Number], grant: Grant, sign: int) -> None:
    """Count a task for a quota, or no longer; the rows are those of `WORDS`."""
    held[0] += sign
    held[1] += sign * MILLICORES[grant.cores]
    held[2] += sign * grant.memory_bytes
    held[3] += sign * len(grant.devices)


def total(asked: Iterable[tuple[Request, int]]) -> list[int]:
    """What so many tasks of each request use of a quota."""
    found = [0] * len(WORDS)
    for request, count in asked:
        one = (1, *fixed(request)[:ADDRESSES], request.gpus)
        found = [each + count * amount for each, amount in zip(found, one, strict=True)]
    return found


def headroom(limits: Sequence[int | None], used: Sequence[int], needed: Sequence[int]) -> list[float]:
    """What a quota leaves of each row when what is needed is taken; less than nothing where it is too much.

    A queue that is over its quota of something holds up nobody who asks for none of it.
    """
    return [
        inf if limit is None or not wanted else limit - now - wanted
        for limit, now, wanted in zip(limits, used, needed, strict=True)
    ]
