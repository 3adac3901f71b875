"""Finds damaged records in etcd: reads everything, changes nothing."""

from __future__ import annotations

from phalanx.store.etcd.history import EtcdHistory
from phalanx.store.etcd.images import EtcdImages
from phalanx.store.etcd.keys import EtcdKeys, after_prefix
from phalanx.store.etcd.kv import Kv
from phalanx.store.etcd.log import EtcdLog
from phalanx.store.record import Damage

_PAGE = 512


async def damage(
    kv: Kv, keys: EtcdKeys, log: EtcdLog, images: EtcdImages, history: EtcdHistory
) -> list[Damage]:
    """Damaged records, including those that were set aside earlier."""
    found = [Damage("log", str(revision)) for revision in await _in_log(keys, log)]
    found += [Damage("image", str(revision)) for revision in await images.damaged()]
    found += [Damage("history", job) for job in await history.damaged()]
    aside = await kv.range(keys.quarantined, after_prefix(keys.quarantined), keys_only=True)
    for entry in aside.entries:
        source, _, key = entry.key.removeprefix(keys.quarantined).decode().partition("/")
        found.append(Damage(source, str(int(key)), set_aside=True))
    return found


async def _in_log(keys: EtcdKeys, log: EtcdLog) -> list[int]:
    found: list[int] = []
    after = 0
    while True:
        good, bad = await log.read(after, _PAGE)
        revisions = [keys.revision_of(entry.key) for entry in bad]
        found += revisions
        if not good and not bad:
            return found
        after = max([each.revision for each in good] + revisions)
