"""What follows from an input: the only place that chooses. It changes nothing.

`decide` answers with events (facts to be written), effects that need no fact (telling a runner again), and an
answer for whoever asked. One file per noun holds the choices: `jobs`, `gangs`, `reports`, `nodes`,
`node_health`, `declared`.
"""

from __future__ import annotations

from phalanx.core.cluster.decide import declared, gangs, jobs, node_health, nodes, reports
from phalanx.core.cluster.decision import Decision
from phalanx.core.cluster.inputs import (
    Admit,
    Cancel,
    CreateCredential,
    DeclareLost,
    Disconnect,
    Drain,
    Evict,
    Heartbeat,
    Hello,
    Input,
    KnowSecret,
    Leave,
    Propose,
    ProposeGang,
    Redeem,
    RemoveNode,
    RevokeCredential,
    RotateCredential,
    SetPaused,
    SetQuota,
    SetTopology,
    Submit,
    Tell,
    Tick,
    Undrain,
    UseCredentials,
)
from phalanx.core.cluster.state import ClusterState


def decide(state: ClusterState, given: Input, now: float) -> Decision:
    """The events, effects and answer that an input leads to."""
    match given:
        case Tell():
            return reports.tell(state, given, now)
        case Propose():
            return jobs.propose(state, given, now)
        case ProposeGang():
            return gangs.propose_gang(state, given, now)
        case Redeem():
            return gangs.redeem(state, given, now)
        case Evict():
            return gangs.evict(state, given, now)
        case SetTopology():
            return declared.set_topology(state, given, now)
        case SetQuota():
            return declared.set_quota(state, given, now)
        case Submit():
            return jobs.submit(state, given, now)
        case Heartbeat():
            return nodes.heartbeat(state, given, now)
        case Tick():
            return nodes.tick(state, now)
        case Cancel():
            return jobs.cancel(state, given, now)
        case SetPaused():
            return jobs.set_paused(state, given, now)
        case Hello():
            return nodes.hello(state, given, now)
        case Leave():
            return node_health.leave(state, given, now)
        case Disconnect():
            return nodes.disconnect(state, given, now)
        case Drain():
            return nodes.drain(state, given, now)
        case Undrain():
            return nodes.undrain(state, given, now)
        case DeclareLost():
            return nodes.declare_lost(state, given, now)
        case RemoveNode():
            return nodes.remove(state, given, now)
        case (
            CreateCredential()
            | RevokeCredential()
            | RotateCredential()
            | UseCredentials()
            | Admit()
            | KnowSecret()
        ):
            return declared.credentials(state, given, now)
