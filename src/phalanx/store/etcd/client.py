"""Real etcd over gRPC: one member at a time, the next one when it fails.

Reads, leases and everything else that may be done twice are tried on every member before they fail. A transaction is
sent once: its sender knows whether it may be sent again. The stubs are aetcd's; its client knows one member only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]
from aetcd.rpc import rpc_pb2 as rpc  # type: ignore[import-untyped]
from aetcd.rpc import rpc_pb2_grpc as stubs

from phalanx.logger import logger
from phalanx.store.address import StoreAccess, StoreAddress
from phalanx.store.etcd.errors import is_stale_token, translated
from phalanx.store.etcd.kv import (
    Compare,
    Delete,
    EtcdRefused,
    EtcdUnavailable,
    Get,
    KeyValue,
    Outcome,
    Put,
    RangeReply,
)
from phalanx.store.protocol import StoreError

log = logger("store")
DEADLINE_S = 2.0
_SLOW_S = 0.5  # a member that fails after this long is not asked again
_PAUSE_S = 0.2  # before a round over all members begins again
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # so that a new channel is a new connection
    ("grpc.keepalive_time_ms", 6_000),  # etcd closes connections with pings more often than every 5 s
    ("grpc.keepalive_timeout_ms", 2_000),
]
_TARGETS = {
    "value": (rpc.Compare.VALUE, "value"),
    "create": (rpc.Compare.CREATE, "create_revision"),
    "mod": (rpc.Compare.MOD, "mod_revision"),
}
_Metadata = tuple[tuple[str, str], ...]
_WITH_LEADER: _Metadata = (
    ("hasleader", "true"),
)  # a member that is cut off from the others answers so at once
T = TypeVar("T")


class EtcdMember:
    """One member: a channel, its stubs, and the credentials of a call."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        self.address = address
        self.channel = channel
        self.kv: Any = stubs.KVStub(channel)
        self.lease: Any = stubs.LeaseStub(channel)
        self.auth: Any = stubs.AuthStub(channel)


class EtcdClient:
    """etcd, for the store. `hosts` are host:port; `tls` or any of the files of `access` asks for TLS."""

    def __init__(self, hosts: Sequence[str], access: StoreAccess | None = None, tls: bool = False) -> None:
        self._hosts = tuple(hosts)
        self._access = access or StoreAccess()
        self._tls = tls
        self._at = 0
        self._member: EtcdMember | None = None
        self._failures = 0  # in a row
        self._token: _Metadata = ()  # etcd's token, once it has accepted our password
        self._ending: set[asyncio.Future[Any]] = set()  # calls and channels that are not done yet

    async def range(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        limit: int = 0,
        newest_first: bool = False,
        keys_only: bool = False,
    ) -> RangeReply:
        order = rpc.RangeRequest.DESCEND if newest_first else rpc.RangeRequest.NONE
        request = rpc.RangeRequest(key=key, range_end=end, limit=limit, keys_only=keys_only, sort_order=order)
        answer = await self._repeated(lambda member: self._unary(member.kv.Range, request))
        return RangeReply([_entry(each) for each in answer.kvs], answer.header.revision, answer.more)

    async def txn(
        self,
        compares: list[Compare],
        then: list[Put | Delete | Get],
        otherwise: list[Get] | None = None,
    ) -> Outcome:
        request = rpc.TxnRequest(
            compare=[_compare(each) for each in compares],
            success=[_operation(each) for each in then],
            failure=[_operation(each) for each in otherwise or ()],
        )
        answer = await self._once(lambda member: self._unary(member.kv.Txn, request))
        found = [
            [_entry(each) for each in response.response_range.kvs]
            for response in answer.responses
            if response.HasField("response_range")
        ]
        return Outcome(answer.succeeded, answer.header.revision, found)

    async def grant(self, ttl_s: int) -> int:
        request = rpc.LeaseGrantRequest(TTL=ttl_s)
        answer = await self._repeated(lambda member: self._unary(member.lease.LeaseGrant, request))
        return int(answer.ID)

    async def keep_alive(self, lease: int) -> int:
        async def kept(member: EtcdMember) -> int:
            call = member.lease.LeaseKeepAlive(metadata=_WITH_LEADER + self._token, timeout=DEADLINE_S)
            await call.write(rpc.LeaseKeepAliveRequest(ID=lease))
            answer = await call.read()
            if answer is grpc.aio.EOF:
                raise EtcdUnavailable(f"etcd at {member.address} closed the stream of leases")
            self._whole(_hang_up(call))
            return int(answer.TTL)

        return await self._repeated(lambda member: self._whole(kept(member)))

    async def revoke(self, lease: int) -> None:
        request = rpc.LeaseRevokeRequest(ID=lease)
        try:
            await self._repeated(lambda member: self._unary(member.lease.LeaseRevoke, request))
        except EtcdRefused as error:
            if "lease not found" not in str(error):
                raise

    async def close(self) -> None:
        """Calls that their callers gave up are waited for: each ends with its answer or at its deadline."""
        if self._member is not None:
            self._leave(self._member)
        while self._ending:
            await asyncio.wait(self._ending)

    async def _unary(self, method: Callable[..., Awaitable[Any]], request: Any) -> Any:
        return await self._whole(method(request, metadata=_WITH_LEADER + self._token, timeout=DEADLINE_S))

    def _whole(self, call: Awaitable[T]) -> asyncio.Future[T]:
        """A call runs to its end, also if its caller gives it up.

        What gRPC has to say of the end must find this loop open, or another loop of the process fails over it.
        """
        running = asyncio.ensure_future(call)
        self._ending.add(running)
        running.add_done_callback(self._ended)
        return asyncio.shield(running)

    def _ended(self, running: asyncio.Future[Any]) -> None:
        self._ending.discard(running)
        if not running.cancelled():
            running.exception()  # its caller has it, or does not want it any more

    async def _repeated(self, ask: Callable[[EtcdMember], Awaitable[T]]) -> T:
        """For requests that may be sent twice: try every member once before giving up."""
        for _ in self._hosts[1:]:
            try:
                return await self._once(ask)
            except EtcdUnavailable:
                continue
        return await self._once(ask)

    async def _once(self, ask: Callable[[EtcdMember], Awaitable[T]]) -> T:
        """Ask the present member. One that does not answer is left; an expired token is replaced."""
        member = self._present()
        began = asyncio.get_running_loop().time()
        try:
            answer = await self._asked(member, ask)
        except (grpc.RpcError, grpc.aio.UsageError, StoreError) as error:
            raise await self._failed(member, _translated_error(error, member.address)) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                # The caller has waited long enough. If callers always give up before our own deadline, and nothing
                # else leaves this member, it would be asked for ever.
                if member is self._member and asyncio.get_running_loop().time() - began > _SLOW_S:
                    self._leave(member)
                raise
            # Not the caller was cancelled, but the call: another request left this member meanwhile.
            lost = EtcdUnavailable(f"the connection to etcd at {member.address} was given up")
            raise await self._failed(member, lost) from None
        self._failures = 0
        return answer

    async def _asked(self, member: EtcdMember, ask: Callable[[EtcdMember], Awaitable[T]]) -> T:
        if self._access.user and not self._token:
            await self._authenticate(member)
        try:
            return await ask(member)
        except grpc.RpcError as error:
            if not self._access.user or not is_stale_token(error):
                raise
        await self._authenticate(member)
        return await ask(member)

    async def _failed(self, member: EtcdMember, failure: StoreError) -> StoreError:
        """Leave a member that does not answer. A round over all of them is followed by a pause."""
        if (
            isinstance(failure, EtcdUnavailable) and member is self._member
        ):  # else another request has left it already
            if self._failures == 0:
                log.warning("an etcd member does not answer, trying the next", error=str(failure))
            self._leave(member)
            self._failures += 1
            if self._failures % len(self._hosts) == 0:
                await asyncio.sleep(_PAUSE_S)
        return failure

    async def _authenticate(self, member: EtcdMember) -> None:
        request = rpc.AuthenticateRequest(name=self._access.user, password=self._access.password or "")
        answer = await self._whole(member.auth.Authenticate(request, timeout=DEADLINE_S))
        self._token = (("token", answer.token),)

    def _present(self) -> EtcdMember:
        if self._member is None:
            address = self._hosts[self._at % len(self._hosts)]
            self._member = EtcdMember(address, self._channel(address))
        return self._member

    def _leave(self, member: EtcdMember) -> None:
        """Change to the next member. Requests to the old one may still be answered before it is closed."""
        self._at += 1
        self._member = None
        self._whole(member.channel.close(DEADLINE_S))

    def _channel(self, address: str) -> grpc.aio.Channel:
        """Certificates are read each time, so that new ones need no restart."""
        access = self._access
        if not (self._tls or access.ca_file or access.cert_file):
            return grpc.aio.insecure_channel(address, options=_OPTIONS)
        credentials = grpc.ssl_channel_credentials(
            root_certificates=_read(access.ca_file),
            private_key=_read(access.key_file),
            certificate_chain=_read(access.cert_file),
        )
        return grpc.aio.secure_channel(address, credentials, options=_OPTIONS)


async def _hang_up(call: Any) -> None:
    """End a stream that has said what was wanted."""
    with suppress(grpc.RpcError, asyncio.CancelledError):
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            pass


def connect(place: StoreAddress, access: StoreAccess) -> EtcdClient:
    """A client for the servers of an address. It connects with the first request."""
    return EtcdClient(place.hosts, access, place.tls)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; needed for TLS to etcd") from error


def _translated_error(error: Exception, address: str) -> StoreError:
    if isinstance(error, StoreError):
        return error
    if isinstance(error, grpc.RpcError):
        return translated(error, address)
    return EtcdUnavailable(f"the connection to etcd at {address} was closed: {error}")


def _entry(found: Any) -> KeyValue:
    return KeyValue(found.key, found.value, found.create_revision, found.mod_revision, found.lease)


def _compare(wanted: Compare) -> Any:
    target, name = _TARGETS[wanted.field]
    return rpc.Compare(key=wanted.key, result=rpc.Compare.EQUAL, target=target, **{name: wanted.equals})


def _operation(wanted: Put | Delete | Get) -> Any:
    match wanted:
        case Put():
            put = rpc.PutRequest(key=wanted.key, value=wanted.value, lease=wanted.lease)
            return rpc.RequestOp(request_put=put)
        case Delete():
            gone = rpc.DeleteRangeRequest(key=wanted.key, range_end=wanted.end)
            return rpc.RequestOp(request_delete_range=gone)
        case Get():
            asked = rpc.RangeRequest(key=wanted.key, range_end=wanted.end)
            return rpc.RequestOp(request_range=asked)
