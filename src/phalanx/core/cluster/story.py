"""What happened, told in sentences: each event as one line that a person can read aloud."""

from __future__ import annotations

from phalanx.core.cluster import events as e
from phalanx.core.model.job import Job
from phalanx.core.model.orders import AttemptKey, Exit
from phalanx.core.model.patterns import unreadable
from phalanx.core.model.quantity import describe_bytes
from phalanx.core.model.resources import Cores, Grant
from phalanx.core.model.status import Status, Why

LATE_S = 5.0  # an end that was told so much later is told with that


def sentence(event: e.Event) -> str:
    """One event, told."""
    match event:
        case e.TermOpened():
            return f"a coordinator opened epoch {event.epoch}"
        case e.JobSubmitted():
            lacks = f"; {event.job.draft.lacks}" if event.job.draft is not None else ""
            return f"submitted: {_describe_job(event.job)}{_describe_unreadable(event.job)}{lacks}"
        case e.JobAmended():
            draft = event.job.draft
            return f"members came: {_describe_job(event.job)}; {draft.lacks if draft else 'it is complete'}"
        case e.TaskPlaced():
            where = "placed on" if event.opens else "queued behind its like on"
            if event.formation:
                where = f"placed with its gang (formation {event.formation}) on"
            return f"attempt {event.key[2]} {where} {event.node} with {_describe_grant(event.grant)}"
        case e.AttemptStarted():
            return f"attempt {event.key[2]} is running"
        case e.AttemptSuspected():
            return f"the runner does not list attempt {event.key[2]}"
        case e.AttemptEnded():
            return _describe_end(event.key, event.exit, event)
        case e.TasksCancelled():
            return "cancelled" if event.positions is None else f"cancelled {len(event.positions)} task"
        case e.TaskPaused():
            return "paused; it keeps what it holds"
        case e.TaskResumed():
            return "running again"
        case e.JobForgotten():
            return "moved to the history"
        case _:
            return _whole_sentence(event) or _node_sentence(event)


def _whole_sentence(event: e.Event) -> str:
    match event:
        case e.AttemptReady():
            return f"attempt {event.key[2]} is ready and waits for its gang"
        case e.GangReleased():
            return f"every member of formation {event.formation} is ready: all may run"
        case e.GangRecalled():
            return f"formation {event.formation} is recalled, none of it has run: {event.text}"
        case e.RoomPromised():
            nodes = ", ".join(dict.fromkeys(node for _, node, _ in event.members))
            told = f"{len(event.victims)} attempts leave for {len(event.members)} tasks of {event.job} on {nodes}"
            if event.displaced:
                told += f", which takes over what was set aside for {', '.join(event.displaced)}"
            return told + (f"; {len(event.awaited)} were leaving already" if event.awaited else "")
        case e.PromiseWithdrawn():
            return f"the places set aside for it are free again: {event.cause}"
        case e.TasksEvicted():
            return f"{len(event.keys)} attempts were asked to leave: {event.text}"
        case e.JobRestarted():
            what = (
                "all tasks start"
                if event.positions is None
                else f"{len(event.positions)} tasks of one replica start"
            )
            return f"{what} anew{'' if event.counted else ', not counted'}"
        case e.JobSettled():
            return f"the job is {event.status.word}: {event.text}"
        case e.JobReleased():
            return "released: it may run again"
        case e.LogRepaired():
            return _repaired(event)
        case e.LogSettled():
            return "writing works again"
        case e.TopologySet():
            return f"the layers of the network are {' > '.join(event.topology.names())}"
        case e.QuotaSet():
            return f"queue {event.queue} {'is no longer declared' if event.quota is None else 'has another quota'}"
    return ""


def _repaired(event: e.LogRepaired) -> str:
    """What an operator chose when a part of the past could not be read."""
    lost = f"what was written after revision {event.after} is damaged in part"
    if event.choice == "hold":
        return f"{lost}: the job is held until somebody resumes or cancels it"
    return f"{lost}, and an operator went back to there"


def _node_sentence(event: e.Event) -> str:
    match event:
        case e.NodeJoined():
            has = event.capacity
            left = f", {len(event.leftovers)} older attempts to be stopped first" if event.leftovers else ""
            devices = f", {len(has.devices)} devices" if has.devices else ""
            memory = describe_bytes(has.memory_bytes)
            return f"{event.node} joined with {_cores(has.cores)}, {memory}{devices}{left}"
        case e.NodeConnected():
            return f"{event.node} is connected again"
        case e.NodeDisconnected():
            return f"{event.node} lost its connection; its tasks run on under its lease"
        case e.NodeLost():
            return f"{event.node} is lost: {event.text or 'its lease is over'}"
        case e.NodeCleared():
            return f"{event.node} confirmed the end of an older attempt"
        case e.NodeDrained():
            return f"{event.node} is drained: {event.reason}"
        case e.NodeResumed():
            return f"{event.node} takes work again"
    return _health_sentence(event) or _brake_sentence(event) or _credential_sentence(event)


def _health_sentence(event: e.Event) -> str:
    match event:
        case e.NodeQuarantined():
            task = f"attempt {event.key[2]} of {event.key[0]}"
            return f"{event.node} did not start {task}: no work goes there until it confirms the end of it"
        case e.NodeHealthChanged():
            if not event.trouble:
                return f"{event.node} works again"
            return f"{event.node} cannot start tasks and gets no work: {event.trouble}"
        case e.NodeLeaving():
            longer = f", for {event.keep_s:.0f} s longer than usual" if event.keep_s else ""
            return f"the runner of {event.node} was stopped; its tasks run on under its lease{longer}"
    return ""


def _brake_sentence(event: e.Event) -> str:
    match event:
        case e.NodeRested():
            rest_s = event.until - event.at
            tasks = f"{event.failures} tasks in a row failed on {event.node}"
            if event.text:
                tasks = f"{event.node} could not run a task ({event.text})"
            return f"{tasks}: it rests for {rest_s:.0f} s, unless nobody else takes work"
        case e.NodeRecovered():
            rest = "was taken back from its rest" if event.cause == "user" else "has rested"
            return f"{event.node} {rest} and may take work again"
        case e.NodeRemoved():
            return f"{event.node} is removed: {event.cause}"
        case e.BrakeSet():
            return (
                f"{event.silent} of {event.nodes} nodes are silent at once, so nobody is declared lost: "
                "see whether the coordinator is cut off"
            )
        case e.BrakeReleased():
            return f"{event.silent} of {event.nodes} nodes are silent: whoever still is counts as lost again"
    return ""


def _credential_sentence(event: e.Event) -> str:
    match event:
        case e.CredentialCreated():
            made = event.credential
            return f"{made.kind} credential {made.id} was made for {made.name or 'any node'}"
        case e.CredentialEnds():
            return f"credential {event.id} {'was revoked' if event.revoked else 'ends soon'}"
        case e.CredentialUsed():
            return f"credential {event.id} was used"
        case e.CredentialForgotten():
            return f"credential {event.id} ended long ago and is forgotten"
        case e.JoinRedeemed():
            return f"{event.node} gave join token {event.id} for a credential of its own"
        case e.SecretKnown():
            return "the cluster's secret is known by its fingerprint"
    return type(event).__name__


def _describe_job(job: Job) -> str:
    many = f" × {job.tasks}" if job.tasks > 1 else ""
    first = job.groups[0]
    target = f" on {first.request.target}" if first.request.target else ""
    gang = " as a gang" if job.gang is not None else ""
    groups = f" in {len(job.groups)} groups" if len(job.groups) > 1 else ""
    return f"{' '.join(first.command.argv)[:200]}{many}{groups}{gang}{target}"


def _describe_unreadable(job: Job) -> str:
    """A job of an earlier version may hold patterns that are no longer understood."""
    lost = unreadable(job.restart.patterns) if job.restart.rules else ()
    if not lost:
        return ""
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    shown = ", ".join(repr(each[:80]) for each in lost[:3])
    return f"; patterns of its restart rules that RE2 cannot compile never match: {shown}{more}"


def _describe_grant(grant: Grant) -> str:
    parts = [_cores(grant.cores)]
    if grant.memory_bytes:
        parts.append(describe_bytes(grant.memory_bytes))
    if grant.devices:
        parts.append(f"devices {','.join(map(str, grant.devices))}")
    if grant.numa is not None:
        parts.append(f"NUMA {grant.numa}")
    return ", ".join(parts)


def _cores(count: Cores) -> str:
    return "1 core" if count == 1 else f"{count} cores"


def _describe_end(key: AttemptKey, exit: Exit, event: e.AttemptEnded) -> str:
    late_s = event.at - exit.ended_at if exit.ended_at and exit.started_at else 0.0
    late = (
        f" (it ended {late_s:.0f} s before it was told, by the clock of its node)" if late_s >= LATE_S else ""
    )
    return _the_end(key, exit, event) + late


def _the_end(key: AttemptKey, exit: Exit, event: e.AttemptEnded) -> str:
    if event.status == Status.COMPLETED:
        return f"attempt {key[2]} completed"
    if event.status == Status.RUNNING:
        return f"attempt {key[2]} ended with code 0; the task is Completed once its whole job is"
    what = exit.message.rstrip(".") or (
        f"exit code {exit.code or 0}" if exit.why == Why.NONE else exit.why.word
    )
    if event.status == Status.PENDING:
        if event.then:
            return f"attempt {key[2]} ended: {what}; {event.then}"
        wait_s = max(0.0, (event.retry_at or event.at) - event.at)
        again = "tried again at once" if wait_s == 0 else f"tried again in {wait_s:.0f} s"
        charge = "" if event.charged else ", not charged"
        return f"attempt {key[2]} ended: {what}; {again}{charge}"
    return f"attempt {key[2]} ended: {what}"
