"""What events do to what operators declare: the layers of the network, quotas, and credentials."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster import events as e
from phalanx.core.cluster.nodes import Unfit
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.credential import Credential


def topology_set(state: ClusterState, event: e.TopologySet) -> None:
    state.table.set_topology(event.topology)
    state.gain += 1


def quota_set(state: ClusterState, event: e.QuotaSet) -> None:
    if event.quota is None:
        state.queues.quotas.pop(event.queue, None)
    else:
        state.queues.quotas[event.queue] = event.quota
    if (by_user := state.queues.by_user) != state.waiting.by_user:
        state.waiting = state.waiting.divided(by_user)
    state.gain += 1


def credential_created(state: ClusterState, event: e.CredentialCreated) -> None:
    state.keyring.put(event.credential)


def credential_ends(state: ClusterState, event: e.CredentialEnds) -> None:
    known = _credential(state, event.id)
    ends_at = event.ends_at if known.expires_at is None else min(known.expires_at, event.ends_at)
    revoked = known.revoked or event.revoked
    state.keyring.put(structs.replace(known, expires_at=ends_at, revoked=revoked))


def credential_used(state: ClusterState, event: e.CredentialUsed) -> None:
    state.keyring.put(structs.replace(_credential(state, event.id), used_at=event.at))


def credential_forgotten(state: ClusterState, event: e.CredentialForgotten) -> None:
    state.keyring.remove(_credential(state, event.id).id)


def join_redeemed(state: ClusterState, event: e.JoinRedeemed) -> None:
    known = _credential(state, event.id)
    state.keyring.put(structs.replace(known, origin=event.origin, node=event.node, used_at=event.at))


def secret_known(state: ClusterState, event: e.SecretKnown) -> None:
    state.keyring.secret = event.fingerprint


def _credential(state: ClusterState, id: str) -> Credential:
    known = state.keyring.by_id.get(id)
    if known is None:
        raise Unfit(f"no credential {id}")
    return known
