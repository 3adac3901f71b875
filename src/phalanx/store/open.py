"""Opens the store that an address names.

What a kind of store needs is imported only for it, so that a coordinator on SQLite pays nothing for gRPC or Redis.
"""

from __future__ import annotations

from phalanx.errors import ConfigError
from phalanx.logger import logger
from phalanx.settings import CoordinatorSettings
from phalanx.store.address import StoreAccess, StoreAddress, read_access, read_address
from phalanx.store.protocol import Store

log = logger("store")


async def open_store(section: CoordinatorSettings, address: str | None = None) -> Store:
    """The store of the settings, or of another address with the same credentials.

    Raises ConfigError for an address that cannot be one, and StoreError for a place that cannot be used: a file of a
    newer version, servers that do not answer, a Redis that may drop our keys.
    """
    place = read_address(section.store if address is None else address, section.state_dir)
    return await open_at(place, read_access(section))


async def open_at(place: StoreAddress, access: StoreAccess) -> Store:
    match place.kind:
        case "memory":
            from phalanx.store.memory import MemoryStore

            log.warning("memory: is not durable: when this process ends, every job is lost")
            return MemoryStore()
        case "sqlite":
            from phalanx.store.sqlite.store import SqliteStore

            assert place.path is not None
            return SqliteStore(place.path)
        case "etcd":
            from phalanx.store.etcd.client import connect
            from phalanx.store.etcd.store import EtcdStore

            return await EtcdStore.open(connect(place, access), place.prefix)
        case "redis":
            from phalanx.store.redis.store import open_redis

            return await open_redis(place, access)


async def open_to_read(place: StoreAddress, access: StoreAccess) -> Store:
    """Open a store for checks and backups: nothing is created and nothing changed, not even damaged records."""
    match place.kind:
        case "memory":
            raise ConfigError("memory: ends with its process, so no other process can read it")
        case "sqlite":
            from phalanx.store.sqlite.store import SqliteStore

            assert place.path is not None
            return SqliteStore(place.path, read_only=True)
        case "etcd":
            from phalanx.store.etcd.client import connect
            from phalanx.store.etcd.reader import ReadOnlyKv
            from phalanx.store.etcd.store import EtcdStore

            return await EtcdStore.open(ReadOnlyKv(connect(place, access)), place.prefix)
        case "redis":
            from phalanx.store.redis.store import open_redis

            return await open_redis(place, access, read_only=True)
