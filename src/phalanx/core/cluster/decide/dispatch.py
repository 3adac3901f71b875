"""What follows from an input: the only place that chooses. It changes nothing.

`decide` answers with events (facts to be written), effects that need no fact (telling a runner again), and an
answer for whoever asked. One file per noun holds the choices: `jobs`, `gangs`, `reports`, `nodes`,
`node_health`, `declared`.
"""

from __future__ import annotations

from phalanx.core.cluster import inputs as i
from phalanx.core.cluster.decide import declared, gangs, jobs, node_health, nodes, reports
from phalanx.core.cluster.decision import Decision
from phalanx.core.cluster.state import ClusterState


def decide(state: ClusterState, given: i.Input, now: float) -> Decision:
    """The events, effects and answer that an input leads to."""
    match given:
        case i.Tell():
            return reports.tell(state, given, now)
        case i.Propose():
            return jobs.propose(state, given, now)
        case i.ProposeGang():
            return gangs.propose_gang(state, given, now)
        case i.Redeem():
            return gangs.redeem(state, given, now)
        case i.Evict():
            return gangs.evict(state, given, now)
        case i.SetTopology():
            return declared.set_topology(state, given, now)
        case i.SetQuota():
            return declared.set_quota(state, given, now)
        case i.Submit():
            return jobs.submit(state, given, now)
        case i.Heartbeat():
            return nodes.heartbeat(state, given, now)
        case i.Tick():
            return nodes.tick(state, now)
        case i.Cancel():
            return jobs.cancel(state, given, now)
        case i.SetPaused():
            return jobs.set_paused(state, given, now)
        case i.Hello():
            return nodes.hello(state, given, now)
        case i.Leave():
            return node_health.leave(state, given, now)
        case i.Disconnect():
            return nodes.disconnect(state, given, now)
        case i.Drain():
            return nodes.drain(state, given, now)
        case i.Undrain():
            return nodes.undrain(state, given, now)
        case i.DeclareLost():
            return nodes.declare_lost(state, given, now)
        case i.RemoveNode():
            return nodes.remove(state, given, now)
        case (
            i.CreateCredential()
            | i.RevokeCredential()
            | i.RotateCredential()
            | i.UseCredentials()
            | i.Admit()
            | i.KnowSecret()
        ):
            return declared.credentials(state, given, now)
