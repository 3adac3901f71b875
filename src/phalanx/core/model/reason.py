"""Why not, as a value. The code that decides makes these; every surface shows the same ones.

A reason belongs to a tier that says what could help: nothing in this cluster (never), a person (held), time
and policy, free capacity, or only patience (progress). Structural tiers win over waiting ones.
"""

from __future__ import annotations

from difflib import get_close_matches
from enum import IntEnum
from typing import Any

from msgspec import Struct

from phalanx.core.model.quantity import describe_bytes
from phalanx.core.model.resources import Cores


class Tier(IntEnum):
    """What could turn this no into a yes; the lowest tier is the dominant one."""

    NEVER = 0
    HELD = 1
    POLICY = 2
    CAPACITY = 3
    PROGRESS = 4

    @property
    def word(self) -> str:
        return self.name.lower()


class Reason(Struct, frozen=True):
    """One no: a code for programs, a sentence for people, and the numbers behind it."""

    code: str
    tier: Tier
    text: str
    numbers: dict[str, Any] = {}


def target_not_found(host: str, known: list[str]) -> Reason:
    names = ", ".join(known[:8]) or "none"
    return Reason(
        "TargetNotFound", Tier.NEVER, f"Node not registered: {host} (nodes: {names})", {"host": host}
    )


def no_nodes() -> Reason:
    return Reason("NoNodes", Tier.HELD, "No node has joined this cluster yet")


def offline(host: str) -> Reason:
    return Reason(
        "NodeOffline", Tier.HELD, f"Node status is offline: {host} has not been heard of", {"host": host}
    )


def unreachable(host: str) -> Reason:
    return Reason("NodeUnreachable", Tier.HELD, f"The runner of {host} lost its connection", {"host": host})


def stopped(host: str) -> Reason:
    text = f"The runner of {host} was stopped, and has not been started again"
    return Reason("NodeUnreachable", Tier.HELD, text, {"host": host})


def unhealthy(host: str, trouble: str) -> Reason:
    return Reason("NodeUnhealthy", Tier.HELD, f"{host} cannot start tasks: {trouble}", {"host": host})


def quarantined(host: str, left: int) -> Reason:
    text = f"{host} has not yet confirmed the end of {left} older attempts"
    return Reason("NodeQuarantined", Tier.HELD, text, {"host": host, "left": left})


def resting(host: str, failures: int, until: float, own: str = "") -> Reason:
    text = f"{host} is temporarily excluded: {own or f'{failures} tasks in a row failed there'}"
    return Reason("NodeResting", Tier.HELD, text, {"host": host, "failures": failures, "until": until})


def losses_braked(host: str, silent: int, nodes: int) -> Reason:
    text = (
        f"{host} is silent, and so are {silent} of {nodes} nodes at once: nobody is declared lost, and it keeps what "
        "it holds"
    )
    return Reason("LossesBraked", Tier.HELD, text, {"host": host, "silent": silent, "nodes": nodes})


def drained(host: str, why: str) -> Reason:
    return Reason("Maintenance", Tier.HELD, f"{host} is drained: {why}", {"host": host, "reason": why})


def numa_not_found(host: str, asked: int, valid: list[int]) -> Reason:
    text = f"Invalid NUMA ID {asked} on {host} (Valid: {valid})"
    return Reason("NumaNotFound", Tier.NEVER, text, {"asked": asked, "valid": valid})


def gpu_index_invalid(host: str, bad: list[int], valid: list[int]) -> Reason:
    text = f"Invalid GPU IDs: {bad} on {host} (Valid: {valid})"
    return Reason("GpuIndexInvalid", Tier.NEVER, text, {"bad": bad, "valid": valid})


def gpus_busy(host: str, busy: list[int]) -> Reason:
    text = f"Requested GPUs not available: {busy} on {host} are held by other tasks"
    return Reason("TargetBusy", Tier.CAPACITY, text, {"busy": busy})


def not_enough_gpus(host: str, wanted: int, free: int, total: int, kind: str) -> Reason:
    numbers = {"wanted": wanted, "free": free, "total": total}
    if wanted > total:
        text = f"{host} has {total} {kind}, {wanted} asked"
        return Reason("ExceedsLargestNode", Tier.NEVER, text, numbers)
    return Reason(
        "WaitingCapacity", Tier.CAPACITY, f"{host}: {free} of {total} {kind} free, {wanted} asked", numbers
    )


def not_enough_cores(host: str, wanted: Cores, free: Cores, total: Cores, where: str = "") -> Reason:
    numbers = {"wanted": wanted, "free": free, "total": total}
    text = f"Insufficient available cores on {host}{where}: {wanted} asked, {free} of {total} free"
    if wanted > total:
        return Reason("ExceedsLargestNode", Tier.NEVER, text, numbers)
    return Reason("WaitingCapacity", Tier.CAPACITY, text, numbers)


def not_enough_memory(host: str, wanted: int, free: int, total: int) -> Reason:
    numbers = {"wanted": wanted, "free": free, "total": total}
    text = (
        f"Insufficient available memory on {host}: {describe_bytes(wanted)} asked, "
        f"{describe_bytes(free)} of {describe_bytes(total)} free"
    )
    if wanted > total:
        return Reason("ExceedsLargestNode", Tier.NEVER, text, numbers)
    return Reason("WaitingCapacity", Tier.CAPACITY, text, numbers)


def at_once_limit(limit: int) -> Reason:
    text = f"The array runs at most {limit} tasks at once, and {limit} are running"
    return Reason("ArrayLimit", Tier.POLICY, text, {"limit": limit})


def behind(ahead: int) -> Reason:
    text = f"{ahead} tasks stand before it in the queue (higher priority, or earlier)"
    if not ahead:
        text = "Others that stand before it in the queue go first"
    return Reason("PriorityBehind", Tier.POLICY, text, {"ahead": ahead})


def quota_exhausted(queue: str, what: str, wanted: Cores, used: Cores, limit: Cores) -> Reason:
    text = f"Queue {queue} may hold {limit} {what} and holds {used}; {wanted} more are asked"
    return Reason("QuotaExhausted", Tier.POLICY, text, {"wanted": wanted, "used": used, "limit": limit})


def exceeds_quota(queue: str, what: str, wanted: Cores, limit: Cores) -> Reason:
    text = f"Queue {queue} may hold at most {limit} {what}, {wanted} are asked at once"
    return Reason("ExceedsQuotaMax", Tier.NEVER, text, {"wanted": wanted, "limit": limit})


def queue_not_found(queue: str, known: list[str]) -> Reason:
    near = get_close_matches(queue, known, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    text = f"queue: nobody has declared {queue!r}{meant} (queues: {', '.join(known[:8])})"
    return Reason("QueueNotFound", Tier.NEVER, text, {"queue": queue})


def priority_too_high(queue: str, priority: int, limit: int) -> Reason:
    text = f"priority: {priority} is too high, you may give at most {limit} in queue {queue}"
    return Reason("PriorityTooHigh", Tier.NEVER, text, {"priority": priority, "limit": limit})


def backing_off(seconds: float, used: int, allowed: int) -> Reason:
    text = f"It failed and is tried again in {seconds:.1f} s (retry {used} of {allowed})"
    return Reason("RetryBackoff", Tier.PROGRESS, text, {"seconds": seconds, "used": used, "allowed": allowed})


def starting(host: str) -> Reason:
    return Reason(
        "Starting", Tier.PROGRESS, f"Sent to {host}, which has not confirmed the start yet", {"host": host}
    )


def plan_failed(error: str, seconds: float) -> Reason:
    return Reason(
        "PlanFailed",
        Tier.HELD,
        f"The scheduler failed when it looked for a place for it ({error}); this is a defect, the coordinator's log"
        f" says where; it is tried again in {seconds:.0f} s",
        {"error": error, "seconds": seconds},
    )


def evaluating() -> Reason:
    return Reason("Evaluating", Tier.PROGRESS, "It fits now and is placed at the next turn")


def running(host: str, paused: bool) -> Reason:
    if paused:
        return Reason(
            "Paused", Tier.HELD, f"It is paused on {host} and keeps what it was given", {"host": host}
        )
    return Reason("Running", Tier.PROGRESS, f"It is running on {host}", {"host": host})


def running_unreachable(host: str) -> Reason:
    """It ran when its node was last heard from."""
    text = f"It was running on {host}, whose runner is not connected; it is tried again if {host} is lost"
    return Reason("NodeUnreachable", Tier.HELD, text, {"host": host})


def ended(status: str, text: str) -> Reason:
    return Reason(f"Ended{status}", Tier.PROGRESS, text, {"status": status})


def no_matching_labels(host: str, lacking: list[str]) -> Reason:
    text = f"{host} does not carry {', '.join(lacking)}"
    return Reason("NoMatchingLabels", Tier.NEVER, text, {"lacking": lacking})


def gang_incomplete(needed: int, slots: int, evidence: dict[str, Any]) -> Reason:
    """`evidence` says where the slots are; the groups of a gang may also stand in each other's way."""
    text = f"It starts with {needed} members together, and there is room for {slots} now"
    if slots >= needed:
        text = f"It starts with {needed} members together; each group has room, but not all groups beside each other"
    if best := evidence.get("best"):
        text += f" ({_where(evidence['layer'], best)} has the most: {evidence['best_slots']})"
    return Reason("GangIncomplete", Tier.CAPACITY, text, {"needed": needed, "slots": slots, **evidence})


def topology_fragmented(needed: int, slots: int, usable: int, evidence: dict[str, Any]) -> Reason:
    """Enough room in the cluster, but not where the rules want it: `usable` of it at the most."""
    layer, multiple = evidence["layer"], evidence.get("multiple")
    text = f"It needs room for {needed} members in one {layer}; there is room for {slots} in the cluster"
    if multiple:
        text = f"It needs room for {needed} members, a multiple of {multiple} in every {layer}"
        text += f"; of the {slots} places in the cluster {usable} can be used so"
    else:
        text += f", but the best {layer}, {evidence['best']}, has {evidence['best_slots']}"
    numbers = {"needed": needed, "slots": slots, "usable": usable, **evidence}
    return Reason("TopologyFragmented", Tier.CAPACITY, text, numbers)


def layer_unknown(layer: str, known: list[str]) -> Reason:
    near = _nearest(layer, known)
    hint = f"; did you mean {near}?" if near else ""
    text = f"No layer is called {layer} (layers: {', '.join(known)}){hint}"
    return Reason(
        "MustGatherImpossible", Tier.NEVER, text, {"layer": layer, "layers": known, "nearest": near}
    )


def must_gather_impossible(needed: int, layer: str, most: int, evidence: dict[str, Any]) -> Reason:
    """No domain of the layer could hold it, even if nothing else ran there."""
    text = f"It needs {needed} members in one {layer}, and no {layer} of this cluster could hold more than {most}"
    if evidence.get("unlabelled"):
        text += f"; no node carries a label that says in which {layer} it stands"
    return Reason(
        "MustGatherImpossible", Tier.NEVER, text, {"needed": needed, "layer": layer, "most": most, **evidence}
    )


def members_apart(layer: str, domains: list[str]) -> Reason:
    text = f"All members must stand in one {layer}, and those that run stand in {', '.join(domains)}"
    return Reason("MustGatherImpossible", Tier.NEVER, text, {"layer": layer, "domains": domains})


def not_a_multiple(count: int, layer: str, multiple: int) -> Reason:
    text = f"Every {layer} must hold a multiple of {multiple} members, and {count} cannot be divided so"
    return Reason(
        "MustGatherImpossible", Tier.NEVER, text, {"needed": count, "layer": layer, "multiple": multiple}
    )


def exceeds_cluster_total(what: str, wanted: Cores, total: Cores) -> Reason:
    text = f"It needs {wanted} {what} at once, and all nodes of this cluster together have {total}"
    return Reason("ExceedsClusterTotal", Tier.NEVER, text, {"what": what, "wanted": wanted, "total": total})


def groups_too_large(needed: int, has_rule: bool, evidence: dict[str, Any]) -> Reason:
    """Each group alone would find room on empty nodes, but not all of them beside each other."""
    text = f"It starts with {needed} members together, and its groups do not fit beside each other even on empty nodes"
    code = "MustGatherImpossible" if has_rule else "ExceedsClusterTotal"
    return Reason(code, Tier.NEVER, text, {**evidence, "needed": needed})


def _where(layer: str, name: str) -> str:
    return f"{layer} {name}" if name else "the cluster"


def _nearest(word: str, known: list[str]) -> str | None:
    """The known word that was most likely meant: the same in other letters, or with few letters changed."""
    same = [each for each in known if each.lower() == word.lower()]
    if same:
        return same[0]
    far, best = min(((_edits(word.lower(), each.lower()), each) for each in known), default=(99, ""))
    return best if far <= max(2, len(best) // 3) else None


def _edits(one: str, other: str) -> int:
    """How many letters have to be changed, put in or left out to make one word of the other."""
    row = list(range(len(other) + 1))
    for at, envelope in enumerate(one, start=1):
        before, row[0] = row[0], at
        for to, wanted in enumerate(other, start=1):
            before, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, before + (envelope != wanted))
    return row[-1]


def barrier_wait(ready: int, placed: int, short: int, missing: list[str], seconds: float) -> Reason:
    """Members hold their places and wait for each other; `missing` names those that are not ready."""
    text = f"{ready} of {placed} placed members are ready and wait for each other"
    if missing:
        text += f"; not ready: {', '.join(missing)}"
    if short:
        text += f"; {short} more still need a place"
    text += f"; all let go in {seconds:.0f} s if they are not whole by then"
    numbers = {"ready": ready, "placed": placed, "short": short, "missing": missing, "seconds": seconds}
    return Reason("BarrierWait", Tier.PROGRESS, text, numbers)


def waiting_victims(victims: list[str], nodes: dict[str, int], seconds: float) -> Reason:
    """Its places are kept for it until those who were asked to leave have gone."""
    places = ", ".join(f"{node} × {count}" for node, count in nodes.items())
    text = f"Its places ({places}) are kept for it; {len(victims)} tasks have to leave first: {', '.join(victims)}"
    text += f"; the promise ends in {seconds:.0f} s"
    return Reason(
        "WaitingVictims", Tier.PROGRESS, text, {"victims": victims, "nominated": nodes, "seconds": seconds}
    )


def members_missing(group: str, needed: int, able: int, why: list[str]) -> Reason:
    """Too few members of a group can be placed at all just now."""
    which = f" of {group}" if group else ""
    text = f"It starts with {needed} members{which} together, and only {able} can be placed: {', '.join(why)}"
    return Reason("GangIncomplete", Tier.CAPACITY, text, {"needed": needed, "able": able, "why": why})


def more_may_join(count: int, left: int) -> Reason:
    """A gang starts, and some that it can do without wait."""
    text = f"It starts with {count} members; {left} more may join when there is room"
    return Reason("WaitingCapacity", Tier.CAPACITY, text, {"started": count, "left": left})


def members_to_come(lacks: str) -> Reason:
    """A gang of which not all members have been applied."""
    text = f"{lacks}. `phalanx apply` adds members, and it starts when it is whole"
    return Reason("GangIncomplete", Tier.HELD, text, {"lacks": lacks})


def waiting_dependency(group: str, when: str, done: int, tasks: int) -> Reason:
    """A group that begins only after another."""
    text = f"It begins when every task of {group} has {when}; {done} of {tasks} have"
    return Reason("WaitingDependency", Tier.HELD, text, {"group": group, "done": done, "tasks": tasks})


def held_back(because: str) -> Reason:
    """A person has to say whether it may run."""
    text = f"It is held: {because}. `phalanx resume` lets it run, `phalanx cancel` ends it"
    return Reason("Held", Tier.HELD, text, {"because": because})


def restarting(left: int) -> Reason:
    text = f"All tasks of its job start anew; {left} attempts of the life before are still ending"
    return Reason("Restarting", Tier.PROGRESS, text, {"left": left})


def restart_backoff(seconds: float, used: int, limit: int | None) -> Reason:
    """The whole job waits a little before it starts anew."""
    of = "" if limit is None else f" (restart {used} of {limit})"
    text = f"Its job starts anew in {seconds:.1f} s{of}"
    return Reason("RestartBackoff", Tier.PROGRESS, text, {"seconds": seconds, "used": used, "limit": limit})


def recall_backoff(seconds: float, recalls: int) -> Reason:
    """A gang that could not start whole waits a little before it tries again."""
    text = (
        f"Its members were not ready together ({recalls} times in a row); it tries again in {seconds:.1f} s"
    )
    return Reason("RestartBackoff", Tier.PROGRESS, text, {"seconds": seconds, "recalls": recalls})


def leaving(host: str, why: str, message: str) -> Reason:
    """An attempt that was told to stop and has not confirmed it."""
    text = f"It was asked to leave {host} ({why}) and has not ended yet"
    return Reason(
        "Leaving", Tier.PROGRESS, f"{text}: {message}" if message else text, {"host": host, "why": why}
    )


def finished() -> Reason:
    text = (
        "It finished with code 0, and is Completed once its whole job is: another failure may start it anew"
    )
    return Reason("Finished", Tier.PROGRESS, text)


def tasks_waiting(count: int, tasks: int, first: str) -> Reason:
    """Of a job that runs: some of its tasks do not."""
    text = f"{count} of its {tasks} tasks wait; `phalanx why {first}` says why"
    return Reason("TasksWaiting", Tier.PROGRESS, text, {"count": count, "tasks": tasks, "first": first})
