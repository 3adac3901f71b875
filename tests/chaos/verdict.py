"""The verdict: compares what the tasks recorded with what Phalanx reports. Plain values in, sentences out.

Every function is one promise; an empty answer means that it was kept. Those about time are in `times.py`. What
docs/promises.md admits (nothing was left on a node to end its tasks, or all of it was stopped) is counted separately
and never as a violation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from tests.chaos.answers import Job, Task
from tests.chaos.evidence import Evidence
from tests.chaos.faults import SILENT, UNFENCED, Fault
from tests.chaos.flow import wrong_stages
from tests.chaos.ledger import Life
from tests.chaos.times import limits, outlived_leases, starved, untrue_times
from tests.chaos.workload import FINAL, Asked

HEAL_S = 60.0
_STOPPED = (143, -15, -9)  # the exit of our tasks on SIGTERM, and by signals if they could not
_LEASE_SHARE = 2 / 3  # of `lost_after_s`: how long a node may run its attempts without a heartbeat
_LOST_SHARE = 0.8  # of `lost_after_s`: the last heartbeat may have been a while before the fault
_CLOCKS_S = 0.5  # coordinators' clocks and ours are read at different moments


def violations(evidence: Evidence) -> dict[str, list[str]]:
    """Every promise by its name, and how it was broken."""
    return {name: check(evidence) for name, check in PROMISES.items()}


def lost(evidence: Evidence) -> list[str]:
    """An accepted task ends."""
    found = []
    for asked in evidence.accepted:
        job = evidence.jobs.get(asked.job)
        if job is None:
            found.append(f"{asked.request}: job {asked.job} was accepted, and is unknown")
            continue
        missing = asked.tasks - len(job.tasks)
        if missing:
            found.append(f"{asked.request}: {missing} tasks are not there")
        found += [
            f"{asked.request}: task {task.position} of {job.id} is {task.status}"
            for task in job.tasks.values()
            if task.status not in FINAL
        ]
    return found


def accepted_twice(evidence: Evidence) -> list[str]:
    """One request makes one job, however often it was sent; and nothing runs that was not submitted."""
    found = [f"{name} became {len(ids)} jobs: {ids}" for name, ids in evidence.names.items() if len(ids) > 1]
    known = {each.job for each in evidence.accepted}
    strangers = {life.job for life in evidence.lives.values()} - known
    return found + [f"job {job} ran, and was never accepted" for job in sorted(strangers)]


def double_commits(evidence: Evidence) -> list[str]:
    """At most one attempt of a task completes, and every attempt ends once."""
    found = []
    for job in evidence.jobs.values():
        for task in job.tasks.values():
            if len(task.completed) > 1:
                found.append(f"{job.id}.{task.position}: attempts {task.completed} all completed")
            if len(set(task.ended)) < len(task.ended):
                found.append(f"{job.id}.{task.position}: an attempt ended twice: {task.ended}")
    return found


def double_allocations(evidence: Evidence) -> list[str]:
    """No device and no core is held twice at one moment; no attempt has two processes."""
    found = [
        f"{life.key} on {life.node}: {clash}" for life in evidence.lives.values() for clash in life.clashes
    ]
    twice = (life for life in evidence.lives.values() if life.starts > 1)
    return found + [f"{life.key} on {life.node} was started {life.starts} times" for life in twice]


def twin_lives(evidence: Evidence) -> list[str]:
    """Two attempts of one task do not live at one moment, unless docs/promises.md admits it."""
    return [text for text, excused in _twins(evidence) if not excused]


def excused_twins(evidence: Evidence) -> list[str]:
    """Two attempts lived at once, because nothing on its node could end the first: the limit we admit."""
    return [text for text, excused in _twins(evidence) if excused]


def _twins(evidence: Evidence) -> list[tuple[str, bool]]:
    found = []
    for life in evidence.lives.values():
        for other in life.twins:
            first = evidence.lives.get(other)
            text = f"{life.key} began on {life.node} while {other} lived on {first.node if first else '?'}"
            found.append((text, first is not None and _is_admitted(first, life, evidence)))
    return found


def _is_admitted(first: Life, second: Life, evidence: Evidence) -> bool:
    """All that could have ended the first was stopped until its node was lost, and resumed a lease ago at most."""
    lost_after_s = evidence.lost_after_s
    for fault in evidence.harmed(first.node, first.started_at, second.started_at, UNFENCED):
        silent_since = _silent_since(fault, first.node, evidence)
        ended_at = fault.ended_at or second.started_at
        if (
            second.started_at - silent_since >= _LOST_SHARE * lost_after_s
            and ended_at - silent_since >= _LOST_SHARE * lost_after_s
            and ended_at + _LEASE_SHARE * lost_after_s >= second.started_at
        ):
            return True
    return False


def _silent_since(fault: Fault, node: str, evidence: Evidence) -> float:
    """Since when the node cannot have been heard from: another fault may have cut it off, less than a lease before."""
    earliest = fault.began_at - _LEASE_SHARE * evidence.lost_after_s
    cuts = [
        other.began_at
        for other in evidence.faults
        if other.kind in SILENT and (other.kind.startswith("coordinator") or node in other.victims)
        if (other.ended_at or fault.began_at) >= fault.began_at
    ]
    return min((cut for cut in cuts if earliest < cut <= fault.began_at), default=fault.began_at)


def fenced(evidence: Evidence) -> list[str]:
    """Attempts that finished their work and were rejected: they had been declared lost before they reported it."""
    return [
        f"{life.key} ended with {life.code}, and came too late"
        for life in evidence.lives.values()
        if life.code is not None and (job := evidence.jobs.get(life.job)) is not None
        if (task := job.tasks.get(life.position)) is not None and task.status != "Cancelled"
        if life.attempt in task.lost
    ]


def exit_codes(evidence: Evidence) -> list[str]:
    """A task's reported exit code is that of its process, and the intended one."""
    found = []
    for asked in evidence.accepted:
        job = evidence.jobs.get(asked.job)
        for task in job.tasks.values() if job else ():
            life = evidence.lives.get(f"{asked.job}/{task.position}/{task.attempt}")
            if (wrong := _wrong_end(asked, task, life)) is not None:
                found.append(f"{asked.request} ({asked.kind}) {asked.job}.{task.position}: {wrong}")
        if job and asked.cancelled > sum(task.status == "Cancelled" for task in job.tasks.values()):
            found.append(
                f"{asked.request}: {asked.cancelled} tasks were said to be cancelled, not so many are"
            )
    return found


def _wrong_end(asked: Asked, task: Task, life: Life | None) -> str | None:
    meant = asked.code(task.position)
    said = f"{task.status} ({task.reason}, code {task.exit_code}, attempt {task.attempt})"
    if task.status == "Cancelled":
        fails = asked.kind == "gang" and any(asked.codes)  # a failed member ends its whole job
        return None if asked.is_cancelled or fails else f"{said}, and was not cancelled"
    if task.status == "Completed" and (meant != 0 or life is None or life.code != 0):
        return f"{said}, but its process ended with {life.code if life else 'no word'}, meant was {meant}"
    if task.status == "Completed" and asked.times_out:
        return f"{said}, though it takes longer than its limit"
    if task.status != "Failed":
        return None
    if task.reason == "timeout" and asked.times_out:
        true = life is not None and life.code is None and task.exit_code in _STOPPED
        return None if true else f"{said}, but its process ended with {life.code if life else 'no word'}"
    if task.reason == "exited":
        true = life is not None and life.code == task.exit_code == meant
        return None if true else f"{said}, but its process ended with {life.code if life else 'no word'}"
    whole = asked.kind == "gang" and any(asked.codes)
    return None if whole or asked.is_cancelled else f"{said}, though it was meant to end with {meant}"


def half_gangs(evidence: Evidence) -> list[str]:
    """Members start after all of them were ready; and all start, unless one of their nodes was harmed."""
    by_formation: dict[str, list[Life]] = defaultdict(list)
    for life in evidence.lives.values():
        if life.formation:
            by_formation[life.formation].append(life)
    asked = {each.job: each for each in evidence.accepted}
    found = []
    for name, members in by_formation.items():
        job = evidence.jobs.get(members[0].job)
        if job is None or members[0].job not in asked:
            continue
        found += _early(name, members, job, evidence)
        found += _half(name, members, job, asked[job.id], evidence)
    return found


def _early(name: str, members: list[Life], job: Job, evidence: Evidence) -> list[str]:
    number = int(name.rpartition(".")[2])
    released_at = job.released_at.get(number)
    if released_at is None:
        return [f"{name}: {len(members)} members ran, and it was never released"]
    first_at = min(life.started_at for life in members) + evidence.wall_offset_s
    if first_at < released_at - _CLOCKS_S:
        return [f"{name}: a member began {released_at - first_at:.1f} s before all were ready"]
    return []


def _half(name: str, members: list[Life], job: Job, asked: Asked, evidence: Evidence) -> list[str]:
    if len(members) == asked.tasks or asked.is_cancelled or any(asked.codes):
        return []
    first_at = min(life.started_at for life in members)
    until = first_at + evidence.lost_after_s + 10.0
    stood = job.stood.get(int(name.rpartition(".")[2]), set()) | {life.node for life in members}
    harmed = any(evidence.harmed(node, first_at - 2 * evidence.lost_after_s, until) for node in stood)
    return [] if harmed else [f"{name}: {len(members)} of {asked.tasks} members ran, and no node was harmed"]


def rivals(evidence: Evidence) -> list[str]:
    """One coordinator leads at a time."""
    return evidence.rivals


def refusals(evidence: Evidence) -> list[str]:
    """What is allowed is done, or answered with "try again": never refused."""
    return evidence.refusals


def trespasses(evidence: Evidence) -> list[str]:
    """No user can cancel another's job."""
    return evidence.trespasses


def leaks(evidence: Evidence) -> list[str]:
    """In the end nothing runs and nothing is held."""
    return evidence.leaks


def unhealed(evidence: Evidence) -> list[str]:
    """Everything heals within a minute of the last fault."""
    if evidence.healed_s is None:
        return [f"not healed {HEAL_S:g} s after the last fault"]
    return [] if evidence.healed_s <= HEAL_S else [f"healed only after {evidence.healed_s:.0f} s"]


def workflow(evidence: Evidence) -> list[str]:
    """Each stage commits once, with the right result; a failure ends exactly what builds on it; waits cost nothing."""
    return wrong_stages(evidence.flow)


def damages(evidence: Evidence) -> list[str]:
    """The store can be read and replayed, and what must always hold of the state holds."""
    return evidence.damages


def idle_faults(evidence: Evidence) -> list[str]:
    """The rig did what it claims: every kind of fault found a victim at least once, and the slow clients ran."""
    kinds: dict[str, list[bool]] = {}
    for fault in evidence.faults:
        kinds.setdefault(fault.kind, []).append(fault.is_idle)
    found = [f"{kind}: found no keeper, {len(idle)} times" for kind, idle in kinds.items() if all(idle)]
    return found + [f"no slow visitor: {what}" for what, count in evidence.slow.items() if not count]


PROMISES: dict[str, Callable[[Evidence], list[str]]] = {
    "lost tasks": lost,
    "accepted twice": accepted_twice,
    "double commits": double_commits,
    "double allocations": double_allocations,
    "two live attempts": twin_lives,
    "outlived leases": outlived_leases,
    "wrong time limits": limits,
    "false exit codes": exit_codes,
    "untrue times": untrue_times,
    "starved requests": starved,
    "refused requests": refusals,
    "cancelled by others": trespasses,
    "half-started gangs": half_gangs,
    "wrong workflow": workflow,
    "two leaders": rivals,
    "leaks": leaks,
    "not healed": unhealed,
    "damaged store": damages,
    "idle faults": idle_faults,
}
