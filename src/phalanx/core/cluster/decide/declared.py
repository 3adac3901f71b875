"""Choices about what operators declare: network layers, quotas, credentials, and which nodes are drained or gone.

A join token is bound by its first use to one runner (its origin) and one node. Until that node has shown the
credential it was given, the same runner may redeem the token again and is given the same one: an answer that was
lost locks nobody out, and nobody else can use what was overheard. Who may create what is asked before, in `api`.
"""

from __future__ import annotations

from phalanx.core.cluster import events as e
from phalanx.core.cluster import inputs as i
from phalanx.core.cluster.decide import nodes
from phalanx.core.cluster.decide.endings import Endings
from phalanx.core.cluster.decide.leaving import evictions, leaving
from phalanx.core.cluster.decision import Accepted, Decision, Refused, refuse, refuse_because
from phalanx.core.cluster.exclusion_events import NodeRecovered
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.credential import CREDENTIALS_MAX, USER_CREDENTIALS_MAX, Credential
from phalanx.core.model.queues import QUEUES_MAX
from phalanx.core.model.reason import Reason, Tier

USED_EVERY_S = 600.0  # a use is written down at most so often: it tells of months, not of seconds
KEEP_ENDED_S = 30 * 86_400.0  # how long a credential that has ended is still listed
FORGOTTEN_AT_ONCE = 20  # for each, those that were made with it are looked for


def set_topology(state: ClusterState, given: i.SetTopology, now: float) -> Decision:
    """Other layers from now on; what runs stays where it is."""
    if given.topology == state.table.topology:
        return Decision([], [], Accepted(0))
    return Decision(
        [e.TopologySet(at=now, cause=f"user {given.user}", topology=given.topology)], [], Accepted()
    )


def set_quota(state: ClusterState, given: i.SetQuota, now: float) -> Decision:
    """Other limits for a queue. What it holds beyond them it keeps; it gets nothing more."""
    known = state.queues.quotas
    if given.quota is not None and given.queue not in known and len(known) >= QUEUES_MAX:
        text = f"{len(known)} queues are declared, at most {QUEUES_MAX} may"
        return refuse_because("TooManyQueues", text, "too_many")
    if given.quota is None and given.queue not in known:
        is_default = given.queue == "default"
        text = "nothing was set for this queue" if is_default else "nobody has declared this queue"
        return refuse_because("QueueNotFound", text, "not_found")
    if given.quota is not None and given.quota.order == "fair" and state.rules.aging_s:
        text = (
            f"queue {given.queue} cannot have a fair order while jobs age: coordinator.aging_s is "
            f"{state.rules.aging_s:g}, and would be 0"
        )
        return refuse_because("FairOrderWithAging", text, "conflict")
    event = e.QuotaSet(at=now, cause=f"user {given.user}", queue=given.queue, quota=given.quota)
    return Decision([event], [], Accepted())


def drain(state: ClusterState, given: i.Drain, now: float) -> Decision:
    """Nothing more is placed on a node, and what runs there may be asked to leave."""
    node = state.nodes.get(given.node)
    if node is None:
        return _no_node(state, given.node)
    drained = e.NodeDrained(at=now, cause="user", node=given.node, reason=given.reason)
    keys = leaving(state, node) if given.evict else ()
    cause = f"drain of {given.node}"
    text = f"phalanx: evicted, {given.node} is drained: {given.reason}"
    left = evictions(state, keys, now, cause, text)
    return Decision([drained, *left], [], Accepted(len(keys), len(keys)) if keys else Accepted())


def undrain(state: ClusterState, given: i.Undrain, now: float) -> Decision:
    """Whoever says so takes it upon himself: a rest ends, too, and what failed there is forgotten."""
    node = state.nodes.get(given.node)
    if node is None:
        return _no_node(state, given.node)
    events: list[e.Event] = [e.NodeResumed(at=now, cause="user", node=given.node)]
    if node.excluded_until is not None:
        events.append(NodeRecovered(at=now, cause="user", node=given.node))
    return Decision(events, [], Accepted())


def declare_lost(state: ClusterState, given: i.DeclareLost, now: float) -> Decision:
    """An operator knows that a silent node is gone. Before its lease is over its runner may still run tasks."""
    node = state.nodes.get(given.node)
    if node is None:
        return _no_node(state, given.node)
    if node.lost:
        return Decision([], [], Accepted(0))
    if not node.is_silent(now, state.rules.lost_after_s):
        return _refuse_alive(state, node, now, "declared lost")
    cause = f"user {given.user}".strip()
    ends = Endings(state, now, cause)
    lost = nodes.lose(ends, node, now, cause, given.reason)
    return Decision([*ends.events, lost], [], Accepted())


def remove_node(state: ClusterState, given: i.RemoveNode, now: float) -> Decision:
    """Forget a node that is lost, or silent for so long that it may be, and on which nothing is held."""
    node = state.nodes.get(given.node)
    if node is None:
        return _no_node(state, given.node)
    if not node.lost and not node.is_silent(now, state.rules.lost_after_s):
        return _refuse_alive(state, node, now, "removed")
    if state.holds_anything(node):
        text = f"{node.name} still holds {len(node.attempts)} attempts; `phalanx node lose` says that they are gone"
        return refuse(Reason("NodeHolds", Tier.HELD, text, {"host": node.name}))
    removed = e.NodeRemoved(at=now, cause=f"user {given.user}".strip(), node=node.name)
    return Decision([removed], [], Accepted())


def know_secret(state: ClusterState, given: i.KnowSecret, now: float) -> Decision:
    """The first secret that is heard of is the cluster's, and later one that was put in its place."""
    if state.keyring.secret not in ("", given.replaces):
        return Decision([], [], Accepted(0))
    return Decision([e.SecretKnown(at=now, cause="start", fingerprint=given.fingerprint)], [], Accepted())


def create_credential(state: ClusterState, given: i.CreateCredential, now: float) -> Decision:
    made = given.credential
    old = _to_forget(state, now)
    if made.kind == "user" and made.name == made.created_by:
        own = [each for each in state.keyring.own_of(made.name) if each.id not in old]
        ended = sorted(
            (each for each in own if not each.is_valid(now)), key=lambda one: one.expires_at or 0.0
        )
        valid = len(own) - len(ended)
        if valid >= USER_CREDENTIALS_MAX:
            text = f"{made.name} made {valid} tokens that are valid, at most {USER_CREDENTIALS_MAX} may be"
            return refuse_because("TooManyTokens", f"{text}: revoke some", "too_many")
        old += [each.id for each in ended[: max(0, len(own) + 1 - USER_CREDENTIALS_MAX)]]
    if len(state.keyring.by_id) - len(old) >= CREDENTIALS_MAX:
        text = f"there are {CREDENTIALS_MAX} tokens already: revoke some, they are forgotten 30 days later"
        return refuse_because("TooManyTokens", text, "too_many")
    events: list[e.Event] = [
        e.CredentialForgotten(at=now, cause="ended long ago", id=each) for each in old[:FORGOTTEN_AT_ONCE]
    ]
    events.append(e.CredentialCreated(at=now, cause=given.cause, credential=made))
    return Decision(events, [], Accepted())


def revoke_credential(state: ClusterState, given: i.RevokeCredential, now: float) -> Decision:
    """A token falls with those that were made with it for the same name: whoever stole it may have made some."""
    known = state.keyring.by_id.get(given.id)
    if known is None:
        return _unknown(given.id)
    if not known.is_valid(now):
        return refuse_because("TokenEnded", "it has ended already")
    fallen = [each for each in _with_descendants(state, known) if each.is_valid(now)]
    events: list[e.Event] = [
        e.CredentialEnds(at=now, cause=given.cause, id=each.id, ends_at=now, revoked=True) for each in fallen
    ]
    return Decision(events, [], Accepted(len(events)))


def rotate_credential(state: ClusterState, given: i.RotateCredential, now: float) -> Decision:
    known = state.keyring.by_id.get(given.id)
    if known is None:
        return _unknown(given.id)
    if not known.is_valid(now) or known.kind != "user":
        what = "it has ended" if known.kind == "user" else f"it is a {known.kind} credential"
        return refuse_because("NotRotated", f"only a valid token of a user can be rotated, and {what}")
    created = create_credential(state, i.CreateCredential(given.credential, given.cause), now)
    if isinstance(created.answer, Refused):
        return created
    ends = e.CredentialEnds(
        at=now, cause=given.cause, id=given.id, ends_at=given.until, revoked=given.until <= now
    )
    return Decision([*created.events, ends], [], Accepted())


def use_credentials(state: ClusterState, given: i.UseCredentials, now: float) -> Decision:
    known = (state.keyring.by_id.get(id) for id in given.ids)
    events: list[e.Event] = [
        e.CredentialUsed(at=now, cause="use", id=each.id)
        for each in known
        if each is not None and is_use_news(each, now)
    ]
    return Decision(events, [], Accepted(len(events)))


def is_use_news(credential: Credential, now: float) -> bool:
    """Whether another use is worth writing down."""
    return credential.used_at is None or now - credential.used_at >= USED_EVERY_S


def admit(state: ClusterState, given: i.Admit, now: float) -> Decision:
    """A runner shows a join token: its hello counts if the token does, and both become durable together."""
    if (no := why_not(state, given.join, given.credential.name, given.credential.origin, now)) is not None:
        return refuse_because("JoinRefused", no)
    hello = nodes.hello(state, given.hello, now)
    if isinstance(hello.answer, Refused):
        return hello
    events: list[e.Event] = []
    if given.credential.id not in state.keyring.by_id:
        events = [
            e.CredentialEnds(at=now, cause="replaced", id=old.id, ends_at=now, revoked=True)
            for old in state.keyring.of_node(given.credential.name, now)
        ]
        events.append(e.CredentialCreated(at=now, cause=f"join {given.join}", credential=given.credential))
        events.append(
            e.JoinRedeemed(at=now, id=given.join, node=given.credential.name, origin=given.credential.origin)
        )
    return Decision([*events, *hello.events], hello.effects, hello.answer)


def why_not(state: ClusterState, join: str, node: str, origin: str, now: float) -> str | None:
    """Why this runner may not redeem a join token for this node; None if it may."""
    token = state.keyring.by_id.get(join)
    if token is None or token.kind != "join":
        return "the join token is not one of this cluster's"
    if token.revoked:
        return "the join token was revoked"
    if not token.is_valid(now):
        return "the join token has expired: make another with `phalanx token create --join`"
    if token.name and token.name != node:
        return f"the join token is for node {token.name!r}, not for {node!r}"
    if token.origin:
        return _why_not_again(state, token, node, origin)
    if not token.name and state.keyring.of_node(node, now):
        hint = f"`phalanx token create --join --node {node}` makes a token that replaces it"
        return f"node {node!r} has a credential already: {hint}"
    return None


def _why_not_again(state: ClusterState, token: Credential, node: str, origin: str) -> str | None:
    """The answer to the runner that redeemed it may have been lost; once it has shown its credential, it was not."""
    if (token.origin, token.node) != (origin, node):
        return f"the join token was used by node {token.node!r}: each is for one node, make another"
    given = [each for each in state.keyring.by_id.values() if each.kind == "node" and each.parent == token.id]
    if any(each.used_at is not None or each.revoked for each in given):
        return "the join token was used by this node already, which has a credential of its own since then"
    return None


def _with_descendants(state: ClusterState, known: Credential) -> list[Credential]:
    found, names = [known], {known.id}
    for each in sorted(state.keyring.by_id.values(), key=lambda one: one.created_at):
        if each.parent in names and each.id not in names and each.name == known.name:
            names.add(each.id)
            found.append(each)
    return found


def _to_forget(state: ClusterState, now: float) -> list[str]:
    ended = (each for each in state.keyring.by_id.values() if each.expires_at is not None)
    return [each.id for each in ended if each.expires_at is not None and now - each.expires_at > KEEP_ENDED_S]


def _unknown(id: str) -> Decision:
    return refuse_because("TokenNotFound", f"no token {id!r}: `phalanx token list` shows them", "not_found")


def _refuse_alive(state: ClusterState, node: NodeState, now: float, what: str) -> Decision:
    after_s, ago_s = state.rules.lost_after_s, max(0.0, now - node.heard_at)
    text = (
        f"{node.name} was heard {ago_s:.0f} s ago and may still run tasks: it can be {what} after {after_s:.0f} s "
        "of silence; drain it, or stop its runner"
    )
    return refuse(Reason("NodeAlive", Tier.HELD, text, {"host": node.name}))


def _no_node(state: ClusterState, name: str) -> Decision:
    """A refusal that names the nodes there are."""
    known = sorted(state.nodes)
    listed = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
    return refuse_because("NotFound", f"no node {name!r} (nodes: {listed or 'none'})", "not_found")
