"""A connection to Redis, and whether that server may be trusted with a cluster's state.

What would break a promise is refused: a replica, a part of a cluster, a policy that may drop our keys. What weakens
one (not waiting for the disk) is logged as a warning, because some operators choose it.
"""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from phalanx.logger import logger
from phalanx.store.address import StoreAccess, StoreAddress
from phalanx.store.protocol import StoreError

log = logger("store")
TIMEOUT_S = 4.0
_OLDEST = 7


def client_of(place: StoreAddress, access: StoreAccess) -> Redis:
    """A client that never retries: a write whose answer was lost must not be sent again unnoticed."""
    host, _, port = place.hosts[0].rpartition(":")
    tls: dict[str, Any] = {}
    if place.tls:
        files = {
            "ssl_ca_certs": access.ca_file,
            "ssl_certfile": access.cert_file,
            "ssl_keyfile": access.key_file,
        }
        tls = {"ssl": True, **{name: str(path) for name, path in files.items() if path is not None}}
    return Redis(
        host=host.strip("[]"),
        port=int(port),
        username=access.user,
        password=access.password,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        **tls,
    )


async def check_server(client: Redis, name: str) -> None:
    """Refuse a server that cannot keep its data, and warn about one that may lose the newest part of it."""
    found: dict[str, Any] = await client.info("everything")
    if found.get("role") != "master":
        raise StoreError(f"{name} is a {found.get('role')}, which may not be written: name the master")
    if found.get("cluster_enabled"):
        raise StoreError(f"{name} is part of a Redis Cluster: use a separate server, or etcd")
    if int(str(found.get("redis_version", "0")).partition(".")[0]) < _OLDEST:
        raise StoreError(f"{name} is Redis {found.get('redis_version')}: expected {_OLDEST} or newer")
    if (policy := found.get("maxmemory_policy", "noeviction")) != "noeviction":
        raise StoreError(
            f"{name} has maxmemory-policy {policy}, which may drop our keys: set it to noeviction"
        )
    if loss := await _may_lose(client, found):
        log.warning("Redis may lose what it acknowledged", store=name, loss=loss)


async def _may_lose(client: Redis, found: dict[str, Any]) -> str:
    """What a crash can lose; empty if nothing."""
    if not found.get("aof_enabled"):
        return "everything since its last snapshot, when it stops: set appendonly yes and appendfsync always"
    try:
        fsync = (await client.config_get("appendfsync")).get("appendfsync")
    except RedisError:
        return "it does not say whether it waits for the disk: make sure that appendfsync is always"
    if fsync != "always":
        return f"about two seconds of writes, when its machine stops (appendfsync {fsync}): set it to always"
    return ""
