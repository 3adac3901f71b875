"""Where the files of attempts are kept, and how many: from the settings."""

from __future__ import annotations

from msgspec import Struct

from phalanx.coordinator.files import FileStore
from phalanx.logger import logger
from phalanx.settings import CoordinatorSettings as Section

log = logger("coordinator")


class FilesConfig(Struct, frozen=True):
    """Where files of attempts are kept, how long, and how many bytes of all and of one."""

    store: FileStore
    keep_s: float = 30 * 86_400.0
    keep_bytes: int = 20 << 30
    max_bytes: int = 10 << 30


def files_of(section: Section) -> FilesConfig:
    """The place for files that the settings name. A folder of one coordinator's own is not there for the others."""
    if section.files is None and section.store.startswith(("etcd", "redis")):
        log.warning(
            "files are kept in a folder of this coordinator: others have none of them, give coordinator.files"
        )
    return FilesConfig(
        FileStore.open(section), section.files_keep_s, section.files_keep_bytes, section.files_max_bytes
    )
