"""What must always be true of the state, one function per sentence. Tests and the simulator ask often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

from msgspec import structs

from phalanx.core.cluster.apply.overlay import tell_addresses
from phalanx.core.cluster.dependencies import has_come, predecessor, task_has_come
from phalanx.core.cluster.environments import digests_of, digests_of_stages
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflows import StagePhase
from phalanx.core.model.job import Job
from phalanx.core.model.lanes import lane_kind
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.orders import STATUSES, Status
from phalanx.core.model.queues import Queues
from phalanx.core.model.resources import Grant

_ACTIVE = (Status.ASSIGNED, Status.RUNNING)


def check(state: ClusterState) -> list[str]:
    """Every sentence that does not hold."""
    return [broken for sentence in SENTENCES for broken in sentence(state)]


def ledgers_are_exact(state: ClusterState) -> Iterator[str]:
    """What is free on a node is what it has less the grants of its lanes and the promises made of it."""
    promised: dict[str, list[Grant]] = {}
    for _, promise in state.promises():
        for name, grant in promise.members.values():
            promised.setdefault(name, []).append(grant)
    for node in state.nodes.values():
        expected = Ledger(node.name, state.table.ledgers[node.row].capacity)
        for lane in node.lanes.values():
            expected.retake(lane.grant)
        for grant in promised.get(node.name, ()):
            expected.promise(grant)
        tell_addresses(state.overlay, expected)
        found = state.table.ledgers[node.row]
        for field in ("free", "numa_free", "devices_free", "devices_held", "promises", "holders"):
            if getattr(found, field) != getattr(expected, field):
                yield f"{node.name}: {field} is {getattr(found, field)}, lanes say {getattr(expected, field)}"
        if [column[node.row] for column in state.table.columns.free] != found.free:
            yield f"{node.name}: the columns do not follow the ledger"


def devices_have_one_holder(state: ClusterState) -> Iterator[str]:
    """No device is in two lanes."""
    for node in state.nodes.values():
        held = Counter(device for lane in node.lanes.values() for device in lane.grant.devices)
        yield from (f"{node.name}: device {device} is held {n} times" for device, n in held.items() if n > 1)


def addresses_have_one_holder(state: ClusterState) -> Iterator[str]:
    """No address is in two lanes, and a reservation of one is bound to at most one job, which is not over."""
    lanes = (lane for node in state.nodes.values() for lane in node.lanes.values())
    held = Counter(lane.grant.address for lane in lanes if lane.grant.address)
    yield from (f"address {address} is held {n} times" for address, n in held.items() if n > 1)
    for made in state.overlay.by_id.values():
        job = state.jobs.get(made.job)
        if made.job and (job is None or (job.is_over and not job.live)):
            yield f"the reservation of {made.address} belongs to {made.job}, which is over"


def lanes_hold_live_attempts(state: ClusterState) -> Iterator[str]:
    """A lane is never empty, and nodes, lanes and jobs agree on who is alive."""
    for node in state.nodes.values():
        in_lanes = {key for lane in node.lanes.values() for key in lane.attempts}
        if in_lanes != set(node.attempts):
            yield f"{node.name}: lanes and attempts differ"
        yield from (
            f"{node.name}: lane {lane.id} is empty" for lane in node.lanes.values() if not lane.attempts
        )
    for job in state.jobs.values():
        for attempt in job.live.values():
            if attempt.key not in state.nodes[attempt.node].attempts:
                yield f"{attempt.key} is alive for its job but not on {attempt.node}"


def _kind_in_lane(job: Job) -> Hashable | None:
    """The kind of job that a lane has. Before decision 202 stages that may be merged queued in lanes, too."""
    if job.dispatch is not None and job.dispatch.merge_key:
        job = structs.replace(job, dispatch=structs.replace(job.dispatch, merge_key=""))
    return lane_kind(job)


def lanes_are_of_one_kind(state: ClusterState) -> Iterator[str]:
    """A lane has attempts of one job, or of jobs that may share lanes, and its tenant is the job of the first."""
    for node in state.nodes.values():
        for lane in node.lanes.values():
            ids = list(dict.fromkeys(key[0] for key in lane.attempts))
            kinds = {_kind_in_lane(state.jobs[id].job) for id in ids}
            if len(ids) > 1 and (None in kinds or len(kinds) > 1):
                yield f"{node.name}: lane {lane.id} has jobs that may not share it: {ids[:5]}"
            held = state.tenants.get((node.name, lane.id))
            if ids and held is not None and held.job != ids[0]:
                yield f"{node.name}: lane {lane.id} is held by {held.job}, its first attempt is of {ids[0]}"
            if lane.listed_in.get((node.name, lane.id)) is not lane:
                yield f"{node.name}: lane {lane.id} is not among those of its group"


def status_follows_attempts(state: ClusterState) -> Iterator[str]:
    """Assigned and Running tasks have a live attempt, Pending ones have none, and the counts are right."""
    totals = [0, 0, 0, 0, 0, 0]
    for job in state.jobs.values():
        counts = [job.status.count(status) for status in STATUSES]
        if counts != job.counts:
            yield f"{job.job.id}: counts {job.counts}, tasks say {counts}"
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        if counts[Status.ASSIGNED] + counts[Status.RUNNING]:
            active = {p for p, s in enumerate(job.status) if s in _ACTIVE}
            if not active <= set(job.live) | job.done:
                yield f"{job.job.id}: tasks {sorted(active - set(job.live) - job.done)[:5]} have no attempt"
        pending = [p for p in job.live if job.status[p] == Status.PENDING]
        if pending:
            yield f"{job.job.id}: pending tasks {pending[:5]} have a live attempt"
    if totals != state.counts:
        yield f"totals {state.counts}, jobs say {totals}"


def tasks_of_users_are_counted(state: ClusterState) -> Iterator[str]:
    """How many tasks of each user have not ended, and how large the jobs and workflows in memory are."""
    tasks, sizes = Counter[str](), Counter[str]()
    for job in state.jobs.values():
        if not job.is_over:
            tasks[job.job.user] += job.job.tasks
        sizes[job.job.user] += job.size_bytes
    for flow in state.workflows.values():
        sizes[flow.workflow.user] += flow.size_bytes
    if not state.skipped and dict(sizes) != state.bytes_of:
        yield f"bytes by user {state.bytes_of}, jobs and workflows say {dict(sizes)}"
    if not state.skipped and dict(tasks) != state.tasks_of:
        yield f"tasks by user {state.tasks_of}, jobs say {dict(tasks)}"
    stages = Counter[str]()
    for flow in state.workflows.values():
        for number, phase in enumerate(flow.phases):
            if phase == StagePhase.WAITING:
                stages[flow.workflow.user] += flow.workflow.stages[number].job.tasks
    if not state.skipped and (+stages, sum(stages.values())) != (state.stages_of, state.stage_tasks):
        yield f"tasks of stages without a job {state.stages_of}, {state.stage_tasks}; workflows say {dict(stages)}"


def ready_jobs_wait(state: ClusterState) -> Iterator[str]:
    """A unit is in the queue exactly when it has a task to place."""
    for id, job in state.jobs.items():
        for unit in job.units:
            if not job.is_over and unit.has_ready and unit not in state.waiting:
                yield f"{id} has ready tasks but is not in the queue"
            # After a damaged record one may stand in the queue in vain: it is passed over.
            if not state.skipped and unit in state.waiting and (job.is_over or not unit.has_ready):
                yield f"{id} is in the queue with nothing to place"


def approvals_are_listed(state: ClusterState) -> Iterator[str]:
    """Who waits for an approval is listed, and holds no place."""
    waiting = {id for id, job in state.jobs.items() if job.approve_by is not None and not job.is_over}
    if waiting != set(state.unapproved):
        yield f"wait for an approval: {sorted(state.unapproved)}; jobs say {sorted(waiting)}"
    yield from (f"{id} runs and was not approved" for id in waiting if state.jobs[id].live)


def tenants_follow_lanes(state: ClusterState) -> Iterator[str]:
    """Every lane and every promise is one tenant."""
    expected = {(node.name, lane) for node in state.nodes.values() for lane in node.lanes}
    for id in state.promised:
        promise = state.jobs[id].promise
        if promise is None:
            yield f"{id} is listed as promised, but has no promise"
        else:
            expected |= {(id, position) for position in promise.members}
    if expected != set(state.tenants.slots):
        yield f"tenants and lanes differ: {sorted(expected ^ set(state.tenants.slots))[:5]}"


def accounts_are_exact(state: ClusterState) -> Iterator[str]:
    """Queues, and users in them, hold what their tenants hold, and have submitted what has not ended."""
    expected = Queues()
    for slot in state.tenants.slots.values():
        tenant = state.tenants.tenants[slot]
        if tenant is not None:
            expected.take(tenant.queue_user, tenant.grant)
    for job in state.jobs.values():
        if not job.is_over:
            expected.submit(job.job.queue_user, job.job.tasks)
    for flow in state.workflows.values():
        for number, phase in enumerate(flow.phases):
            if phase == StagePhase.WAITING:
                stage = flow.workflow.stages[number].job
                expected.submit((stage.queue, flow.workflow.user), stage.tasks)
    found = state.queues
    used = {name: each for name, each in found.usage.items() if any(each)}
    if (used, found.used_by) != (expected.usage, expected.used_by):
        yield f"queues hold {used}, users {found.used_by}; tenants say {expected.used_by}"
    submitted = found.submitted, found.submitted_by
    if not state.skipped and submitted != (expected.submitted, expected.submitted_by):
        yield f"submitted by queue and user {submitted}; jobs and stages say {expected.submitted_by}"
    if state.waiting.by_user != found.by_user:
        yield f"users wait apart in {sorted(state.waiting.by_user)}, and have limits in {sorted(found.by_user)}"


def gangs_are_whole(state: ClusterState) -> Iterator[str]:
    """Whoever is ready belongs to the formation, and a strict one never holds only a part of what it needs."""
    for job in state.jobs.values():
        if job.gang is None:
            continue
        for group in job.groups:
            staying = sum(each.group == group.number and each.ending is None for each in job.live.values())
            if staying != group.staying:
                yield f"{job.job.id}: group {group.number} counts {group.staying} that stay, attempts say {staying}"
            waiting = len(group.pending())
            if group.pending_count != waiting:
                yield f"{job.job.id}: group {group.number} counts {group.pending_count} that wait, not {waiting}"
        if job.forming is None:
            continue
        if not job.forming.ready <= job.forming.positions:
            yield f"{job.job.id}: members are ready that are not in the formation"
        held = job.gang.staying()
        whole = all(held[n] >= group.needed for n, group in enumerate(job.job.groups))
        is_part = any(held.values()) and not whole  # after a damaged record all of it may be leaving
        if job.gang.gang.strict and not job.satisfied and is_part and not state.skipped:
            yield f"{job.job.id}: a strict formation holds only a part: {dict(held)}"


def rows_are_one_nodes(state: ClusterState) -> Iterator[str]:
    """Every node has one row of the table, and whatever stands on it knows that row."""
    if len(state.table) != len(state.nodes):
        yield f"{len(state.nodes)} nodes, {len(state.table)} rows"
    for node in state.nodes.values():
        if state.table.names[node.row] != node.name or state.table.rows[node.name] != node.row:
            yield f"{node.name}: row {node.row} is {state.table.names[node.row]}'s"
        if state.known_names[node.number] != node.name:
            yield f"{node.name}: number {node.number} is {state.known_names[node.number]}'s"
        if any(attempt.row != node.row for attempt in node.attempts.values()):
            yield f"{node.name}: an attempt stands in another row"
    for key, slot in state.tenants.slots.items():
        home = state.nodes.get(key[0])
        if home is not None and state.tenants.node[slot] != home.row:
            yield f"{key}: the tenant stands in another row"


def rests_are_counted(state: ClusterState) -> Iterator[str]:
    """A node that is excluded is kept away only if another takes work, and the table knows who does."""
    could = [node for node in state.nodes.values() if node.could_work]
    fresh = [node for node in could if node.excluded_until is None]
    counts, found = (state.could_work, state.could_but_excluded), (len(could), len(could) - len(fresh))
    if counts != found:
        yield f"(could work, of them rest) is {counts}, nodes say {found}"
    for node in state.nodes.values():
        if (node.excluded_until is not None) != (node.name in state.excluded):
            yield f"{node.name} is excluded, or is not"
        if node.is_kept_away != (node.excluded_until is not None and bool(fresh)):
            yield f"{node.name} is kept away, or not, for no reason"
        if state.table.is_open(node.name) != node.takes_work:
            yield f"{node.name}: the table does not know whether it takes work"


def dependents_are_told(state: ClusterState) -> Iterator[str]:
    """A job waits for exactly those before it that have not come, and they know of it."""
    for id, job in state.jobs.items():
        for after in () if job.is_over else job.job.after:
            other = predecessor(state, after.job)
            if other is None:
                continue
            is_told = after.job not in state.jobs and other.is_over
            if id not in state.dependents.get(after.job, ()) and not is_told:
                yield f"{after.job} does not know that {id} starts after it"
            come = None if after.each else has_come(other, after.when)
            if after.job in job.awaits and come and not state.skipped:
                yield f"{id} waits for {after.job}, which has come"
            if after.job not in job.awaits and come is False:
                yield f"{id} may start, though {after.job} never came"
        yield from _tasks_are_told(state, job) if job.by_task and not job.is_over else ()
    for first, others in state.dependents.items():
        yield from (f"{first} still knows of {id}, which is gone" for id in others if id not in state.jobs)


def _tasks_are_told(state: ClusterState, job: JobState) -> Iterator[str]:
    """Of a job whose tasks wait one by one, who is let go and who is not."""
    others = [(each, state.jobs[each.job]) for each in job.job.after if each.each and each.job in state.jobs]
    for position in range(job.job.tasks):
        come = [task_has_come(other, position, after.when) for after, other in others]
        if job.is_locked(position) and all(come) and others and not state.skipped:
            yield f"task {position} of {job.job.id} waits for tasks that have come"
        if not job.is_locked(position) and job.status[position] < Status.COMPLETED and False in come:
            yield f"task {position} of {job.job.id} may start, though another never came"


def stages_begin_in_order(state: ClusterState) -> Iterator[str]:
    """Counters of workflows say what is missing, and a stage has a job exactly if nothing was, and it has not ended."""
    for id, flow in state.workflows.items():
        for stage, phase in enumerate(flow.phases):
            missing = flow.waits_for(stage)
            if flow.missing[stage] != len(missing):
                yield f"{id}: stage {stage} lacks {missing}, its counter says {flow.missing[stage]}"
            if phase == StagePhase.RELEASED and (missing or flow.job_id(stage) not in state.jobs):
                yield f"{id}: stage {stage} was released without its inputs, or its job is gone"
        waiting = sum(phase <= StagePhase.RELEASED for phase in flow.phases)
        if flow.unfinished != waiting or flow.is_over != (id in state.ended_workflows):
            yield f"{id}: {waiting} stages have not ended, its counter says {flow.unfinished}"
        if (id in state.limited) != (flow.workflow.is_limited and not flow.is_over):
            yield f"{id}: its limits are not looked at, or no longer need to be"
    for id in state.due:
        if not state.workflows[id].is_due:
            yield f"{id} is said to be due"


def numbers_are_of_one_thing(state: ClusterState) -> Iterator[str]:
    """Every job in memory is found by its number, which nothing else has and which is not above the last one given."""
    numbers = {job.arrival: id for id, job in state.jobs.items()}
    numbers |= {flow.number: id for id, flow in state.workflows.items() if flow.number}
    if len(numbers) != len(state.jobs) + sum(bool(flow.number) for flow in state.workflows.values()):
        yield "two jobs or workflows have the same number"
    if numbers != state.names.numbers:
        yield "the index of numbers does not follow the jobs and workflows"
    if max(numbers, default=0) > state.arrivals:
        yield f"number {max(numbers)} was given, and {state.arrivals} is the last one"


def environments_are_those_of_jobs(state: ClusterState) -> Iterator[str]:
    """Every environment in memory is named by as many jobs and workflows as it says."""
    named = Counter(digest for job in state.jobs.values() for digest in digests_of(job.job))
    for flow in state.workflows.values():
        named.update(digests_of_stages(flow.workflow))
    for kept in state.environments:
        if kept.jobs != named[kept.digest]:
            yield f"environment {kept.digest} is named {named[kept.digest]} times, and {kept.jobs} are counted"


SENTENCES = (
    dependents_are_told,
    ledgers_are_exact,
    devices_have_one_holder,
    addresses_have_one_holder,
    lanes_hold_live_attempts,
    lanes_are_of_one_kind,
    status_follows_attempts,
    ready_jobs_wait,
    tenants_follow_lanes,
    accounts_are_exact,
    approvals_are_listed,
    gangs_are_whole,
    rows_are_one_nodes,
    rests_are_counted,
    tasks_of_users_are_counted,
    stages_begin_in_order,
    numbers_are_of_one_thing,
    environments_are_those_of_jobs,
)
