"""What follows from an input: the only place that chooses. It changes nothing.

`decide` answers with events (facts to be written), effects that need no fact (telling a runner again), and an
answer for whoever asked. One file per noun holds the choices: `admission`, `musters`, `reports`, `liveness`.
"""

from __future__ import annotations

from phalanx.core.cluster import (
    admission,
    credentials,
    draining,
    health,
    liveness,
    musters,
    reports,
    settings,
)
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
    ProposeMuster,
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
            return admission.propose(state, given, now)
        case ProposeMuster():
            return musters.propose_muster(state, given, now)
        case Redeem():
            return musters.redeem(state, given, now)
        case Evict():
            return musters.evict(state, given, now)
        case SetTopology():
            return settings.set_topology(state, given, now)
        case SetQuota():
            return settings.set_quota(state, given, now)
        case Submit():
            return admission.submit(state, given, now)
        case Heartbeat():
            return liveness.heartbeat(state, given, now)
        case Tick():
            return liveness.tick(state, now)
        case Cancel():
            return admission.cancel(state, given, now)
        case SetPaused():
            return admission.set_paused(state, given, now)
        case Hello():
            return liveness.hello(state, given, now)
        case Leave():
            return health.leave(state, given, now)
        case Disconnect():
            return liveness.disconnect(state, given, now)
        case Drain():
            return draining.drain(state, given, now)
        case Undrain():
            return liveness.undrain(state, given, now)
        case DeclareLost():
            return liveness.declare_lost(state, given, now)
        case RemoveNode():
            return liveness.remove(state, given, now)
        case (
            CreateCredential()
            | RevokeCredential()
            | RotateCredential()
            | UseCredentials()
            | Admit()
            | KnowSecret()
        ):
            return credentials.decide(state, given, now)
