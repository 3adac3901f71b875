"""Brute force for evictions: which tenants may be evicted, whether that ever helps, and which could have stayed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, product

from phalanx.core.model.tenants import Tenant
from tests.property.placement_oracle import Counts, Errand, Keys, Picture, Search, admitted, fits


def is_victim(picture: Picture, errand: Errand, tenant: Tenant) -> bool:
    """Whether a tenant may be evicted for this errand, whatever becomes of its gang."""
    return (
        tenant.priority < errand.priority
        and tenant.evictable_at <= picture.now
        and tenant.job != errand.job
        and errand.may_evict
    )


def on_their_way(picture: Picture, errand: Errand) -> Keys:
    """Tenants that are leaving an open node with a promise that this errand could take over."""
    rows = {each.node_row for each in picture.tenants if each.is_promise and is_victim(picture, errand, each)}
    return frozenset(
        each.key
        for each in picture.tenants
        if each.is_leaving and each.node_row in rows and picture.spots[each.node_row].is_open
    )


def keeps_gangs_whole(picture: Picture, gone: Keys) -> list[str]:
    """The gangs that would be left with less than their minimum though they held it, or lose below it."""
    broken = []
    for job, needed in picture.needed.items():
        mine = picture.of_job(job)
        left = [each for each in mine if each.key not in gone]
        if not left or len(left) == len(mine):
            continue
        for group, least in enumerate(needed):
            held = sum(each.group == group for each in mine)
            kept = sum(each.group == group for each in left)
            if kept < held and kept < least:
                broken.append(job)
                break
    return broken


def removals(picture: Picture, errand: Errand, breakable: frozenset[str] | None = None) -> Iterator[Keys]:
    """Every largest set of tenants that may be evicted together; a smaller one never makes more room.

    With `breakable` only these jobs lose single tasks or leave whole; the others give up surplus members at the most.
    """
    choices: list[list[Keys]] = []
    for job in sorted({each.job for each in picture.tenants}):
        mine = picture.of_job(job)
        may_go = [each for each in mine if is_victim(picture, errand, each)]
        may_break = breakable is None or job in breakable
        if job not in picture.needed or is_promised(mine):
            choices.append([frozenset(each.key for each in may_go) if may_break else frozenset()])
        elif may_break and len(may_go) == len(mine):
            choices.append([frozenset(each.key for each in mine)])
        else:
            choices.append(list(surplus(picture, job, may_go)))
    waited_for = on_their_way(picture, errand)
    for each in product(*choices):
        yield frozenset(chain.from_iterable(each)) | waited_for


def is_promised(mine: list[Tenant]) -> bool:
    """A job whose places are only promised to it gives up all of them or none."""
    return any(each.is_promise for each in mine)


def surplus(picture: Picture, job: str, may_go: list[Tenant]) -> Iterator[Keys]:
    """Every largest choice of members that a gang can lose without falling under its minimum."""
    by_group = []
    for group, least in enumerate(picture.needed[job]):
        held = sum(each.group == group for each in picture.of_job(job))
        mine = [each.key for each in may_go if each.group == group]
        by_group.append(list(combinations(mine, min(len(mine), max(0, held - least)))))
    for each in product(*by_group):
        yield frozenset(chain.from_iterable(each))


def can_make_room(picture: Picture, errand: Errand) -> bool:
    """Whether any set of allowed victims lets the whole errand in."""
    return any(Search(picture, errand, gone).can_place() for gone in removals(picture, errand))


def fewest_broken(picture: Picture, errand: Errand) -> int | None:
    """The least number of jobs that have to be broken for the errand; None if nothing helps.

    A gang that only gives up surplus members is not broken.
    """
    jobs = sorted({each.job for each in picture.tenants if is_victim(picture, errand, each)})
    for size in range(len(jobs) + 1):
        for some in combinations(jobs, size):
            options = removals(picture, errand, frozenset(some))
            if any(Search(picture, errand, gone).can_place() for gone in options):
                return size
    return None


def broken_by(picture: Picture, gone: Keys) -> set[str]:
    """The jobs that these evictions break."""
    found = set()
    for job in {each.job for each in picture.tenants if each.key in gone and not each.is_leaving}:
        if job not in picture.needed or all(each.key in gone for each in picture.of_job(job)):
            found.add(job)
    return found


def smaller(picture: Picture, gone: Keys) -> Iterator[Keys]:
    """Every way to spare a little: one task, one surplus member, a whole gang, or all of a gang but its surplus."""
    for job in sorted({each.job for each in picture.tenants if each.key in gone and not each.is_leaving}):
        mine = frozenset(each.key for each in picture.of_job(job))
        if is_promised(picture.of_job(job)):
            yield gone - mine
        elif job not in picture.needed or not mine <= gone:
            yield from (gone - {key} for key in sorted(gone & mine))
        else:
            yield gone - mine
            for some in surplus(picture, job, picture.of_job(job)):
                if some:
                    yield gone - mine | some


def fit_where_they_are(picture: Picture, errand: Errand, placed: dict[int, Counts], gone: Keys) -> bool:
    """Whether members, so many of each group on each row, fit there when only these tenants have left."""
    total = tuple(map(sum, zip(*placed.values(), strict=True)))
    return admitted(picture, errand, total, gone) and all(
        fits(picture.free(row, gone), errand.wanted, counts) for row, counts in placed.items()
    )
