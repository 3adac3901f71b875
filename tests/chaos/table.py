"""The table at the end: faults by kind, failovers, tasks, and what was broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.chaos.evidence import Evidence
from tests.chaos.leaders import Yes, vacancies
from tests.chaos.verdict import excused_twins, fenced

_SHOWN = 8  # sentences shown for one broken promise


def quantile(values: list[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def lines(
    evidence: Evidence, answers: list[Yes], fallen: list[str], broken: dict[str, list[str]]
) -> Iterable[str]:
    """What is printed."""
    yield from _faults(evidence, fallen)
    yield from _failovers(answers)
    yield from _work(evidence)
    yield "promises"
    for name, found in broken.items():
        yield f"  {name:<34}{len(found):>8}"
        yield from (f"      {sentence}" for sentence in found[:_SHOWN])
        if len(found) > _SHOWN:
            yield f"      … and {len(found) - _SHOWN} more"
    yield f"  {'(two lives, as admitted)':<34}{len(excused_twins(evidence)):>8}"
    healed = "never" if evidence.healed_s is None else f"{evidence.healed_s:.1f} s"
    yield f"healed after the last fault{healed:>17}"


def _faults(evidence: Evidence, fallen: list[str]) -> Iterable[str]:
    counts = Counter(fault.kind for fault in evidence.faults)
    yield f"faults{sum(counts.values()):>38}"
    for kind in sorted(counts):
        yield f"  {kind:<34}{counts[kind]:>8}"
    for name, count in sorted(Counter(fallen).items()):
        yield f"  {name} ended by itself{count:>{42 - len(name) - 16}}"


def _failovers(answers: list[Yes]) -> Iterable[str]:
    without = vacancies(answers)
    yield f"failovers{len(without):>35}"
    if without:
        for word, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
            yield f"  without a leader, {word}{quantile(without, share):>19.2f} s"


def _work(evidence: Evidence) -> Iterable[str]:
    accepted = evidence.accepted
    kinds = Counter(each.kind for each in accepted)
    ends = Counter(task.status for job in evidence.jobs.values() for task in job.tasks.values())
    words = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    yield f"jobs{len(accepted):>40}   {words}"
    yield f"tasks{sum(each.tasks for each in accepted):>39}   " + ", ".join(
        f"{count} {status}" for status, count in sorted(ends.items())
    )
    yield f"attempts that ran{len(evidence.lives):>27}"
    yield f"ends that came too late, and were fenced{len(fenced(evidence)):>4}"
    yield f"answers that had to be asked again{sum(each.troubles for each in evidence.asked):>10}"
    yield f"refused submits{sum(bool(each.refused) for each in evidence.asked):>29}"
    limited = [each for each in accepted if each.limit_s is not None]
    yield f"jobs with a time limit{len(limited):>22}   {sum(each.times_out for each in limited)} meant to run into it"
    if evidence.flow is not None:
        ends = Counter(stage.status for stage in evidence.flow.stages.values())
        shown = ", ".join(f"{count} {status}" for status, count in sorted(ends.items()))
        again = sum(evidence.flow.ran.values()) - len(evidence.flow.ran)
        yield f"stages of the workflow{len(evidence.flow.planned):>22}   {shown}; {again} ran again"
    yield from _waits(evidence)


def _waits(evidence: Evidence) -> Iterable[str]:
    """How long requests had to wait, including the times without a leader."""
    for user in sorted({wait.user for wait in evidence.waits}):
        waited = [wait.ended_at - wait.began_at for wait in evidence.waits if wait.user == user]
        shown = ", ".join(
            f"{word} {quantile(waited, share):.2f} s"
            for word, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        )
        yield f"answers to {user}{len(waited):>{33 - len(user)}}   {shown}"
    for what, count in sorted(evidence.slow.items()):
        yield f"slow: {what:<30}{count:>8}"
