"""Who decides an input, and who applies an event: two tables, and the two functions through which all of it goes.

`decide` is the only place that chooses, and changes nothing: it answers with events (facts to be written), effects that
need no fact (telling a runner again), and an answer for whoever asked. `apply` is the only place that changes the
state, and makes no choices: replaying the log through it gives the state back. An event that names something unknown
(because the record before it was damaged) is counted and passed over, never fatal. In `decide/` and `apply/` one file
per noun says what each input and each event leads to; which places are held changes in `apply/grants.py` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from phalanx.core.cluster import change_events as c
from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster import events as e
from phalanx.core.cluster import inputs as i
from phalanx.core.cluster import overlay_events as o
from phalanx.core.cluster import workflow_events as w
from phalanx.core.cluster.apply import approvals as apply_approvals
from phalanx.core.cluster.apply import bindings as apply_bindings
from phalanx.core.cluster.apply import changes as apply_changes
from phalanx.core.cluster.apply import declared as apply_declared
from phalanx.core.cluster.apply import gangs as apply_gangs
from phalanx.core.cluster.apply import jobs as apply_jobs
from phalanx.core.cluster.apply import logins as apply_logins
from phalanx.core.cluster.apply import nodes as apply_nodes
from phalanx.core.cluster.apply import overlay as apply_overlay
from phalanx.core.cluster.apply import workflows as apply_workflows
from phalanx.core.cluster.apply.grants import queue_up
from phalanx.core.cluster.approval_events import JobApproved, WorkflowApproved
from phalanx.core.cluster.decide import (
    approvals,
    changes,
    declared,
    dependencies,
    gangs,
    jobs,
    logins,
    nodes,
    overlay,
    reports,
    scaling,
    workflows,
)
from phalanx.core.cluster.decision import Decision, Effect
from phalanx.core.cluster.environment_events import EnvironmentKept
from phalanx.core.cluster.exclusion_events import NodeExcluded, NodeRecovered
from phalanx.core.cluster.health_events import NodeChecked
from phalanx.core.cluster.image_events import AttemptPrepared, AttemptPreparing
from phalanx.core.cluster.login_events import LoginEnded, LoginOpened, LoginsUsed, LoginTicketMade
from phalanx.core.cluster.nodes import Unfit
from phalanx.core.cluster.number_events import NumbersSkipped
from phalanx.core.cluster.state import ClusterState


def decide(state: ClusterState, given: i.Input, now: float) -> Decision:
    """The events, effects and answer that an input leads to."""
    return CHOICES[type(given)](state, given, now)


def apply(state: ClusterState, event: e.Event) -> list[Effect]:
    """Change the state, and say what the shell has to do once the event is durable."""
    kind = type(event)
    if kind not in e.VOLATILE:
        state.revision += 1
    try:
        return CHANGES[kind](state, event) or []
    except Unfit:
        state.skipped += 1
        for job in filter(None, map(state.jobs.get, event.jobs)):
            queue_up(state, job)  # a part of the event may have been done
    return []


def apply_batch(state: ClusterState, events: Iterable[e.Event], revision: int) -> list[Effect]:
    """All events of one record of the log. Its number counts: an empty one may leave numbers out."""
    effects = [effect for event in events for effect in apply(state, event)]
    state.revision = revision
    return effects


def _of_the_log(state: ClusterState, event: e.LogSettled | e.LogRepaired) -> None:
    """Nothing of the cluster has changed."""


CHOICES: dict[type[i.Input], Callable[[ClusterState, Any, float], Decision]] = {
    i.Tell: reports.tell,
    i.Propose: jobs.propose,
    i.ProposeGang: gangs.propose_gang,
    i.Redeem: gangs.redeem,
    i.Evict: gangs.evict,
    i.Submit: jobs.submit,
    i.Cancel: jobs.cancel,
    i.Abandon: dependencies.abandon,
    i.Defer: jobs.defer,
    i.SetPaused: jobs.set_paused,
    i.Approve: approvals.approve,
    i.ApproveWorkflow: approvals.approve_workflow,
    i.Hold: changes.hold,
    i.ReleaseJob: changes.release,
    i.Update: changes.update,
    i.SubmitWorkflow: workflows.submit_workflow,
    i.Advance: workflows.advance,
    i.GiveInputs: workflows.give_inputs,
    i.CancelWorkflow: workflows.cancel_workflow,
    i.RetryWorkflow: workflows.retry_workflow,
    i.Heartbeat: nodes.heartbeat,
    i.Tick: nodes.tick,
    i.Hello: nodes.hello,
    i.Leave: nodes.leave,
    i.Disconnect: nodes.disconnect,
    i.Drain: declared.drain,
    i.Undrain: declared.undrain,
    i.SetElastic: scaling.set_elastic,
    i.Rescale: scaling.rescale,
    i.DeclareLost: declared.declare_lost,
    i.RemoveNode: declared.remove_node,
    i.SetTopology: declared.set_topology,
    i.ReserveAddress: overlay.reserve,
    i.ReleaseReservation: overlay.release,
    i.SetQuota: declared.set_quota,
    i.Admit: declared.admit,
    i.CreateCredential: declared.create_credential,
    i.RevokeCredential: declared.revoke_credential,
    i.RotateCredential: declared.rotate_credential,
    i.UseCredentials: declared.use_credentials,
    i.KnowSecret: declared.know_secret,
    i.MakeLoginTicket: logins.make_ticket,
    i.OpenLogin: logins.open_login,
    i.VouchLogin: logins.vouch_login,
    i.UseLogins: logins.use_logins,
    i.EndLogin: logins.end_login,
}
CHANGES: dict[type, Callable[[ClusterState, Any], list[Effect] | None]] = {
    e.NodeHeard: apply_nodes.heard,
    e.TaskPlaced: apply_jobs.placed,
    e.AttemptStarted: apply_jobs.started,
    e.AttemptEnded: apply_jobs.ended,
    e.AttemptSuspected: apply_jobs.suspected,
    AttemptPreparing: apply_jobs.preparing,
    AttemptPrepared: apply_jobs.prepared,
    e.BackoffsEnded: apply_jobs.backoffs_ended,
    e.JobSubmitted: apply_jobs.submitted,
    e.JobAmended: apply_jobs.amended,
    e.JobForgotten: apply_jobs.forgotten,
    e.TasksCancelled: apply_jobs.cancelled,
    e.TasksAbandoned: apply_jobs.abandoned,
    e.TaskPaused: apply_jobs.paused,
    e.TaskResumed: apply_jobs.paused,
    d.TaskDeferred: apply_bindings.deferred,
    d.MergedEnded: apply_jobs.merged_ended,
    e.AttemptReady: apply_gangs.ready,
    e.GangReleased: apply_gangs.released,
    e.GangRecalled: apply_gangs.recalled,
    e.RoomPromised: apply_gangs.promised,
    e.PromiseWithdrawn: apply_gangs.withdrawn,
    e.TasksEvicted: apply_gangs.evicted,
    c.JobHeld: apply_changes.held,
    c.JobReleased: apply_changes.let_go,
    c.JobUpdated: apply_changes.updated,
    JobApproved: apply_approvals.job_approved,
    WorkflowApproved: apply_approvals.workflow_approved,
    e.JobRestarted: apply_gangs.restarted,
    e.JobSettled: apply_gangs.settled,
    e.NodeJoined: apply_nodes.joined,
    e.NodeConnected: apply_nodes.connected,
    e.NodeDisconnected: apply_nodes.disconnected,
    e.NodeLost: apply_nodes.lost,
    e.NodeCleared: apply_nodes.cleared,
    e.NodeQuarantined: apply_nodes.quarantined,
    e.NodeHealthChanged: apply_nodes.health_changed,
    NodeChecked: apply_nodes.checked,
    e.NodeLeaving: apply_nodes.leaving,
    e.NodeDrained: apply_nodes.drained,
    e.NodeResumed: apply_nodes.resumed,
    e.NodeDisabled: apply_nodes.disabled,
    e.NodeEnabled: apply_nodes.enabled,
    e.NodeNeeded: apply_nodes.needed,
    NodeExcluded: apply_nodes.excluded,
    NodeRecovered: apply_nodes.recovered,
    e.NodeRemoved: apply_nodes.removed,
    e.BrakeSet: apply_nodes.brake_set,
    e.BrakeReleased: apply_nodes.brake_released,
    e.TopologySet: apply_declared.topology_set,
    e.QuotaSet: apply_declared.quota_set,
    e.CredentialCreated: apply_declared.credential_created,
    e.CredentialEnds: apply_declared.credential_ends,
    e.CredentialUsed: apply_declared.credential_used,
    e.CredentialForgotten: apply_declared.credential_forgotten,
    e.JoinRedeemed: apply_declared.join_redeemed,
    e.SecretKnown: apply_declared.secret_known,
    LoginTicketMade: apply_logins.ticket_made,
    LoginOpened: apply_logins.opened,
    LoginsUsed: apply_logins.used,
    LoginEnded: apply_logins.ended,
    e.TermOpened: apply_nodes.term_opened,
    o.BlockAssigned: apply_nodes.block_assigned,
    o.AddressReserved: apply_overlay.reserved,
    o.ReservationEnded: apply_overlay.reservation_ended,
    w.WorkflowSubmitted: apply_workflows.workflow_submitted,
    w.StagesEnded: apply_workflows.stages_ended,
    w.InputsAwaited: apply_workflows.inputs_awaited,
    w.WorkflowCancelled: apply_workflows.workflow_cancelled,
    w.WorkflowStopped: apply_workflows.workflow_stopped,
    w.WorkflowRetried: apply_workflows.workflow_retried,
    w.WorkflowForgotten: apply_workflows.workflow_forgotten,
    e.LogSettled: _of_the_log,
    e.LogRepaired: _of_the_log,
    NumbersSkipped: apply_jobs.numbers_skipped,
    EnvironmentKept: apply_jobs.environment_kept,
}
