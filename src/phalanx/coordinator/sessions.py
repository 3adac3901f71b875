"""Sessions: who may open one, with which ticket, and the connection that the runner dials for it.

A ticket is good once, for the user who asked, within half a minute. A session lives in the memory of one coordinator
and ends with it. Its bytes are passed on in `api/server/routes/sessions.py`, from the client's connection to the
runner's own for this session, so that nothing else waits behind them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from phalanx.api.schema.sessions import ExecRequest, ForwardRequest, InputRequest, SessionTicket
from phalanx.coordinator import lookup
from phalanx.coordinator.link_auth import STRANGER, LinkAuthenticator
from phalanx.coordinator.logs import LogLinks
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.views import ranks
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.orders import AttemptKey, Status
from phalanx.duplex import Duplex
from phalanx.errors import BadRequest, Conflict, Forbidden, NotFound, TooMany, Unavailable
from phalanx.link import wire
from phalanx.link.session_messages import OpenSession, SessionHello, SessionSpec
from phalanx.store.protocol import Store

T = TypeVar("T")
TICKET_S = 30.0
TICKETS_MAX = 4096
TICKETS_PER_USER_MAX = 256
NODE_SESSIONS_MAX = 128
NODE_SESSIONS_PER_USER_MAX = NODE_SESSIONS_MAX // 2  # so that others can enter their tasks there
DIAL_WITHIN_S = 10.0


class OfferedSession(Struct, frozen=True):
    """A session that a ticket was given for."""

    user: str
    digest: bytes  # of the ticket
    until: float
    node: str
    key: AttemptKey
    spec: SessionSpec


class AwaitedSession(Struct, frozen=True):
    """A session whose runner was asked to dial."""

    node: str
    secret: str
    came: asyncio.Future[Duplex]


class Sessions:
    """The tickets that are out, and the runners that are awaited."""

    def __init__(self, keys: LinkAuthenticator, log_links: LogLinks, ticket_s: float = TICKET_S) -> None:
        self._keys = keys
        self._log_links = log_links
        self._ticket_s = ticket_s
        self._offered: dict[str, OfferedSession] = {}
        self._awaited: dict[str, AwaitedSession] = {}
        self._open: dict[Duplex, tuple[SessionHello, str | None]] = {}
        self._of_nodes: Counter[str] = Counter()
        self._of_users_there: Counter[tuple[str, str]] = Counter()  # by node and user
        self._of_users: Counter[str] = Counter()  # tickets

    def offer(self, user: str, task: str, node: str, key: AttemptKey, spec: SessionSpec) -> SessionTicket:
        """A ticket for this session, and for no other."""
        now = asyncio.get_running_loop().time()
        self._expire(now)
        if not self._log_links.serves_sessions(node):
            raise self._unserved(node)
        if spec.is_input and not self._log_links.serves_inputs(node):
            raise Conflict(
                f"the runner of node {node} is of a version that gives tasks no standard input",
                reason="InputNotServed",
                hint=f"update it on {node}",
            )
        if len(self._offered) >= TICKETS_MAX or self._of_users[user] >= TICKETS_PER_USER_MAX:
            raise TooMany(
                "too many sessions were asked for and not opened", reason="TooManySessions", retry_after_s=5
            )
        self._check_node(node, user)
        id, ticket = secrets.token_hex(12), secrets.token_urlsafe(32)
        self._offered[id] = OfferedSession(user, _digest(ticket), now + self._ticket_s, node, key, spec)
        self._of_users[user] += 1
        return SessionTicket(
            session=id, ticket=ticket, expires_in_s=self._ticket_s, task=task, attempt=key[2], node=node
        )

    async def redeem(self, id: str, ticket: str, user: str) -> Duplex:
        """The runner's connection for the session of a ticket, which is used up by this."""
        self._expire(asyncio.get_running_loop().time())
        offered = self._offered.get(id)
        # One answer for all that can be wrong with it, so that nothing is learned by trying.
        if (
            offered is None
            or offered.user != user
            or not hmac.compare_digest(offered.digest, _digest(ticket))
        ):
            raise Forbidden(
                "this ticket is not accepted: it is unknown, used, expired, or another user's",
                reason="TicketRefused",
                hint="ask for another: each opens one session, within 30 s",
            )
        self._forget(id)
        self._check_node(offered.node, user)
        self._of_nodes[offered.node] += 1
        self._of_users_there[offered.node, user] += 1
        try:
            connection = await self._dialled(id, offered)
        except BaseException:
            self._leave(offered.node, user)
            raise
        connection.lost.add_done_callback(lambda _: self._leave(offered.node, user))
        return connection

    def arrived(
        self, hello: SessionHello, peer_name: str | None, where: Callable[[Duplex], None]
    ) -> wire.Rejected | None:
        """A runner has dialled; `where` is given what is to go on with its connection. Or why it is refused."""
        refusal = self._keys.accepts_node(hello.token, hello.node, peer_name=peer_name).refusal
        awaited = self._awaited.get(hello.id)
        if refusal or hello.version != wire.VERSION:
            return wire.Rejected("Unauthorized", refusal or STRANGER, False)
        if awaited is None or awaited.came.done():
            return wire.Rejected("NoSession", "nobody waits for this session any more", False)
        if awaited.node != hello.node or not hmac.compare_digest(
            awaited.secret.encode(), hello.secret.encode()
        ):
            return wire.Rejected("Unauthorized", STRANGER, False)
        duplex = Duplex()
        where(duplex)
        self._open[duplex] = hello, peer_name
        duplex.lost.add_done_callback(lambda _: self._open.pop(duplex, None))
        awaited.came.set_result(duplex)
        return None

    def recheck(self) -> None:
        """Close the connections of runners whose token is no longer accepted."""
        for duplex, (hello, peer_name) in list(self._open.items()):
            if self._keys.accepts_node(hello.token, hello.node, peer_name=peer_name).refusal:
                duplex.abort()

    async def _dialled(self, id: str, offered: OfferedSession) -> Duplex:
        came: asyncio.Future[Duplex] = asyncio.get_running_loop().create_future()
        secret = secrets.token_urlsafe(32)
        if not self._log_links.open_session(offered.node, OpenSession(id, secret, offered.key, offered.spec)):
            raise self._unserved(offered.node)
        self._awaited[id] = AwaitedSession(offered.node, secret, came)
        try:
            async with asyncio.timeout(DIAL_WITHIN_S):
                return await came
        except TimeoutError:
            raise _node_away(offered.node, f"did not open the session within {DIAL_WITHIN_S:.0f} s") from None
        finally:
            del self._awaited[id]

    def _check_node(self, node: str, user: str) -> None:
        if self._of_nodes[node] >= NODE_SESSIONS_MAX:
            text = f"node {node} has {NODE_SESSIONS_MAX} sessions, as many as one node may"
        elif self._of_users_there[node, user] >= NODE_SESSIONS_PER_USER_MAX:
            text = f"user {user} has {NODE_SESSIONS_PER_USER_MAX} sessions on node {node}, as many as one user may"
        else:
            return
        raise TooMany(f"{text}: end some, or try again", reason="TooManySessions", retry_after_s=5)

    def _leave(self, node: str, user: str) -> None:
        _less(self._of_nodes, node)
        _less(self._of_users_there, (node, user))

    def _expire(self, now: float) -> None:
        """All last equally long, so the first of them are the oldest."""
        while self._offered:
            id = next(iter(self._offered))
            if self._offered[id].until > now:
                return
            self._forget(id)

    def _forget(self, id: str) -> None:
        _less(self._of_users, self._offered.pop(id).user)

    def _unserved(self, node: str) -> Unavailable:
        if self._log_links.is_open(node):
            return Unavailable(
                f"the runner of node {node} opens no sessions",
                reason="SessionsNotServed",
                hint=f"it is of an older version, or not one of `phalanx runner`: update it on {node}",
            )
        return _node_away(node, "is not connected")


class SessionCommands:
    """Finds the running attempt that a session is for."""

    def __init__(self, loop: Requests, store: Store, sessions: Sessions) -> None:
        self._loop = loop
        self._store = store
        self._sessions = sessions
        self.join_session = sessions.redeem

    async def open_exec(self, id: str, request: ExecRequest, user: str) -> SessionTicket:
        request.check()
        spec = SessionSpec(
            tuple(request.command), request.tty, request.stdin, request.rows, request.columns, request.term
        )
        return await self._offer(id, request.rank, spec, user)

    async def open_forward(self, id: str, request: ForwardRequest, user: str) -> SessionTicket:
        return await self._offer(id, request.rank, SessionSpec(port=request.port), user)

    async def open_input(self, id: str, request: InputRequest, user: str) -> SessionTicket:
        """Also while the task is paused: what is sent waits in its pipe."""
        job, position = await self._found(id, None)
        if position != 0 or not job.group_of(position).group.command.stdin:
            raise Conflict(f"task {job.job.task_id(position)} has no standard input", reason="NoInput")
        live = job.live.get(position)
        if live is None or job.status[position] != Status.RUNNING:
            raise _not_running(job, position)
        if live.key[2] != request.attempt:
            raise Conflict(
                f"attempt {request.attempt} of {job.job.task_id(position)} is over", reason="AttemptEnded"
            )
        task = job.job.task_id(position)
        return self._sessions.offer(user, task, live.node, live.key, SessionSpec(is_input=True))

    async def _offer(self, id: str, rank: int | None, spec: SessionSpec, user: str) -> SessionTicket:
        job, position = await self._found(id, rank)
        lookup.refuse_merged(job, "the processes", "phalanx exec")
        task = job.job.task_id(position)
        live = job.live.get(position)
        if live is None or job.status[position] != Status.RUNNING:
            raise _not_running(job, position)
        if live.paused:
            raise Conflict(f"task {task} is paused", reason="TaskPaused", hint=f"phalanx resume {task}")
        return self._sessions.offer(user, task, live.node, live.key, spec)

    async def _found(self, id: str, rank: int | None) -> tuple[JobState, int]:
        if rank is None:
            return await lookup.find_one_task(self._loop, self._store, id)
        job, position = await lookup.find_task(self._loop, self._store, id)
        if position is not None and job.job.tasks > 1:
            raise BadRequest(f"{id} names a task already; give the job's id with a rank, or no rank")
        found = {rank_of: place for place, rank_of in ranks(job).items()}
        if rank not in found:
            known = f"0-{max(found)}" if found else "none: no gang of it runs"
            raise NotFound(f"{job.job.id} has no rank {rank} (ranks: {known})", reason="TaskNotFound")
        return job, found[rank]


def _not_running(job: JobState, position: int) -> Conflict:
    task, status = job.job.task_id(position), Status(job.status[position])
    if status.is_final:
        text, hint = f"task {task} has ended ({status.word})", f"phalanx logs {task} shows what it wrote"
    elif status is Status.ASSIGNED:
        text, hint = f"task {task} is Assigned: it has not started yet", "try again in a moment"
    else:
        text, hint = f"task {task} is {status.word}: it does not run yet", f"phalanx why {task}"
    return Conflict(text, reason="TaskNotRunning", hint=hint, extra={"status": status.word})


def _node_away(node: str, what: str) -> Unavailable:
    return Unavailable(
        f"node {node} {what}",
        reason="NodeAway",
        hint=f"phalanx node show {node} says since when; the task may go on there",
        retry_after_s=5,
    )


def _less(counts: Counter[T], key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
