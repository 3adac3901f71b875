"""Why not, as a value. The code that decides makes these; every surface shows the same ones.

A reason belongs to a tier that says what could help: nothing in this cluster (never), a person (held), time
and policy, free capacity, or only patience (progress). Structural tiers win over waiting ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from enum import IntEnum
from typing import Any

from msgspec import Struct

from phalanx.core.model.amounts import describe_bytes, describe_seconds, plural, utc
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


Says = Callable[..., Reason]


def _reason(code: str, tier: Tier, names: str, template: str) -> Says:
    """A reason with one sentence, made of values with these names; those that begin with _ are no numbers of it."""

    def says(*values: object) -> Reason:
        given = dict(zip(names.split(), values, strict=True))
        numbers = {name: value for name, value in given.items() if not name.startswith("_")}
        return Reason(code, tier, template.format(**given), numbers)

    return says


_NEVER, _HELD, _POLICY, _CAPACITY, _PROGRESS = Tier

# fmt: off
# Nodes
no_nodes = _reason("NoNodes", _HELD, "",
    "No node has joined this cluster yet")
offline = _reason("NodeOffline", _HELD, "host",
    "Node status is offline: {host} has not been heard from")
unreachable = _reason("NodeUnreachable", _HELD, "host",
    "The runner of {host} lost its connection")
stopped = _reason("NodeUnreachable", _HELD, "host",
    "The runner of {host} was stopped")
running_unreachable = _reason("NodeUnreachable", _HELD, "host _left",
    "Was running on {host}, which is not connected; if {host} is not back in {_left}, it counts as lost and the task is"
    " retried")
unhealthy = _reason("NodeUnhealthy", _HELD, "host _trouble",
    "{host} cannot start tasks: {_trouble}")
unhealthy_node = _reason("NodeUnhealthy", _HELD, "host _found",
    "{host} takes no new work, a health check fails: {_found}")
devices_failed = _reason("DevicesFailed", _HELD, "host failed _found",
    "{host} would hold it with all of its GPUs; out of service: {failed}, because {_found}")
quarantined = _reason("NodeQuarantined", _HELD, "host left",
    "{host} has yet to confirm the end of older attempts ({left} left)")
losses_braked = _reason("LossesBraked", _HELD, "host silent nodes",
    "{host} is silent, as are {silent} of {nodes} nodes; no node is declared lost while so many are, and its"
    " tasks stay allocated")
disabled = _reason("NodeDisabled", _HELD, "host _reason automatic",
    "{host} is disabled {_reason}")
disabled_away = _reason("NodeDisabled", _HELD, "host _reason automatic",
    "{host} is disabled {_reason}, and its runner is not connected")
bound = _reason("NodeBound", _HELD, "host workflow",
    "{host} is bound to {workflow} until that has ended (dispatch mode static_worker)")
static_worker_unavailable = _reason("StaticWorkerUnavailable", _CAPACITY, "host workflow",
    "It is bound to {host} with the rest of {workflow}, and {host} has no room for it now")
no_worker_ready = _reason("NoWorkerReady", _CAPACITY, "host task_type",
    "Tasks of type {task_type!r} are bound to {host}, which has no room for it now")
sticky_worker_busy = _reason("StickyWorkerBusy", _CAPACITY, "host",
    "It continues from weights made on {host} and waits until {host} has room")
merged = _reason("Merged", _PROGRESS, "parent host",
    "It runs on {host} as a part of {parent}, which differs from it only in its data")
spread_over = _reason("Spread", _PROGRESS, "host here tasks nodes",
    "It is spread: {tasks} of its tasks hold places on {nodes} nodes, {here} on {host}")
dispatched = _reason("Dispatched", _PROGRESS, "host strategy pool reused weight score others _told",
    "{_told}")
gpu_index_invalid = _reason("GpuIndexInvalid", _NEVER, "_host bad valid",
    "Invalid GPU IDs: {bad} on {_host} (Valid: {valid})")
gpus_busy = _reason("TargetBusy", _CAPACITY, "_host busy",
    "Requested GPUs not available: {busy} on {_host} are in use")
no_addresses = _reason("OverlayUnavailable", _NEVER, "host",
    "{host} has no addresses of the overlay network")
address_elsewhere = _reason("AddressInvalid", _NEVER, "host address block",
    "{address} is not an address that tasks on {host} may have (its block is {block})")
address_busy = _reason("AddressBusy", _CAPACITY, "host address",
    "{address} on {host} is in use, or was until a moment ago")

# Queues
at_once_limit = _reason("ArrayLimit", _POLICY, "limit",
    "The array's limit of {limit} at once is reached")
quota_exhausted = _reason("QuotaExhausted", _POLICY, "_queue _what wanted used limit",
    "Quota of queue {_queue}: {used} of {limit} {_what} in use, {wanted} more requested")
exceeds_quota = _reason("ExceedsQuotaMax", _NEVER, "_queue _what wanted limit",
    "Quota of queue {_queue} ({_what}): at most {limit}, {wanted} requested at once")
user_limit_reached = _reason("UserLimitReached", _POLICY, "_queue user _what wanted used limit",
    "Limit of {user} in queue {_queue}: {used} of {limit} {_what} in use, {wanted} more requested")
exceeds_user_limit = _reason("ExceedsUserLimit", _NEVER, "_queue user _what wanted limit",
    "Limit of {user} in queue {_queue} ({_what}): at most {limit}, {wanted} requested at once")
user_submit_limit = _reason("UserSubmitLimit", _POLICY, "_queue user added used limit",
    "Limit of {user} in queue {_queue}: {used} of {limit} unfinished tasks, {added} more submitted")
queue_submit_limit = _reason("QueueSubmitLimit", _POLICY, "_queue added used limit",
    "Limit of queue {_queue}: {used} of {limit} unfinished tasks, {added} more submitted")
waiting_approval = _reason("WaitingApproval", _HELD, "_queue _who _until",
    "Queue {_queue} requires approval by {_who}{_until}")
priority_too_high = _reason("PriorityTooHigh", _NEVER, "_queue priority limit",
    "priority: {priority} is too high, the maximum for you in queue {_queue} is {limit}")

# What a job waits for by itself
backing_off = _reason("RetryBackoff", _PROGRESS, "seconds used allowed",
    "Failed; retry {used} of {allowed} in {seconds:.1f} s")
plan_failed = _reason("PlanFailed", _HELD, "error seconds",
    "The scheduler failed while placing it ({error}); this is a bug, details are in the coordinator's log;"
    " next try in {seconds:.0f} s")
evaluating = _reason("Evaluating", _PROGRESS, "",
    "Fits now; placed in the next scheduling pass")
not_looked_at = _reason("Evaluating", _PROGRESS, "most",
    "Not planned: one question plans at most {most} placements, and those before it are as many")
members_to_come = _reason("GangIncomplete", _HELD, "lacks",
    "{lacks}. Add members with `phalanx apply`; it starts once complete")
more_may_join = _reason("WaitingCapacity", _CAPACITY, "started left",
    "Starts with {started} of its members; {left} more when there is room")
waiting_dependency = _reason("WaitingDependency", _HELD, "group _when done tasks",
    "Starts after all tasks of {group} have {_when}; {done} of {tasks} have")
waiting_job = _reason("WaitingDependency", _HELD, "job _name _when status",
    "Starts after {_name} has {_when}; it is {status}")
waiting_task = _reason("WaitingDependency", _HELD, "task _when status",
    "Starts after task {task} has {_when}; it is {status}")
waiting_unknown_job = _reason("WaitingDependency", _HELD, "job",
    "Starts after job {job}, of which nothing is known any more")
waiting_stages = _reason("WaitingDependency", _HELD, "_text stages count",
    "Waits for {_text}")
waiting_reference = _reason("WaitingReference", _HELD, "stages",
    "Uses what these stages give: {stages}")
waiting_condition = _reason("WaitingCondition", _HELD, "stage field equals",
    "Runs only if {field} of stage {stage} is {equals!r}")
waiting_files = _reason("WaitingFiles", _PROGRESS, "_text",
    "{_text}")
restarting = _reason("Restarting", _PROGRESS, "left",
    "The job is restarting; waiting for attempts of the previous run to stop ({left} left)")
recall_backoff = _reason("RestartBackoff", _PROGRESS, "seconds recalls",
    "Its members were not ready in time (failed starts in a row: {recalls}); next try in {seconds:.1f} s")

# What does not wait
starting = _reason("Starting", _PROGRESS, "host",
    "Sent to {host}, which has not confirmed the start yet")
preparing = _reason("Preparing", _PROGRESS, "host",
    "{host} gets its image ready; it holds its place meanwhile")
finished = _reason("Finished", _PROGRESS, "",
    "Exited with code 0; waiting for the rest of the job")
tasks_waiting = _reason("TasksWaiting", _PROGRESS, "count tasks first",
    "{count} of {tasks} tasks waiting; `phalanx why {first}` says why")
tasks_failed = _reason("TasksFailed", _PROGRESS, "count tasks _job",
    "{count} of {tasks} tasks failed; `phalanx results {_job} --status failed` lists them")
retried = _reason("Retried", _PROGRESS, "last _job",
    "Its failed tasks ran again, last in {last}; `phalanx results {_job}` has the newest outcome of each")
devices_idle = _reason("DevicesIdle", _PROGRESS, "host devices idle_s _text",
    "On {host}: {_text}; others could use what is held and not used")
stages_running = _reason("StagesRunning", _PROGRESS, "count stages _text",
    "{count} of {stages} stages under way: {_text}")
stages_waiting = _reason("WaitingDependency", _HELD, "count stages _text",
    "{count} of {stages} stages waiting for others: {_text}")

# What gangs need
not_chosen = _reason("NodeNotChosen", _NEVER, "host lacking",
    "{host} is not among the nodes that the job may use (--nodes, --exclude)")
not_empty = _reason("NodeNotEmpty", _CAPACITY, "host holders _others",
    "{host} is not empty ({_others} there), and --exclusive needs an empty node")
held_whole = _reason("NodeHeldWhole", _CAPACITY, "host",
    "{host} is held by a job that has it for itself (--exclusive)")
no_matching_labels = _reason("NoMatchingLabels", _NEVER, "host _shown lacking",
    "{host} does not have {_shown}")
not_isolated = _reason("NotIsolated", _NEVER, "host _shown lacking",
    "{host} cannot limit tasks to their {_shown}, and the job requires isolation")
no_containers = _reason("NoContainers", _NEVER, "host _because lacking",
    "{host} cannot run containers of this image: {_because}")
not_a_multiple = _reason("MustGatherImpossible", _NEVER, "needed layer multiple",
    "{needed} members cannot be split into multiples of {multiple} per {layer}")
exceeds_cluster_total = _reason("ExceedsClusterTotal", _NEVER, "what wanted total _needs _room",
    "Needs {_needs} at once; all nodes of this cluster together have room for {_room}")
# fmt: on

_OF_TARGET = frozenset({
    "TargetNotFound", "NumaNotFound", "GpuIndexInvalid", "NodeNotChosen", "NoMatchingLabels", "NotIsolated",
    "NoContainers", "NoNodes",
})  # fmt: skip


def is_about_target(no: Reason) -> bool:
    """Whether it is not the amount that is wrong, but the node, the devices or the labels that were named."""
    return no.code in _OF_TARGET


def target_not_found(host: str, known: list[str]) -> Reason:
    names = ", ".join(known[:8]) or "none"
    text = f"Node not registered: {host} (nodes: {names})"
    return Reason("TargetNotFound", Tier.NEVER, text, {"host": host})


def held_back(because: str) -> Reason:
    """`because` says by whom, and why if that was said: `by ada`, `wait for the data (by ada)`."""
    text = f"Held {because}" if because.startswith("by ") else f"Held: {because}"
    return Reason("Held", Tier.HELD, text, {"because": because})


def begins_later(at: float, seconds: float) -> Reason:
    text = f"Begins at {utc(at)}, in {describe_seconds(seconds)}"
    return Reason("BeginTime", Tier.HELD, text, {"begin_at": at, "seconds": seconds})


def drained(host: str, why: str) -> Reason:
    text = f"{host} {why.removeprefix('it ')}" if why.startswith("it is ") else f"{host} is drained: {why}"
    return Reason("Maintenance", Tier.HELD, text, {"host": host, "reason": why})


def node_excluded(host: str, failures: int, until: float, own: str = "") -> Reason:
    text = f"{host} is temporarily excluded: {own or plural(failures, 'consecutive task failure')}"
    return Reason("NodeExcluded", Tier.HELD, text, {"host": host, "failures": failures, "until": until})


def numa_not_found(host: str, asked: int, valid: Sequence[int]) -> Reason:
    text = f"Invalid NUMA ID {asked} on {host} (Valid: {list(valid)})"
    if not valid:
        text += f"; {host} reports no NUMA nodes, so name it alone: {host}, or {host}::0 for a GPU"
    return Reason("NumaNotFound", Tier.NEVER, text, {"asked": asked, "valid": valid})


def not_enough_gpus(host: str, wanted: int, free: int, total: int, kind: str) -> Reason:
    free = max(0, free)
    text = f"{host}: {free} of {total} {kind} free, {wanted} requested"
    if wanted > total:
        text = (
            f"{host} has {'1 GPU' if (total, kind) == (1, 'GPUs') else f'{total} {kind}'}, {wanted} requested"
        )
    return _too_little(text, wanted, free, total)


def not_enough_cores(host: str, wanted: Cores, free: Cores, total: Cores, where: str = "") -> Reason:
    free = max(0, free)  # what is promised to another is taken, also while others still hold it
    text = f"Insufficient available cores on {host}{where}: {wanted} requested, {free} of {total} free"
    return _too_little(text, wanted, free, total)


def not_enough_memory(host: str, wanted: int, free: int, total: int) -> Reason:
    free = max(0, free)
    text = (
        f"Insufficient available memory on {host}: {describe_bytes(wanted)} requested, "
        f"{describe_bytes(free)} of {describe_bytes(total)} free"
    )
    return _too_little(text, wanted, free, total)


def not_enough_addresses(host: str, free: int, total: int) -> Reason:
    text = f"{host}: {free} of {total} addresses of the overlay network free, 1 requested"
    return _too_little(text, 1, free, total)


def _too_little(text: str, wanted: Cores, free: Cores, total: Cores) -> Reason:
    numbers = {"wanted": wanted, "free": free, "total": total}
    if wanted > total:
        return Reason("ExceedsLargestNode", Tier.NEVER, text, numbers)
    return Reason("WaitingCapacity", Tier.CAPACITY, text, numbers)


def queue_not_found(queue: str, known: list[str]) -> Reason:
    near = get_close_matches(queue, known, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    text = f"queue: there is no queue {queue!r}{meant} (queues: {', '.join(known[:8])})"
    return Reason("QueueNotFound", Tier.NEVER, text, {"queue": queue})


def queue_not_allowed(queue: str, user: str, users: Sequence[str], roles: Sequence[str]) -> Reason:
    shown = ", ".join(users[:8]) + (f" and {len(users) - 8} more" if len(users) > 8 else "")
    whom = [f"for {shown}"] * bool(users) + [f"for the role {' or '.join(roles)}"] * bool(roles)
    text = f"queue: {user} may not use queue {queue}, which is {' and '.join(whom)}"
    return Reason("QueueNotAllowed", Tier.NEVER, text, {"queue": queue, "user": user})


def running(host: str, paused: bool) -> Reason:
    if paused:
        text = f"Paused on {host}; its resources stay allocated"
        return Reason("Paused", Tier.HELD, text, {"host": host})
    return Reason("Running", Tier.PROGRESS, f"Running on {host}", {"host": host})


def ended(status: str, text: str) -> Reason:
    return Reason(f"Ended{status}", Tier.PROGRESS, text, {"status": status})


def gang_incomplete(needed: int, slots: int, evidence: dict[str, Any]) -> Reason:
    """`evidence` says where the slots are; the groups of a gang may also stand in each other's way."""
    needs = f"Needs {plural(needed, 'member')} at once"
    text = f"{needs}; room for {slots}"
    if slots >= needed:
        text = f"{needs}; there is room for each group, but not for all of them together"
    if (best := evidence.get("best")) and evidence["best_slots"]:
        text += f" (most in {evidence['layer']} {best}: {evidence['best_slots']})"
    return Reason("GangIncomplete", Tier.CAPACITY, text, {"needed": needed, "slots": slots, **evidence})


def topology_fragmented(needed: int, slots: int, usable: int, evidence: dict[str, Any]) -> Reason:
    """Enough room in the cluster, but not where the rules want it: `usable` of it at the most."""
    layer, multiple = evidence["layer"], evidence.get("multiple")
    text = f"Needs {plural(needed, 'member')} in one {layer}; room for {slots} in the cluster"
    if multiple:
        text = f"Needs {needed} members, a multiple of {multiple} in every {layer}"
        text += f"; room for {slots} in the cluster, for {usable} in such multiples"
    else:
        text += f", but for at most {evidence['best_slots']} in one {layer} ({evidence['best']})"
    numbers = {"needed": needed, "slots": slots, "usable": usable, **evidence}
    return Reason("TopologyFragmented", Tier.CAPACITY, text, numbers)


def layer_unknown(layer: str, known: list[str]) -> Reason:
    near = _nearest(layer, known)
    hint = f"; did you mean {near}?" if near else ""
    text = f"There is no layer {layer} (layers: {', '.join(known)}){hint}"
    numbers = {"layer": layer, "layers": known, "nearest": near}
    return Reason("MustGatherImpossible", Tier.NEVER, text, numbers)


def must_gather_impossible(needed: int, layer: str, most: int, evidence: dict[str, Any]) -> Reason:
    """No domain of the layer could hold it, even if nothing else ran there."""
    text = f"Needs {plural(needed, 'member')} in one {layer}; no {layer} of this cluster can hold more than {most}"
    if evidence.get("unlabelled"):
        text += f"; no node has a label that names its {layer}"
    numbers = {"needed": needed, "layer": layer, "most": most, **evidence}
    return Reason("MustGatherImpossible", Tier.NEVER, text, numbers)


def groups_too_large(needed: int, has_rule: bool, evidence: dict[str, Any]) -> Reason:
    """Each group alone would find room on empty nodes, but not all of them together."""
    text = f"Needs {plural(needed, 'member')} at once; its groups do not fit together even on empty nodes"
    code = "MustGatherImpossible" if has_rule else "ExceedsClusterTotal"
    return Reason(code, Tier.NEVER, text, {**evidence, "needed": needed})


def _nearest(word: str, known: list[str]) -> str | None:
    """The known word that was most likely meant, whatever the case of its letters."""
    lower = {each.lower(): each for each in reversed(known)}
    near = get_close_matches(word.lower(), lower, n=1)
    return lower[near[0]] if near else None


def output_unread() -> Reason:
    text = "It is stopped until its output is read: `phalanx run`, which shows it, is far behind"
    return Reason("OutputUnread", Tier.PROGRESS, text)


def said(message: str) -> str:
    """The message of a condition without the name of who set it, which Kubernetes puts first."""
    return message.removeprefix("phalanx: ")


def was_evicted(at: float, message: str, now: float) -> Reason:
    """An earlier attempt was asked to leave; `message` says by whom and for whom."""
    text = f"An earlier attempt was evicted {describe_seconds(max(0.0, now - at))} ago: {said(message)}"
    return Reason("WasEvicted", Tier.PROGRESS, text, {"at": at})


def restart_backoff(seconds: float, used: int, limit: int | None) -> Reason:
    """The whole job waits a little before it restarts."""
    of = "" if limit is None else f" (restart {used} of {limit})"
    text = f"The job restarts in {seconds:.1f} s{of}"
    return Reason("RestartBackoff", Tier.PROGRESS, text, {"seconds": seconds, "used": used, "limit": limit})


def leaving(host: str, why: str, message: str) -> Reason:
    """An attempt that was told to stop and has not confirmed it."""
    text = f"Stopping on {host} ({why})"
    numbers = {"host": host, "why": why}
    return Reason("Leaving", Tier.PROGRESS, f"{text}: {said(message)}" if message else text, numbers)
