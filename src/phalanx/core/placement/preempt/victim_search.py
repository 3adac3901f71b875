"""Which jobs have to make room in one domain, so that a whole unit can stand there: as few as possible.

The domain may be the whole cluster. Leaving that costs no job its work comes first: promises, and members that gangs
can do without. Then jobs are added until the unit fits, the one that gives the most room
first, and those that turn out not to be needed are let off; where there are few jobs, every smaller choice is tried.
Which of their tasks leave is found out in `eviction_plan.py`.

How often a domain may be counted anew is limited by effort, not by time, so that equal snapshots have equal answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import combinations
from math import comb

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from phalanx.core.model.tree import Column, Mask
from phalanx.core.placement.preempt.free import FreeAfter
from phalanx.core.placement.preempt.victims import Loss

STEPS_MAX = 12  # how many jobs are added one by one, in a domain with
PAIRS_MAX = 4096  # no more pairs of a job and a node than these; otherwise several at a time
EFFORT_MAX = 4.0  # for letting off jobs that are not needed, and again for trying smaller choices
CHOICES_MAX = 6  # how many choices of equally many jobs are worked out

Fits = Callable[[Mask], bool]
Flags = NDArray[np.bool_]  # for each loss and job: whether its victims leave
_Part = tuple[int, int]  # (loss, job)


class VictimChoice(Struct, frozen=True):
    """Jobs that give way. `is_thin` says that the unit would not fit if any of them were let off."""

    leaving: Mask
    is_thin: bool


class VictimSearch:
    """The victims of one domain, by what their jobs would lose."""

    def __init__(self, free_after: FreeAfter, losses: Column, fits: Fits, extra: float = 0.0) -> None:
        """`extra` says how much longer than usual it takes to see whether the unit fits, in milliseconds."""
        victims = free_after.measure.victims
        self.free_after = free_after
        self.loss = losses[free_after.at]
        self.job = victims.job[free_after.at]
        self.priority = victims.priority
        self._is_gang = victims.is_gang
        lost = np.bincount(self.job, victims.lost[free_after.at], minlength=victims.jobs)
        self.lost: NDArray[np.float64] = lost.astype(np.float64)
        # By priority, then by lost work.
        self.worth = self.priority + self.lost / (1.0 + self.lost.max(initial=0.0))
        self._fits = fits
        self._shape = (len(Loss), victims.jobs)  # the last line is for those who stay
        self._place = np.where(self.loss >= 0, self.loss, len(Loss) - 1) * victims.jobs + self.job
        # About as many milliseconds as it takes to count once.
        self._once = 0.1 + len(self.job) / 40_000 + extra
        self.effort = 0.0

    def choices(self) -> Iterator[VictimChoice]:
        """Choices of jobs whose leaving is enough, better ones first; none if nothing is."""
        base: Flags = np.zeros(self._shape, dtype=np.bool_)
        for loss in (Loss.PROMISE, Loss.SURPLUS):
            more = base.copy()
            more[loss] = True
            if self._is_enough(more):
                jobs = self._enough(_Ranking(self, base, loss))
                yield self._thinned(more if jobs is None else _and(base, loss, jobs))
                return
            base = more
        ranking = _Ranking(self, base, Loss.WORK)
        jobs = self._enough(ranking) or ranking.jobs.tolist()
        if self._is_enough(_and(base, Loss.WORK, jobs)):
            for some in self._as_few(ranking, jobs):
                yield self._thinned(_and(base, Loss.WORK, some))

    def mask(self, flags: Flags) -> Mask:
        """The victims whose jobs give way in this manner. A gang that leaves takes its surplus and promises along."""
        whole = flags[Loss.WORK] & self._is_gang
        if whole.any():
            flags = flags.copy()
            flags[[Loss.SURPLUS, Loss.PROMISE]] |= whole
        return flags.ravel()[self._place]

    def _is_enough(self, flags: Flags) -> bool:
        self.effort += self._once
        return self._fits(self.mask(flags))

    def _enough(self, ranking: _Ranking) -> list[int] | None:
        """Jobs whose leaving is enough, found by adding the most helpful one again and again."""
        chosen: list[int] = []
        is_quick = len(ranking) <= PAIRS_MAX and ranking.fewest <= STEPS_MAX
        for _ in range(STEPS_MAX if is_quick else 0):
            best = ranking.after(chosen)[:1].tolist()
            if not best:
                return None
            chosen += best
            if self._is_enough(ranking.flags(chosen)):
                return chosen
        order = np.concatenate([np.array(chosen, dtype=np.int64), ranking.after(chosen)])
        least = max(len(chosen) + 1, ranking.fewest)
        count = _first(lambda count: self._is_enough(ranking.flags(order[:count])), least, len(order))
        return None if count is None else order[:count].tolist()

    def _as_few(self, ranking: _Ranking, jobs: list[int]) -> list[list[int]]:
        """All choices of the fewest jobs, where these can be tried; otherwise the one that was found."""
        left = int(4 * EFFORT_MAX / self._once)
        for size in range(max(1, ranking.fewest), len(jobs) + 1):
            left -= comb(len(ranking.jobs), size)
            if left < 0:
                break
            every = combinations(ranking.jobs.tolist(), size)
            if found := [some for some in every if self._is_enough(ranking.flags(some))]:
                return [list(some) for some in sorted(found, key=self._price)[:CHOICES_MAX]]
        return [jobs]

    def _price(self, jobs: Sequence[int]) -> tuple[list[int], float]:
        return sorted(self.priority[list(jobs)].tolist(), reverse=True), float(self.lost[list(jobs)].sum())

    def _thinned(self, flags: Flags) -> VictimChoice:
        """Let off the jobs that are not needed, the most valuable first."""
        present = np.zeros_like(flags)
        present.ravel()[self._place] = True
        flags = flags & present
        parts: list[_Part] = []
        for loss in (Loss.WORK, Loss.SURPLUS, Loss.PROMISE):
            jobs = np.flatnonzero(flags[loss])
            order = np.argsort(-self.worth[jobs], kind="stable")
            parts += [(int(loss), job) for job in jobs[order].tolist()]
        is_hopeless = len(parts) * self._once > 10 * EFFORT_MAX  # it would be given up half-way
        is_thin = not is_hopeless and self._let_off(flags, parts, self.effort + EFFORT_MAX)
        return VictimChoice(self.mask(flags), is_thin)

    def _let_off(self, flags: Flags, parts: list[_Part], until: float) -> bool:
        """Try to do without all of these, else without one half and then the other. False if it took too long."""
        if not parts:
            return True
        if self.effort >= until:
            return False
        losses, jobs = zip(*parts, strict=True)
        flags[losses, jobs] = False
        if self._is_enough(flags):
            return True
        flags[losses, jobs] = True
        if len(parts) == 1:
            return True
        half = len(parts) // 2
        is_first_thin = self._let_off(flags, parts[:half], until)
        return self._let_off(flags, parts[half:], until) and is_first_thin


class _Ranking:
    """Jobs in the order in which they help most: by how much nearer the unit comes to fitting.

    `base` has the jobs that leave anyway, `loss` what the jobs in question would lose.
    """

    def __init__(self, search: VictimSearch, base: Flags, loss: Loss) -> None:
        self._search, self._base, self._loss = search, base, loss
        self._free_after = search.free_after
        mine = search.loss == loss
        present = np.bincount(search.job[mine], minlength=len(search.lost)) > 0
        self.jobs: Column = np.flatnonzero(present)
        item = np.where(mine, (present.cumsum() - 1)[search.job], -1)
        self._items, self._rows, self._amounts = self._free_after.pairs(item)
        self._most = self._free_after.slots(search.mask(self.flags(self.jobs)))
        self._limits = [most[self._rows] for most in self._most]
        self._free = self._free_after.free(search.mask(base))

    def __len__(self) -> int:
        return len(self._items)

    def flags(self, jobs: Sequence[int] | Column) -> Flags:
        """These jobs besides those that leave anyway."""
        return _and(self._base, self._loss, jobs)

    @cached_property
    def fewest(self) -> int:
        """How many jobs it takes at the least: members might be cut into pieces."""
        measure, free = self._free_after.measure, self._free
        now = measure.share(free, self._most)
        gain = measure.share(free[:, self._rows] + self._amounts, self._limits) - now[self._rows]
        gains = np.sort(np.bincount(self._items, gain, minlength=len(self.jobs)))[::-1]
        return int(np.searchsorted(gains.cumsum(), len(self._most) - now.sum() - 1e-9)) + 1

    def after(self, chosen: list[int]) -> Column:
        """The jobs that are left when these have gone, the most helpful first.

        Of jobs that are enough alone, the one of the lowest priority and with the least lost work comes first.
        """
        search, measure = self._search, self._free_after.measure
        jobs = self.jobs
        is_gone = np.zeros(len(search.lost), dtype=np.bool_)
        is_gone[chosen] = True
        is_gone = is_gone[jobs]
        free = self._free.copy()
        gone = is_gone[self._items]
        for line, amount in zip(free, self._amounts, strict=True):
            np.add.at(line, self._rows[gone], amount[gone])
        before = measure.progress(free, self._most)
        after = measure.progress(free[:, self._rows] + self._amounts, self._limits)
        gain = np.bincount(self._items, after - before[self._rows], minlength=len(jobs))
        missing = measure.missing(free, self._most)
        useful = (gain > 0) & ~is_gone
        jobs = jobs[useful]
        first, then = -np.minimum(gain[useful], missing), search.worth[jobs]
        is_even = not len(first) or first.min() == first.max()
        return jobs[np.argsort(then) if is_even else np.lexsort((then, first))]


def _and(base: Flags, loss: Loss, jobs: Sequence[int] | Column) -> Flags:
    flags = base.copy()
    flags[loss, jobs] = True
    return flags


def _first(holds: Callable[[int], bool], least: int, most: int) -> int | None:
    """The smallest number from `least` to `most` for which it holds, tried at ever larger steps and then in between."""
    low, high, step = least - 1, least, 1
    while high < most and not holds(high):
        low, high, step = high, high + step, 2 * step
    high = min(high, most)
    if not holds(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
