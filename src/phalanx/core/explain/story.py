"""What happened, in sentences: each event as one line."""

from __future__ import annotations

from phalanx.core.cluster import change_events as c
from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster import events as e
from phalanx.core.cluster import overlay_events as o
from phalanx.core.cluster import workflow_events as w
from phalanx.core.cluster.approval_events import JobApproved, WorkflowApproved
from phalanx.core.cluster.decide.health import describe_devices
from phalanx.core.cluster.dependencies import WORDS
from phalanx.core.cluster.environment_events import EnvironmentKept
from phalanx.core.cluster.exclusion_events import NodeExcluded, NodeRecovered
from phalanx.core.cluster.health_events import NodeChecked
from phalanx.core.cluster.image_events import AttemptPrepared, AttemptPreparing
from phalanx.core.cluster.login_events import LoginEnded, LoginOpened, LoginsUsed, LoginTicketMade
from phalanx.core.cluster.number_events import NumbersSkipped
from phalanx.core.explain.choices import told_choice
from phalanx.core.model.amounts import describe_bytes, describe_seconds, plural, utc
from phalanx.core.model.health import WELL, NodeHealth
from phalanx.core.model.job import Job
from phalanx.core.model.orders import AttemptKey, Exit, Status, Why
from phalanx.core.model.patterns import unreadable
from phalanx.core.model.reason import said
from phalanx.core.model.resources import Grant

STAGES_SHOWN = 5  # of those that ended together
LATE_S = 5.0  # the delay of a report is shown from here on
_SAME_EACH_TIME: dict[type, str] = {
    e.TaskPaused: "paused; its resources stay allocated",
    e.TaskResumed: "resumed",
    e.JobForgotten: "moved to the history",
    c.JobReleased: "released",
    e.LogSettled: "the store can be written again",
    w.WorkflowForgotten: "moved to the history",
    e.SecretKnown: "fingerprint of the cluster's secret recorded",
}


def sentence(event: e.Event, *, inspects: bool = False) -> str:
    """One event as a sentence. Why a stage ended may tell of results, which are for those who may inspect them."""
    return (
        _SAME_EACH_TIME.get(type(event))
        or _task_sentence(event)
        or _whole_sentence(event)
        or _declared_sentence(event)
        or _node_sentence(event)
        or _health_sentence(event)
        or _brake_sentence(event)
        or _workflow_sentence(event, inspects)
        or _elastic_sentence(event)
        or _overlay_sentence(event)
        or _credential_sentence(event)
    )


def _overlay_sentence(event: e.Event) -> str:
    match event:
        case o.BlockAssigned():
            return f"has the addresses {event.block}" if event.block else "has no addresses any more"
        case o.AddressReserved():
            made = event.reservation
            return f"address {made.address} reserved by {made.user} for {made.expires_at - made.created_at:.0f} s"
        case o.ReservationEnded():
            return f"reservation of {event.address} {'released' if event.released else 'expired'}"
    return ""


def _task_sentence(event: e.Event) -> str:
    match event:
        case e.JobSubmitted():
            lacks = f"; {event.job.draft.lacks}" if event.job.draft is not None else ""
            others = " and ".join(
                f"{each.job} {WORDS[each.when]}{', task by task' if each.each else ''}"
                for each in event.job.after
            )
            after = f"; starts after {others}" if others else ""
            after += f"; begins at {utc(event.job.begin_at)}" if event.job.begin_at else ""
            after += "; waits for an approval" if event.approve_by is not None else ""
            return f"submitted: {_describe_job(event.job)}{_describe_unreadable(event.job)}{lacks}{after}"
        case JobApproved() | WorkflowApproved():
            return f"approved by {event.by}"
        case e.JobAmended():
            draft = event.job.draft
            return f"members added: {_describe_job(event.job)}; {draft.lacks if draft else 'complete'}"
        case e.TaskPlaced():
            where = "placed on" if event.opens else "queued in a lane on"
            if event.formation:
                where = f"placed with its gang (formation {event.formation}) on"
            chosen = f"; {told_choice(event.note)}" if event.note is not None else ""
            others = f", with {', '.join(event.merged)} as a part of it" if event.merged else ""
            grant = _describe_grant(event.grant)
            return f"attempt {event.key[2]} {where} {event.node} with {grant}{others}{chosen}"
        case d.MergedEnded():
            return _describe_merged(event)
        case d.TaskDeferred():
            return f"waits for {event.node}, where the weights were made that it continues from"
        case e.AttemptStarted():
            return f"attempt {event.key[2]} is running"
        case AttemptPreparing():
            return f"attempt {event.key[2]} waits for its image, which its node gets ready"
        case AttemptPrepared():
            return f"the image of attempt {event.key[2]} is ready"
        case e.AttemptSuspected():
            return f"attempt {event.key[2]} is missing from its runner's report"
        case e.AttemptEnded():
            return _describe_end(event.key, event.exit, event)
        case e.TasksAbandoned():
            count = sum(last - first + 1 for first, last in event.ranges)
            ended = f"{plural(count, 'task')} {event.status.word.lower()}"
            return f"{ended}: to start after the task of the same index of {event.other} {event.text}"
        case e.TasksCancelled():
            what = "" if event.positions is None else f"{plural(len(event.positions), 'task')} "
            return f"{what}cancelled{f' by {event.by}' if event.by else ''}"
    return ""


def _describe_merged(event: d.MergedEnded) -> str:
    told = [f"{end.job} {end.status.word.lower()}" for end in event.ends]
    told += [f"{id} runs by itself, because the result has no part for it" for id in event.alone]
    return f"as a part of {event.key[0]}: {', '.join(told)}"


def _whole_sentence(event: e.Event) -> str:
    match event:
        case e.AttemptReady():
            return f"attempt {event.key[2]} is ready and waits for the rest of the gang"
        case e.GangReleased():
            return f"all members of formation {event.formation} are ready and start"
        case e.GangRecalled():
            return f"formation {event.formation} gave its places back before anything ran: {event.text}"
        case e.RoomPromised():
            nodes = ", ".join(dict.fromkeys(node for _, node, _ in event.members))
            who = f"{plural(len(event.members), 'task')} of {event.preemptor or event.job} on {nodes}"
            text = f"places for {who} are promised"
            if event.victims:
                text = f"{plural(len(event.victims), 'task')} preempted to make room for {who}"
            if event.displaced:
                text += f"; it takes over the places promised to {', '.join(event.displaced)}"
            return text + (f"; {len(event.awaited)} were stopping already" if event.awaited else "")
        case e.PromiseWithdrawn():
            return f"promised places given up: {event.cause}"
        case e.TasksEvicted():
            what, why = plural(len(event.keys), "attempt"), said(event.text)
            return f"{what} {why}" if why.startswith("evicted") else f"{what} evicted: {why}"
        case e.JobRestarted():
            what = "job" if event.positions is None else f"{len(event.positions)} tasks of one replica"
            return f"{what} restarted{'' if event.counted else ' (not counted against its limit)'}"
        case e.JobSettled():
            return f"the job is {event.status.word}: {event.text}"
        case c.JobHeld():
            return f"held: {event.because}"
        case c.JobUpdated():
            return f"changed: {_describe_change(event)}"
    return ""


def _declared_sentence(event: e.Event) -> str:
    match event:
        case e.TermOpened():
            return f"a coordinator opened epoch {event.epoch}"
        case EnvironmentKept():
            return f"an environment of {event.user} was kept"
        case NumbersSkipped():
            return f"a backup was restored: numbers up to {event.upto} are not given again"
        case e.LogRepaired():
            return _repaired(event)
        case e.TopologySet():
            return f"network layers: {' > '.join(event.topology.names())}"
        case e.QuotaSet():
            return f"queue {event.queue} {'was removed' if event.quota is None else 'has a new quota'}"
    return ""


def _repaired(event: e.LogRepaired) -> str:
    """What an operator chose when a part of the past could not be read."""
    lost = f"the log after revision {event.after} is partly damaged"
    if event.choice == "hold":
        return f"{lost}; the job is held until it is resumed or cancelled"
    return f"{lost}; an operator rolled back to that revision"


def _node_sentence(event: e.Event) -> str:
    match event:
        case e.NodeJoined():
            has = event.capacity
            left = (
                f", {plural(len(event.leftovers), 'older attempt')} still to be stopped"
                if event.leftovers
                else ""
            )
            devices = f", {len(has.devices)} devices" if has.devices else ""
            memory = describe_bytes(has.memory_bytes)
            return f"{event.node} joined with {plural(has.cores, 'core')}, {memory}{devices}{left}"
        case e.NodeConnected():
            return f"{event.node} reconnected"
        case e.NodeDisconnected():
            return f"{event.node} lost its connection; its tasks keep running under its lease"
        case e.NodeLost():
            return f"{event.node} is lost: {event.text or 'its lease expired'}"
        case e.NodeCleared():
            return f"{event.node} confirmed the end of an older attempt"
        case e.NodeDrained():
            return f"{event.node} is drained: {event.reason}"
        case e.NodeResumed():
            return f"{event.node} is schedulable again"
    return ""


def _checked(health: NodeHealth) -> str:
    if health == WELL:
        return "passes its health checks again"
    if health.reason:
        return f"takes no new work, a health check fails: {health.reason}"
    return f"goes on without some devices: {describe_devices(health)}"


def _elastic_sentence(event: e.Event) -> str:
    match event:
        case e.NodeDisabled():
            return f"{event.node} is disabled {event.reason}"
        case e.NodeEnabled():
            return f"{event.node} is enabled {event.reason}"
        case e.NodeNeeded():
            return f"a node is needed: {event.reason}"
    return ""


def _health_sentence(event: e.Event) -> str:
    match event:
        case e.NodeQuarantined():
            task = f"attempt {event.key[2]} of {event.key[0]}"
            return f"{event.node} did not start {task}; it gets no work until it confirms the end of it"
        case e.NodeHealthChanged():
            if not event.trouble:
                return f"{event.node} can start tasks again"
            return f"{event.node} cannot start tasks and gets no work: {event.trouble}"
        case NodeChecked():
            return f"{event.node} {_checked(event.health)}"
        case e.NodeLeaving():
            longer = f", for {event.keep_s:.0f} s longer than usual" if event.keep_s else ""
            return f"the runner of {event.node} was stopped; its tasks keep running under its lease{longer}"
    return ""


def _brake_sentence(event: e.Event) -> str:
    match event:
        case NodeExcluded():
            seconds = event.until - event.at
            why = event.text or f"{event.failures} consecutive task failures"
            return f"{event.node} is excluded for {seconds:.0f} s, unless no other node takes work: {why}"
        case NodeRecovered():
            how = "resumed by a user" if event.cause == "user" else "its exclusion is over"
            return f"{event.node} may take work again: {how}"
        case e.NodeRemoved():
            return f"{event.node} is removed: {event.cause}"
        case e.BrakeSet():
            return (
                f"{event.silent} of {event.nodes} nodes are silent at once, so none is declared lost; "
                "check whether the coordinator is cut off"
            )
        case e.BrakeReleased():
            return f"{event.silent} of {event.nodes} nodes are silent; silent nodes are declared lost again"
    return ""


def _credential_sentence(event: e.Event) -> str:
    match event:
        case e.CredentialCreated():
            made = event.credential
            return f"{made.kind} credential {made.id} created for {made.name or 'any node'}"
        case e.CredentialEnds():
            return f"credential {event.id} {'was revoked' if event.revoked else 'ends soon'}"
        case e.CredentialUsed():
            return f"credential {event.id} was used"
        case e.CredentialForgotten():
            return f"credential {event.id} ended long ago and was deleted"
        case e.JoinRedeemed():
            return f"{event.node} exchanged join token {event.id} for its own credential"
    return _login_sentence(event)


def _login_sentence(event: e.Event) -> str:
    match event:
        case LoginTicketMade():
            return f"a ticket for {event.ticket.name} to open the dashboard"
        case LoginOpened():
            made = event.login
            return f"{made.name} ({made.role}) logged in with a browser: {made.id}"
        case LoginsUsed():
            return f"logins were used: {', '.join(event.ids)}"
        case LoginEnded():
            return f"login {event.id} has ended"
    return type(event).__name__


def _describe_job(job: Job) -> str:
    many = f" × {job.tasks}" if job.tasks > 1 else ""
    first = job.groups[0]
    target = f" on {first.request.target}" if first.request.target else ""
    gang = " as a gang" if job.gang is not None else ""
    groups = f" in {len(job.groups)} groups" if len(job.groups) > 1 else ""
    # The command of a stage may hold values of results, which are not for everybody who may read stories.
    what = " ".join(first.command.argv)[:200] if job.workflow is None else job.name or "a stage"
    return f"{what}{many}{groups}{gang}{target}"


def _describe_change(event: c.JobUpdated) -> str:
    """The settings that are others from now on."""
    parts = [] if event.priority is None else [f"priority {event.priority}"]
    if event.time_limit_s is not None:
        parts.append(f"time limit {describe_seconds(event.time_limit_s) if event.time_limit_s else 'none'}")
    parts += [] if event.queue is None else [f"queue {event.queue}"]
    if event.begin_at is not None:
        parts.append(f"begins at {utc(event.begin_at)}" if event.begin_at else "begins at once")
    if event.at_once is not None:
        parts.append(
            f"at most {plural(event.at_once, 'task')} at once" if event.at_once else "all tasks at once"
        )
    return f"{', '.join(parts)} ({event.cause})"


def _describe_unreadable(job: Job) -> str:
    """A job of an earlier version may hold patterns that are no longer understood."""
    lost = unreadable(job.restart.patterns) if job.restart.rules else ()
    if not lost:
        return ""
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    shown = ", ".join(repr(each[:80]) for each in lost[:3])
    return f"; restart patterns that RE2 cannot compile never match: {shown}{more}"


def _describe_grant(grant: Grant) -> str:
    parts = [plural(grant.cores, "core")]
    if grant.memory_bytes:
        parts.append(describe_bytes(grant.memory_bytes))
    if grant.devices:
        parts.append(f"devices {','.join(map(str, grant.devices))}")
    if grant.numa is not None:
        parts.append(f"NUMA {grant.numa}")
    return ", ".join(parts)


def _describe_end(key: AttemptKey, exit: Exit, event: e.AttemptEnded) -> str:
    late_s = event.at - exit.ended_at if exit.ended_at and exit.started_at else 0.0
    late = f" (reported {late_s:.0f} s later, by the node's clock)" if late_s >= LATE_S else ""
    return _the_end(key, exit, event) + late


def _the_end(key: AttemptKey, exit: Exit, event: e.AttemptEnded) -> str:
    if event.status == Status.COMPLETED:
        return f"attempt {key[2]} completed"
    if event.status == Status.RUNNING:
        return f"attempt {key[2]} exited with code 0; waiting for the rest of the job"
    what = exit.message.rstrip(".") or (
        f"exit code {exit.code or 0}" if exit.why == Why.NONE else exit.why.word
    )
    if event.status == Status.PENDING:
        if event.then:
            return f"attempt {key[2]} ended: {what}; {event.then}"
        wait_s = max(0.0, (event.retry_at or event.at) - event.at)
        again = "waits to be placed again" if wait_s == 0 else f"retried in {wait_s:.0f} s"
        charge = "" if event.charged else " (not counted against its retries)"
        return f"attempt {key[2]} ended: {what}; {again}{charge}"
    return f"attempt {key[2]} ended: {what}"


def _workflow_sentence(event: e.Event, inspects: bool) -> str:
    match event:
        case w.WorkflowSubmitted():
            named = f" {event.content.name}" if event.content.name else ""
            return f"submitted: workflow{named} of {plural(len(event.content.stages), 'stage')}"
        case w.StagesEnded():
            shown = "; ".join(_describe_stage_end(end, inspects) for end in event.ends[:STAGES_SHOWN])
            more = f"; and {len(event.ends) - STAGES_SHOWN} more" if len(event.ends) > STAGES_SHOWN else ""
            return shown + more
        case w.WorkflowCancelled():
            is_denied = event.cause.startswith("denied by ")
            who = f": {event.cause}" if is_denied else f" by {event.by}" if event.by else ""
            return f"the workflow is cancelled{who}"
        case w.WorkflowStopped():
            return f"stopped: {event.text}"
        case w.WorkflowRetried():
            return f"{plural(len(event.stages), 'stage')} run again"
    return ""


def _describe_stage_end(end: w.StageEnd, inspects: bool) -> str:
    word = "skipped" if end.skipped else end.status.word.lower()
    return f"stage {end.name} {word}" + (f": {end.text}" if end.text and inspects else "")
