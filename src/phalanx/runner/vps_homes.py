"""The files of VPSs on one node: a home folder for each, and what its server has to know.

A home outlasts the attempts of its VPS, and restarts of the runner and of the machine. It is removed when the
coordinator says that the VPS is over; homes are named with every heartbeat until then, so that none is forgotten. The
folder around it is the runner's own.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import structs

from phalanx.core.model.containers import SNAPSHOTS
from phalanx.core.model.job import JobId, is_job_id
from phalanx.core.model.orders import Brief, Start
from phalanx.link.wire import HOMES_MAX
from phalanx.logger import logger
from phalanx.runner.accounts import Account
from phalanx.runner.trees import remove_tree
from phalanx.runner.vps_options import CONTAINER_HOME, HOME, OPTIONS, ServerOptions, encode

log = logger("runner")
LOOPBACK = "127.0.0.1"
CHOSEN = "image"  # the file with the name of a snapshot
REMOVED = ".removed-"  # how the name of a folder begins that is being removed


class VpsHomes:
    """The homes of one runner, in a folder of their own. Nothing is touched before the first VPS comes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: set[JobId] | None = None  # None: not looked at yet
        self._removing: set[asyncio.Task[None]] = set()
        self.forget_images: Callable[[JobId], None] = lambda _: None  # of a VPS that is over

    def home(self, job: JobId) -> str:
        return f"{self._root}/{job}/{HOME}"

    def inner_home(self, brief: Brief) -> str:
        """Where the VPS itself sees its home."""
        return CONTAINER_HOME if brief.command.image else self.home(brief.job)

    def argv(self, job: JobId) -> list[str]:
        """The program of a VPS: our own, whatever is in its home."""
        return [sys.executable, "-I", "-m", "phalanx.vps", f"{self._root}/{job}"]

    def names(self) -> list[JobId]:
        """The jobs that have a home here."""
        if self._names is None:
            try:
                self._names = {each.name for each in self._root.iterdir() if is_job_id(each.name)}
            except FileNotFoundError:
                self._names = set()
        return sorted(self._names)[:HOMES_MAX]

    def prepare(
        self, start: Start, brief: Brief, account: Account | None, addresses: Sequence[str] = ()
    ) -> None:
        """Make the home, unless it is there, and write what the server of this attempt is told. Raises OSError.

        `addresses` are those of the node at which it listens besides loopback, unless it has one of its own.
        """
        assert brief.vps is not None
        self.names()
        folder = self._root / brief.job
        self._root.mkdir(mode=0o711, parents=True, exist_ok=True)
        folder.mkdir(mode=0o711, exist_ok=True)
        home = folder / HOME
        home.mkdir(mode=0o700, exist_ok=True)
        if self._names is not None:
            self._names.add(brief.job)
        own = (start.grant.address,) if start.grant.address else tuple(addresses)
        options = ServerOptions(
            home=CONTAINER_HOME if brief.command.image else str(home),
            port=start.port,
            addresses=(LOOPBACK, *own) if start.port else (),
            host_key=brief.host_key,
            keys=brief.vps.keys,
            account=None if account is None else (account.uid, account.gid, account.groups),
        )
        self._write(folder / OPTIONS, encode(options))
        if account is not None:
            os.chown(home, account.uid, account.gid, follow_symlinks=False)

    def chosen_image(self, job: JobId) -> str:
        """The name of the snapshot that a VPS starts from; empty: from the image it was made with."""
        try:
            return (self._root / job / CHOSEN).read_text()
        except OSError:
            return ""

    def choose_image(self, job: JobId, name: str) -> None:
        """Start it from this snapshot from now on. Raises OSError."""
        made = self._root / job / f"{CHOSEN}.new"
        made.write_text(name)
        made.replace(self._root / job / CHOSEN)

    def with_image(self, brief: Brief) -> Brief:
        """The brief of a VPS with the image that it starts from on this node."""
        name = "" if brief.vps is None else self.chosen_image(brief.job)
        if not name:
            return brief
        command = structs.replace(brief.command, image=f"{SNAPSHOTS}{brief.job}:{name}")
        return structs.replace(brief, command=command)

    def _write(self, path: Path, content: bytes) -> None:
        """A new file each time, complete before it has its name."""
        made = path.with_suffix(".new")
        made.unlink(missing_ok=True)
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o400)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        made.replace(path)

    def remove(self, job: JobId) -> None:
        """The VPS is over: its files go, in a thread, for there may be many."""
        if job not in self.names() or self._names is None:
            return
        gone = self._root / f"{REMOVED}{job}"
        try:
            (self._root / job).rename(gone)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("the files of a VPS cannot be removed", job=job, why=str(error))
            return
        self._names.discard(job)
        log.info("the files of a VPS are removed", job=job)
        self._remove(gone)

    def sweep(self) -> None:
        """Go on with what an earlier runner had begun to remove."""
        if self._root.is_dir():
            for each in self._root.glob(f"{REMOVED}*"):
                self._remove(each)

    def _remove(self, folder: Path) -> None:
        def remove() -> None:
            self.forget_images(folder.name.removeprefix(REMOVED))
            try:
                remove_tree(folder)
            except OSError as error:
                log.warning("the files of a VPS cannot be removed", folder=str(folder), why=str(error))

        task = asyncio.ensure_future(asyncio.to_thread(remove))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)
