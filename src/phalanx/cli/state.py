"""The state folder of a cluster on this machine: who owns it, and where that cluster answers.

One supervisor at a time holds the lock on `up.pid`, which the kernel lets go when it dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from phalanx.cli.output import note
from phalanx.endpoint import Endpoint, ProcessOwner
from phalanx.errors import Conflict, Unavailable
from phalanx.settings import Settings

END_WITHIN_S = 45.0
FULL = (errno.ENOSPC, errno.EDQUOT)


def prepare(folder: Path) -> None:
    """Make the folder, mode 0700, and see that we can write into it and nobody else can."""
    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Conflict(f"others may write into {folder}", hint="choose a folder of your own with --state")
        (folder / "log").mkdir(mode=0o700, exist_ok=True)
        probe = folder / f".probe.{os.getpid()}"
        try:
            with _room_or_note(folder):
                probe.write_bytes(b"\0" * 4096)
        finally:
            probe.unlink(missing_ok=True)


@contextmanager
def claimed(folder: Path) -> Iterator[int]:
    """Lock the folder; the lock's file descriptor. Conflict if another process holds it."""
    path = folder / "up.pid"
    with writing(folder):
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise _already_up(folder) from None
        with _room_or_note(folder):
            _overwrite(lock, msgspec.json.encode(ProcessOwner.of(os.getpid())))
    try:
        yield lock
    finally:
        os.ftruncate(lock, 0)
        os.close(lock)


def owner(folder: Path) -> ProcessOwner | None:
    """The living supervisor of a folder, if it has one."""
    with suppress(OSError, msgspec.MsgspecError):
        found = msgspec.json.decode((folder / "up.pid").read_bytes(), type=ProcessOwner)
        return found if found.is_alive else None
    return None


def end(owner: ProcessOwner, is_right: Callable[[int], bool] = lambda _pid: True) -> None:
    """Ask it to end and wait until it has. A pidfd cannot come to mean another process.

    While the pidfd is open the pid names this process; it is signalled only if it is the right one.
    """
    try:
        process = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return
    try:
        if not owner.is_alive:
            return
        if not is_right(owner.pid):
            raise Conflict(
                f"process {owner.pid} is not the one its file names, and was not stopped",
                hint=f"`ps -fp {owner.pid}` shows it; end the right one with `kill`",
            )
        signal.pidfd_send_signal(process, signal.SIGTERM)
        ended = select.poll()
        ended.register(process, select.POLLIN)
        if not ended.poll(END_WITHIN_S * 1000):
            text = f"process {owner.pid} has not ended within {END_WITHIN_S:g} s"
            raise Unavailable(text, hint="try again")
    finally:
        os.close(process)


def endpoint_of(settings: Settings) -> Endpoint:
    """Where a coordinator with these settings answers, run by this process."""
    own = settings.coordinator
    host = f"[{own.bind}]" if ":" in own.bind else own.bind
    address = own.advertise or f"{'https' if own.tls_cert_file else 'http'}://{host}:{own.port}"
    return Endpoint(address, f"{host}:{own.link_port}", str(own.token_file), os.getpid())


@contextmanager
def announced(folder: Path, endpoint: Endpoint) -> Iterator[None]:
    """Tell where the cluster answers, for as long as it does."""
    path = folder / "endpoint.json"
    draft = folder / f".endpoint.{os.getpid()}"
    body = msgspec.json.encode(endpoint)
    with writing(folder):
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            if error.errno not in FULL:
                raise
            with _room_or_note(folder):
                _write_over(path, body)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _write_over(path: Path, body: bytes) -> None:
    """Into the place of what stands there from a life before: that takes no room."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        _overwrite(file, body)
    finally:
        os.close(file)


def _overwrite(file: int, body: bytes) -> None:
    os.pwrite(file, body, 0)
    os.ftruncate(file, len(body))


@contextmanager
def _room_or_note(folder: Path) -> Iterator[None]:
    """A full disk must not keep a part from being restarted: it serves what it has, and goes on when there is room."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        note(f"warning: no space left in {folder}: nothing new can be written there until there is")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Say what is wrong with the folder: read-only, full, not ours."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"cannot write to the state folder {folder}: {error.strerror}",
            hint="free space or fix its permissions, or choose another with --state or PHALANX_STATE_DIR",
        ) from error


def _already_up(folder: Path) -> Conflict:
    found = owner(folder)
    who = f" (pid {found.pid})" if found else ""
    return Conflict(
        f"a cluster is already up in {folder}{who}",
        hint="`phalanx down` stops it; --state DIR starts another",
    )
