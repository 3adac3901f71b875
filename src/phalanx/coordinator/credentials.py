"""Who is accepted: tokens out of settings and files, tokens that were created, and what the cluster's secret signs.

REST asks for a user, the link port for a node. Records of created tokens are part of the state, so a standby knows
them as well; which of them are made, and when they end, is decided in `core/cluster/decide/declared.py`.

Coordinators of one cluster share its secret. Every key is derived from it for one purpose, so that none of them reveals
another. A job's token, and the credential a node gets for a join token, are made again from the secret; neither is kept
anywhere. At the start a token file that cannot be used is fatal. Later an emptied one means nobody, but one that cannot
be read, or that others may read, changes nothing. Only digests are kept.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

from phalanx.api.schema.cluster import AuditLine
from phalanx.api.server.auth import TOKEN_MAX, Bearer, Identity, digest, fingerprint
from phalanx.api.server.commands import NO_AUDIT, Audit
from phalanx.api.server.proxies import ProxyUser
from phalanx.clock import Clock, SteadyClock
from phalanx.coordinator.environment_keys import EnvironmentKeys
from phalanx.coordinator.link import Envelope, no_reply
from phalanx.coordinator.link_auth import NOT_OF_RUNNERS, STRANGER, LinkAccess
from phalanx.coordinator.secret import ClusterSecret
from phalanx.core.cluster.decide.declared import is_use_news, why_not
from phalanx.core.cluster.inputs import Input, KnowSecret, UseCredentials
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.credential import FINGERPRINT_CHARACTERS, Credential
from phalanx.core.model.job import is_name
from phalanx.errors import ConfigError, TokenError, Unavailable
from phalanx.logger import logger, told
from phalanx.settings import Settings
from phalanx.tokenfile import ensure_token, make_token, read_tokens, split_tokens

log = logger("coordinator")
LOOK_EVERY_S = 1.0
VOUCHER_S = 30.0
SHORT = 16  # characters of a token that are too few
RECHECK_EVERY_S = 5.0  # how soon a connection ends whose credential was revoked; at most 30 s are promised


class TokenSet:
    """The accepted tokens of one kind of bearer out of settings: values, and a file that may change while we run."""

    def __init__(
        self, whose: str, values: Iterable[str], path: Path | None = None, *, is_given: bool = False
    ) -> None:
        self._whose = whose
        self._values = frozenset(digest(token) for token in values)
        self._path = path
        self._trouble = ""
        self.digests = self._values
        if path is not None:
            self.digests |= self._first_read(path, is_given)
        log.info("tokens accepted", of=whose, fingerprints=_told(self.digests))

    def holds(self, shown: bytes) -> bool:
        """Whether a digest is one of ours. Every one is compared, so that time tells nothing."""
        found = False
        for accepted in self.digests:
            found |= hmac.compare_digest(accepted, shown)
        return found

    def reload(self) -> bool:
        """Read the file again; whether the set is another one now."""
        if self._path is None:
            return False
        try:
            found = self._values | {digest(token) for token in read_tokens(self._path)}
        except TokenError as error:
            if self._trouble != str(error):
                log.warning(
                    "tokens not reloaded, the previous ones stay valid", of=self._whose, **told(error)
                )
            self._trouble = str(error)
            return False
        self._trouble = ""
        if found == self.digests:
            return False
        added, removed = found - self.digests, self.digests - found
        log.info(
            "tokens changed", of=self._whose, added=_told(added), removed=_told(removed), left=len(found)
        )
        self.digests = found
        return True

    def _first_read(self, path: Path, is_given: bool) -> frozenset[bytes]:
        if not is_given:
            make_token(path)
        tokens = read_tokens(path)
        if not tokens:
            raise TokenError(
                f"token file {path} is empty, so no client could authenticate",
                hint="put a token into it" if is_given else f"remove {path}, and the next start makes one",
            )
        return frozenset(digest(token) for token in tokens)


def _told(digests: Iterable[bytes]) -> list[str]:
    return sorted(each.hex()[:FINGERPRINT_CHARACTERS] for each in digests)


class Credentials:
    """Every token that is accepted at this moment."""

    def __init__(
        self, users: TokenSet, nodes: TokenSet, secret: ClusterSecret, clock: Clock, reload_s: float = 60.0
    ) -> None:
        self._users = users
        self._nodes = nodes
        self._secret = secret
        self._clock = clock
        self._reload_s = reload_s
        self._state: Callable[[], ClusterState] | None = None
        self._shown: set[str] = set()  # records that were used and may be news
        self._asked_to_reload = asyncio.Event()
        self.audit: Audit = NO_AUDIT
        self.name = "admin"  # whom tokens out of settings stand for
        self.secret_file: Path | None = None  # where the secret stands, for errors that name it
        self._refuse_common()

    @classmethod
    def open(cls, settings: Settings, clock: Clock) -> Credentials:
        """Read every source, or raise ConfigError; a file that was not configured is created."""
        section, given = settings.coordinator, settings.given
        listed = split_tokens(section.tokens or "")
        if section.tokens is not None and not listed:
            raise ConfigError(
                "coordinator.tokens is set and holds no token",
                hint="give tokens with commas, or leave it out",
            )
        values = [token for token in (section.token, *listed) if token]
        if short := [each for each in values if len(each) < SHORT]:
            log.warning("a short token can be guessed", characters=min(map(len, short)))
        users = TokenSet("users", values, section.token_file, is_given="coordinator.token_file" in given)
        nodes = TokenSet(
            "runners",
            [section.node_token] if section.node_token else [],
            section.node_token_file,
            is_given="coordinator.node_token_file" in given,
        )
        ensure_token(section.secret_file)
        secret = ClusterSecret(*read_tokens(section.secret_file))
        made = cls(users, nodes, secret, clock, section.auth_reload_interval_s)
        made.secret_file = Path(section.secret_file)
        return made

    @classmethod
    def local(cls, user_token: str, node_token: str) -> Credentials:
        """For a cluster inside one process."""
        users, nodes = TokenSet("users", [user_token]), TokenSet("runners", [node_token])
        made = cls(users, nodes, ClusterSecret(secrets.token_urlsafe(32)), SteadyClock())
        made.name = "local"
        return made

    def follow(self, state: Callable[[], ClusterState]) -> None:
        """From now on created tokens count, as the state of the moment knows them."""
        self._state = state

    # Who is it?

    def accepts_user(self, token: str) -> Identity | None:
        """The identity of a token shown to REST. A token of another kind is known too, but has no rights there.

        Raises Unavailable before the log was read: until then it is unknown whether a token was created.
        """
        if not token or len(token) > TOKEN_MAX:
            return None
        shown = digest(token)
        if self._users.holds(shown):
            return Identity(self.name, "admin", fingerprint(token))
        if self._nodes.holds(shown):
            return Identity("runners", "node", fingerprint(token))
        if self._state is not None:
            self._state()
        if (record := self._record(shown)) is not None:
            return self._person(record)
        return self._task(token)

    def identity_by(self, shown: str) -> Identity | None:
        """The identity of the user's token with this fingerprint, while it is accepted."""
        if any(each.hex()[:FINGERPRINT_CHARACTERS] == shown for each in self._users.digests):
            return Identity(self.name, "admin", shown)
        state = self._known_state()
        record = None if state is None else state.keyring.by_id.get(shown)
        return None if record is None or record.kind != "user" else self._person(record)

    def accepts_node(
        self, token: str, node: str, origin: str = "", peer_name: str | None = None
    ) -> LinkAccess:
        """Whether a token, shown over a connection of `peer_name`'s certificate, may speak for a node."""
        if peer_name is not None and peer_name != node:
            return LinkAccess(f"the certificate is for node {peer_name!r}, not for {node!r}")
        if not token or len(token) > TOKEN_MAX:
            return LinkAccess(STRANGER)
        shown = digest(token)
        if self._nodes.holds(shown):
            return LinkAccess()
        record = self._record(shown)
        if record is None or not is_name(node):
            return LinkAccess(STRANGER)
        if record.kind == "join":
            return self._joining(record, node, origin)
        if record.kind != "node":
            return LinkAccess(NOT_OF_RUNNERS)
        if record.name != node:
            return LinkAccess(f"this credential is for node {record.name!r}, not for {node!r}")
        if not record.is_valid(self._clock.now()):
            return LinkAccess(
                "the node's credential was revoked: `phalanx token create --join` makes a new start"
            )
        self._note_use(record)
        return LinkAccess()

    def voucher(self, user: ProxyUser) -> str:
        """What this coordinator says to the leader of a user whom its proxy has named."""
        said = f"{user.name}:{user.role}:{self._clock.now() + VOUCHER_S:.0f}"
        return f"{said}:{self._secret.sign_voucher(said)}"

    def vouched(self, voucher: str) -> ProxyUser | None:
        said, _, signature = voucher.rpartition(":")
        if not hmac.compare_digest(self._secret.sign_voucher(said).encode(), signature.encode()):
            return None
        name, role, until = said.split(":")
        return ProxyUser(name, role) if self._clock.now() < float(until) else None

    def task_token(self, job: str) -> str:
        """What the processes of a job may show."""
        return self._secret.task_token(job)

    def vps_seed(self, job: str) -> bytes:
        return self._secret.vps_seed(job)

    @property
    def environments(self) -> EnvironmentKeys:
        """What seals the environments of jobs, and opens them."""
        return self._secret.environments

    def refused(self, node: str, entry: LinkAccess, where: str) -> None:
        """Write to the audit log that a runner was refused at the link port."""
        log.warning("runner refused", node=node[:80], why=entry.refusal, where=where)
        id = node if is_name(node) else ""
        self._note_hello(AuditLine(where=where, id=id, status=401, reason="Unauthorized"))

    def joined(self, node: str, entry: LinkAccess, where: str) -> None:
        """Write down that a node has a credential from now on."""
        line = AuditLine(name=node, role="join", fingerprint=entry.join, where=where, id=node, status=200)
        self._note_hello(line)

    def _note_hello(self, line: AuditLine) -> None:
        line.method, line.route = "HELLO", "link"
        line.action = "join node" if line.role == "join" else "connect node"
        self.audit.note(line)

    # The cluster's secret.

    def check(self) -> None:
        """Raise ConfigError if the cluster was begun with another secret than ours."""
        known = self._known_state()
        if known is not None and known.keyring.secret not in ("", *self._secret.fingerprints):
            ours = f"coordinator.secret_file {self.secret_file} (fingerprint {self._secret.fingerprint})"
            raise ConfigError(
                f"{ours} is not the secret of this cluster (fingerprint {known.keyring.secret})",
                hint="copy that file from a coordinator of this cluster, they all share it; or give another --store",
            )

    def inputs(self) -> list[Input]:
        """What has to be written down once this coordinator is active."""
        known = self._known_state()
        before, ours = "" if known is None else known.keyring.secret, self._secret.fingerprint
        return [] if before == ours else [KnowSecret(ours, replaces=before)]

    # Time passes.

    def reload_soon(self) -> None:
        """Read the files again now."""
        self._asked_to_reload.set()

    async def keep(
        self,
        post: Callable[[Envelope], object],
        recheck: Iterable[Callable[[], None]] = (),
        more: Callable[[], list[Input]] = list,
    ) -> None:
        """Read the files again and again, end connections that have lost their right, write down who came.

        `more` are inputs that tell who else came.
        """
        loop = asyncio.get_running_loop()
        read_at = checked_at = loop.time()
        look_s = min(LOOK_EVERY_S, self._reload_s)
        while True:
            await self._pause(look_s)
            now, changed = loop.time(), False
            if self._asked_to_reload.is_set() or now - read_at >= self._reload_s:
                self._asked_to_reload.clear()
                read_at = now
                changed = self.reload()
            if changed or now - checked_at >= RECHECK_EVERY_S:
                checked_at = now
                for look in recheck:
                    look()
            if self._shown:
                post(([UseCredentials(tuple(sorted(self._shown)))], no_reply))
                self._shown.clear()
            if inputs := more():
                post((inputs, no_reply))

    def reload(self) -> bool:
        """Read both files again; whether anything changed."""
        before = self._users.digests, self._nodes.digests
        changed = [self._users.reload(), self._nodes.reload()]
        try:
            self._refuse_common()
        except ConfigError as error:
            log.warning("tokens not reloaded, the previous ones stay valid", **told(error))
            self._users.digests, self._nodes.digests = before
            return False
        return any(changed)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._asked_to_reload.wait()
        except TimeoutError:
            pass

    def _refuse_common(self) -> None:
        """A token that users and runners share would make every node an admin."""
        if self._users.digests & self._nodes.digests:
            raise ConfigError(
                "the same token is accepted from users and from runners",
                hint="give coordinator.node_token (or its file) a token of its own",
            )

    def _known_state(self) -> ClusterState | None:
        try:
            return None if self._state is None else self._state()
        except Unavailable:  # a standby that has not read the log yet
            return None

    def _record(self, shown: bytes) -> Credential | None:
        """A record by its digest. Finding one tells by its time at most a digest, which leads back to no token."""
        state = self._known_state()
        return None if state is None else state.keyring.by_digest.get(shown)

    def _person(self, record: Credential) -> Identity | None:
        if not record.is_valid(self._clock.now()):
            return None
        self._note_use(record)
        role: Bearer = record.role if record.kind == "user" else record.kind  # type: ignore[assignment]
        return Identity(record.name or "a node", role, record.id, "", record.expires_at, is_record=True)

    def _task(self, token: str) -> Identity | None:
        """A job's own token is good while the job lives."""
        job, state = self._secret.job_of(token), self._known_state()
        if job is None or state is None:
            return None
        known = state.jobs.get(job)
        if known is None or known.is_over:
            return None
        return Identity(known.job.user, "task", fingerprint(token), job)

    def _joining(self, join: Credential, node: str, origin: str) -> LinkAccess:
        state, now = self._known_state(), self._clock.now()
        assert state is not None
        if not origin:
            return LinkAccess("a join token is for the first hello of a runner only")
        if (no := why_not(state, join.id, node, origin, now)) is not None:
            return LinkAccess(no)
        token = self._secret.node_credential(join.id, node, origin)
        made = Credential(
            fingerprint(token),
            "node",
            digest(token),
            now,
            node,
            created_by=join.created_by,
            parent=join.id,
            origin=origin,
        )
        return LinkAccess("", join.id, made, token)

    def _note_use(self, record: Credential) -> None:
        if record.kind != "join" and is_use_news(record, self._clock.now()):
            self._shown.add(record.id)
