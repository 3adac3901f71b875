"""Talking to runners: which connection speaks for which node, and what their messages mean. No I/O.

A connection says hello, is welcomed once that is durable, and from then on speaks for its node in this life.
Orders for a node that is away wait in the state; they are sent again when it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import structs

from phalanx.api.schema.ssh_keys import host_key
from phalanx.coordinator.environments import opened_brief
from phalanx.coordinator.idle_devices import IdleDevices
from phalanx.coordinator.images import ImageProgress
from phalanx.coordinator.link_auth import LinkAccess, LinkAuthenticator
from phalanx.coordinator.vps_homes import ReportedHomes
from phalanx.core.cluster.decision import (
    Accepted,
    Answer,
    Disposed,
    Effect,
    Rebrief,
    Refused,
    Send,
    brief,
    roll,
)
from phalanx.core.cluster.inputs import Admit, Disconnect, Heartbeat, Hello, Input, Leave, Tell
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import Job, JobId, is_name
from phalanx.core.model.orders import AttemptKey, Brief, Dismiss, Disposition, Order, Ready, Start, Started
from phalanx.link import wire
from phalanx.link.overlay import OverlayMap
from phalanx.logger import logger

log = logger("coordinator")
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - what to beware of
Reply = Callable[[list[Answer | None]], None]
Envelope = tuple[list[Input], Reply]


class RunnerChannel(Protocol):
    """The way back to a runner."""

    def send(self, messages: list[wire.Message]) -> None: ...

    def close(self) -> None: ...


class RunnerSession:
    """One connection of a runner, from its hello on."""

    def __init__(self, connection: RunnerChannel) -> None:
        self.connection = connection
        self.peer_name: str | None = None  # the node its certificate is for, where one was shown
        self.where = ""  # the address it came from
        self.token = ""
        self.claimed = ""  # the node that it said it is, welcome or not
        self.node = ""
        self.incarnation = ""
        self.briefed: dict[str, set[int]] = {}  # groups, by job, whose brief this connection has carried
        self.rolled: dict[str, set[int]] = {}  # formations, by job, whose roll it has carried
        self.dismissed: list[Order] = []  # jobs that have ended since the last heartbeat
        self.has_overlay = False  # whether it wants to know of the overlay network


class Links:
    """All sessions of one term."""

    def __init__(self, state: Callable[[], ClusterState], keys: LinkAuthenticator, address: str = "") -> None:
        """`address` is where tasks reach this coordinator's REST."""
        self._state = state
        host = address.partition("://")[2].rpartition(":")[0].strip("[]")
        self._address = "" if host in EVERYWHERE else address  # which is of no use elsewhere
        self._keys = keys  # who may speak for which node
        self.sessions: dict[str, RunnerSession] = {}
        self._briefed: dict[JobId, set[str]] = {}  # by job, the nodes whose runners were sent its brief
        self.not_active: wire.Rejected | None = None  # what a standby answers to a runner that connects
        self.stale_reports = 0
        self.idle, self.images, self.homes = IdleDevices(), ImageProgress(), ReportedHomes()
        self._overlay_version = 0  # of the overlay network that runners were told last

    def receive(self, session: RunnerSession, message: wire.Message) -> Envelope | None:
        """The inputs a message amounts to, and how to answer once they are durable."""
        if self.not_active is not None:
            session.connection.send([self.not_active])
            session.connection.close()
            return None
        if not isinstance(message, wire.HelloMessage) and (wrong := wire.why_wrong(message)):
            raise wire.WireError(wrong)
        match message:
            case wire.Reports():
                return self._reports(session, message)
            case wire.Beat():
                return self._beat(session, message)
            case wire.LeavingMessage():
                return self._leaving(session, message)
            case wire.HelloMessage():
                return self._hello(session, message)
        raise wire.WireError(f"a runner does not send {type(message).__name__}")

    def closed(self, session: RunnerSession) -> Envelope | None:
        """The connection is gone. If it spoke for a node, that is an input."""
        if self.sessions.get(session.node) is not session:
            return None
        del self.sessions[session.node]
        self.idle.gone(session.node)
        self.images.gone(session.node)
        return [Disconnect(session.node, session.incarnation)], no_reply

    def dispatch(self, effects: Iterable[Effect]) -> None:
        """Send the orders among the effects, one message per node, each job's brief before its first start."""
        by_node: dict[str, list[Order]] = {}
        for effect in effects:
            if type(effect) is Send and not self._is_late(effect.order):
                by_node.setdefault(effect.node, []).append(effect.order)
            elif type(effect) is Rebrief and (job := self._state().jobs.get(effect.job)) is not None:
                for has in filter(None, map(self.sessions.get, self._briefed.get(effect.job, ()))):
                    groups = sorted(has.briefed.get(effect.job, ()))
                    by_node.setdefault(has.node, []).extend(self._brief(job.job, each) for each in groups)
        self._introduce(by_node)
        self._tell_overlay()
        for node, orders in by_node.items():
            session = self.sessions.get(node)
            if session is not None:
                message = wire.Orders(self._state().epoch, self._with_briefs(session, orders))
                session.connection.send([message])

    def _tell_overlay(self) -> None:
        """Before orders that need it: where blocks are, and who owns which address."""
        state = self._state()
        if state.overlay.version != self._overlay_version:
            self._overlay_version = state.overlay.version
            for session in self.sessions.values():
                if session.has_overlay and (told := overlay_map(state, session.node)) is not None:
                    session.connection.send([told])

    def _introduce(self, by_node: dict[str, list[Order]]) -> None:
        """Tell the members of a job that know each other by name where those are that start now.

        Members of one formation are in its roll; all others start one by one, and are in rolls without a formation.
        """
        jobs = self._state().jobs
        started: dict[JobId, tuple[JobState, int]] = {}
        for orders in by_node.values():
            for order in orders:
                if type(order) is Start and (job := jobs.get(order.key[0])) is not None and job.job.is_named:
                    started[order.key[0]] = job, order.formation
        for job, formation in started.values():
            if formation and all(each.formation == formation for each in job.live.values()):
                continue
            everybody = roll(self._state(), job, 0)
            for node in dict.fromkeys(each.node for each in job.live.values()):
                by_node.setdefault(node, []).insert(0, everybody)

    def _is_late(self, order: Order) -> bool:
        """An attempt may be placed and end in one turn, when its node comes back in a new life: never start it."""
        return type(order) is Start and self._state().attempt(order.key) is None

    def _with_briefs(self, session: RunnerSession, orders: list[Order]) -> list[Order]:
        told: list[Order] = []
        jobs = self._state().jobs
        for order in orders:
            if type(order) is Start and (job := jobs.get(order.key[0])) is not None:
                if order.group not in session.briefed.get(order.key[0], ()):
                    self._note_brief(session, order.key[0], order.group)
                    told.append(self._brief(job.job, order.group))
                rolled = session.rolled.setdefault(order.key[0], set()) if order.formation else set()
                if order.formation and order.formation not in rolled:
                    rolled.add(order.formation)
                    told.append(roll(self._state(), job, order.formation))
            told.append(order)
        return told

    def _briefs(self, session: RunnerSession) -> list[Order]:
        """What the node's attempts are about, for a runner that has forgotten it in a restart."""
        state = self._state()
        node = state.nodes.get(session.node)
        groups = {(key[0], attempt.group) for key, attempt in node.attempts.items()} if node else set()
        for job, number in groups:
            self._note_brief(session, job, number)
        told: list[Order] = [self._brief(state.jobs[job].job, number) for job, number in sorted(groups)]
        named = (state.jobs[job] for job in sorted({job for job, _ in groups}))
        return told + [roll(state, job, 0) for job in named if job.job.is_named]

    def _note_brief(self, session: RunnerSession, job: JobId, group: int) -> None:
        session.briefed.setdefault(job, set()).add(group)
        self._briefed.setdefault(job, set()).add(session.node)

    def _brief(self, job: Job, number: int) -> Brief:
        token, has_ssh = self._keys.task_token(job.id), job.vps is not None and job.vps.ssh != "disabled"
        key = host_key(self._keys.vps_seed(job.id))[0] if has_ssh else ""
        arrival = self._state().jobs[job.id].arrival
        told = structs.replace(
            brief(job, number), token=token, address=self._address, host_key=key, number=arrival
        )
        return opened_brief(told, self._keys.environments, self._state().environments)

    def dismiss(self) -> None:
        """The term is over: every runner is sent to the leader, if it is known, and disconnected."""
        for session in self.sessions.values():
            if self.not_active is not None:
                session.connection.send([self.not_active])
            session.connection.close()
        self.sessions.clear()
        self._briefed.clear()
        self.idle.clear()
        self.images.clear()

    def forget(self, job: str) -> None:
        """A job is over: its brief is not needed any more. Runners are told with their next heartbeat."""
        for node in self._briefed.pop(job, ()):
            session = self.sessions.get(node)
            if session is not None and session.briefed.pop(job, None) is not None:
                session.rolled.pop(job, None)
                session.dismissed.append(Dismiss(job))

    def _hello(self, session: RunnerSession, message: wire.HelloMessage) -> Envelope | None:
        entry = self._keys.accepts_node(message.token, message.node, message.origin, session.peer_name)
        if (no := self._why_not(session, message, entry)) is not None:
            if entry.refusal:
                self._keys.refused(message.node, entry, session.where)
            session.connection.send([no])
            session.connection.close()
            return None
        session.claimed = message.node
        hello = Hello(
            message.node,
            message.incarnation,
            message.origin,
            message.capacity,
            message.held,
            message.address,
            message.trouble,
            message.overlay,
            message.health,
        )

        def welcome(answers: list[Answer | None]) -> None:
            if not answers:
                session.connection.send(
                    [wire.Rejected("StoreUnavailable", "the coordinator cannot write", True)]
                )
                session.connection.close()
                return
            if isinstance(answers[0], Refused):
                no = answers[0].reason
                session.connection.send([wire.Rejected(no.code, no.text, no.code != "JoinRefused")])
                session.connection.close()
                return
            former = self.sessions.get(message.node)
            session.node, session.incarnation = message.node, message.incarnation
            session.token = entry.token or message.token
            if entry.credential is not None:
                self._keys.joined(message.node, entry, session.where)
            self.sessions[message.node] = session
            if former is not None and former is not session:
                former.connection.close()
            state = self._state()
            rules = state.rules
            generation = state.nodes[message.node].generation
            greeting = wire.Welcome(
                wire.VERSION, state.epoch, rules.heartbeat_s, rules.self_fence_s, generation, entry.token
            )
            session.has_overlay = message.overlay
            told = overlay_map(state, message.node) if message.overlay else None
            maps: list[wire.Message] = [] if told is None else [told]
            session.connection.send([greeting, *maps, wire.Orders(state.epoch, self._briefs(session))])

        if entry.credential is not None:  # it becomes durable with the join, and is sent after that
            return [Admit(hello, entry.join, entry.credential)], welcome
        return [hello], welcome

    def recheck(self) -> None:
        """Close the connections whose token is no longer accepted; a runner with a new one dials again."""
        for session in list(self.sessions.values()):
            if self._keys.accepts_node(session.token, session.node, "", session.peer_name).refusal:
                session.connection.close()

    def _why_not(
        self, session: RunnerSession, message: wire.HelloMessage, entry: LinkAccess
    ) -> wire.Rejected | None:
        if message.version != wire.VERSION:
            text = f"the coordinator speaks version {wire.VERSION}, the runner {message.version}: upgrade the older"
            return wire.Rejected("VersionMismatch", text, False)
        if entry.refusal:
            return wire.Rejected("Unauthorized", entry.refusal, False)
        if not is_name(message.node):
            return wire.Rejected("BadName", f"{message.node[:80]!r} cannot name a node", False)
        if message.epoch > self._state().epoch:
            return wire.Rejected(
                "StaleEpoch", "the runner has served a newer coordinator than this one", True
            )
        if session.claimed not in ("", message.node):
            text = f"this connection speaks for node {session.claimed!r}: expected another one for each node"
            return wire.Rejected("BadName", text, False)
        if len(message.held) > (most := self.held_max(message.node)):
            return wire.Rejected("TooLarge", wire.too_many("held", len(message.held), most), False)
        if wrong := wire.why_wrong(message):
            log.warning("hello refused", node=message.node, where=session.where, why=wrong)
            return wire.Rejected("BadHello", wrong, False)
        return None

    def _reports(self, session: RunnerSession, message: wire.Reports) -> Envelope:
        tells: list[Input] = [
            Tell(session.node, session.incarnation, message.epoch, report, message.generation)
            for report in message.reports
        ]

        def dispositions(answers: list[Answer | None]) -> None:
            disposed = [each for each in answers if isinstance(each, Disposed)]
            if not disposed:  # nothing was decided, so there is nothing to say: the runner tells again
                return
            stale = sum(each.disposition > Disposition.DUPLICATE for each in disposed)
            self.stale_reports += stale
            if not stale and all(type(report) is Ready for report in message.reports):
                return  # a member that is ready is answered by its `Go`
            # A start, or that one is ready, is not kept by the runner: an answer to it would be taken for one to
            # the same attempt's end.
            items = [
                (each.key, each.disposition)
                for report, each in zip(message.reports, answers, strict=False)
                if isinstance(each, Disposed) and type(report) not in (Started, Ready)
            ]
            session.connection.send([self._in_force(session, items)])

        return tells, dispositions

    def held_max(self, node: str) -> int:
        """How many attempts a node may list: what it can have, and the ends that it still tells."""
        known = self._state().nodes.get(node)
        return wire.HELD_MAX + (0 if known is None else 2 * (len(known.attempts) + len(known.leftovers)))

    def _beat(self, session: RunnerSession, message: wire.Beat) -> Envelope:
        if len(message.held) > wire.HELD_MAX and len(message.held) > self.held_max(session.node):
            raise wire.WireError(wire.too_many("held", len(message.held), self.held_max(session.node)))

        def acknowledge(answers: list[Answer | None]) -> None:
            if not answers:
                return
            if isinstance(answers[0], Accepted):
                self.idle.told(self._state(), session.node, message.idle, message.sent_at)
                self.images.told(session.node, message.preparing, message.unread)
                epoch = self._state().epoch
                dismissed = [*session.dismissed, *self.homes.to_remove(self._state(), message.homes)]
                session.dismissed = []
                orders = [wire.Orders(epoch, dismissed)] if dismissed else []
                node = self._state().nodes.get(session.node)
                at = 0.0 if node is None else node.heard_at
                session.connection.send([wire.BeatAck(epoch, message.sent_at, at), *orders])
            else:  # its lease is over, or our term is: only a new hello helps
                if isinstance(answers[0], Refused) and answers[0].reason.code != "NotActive":
                    session.connection.send([self._in_force(session, [])])
                session.connection.close()

        told = message.trouble, message.seen_at, message.starts_expire, message.health
        beat = Heartbeat(session.node, session.incarnation, message.held, message.generation, *told)
        return [beat], acknowledge

    def _leaving(self, session: RunnerSession, message: wire.LeavingMessage) -> Envelope:
        def acknowledge(answers: list[Answer | None]) -> None:
            node = self._state().nodes.get(session.node)
            if answers and isinstance(answers[0], Accepted) and node is not None:
                ack = wire.LeaveAck(self._state().epoch, message.sent_at, node.kept_s)
                session.connection.send([ack])

        leave = Leave(session.node, session.incarnation, message.generation, message.keep_s)
        return [leave], acknowledge

    def _in_force(
        self, session: RunnerSession, items: list[tuple[AttemptKey, Disposition]]
    ) -> wire.Dispositions:
        """What became of reports, with the epoch and the lease generation that a true one must carry."""
        node = (state := self._state()).nodes.get(session.node)
        return wire.Dispositions(state.epoch, items, 0 if node is None else node.generation)


def overlay_map(state: ClusterState, name: str) -> OverlayMap | None:
    """The overlay network as one node has to know it; None if it has no part in it."""
    node = state.nodes.get(name)
    if node is None or not node.capacity.block:
        return None
    rules = state.rules.overlay
    others = [
        each for each in state.nodes.values() if each.name != name and each.capacity.block and each.address
    ]
    peers = sorted((each.capacity.block, each.address) for each in others)
    keys = {each.capacity.block: each.capacity.wireguard for each in others} if rules.encrypted else None
    return OverlayMap(rules.subnet, node.capacity.block, peers, state.overlay.known_at(name), keys)


def no_reply(answers: list[Answer | None]) -> None:
    """There is no caller to answer."""
